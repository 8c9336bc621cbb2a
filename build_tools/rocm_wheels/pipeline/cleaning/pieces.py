"""What builds left: each piece with its kind, its size, when it was last used, and the steps it belongs to.

Only what lies where we put it is a piece. A link among pieces is one itself, of no size; a folder of pieces
that is a link elsewhere is left alone.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels import log
from rocm_wheels.compile.trees import KEY_FILE
from rocm_wheels.compile.trees.waiting import waiting_place
from rocm_wheels.pipeline.record.reading import PLAN, read_run, run_ids
from rocm_wheels.workspace import Workspace

Kind = Literal["trees", "environments", "runs", "rejected", "fresh", "steps", "set-aside", "remains"]

KINDS: Mapping[Kind, str] = {
    "trees": "build trees that wait for their turn",
    "environments": "build environments, with ROCm in them",
    "runs": "records and logs of runs that have ended",
    "rejected": "wheels that failed their checks",
    "fresh": "wheels that a build left behind before they were checked",
    "steps": "what each step last did: without it, it is done again",
    "set-aside": "build trees of somebody else that --clean set aside",
    "remains": "what a cleaning that was killed was deleting",
}
DEFAULT_KINDS: tuple[Kind, ...] = ("trees", "environments", "runs", "rejected", "fresh", "remains")
GOING = ".going-"
_LOCKS = ".locks"
_BUILD = re.compile(r"build-(?P<project>[\w-]+?)-(?P<tag>cp3\d+t?)(?:-\S+)?")
_INSTALL = re.compile(r"install-rocm-cp3(?P<minor>\d+)(?P<free>t?)(?:-\S+)?")


@dataclass(frozen=True)
class Piece:
    """One thing that can be deleted. ``size``: bytes that the disk gets back; ``used``: seconds since 1970.

    ``source``: the checkout that a build tree waits in; ``None`` in a work directory.
    """

    kind: Kind
    path: Path
    name: str
    size: int
    used: float
    steps: frozenset[str] = frozenset()
    source: Path | None = None

    def as_json(self) -> dict[str, object]:
        """Return the piece as plain JSON values."""
        return {
            "kind": self.kind,
            "name": self.name,
            "path": str(self.path),
            "size": self.size,
            "used": self.used,
        }


def find_pieces(
    workspace: Workspace, kinds: Iterable[Kind], *, sources: Mapping[str, Path], env: Mapping[str, str]
) -> list[Piece]:
    """Return the pieces of some kinds in a work directory, and trees that wait in ``sources``, by project."""
    wanted = set(kinds)
    steps = sorted(path.stem for path in _entries(workspace.steps) if path.suffix == ".json")
    found: list[Piece] = []
    if wanted & {"trees", "set-aside", "remains"}:
        for folder in _entries(workspace.root / "trees"):
            found += _trees(folder, folder.name, steps, None)
        for project, source in sources.items():
            if source.is_dir():
                found += _trees(waiting_place(source, env) / project, project, steps, source)
    if "environments" in wanted:
        found += _environments(workspace, steps)
    if "runs" in wanted:
        found += _runs(workspace)
    if "rejected" in wanted:
        found += [_piece("rejected", path) for path in _entries(workspace.rejected)]
    if "fresh" in wanted:
        left = [path for path in _entries(workspace.fresh) if not path.is_dir() or any(path.iterdir())]
        found += [_piece("fresh", path, steps=frozenset({path.name})) for path in left]
    if "steps" in wanted:
        found += [
            _piece("steps", workspace.steps / f"{step}.json", name=step, steps=frozenset({step}))
            for step in steps
        ]
    if "remains" in wanted:
        for place in (
            workspace.environments,
            workspace.runs,
            workspace.rejected,
            workspace.fresh,
            workspace.steps,
        ):
            found += [_piece("remains", path) for path in _entries(place, going=True)]
    return [piece for piece in found if piece.kind in wanted]


def _trees(folder: Path, project: str, steps: Iterable[str], source: Path | None) -> Iterator[Piece]:
    for path in _entries(folder):
        if not path.is_dir():
            continue  # a note of the build that is running
        name = f"{project}/{path.name}"
        if path.name.startswith("unnamed-"):
            yield _piece("set-aside", path, name=name, source=source)
            continue
        key = next(
            (k for depth in ("*", "*/*", "*/*/*") for k in path.glob(f"trees/{depth}/{KEY_FILE}")), None
        )
        mine = {step for step in steps if _built_in(step, project, key)}
        used = key.stat().st_mtime if key is not None else None
        yield _piece("trees", path, name=name, used=used, steps=frozenset(mine), source=source)
    for path in _entries(folder, going=True):
        yield _piece("remains", path, name=f"{project}/{path.name}", source=source)


def _built_in(step: str, project: str, key: Path | None) -> bool:
    """Tell whether a step builds a project in trees like this one: of its Python, or shared by all."""
    said = _BUILD.fullmatch(step)
    if said is None or said["project"] != project:
        return False
    try:
        tag = json.loads(key.read_bytes())["parts"].get("python tag") if key is not None else None
    except (OSError, ValueError, KeyError, AttributeError):
        return True  # damaged: nobody else's either
    return tag in (None, said["tag"])


def _environments(workspace: Workspace, steps: Iterable[str]) -> Iterator[Piece]:
    """Yield environments; each was last used by the newest run whose plan names it."""
    places = [path for path in _entries(workspace.environments) if path.name != _LOCKS]
    used: dict[Path, float] = {}
    for run in run_ids(workspace.runs):
        if len(used) == len(places):
            break
        plan = workspace.runs / run / PLAN
        if plan.is_file():
            text = plan.read_text(encoding="utf-8", errors="replace")
            moment = plan.stat().st_mtime
            used.update({path: moment for path in places if path not in used and path.name in text})
    for path in places:
        mine = {step for step in steps if (name := _environment_of(step)) and path.name.startswith(name)}
        touched = max(used.get(path, 0.0), path.lstat().st_mtime)
        yield _piece("environments", path, used=touched, steps=frozenset(mine))


def _environment_of(step: str) -> str | None:
    said = _INSTALL.fullmatch(step)
    return f"py3.{said['minor']}{said['free']}-" if said else None


def _runs(workspace: Workspace) -> Iterator[Piece]:
    if workspace.runs.is_symlink():
        return
    for run in run_ids(workspace.runs):
        folder = workspace.runs / run
        if read_run(folder, brief=True).state == "running":
            continue  # on another machine: here, nobody else works in this directory now
        newest = max(
            (entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(folder)), default=None
        )
        yield _piece("runs", folder, used=newest)


def _entries(folder: Path, *, going: bool = False) -> list[Path]:
    """Return what lies in a folder of ours, without what is being deleted, or only that."""
    if folder.is_symlink():
        if not going:
            log.note(f"{folder} is a link: what is behind it is left alone")
        return []
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.startswith(GOING) == going)


def _piece(
    kind: Kind,
    path: Path,
    *,
    name: str | None = None,
    used: float | None = None,
    steps: frozenset[str] = frozenset(),
    source: Path | None = None,
) -> Piece:
    moment = path.lstat().st_mtime if used is None else used
    return Piece(kind, path, name or path.name, size_of(path), moment, steps, source)


def size_of(path: Path) -> int:
    """Return the bytes that the disk gets back: links are not followed, files also linked elsewhere stay."""
    total = 0
    shared: dict[tuple[int, int], tuple[int, int]] = {}  # inode → links not seen yet, bytes
    waiting = [path]
    while waiting:
        place = waiting.pop()
        state = place.lstat()
        size = getattr(state, "st_blocks", -(-state.st_size // 512)) * 512
        if stat.S_ISDIR(state.st_mode):
            total += size
            waiting.extend(Path(entry.path) for entry in os.scandir(place))
        elif state.st_nlink > 1:
            key = (state.st_dev, state.st_ino)
            shared[key] = (shared.get(key, (state.st_nlink, 0))[0] - 1, size)
        else:
            total += size
    return total + sum(size for left, size in shared.values() if left == 0)
