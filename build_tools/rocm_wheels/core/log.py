"""Print what people read while we work: lines on stderr, groups on GitHub.

stdout belongs to results. ``configure_log`` is called once, by ``cli/``; until then lines
go to stderr plainly.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TextIO

from rocm_wheels.core.shell import hide_credentials

_COLOURS = {"bold": "1", "green": "32", "yellow": "33", "red": "31", "dim": "2"}


@dataclass
class _Screen:
    stream: TextIO | None = None
    terminal: bool = False
    colour: bool = False
    github: bool = False
    quiet: bool = False
    live: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)


_screen = _Screen()
_prefix: ContextVar[str] = ContextVar("prefix", default="")


def configure_log(env: Mapping[str, str], *, stream: TextIO | None = None, quiet: bool = False) -> None:
    """Decide, from the environment and the stream, how lines look.

    ``NO_COLOR`` (no-color.org), ``TERM=dumb`` and ``GITHUB_ACTIONS`` are honoured.
    """
    out = stream if stream is not None else sys.stderr
    _screen.stream = stream
    _screen.github = env.get("GITHUB_ACTIONS") == "true"
    _screen.terminal = out.isatty() and env.get("TERM") != "dumb" and not _screen.github
    _screen.colour = _screen.terminal and not env.get("NO_COLOR")
    _screen.quiet = quiet


def is_log_terminal() -> bool:
    """Tell whether a live line can be drawn."""
    return _screen.terminal


def is_log_on_github() -> bool:
    """Tell whether lines go to a GitHub job's log, where groups fold."""
    return _screen.github


def paint_text(text: str, *styles: str) -> str:
    """Colour ``text`` (bold, green, yellow, red, dim) where colour is wanted."""
    if not _screen.colour:
        return text
    return f"\033[{';'.join(_COLOURS[s] for s in styles)}m{text}\033[0m"


def log_note(text: str) -> None:
    """Print a line of progress."""
    if not _screen.quiet:
        _write_line(_add_prefix(text))


def log_warning(text: str) -> None:
    """Print a warning; on GitHub it becomes an annotation."""
    text = _add_prefix(text)
    _write_line(
        f"::warning::{_escape_for_github(text)}"
        if _screen.github
        else paint_text("warning: ", "yellow") + text
    )


def log_error(text: str) -> None:
    """Print an error; on GitHub it becomes an annotation."""
    _write_line(
        f"::error::{_escape_for_github(text)}"
        if _screen.github
        else paint_text("error: ", "red", "bold") + text
    )


def show_live_line(text: str) -> None:
    """Redraw the live line (terminal only); ``""`` removes it."""
    if not _screen.terminal or _screen.quiet:
        return
    with _screen.lock:
        _screen.live = hide_credentials(_add_prefix(text)) if text else ""
        _erase_live_line()
        _draw_live_line()


def get_live_line_width() -> int:
    """Return how many characters the live line has room for (terminal only)."""
    import os

    stream = _screen.stream or sys.stderr
    return max(os.get_terminal_size(stream.fileno()).columns - 1, 0)  # of this stream: stdout may be a file


@contextmanager
def prefix_log_lines(name: str) -> Iterator[None]:
    """Begin every line that is printed inside with ``[name]``: work goes on side by side."""
    outer = _prefix.set(f"[{name}] ")
    try:
        yield
    finally:
        _prefix.reset(outer)


def name_log_line(name: str, text: str) -> str:
    """Begin a line with whom it is about, unless all lines do (``prefix_log_lines``)."""
    return text if _prefix.get() else f"{name}: {text}"


@contextmanager
def group_log_lines(title: str) -> Iterator[None]:
    """Fold what is printed inside under ``title`` (GitHub), or print the title as a line."""
    log_note(f"::group::{title}" if _screen.github else paint_text(title, "bold"))
    try:
        yield
    finally:
        if _screen.github:
            log_note("::endgroup::")


def _add_prefix(text: str) -> str:
    return _prefix.get() + text


def _write_line(text: str) -> None:
    with _screen.lock:
        _erase_live_line()
        stream = _screen.stream or sys.stderr
        stream.write(hide_credentials(text) + "\n")
        _draw_live_line()
        stream.flush()


def _erase_live_line() -> None:
    if _screen.terminal:
        (_screen.stream or sys.stderr).write("\r\033[2K")


def _draw_live_line() -> None:
    if _screen.live and _screen.terminal:
        stream = _screen.stream or sys.stderr
        stream.write(_screen.live[: get_live_line_width()])
        stream.flush()


def _escape_for_github(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
