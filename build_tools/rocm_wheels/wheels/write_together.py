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
from rocm_wheels.wheels.statement import (
    STATEMENT_SIGNATURE_SUFFIX,
    STATEMENT_SUFFIX,
    has_statement,
    locate_statement,
    locate_statement_signature,
    read_statement,
)

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
        targets = set[Path]()
        for folder, stage in self._stages.items():
            for file in sorted(stage.iterdir()):
                if file.is_file() and not file.name.endswith((STATEMENT_SUFFIX, STATEMENT_SIGNATURE_SUFFIX)):
                    targets.add((folder / file.name).resolve())
                    moves += self._plan_file(file, folder / file.name)
        for wheel in self._removed:
            if wheel.resolve() not in targets:
                moves += [(None, wheel), *_plan_statement_removal(wheel)]
        asides = [self._stages[target.parent] / f"{number}.old" for number, (_, target) in enumerate(moves)]
        _exchange_files([(file, target, old) for (file, target), old in zip(moves, asides, strict=True)])

    def _plan_file(self, file: Path, target: Path) -> Iterator[_Move]:
        """Yield what becomes of a file, and of its statement; nothing of one that is there already."""
        if not (target.is_file() and filecmp.cmp(file, target, shallow=False)):
            may_replace = any(target.resolve() == gone.resolve() for gone in self._removed)
            if target.is_dir() or (target.exists() and not may_replace):
                raise errors.DataError(
                    f"{target} exists with other bytes", tip="name another folder, or remove it first"
                )
            yield file, target
        statement, signature = locate_statement(file), locate_statement_signature(file)
        if not statement.exists():  # one about another wheel of that name would be a lie
            if has_statement(target):
                old = read_statement(target)
                if old is not None and old.sha256 != files.hash_file(file):
                    log.log_note(f"{locate_statement(target).name} is removed: it is about another wheel")
                    yield from _plan_statement_removal(target)
            return
        is_same = has_statement(target) and filecmp.cmp(statement, locate_statement(target), shallow=False)
        if not is_same:
            yield statement, locate_statement(target)
        if signature.exists():
            yield signature, locate_statement_signature(target)
        elif not is_same and locate_statement_signature(target).exists():
            yield None, locate_statement_signature(target)


def _plan_statement_removal(wheel: Path) -> Iterator[_Move]:
    if has_statement(wheel):
        for path in (locate_statement_signature(wheel), locate_statement(wheel)):
            if path.exists():
                yield None, path


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
