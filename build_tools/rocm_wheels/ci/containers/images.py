"""Which image is meant, and whether its bytes are known: what a name means today, it need not tomorrow."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.containers import IMAGE_DIGEST, PinnedImage
from rocm_wheels.records import suggest_name

ALLOW_TIP = "--allow-unresolved takes what the name means now"
# distribution/reference: [domain/]path[:tag][@digest]; a domain has a dot or a port, or is localhost
_IMAGE_NAME = re.compile(
    r"(?P<domain>(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]+)(?::[0-9]+)?/)?"
    r"(?P<path>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
_FROM_LINE = re.compile(r"^FROM\s+(?:--\S+\s+)*(?P<image>\S+)", re.IGNORECASE | re.MULTILINE)
_STAGE_LINE = re.compile(r"^FROM\s.*\sAS\s+(?P<name>\S+)\s*$", re.IGNORECASE | re.MULTILINE)
_COPY_LINE = re.compile(r"^COPY\s+(?:--\S+\s+)*(?P<paths>.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class ChosenImage:
    """An image as an engine takes it. ``made_here``: it is here or nowhere, so nothing is pulled."""

    reference: str
    made_here: bool = False


@dataclass(frozen=True)
class ImageRecipe:
    """A Dockerfile of ours: its path, and the name that stands for exactly what it is made of."""

    name: str
    dockerfile: Path
    reference: str


def choose_image(
    text: str, images: Mapping[str, PinnedImage], clone: Path | None, *, allow_unresolved: bool
) -> ChosenImage:
    """Return the image of an option. ``clone`` is the checkout with our Dockerfiles, ``None`` without one.

    Raises UsageError for a name that nothing can be called, and DataError where the digest is not known.
    """
    if (known_image := images.get(text)) is not None:
        if known_image.dockerfile:
            return ChosenImage(make_image_recipe(text, known_image, clone).reference, made_here=True)
        if known_image.is_resolved:
            return ChosenImage(f"{known_image.image}@{known_image.digest}")
        if allow_unresolved:
            return ChosenImage(known_image.image)
        raise DataError(f"the digest of image {text} ({known_image.image}) is unresolved", tip=ALLOW_TIP)
    if IMAGE_DIGEST.fullmatch(text):  # the number of an image that is here
        return ChosenImage(text, made_here=True)
    match = _IMAGE_NAME.fullmatch(text)
    if match is None:
        near = suggest_name(text, images)
        tip = f"one of {', '.join(images)}, or name@sha256:…"
        raise UsageError(f"{text!r} is no name of an image{near}", tip=tip)
    if match["digest"] is None and not allow_unresolved:
        tip = f"name it with its digest ({text}@sha256:…); {ALLOW_TIP}; `rocm-wheels container images` lists ours"
        raise DataError(
            f"image {text} has no digest: it can be another one tomorrow{suggest_name(text, images)}", tip=tip
        )
    return ChosenImage(_complete_name(match), made_here=match["domain"] == "localhost/")


def make_image_recipe(name: str, known_image: PinnedImage, clone: Path | None) -> ImageRecipe:
    """Return how an image of ours is made. Its tag is the digest of all that goes into it from a checkout."""
    if clone is None:
        tip = "start rocm-wheels from a clone, or name an image that is run as it is: therock-build"
        raise UsageError(
            f"image {name} is made from a clone, and this rocm-wheels is an installed one", tip=tip
        )
    path = clone / "dockerfiles" / known_image.dockerfile
    digest = hashlib.sha256()
    for file in (path, *(clone / copied for copied in list_copied_files(path.read_text(encoding="utf-8")))):
        digest.update(file.read_bytes() + b"\0")
    return ImageRecipe(name, path, f"localhost/rocm-wheels-{name}:{digest.hexdigest()[:16]}")


def list_copied_files(dockerfile: str) -> list[str]:
    """Return what a Dockerfile copies from the clone, in order; the last word of each line is the target."""
    return [word for match in _COPY_LINE.finditer(dockerfile) for word in match["paths"].split()[:-1]]


def list_base_images(dockerfile: str) -> list[str]:
    """Return the images that a Dockerfile starts from, without its own stages."""
    stages = {match["name"] for match in _STAGE_LINE.finditer(dockerfile)}
    return [match["image"] for match in _FROM_LINE.finditer(dockerfile) if match["image"] not in stages]


def require_resolved_bases(recipe: ImageRecipe) -> None:
    """Raise DataError when a Dockerfile starts from an image without a digest."""
    floating = [
        image
        for image in list_base_images(recipe.dockerfile.read_text(encoding="utf-8"))
        if not IMAGE_DIGEST.fullmatch(image.rpartition("@")[2])
    ]
    if floating:
        raise DataError(
            f"{recipe.dockerfile.name} starts from {floating[0]}, whose digest is unresolved", tip=ALLOW_TIP
        )


def _complete_name(match: re.Match[str]) -> str:
    """Return a name as docker reads it, for engines that would ask in which registry to look.

    A digest says more than a tag, and podman takes only one of the two.
    """
    domain, path = match["domain"], match["path"]
    if domain is None:
        domain, path = "docker.io/", path if "/" in path else f"library/{path}"
    return f"{domain}{path}{match['digest'] or match['tag'] or ':latest'}"
