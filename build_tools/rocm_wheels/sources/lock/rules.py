"""What a lock may hold: names of recipes, origins and refs that git can use, no credentials.

The rules hold for a lock of our own and for another tool's manifest; what is wrong is reported with
file, line and column (``records``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from packaging.version import InvalidVersion, Version
from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from rocm_wheels.errors import UsageError
from rocm_wheels.model.gfx import parse_targets
from rocm_wheels.model.lock import Lock, LockedProject
from rocm_wheels.model.names import project_names
from rocm_wheels.records import did_you_mean
from rocm_wheels.sources.network.gitmodules import is_inside
from rocm_wheels.sources.network.remote import check_ref, origin_of, without_credentials

# what is wrong: where (keys from the outermost), the sentence, and the text that was found
Fault = tuple[tuple[str | int, ...], str, object]

_PYTHON = re.compile(r"3\.(0|[1-9]\d*)t?\Z")
_LOCAL = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*\Z")
_KINDS = re.compile(r"(dev)?rocm|cpu|cu(da)?[0-9]|xpu|torch[0-9]")  # what other parts of a version say
_SET_NAME = re.compile(r"\w[\w.+-]*\Z")


def wrong_names(names: Sequence[str]) -> Iterator[Fault]:
    """Yield the projects that have no recipe."""
    known = project_names()
    for name in names:
        if name not in known:
            yield (name,), f"there is no project {name}{did_you_mean(name, known)}", {}


def wrong_project(project: LockedProject) -> Iterator[Fault]:
    """Yield what git, a version or a patch set could not be; keys are those of the record."""
    yield from _wrong_origin(project.origin, ("origin",))
    try:
        check_ref(project.ref)
    except UsageError as refused:
        yield ("ref",), refused.message, {}
    if project.version is not None:
        yield from _wrong_version(project.version, ("version",), local=False)
    if project.patches is not None and not _SET_NAME.match(project.patches.name):
        yield ("patches", "name"), "it is not the name of a patch set", project.patches.name
    for path, submodule in (project.submodules or {}).items():
        if not is_inside(path):
            yield ("submodules", path), "the path of a submodule does not stay in the tree", path
        yield from _wrong_origin(submodule.origin, ("submodules", path, "origin"))


def wrong_wishes(lock: Lock) -> Iterator[Fault]:
    """Yield what is no version of ROCm, no part of versions, no GPU target or no Python."""
    if lock.rocm is not None:
        yield from _wrong_version(lock.rocm, ("rocm",), local=True)
    if lock.targets:
        try:
            parse_targets(" ".join(lock.targets), what="targets")
        except UsageError as refused:
            yield ("targets",), refused.message, {}
    if lock.local_version is not None and (said := wrong_local(lock.local_version)):
        yield ("local_version",), said, lock.local_version
    if lock.named_torch is not None:
        yield from _wrong_version(lock.named_torch, ("named_torch",), local=False)
    for number, python in enumerate(lock.pythons):
        if not is_python(python):
            yield ("pythons", number), "it is not a Python, such as 3.13 or 3.14t", python


def wrong_local(text: str) -> str:
    """Return what is wrong with a part of local versions (PEP 440), "" for nothing."""
    if not _LOCAL.match(text):
        return "it must be small letters and digits, in parts with dots between"
    if strange := next((part for part in text.split(".") if _KINDS.match(part)), ""):
        return f"{strange} would say what the wheels are built for"
    return ""


def is_python(text: str) -> bool:
    """Tell whether a text names a Python, such as 3.13 or 3.14t (without a GIL)."""
    return bool(_PYTHON.match(text))


def refuse(title: str, faults: Sequence[Fault]) -> None:
    """Raise pydantic's ValidationError when there are faults: ``records`` adds the places."""
    if faults:
        _refuse(title, faults)


def _refuse(title: str, faults: Sequence[Fault]) -> NoReturn:
    details = [
        InitErrorDetails(
            type=PydanticCustomError("lock", "{message}", {"message": message}), loc=place, input=found
        )
        for place, message, found in faults
    ]
    raise ValidationError.from_exception_data(title, details)


def _wrong_origin(origin: str, place: tuple[str, ...]) -> Iterator[Fault]:
    if without_credentials(origin) != origin:
        yield place, "it carries credentials, and a lock is for everybody; git has credential helpers", {}
        return
    try:
        found, local = origin_of(origin, Path("/"))
    except UsageError as refused:
        yield place, refused.message, {}
        return
    if local and found != origin and not Path(origin).is_absolute():
        yield place, "it is neither a URL nor a path from the root", origin


def _wrong_version(text: str, place: tuple[str, ...], *, local: bool) -> Iterator[Fault]:
    try:
        version = Version(text)
    except InvalidVersion:
        yield place, "it is not a version (PEP 440)", text
        return
    if version.local and not local:
        yield place, f"a base version has no local part (+{version.local})", text


def moved(faults: Iterator[Fault], *above: str, names: Mapping[str, str] | None = None) -> Iterator[Fault]:
    """Yield faults with the keys ``above`` them; ``names``: what a first key is called in another format."""
    for place, message, found in faults:
        first = place[0]
        own = (names or {}).get(str(first), first)
        yield (*above, own, *place[1:]), message, found
