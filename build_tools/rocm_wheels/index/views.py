"""The folders of an index: the index itself, and that of each GPU family in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.index.entries import Entry, from_line, in_order, to_line

STATE = ".index"
PENDING = "pending.json"  # in the state: a change that is being made
HTML, JSON, LINKS = "index.html", "index.json", "links.html"
VARIANTS = "variants"  # folder of a project that holds variants files by their digest
_FAMILY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, order=True)
class View:
    """An index: DIR (``family`` is "") or one family's below it."""

    root: Path
    family: str = ""

    @property
    def folder(self) -> Path:
        """The folder of its pages."""
        return self.root / self.family

    def project(self, name: str) -> Path:
        """The folder of a project's pages and, usually, wheels."""
        return self.folder / name

    def state_file(self, name: str) -> Path:
        """What is known of a project's wheels."""
        return self.folder / STATE / f"{name}.jsonl"

    def file_of(self, project: str, entry: Entry) -> Path | None:
        """Where a wheel lies, None when it is somewhere else."""
        return None if entry.is_remote else self.project(project) / entry.place / entry.name

    def sidecar_of(self, project: str, entry: Entry) -> Path:
        """Where the METADATA of a wheel lies: beside it, or to be put beside it."""
        return (self.file_of(project, entry) or self.project(project) / entry.name).with_name(
            entry.name + ".metadata"
        )

    def own_projects(self) -> list[str]:
        """The projects that have wheels of their own here."""
        state = self.folder / STATE
        if not state.is_dir():
            return []
        return sorted(path.name[:-6] for path in state.iterdir() if path.name.endswith(".jsonl"))

    def projects(self) -> list[str]:
        """All projects that pages of this index are written for."""
        own = self.own_projects()
        return sorted({*own, *View(self.root).own_projects()}) if self.family else own

    def read(self, name: str) -> dict[str, Entry]:
        """Return what is known of a project's own wheels, by file name."""
        return read_state(self.state_file(name), self.state_file(name))


def read_state(path: Path, named: Path) -> dict[str, Entry]:
    """Read what is known of a project's wheels; errors call the file ``named``."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"cannot read {named}") from cause
    lines = enumerate(text.splitlines(), start=1)
    return {entry.name: entry for n, line in lines for entry in [from_line(line, where=f"{named}:{n}")]}


def families_file(root: Path) -> Path:
    """The list of an index's families."""
    return root / STATE / "families.json"


def families(root: Path) -> list[str]:
    """Return the families of an index."""
    path = families_file(root)
    try:
        names = [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
        if not all(map(_FAMILY.fullmatch, names)):
            raise ValueError("no names of folders")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, TypeError, RecursionError) as cause:
        raise DataError(f"{path} is damaged", tip='it is a list of names: ["gfx1100"]') from cause
    return names


def views(root: Path) -> list[View]:
    """Return the index itself and those of its families."""
    return [View(root), *(View(root, family) for family in families(root))]


def state_text(entries: dict[str, Entry]) -> bytes:
    """Return the content of a project's file of known wheels."""
    return "".join(to_line(entry) + "\n" for entry in in_order(entries)).encode()


def checked_family(root: Path, family: str) -> str:
    """Return the name of a family; UsageError when it cannot be a folder of this index."""
    if not _FAMILY.fullmatch(family) or family.lower() in (VARIANTS, HTML, JSON, LINKS):
        raise UsageError(
            f"--family {family!r} is no name for a folder", tip="for example: --family gfx94X-dcgpu"
        )
    clash = canonicalize_name(family)
    if clash in View(root).own_projects():
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


def combined(view: View, project: str, own: dict[str, Entry], general: dict[str, Entry]) -> dict[str, Entry]:
    """Return the wheels of a project's page: the family's own, and those of the index for everybody.

    DataError when the same file name stands for different bytes in both.
    """
    if not view.family:
        return own
    for name in own.keys() & general.keys():
        refuse_other_bytes(
            name, general[name].sha256, own[name].sha256, where=f"for all and for {view.family}"
        )
    moved = {name: entry.moved(f"../../{project}/") for name, entry in general.items()}
    return {**moved, **own}


def refuse_other_bytes(name: str, known: str, given: str, *, where: str) -> None:
    """Raise DataError when two digests of a file differ: a name stands for the same bytes for ever."""
    if known != given:
        raise DataError(
            f"{name} ({where}): the index has sha256 {known}, this file is {given}",
            tip="a published file is never replaced: give the new one a build tag (…-1-cp312-…)",
        )
