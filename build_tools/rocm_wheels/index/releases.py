"""The variants files of a project: what the variant wheels of each release state, joined."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from rocm_wheels.errors import DataError
from rocm_wheels.index.entries import IndexEntry
from rocm_wheels.index.pages import VariantsFile

if TYPE_CHECKING:  # read by those who have variants: it takes as long as the rest of a small change
    from rocm_wheels.variants.metadata import VariantMetadata


@lru_cache(maxsize=512)
def _parse_variant(text: str) -> VariantMetadata:
    from rocm_wheels.variants.metadata import parse_document

    return parse_document(text.encode(), name="variant.json")


def join_variants(wheels: Mapping[str, str]) -> VariantMetadata:
    """Join the ``variant.json`` of the wheels of a release, by file name; DataError names two of them."""
    from rocm_wheels.variants.metadata import merge_documents

    return merge_documents([(name, _parse_variant(text)) for name, text in wheels.items()])


def make_variants_name(project: str, version: object) -> str:
    """Return the name of a release's variants file: spelled as in the names of wheels (PEP 825)."""
    return f"{project.replace('-', '_')}-{version}-variants.json"


def make_variants_files(project: str, entries: Iterable[IndexEntry]) -> list[VariantsFile]:
    """Return the variants file of every release that has variant wheels, oldest release first.

    DataError that names both wheels when two of them cannot be in one release.
    """
    releases: dict[str, list[IndexEntry]] = {}
    for entry in entries:
        if entry.variant is not None:
            releases.setdefault(str(entry.version), []).append(entry)
    files = []
    for version, wheels in releases.items():
        try:
            content = join_variants({wheel.name: wheel.variant or "" for wheel in wheels}).to_json()
        except DataError as cause:
            raise DataError(f"the variants of {project} {version} do not fit together") from cause
        name = make_variants_name(project, version)
        files.append(VariantsFile(name, content, hashlib.sha256(content).hexdigest()))
    return files
