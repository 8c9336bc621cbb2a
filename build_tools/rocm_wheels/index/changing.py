"""One change of an index: all is written beside, then appears in an order that readers like.

The order: wheels and METADATA, what is known of them, variants files, project pages, root pages and the
pages for ``--find-links``; last what is no longer listed is removed. Before the first step a note of the
change is left, so that the next command finishes what a killed one began.
One writer at a time holds the lock (``flock``: on this machine, and on network drives that pass it on;
an object store has none, so there it must be one writer that uploads).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import UsageError
from rocm_wheels.index.entries import Entry
from rocm_wheels.index.pages import REPOSITORY_VERSION
from rocm_wheels.index.staging import stage_project, stage_tops
from rocm_wheels.index.switching import Rank, Switch, carry_out
from rocm_wheels.index.views import (
    HTML,
    PENDING,
    STATE,
    View,
    families,
    families_file,
    read_state,
    state_text,
)
from rocm_wheels.workspace import exclusive

PATIENCE = 600.0  # seconds for another writer to end


class Change:
    """What a command changes. Projects are settled one after another; none is kept in memory."""

    def __init__(self, root: Path, switch: Switch) -> None:
        self.root = root
        self._switch = switch
        self._names: dict[View, set[str]] = {}
        self._keys: dict[tuple[str, str], None] = {}
        self._known = set(families(root))

    def read(self, view: View, project: str) -> dict[str, Entry]:
        """Return a project's own wheels, as settled so far."""
        path = view.state_file(project)
        return read_state(self._switch.current(path), path)

    def settle(self, view: View, project: str, entries: dict[str, Entry]) -> None:
        """Say what the own wheels of a project are from now on."""
        self._keys[view.family, project] = None
        path = view.state_file(project)
        if entries:
            self._switch.put(path, state_text(entries), Rank.STATE)
        elif path.exists():
            self._switch.put(path, b"", Rank.STATE)
            self._switch.remove(path)
        self._stage(view, project, entries)

    def place(self, target: Path, part: Path) -> None:
        """Have a wheel that was written to ``new_part`` appear as ``target``."""
        self._switch.put_part(target, part, Rank.WHEEL)

    def put_metadata(self, target: Path, content: bytes) -> None:
        """Have the METADATA of a wheel lie at ``target``."""
        self._switch.put(target, content, Rank.METADATA)

    def remove(self, path: Path) -> None:
        """Have a file removed when nothing links to it any more."""
        self._switch.remove(path)

    def new_part(self) -> Path:
        """Return a path for a file in the making, on the file system of the index."""
        return self._switch.new_part()

    def _stage(self, view: View, project: str, own: dict[str, Entry]) -> None:
        if view not in self._names:
            self._names[view] = set(view.projects())
        general = self.read(View(self.root), project) if view.family else {}
        if stage_project(self._switch, view, project, own, general):
            self._names[view].add(project)
        else:
            self._names[view].discard(project)

    def finish(self, *, everything: bool = False) -> None:
        """Write what follows, and make it all appear; ``everything``: the root pages in any case."""
        self._stage_families()
        if everything:
            self._names.setdefault(View(self.root), set(View(self.root).projects()))
        every = sorted({*self._known, *(view.family for view in self._names)} - {""})
        for view, names in self._names.items():
            stage_tops(self._switch, view, sorted(names), [] if view.family else every)
        if not self._switch.is_empty:
            self._switch.commit(self.root / STATE / PENDING, self.root)

    def _stage_families(self) -> None:
        """Stage the pages that follow: a wheel for everybody is on every family's pages."""
        general = [project for family, project in self._keys if not family]
        new = {family for family, _ in self._keys if family} - self._known
        for family in sorted(self._known | new):
            follow = {*general, *(View(self.root).own_projects() if family in new else [])}
            for project in sorted(follow):
                if (family, project) not in self._keys or project in general:
                    view = View(self.root, family)
                    self._stage(view, project, self.read(view, project))
        if new:  # its name is on the root page
            listed = json.dumps(sorted(self._known | new)) + "\n"
            self._switch.put(families_file(self.root), listed.encode(), Rank.STATE)
            self._names.setdefault(View(self.root), set(View(self.root).projects()))


@contextlib.contextmanager
def changing(
    root: Path, *, what: str, create: bool = False, everything: bool = False, patience: float = PATIENCE
) -> Iterator[Change]:
    """Hold an index and give a change to fill; it is made at the end, unless something is raised."""
    require_index(root, create=create)
    _require_own_page(root)
    with exclusive(root / STATE, what=what, patience=patience):
        if (note := root / STATE / PENDING).exists():
            log.note(f"{root}: finishing a change that was cut short")
            carry_out(note, root)
        with Switch.open(root / STATE / "parts") as switch:
            change = Change(root, switch)
            yield change
            change.finish(everything=everything)


def _require_own_page(root: Path) -> None:
    """Raise UsageError when the folder has a front page that is no index: it would be lost."""
    page = root / HTML
    if page.is_file() and REPOSITORY_VERSION not in page.read_bytes():
        tip = "name another folder, or move that page away"
        raise UsageError(f"{page} is not the page of an index made here", tip=tip)


def require_index(root: Path, *, create: bool = False) -> None:
    """Raise UsageError unless a folder is an index, or with ``create`` can become one."""
    if create and (root.is_dir() or not root.exists()):
        return
    if not root.is_dir():
        said = "not a folder" if root.exists() else "not there"
        raise UsageError(f"{root} is {said}", tip="name the folder of the index")
    if not (root / STATE).is_dir():
        tip = f"`rocm-wheels index build {root}` makes one of the wheels in it"
        raise UsageError(f"{root} is not an index", tip=tip)
