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
    from rich.console import RenderableType
    from rich.live import Live

_SECONDS_BETWEEN_LINES = 20.0

BeginFile = Callable[[str, int | None], Callable[[int, int | None], None]]
"""Announces a file (name, size); what it returns is told how many bytes are there, of how many."""


class _Display:
    """Lines that are drawn below the log, on stderr."""

    def __init__(self) -> None:
        self.lines: Sequence[str] = ()
        self.live: Live | None = None
        self.lock = threading.RLock()

    def draw(self, lines: Sequence[str]) -> None:
        """Draw lines in place of those before; where nothing is left the terminal is as it was."""
        self.lines = lines
        if lines and self.live is None:
            from rich.console import Console
            from rich.live import Live

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
        elif self.live is not None and not lines:
            self.live.stop()
            self.live = None
            log.print_lines_by(None)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        return Group(*(Text.from_ansi(line, no_wrap=True, overflow="ellipsis") for line in self.lines))


_display = _Display()


@lru_cache(maxsize=1)
def _has_rich() -> bool:
    return find_spec("rich") is not None


def can_draw() -> bool:
    """Tell whether there is a terminal to draw on, and rich to draw with."""
    return log.is_log_terminal() and _has_rich()


def show_live_line(text: str) -> None:
    """Draw a line below the log (terminal only), in place of the one before; ``""`` removes it."""
    show_live_lines([text] if text else [])


def show_live_lines(lines: Sequence[str]) -> None:
    """Draw lines below the log (terminal only), each cut at its width, in place of those before."""
    if can_draw():
        with _display.lock:
            _display.draw(
                [log.make_printable(shell.hide_credentials(log.add_line_prefix(line))) for line in lines]
            )


@contextmanager
def show_downloads() -> Iterator[BeginFile]:
    """Show downloads, of which threads may do several: how much of each is there, and how fast it comes."""
    is_drawn, shown = can_draw(), dict[str, str]()

    def begin(name: str, size: int | None) -> Callable[[int, int | None], None]:
        start = last = time.monotonic()
        first = -1

        def report(received: int, known_size: int | None) -> None:
            nonlocal last, first
            first = received if first < 0 else first
            now = time.monotonic()
            if now - last < (0 if is_drawn else _SECONDS_BETWEEN_LINES):
                return
            last = now
            total = known_size if known_size is not None else size
            share = f" ({100 * received // total} %)" if total else ""
            speed = int((received - first) / max(now - start, 0.001))
            text = f"{tables.format_size(received)} of {tables.format_size(total)}{share}"
            text += f", {tables.format_size(speed)}/s"
            if is_drawn:
                shown[name] = f"{'-'.join(name.split('-')[:2])}  {text}"
                show_live_lines(list(shown.values()))
            else:
                log.log_note(f"{name}: {text}")

        return report

    try:
        yield begin
    finally:
        show_live_lines([])
