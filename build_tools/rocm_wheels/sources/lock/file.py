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
from rocm_wheels.model.project import sort_projects, load_project
from rocm_wheels.records import Record, parse_record, read_text_file
from rocm_wheels.sources.lock.rules import (
    move_faults,
    raise_faults,
    find_name_faults,
    find_project_faults,
    find_request_faults,
)
from rocm_wheels.sources.network.remote import strip_credentials
from rocm_wheels.workspace import write_atomically

# letters that JSON may hold as they are and YAML may not (YAML 1.1, c-printable and line breaks)
_NO_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_LOCK_TIP = "put the file right, or name another one"
_OWN_KEYS = {"lock_version", "projects"}


class _LockKeys(Record):
    """Whatever has keys: to see whose file it is."""

    model_config = ConfigDict(extra="allow")


class _CheckedLock(Lock):
    """A lock as a file may hold it."""

    @model_validator(mode="after")
    def _can_be_used(self) -> _CheckedLock:
        faults = list(find_request_faults(self)) + list(
            move_faults(find_name_faults(list(self.projects)), "projects")
        )
        for name, project in self.projects.items():
            faults += move_faults(find_project_faults(project), "projects", name)
        if not self.projects:
            faults.append((("projects",), "there is no project in it", {}))
        raise_faults("Lock", faults)
        return self


def read_lock(path: Path) -> Lock:
    """Read a lock, or the manifest of TheRock's scripts (``schema_version: 1``) as one.

    Of a manifest, trees and submodules are not known (``None``). Raises DataError with
    ``file:line:column`` for what is wrong in it; no project without a recipe is accepted.
    """
    try:
        return parse_lock(read_text_file(path, tip=_LOCK_TIP), name=str(path))
    except DataError as error:
        error.tip = error.tip or "put it right, or make another one with `rocm-wheels lock -o FILE`"
        raise


def parse_lock(text: str, *, name: str) -> Lock:
    """Read the text of a lock or a manifest; ``name`` stands for the file in messages (see ``read_lock``)."""
    keys = parse_record(text, _LockKeys, name=name).model_extra or {}
    if not keys:
        raise DataError(f"{name} is empty", tip="make a lock with `rocm-wheels lock -o FILE`")
    if not keys.keys() & _OWN_KEYS:
        from rocm_wheels.sources.lock import manifest

        if manifest.looks_like_manifest(keys):
            return manifest.parse_manifest(text, name=name)
    return Lock.model_validate(dict(parse_record(text, _CheckedLock, name=name)))


def format_lock(lock: Lock) -> str:
    """Return the file's content: JSON, projects in the order of their builds, nothing without a value."""
    data: dict[str, Any] = lock.model_dump(mode="json", exclude_none=True)
    for empty in ("targets", "pythons"):
        if not data[empty]:
            del data[empty]
    order = [p.name for p in sort_projects(load_project(name) for name in lock.projects)]
    data["projects"] = {name: data["projects"][name] for name in order}
    for project in data["projects"].values():
        if not project["pinned"]:
            del project["pinned"]
        if "submodules" in project:
            project["submodules"] = dict(sorted(project["submodules"].items()))
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    return _NO_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write_lock(path: Path, lock: Lock) -> bool:
    """Write a lock, whole or not at all; tell whether the file is other than before.

    Credentials in an origin are left out, which is said. Raises DataError for a lock that could not be read
    again.
    """
    text = format_lock(_strip_lock_credentials(lock))
    parse_lock(text, name=f"the new {path.name}")
    return write_if_changed(path, text)


def write_if_changed(path: Path, text: str) -> bool:
    """Write a file whole when its content is other than ``text``; tell whether it was."""
    if path.is_dir():
        raise DataError(f"{path} is a folder", tip="name a file")
    if path.is_file() and path.read_bytes() == text.encode("utf-8"):
        log.log_note(f"{path} is up to date")
        return False
    write_atomically(path, text)
    log.log_note(f"wrote {path}")
    return True


def digest_lock(lock: Lock) -> str:
    """Return the SHA-256 of the file that ``write_lock`` makes of a lock."""
    return hashlib.sha256(format_lock(lock).encode("utf-8")).hexdigest()


def _strip_lock_credentials(lock: Lock) -> Lock:
    projects: dict[str, LockedProject] = {}
    for name, project in lock.projects.items():
        origin = strip_credentials(project.origin)
        submodules = project.submodules and {
            path: _strip_submodule_credentials(submodule) for path, submodule in project.submodules.items()
        }
        if (origin, submodules) != (project.origin, project.submodules):
            log.log_warning(f"{name}: the credentials in its origin are not written to the lock")
        projects[name] = project.model_copy(update={"origin": origin, "submodules": submodules})
    return lock.model_copy(update={"projects": projects})


def _strip_submodule_credentials(submodule: LockedSubmodule) -> LockedSubmodule:
    return submodule.model_copy(update={"origin": strip_credentials(submodule.origin)})
