"""The file of a lock: read with line and column of every mistake, written whole and always alike."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, model_validator

from rocm_wheels import log
from rocm_wheels.errors import DataError
from rocm_wheels.model.lock import Lock, LockedProject, LockedSubmodule
from rocm_wheels.model.project import build_order, load_project
from rocm_wheels.records import Record, parse, read_text
from rocm_wheels.sources.lock.rules import (
    moved,
    refuse,
    wrong_names,
    wrong_project,
    wrong_wishes,
)
from rocm_wheels.sources.network.remote import without_credentials
from rocm_wheels.workspace import write_whole

# letters that JSON may hold as they are and YAML may not (YAML 1.1, c-printable and line breaks)
_NO_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_TIP = "put the file right, or name another one"
_OWN_KEYS = {"lock_version", "projects"}


class _Keys(Record):
    """Whatever has keys: to see whose file it is."""

    model_config = ConfigDict(extra="allow")


class _Checked(Lock):
    """A lock as a file may hold it."""

    @model_validator(mode="after")
    def _can_be_used(self) -> _Checked:
        faults = list(wrong_wishes(self)) + list(moved(wrong_names(list(self.projects)), "projects"))
        for name, project in self.projects.items():
            faults += moved(wrong_project(project), "projects", name)
        if not self.projects:
            faults.append((("projects",), "there is no project in it", {}))
        refuse("Lock", faults)
        return self


def read_lock(path: Path) -> Lock:
    """Read a lock, or the manifest of TheRock's scripts (``schema_version: 1``) as one.

    Of a manifest, trees and submodules are not known (``None``). Raises DataError with
    ``file:line:column`` for what is wrong in it; no project without a recipe is accepted.
    """
    try:
        return parse_lock(read_text(path, tip=_TIP), name=str(path))
    except DataError as wrong:
        wrong.tip = wrong.tip or "put it right, or make another one with `rocm-wheels lock -o FILE`"
        raise


def parse_lock(text: str, *, name: str) -> Lock:
    """Read the text of a lock or a manifest; ``name`` stands for the file in messages (see ``read_lock``)."""
    found = parse(text, _Keys, name=name).model_extra or {}
    if not found:
        raise DataError(f"{name} is empty", tip="make a lock with `rocm-wheels lock -o FILE`")
    if not found.keys() & _OWN_KEYS:
        from rocm_wheels.sources.lock import manifest

        if manifest.looks_like_one(found):
            return manifest.parse_manifest(text, name=name)
    return Lock.model_validate(dict(parse(text, _Checked, name=name)))


def lock_text(lock: Lock) -> str:
    """Return the file's content: JSON, projects in the order of their builds, nothing without a value."""
    shown: dict[str, Any] = lock.model_dump(mode="json", exclude_none=True)
    for empty in ("targets", "pythons"):
        if not shown[empty]:
            del shown[empty]
    order = [p.name for p in build_order(load_project(name) for name in lock.projects)]
    shown["projects"] = {name: shown["projects"][name] for name in order}
    for project in shown["projects"].values():
        if not project["pinned"]:
            del project["pinned"]
        if "submodules" in project:
            project["submodules"] = dict(sorted(project["submodules"].items()))
    text = json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
    return _NO_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write_lock(path: Path, lock: Lock) -> bool:
    """Write a lock, whole or not at all; tell whether the file is other than before.

    Credentials in an origin are left out, which is said. Raises DataError for a lock that could not be read
    again.
    """
    text = lock_text(_without_credentials(lock))
    parse_lock(text, name=f"the new {path.name}")
    return write_if_other(path, text)


def write_if_other(path: Path, text: str) -> bool:
    """Write a file whole when its content is other than ``text``; tell whether it was."""
    if path.is_dir():
        raise DataError(f"{path} is a folder", tip="name a file")
    if path.is_file() and path.read_bytes() == text.encode("utf-8"):
        log.note(f"{path} is up to date")
        return False
    write_whole(path, text)
    log.note(f"wrote {path}")
    return True


def lock_digest(lock: Lock) -> str:
    """Return the SHA-256 of the file that ``write_lock`` makes of a lock."""
    return hashlib.sha256(lock_text(lock).encode("utf-8")).hexdigest()


def _without_credentials(lock: Lock) -> Lock:
    projects: dict[str, LockedProject] = {}
    for name, project in lock.projects.items():
        origin = without_credentials(project.origin)
        submodules = project.submodules and {
            path: _clean(submodule) for path, submodule in project.submodules.items()
        }
        if (origin, submodules) != (project.origin, project.submodules):
            log.warn(f"{name}: the credentials in its origin are not written to the lock")
        projects[name] = project.model_copy(update={"origin": origin, "submodules": submodules})
    return lock.model_copy(update={"projects": projects})


def _clean(submodule: LockedSubmodule) -> LockedSubmodule:
    return submodule.model_copy(update={"origin": without_credentials(submodule.origin)})
