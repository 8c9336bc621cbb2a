"""Write several wheels, with what goes with them, so that all of them are there or none.

Each is written complete into a hidden folder inside that which it is for. At the end all get their names;
when one cannot, those that have got theirs give them back. A run that is killed on the way leaves a hidden
folder, which the next one removes, and perhaps some of the wheels: the same command writes the others.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock

from rocm_wheels.core import errors, files, log
from rocm_wheels.wheels import statement

_Move = tuple[Path | None, Path]


class WheelBatch:
    """Wheels that appear together; threads may write at the same time."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._stages: dict[Path, Path] = {}
        self._removed: list[Path] = []
        self._lock = Lock()

    def find_stage(self, folder: Path) -> Path:
        """Return the hidden folder to write what is for ``folder`` into, which is made when it is missing."""
        with self._lock:
            if folder not in self._stages:
                self._stages[folder] = self._stack.enter_context(files.open_stage(folder))
            return self._stages[folder]

    def remove(self, wheel: Path) -> None:
        """Have a wheel replaced, or removed with its statement, when the others appear."""
        self.find_stage(wheel.parent)
        self._removed.append(wheel)

    def commit(self) -> None:
        """Give all files their names; DataError, and nothing is changed, when one has other bytes already."""
        moves: list[_Move] = []
        gone = {wheel.resolve(): wheel for wheel in self._removed}
        replaced = set[Path]()
        for folder, stage in self._stages.items():
            for file in sorted(stage.iterdir()):
                if file.is_file() and not file.name.endswith(
                    (statement.STATEMENT_SUFFIX, statement.STATEMENT_SIGNATURE_SUFFIX)
                ):
                    target = folder / file.name
                    replaced.add(target.resolve())
                    moves += _plan_file(file, target, may_replace=target.resolve() in gone)
        for place, wheel in gone.items():
            if place not in replaced:
                beside = [path for path in _locate_statements(wheel) if os.path.lexists(path)]
                moves += [(None, path) for path in (wheel, *beside)]
        asides = [self._stages[target.parent] / f"{number}.old" for number, (_, target) in enumerate(moves)]
        _exchange_files([(file, target, old) for (file, target), old in zip(moves, asides, strict=True)])


def _plan_file(file: Path, target: Path, *, may_replace: bool) -> Iterator[_Move]:
    """Yield what becomes of a file, its statement and the signature of that; nothing of what is there.

    What lies beside another wheel of that name goes: it would be a lie about this one.
    """
    is_new = not _is_same_file(file, target)
    if is_new:
        if target.is_dir() or (target.exists() and not may_replace):
            raise errors.DataError(
                f"{target} exists with other bytes", tip="name another folder, or remove it first"
            )
        yield file, target
    for new, old in zip(_locate_statements(file), _locate_statements(target), strict=True):
        if os.path.lexists(new):
            if not _is_same_file(new, old):
                is_new = True
                yield new, old
        elif is_new and os.path.lexists(old):
            log.log_note(f"{old.name} is removed: it is not about the new wheel")
            yield None, old


def _locate_statements(wheel: Path) -> tuple[Path, Path]:
    """Return where a wheel's statement is, and the signature of that; names may be too long for any file."""
    return statement.locate_statement(wheel), statement.locate_statement_signature(wheel)


def _is_same_file(file: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(file, other, shallow=False)


def _exchange_files(moves: Sequence[tuple[Path | None, Path, Path]]) -> None:
    """Give finished files their names, all or none: each is a file, its name, and where what has it now goes.

    None in place of a file takes what has the name away. All that one changes is in one file system. When
    one cannot be renamed, or we are interrupted, those before it get back what they had.
    """
    done: list[tuple[Path, Path | None]] = []
    try:
        for file, target, old in moves:
            had = os.path.lexists(target)
            if had:
                try:  # so that the name is never without a file
                    os.link(target, old, follow_symlinks=False)
                except OSError:
                    target.rename(old)
            done.append((target, old if had else None))
            if file is not None:
                file.replace(target)
            else:
                target.unlink(missing_ok=True)
    except BaseException:
        for target, before in reversed(done):
            if before is not None:
                before.replace(target)
            else:
                target.unlink(missing_ok=True)
        raise


@contextmanager
def write_together() -> Iterator[WheelBatch]:
    """Give a batch whose wheels are there when the block has ended well, all of them or none.

    A file that exists with the same bytes is left; one with other bytes is replaced only where the batch was
    told to remove it, else a DataError.
    """
    with ExitStack() as stack:
        batch = WheelBatch(stack)
        yield batch
        batch.commit()
