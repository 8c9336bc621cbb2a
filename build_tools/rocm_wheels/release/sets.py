"""A set: all wheels of one lock and version, as the document in its folder tells them.

The document is written last and never changes; a set that has none is not there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from rocm_wheels.errors import DataError, ReleaseError, UsageError
from rocm_wheels.model.lock import Sha256
from rocm_wheels.records import Record, did_you_mean, say, spelled
from rocm_wheels.release.layout import Area, Layout, Places, load_layout
from rocm_wheels.stores.store import Missing, Store
from rocm_wheels.variants.document import NULL_LABEL

Kind = Literal["per-family", "multi-arch", "variants"]
KINDS: tuple[Kind, ...] = ("per-family", "multi-arch", "variants")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._]+")
_ID = r"[A-Za-z0-9][A-Za-z0-9._-]*-[0-9a-f]{12}"
SetId = Annotated[str, spelled(_ID, "the id of a set: a name, - and 12 hexadecimal digits")]


class _Grown(Record):
    """A record with keys that came later: where they say nothing they are left out, as before they came."""

    _later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _shown(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in usual(self).items() if value or name not in self._later}


class SetFile(_Grown):
    """A wheel. ``project`` is its normalized name, ``targets`` those of its device code (base targets).

    Of a wheel that serves every family, the set of one has the targets of that one. ``requires_python`` and
    ``label`` are "" when there is none; ``variant`` is its ``variant.json``, where it is a variant. ``lock``
    is the digest of its lock, where the set has several.
    """

    _later = frozenset({"lock"})
    name: str
    project: str
    version: str
    sha256: Sha256
    size: int
    requires_python: str = ""
    metadata_sha256: Sha256
    targets: tuple[str, ...] = ()
    label: str = ""
    variant: str = ""
    lock: str = ""

    @property
    def for_any_rocm(self) -> bool:
        """Whether it serves every ROCm: it has no device code, and is a variant for none of its own."""
        return not self.targets and self.label in ("", NULL_LABEL)


class Cell(_Grown):
    """What a set should hold: a project for a Python (``3.12``) and a target ("": it has no device code).

    ``rocm`` is the ROCm that it is for, where the set has locks with several.
    """

    _later = frozenset({"rocm"})
    project: str
    python: str
    target: str = ""
    rocm: str = ""

    def __str__(self) -> str:
        """Return it as people read it."""
        target = f" and {self.target}" if self.target else ""
        rocm = f" with ROCm {self.rocm}" if self.rocm else ""
        return f"{self.project} for Python {self.python}{target}{rocm}"


class SetLock(_Grown):
    """A lock of a set: the sha256 of its file, and where that lies beside the document.

    ``rocm`` is the ROCm in it, where the set has several locks.
    """

    _later = frozenset({"rocm"})
    digest: Sha256
    path: str
    rocm: str | None = None


class SetDocument(_Grown):
    """A set. ``origin`` is the id of the set that its wheels were rewritten from.

    Schema 1 has one ``lock``, with ``rocm``. Variants that were built from several locks are of schema 2:
    ``locks``, and each wheel says which is its own.
    """

    _later = frozenset({"lock", "locks"})
    schema_version: Literal[1, 2] = Field(default=1, alias="schema")
    id: SetId
    created: str
    version: str
    rocm: str | None = None
    family: str
    layout: Kind
    files: tuple[SetFile, ...] = Field(min_length=1)
    lock: SetLock | None = None
    locks: tuple[SetLock, ...] = ()
    origin: SetId | None = None
    planned: tuple[Cell, ...] = ()
    missing: tuple[Cell, ...] = ()

    @model_validator(mode="after")
    def _of_its_schema(self) -> SetDocument:
        known = {one.digest for one in self.locks}
        if self.schema_version == 1:
            right = self.lock is not None and not self.locks and not any(file.lock for file in self.files)
        else:
            right = self.lock is None and 2 <= len(known) == len(self.locks)
            right = right and all(file.lock in known for file in self.files)
        if not right:
            raise ValueError("schema 1 has one lock; schema 2 several, and one of them for each file")
        return self

    @property
    def sources(self) -> tuple[SetLock, ...]:
        """Its locks: one, or several."""
        return self.locks if self.lock is None else (self.lock,)

    @property
    def computed_id(self) -> str:
        """The id that follows from what it lists."""
        files = ((file.name, file.sha256) for file in self.files)
        return set_id(self.version, files, joint_digest(one.digest for one in self.sources))

    @property
    def rocms(self) -> tuple[str, ...]:
        """The versions of ROCm that its wheels are for, as its locks say, in their order."""
        said = [self.rocm] if self.lock is not None else [one.rocm for one in self.locks]
        return tuple(dict.fromkeys(one for one in said if one))

    @property
    def rocm_in_words(self) -> str:
        """The versions of ROCm, for people; "" when no lock says any."""
        return ", ".join(self.rocms)

    def rocm_of(self, file: SetFile) -> str | None:
        """Return the ROCm that a wheel was built with, as its lock says."""
        return next((one.rocm for one in self.locks if one.digest == file.lock), self.rocm)

    def may_fill(self, file: SetFile, cell: Cell) -> bool:
        """Tell whether a wheel is for the ROCm of a cell."""
        return not cell.rocm or file.for_any_rocm or self.rocm_of(file) == cell.rocm

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

    def to_json(self) -> bytes:
        """Return its file: the same set is the same bytes."""
        shown = self.model_dump(mode="json", by_alias=True)
        return (json.dumps(shown, indent=1) + "\n").encode()


def joint_digest(digests: Iterable[str]) -> str:
    """Return what stands for the locks of a set in its id: the digest of one, or that of all digests."""
    known = sorted(digests)
    return known[0] if len(known) == 1 else hashlib.sha256("".join(known).encode()).hexdigest()


def set_id(version: str, files: Iterable[tuple[str, str]], lock_digest: str) -> str:
    """Return the id of a set: its version, as a URL and a bucket can hold it, and what it is made of.

    ``files`` are names with their sha256. ``+`` becomes ``-``: S3 takes it for a space.
    """
    hasher = hashlib.sha256()
    for name, sha256 in sorted(files):
        hasher.update(f"{name}\0{sha256}\n".encode())
    hasher.update(lock_digest.encode())
    return f"{_NOT_IN_ID.sub('-', version)}-{hasher.hexdigest()[:12]}"


def parse_set(content: bytes, *, where: str, expected: str | None = None) -> SetDocument:
    """Read the document of a set; DataError with what is wrong in it, and for an id that is not its own.

    ``expected`` is the id that the folder has.
    """
    try:
        found = SetDocument.model_validate_json(content)
    except ValidationError as cause:
        raise DataError(f"{where} is not the document of a set: {say(cause, SetDocument)}") from None
    own = found.computed_id
    if len({found.id, own, expected or own}) > 1:
        raise DataError(f"{where} says {found.id}, and what it lists is {own}")
    return found


def read_set(
    store: Store, family: str, set_id: str, *, area: Area = "staging", layout: Layout
) -> SetDocument:
    """Return a set that is in the store. Raises ReleaseError when it is not, DataError when it is damaged."""
    path = Places(layout, family, area).document(set_id)
    try:
        content = store.read(path).content
    except Missing as cause:
        known = list(set_ids(store, family, area=area, layout=layout))
        raise ReleaseError(
            f"there is no set {set_id} of {family}{did_you_mean(set_id, known)}",
            tip=f"`rocm-wheels releases {store.url}` lists those that are there",
        ) from cause
    return parse_set(content, where=store.url_of(path), expected=set_id)


def set_ids(store: Store, family: str, *, area: Area = "staging", layout: Layout) -> Iterator[str]:
    """Yield the ids of all sets of a family that are complete to the last file, sorted."""
    places = Places(layout, family, area)
    for name in store.folders(places.sets):
        if store.head(places.document(name)) is not None:
            yield name


def families(store: Store, *, area: Area = "staging", layout: Layout) -> list[str]:
    """Return the families that have a folder in an area, sorted."""
    return store.folders(layout.staging if area == "staging" else layout.release)


def find_set(
    store: Store, set_id: str, *, family: str | None = None, layout: Layout | None = None
) -> SetDocument:
    """Return a staged set by its id alone, or the beginning of it that only one set has.

    Raises ReleaseError that lists what an id could mean.
    """
    if not set_id:
        raise UsageError(
            "the id of the set is empty", tip=f"`rocm-wheels releases {store.url}` lists the sets"
        )
    names = layout or load_layout()
    found = [
        (one, known)
        for one in ([family] if family is not None else families(store, layout=names))
        for known in store.folders(Places(names, one).sets)
        if known.startswith(set_id) and store.head(Places(names, one).document(known)) is not None
    ]
    exact = [pair for pair in found if pair[1] == set_id] or found
    if len(exact) == 1:
        return read_set(store, *exact[0], layout=names)
    if not exact:
        where = f" of {family}" if family else ""
        raise ReleaseError(
            f"there is no set {set_id}{where} in {store.url}",
            tip=f"`rocm-wheels releases {store.url}` lists those that are there",
        )
    raise ReleaseError(
        f"{set_id} could be {', '.join(f'{known} of {one}' for one, known in exact)}",
        tip="give the whole id, and --family where several have it",
    )


def planned_cells(
    projects: Sequence[tuple[str, bool]], pythons: Sequence[str], targets: Sequence[str]
) -> tuple[Cell, ...]:
    """Return what a set should hold. ``projects`` are normalized names, and whether they have device code."""
    return tuple(
        Cell(project=canonicalize_name(project), python=python, target=target)
        for project, has_code in projects
        for python in sorted(pythons, key=_by_number)
        for target in (targets if has_code else ("",))
    )


def _by_number(python: str) -> tuple[Version, str]:
    return Version(python.rstrip("t")), python
