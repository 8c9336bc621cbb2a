"""The manifest of TheRock's scripts (``schema_version`` 1): read as a lock, and made from one.

Its projects stand at the top beside ``therock``; each has ``repo`` and ``commit``, and may have ``branch``
and ``version`` (base and suffix). As ROCm/TheRock has it at 89553ce3746eda74ade42557470d25e37c91b6f0:
external-builds/pytorch/checkout_from_manifest.py, and generate_pytorch_source_manifest.py of its workflows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import ConfigDict, model_validator

from rocm_wheels.errors import UsageError
from rocm_wheels.model.lock import Lock, LockedProject, GitObjectId
from rocm_wheels.model.project import sort_projects, load_project
from rocm_wheels.model.versions import make_version_suffix, add_version_parts
from rocm_wheels.records import Record, parse_record
from rocm_wheels.sources.lock.rules import (
    LockFault,
    move_faults,
    raise_faults,
    find_name_faults,
    find_project_faults,
    find_request_faults,
)

_VERSION_KEY, _TOOL = "schema_version", "therock"
_THEIR_NAMES = {"origin": "repo", "ref": "branch", "rocm": "version"}
_ROCM_SUFFIX = re.compile(r"(?:.*\.)?(?:dev)?rocm(?P<version>\d[\w.-]*)\Z")


class ManifestEntry(Record):
    """A repository in a manifest. ``version`` is that of the wheel; of ``therock``, that of ROCm."""

    repo: str
    commit: GitObjectId
    branch: str | None = None
    version: str | None = None


class Manifest(Record):
    """A manifest; projects are the keys that no field has."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ManifestEntry]

    schema_version: Literal["1"] = "1"
    therock: ManifestEntry | None = None

    @model_validator(mode="after")
    def _can_be_used(self) -> Manifest:
        faults: list[LockFault] = list(find_name_faults(list(self.entries)))
        for name, entry in self.entries.items():
            faults += move_faults(_find_entry_faults(entry), name)
        if self.therock is not None:
            faults += move_faults(
                find_request_faults(Lock(rocm=self.therock.version, projects={})), _TOOL, names=_THEIR_NAMES
            )
        if not self.entries:
            faults.append(((), "there is no project in it", {}))
        raise_faults("Manifest", faults)
        return self

    @property
    def entries(self) -> Mapping[str, ManifestEntry]:
        """The projects by name."""
        return self.__pydantic_extra__


def looks_like_manifest(data: Mapping[str, Any]) -> bool:
    """Tell by its keys whether a file is a manifest; ``schema_version`` may be left out there."""
    return _VERSION_KEY in data or any(isinstance(value, dict) and "repo" in value for value in data.values())


def parse_manifest(text: str, *, name: str) -> Lock:
    """Read a manifest as a lock: refs are its branches, or commits where it names none.

    The platform is in its file's name; ROCm is the version of ``therock``, else in the versions' suffix.
    Raises DataError with ``file:line:column``.
    """
    manifest = parse_record(text, Manifest, name=name)
    file = PurePath(name).name
    suffixes = [rocm for entry in manifest.entries.values() if (rocm := _read_rocm_version(entry.version))]
    stated = manifest.therock.version if manifest.therock is not None and manifest.therock.version else None
    return Lock(
        platform="windows" if "windows" in file else "linux",
        rocm=stated or next(iter(suffixes), None),
        projects={key: _lock_entry(entry, file) for key, entry in manifest.entries.items()},
    )


def format_manifest(lock: Lock, therock: ManifestEntry | None = None) -> str:
    """Return a lock as a manifest. Raises UsageError without a version of ROCm: versions carry it."""
    if lock.rocm is None:
        raise UsageError(
            "a manifest says which ROCm its wheels carry, and the lock names none",
            tip="make the lock with --rocm-version",
        )
    suffix = make_version_suffix(lock.rocm)
    data: dict[str, Any] = {_VERSION_KEY: 1}
    for project in sort_projects(load_project(name) for name in lock.projects):
        locked = lock.projects[project.name]
        entry = {"repo": locked.origin, "commit": locked.commit}
        if locked.ref != locked.commit:
            entry["branch"] = locked.ref
        if locked.version is not None:
            entry["version"] = locked.version + add_version_parts(suffix, *lock.get_local_parts(project.name))
        data[project.name] = entry
    if therock is not None:
        data[_TOOL] = {**therock.model_dump(exclude_none=True), "version": lock.rocm}
    return json.dumps(data, indent=2) + "\n"


def _lock_entry(entry: ManifestEntry, file: str) -> LockedProject:
    return LockedProject(
        origin=entry.repo,
        ref=entry.branch or entry.commit,
        why=f"manifest {file}",
        commit=entry.commit,
        version=entry.version and entry.version.partition("+")[0],
    )


def _find_entry_faults(entry: ManifestEntry) -> Iterator[LockFault]:
    yield from move_faults(find_project_faults(_lock_entry(entry, "")), names=_THEIR_NAMES)
    if entry.version is not None and "+" in entry.version:
        try:
            Version(entry.version)
        except InvalidVersion:
            yield ("version",), "it is not a version (PEP 440)", entry.version


def _read_rocm_version(version: str | None) -> str | None:
    """Return the version of ROCm that a suffix carries (see ``make_version_suffix``)."""
    match = _ROCM_SUFFIX.match((version or "").partition("+")[2])
    return match["version"].replace("-", "+", 1) if match else None
