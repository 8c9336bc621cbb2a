"""Choosing pieces and deleting them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.pipeline.cleaning.pieces import DELETING_PREFIX, Leftover
from rocm_wheels.records import suggest_name
from rocm_wheels.sources.hold import hold_checkout
from rocm_wheels.workspace import WAIT_TIP, Workspace, lock_folder


@dataclass(frozen=True)
class LeftoverSelection:
    """What shall go: pieces of ``steps`` (empty: all) that were not used for ``older_than`` seconds, and of
    those the ones used longest ago until what is left has ``max_size`` bytes. ``None``: no such limit.
    """

    older_than: float | None = None
    max_size: int | None = None
    steps: tuple[str, ...] = ()


def select_leftovers(
    leftovers: Sequence[Leftover], selection: LeftoverSelection, *, now: float
) -> list[Leftover]:
    """Return the pieces that go, the one used longest ago first.

    Raises UsageError for a step that nothing belongs to.
    """
    known_steps = {step for leftover in leftovers for step in leftover.steps}
    for step in selection.steps:
        if step not in known_steps:
            raise UsageError(
                f"nothing belongs to a step {step}{suggest_name(step, known_steps)}",
                tip=f"steps that left something: {', '.join(sorted(known_steps)) or 'none'}",
            )
    oldest = sorted(
        leftovers, key=lambda leftover: (leftover.kind != "remains", leftover.used, leftover.name)
    )
    matching = [
        leftover for leftover in oldest if not selection.steps or leftover.steps & set(selection.steps)
    ]
    if selection.older_than is not None:
        limit = now - selection.older_than
        matching = [leftover for leftover in matching if leftover.used <= limit or leftover.kind == "remains"]
    if selection.max_size is None:
        return matching
    remaining_size, selected = sum(leftover.size for leftover in leftovers), []
    for leftover in matching:
        if remaining_size <= selection.max_size and leftover.kind != "remains":
            break
        selected.append(leftover)
        remaining_size -= leftover.size
    return selected


@contextmanager
def hold_for_cleaning(
    workspace: Workspace, sources: Iterable[Path], env: Mapping[str, str]
) -> Iterator[None]:
    """Hold the work directory, its steps, its environments and some checkouts: nobody builds there now.

    Raises UsageError that names who does.
    """
    purpose, tip = "clean", f"{WAIT_TIP}; --dry-run shows what would go, and waits for nobody"
    with ExitStack() as held_locks:
        held_locks.enter_context(lock_folder(workspace.root, purpose=purpose, tip=tip))
        for folder in (workspace.steps, workspace.environments):
            for lock_file in sorted(folder.glob(".locks/*/.lock")):
                held_locks.enter_context(lock_folder(lock_file.parent, purpose=purpose, tip=tip))
        for source in dict.fromkeys(sources):
            held_locks.enter_context(hold_checkout(source, activity=purpose, env=env))
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
