"""The actions of GitHub that workflows use, each at one commit.

Owns ``data/actions.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated

from pydantic import field_validator

from rocm_wheels.model.names import data_folder
from rocm_wheels.records import Record, fault, load, spelled

UNRESOLVED = "unresolved"
_SHA = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+")


class Action(Record):
    """A release of an action: its tag, the commit that the tag named when it was ``read`` in ``source``."""

    version: Annotated[str, spelled(r"v[0-9]+(\.[0-9]+){0,2}", "a tag such as v4, v4.1 or v4.1.2")]
    sha: str
    source: Annotated[str, spelled("https://.+", "a URL that begins with https://")]
    read: str = ""

    @field_validator("sha")
    @classmethod
    def _is_commit(cls, value: str) -> str:
        if value != UNRESOLVED and not _SHA.fullmatch(value):
            raise ValueError(f"{value!r} is no commit (40 hexadecimal digits), nor `{UNRESOLVED}`")
        return value

    @property
    def resolved(self) -> bool:
        """Tell whether somebody has read its commit."""
        return self.sha != UNRESOLVED


class ActionsTable(Record):
    """The whole of ``data/actions.yaml``: actions by ``owner/repository``."""

    actions: Mapping[str, Action]

    @field_validator("actions")
    @classmethod
    def _are_named(cls, value: Mapping[str, Action]) -> Mapping[str, Action]:
        for name, action in value.items():
            if not _NAME.fullmatch(name):
                raise fault(f"{name!r} is no repository of an action: owner/name", name)
            if not action.source.endswith(f"/{name}"):
                raise fault(f"`source` is not its own repository, but {action.source}", name, "source")
            if action.resolved != bool(action.read):
                raise fault("`read` says when `sha` was read, and is there where that was", name)
        return value


def actions_table() -> ActionsTable:
    """Return the table."""
    return _table()


@lru_cache
def _table() -> ActionsTable:
    return load(data_folder() / "actions.yaml", ActionsTable)
