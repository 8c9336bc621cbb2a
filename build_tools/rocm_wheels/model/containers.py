"""Images that we build and test in, by name and digest. Owns ``data/containers.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import field_validator

from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import load

TABLE = "containers.yaml"
UNRESOLVED = "unresolved"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class KnownImage(Fact):
    """An image, or what an image of ours starts from: then ``dockerfile`` says how it is made."""

    about: str
    image: str
    digest: str
    dockerfile: str = ""

    @field_validator("digest")
    @classmethod
    def _is_one(cls, value: str) -> str:
        if value != UNRESOLVED and not DIGEST.fullmatch(value):
            raise ValueError(f"{value} is no digest: sha256: and 64 hexadecimal digits, or {UNRESOLVED}")
        return value

    @property
    def resolved(self) -> bool:
        """Whether the digest was read from a source."""
        return self.digest != UNRESOLVED


class ContainerTable(FactTable):
    """The whole of ``data/containers.yaml``."""

    images: Mapping[str, KnownImage]


def read_container_table(path: Path) -> ContainerTable:
    """Read a table. Raises DataError with ``file:line:column`` of every mistake."""
    return load(path, ContainerTable)


@lru_cache
def container_table() -> ContainerTable:
    """Return the table that is shipped."""
    return read_container_table(data_folder() / TABLE)
