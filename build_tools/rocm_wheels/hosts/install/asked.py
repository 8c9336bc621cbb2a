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
from rocm_wheels.hosts.choose.candidate import Choice
from rocm_wheels.hosts.install.rule import is_closed, meant, only_pure

DEFAULT = ("torch", "torchvision", "torchaudio")
_NO_NAMES = "give names and versions: torch 'torchvision>=0.24' 'torch==2.9.*'"
_WITHOUT_TORCH = re.compile(r"rocm.*|.*triton.*|amd-.*|hip-.*")


@dataclass(frozen=True)
class Asked:
    """A requirement as it was given, without its marker, which is true of the environment."""

    text: str
    project: str
    requirement: Requirement


def read_packages(words: Sequence[str], markers: Mapping[str, str]) -> tuple[Asked, ...]:
    """Read requirements; UsageError for what is none, for a URL or file, and for a project twice.

    One whose marker is false is left out, and that is said.
    """
    found: dict[str, Asked] = {}
    for word in words or DEFAULT:
        one = _read(word)
        if one.marker is not None and not one.marker.evaluate(dict(markers)):
            log.note(f"left out, as its marker is not true of this Python: {word}")
            continue
        one.marker = None
        name = canonicalize_name(one.name)
        if (other := meant(name)) is not None:
            raise UsageError(
                f"{name} is no project of torch's; did you mean {other}?",
                tip="if not, install it by pip or uv itself: strangers register names that are nearly others",
            )
        if name in found:
            raise UsageError(f"{name} is asked for twice: {found[name].text} and {word}", tip="name it once")
        found[name] = Asked(str(one), name, one)
    if not found:
        raise UsageError("nothing is left to install", tip=_NO_NAMES)
    return tuple(found.values())


def torch_wanted(asked: Sequence[Asked]) -> str | None:
    """Return the requirement on torch that the packages come to; None where torch is not part of it."""
    for one in asked:
        if one.project == "torch":
            return one.text
    needs_it = any(
        only_pure(one.project) or (is_closed(one.project) and not _WITHOUT_TORCH.fullmatch(one.project))
        for one in asked
    )
    return "torch" if needs_it else None


def steady(asked: Sequence[Asked], *, pre: bool) -> frozenset[str]:
    """Return the projects of which a pre-release is not what was asked for, where there are releases."""
    return frozenset(one.project for one in asked if not pre and not one.requirement.specifier.prereleases)


def requirements(asked: Sequence[Asked], choice: Choice | None, *, pinned: bool = True) -> list[str]:
    """Return what the resolver is asked for.

    torch, where it was asked for, is exactly the one that was chosen; its companions are as they were asked
    for: which of them go with that torch, they say themselves. Extras for the GPUs come with torch.
    """
    lines = [one.text for one in asked if choice is None or one.project != choice.project]
    if choice is None or choice.picked is None:
        return lines
    given = next((one.requirement for one in asked if one.project == choice.project), None)
    for text in choice.requires or (f"{choice.project}=={choice.picked.version}",):
        one = Requirement(text)
        if canonicalize_name(one.name) == choice.project and not (pinned and given):
            one.specifier = given.specifier if given else SpecifierSet()
        if given or one.extras:
            lines.insert(0, str(one))
    return lines


def device_extras(choice: Choice | None) -> frozenset[str]:
    """Return the extras by which torch gets the kernels of this machine's GPUs (``device-gfx942``)."""
    named = [extra for text in (choice.requires if choice else ()) for extra in Requirement(text).extras]
    return frozenset(extra for extra in named if extra.startswith("device-"))


def _read(word: str) -> Requirement:
    text = word.strip()
    if not text:
        raise UsageError("a package has an empty name; is a variable not set?", tip=_NO_NAMES)
    if text.startswith("-"):
        raise UsageError(f"{text} is no option of this command", tip="--help lists them")
    if "://" in text or text.endswith((".whl", ".tar.gz", ".zip")) or text.startswith((".", "/", "~")):
        raise UsageError(
            f"{text} is a file or URL: nothing would be chosen of it",
            tip="put wheels into a folder and name that with --index; or install it by pip or uv itself",
        )
    try:
        one = Requirement(text)
    except InvalidRequirement as cause:
        hint = " (two equals signs)" if re.search(r"[^=<>!~]=[^=]", text) else ""
        raise UsageError(f"{text!r} is not a requirement{hint}", tip=_NO_NAMES) from cause
    if one.url:
        raise UsageError(f"{text} names a URL: nothing would be chosen of it", tip=_NO_NAMES)
    return one
