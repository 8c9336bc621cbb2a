"""Images that we build and test in, by name and digest. Owns ``data/containers.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import field_validator

from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.names import get_data_folder
from rocm_wheels.records import load_record

CONTAINERS_TABLE = "containers.yaml"
UNRESOLVED_DIGEST = "unresolved"
IMAGE_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class PinnedImage(Fact):
    """An image, or what an image of ours starts from: then ``dockerfile`` says how it is made."""

    about: str
    image: str
    digest: str
    dockerfile: str = ""

    @field_validator("digest")
    @classmethod
    def _is_one(cls, value: str) -> str:
        if value != UNRESOLVED_DIGEST and not IMAGE_DIGEST.fullmatch(value):
            raise ValueError(
                f"{value} is no digest: sha256: and 64 hexadecimal digits, or {UNRESOLVED_DIGEST}"
            )
        return value

    @property
    def is_resolved(self) -> bool:
        """Whether the digest was read from a source."""
        return self.digest != UNRESOLVED_DIGEST


class ContainerTable(FactTable):
    """The whole of ``data/containers.yaml``."""

    images: Mapping[str, PinnedImage]


def read_container_table(path: Path) -> ContainerTable:
    """Read a table. Raises DataError with ``file:line:column`` of every mistake."""
    return load_record(path, ContainerTable)


@lru_cache
def load_container_table() -> ContainerTable:
    """Return the table that is shipped."""
    return read_container_table(get_data_folder() / CONTAINERS_TABLE)
