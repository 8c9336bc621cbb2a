"""Show progress: on a terminal below the lines of the log, by rich; elsewhere a line now and then.

rich comes with the extras that build and release: a light installation has a line now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rocm_wheels.core import log, shell, tables

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.progress import Progress

_SECONDS_BETWEEN_LINES = 20.0

BeginFile = Callable[[str, int | None], Callable[[int, int | None], None]]
"""Announces a file (name, size); what it returns is told how many bytes are there, of how many."""


class _Display:
    """What is drawn below the log: bars of downloads, then lines. There is one, on stderr."""

    def __init__(self) -> None:
        self.lines: Sequence[str] = ()
        self.bars: Progress | None = None
        self.live: Live | None = None
        self.lock = threading.RLock()

    def start(self) -> Console:
        """Begin to draw, unless that has begun; return what draws."""
        from rich.console import Console
        from rich.live import Live

        if self.live is None:
            console = Console(
                file=log.get_log_stream(),
                force_terminal=True,
                color_system="standard" if log.is_log_coloured() else None,
                _environ={},  # rich would look for colours and widths in it: that is settled
            )
            self.live = Live(
                console=console,
                get_renderable=self._render,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            # lines are not broken: commands are there to be pasted
            log.print_lines_by(lambda text: console.out(text, highlight=False))
            self.live.start(refresh=True)
        return self.live.console

    def stop_if_empty(self) -> None:
        """End drawing when nothing is left to draw; the terminal is as it was."""
        if self.live is not None and not self.lines and self.bars is None:
            self.live.stop()
            self.live = None
            log.print_lines_by(None)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        lines = [Text.from_ansi(line, no_wrap=True, overflow="ellipsis") for line in self.lines]
        return Group(*([self.bars.get_renderable()] if self.bars is not None else []), *lines)


_display = _Display()


def can_draw() -> bool:
    """Tell whether there is a terminal to draw on, and rich to draw with."""
    return log.is_log_terminal() and _has_rich()


@lru_cache(maxsize=1)
def _has_rich() -> bool:
    return find_spec("rich") is not None


def show_live_line(text: str) -> None:
    """Draw a line below the log (terminal only), in place of the one before; ``""`` removes it."""
    show_live_lines([text] if text else [])


def show_live_lines(lines: Sequence[str]) -> None:
    """Draw lines below the log (terminal only), each cut at its width, in place of those before."""
    if not can_draw():
        return
    with _display.lock:
        _display.lines = [
            log.make_printable(shell.hide_credentials(log.add_line_prefix(line))) for line in lines
        ]
        if lines:
            _display.start()
        else:
            _display.stop_if_empty()


@contextmanager
def show_downloads() -> Iterator[BeginFile]:
    """Show the downloads of a block."""
    if not can_draw():
        yield _report_in_lines
        return
    with _display.lock:
        bars = _display.bars = _make_bars(_display.start())

    def begin(name: str, size: int | None) -> Callable[[int, int | None], None]:
        task = bars.add_task(log.make_printable("-".join(name.split("-")[:2])), total=size)

        def report(received: int, known_size: int | None) -> None:
            bars.update(task, completed=received, total=known_size if known_size is not None else size)

        return report

    try:
        yield begin
    finally:
        with _display.lock:
            _display.bars = None
            _display.stop_if_empty()


def _make_bars(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        expand=True,
    )


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
            f"{name}: {tables.format_size(received)} of {tables.format_size(total)}{share}, "
            f"{tables.format_size(int(speed))}/s"
        )

    return report
