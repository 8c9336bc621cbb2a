"""Which image is meant, and whether its bytes are known: what a name means today, it need not tomorrow."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.containers import DIGEST, KnownImage
from rocm_wheels.records import did_you_mean

ALLOW = "--allow-unresolved takes what the name means now"
# distribution/reference: [domain/]path[:tag][@digest]; a domain has a dot or a port, or is localhost
_NAME = re.compile(
    r"(?P<domain>(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]+)(?::[0-9]+)?/)?"
    r"(?P<path>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
_FROM = re.compile(r"^FROM\s+(?:--\S+\s+)*(?P<image>\S+)", re.IGNORECASE | re.MULTILINE)
_STAGE = re.compile(r"^FROM\s.*\sAS\s+(?P<name>\S+)\s*$", re.IGNORECASE | re.MULTILINE)
_COPIED = re.compile(r"^COPY\s+(?:--\S+\s+)*(?P<paths>.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Chosen:
    """An image as an engine takes it. ``made_here``: it is here or nowhere, so nothing is pulled."""

    reference: str
    made_here: bool = False


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile of ours: its path, and the name that stands for exactly what it is made of."""

    name: str
    dockerfile: Path
    reference: str


def choose_image(
    text: str, images: Mapping[str, KnownImage], clone: Path | None, *, allow_unresolved: bool
) -> Chosen:
    """Return the image of an option. ``clone`` is the checkout with our Dockerfiles, ``None`` without one.

    Raises UsageError for a name that nothing can be called, and DataError where the digest is not known.
    """
    if (known := images.get(text)) is not None:
        if known.dockerfile:
            return Chosen(recipe_of(text, known, clone).reference, made_here=True)
        if known.resolved:
            return Chosen(f"{known.image}@{known.digest}")
        if allow_unresolved:
            return Chosen(known.image)
        raise DataError(f"the digest of image {text} ({known.image}) is unresolved", tip=ALLOW)
    if DIGEST.fullmatch(text):  # the number of an image that is here
        return Chosen(text, made_here=True)
    match = _NAME.fullmatch(text)
    if match is None:
        near = did_you_mean(text, images)
        tip = f"one of {', '.join(images)}, or name@sha256:…"
        raise UsageError(f"{text!r} is no name of an image{near}", tip=tip)
    if match["digest"] is None and not allow_unresolved:
        tip = f"name it with its digest ({text}@sha256:…); {ALLOW}; `rocm-wheels container images` lists ours"
        raise DataError(
            f"image {text} has no digest: it can be another one tomorrow{did_you_mean(text, images)}", tip=tip
        )
    return Chosen(_full_name(match), made_here=match["domain"] == "localhost/")


def recipe_of(name: str, known: KnownImage, clone: Path | None) -> Recipe:
    """Return how an image of ours is made. Its tag is the digest of all that goes into it from a checkout."""
    if clone is None:
        tip = "start rocm-wheels from a clone, or name an image that is run as it is: therock-build"
        raise UsageError(
            f"image {name} is made from a clone, and this rocm-wheels is an installed one", tip=tip
        )
    path = clone / "dockerfiles" / known.dockerfile
    digest = hashlib.sha256()
    for one in (path, *(clone / copied for copied in copied_files(path.read_text(encoding="utf-8")))):
        digest.update(one.read_bytes() + b"\0")
    return Recipe(name, path, f"localhost/rocm-wheels-{name}:{digest.hexdigest()[:16]}")


def copied_files(dockerfile: str) -> list[str]:
    """Return what a Dockerfile copies from the clone, in order; the last word of each line is the target."""
    return [word for found in _COPIED.finditer(dockerfile) for word in found["paths"].split()[:-1]]


def bases_of(dockerfile: str) -> list[str]:
    """Return the images that a Dockerfile starts from, without its own stages."""
    stages = {found["name"] for found in _STAGE.finditer(dockerfile)}
    return [found["image"] for found in _FROM.finditer(dockerfile) if found["image"] not in stages]


def require_resolved(recipe: Recipe) -> None:
    """Raise DataError when a Dockerfile starts from an image without a digest."""
    floating = [
        one
        for one in bases_of(recipe.dockerfile.read_text(encoding="utf-8"))
        if not DIGEST.fullmatch(one.rpartition("@")[2])
    ]
    if floating:
        raise DataError(
            f"{recipe.dockerfile.name} starts from {floating[0]}, whose digest is unresolved", tip=ALLOW
        )


def _full_name(match: re.Match[str]) -> str:
    """Return a name as docker reads it, for engines that would ask in which registry to look.

    A digest says more than a tag, and podman takes only one of the two.
    """
    domain, path = match["domain"], match["path"]
    if domain is None:
        domain, path = "docker.io/", path if "/" in path else f"library/{path}"
    return f"{domain}{path}{match['digest'] or match['tag'] or ':latest'}"
