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
from rocm_wheels.model.names import list_project_names
from rocm_wheels.records import suggest_name
from rocm_wheels.sources.network.gitmodules import is_inside_tree
from rocm_wheels.sources.network.remote import check_ref, parse_origin, strip_credentials

# what is wrong: where (keys from the outermost), the sentence, and the text that was found
LockFault = tuple[tuple[str | int, ...], str, object]

_PYTHON = re.compile(r"3\.(0|[1-9]\d*)t?\Z")
_LOCAL = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*\Z")
_KINDS = re.compile(r"(dev)?rocm|cpu|cu(da)?[0-9]|xpu|torch[0-9]")  # what other parts of a version say
_SET_NAME = re.compile(r"\w[\w.+-]*\Z")


def find_name_faults(names: Sequence[str]) -> Iterator[LockFault]:
    """Yield the projects that have no recipe."""
    recipes = list_project_names()
    for name in names:
        if name not in recipes:
            yield (name,), f"there is no project {name}{suggest_name(name, recipes)}", {}


def find_project_faults(project: LockedProject) -> Iterator[LockFault]:
    """Yield what git, a version or a patch set could not be; keys are those of the record."""
    yield from _find_origin_faults(project.origin, ("origin",))
    try:
        check_ref(project.ref)
    except UsageError as refused:
        yield ("ref",), refused.message, {}
    if project.version is not None:
        yield from _find_version_faults(project.version, ("version",), local=False)
    if project.patches is not None and not _SET_NAME.match(project.patches.name):
        yield ("patches", "name"), "it is not the name of a patch set", project.patches.name
    for path, submodule in (project.submodules or {}).items():
        if not is_inside_tree(path):
            yield ("submodules", path), "the path of a submodule does not stay in the tree", path
        yield from _find_origin_faults(submodule.origin, ("submodules", path, "origin"))


def find_request_faults(lock: Lock) -> Iterator[LockFault]:
    """Yield what is no version of ROCm, no part of versions, no GPU target or no Python."""
    if lock.rocm is not None:
        yield from _find_version_faults(lock.rocm, ("rocm",), local=True)
    if lock.targets:
        try:
            parse_targets(" ".join(lock.targets), input_name="targets")
        except UsageError as refused:
            yield ("targets",), refused.message, {}
    if lock.local_version is not None and (fault := describe_local_fault(lock.local_version)):
        yield ("local_version",), fault, lock.local_version
    if lock.named_torch is not None:
        yield from _find_version_faults(lock.named_torch, ("named_torch",), local=False)
    for number, python in enumerate(lock.pythons):
        if not is_python_version(python):
            yield ("pythons", number), "it is not a Python, such as 3.13 or 3.14t", python


def describe_local_fault(text: str) -> str:
    """Return what is wrong with a part of local versions (PEP 440), "" for nothing."""
    if not _LOCAL.match(text):
        return "it must be small letters and digits, in parts with dots between"
    if strange := next((part for part in text.split(".") if _KINDS.match(part)), ""):
        return f"{strange} would say what the wheels are built for"
    return ""


def is_python_version(text: str) -> bool:
    """Tell whether a text names a Python, such as 3.13 or 3.14t (without a GIL)."""
    return bool(_PYTHON.match(text))


def raise_faults(title: str, faults: Sequence[LockFault]) -> None:
    """Raise pydantic's ValidationError when there are faults: ``records`` adds the places."""
    if faults:
        _raise_validation_error(title, faults)


def _raise_validation_error(title: str, faults: Sequence[LockFault]) -> NoReturn:
    details = [
        InitErrorDetails(
            type=PydanticCustomError("lock", "{message}", {"message": message}), loc=keys, input=value
        )
        for keys, message, value in faults
    ]
    raise ValidationError.from_exception_data(title, details)


def _find_origin_faults(origin: str, keys: tuple[str, ...]) -> Iterator[LockFault]:
    if strip_credentials(origin) != origin:
        yield keys, "it carries credentials, and a lock is for everybody; git has credential helpers", {}
        return
    try:
        resolved, local = parse_origin(origin, Path("/"))
    except UsageError as refused:
        yield keys, refused.message, {}
        return
    if local and resolved != origin and not Path(origin).is_absolute():
        yield keys, "it is neither a URL nor a path from the root", origin


def _find_version_faults(text: str, keys: tuple[str, ...], *, local: bool) -> Iterator[LockFault]:
    try:
        version = Version(text)
    except InvalidVersion:
        yield keys, "it is not a version (PEP 440)", text
        return
    if version.local and not local:
        yield keys, f"a base version has no local part (+{version.local})", text


def move_faults(
    faults: Iterator[LockFault], *above: str, names: Mapping[str, str] | None = None
) -> Iterator[LockFault]:
    """Yield faults with the keys ``above`` them; ``names``: what a first key is called in another format."""
    for keys, message, value in faults:
        first = keys[0]
        key = (names or {}).get(str(first), first)
        yield (*above, key, *keys[1:]), message, value
