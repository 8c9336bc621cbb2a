"""Container images by tag, and what is in them. Owns ``data/container_images.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.version import Version
from pydantic import field_validator

from rocm_wheels.model.compat.builds import is_same_release
from rocm_wheels.model.compat.facts import Fact, FactKind, FactTable, FactSource
from rocm_wheels.model.compat.versions import parse_version
from rocm_wheels.model.gfx import get_gfx_families
from rocm_wheels.model.names import get_data_folder
from rocm_wheels.records import load_record

IMAGES_TABLE = "container_images.yaml"
_IMAGE_TAG = re.compile(
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
            if not _IMAGE_TAG.match(tag):
                raise ValueError(
                    f"{tag} is not a tag such as rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.9.1"
                )
        return value


class ImageTable(FactTable):
    """The whole of ``data/container_images.yaml``."""

    images: tuple[ImageRow, ...]


@dataclass(frozen=True)
class TorchImage:
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
    source: FactSource


@lru_cache
def load_image_table() -> ImageTable:
    """Return the table. Raises DataError with ``file:line:column`` of every mistake."""
    return load_record(get_data_folder() / IMAGES_TABLE, ImageTable)


@lru_cache
def list_images() -> tuple[TorchImage, ...]:
    """Return every image, the newest ROCm first, then the newest torch."""
    return make_images(load_image_table())


def make_images(table: ImageTable) -> tuple[TorchImage, ...]:
    """Return the images of a table, in the order of ``list_images``."""
    table_images = [
        _make_image(row, tag, table.sources[row.source]) for row in table.images for tag in row.tags
    ]
    return tuple(
        sorted(table_images, key=lambda image: (image.rocm, image.torch or Version("0")), reverse=True)
    )


def find_images(
    torch: Version | None = None,
    rocm: Version | None = None,
    *,
    python: str | None = None,
    target: str | None = None,
) -> tuple[TorchImage, ...]:
    """Return the images to run torch in that fit what is given; an image for all GPUs fits every target."""
    return tuple(
        image
        for image in list_images()
        if image.use == "run"
        and (torch is None or (image.torch is not None and is_same_release(image.torch, torch)))
        and (rocm is None or is_same_release(image.rocm, rocm))
        and (python is None or image.python == python)
        and (target is None or image.family is None or target in get_gfx_families().get(image.family, ()))
    )


def tabulate_images() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: a tag a row."""
    header = ("image", "use", "rocm", "torch", "python", "system", "family", "kind", "read", "source")
    rows: list[tuple[str, ...]] = [
        (
            image.name,
            image.use,
            str(image.rocm),
            str(image.torch or ""),
            image.python or "",
            image.system or "",
            image.family or "",
            image.kind,
            image.source.retrieved.isoformat(),
            image.source.url,
        )
        for image in list_images()
    ]
    return header, rows


def _make_image(row: ImageRow, tag: str, source: FactSource) -> TorchImage:
    match = _IMAGE_TAG.match(tag)
    if match is None:
        raise ValueError(tag)  # the record has let none through
    torch = match["torch"]
    return TorchImage(
        name=f"{row.image}:{tag}",
        use=row.use,
        rocm=parse_version(match["rocm"]),
        torch=parse_version(torch) if torch else None,
        python=match["python"],
        system=match["system"],
        family=match["family"],
        kind=row.kind,
        source=source,
    )
