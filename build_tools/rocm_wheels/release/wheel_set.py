"""Describe a set: the wheels of one lock and version, what they must be tested on, which set is newest.

The document is written last and never changes; a set that has none is not there.

The newest, of the sets of one platform: sets of several torch lines come to one channel, and the line
whose set came last is not the newest torch. Versions are in the order in which installers take them (PEP
440, local parts as ``+rocm7.1.0`` too); then counts when a set was made, and last its id. Installers take
a pre-release (``2.15.0a0``) only where there is no final: so do the channels of releases. Who asks for
nightlies wants the newest, final or not: so it is on ``nightly``, and where no channel is asked. A set
without torch comes after those that have it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Literal, get_args

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import AfterValidator, Field, model_validator

from rocm_wheels.core import errors, parallel, records, tables
from rocm_wheels.models import facts, project_names
from rocm_wheels.models.gfx import get_card_kinds, get_gfx_families
from rocm_wheels.models.lock import Lock, Sha256Digest
from rocm_wheels.release import document_seal
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.sources.lock import parse_lock
from rocm_wheels.stores.store import Store, read_or_none
from rocm_wheels.variants import device_names
from rocm_wheels.variants.document import NULL_LABEL
from rocm_wheels.wheels import dist_info, python_tags

SetLayout = Literal["per-family", "multi-arch", "variants"]
SET_LAYOUTS: tuple[SetLayout, ...] = ("per-family", "multi-arch", "variants")
DAMAGED_TIP = (
    "what was edited cannot be known: put it back from a copy of the store, or remove it and stage the same "
    "wheels again; a channel that shows the set loses it by `rocm-wheels set demote`"
)
_FAMILY_FOLDERS = {"sets", "files", "channels"}
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._]+")
_SET_ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*-[0-9a-f]{12}"
# folders of views are called by it
TargetName = Annotated[str, records.require_pattern(r"gfx[0-9a-z-]+", "a GPU target such as gfx942")]
SetId = Annotated[
    str, records.require_pattern(_SET_ID_PATTERN, "the id of a set: a name, - and 12 hexadecimal digits")
]


def _check_version(text: str) -> str:
    if str(Version(text)) != text:
        raise ValueError(f"the version is written {Version(text)}")
    return text


def _check_wheel_name(text: str) -> str:
    try:
        dist_info.parse_wheel_name(text)
    except errors.DataError as fault:
        raise ValueError(fault.message) from None
    return text


VersionText = Annotated[str, AfterValidator(_check_version)]  # as PEP 440 normalizes it


def _check_requires_python(value: str) -> str:
    if value and str(SpecifierSet(value)) != value:  # a selector's METADATA is made of it: no line end
        raise ValueError("it is not as packaging writes a Requires-Python")
    return value


class SetFile(records.Record):
    """A wheel. ``project`` is its normalized name, ``targets`` those of its device code (base targets).

    Of a wheel that serves every family, the set of one has the targets of that one. ``requires_python`` and
    ``label`` are "" when there is none; ``variant`` is its ``variant.json``, where it is a variant. ``lock``
    is the digest of its lock, where the set has several; ``statement`` that of the statement that says how it
    was made, where it has one. ``carries_rocm``: it needs no package of ROCm.
    """

    name: Annotated[str, AfterValidator(_check_wheel_name)]
    project: str
    version: VersionText
    sha256: Sha256Digest
    size: int
    requires_python: Annotated[str, AfterValidator(_check_requires_python)] = ""
    metadata_sha256: Sha256Digest
    targets: tuple[TargetName, ...] = ()
    label: str = ""
    variant: str = ""
    lock: str = ""
    statement: Sha256Digest | Literal[""] = ""
    carries_rocm: bool = False

    @property
    def for_any_rocm(self) -> bool:
        """Whether it serves every ROCm: it has no device code, and is a variant for none of its own."""
        return not self.targets and self.label in ("", NULL_LABEL)


class SetCell(records.Record):
    """What a set should hold: a project for a Python (``3.12``) and a target ("": it has no device code).

    ``rocm`` is the ROCm that it is for, where the set has locks with several.
    """

    project: str
    python: str
    target: str = ""
    rocm: str = ""

    def __str__(self) -> str:
        """Return it as people read it."""
        target = f" and {self.target}" if self.target else ""
        rocm = f" with ROCm {self.rocm}" if self.rocm else ""
        return f"{self.project} for Python {self.python}{target}{rocm}"


class SetLock(records.Record):
    """A lock of a set by the sha256 of its file. ``rocm`` is the ROCm in it, where the set has several."""

    digest: Sha256Digest
    rocm: str | None = None


class SetDocument(records.Record):
    """A set.

    ``rocm`` is that of its lock. Of variants that were built from several locks, each lock has its own, and
    each wheel says which lock is its own.
    """

    schema_version: Literal[2] = Field(default=2, alias="schema")
    id: SetId
    created: records.MomentText
    version: VersionText
    rocm: str | None = None
    family: Annotated[str, records.require_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*", "the name of a family")]
    layout: SetLayout
    files: tuple[SetFile, ...] = Field(min_length=1)
    locks: tuple[SetLock, ...] = Field(min_length=1)
    planned: tuple[SetCell, ...] = ()
    missing: tuple[SetCell, ...] = ()

    @model_validator(mode="after")
    def _check_locks(self) -> SetDocument:
        digests = {lock.digest for lock in self.locks}
        allowed = digests if len(self.locks) > 1 else {""}
        if len(digests) < len(self.locks) or not all(file.lock in allowed for file in self.files):
            raise ValueError("of several locks, each is another one, and each file names its own")
        return self

    @property
    def moment(self) -> datetime:
        """When it was staged."""
        return records.parse_moment(self.created)

    @property
    def computed_id(self) -> str:
        """The id that follows from what it lists."""
        files = ((file.name, file.sha256) for file in self.files)
        lock_digest = join_lock_digests(lock.digest for lock in self.locks)
        return make_set_id(self.version, self.family, files, lock_digest)

    @property
    def rocms(self) -> tuple[str, ...]:
        """The versions of ROCm that its wheels are for, as its locks say, in their order."""
        versions = [self.rocm, *(item.rocm for item in self.locks)]
        return tuple(dict.fromkeys(item for item in versions if item))

    @property
    def rocm_in_words(self) -> str:
        """The versions of ROCm, for people; "" when no lock says any."""
        return ", ".join(self.rocms)

    def rocm_of(self, file: SetFile) -> str | None:
        """Return the ROCm that a wheel was built with, as its lock says."""
        return next((lock.rocm for lock in self.locks if lock.digest == file.lock), self.rocm)

    def fits_cell(self, file: SetFile, cell: SetCell) -> bool:
        """Tell whether a wheel is for the ROCm of a cell."""
        return not cell.rocm or file.for_any_rocm or self.rocm_of(file) == cell.rocm

    @property
    def main_projects(self) -> tuple[str, ...]:
        """What it is of: torch, where it has that, else a companion alone. Others are no sets of its line."""
        if TORCH_PROJECT in self.projects:
            return (TORCH_PROJECT,)
        whole = tuple(name for name in self.projects if device_names.find_host_project(name) is None)
        return whole or self.projects

    @property
    def torch_line(self) -> tuple[int, int] | None:
        """The numbers that its torch line is called by, ``(2, 13)`` of ``2.13.0a0+rocm7``; None: no torch."""
        version = Version(self.version)
        return (version.major, version.minor) if TORCH_PROJECT in self.projects else None

    @property
    def is_complete(self) -> bool:
        """Whether every planned cell is there."""
        return not self.missing

    @property
    def hashes(self) -> frozenset[str]:
        """The sha256 of all its wheels."""
        return frozenset(file.sha256 for file in self.files)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that any of its wheels has device code for, sorted."""
        return tuple(sorted({target for file in self.files for target in file.targets}))

    @property
    def projects(self) -> tuple[str, ...]:
        """Its projects (normalized names), sorted."""
        return tuple(sorted({file.project for file in self.files}))

    @property
    def digest(self) -> str:
        """The sha256 of all that it says but when it was staged: results name it, and channels that show it.

        So results stay those of a set that is staged again after a prune.
        """
        values = self.model_dump(mode="json", by_alias=True, exclude={"created"})
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()

    def to_json(self) -> bytes:
        """Return its file, which ends in a seal: the same set is the same bytes."""
        return document_seal.seal_record(self)


def join_lock_digests(digests: Iterable[str]) -> str:
    """Return what stands for the locks of a set in its id: the digest of one, or that of all digests."""
    first, *others = sorted(digests)
    return hashlib.sha256("".join([first, *others]).encode()).hexdigest() if others else first


def make_set_id(version: str, family: str, files: Iterable[tuple[str, str]], lock_digest: str) -> str:
    """Return the id of a set: its version, as a URL and a bucket can hold it, and what it is made of.

    ``files`` are names with their sha256. ``+`` becomes ``-``: S3 takes it for a space. No two families of a
    store have one id, so that an id says the family.
    """
    hasher = hashlib.sha256(f"{family}\n".encode())
    for name, sha256 in sorted(files):
        hasher.update(f"{name}\0{sha256}\n".encode())
    hasher.update(lock_digest.encode())
    return f"{_NOT_IN_ID.sub('-', version)}-{hasher.hexdigest()[:12]}"


def parse_set(content: bytes, *, where: str, expected: str | None = None) -> SetDocument:
    """Read the document of a set; DataError with what is wrong in it, and for an id that is not its own.

    ``expected`` is the id that the folder has.
    """
    document = document_seal.parse_sealed(
        content, SetDocument, where=where, title="the document of a set", tip=DAMAGED_TIP
    )
    computed_id = document.computed_id
    if len({document.id, computed_id, expected or computed_id}) > 1:
        raise errors.DataError(
            f"{where} says {document.id}, and what it lists is {computed_id}", tip=DAMAGED_TIP
        )
    return document


def read_stored_set(store: Store, family: str, set_id: str) -> SetDocument | None:
    """Return a set of a family, None where its document is not there. DataError when it is damaged."""
    path = FamilyPaths(family).set_document(set_id)
    stored = read_or_none(store, path)
    if stored is None:
        return None
    return parse_set(stored.content, where=store.url_of(path), expected=set_id)


def read_set(store: Store, family: str, set_id: str) -> SetDocument:
    """Return a set of a family. ReleaseError when it is not there, DataError when it is damaged."""
    document = read_stored_set(store, family, set_id)
    if document is None:
        near = tables.suggest_name(set_id, list_set_ids(store, family))
        raise errors.ReleaseError(
            f"there is no set {set_id} of {family}{near}",
            tip=f"`rocm-wheels set list {store.url}` lists those that are there",
        )
    return document


def list_set_ids(store: Store, family: str) -> list[str]:
    """Return the ids of all sets of a family, sorted; one that is being staged is none yet."""
    paths = FamilyPaths(family)
    names = store.folders(paths.sets_folder)
    heads = parallel.run_in_parallel(lambda name: store.head(paths.set_document(name)), names)
    return [name for name, head in zip(names, heads, strict=True) if head is not None]


def list_families(store: Store) -> list[str]:
    """Return the families of a store, sorted: what else may lie there has no sets, files or channels."""
    names = store.folders("")
    inside = parallel.run_in_parallel(store.folders, names)
    return [name for name, folders in zip(names, inside, strict=True) if _FAMILY_FOLDERS & {*folders}]


def find_set(store: Store, set_id: str) -> SetDocument:
    """Return a set by its id alone, or the beginning of it that only one set has.

    Raises ReleaseError that lists what an id could mean.
    """
    tip = f"`rocm-wheels set list {store.url}` lists those that are there"
    if not set_id:
        raise errors.UsageError("the id of the set is empty", tip=tip)
    families = list_families(store)
    folders = parallel.run_in_parallel(lambda name: store.folders(FamilyPaths(name).sets_folder), families)
    candidates = [
        (name, candidate)
        for name, names in zip(families, folders, strict=True)
        for candidate in names
        if candidate.startswith(set_id)
    ]
    heads = parallel.run_in_parallel(
        lambda pair: store.head(FamilyPaths(pair[0]).set_document(pair[1])), candidates
    )
    matches = [pair for pair, head in zip(candidates, heads, strict=True) if head is not None]
    exact = [pair for pair in matches if pair[1] == set_id] or matches
    if len(exact) == 1:
        return read_set(store, *exact[0])
    if not exact:
        raise errors.ReleaseError(f"there is no set {set_id} in {store.url}", tip=tip)
    listed = ", ".join(f"{candidate} of {family}" for family, candidate in exact)
    raise errors.ReleaseError(f"{set_id} could be {listed}", tip="give more of the id")


def read_set_lock(store: Store, document: SetDocument, set_lock: SetLock) -> Lock:
    """Return a lock of a staged set. Raises ReleaseError for one that is another than the set says."""
    path = FamilyPaths(document.family).lock_file(set_lock.digest)
    content = store.read(path).content
    if hashlib.sha256(content).hexdigest() != set_lock.digest:
        raise errors.ReleaseError(
            f"{store.url_of(path)} is not the lock that the set was staged with",
            tip="put it back from a copy of the store",
        )
    return parse_lock(content.decode(), name=store.url_of(path))


@dataclass(frozen=True)
class FamilySets:
    """The sets of a family, newest first; ids of those not finished; what is wrong with damaged documents."""

    family: str
    documents: tuple[SetDocument, ...]
    unfinished: tuple[str, ...]
    damaged: tuple[str, ...]


def read_family_sets(store: Store, family: str) -> FamilySets:
    """Read all sets of a family."""

    def read(set_id: str) -> SetDocument | str | None:
        try:
            return read_stored_set(store, family, set_id)
        except errors.DataError as damage:
            return damage.message

    ids = store.folders(FamilyPaths(family).sets_folder)
    sets = dict(zip(ids, parallel.run_in_parallel(read, ids), strict=True))
    documents = [document for document in sets.values() if isinstance(document, SetDocument)]
    return FamilySets(
        family,
        tuple(sorted(documents, key=lambda document: (document.created, document.id), reverse=True)),
        tuple(set_id for set_id, document in sets.items() if document is None),
        tuple(damage for damage in sets.values() if isinstance(damage, str)),
    )


def make_planned_cells(
    projects: Sequence[tuple[str, bool]], pythons: Sequence[str], targets: Sequence[str]
) -> tuple[SetCell, ...]:
    """Return what a set should hold. ``projects`` are normalized names, and whether they have device code."""
    return tuple(
        SetCell(project=canonicalize_name(project), python=python, target=target)
        for project, has_code in projects
        for python in sorted(pythons, key=facts.get_python_key)
        for target in (targets if has_code else ("",))
    )


@dataclass(frozen=True)
class InstalledWheels:
    """The wheels that are installed together, for a Python (``3.12``; "" where none is special to one).

    ``full``: they are of all projects that the set has for the GPU.
    """

    python: str
    files: tuple[SetFile, ...]
    full: bool = True


def find_set_platform(document: SetDocument) -> project_names.Platform:
    """Return what the wheels of a set run on: a lock is of one platform, and so is what is built from it."""
    windows = any("-win_" in file.name or "-win32" in file.name for file in document.files)
    return "windows" if windows else "linux"


def list_set_targets(document: SetDocument) -> tuple[str, ...]:
    """Return the targets that a set is for, sorted: those inside and those planned, else its family's."""
    planned = {cell.target for cell in document.planned if cell.target}
    return tuple(sorted({*document.targets, *planned})) or get_gfx_families().get(document.family, ())


def list_families_of_target(document: SetDocument, gfx: str) -> tuple[str, ...]:
    """Return the families that a target may be tested and named under, the narrowest first.

    The set's own family, where the target is in it: what a set is called makes no GPU another one.
    """
    members = get_gfx_families()
    if gfx in members.get(document.family, ()):
        return tuple(dict.fromkeys((gfx, document.family)))
    containing = [name for name, all_of in members.items() if gfx in all_of and name not in get_card_kinds()]
    return tuple(sorted(containing, key=lambda name: len(members[name])))


def list_installed_wheels(
    document: SetDocument, gfx: str, projects: Sequence[str] = ()
) -> tuple[InstalledWheels, ...]:
    """Return, for each Python, the wheels that a machine with this GPU gets; only these projects', if any.

    Those that no Python of the others takes (``abi3``) are together for "". Where the set has device code,
    and none for this GPU and Python, nothing there can be tested on it.
    """
    files = _find_wheels_for_gpu(document, gfx)
    all_of = {file.project for file in files}
    pythons = sorted(
        {python for file in files for python in list_wheel_pythons(file.name)}, key=facts.get_python_key
    )
    files_by_python = {python: [f for f in files if is_wheel_for(f.name, python)] for python in pythons}
    taken = {file.name for python_files in files_by_python.values() for file in python_files}
    files_by_python[""] = [file for file in files if file.name not in taken]
    groups = []
    for python, python_files in files_by_python.items():
        chosen = tuple(
            f for f in python_files if not projects or any(_is_part_of(f, project) for project in projects)
        )
        has_code = not document.targets or any(file.targets for file in python_files)
        if chosen and has_code and set(projects) <= {file.project for file in chosen}:
            groups.append(InstalledWheels(python, chosen, {file.project for file in python_files} == all_of))
    return tuple(groups)


def _find_wheels_for_gpu(document: SetDocument, gfx: str) -> list[SetFile]:
    """Return what a machine with a GPU may get: its own device code, else what is for every one.

    A variant for every machine (``null``) is for those that nothing else of its project fits.
    """
    with_code = [file for file in document.files if gfx in file.targets]
    without_code = [file for file in document.files if not file.targets]
    special = {
        file.project
        for file in (*with_code, *without_code)
        if file.targets or file.label not in {"", NULL_LABEL}
    }
    for_all = [file for file in without_code if file.label != NULL_LABEL or file.project not in special]
    return [*with_code, *for_all]


def make_device_extras(document: SetDocument, project: str, targets: Iterable[str]) -> str:
    """Return the extras that bring a project's kernels for targets (``[device-gfx942]``); "": it has none."""
    parts = [file for file in document.files if device_names.find_host_project(file.project) == project]
    held = {target for file in parts for target in file.targets}
    extras = [f"device-{target}" for target in targets if target in held]
    return f"[{','.join(extras)}]" if extras else ""


def _is_part_of(file: SetFile, project: str) -> bool:
    return file.project == project or device_names.find_host_project(file.project) == project


@lru_cache(4096)
def list_wheel_pythons(name: str) -> frozenset[str]:
    """Return the Pythons that a wheel is for by its name; none: it is for every one (``py3``, ``abi3``)."""
    try:
        return python_tags.list_pythons(dist_info.parse_wheel_name(name).tags)
    except errors.DataError:
        return frozenset()  # not a name to go by: it counts for every Python


@lru_cache(4096)
def is_wheel_for(name: str, python: str) -> bool:
    """Tell whether a Python takes a wheel, by its name. DataError for what is no Python (``3.12``)."""
    try:
        tags = dist_info.parse_wheel_name(name).tags
    except errors.DataError:
        return True  # as above
    return python_tags.accepts_python(tags, python)


def make_marker_environment(
    name: str, names: Iterable[str], platform: project_names.Platform
) -> dict[str, str]:
    """Return what markers are asked about: the machine that a wheel is for; no extra is wanted.

    Of a wheel for several Pythons it is the newest that one of ``names``, the wheels of its set, is for.
    """
    own = list_wheel_pythons(name)
    pythons = own if len(own) == 1 else [python for other in names for python in list_wheel_pythons(other)]
    python = max(pythons, key=facts.get_python_key, default="3.12").rstrip("t")
    windows = platform == "windows"
    return {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "nt" if windows else "posix",
        "platform_machine": "AMD64" if windows else "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Windows" if windows else "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "win32" if windows else "linux",
    }


PLATFORM_ORDER: tuple[project_names.Platform, ...] = get_args(
    project_names.Platform
)  # in the order in which they are told
SetRank = tuple[bool, bool, Version, bool, str, str]
TORCH_PROJECT, _NO_VERSION = "torch", Version("0")
_PRERELEASE_CHANNELS = {"nightly", None}


def rank_set(
    projects: Container[str],
    version: str,
    created: str,
    set_id: str,
    *,
    channel: str | None,
    tested: bool = False,
) -> SetRank:
    """Return what sets are sorted by: the greatest is the newest, of one version one that is ``tested``.

    ``version`` is that of the set: torch's, where that is among its ``projects``.
    """
    if TORCH_PROJECT not in projects:
        return False, False, _NO_VERSION, tested, created, set_id
    torch_version = Version(version)
    counts = channel in _PRERELEASE_CHANNELS or not torch_version.is_prerelease
    return True, counts, torch_version, tested, created, set_id
