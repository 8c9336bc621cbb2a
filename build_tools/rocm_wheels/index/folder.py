"""The folder of an index: where its files lie, and what its pages say of them.

What is known of the files of a project is its page as JSON (PEP 691). Keys of it that begin with ``_`` are
the index's own, as the PEP leaves them to it: ``_variants`` holds the ``variant.json`` of each wheel that
has one; on a page of a family ``_own`` names the files that are the family's; ``_families`` of the root page
names the families, which have folders of their own in that of the index.

``.index/PROJECT.json`` says when a file was last changed (nanoseconds) when it was hashed. It can be lost:
then files are hashed again.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import InvalidSdistFilename, NormalizedName, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.wheels import installer_slots

METADATA_SUFFIX = ".metadata"  # PEP 658
SDIST_SUFFIX = ".tar.gz"  # PEP 625
VARIANTS_SUFFIX = "-variants.json"  # PEP 825
STATE_FOLDER = ".index"
HTML_PAGE, JSON_PAGE, LINKS_PAGE = "index.html", "index.json", "links.html"
VARIANTS_FOLDER = "variants"  # folder of a project that holds variants files by their digest
_TAKEN_NAMES = (VARIANTS_FOLDER, HTML_PAGE, JSON_PAGE, LINKS_PAGE)  # of other things in an index
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+!-]{1,255}")  # names of wheels, as long as a disk takes them
_FAMILY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_PAGE_BEGIN = 300  # bytes of a page that hold its name
# what reading JSON of another form than ours leads to
_ODD_FORMS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_DAMAGED_TIP = "take it from a copy, or remove it and run `index build`"
_OUTSIDE_TIP = (
    "files of an index lie in its folder: make it anew in another folder, `rocm-wheels index build DIR FILE…`"
)


@dataclass(frozen=True)
class IndexEntry:
    """A file. ``size`` and ``changed`` (nanoseconds) are of the file that ``sha256`` (hex) was taken of.

    Of a file of another index (``index.federation``) what its page does not say is -1 or "", and ``metadata``
    is "true" where it is offered without a digest.

    ``place`` is the folder that it lies in, relative to its project page ("" is beside it);
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
    def version(self) -> Version:
        """Its version."""
        return parse_file_name(self.name)[1]

    @property
    def label(self) -> str | None:
        """Its variant label."""
        return parse_file_name(self.name)[2]

    def move_to(self, place: str) -> IndexEntry:
        """Return it as it is seen from a page for which everything is ``place`` further away."""
        return replace(self, place=posixpath.normpath(place + self.place) + "/")


@lru_cache(maxsize=4096)
def parse_file_name(file_name: str) -> tuple[NormalizedName, Version, str | None]:
    """Return normalized project, version and label of a file's name; DataError when it is none of ours."""
    if not _PLAIN_NAME.fullmatch(file_name):  # pages are made of names
        raise errors.DataError(f"{file_name!r} is not the name of a wheel or source distribution")
    if file_name.endswith(SDIST_SUFFIX):
        try:
            return *parse_sdist_filename(file_name), None
        except InvalidSdistFilename as cause:
            raise errors.DataError(f"{file_name} is not the name of a source distribution") from cause
    slot = next(iter(installer_slots.installer_slots(file_name)))
    return slot.project, slot.version, slot.label or None


def escape_file_name(name: str) -> str:
    """Return a file name as it is written in a link."""
    if _PLAIN_NAME.fullmatch(name):
        return name.replace("+", "%2B").replace("!", "%21")
    return quote(name)


def sort_entries(entries: Mapping[str, IndexEntry]) -> list[IndexEntry]:
    """Return wheels in the order of pages and files: by version, then by name."""
    versions = {entry.name.split("-", 2)[1]: entry.version for entry in entries.values()}
    ordered = sorted(versions, key=lambda text: (versions[text], text))
    rank = {text: number for number, text in enumerate(ordered)}
    return sorted(entries.values(), key=lambda entry: (rank[entry.name.split("-", 2)[1]], entry.name))


@dataclass(frozen=True, order=True)
class IndexFolder:
    """An index: DIR (``family`` is "") or one family's below it."""

    root: Path
    family: str = ""

    @property
    def folder(self) -> Path:
        """The folder of its pages."""
        return self.root / self.family

    def page_of(self, project: str) -> Path:
        """The page of a project as JSON, which is what is known of its files."""
        return self.folder / project / JSON_PAGE

    def times_of(self, project: str) -> Path:
        """When the files of a project were last changed."""
        return self.folder / STATE_FOLDER / f"{project}.json"

    def file_of(self, project: str, entry: IndexEntry) -> Path:
        """Where a file lies."""
        return self.folder / project / entry.place / entry.name

    def beside(self, project: str, entry: IndexEntry, suffix: str) -> Path:
        """Where what belongs to a file lies, or is to be put."""
        return self.file_of(project, entry).with_name(entry.name + suffix)

    def list_projects(self) -> list[str]:
        """Return the projects that have a page as JSON here; a family's are also those for everybody."""
        skipped = {STATE_FOLDER, *(() if self.family else list_families(self.root))}
        listed = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(path.name for path in listed if path.name not in skipped and _is_project(path))

    def read_entries(self, project: str, page: Path | None = None) -> dict[str, IndexEntry]:
        """Return what is known of a project's own files, by file name; ``page`` is one that is to come.

        DataError for a page that was not made here.
        """
        shown = self.page_of(project)
        try:
            top = json.loads((page or shown).read_bytes())
            own, variants = top.get("_own"), top.get("_variants", {})
            own_names = None if own is None else set(own)
            times = self._read_times(project)
            entries = [
                _read_entry(project, file, variants, times)
                for file in top["files"]
                if own_names is None or file["filename"] in own_names
                if not file["filename"].endswith(VARIANTS_SUFFIX)
            ]
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as cause:
            raise errors.DataError(f"cannot read {shown}") from cause
        except (*_ODD_FORMS, errors.DataError) as cause:
            raise errors.DataError(f"{shown} is damaged, or not made here", tip=_DAMAGED_TIP) from cause
        for entry in entries:
            if self._is_outside(project, entry):  # what lies there is nothing that a command may change
                raise errors.DataError(
                    f"{shown} links to {entry.href}, which lies outside of the index", tip=_OUTSIDE_TIP
                )
        return {entry.name: entry for entry in entries}

    def _is_outside(self, project: str, entry: IndexEntry) -> bool:
        place = posixpath.normpath(posixpath.join(self.family, project, entry.place))
        # a URL has a colon; Windows takes C: and backslashes for places, too
        return place.startswith(("/", "..")) or not {":", "\\"}.isdisjoint(place)

    def _read_times(self, project: str) -> dict[str, int]:
        try:
            times = json.loads(self.times_of(project).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return times if isinstance(times, dict) else {}


def _is_project(folder: Path) -> bool:
    """Tell whether the page as JSON of a folder begins as ``pages`` makes that of a project."""
    with contextlib.suppress(OSError), (folder / JSON_PAGE).open("rb") as file:
        return f'"name": "{folder.name}"'.encode() in file.read(_PAGE_BEGIN)
    return False


def _read_entry(
    project: str, file: Mapping[str, Any], variants: Mapping[str, Any], times: Mapping[str, int]
) -> IndexEntry:
    """Return a file of a page that ``pages`` made; raises what any other content leads to."""
    name, url, yanked = file["filename"], file["url"], file.get("yanked")
    entry = IndexEntry(
        name=name,
        size=file["size"],
        changed=times.get(name, 0),
        sha256=file["hashes"]["sha256"],
        uploaded=file["upload-time"],
        metadata=file["core-metadata"]["sha256"] if "core-metadata" in file else "",
        requires_python=file.get("requires-python", ""),
        yanked="" if yanked is True else yanked or None,
        variant=json.dumps(variants[name]) if name in variants else None,
        place=url.removesuffix(escape_file_name(name)),
        provenance=file.get("provenance", ""),
    )
    texts = entry.uploaded, entry.metadata, entry.requires_python, entry.yanked or "", entry.provenance, url
    "".join((entry.sha256, *texts)).encode()  # an error for what is no text, or none that a page can hold
    if type(entry.size) is not int or entry.place == url or parse_file_name(name)[0] != project:
        raise ValueError(f"{name} has values of other kinds")
    return entry


def make_page_keys(view: IndexFolder, own_entries: Mapping[str, IndexEntry]) -> dict[str, Any]:
    """Return the keys of a project's page that are the index's own; see ``IndexFolder.read_entries``."""
    keys: dict[str, Any] = {"_own": sorted(own_entries)} if view.family else {}
    variants = {entry.name: entry.variant for entry in own_entries.values() if entry.variant is not None}
    if variants:
        keys["_variants"] = {name: json.loads(text) for name, text in sorted(variants.items())}
    return keys


def list_families(root: Path) -> list[str]:
    """Return the families of an index."""
    path = root / JSON_PAGE
    try:
        names = json.loads(path.read_bytes()).get("_families", [])
        if not all(map(_FAMILY_NAME.fullmatch, names)):
            raise ValueError("no names of folders")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except _ODD_FORMS as cause:
        raise errors.DataError(f"{path} is damaged, or not made here", tip=_DAMAGED_TIP) from cause
    return list(names)


def list_index_folders(root: Path) -> list[IndexFolder]:
    """Return the index itself and those of its families."""
    return [IndexFolder(root), *(IndexFolder(root, family) for family in list_families(root))]


def check_family_name(root: Path, family: str) -> str:
    """Return the name of a family; UsageError when it cannot be a folder of this index."""
    if not _FAMILY_NAME.fullmatch(family) or family.lower() in _TAKEN_NAMES:
        raise errors.UsageError(
            f"--family {family!r} is no name for a folder", tip="for example: --family gfx94X-dcgpu"
        )
    if canonicalize_name(family) in IndexFolder(root).list_projects():
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
    own_entries: Mapping[str, IndexEntry],
    general_entries: Mapping[str, IndexEntry],
) -> dict[str, IndexEntry]:
    """Return the wheels of a project's page: the family's own, and those of the index for everybody.

    DataError when the same file name stands for different bytes in both.
    """
    if not view.family:
        return dict(own_entries)
    where = f"for all and for {view.family}"
    for name in own_entries.keys() & general_entries.keys():
        refuse_other_bytes(name, general_entries[name].sha256, own_entries[name].sha256, where=where)
    moved = {name: entry.move_to(f"../../{project}/") for name, entry in general_entries.items()}
    return {**moved, **own_entries}


def refuse_other_bytes(name: str, listed_sha256: str, new_sha256: str, *, where: str) -> None:
    """Raise DataError when two digests of a file differ: a name stands for the same bytes for ever."""
    if listed_sha256 != new_sha256:
        raise errors.DataError(
            f"{name} ({where}): the index has sha256 {listed_sha256}, this file is {new_sha256}",
            tip="a published file is never replaced: give the new one a build tag (…-1-cp312-…)",
        )
