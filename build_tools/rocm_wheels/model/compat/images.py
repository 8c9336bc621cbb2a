"""Container images by tag, and what is in them. Owns ``data/container_images.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.version import Version
from pydantic import field_validator

from rocm_wheels.model.compat.builds import same_release
from rocm_wheels.model.compat.facts import Fact, FactKind, FactTable, Source
from rocm_wheels.model.compat.versions import read_version
from rocm_wheels.model.gfx import gfx_families
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import load

TABLE = "container_images.yaml"
_TAG = re.compile(
    r"rocm(?P<rocm>[0-9.]+)"
    r"(?:(?:_(?P<family>gfx[^_]+))?_(?P<system>[a-z]+[0-9.]+)_py(?P<python>3\.\d+)"
    r"_pytorch_(?:release_)?(?P<torch>[0-9.]+)(?:_(?P<extra>[a-z]+_[0-9.]+))?)?\Z"
)


class ImageRow(Fact):
    """Tags of an image that one source names."""

    image: str
    use: Literal["run", "build"]
    tags: tuple[str, ...]

    @field_validator("tags")
    @classmethod
    def _are_read(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for tag in value:
            if not _TAG.match(tag):
                raise ValueError(
                    f"{tag} is not a tag such as rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.9.1"
                )
        return value


class ImageTable(FactTable):
    """The whole of ``data/container_images.yaml``."""

    images: tuple[ImageRow, ...]


@dataclass(frozen=True)
class Image:
    """A tag, and what it says of itself; None is what it does not say.

    ``system`` is like ``ubuntu24.04``, ``family`` the GPU family that the image is for.
    """

    name: str
    use: str
    rocm: Version
    torch: Version | None
    python: str | None
    system: str | None
    family: str | None
    kind: FactKind
    source: Source


@lru_cache
def image_table() -> ImageTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return load(data_folder() / TABLE, ImageTable)


@lru_cache
def images() -> tuple[Image, ...]:
    """Return every image, the newest ROCm first, then the newest torch."""
    return images_of(image_table())


def images_of(table: ImageTable) -> tuple[Image, ...]:
    """Return the images of a table, in the order of ``images``."""
    found = [_image(row, tag, table.sources[row.source]) for row in table.images for tag in row.tags]
    return tuple(sorted(found, key=lambda one: (one.rocm, one.torch or Version("0")), reverse=True))


def images_with(
    torch: Version | None = None,
    rocm: Version | None = None,
    *,
    python: str | None = None,
    target: str | None = None,
) -> tuple[Image, ...]:
    """Return the images to run torch in that fit what is given; an image for all GPUs fits every target."""
    return tuple(
        one
        for one in images()
        if one.use == "run"
        and (torch is None or (one.torch is not None and same_release(one.torch, torch)))
        and (rocm is None or same_release(one.rocm, rocm))
        and (python is None or one.python == python)
        and (target is None or one.family is None or target in gfx_families().get(one.family, ()))
    )


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: a tag a row."""
    header = ("image", "use", "rocm", "torch", "python", "system", "family", "kind", "read", "source")
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            one.use,
            str(one.rocm),
            str(one.torch or ""),
            one.python or "",
            one.system or "",
            one.family or "",
            one.kind,
            one.source.retrieved.isoformat(),
            one.source.url,
        )
        for one in images()
    ]
    return header, rows


def _image(row: ImageRow, tag: str, source: Source) -> Image:
    match = _TAG.match(tag)
    if match is None:
        raise ValueError(tag)  # the record has let none through
    torch = match["torch"]
    return Image(
        name=f"{row.image}:{tag}",
        use=row.use,
        rocm=read_version(match["rocm"]),
        torch=read_version(torch) if torch else None,
        python=match["python"],
        system=match["system"],
        family=match["family"],
        kind=row.kind,
        source=source,
    )
