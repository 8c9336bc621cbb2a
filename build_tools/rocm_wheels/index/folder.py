"""The folder of an index: its state files, a line of JSON for each wheel or source distribution.

GPU families have folders of their own in it, with state files of their own."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import InvalidSdistFilename, NormalizedName, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.wheels import dist_info, statement

METADATA_SUFFIX = ".metadata"  # PEP 658
SDIST_SUFFIX = ".tar.gz"  # PEP 625
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+!-]+")  # what all names of wheels are made of


@dataclass(frozen=True)
class IndexEntry:
    """A file. ``size`` and ``changed`` (nanoseconds) are of the file that ``sha256`` (hex) was taken of.

    ``place`` is the folder or URL that it lies in, relative to its project page ("" is beside it);
    ``metadata`` the digest of a wheel's METADATA, "" of a source distribution: installers do not ask for
    it; ``yanked`` the reason, None when it is not;
    ``variant`` its ``variant.json``, None without a label; ``uploaded`` when it was added (ISO 8601, UTC);
    ``provenance`` the whole URL of its provenance object, "" without one.
    """

    name: str
    size: int
    changed: int
    sha256: str
    uploaded: str
    metadata: str
    requires_python: str = ""
    yanked: str | None = None
    variant: str | None = None
    place: str = ""
    provenance: str = ""

    @property
    def href(self) -> str:
        """Where it lies, as a link of its project page: ``+`` and ``!`` are escaped."""
        return self.place + escape_file_name(self.name)

    @property
    def is_remote(self) -> bool:
        """Tell whether it lies somewhere else (``--files-url``), not in its project's folder or beside."""
        return self.place not in ("", "../")

    @property
    def version(self) -> Version:
        """Its version."""
        return parse_file_name(self.name)[1]

    @property
    def label(self) -> str | None:
        """Its variant label."""
        return parse_file_name(self.name)[2]

    def move_to(self, place: str) -> IndexEntry:
        """Return it as it is seen from a page for which everything is ``place`` further away."""
        if "://" in self.place or self.place.startswith("/"):
            return self
        return replace(self, place=posixpath.normpath(place + self.place) + "/")


@lru_cache(maxsize=4096)
def _parse_name_and_version(distribution: str, version: str) -> tuple[NormalizedName, Version]:
    wheel_name = dist_info.parse_wheel_name(f"{distribution}-{version}-py3-none-any.whl")
    return wheel_name.name, wheel_name.version


@lru_cache(maxsize=4096)
def _parse_label(fields: str) -> str | None:
    return dist_info.parse_wheel_name(f"x-1-{fields}").label


@lru_cache(maxsize=4096)
def parse_file_name(file_name: str) -> tuple[NormalizedName, Version, str | None]:
    """Return normalized project, version and label of a file's name; DataError when it is none of ours.

    Wheels of an index have few versions and few tags between them: each is read once.
    """
    if file_name.endswith(SDIST_SUFFIX):
        try:
            return *parse_sdist_filename(file_name), None
        except InvalidSdistFilename as cause:
            raise errors.DataError(f"{file_name} is not the name of a source distribution") from cause
    parts = file_name.split("-", 2)
    if len(parts) != 3:
        dist_info.parse_wheel_name(file_name)  # says what is wrong
        raise errors.DataError(f"{file_name} is not the name of a wheel")
    try:
        return *_parse_name_and_version(parts[0], parts[1]), _parse_label(parts[2])
    except errors.DataError:
        wheel_name = dist_info.parse_wheel_name(file_name)  # an error that names the file
        return wheel_name.name, wheel_name.version, wheel_name.label


def escape_file_name(name: str) -> str:
    """Return a file name as it is written in a link."""
    if _PLAIN_NAME.fullmatch(name):
        return name.replace("+", "%2B").replace("!", "%21")
    return quote(name)


def sort_entries(entries: Mapping[str, IndexEntry]) -> list[IndexEntry]:
    """Return wheels in the order of pages and files: by version, then by name."""
    spelled = {entry.name.split("-", 2)[1]: entry.version for entry in entries.values()}
    rank = {
        text: number for number, text in enumerate(sorted(spelled, key=lambda text: (spelled[text], text)))
    }
    return sorted(entries.values(), key=lambda entry: (rank[entry.name.split("-", 2)[1]], entry.name))


_encode = json.JSONEncoder(separators=(",", ":")).encode
_FIELD_NAMES = tuple(field.name for field in fields(IndexEntry))
_REQUIRED_FIELDS = ("name", "size", "changed", "sha256", "uploaded", "metadata")


def entry_to_line(entry: IndexEntry) -> str:
    """Return an entry as a line of JSON, without what it has not."""
    values: dict[str, Any] = {}
    for name in _FIELD_NAMES:
        value = getattr(entry, name)
        if name in _REQUIRED_FIELDS or value or (name == "yanked" and value is not None):
            values[name] = value
    return _encode(values)


def entry_from_line(line: str, *, where: str) -> IndexEntry:
    """Read a line; DataError with ``where`` when it was not written by ``entry_to_line``."""
    try:
        entry = IndexEntry(**json.loads(line))
        if not _is_plain(entry):
            raise ValueError("values of other kinds")
    except (ValueError, TypeError, RecursionError) as cause:
        raise errors.DataError(
            f"{where} is damaged", tip="take it from a copy, or remove the file and run `index build`"
        ) from cause
    return entry


def _is_plain(entry: IndexEntry) -> bool:
    """Tell whether values are of their kinds, and the name that of a file in a folder."""
    texts = entry.name, entry.sha256, entry.uploaded, entry.metadata, entry.requires_python, entry.place
    all_texts = *texts, entry.yanked or "", entry.variant or "", entry.provenance
    numbers = entry.size, entry.changed
    right_types = all(isinstance(text, str) for text in all_texts) and all(
        isinstance(number, int) for number in numbers
    )
    return right_types and "/" not in entry.name and "\\" not in entry.name


STATE_FOLDER = ".index"
PENDING_NOTE = "pending.json"  # in the state: a change that is being made
HTML_PAGE, JSON_PAGE, LINKS_PAGE = "index.html", "index.json", "links.html"
VARIANTS_FOLDER = "variants"  # folder of a project that holds variants files by their digest
_FAMILY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, order=True)
class IndexFolder:
    """An index: DIR (``family`` is "") or one family's below it."""

    root: Path
    family: str = ""

    @property
    def folder(self) -> Path:
        """The folder of its pages."""
        return self.root / self.family

    def project_folder(self, name: str) -> Path:
        """The folder of a project's pages and, usually, wheels."""
        return self.folder / name

    def state_file(self, name: str) -> Path:
        """What is known of a project's wheels."""
        return self.folder / STATE_FOLDER / f"{name}.jsonl"

    def file_of(self, project: str, entry: IndexEntry) -> Path | None:
        """Where a wheel lies, None when it is somewhere else."""
        return None if entry.is_remote else self.project_folder(project) / entry.place / entry.name

    def sidecar_of(self, project: str, entry: IndexEntry) -> Path:
        """Where the METADATA of a wheel lies: beside it, or to be put beside it."""
        return (self.file_of(project, entry) or self.project_folder(project) / entry.name).with_name(
            entry.name + ".metadata"
        )

    def provenance_of(self, project: str, entry: IndexEntry) -> Path | None:
        """Where the provenance object of a file lies: beside it; None when that is somewhere else."""
        file = self.file_of(project, entry)
        return None if file is None else file.with_name(entry.name + ".provenance")

    def statements_of(self, project: str, entry: IndexEntry) -> list[Path]:
        """Where the statement of a wheel lies, and its signature: beside it; none when that is elsewhere."""
        file = self.file_of(project, entry)
        suffixes = () if file is None else (statement.STATEMENT_SUFFIX, statement.STATEMENT_SIGNATURE_SUFFIX)
        return [] if file is None else [file.with_name(entry.name + suffix) for suffix in suffixes]

    def list_own_projects(self) -> list[str]:
        """The projects that have wheels of their own here."""
        state = self.folder / STATE_FOLDER
        if not state.is_dir():
            return []
        return sorted(path.name[:-6] for path in state.iterdir() if path.name.endswith(".jsonl"))

    def list_projects(self) -> list[str]:
        """All projects that pages of this index are written for."""
        own_projects = self.list_own_projects()
        return (
            sorted({*own_projects, *IndexFolder(self.root).list_own_projects()})
            if self.family
            else own_projects
        )

    def read_entries(self, name: str) -> dict[str, IndexEntry]:
        """Return what is known of a project's own wheels, by file name."""
        return read_entries_file(self.state_file(name), self.state_file(name))


def read_entries_file(path: Path, shown_path: Path) -> dict[str, IndexEntry]:
    """Read what is known of a project's wheels; errors call the file ``shown_path``."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as cause:
        raise errors.DataError(f"cannot read {shown_path}") from cause
    lines = enumerate(text.splitlines(), start=1)
    return {
        entry.name: entry for n, line in lines for entry in [entry_from_line(line, where=f"{shown_path}:{n}")]
    }


def path_of_families(root: Path) -> Path:
    """The list of an index's families."""
    return root / STATE_FOLDER / "families.json"


def list_families(root: Path) -> list[str]:
    """Return the families of an index."""
    path = path_of_families(root)
    try:
        names = [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
        if not all(map(_FAMILY_NAME.fullmatch, names)):
            raise ValueError("no names of folders")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, TypeError, RecursionError) as cause:
        raise errors.DataError(f"{path} is damaged", tip='it is a list of names: ["gfx1100"]') from cause
    return names


def list_lost_families(root: Path) -> list[str]:
    """Return the families of an index whose folders somebody has removed."""
    return [family for family in list_families(root) if not (root / family).is_dir()]


def list_index_folders(root: Path) -> list[IndexFolder]:
    """Return the index itself and those of its families."""
    return [IndexFolder(root), *(IndexFolder(root, family) for family in list_families(root))]


def write_entries(entries: dict[str, IndexEntry]) -> bytes:
    """Return the content of a project's file of known wheels."""
    return "".join(entry_to_line(entry) + "\n" for entry in sort_entries(entries)).encode()


def check_family_name(root: Path, family: str) -> str:
    """Return the name of a family; UsageError when it cannot be a folder of this index."""
    if not _FAMILY_NAME.fullmatch(family) or family.lower() in (
        VARIANTS_FOLDER,
        HTML_PAGE,
        JSON_PAGE,
        LINKS_PAGE,
    ):
        raise errors.UsageError(
            f"--family {family!r} is no name for a folder", tip="for example: --family gfx94X-dcgpu"
        )
    clash = canonicalize_name(family)
    if clash in IndexFolder(root).list_own_projects():
        raise errors.UsageError(
            f"--family {family}: the index has a project of that name", tip="choose another name"
        )
    return family


def refuse_family_name(root: Path, project: str, names: Iterable[str]) -> None:
    """Raise UsageError when a project has the folder of a family, also where capitals are not told apart."""
    if project in [canonicalize_name(name) for name in names]:
        raise errors.UsageError(
            f"{root} has a family of the name of the project {project}", tip="one of them needs another index"
        )


def combine_entries(
    view: IndexFolder,
    project: str,
    own_entries: dict[str, IndexEntry],
    general_entries: dict[str, IndexEntry],
) -> dict[str, IndexEntry]:
    """Return the wheels of a project's page: the family's own, and those of the index for everybody.

    DataError when the same file name stands for different bytes in both.
    """
    if not view.family:
        return own_entries
    for name in own_entries.keys() & general_entries.keys():
        refuse_other_bytes(
            name,
            general_entries[name].sha256,
            own_entries[name].sha256,
            where=f"for all and for {view.family}",
        )
    moved = {name: entry.move_to(f"../../{project}/") for name, entry in general_entries.items()}
    return {**moved, **own_entries}


def refuse_other_bytes(name: str, listed_sha256: str, new_sha256: str, *, where: str) -> None:
    """Raise DataError when two digests of a file differ: a name stands for the same bytes for ever."""
    if listed_sha256 != new_sha256:
        raise errors.DataError(
            f"{name} ({where}): the index has sha256 {listed_sha256}, this file is {new_sha256}",
            tip="a published file is never replaced: give the new one a build tag (…-1-cp312-…)",
        )
