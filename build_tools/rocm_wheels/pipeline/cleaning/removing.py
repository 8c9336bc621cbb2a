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
from rocm_wheels.pipeline.cleaning.pieces import GOING, Piece
from rocm_wheels.records import did_you_mean
from rocm_wheels.sources.hold import held
from rocm_wheels.workspace import WAIT, Workspace, exclusive


@dataclass(frozen=True)
class Choice:
    """What shall go: pieces of ``steps`` (empty: all) that were not used for ``older_than`` seconds, and of
    those the ones used longest ago until what is left has ``max_size`` bytes. ``None``: no such limit.
    """

    older_than: float | None = None
    max_size: int | None = None
    steps: tuple[str, ...] = ()


def choose(pieces: Sequence[Piece], choice: Choice, *, now: float) -> list[Piece]:
    """Return the pieces that go, the one used longest ago first.

    Raises UsageError for a step that nothing belongs to.
    """
    known = {step for piece in pieces for step in piece.steps}
    for step in choice.steps:
        if step not in known:
            raise UsageError(
                f"nothing belongs to a step {step}{did_you_mean(step, known)}",
                tip=f"steps that left something: {', '.join(sorted(known)) or 'none'}",
            )
    oldest = sorted(pieces, key=lambda piece: (piece.kind != "remains", piece.used, piece.name))
    found = [piece for piece in oldest if not choice.steps or piece.steps & set(choice.steps)]
    if choice.older_than is not None:
        limit = now - choice.older_than
        found = [piece for piece in found if piece.used <= limit or piece.kind == "remains"]
    if choice.max_size is None:
        return found
    left, going = sum(piece.size for piece in pieces), []
    for piece in found:
        if left <= choice.max_size and piece.kind != "remains":
            break
        going.append(piece)
        left -= piece.size
    return going


@contextmanager
def in_the_way(workspace: Workspace, sources: Iterable[Path], env: Mapping[str, str]) -> Iterator[None]:
    """Hold the work directory, its steps, its environments and some checkouts: nobody builds there now.

    Raises UsageError that names who does.
    """
    what, tip = "clean", f"{WAIT}; --dry-run shows what would go, and waits for nobody"
    with ExitStack() as holding:
        holding.enter_context(exclusive(workspace.root, what=what, tip=tip))
        for folder in (workspace.steps, workspace.environments):
            for place in sorted(folder.glob(".locks/*/.lock")):
                holding.enter_context(exclusive(place.parent, what=what, tip=tip))
        for source in dict.fromkeys(sources):
            holding.enter_context(held(source, what=what, env=env))
        yield


def remove(piece: Piece) -> None:
    """Delete a piece: renamed first, so that nothing of it counts from then on. Raises OSError."""
    path = piece.path
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    if not path.name.startswith(GOING):
        going = path.with_name(f"{GOING}{path.name}")
        if going.exists():
            _delete(going)
        path.rename(going)
        path = going
    _delete(path)


def _delete(folder: Path) -> None:
    """Delete a folder; folders in it that are closed to their owner are opened."""
    try:
        shutil.rmtree(folder)
    except PermissionError:
        for place, names, _ in os.walk(folder):
            for name in (".", *names):
                inner = Path(place, name)
                if not inner.is_symlink():
                    inner.chmod(inner.stat().st_mode | stat.S_IRWXU)
        shutil.rmtree(folder)
