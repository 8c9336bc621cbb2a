"""Find the folders and state files of an index: the index itself, and that of each GPU family in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from rocm_wheels.core import DataError, UsageError
from rocm_wheels.index.entry import IndexEntry, entry_from_line, entry_to_line, sort_entries

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
        raise DataError(f"cannot read {shown_path}") from cause
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
        raise DataError(f"{path} is damaged", tip='it is a list of names: ["gfx1100"]') from cause
    return names


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
        raise UsageError(
            f"--family {family!r} is no name for a folder", tip="for example: --family gfx94X-dcgpu"
        )
    clash = canonicalize_name(family)
    if clash in IndexFolder(root).list_own_projects():
        raise UsageError(
            f"--family {family}: the index has a project of that name", tip="choose another name"
        )
    return family


def refuse_family_name(root: Path, project: str, names: Iterable[str]) -> None:
    """Raise UsageError when a project has the folder of a family, also where capitals are not told apart."""
    if project in [canonicalize_name(name) for name in names]:
        raise UsageError(
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
        raise DataError(
            f"{name} ({where}): the index has sha256 {listed_sha256}, this file is {new_sha256}",
            tip="a published file is never replaced: give the new one a build tag (…-1-cp312-…)",
        )
