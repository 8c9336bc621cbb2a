"""How far downloads are: bars on a terminal, else a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocm_wheels import log
from rocm_wheels.words import format_size

_SECONDS_BETWEEN_LINES = 20.0  # between two lines of one file

BeginFile = Callable[[str, "int | None"], Callable[[int, "int | None"], None]]
"""Announces a file (name, size); what it returns is told how many bytes are there, of how many."""


@contextmanager
def show_downloads() -> Iterator[BeginFile]:
    """Show the downloads of a block."""
    if not log.is_log_terminal():
        yield _report_in_lines
        return
    with _report_in_bars() as begin:
        yield begin


def _report_in_lines(name: str, size: int | None) -> Callable[[int, int | None], None]:
    """Say at most every twenty seconds how far a file is."""
    start = last = time.monotonic()
    first = -1

    def report(received: int, known_size: int | None) -> None:
        nonlocal last, first
        first = received if first < 0 else first
        now = time.monotonic()
        if now - last < _SECONDS_BETWEEN_LINES:
            return
        last = now
        total = known_size if known_size is not None else size
        share = f" ({100 * received // total} %)" if total else ""
        speed = (received - first) / (now - start)
        log.log_note(
            f"{name}: {format_size(received)} of {format_size(total)}{share}, {format_size(int(speed))}/s"
        )

    return report


@contextmanager
def _report_in_bars() -> Iterator[BeginFile]:
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

            def report(received: int, of: int | None) -> None:
                bars.update(task, completed=received, total=of if of is not None else size)

            return report

        yield begin
