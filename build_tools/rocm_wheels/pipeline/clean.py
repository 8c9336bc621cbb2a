"""Delete what builds left, by kind and age: never anything that is not ours or is in use.

``find_leftovers`` finds what there is, ``select_leftovers`` (pure) says what goes, ``remove_leftover``
deletes it. Only what lies where we put it counts. A link among the leftovers is one itself, of no size; a
folder of them that is a link elsewhere is left alone. A leftover is renamed before it is deleted: killed
in the middle, nothing that is half there looks whole, and the next cleaning goes on.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.compile import build_trees
from rocm_wheels.core import files, log
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.pipeline import run_record
from rocm_wheels.sources import checkout_state

LeftoverKind = Literal[
    "trees", "environments", "runs", "rejected", "fresh", "built", "steps", "set-aside", "remains"
]

LEFTOVER_KINDS: Mapping[LeftoverKind, str] = {
    "trees": "build trees waiting to be continued",
    "environments": "build environments, with ROCm in them",
    "runs": "records and logs of runs that have ended",
    "rejected": "wheels that failed their checks",
    "fresh": "wheels that a build left behind before they were checked",
    "built": "wheels as they were built, which others are packaged from: without one, it is built again",
    "steps": "what each step last did: without it, it is done again",
    "set-aside": "build trees made by others that --clean set aside",
    "remains": "what a cleaning that was killed was deleting",
}
DEFAULT_LEFTOVER_KINDS: tuple[LeftoverKind, ...] = (
    "trees",
    "environments",
    "runs",
    "rejected",
    "fresh",
    "remains",
)
DELETING_PREFIX = ".going-"
_LOCKS_FOLDER = ".locks"


@dataclass(frozen=True)
class Leftover:
    """One thing that can be deleted. ``size``: bytes on the disk; ``used``: seconds since 1970.

    ``source``: the checkout that a build tree waits in; ``None`` in a work directory.
    """

    kind: LeftoverKind
    path: Path
    name: str
    size: int
    used: float
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


def find_leftovers(
    workspace: Workspace,
    kinds: Iterable[LeftoverKind],
    *,
    sources: Mapping[str, Path],
    env: Mapping[str, str],
) -> list[Leftover]:
    """Return the pieces of some kinds in a work directory, and trees that wait in ``sources``, by project."""
    selected_kinds = set(kinds)
    leftovers: list[Leftover] = []
    if selected_kinds & {"trees", "set-aside", "remains"}:
        for folder in _list_entries(workspace.root / "trees"):
            leftovers += _find_trees(folder, folder.name, None)
        for project, source in sources.items():
            if source.is_dir():
                leftovers += _find_trees(
                    build_trees.find_parking_folder(source, env) / project, project, source
                )
    if "environments" in selected_kinds:
        leftovers += _find_environments(workspace)
    if "runs" in selected_kinds:
        leftovers += _find_runs(workspace)
    places: dict[LeftoverKind, Path] = {
        "rejected": workspace.rejected_wheels,
        "fresh": workspace.fresh_wheels,
        "built": workspace.built_wheels,
        "steps": workspace.steps,
    }
    for kind, folder in places.items():
        for path in _list_entries(folder) if kind in selected_kinds else ():
            is_empty = path.is_dir() and not any(path.iterdir())
            if not (kind == "fresh" and is_empty) and (kind != "steps" or path.suffix == ".json"):
                leftovers.append(_make_leftover(kind, path, name=path.stem if kind == "steps" else path.name))
    for folder in (workspace.environments, workspace.runs, *places.values()):
        remains = _list_entries(folder, deleting=True) if "remains" in selected_kinds else ()
        leftovers += [_make_leftover("remains", path) for path in remains]
    return [leftover for leftover in leftovers if leftover.kind in selected_kinds]


def _find_trees(folder: Path, project: str, source: Path | None) -> Iterator[Leftover]:
    for path in _list_entries(folder):
        if not path.is_dir():
            continue  # a note of the build that is running
        name = f"{project}/{path.name}"
        if path.name.startswith("unnamed-"):
            yield _make_leftover("set-aside", path, name=name, source=source)
            continue
        key = next(
            (
                k
                for depth in ("*", "*/*", "*/*/*")
                for k in path.glob(f"trees/{depth}/{build_trees.TREE_KEY_FILE}")
            ),
            None,
        )
        used = key.stat().st_mtime if key is not None else None
        yield _make_leftover("trees", path, name=name, used=used, source=source)
    for path in _list_entries(folder, deleting=True):
        yield _make_leftover("remains", path, name=f"{project}/{path.name}", source=source)


def _find_environments(workspace: Workspace) -> Iterator[Leftover]:
    """Yield environments; each was last used by the newest run whose plan names it."""
    environments = [path for path in _list_entries(workspace.environments) if path.name != _LOCKS_FOLDER]
    used: dict[Path, float] = {}
    for run in run_record.list_run_ids(workspace.runs):
        if len(used) == len(environments):
            break
        plan = workspace.runs / run / run_record.PLAN_FILE
        if plan.is_file():
            text = plan.read_text(encoding="utf-8", errors="replace")
            moment = plan.stat().st_mtime
            used.update({path: moment for path in environments if path not in used and path.name in text})
    for path in environments:
        touched = max(used.get(path, 0.0), path.lstat().st_mtime)
        yield _make_leftover("environments", path, used=touched)


def _find_runs(workspace: Workspace) -> Iterator[Leftover]:
    if workspace.runs.is_symlink():
        return
    for run in run_record.list_run_ids(workspace.runs):
        folder = workspace.runs / run
        if run_record.read_run(folder, brief=True).state == "running":
            continue  # on another machine: here, nobody else works in this directory now
        newest = max(
            (entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(folder)), default=None
        )
        yield _make_leftover("runs", folder, used=newest)


def _list_entries(folder: Path, *, deleting: bool = False) -> list[Path]:
    """Return what lies in a folder of ours, without what is being deleted, or only that."""
    if folder.is_symlink():
        if not deleting:
            log.log_note(f"{folder} is a link: what is behind it is left alone")
        return []
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.startswith(DELETING_PREFIX) == deleting)


def _make_leftover(
    kind: LeftoverKind,
    path: Path,
    *,
    name: str | None = None,
    used: float | None = None,
    source: Path | None = None,
) -> Leftover:
    moment = path.lstat().st_mtime if used is None else used
    return Leftover(kind, path, name or path.name, measure_disk_size(path), moment, source)


def measure_disk_size(path: Path) -> int:
    """Return the bytes that a file or folder has on the disk, as ``du`` counts them."""
    sizes: dict[tuple[int, int], int] = {}  # by inode: a file has several names
    pending = [path]
    while pending:
        item = pending.pop()
        state = item.lstat()
        sizes[state.st_dev, state.st_ino] = getattr(state, "st_blocks", -(-state.st_size // 512)) * 512
        if stat.S_ISDIR(state.st_mode):
            pending.extend(Path(entry.path) for entry in os.scandir(item))
    return sum(sizes.values())


def select_leftovers(
    leftovers: Sequence[Leftover], older_than: float | None, *, now: float
) -> list[Leftover]:
    """Return the pieces that were not used for ``older_than`` seconds, the one used longest ago first.

    ``None``: all. What is half deleted goes whatever its age.
    """
    limit = float("inf") if older_than is None else now - older_than
    return sorted(
        (piece for piece in leftovers if piece.used <= limit or piece.kind == "remains"),
        key=lambda piece: (piece.kind != "remains", piece.used, piece.name),
    )


@contextmanager
def hold_for_cleaning(
    workspace: Workspace, sources: Iterable[Path], env: Mapping[str, str]
) -> Iterator[None]:
    """Hold the work directory, its steps, its environments and some checkouts: nobody builds there now.

    Raises UsageError that names who does.
    """
    purpose, tip = "clean", f"{files.WAIT_TIP}; --dry-run shows what would be deleted, without waiting"
    with ExitStack() as held_locks:
        held_locks.enter_context(files.lock_folder(workspace.root, purpose=purpose, tip=tip))
        for folder in (workspace.steps, workspace.environments):
            for lock_file in sorted(folder.glob(".locks/*/.lock")):
                held_locks.enter_context(files.lock_folder(lock_file.parent, purpose=purpose, tip=tip))
        for source in dict.fromkeys(sources):
            held_locks.enter_context(checkout_state.hold_checkout(source, activity=purpose, env=env))
        yield


def remove_leftover(leftover: Leftover) -> None:
    """Delete a piece: renamed first, so that nothing of it counts from then on. Raises OSError."""
    path = leftover.path
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    if not path.name.startswith(DELETING_PREFIX):
        renamed_path = path.with_name(f"{DELETING_PREFIX}{path.name}")
        if renamed_path.exists():
            _delete_tree(renamed_path)
        path.rename(renamed_path)
        path = renamed_path
    _delete_tree(path)


def _delete_tree(folder: Path) -> None:
    """Delete a folder; folders in it that are closed to their owner are opened."""
    try:
        shutil.rmtree(folder)
    except PermissionError:
        for parent, names, _ in os.walk(folder):
            for name in (".", *names):
                inner = Path(parent, name)
                if not inner.is_symlink():
                    inner.chmod(inner.stat().st_mode | stat.S_IRWXU)
        shutil.rmtree(folder)
