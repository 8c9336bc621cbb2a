"""The actions of GitHub that workflows use, each at one commit.

Owns ``data/actions.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated

from pydantic import field_validator

from rocm_wheels.model.names import get_data_folder
from rocm_wheels.records import Record, make_record_error, load_record, require_pattern

UNRESOLVED_COMMIT = "unresolved"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ACTION_NAME = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+")


class WorkflowAction(Record):
    """A release of an action: its tag, the commit that the tag named when it was ``read`` in ``source``."""

    version: Annotated[str, require_pattern(r"v[0-9]+(\.[0-9]+){0,2}", "a tag such as v4, v4.1 or v4.1.2")]
    sha: str
    source: Annotated[str, require_pattern("https://.+", "a URL that begins with https://")]
    read: str = ""

    @field_validator("sha")
    @classmethod
    def _is_commit(cls, value: str) -> str:
        if value != UNRESOLVED_COMMIT and not _COMMIT.fullmatch(value):
            raise ValueError(f"{value!r} is no commit (40 hexadecimal digits), nor `{UNRESOLVED_COMMIT}`")
        return value

    @property
    def is_resolved(self) -> bool:
        """Tell whether somebody has read its commit."""
        return self.sha != UNRESOLVED_COMMIT


class ActionsTable(Record):
    """The whole of ``data/actions.yaml``: actions by ``owner/repository``."""

    actions: Mapping[str, WorkflowAction]

    @field_validator("actions")
    @classmethod
    def _are_named(cls, value: Mapping[str, WorkflowAction]) -> Mapping[str, WorkflowAction]:
        for name, action in value.items():
            if not _ACTION_NAME.fullmatch(name):
                raise make_record_error(f"{name!r} is no repository of an action: owner/name", name)
            if not action.source.endswith(f"/{name}"):
                raise make_record_error(
                    f"`source` is not its own repository, but {action.source}", name, "source"
                )
            if action.is_resolved != bool(action.read):
                raise make_record_error("`read` says when `sha` was read, and is there where that was", name)
        return value


def load_actions_table() -> ActionsTable:
    """Return the table."""
    return _read_actions_table()


@lru_cache
def _read_actions_table() -> ActionsTable:
    return load_record(get_data_folder() / "actions.yaml", ActionsTable)
