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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.compile import build_trees
from rocm_wheels.core import files, log
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.pipeline import run_record
from rocm_wheels.sources import checkout_state

DEFAULT_LEFTOVER_KINDS = (
    "trees",  # build trees waiting to be continued
    "environments",  # build environments, with ROCm in them
    "runs",  # records and logs of runs that have ended
    "rejected",  # wheels that failed their checks
    "fresh",  # wheels that a build left behind before they were checked
    "remains",  # what a cleaning that was killed was deleting
)
# besides: "built", wheels as they were built, which others are packaged from; "steps", what each step last
# did; "set-aside", build trees made by others that --clean set aside
_DELETING_PREFIX = ".going-"
_LOCKS_FOLDER = ".locks"


@dataclass(frozen=True)
class Leftover:
    """One thing that can be deleted. ``size``: bytes on the disk; ``used``: seconds since 1970."""

    kind: str
    name: str
    path: Path
    size: int
    used: float


def find_leftovers(
    workspace: Workspace, kinds: Iterable[str], *, sources: Mapping[str, Path], env: Mapping[str, str]
) -> list[Leftover]:
    """Return the pieces of some kinds in a work directory, and trees that wait in ``sources``, by project."""
    places = [
        ("environments", "", workspace.environments),
        ("runs", "", workspace.runs),
        ("rejected", "", workspace.rejected_wheels),
        ("fresh", "", workspace.fresh_wheels),
        ("built", "", workspace.built_wheels),
        ("steps", "", workspace.steps),
        *(("trees", f"{folder.name}/", folder) for folder in _list_entries(workspace.root / "trees")),
        *(
            ("trees", f"{project}/", build_trees.find_parking_folder(source, env) / project)
            for project, source in sources.items()
        ),
    ]
    selected, run_ids, leftovers = set(kinds), run_record.list_run_ids(workspace.runs), []
    for place, prefix, folder in places:
        for path in _list_entries(folder):
            kind, name, used = place, f"{prefix}{path.name}", path.lstat().st_mtime
            if path.name.startswith(_DELETING_PREFIX):
                kind = "remains"
            elif kind == "trees" and path.name.startswith("unnamed-"):
                kind = "set-aside"
            if kind not in selected or not _is_piece(kind, path, run_ids):
                continue
            if kind == "trees":
                patterns = (f"trees/{depth}/{build_trees.TREE_KEY_FILE}" for depth in ("*", "*/*", "*/*/*"))
                keys = (key for pattern in patterns for key in path.glob(pattern))
                used = next((key.stat().st_mtime for key in keys), used)
            elif kind == "environments":  # last used by the newest run whose plan names it
                plans = (workspace.runs / run / run_record.PLAN_FILE for run in run_ids)
                naming = (
                    plan for plan in plans if plan.is_file() and path.name.encode() in plan.read_bytes()
                )
                used = max(used, next((plan.stat().st_mtime for plan in naming), used))
            elif kind == "runs":
                used = max((entry.lstat().st_mtime for entry in path.iterdir()), default=used)
            elif kind == "steps":
                name = path.stem
            leftovers.append(Leftover(kind, name, path, measure_disk_size(path), used))
    return leftovers


def _list_entries(folder: Path) -> list[Path]:
    """Return what lies in a folder of ours; nothing of one that is a link elsewhere."""
    if folder.is_symlink():
        log.log_note(f"{folder} is a link: what is behind it is left alone")
        return []
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_piece(kind: str, path: Path, run_ids: list[str]) -> bool:
    """Tell whether an entry is one: no folder of locks, no note of a build that runs, nothing at work."""
    if kind == "trees":
        return path.is_dir()
    if kind == "environments":
        return path.name != _LOCKS_FOLDER
    if kind == "runs":  # one at work is on another machine: here nobody else works in this directory now
        return path.name in run_ids and run_record.read_run(path, brief=True).state != "running"
    if kind == "fresh":
        return not path.is_dir() or any(path.iterdir())
    return kind != "steps" or path.suffix == ".json"


def measure_disk_size(path: Path) -> int:
    """Return the bytes that a file or folder has on the disk, as ``du`` counts them."""
    sizes = {}  # by inode: a file has several names
    for entry in (path, *(() if path.is_symlink() else path.rglob("*"))):
        with suppress(FileNotFoundError):  # a dry run beside a build
            state = entry.lstat()
            blocks = getattr(state, "st_blocks", -(-state.st_size // 512))
            sizes[state.st_dev, state.st_ino] = blocks * 512
    return sum(sizes.values())


def select_leftovers(pieces: Iterable[Leftover], older_than: float | None, *, now: float) -> list[Leftover]:
    """Return the pieces that were not used for ``older_than`` seconds, the one used longest ago first.

    ``None``: all. What is half deleted goes whatever its age.
    """
    limit = float("inf") if older_than is None else now - older_than
    return sorted(
        (piece for piece in pieces if piece.used <= limit or piece.kind == "remains"),
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
    if leftover.kind != "remains":
        going = path.with_name(f"{_DELETING_PREFIX}{path.name}")
        if going.exists():
            _delete_tree(going)
        path = path.rename(going)
    _delete_tree(path)


def _delete_tree(folder: Path) -> None:
    """Delete a folder; folders in it that are closed to their owner are opened."""
    try:
        shutil.rmtree(folder)
    except PermissionError:
        for parent, names, _ in os.walk(folder):
            for inner in (Path(parent), *(Path(parent, name) for name in names)):
                if not inner.is_symlink():
                    inner.chmod(inner.stat().st_mode | stat.S_IRWXU)
        shutil.rmtree(folder)
