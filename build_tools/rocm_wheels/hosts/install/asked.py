"""What is asked for: pip's words for packages, read and sorted by who answers for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rocm_wheels import log
from rocm_wheels.errors import UsageError
from rocm_wheels.hosts.choose.candidate import WheelChoice
from rocm_wheels.hosts.install.rule import is_closed_project, find_intended_project, requires_pure_wheel

DEFAULT_PACKAGES = ("torch", "torchvision", "torchaudio")
_NAMES_TIP = "give names and versions: torch 'torchvision>=0.24' 'torch==2.9.*'"
_NEEDS_NO_TORCH = re.compile(r"rocm.*|.*triton.*|amd-.*|hip-.*")


@dataclass(frozen=True)
class RequestedPackage:
    """A requirement as it was given, without its marker, which is true of the environment."""

    text: str
    project: str
    requirement: Requirement


def parse_packages(words: Sequence[str], markers: Mapping[str, str]) -> tuple[RequestedPackage, ...]:
    """Read requirements; UsageError for what is none, for a URL or file, and for a project twice.

    One whose marker is false is left out, and that is said.
    """
    packages: dict[str, RequestedPackage] = {}
    for word in words or DEFAULT_PACKAGES:
        requirement = _parse_package(word)
        if requirement.marker is not None and not requirement.marker.evaluate(dict(markers)):
            log.log_note(f"left out, as its marker is not true of this Python: {word}")
            continue
        requirement.marker = None
        name = canonicalize_name(requirement.name)
        if (intended := find_intended_project(name)) is not None:
            raise UsageError(
                f"{name} is no project of torch's; did you mean {intended}?",
                tip="if not, install it by pip or uv itself: strangers register names that are nearly others",
            )
        if name in packages:
            raise UsageError(
                f"{name} is asked for twice: {packages[name].text} and {word}", tip="name it once"
            )
        packages[name] = RequestedPackage(str(requirement), name, requirement)
    if not packages:
        raise UsageError("nothing is left to install", tip=_NAMES_TIP)
    return tuple(packages.values())


def find_torch_requirement(packages: Sequence[RequestedPackage]) -> str | None:
    """Return the requirement on torch that the packages come to; None where torch is not part of it."""
    for package in packages:
        if package.project == "torch":
            return package.text
    needs_it = any(
        requires_pure_wheel(package.project)
        or (is_closed_project(package.project) and not _NEEDS_NO_TORCH.fullmatch(package.project))
        for package in packages
    )
    return "torch" if needs_it else None


def list_stable_projects(packages: Sequence[RequestedPackage], *, pre: bool) -> frozenset[str]:
    """Return the projects of which a pre-release is not what was asked for, where there are releases."""
    return frozenset(
        package.project for package in packages if not pre and not package.requirement.specifier.prereleases
    )


def list_resolver_lines(
    packages: Sequence[RequestedPackage], choice: WheelChoice | None, *, pinned: bool = True
) -> list[str]:
    """Return what the resolver is asked for.

    torch, where it was asked for, is exactly the one that was chosen; its companions are as they were asked
    for: which of them go with that torch, they say themselves. Extras for the GPUs come with torch.
    """
    lines = [entry.text for entry in packages if choice is None or entry.project != choice.project]
    if choice is None or choice.picked is None:
        return lines
    requested = next((entry.requirement for entry in packages if entry.project == choice.project), None)
    for text in choice.requires or (f"{choice.project}=={choice.picked.version}",):
        entry = Requirement(text)
        if canonicalize_name(entry.name) == choice.project and not (pinned and requested):
            entry.specifier = requested.specifier if requested else SpecifierSet()
        if requested or entry.extras:
            lines.insert(0, str(entry))
    return lines


def list_device_extras(choice: WheelChoice | None) -> frozenset[str]:
    """Return the extras by which torch gets the kernels of this machine's GPUs (``device-gfx942``)."""
    extras = [extra for text in (choice.requires if choice else ()) for extra in Requirement(text).extras]
    return frozenset(extra for extra in extras if extra.startswith("device-"))


def _parse_package(word: str) -> Requirement:
    text = word.strip()
    if not text:
        raise UsageError("a package has an empty name; is a variable not set?", tip=_NAMES_TIP)
    if text.startswith("-"):
        raise UsageError(f"{text} is no option of this command", tip="--help lists them")
    if "://" in text or text.endswith((".whl", ".tar.gz", ".zip")) or text.startswith((".", "/", "~")):
        raise UsageError(
            f"{text} is a file or URL: nothing would be chosen of it",
            tip="put wheels into a folder and name that with --index; or install it by pip or uv itself",
        )
    try:
        requirement = Requirement(text)
    except InvalidRequirement as cause:
        hint = " (two equals signs)" if re.search(r"[^=<>!~]=[^=]", text) else ""
        raise UsageError(f"{text!r} is not a requirement{hint}", tip=_NAMES_TIP) from cause
    if requirement.url:
        raise UsageError(f"{text} names a URL: nothing would be chosen of it", tip=_NAMES_TIP)
    return requirement
