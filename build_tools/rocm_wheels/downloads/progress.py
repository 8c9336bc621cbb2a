"""How far downloads are: bars on a terminal, else a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocm_wheels import log
from rocm_wheels.words import amount

_SECONDS = 20.0  # between two lines of one file

Begin = Callable[[str, "int | None"], Callable[[int, "int | None"], None]]
"""Announces a file (name, size); what it returns is told how many bytes are there, of how many."""


@contextmanager
def shown() -> Iterator[Begin]:
    """Show the downloads of a block."""
    if not log.is_terminal():
        yield _lines
        return
    with _bars() as begin:
        yield begin


def _lines(name: str, size: int | None) -> Callable[[int, int | None], None]:
    """Say at most every twenty seconds how far a file is."""
    start = last = time.monotonic()
    first = -1

    def tell(have: int, of: int | None) -> None:
        nonlocal last, first
        first = have if first < 0 else first
        now = time.monotonic()
        if now - last < _SECONDS:
            return
        last = now
        total = of if of is not None else size
        share = f" ({100 * have // total} %)" if total else ""
        speed = (have - first) / (now - start)
        log.note(f"{name}: {amount(have)} of {amount(total)}{share}, {amount(int(speed))}/s")

    return tell


@contextmanager
def _bars() -> Iterator[Begin]:
    import sys

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    lock = threading.Lock()
    with Progress(*columns, console=Console(file=sys.stderr), redirect_stdout=False, expand=True) as bars:

        def begin(name: str, size: int | None) -> Callable[[int, int | None], None]:
            with lock:
                task = bars.add_task("-".join(name.split("-")[:2]), total=size)

            def tell(have: int, of: int | None) -> None:
                bars.update(task, completed=have, total=of if of is not None else size)

            return tell

        yield begin
