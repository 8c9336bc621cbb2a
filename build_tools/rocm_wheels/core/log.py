"""Print what people read while we work: lines on stderr, groups on GitHub.

stdout belongs to results. ``configure_log`` is called once, by ``cli/``; until then lines
go to stderr plainly. Text comes from wheels, indexes and programs as well: ``make_printable`` keeps it from
commanding the terminal.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, TextIO

from rocm_wheels.core import shell

_COLOURS = {"bold": "1", "green": "32", "yellow": "33", "red": "31", "blue": "34", "dim": "2"}


@dataclass
class _Screen:
    stream: TextIO | None = None
    terminal: bool = False
    colour: bool = False
    result_colour: bool = False
    github: bool = False
    quiet: bool = False
    detailed: bool = False
    print_above: Callable[[str], None] | None = None  # while progress is drawn
    lock: threading.RLock = field(default_factory=threading.RLock)


_screen = _Screen()
_prefix: ContextVar[str] = ContextVar("prefix", default="")


def configure_log(env: Mapping[str, str], *, stream: TextIO | None = None) -> None:
    """Decide, from the environment and the stream, how lines look.

    ``NO_COLOR`` (no-color.org), ``FORCE_COLOR`` (force-color.org), ``TERM=dumb`` and ``GITHUB_ACTIONS`` are
    honoured.
    """
    out = stream if stream is not None else sys.stderr
    _screen.stream = stream
    _screen.github = env.get("GITHUB_ACTIONS") == "true"
    _screen.terminal = out.isatty() and env.get("TERM") != "dumb" and not _screen.github
    forced, refused = bool(env.get("FORCE_COLOR")), bool(env.get("NO_COLOR"))
    _screen.colour = (_screen.terminal or forced) and not refused
    _screen.result_colour = (forced or (sys.stdout.isatty() and env.get("TERM") != "dumb")) and not refused
    _screen.quiet, _screen.detailed = False, False


def set_log_level(level: Literal["quiet", "detail"]) -> None:
    """Show warnings and errors only (quiet), or also every program that is started (detail)."""
    _screen.quiet, _screen.detailed = level == "quiet", level == "detail"


def log_detail(text: str) -> None:
    """Print a line that only those want who look for a reason (``--verbose``)."""
    if _screen.detailed:
        _write_line(paint_text(add_line_prefix(text), "dim"))


def is_log_detailed() -> bool:
    """Tell whether ``log_detail`` prints."""
    return _screen.detailed


@contextmanager
def write_log_to(stream: TextIO) -> Iterator[None]:
    """Print lines into ``stream``, plainly and all of them, while the block lasts; then as before."""
    global _screen  # noqa: PLW0603
    before, _screen = _screen, _Screen(stream, detailed=_screen.detailed, lock=_screen.lock)
    try:
        yield
    finally:
        _screen = before


def is_log_terminal() -> bool:
    """Tell whether progress can be drawn below the log."""
    return _screen.terminal and not _screen.quiet


def is_log_coloured() -> bool:
    """Tell whether lines of the log have colours."""
    return _screen.colour


def is_log_on_github() -> bool:
    """Tell whether lines go to a GitHub job's log, where groups fold."""
    return _screen.github


def paint_text(text: str, *styles: str) -> str:
    """Colour a line of the log (bold, green, yellow, red, blue, dim) where colour is wanted."""
    return _add_colour(text, styles) if _screen.colour else text


def paint_result(text: str, *styles: str) -> str:
    """Colour text for stdout, as ``paint_text`` does text for the log."""
    return _add_colour(text, styles) if _screen.result_colour else text


def _add_colour(text: str, styles: Iterable[str]) -> str:
    return f"\033[{';'.join(_COLOURS[style] for style in styles)}m{text}\033[0m"


# control characters but line ends and tabs, and what turns the direction of text round
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_STYLE = "|".join(_COLOURS.values())
_OWN_COLOUR = re.compile(rf"\033\[(?:0|(?:{_STYLE})(?:;(?:{_STYLE}))*)m")


def make_printable(text: str) -> str:
    """Return text with control characters spelled out (``\\x1b``), but line ends, tabs and our colours."""
    if not _UNPRINTABLE.search(text):
        return text
    parts = [_UNPRINTABLE.sub(_spell_out, part) for part in _OWN_COLOUR.split(text)]
    colours = [*_OWN_COLOUR.findall(text), ""]
    return "".join(f"{part}{colour}" for part, colour in zip(parts, colours, strict=True))


def _spell_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def log_note(text: str) -> None:
    """Print a line of progress."""
    if not _screen.quiet:
        _write_line(add_line_prefix(text))


def log_warning(text: str) -> None:
    """Print a warning; on GitHub it becomes an annotation."""
    _write_titled("warning", add_line_prefix(text), "yellow")


def log_error(text: str) -> None:
    """Print an error; on GitHub it becomes an annotation."""
    _write_titled("error", text, "red", "bold")


def _write_titled(title: str, text: str, *styles: str) -> None:
    if _screen.github:
        text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    _write_line(f"::{title}::{text}" if _screen.github else paint_text(f"{title}: ", *styles) + text)


def get_log_stream() -> TextIO:
    """Return what lines are written to."""
    return _screen.stream or sys.stderr


def print_lines_by(print_above: Callable[[str], None] | None) -> None:
    """Have lines printed by what draws below them; ``None``: it draws no longer."""
    with _screen.lock:
        _screen.print_above = print_above


@contextmanager
def prefix_log_lines(name: str) -> Iterator[None]:
    """Begin every line that is printed inside with ``[name]``: work goes on side by side."""
    outer = _prefix.set(f"[{name}] ")
    try:
        yield
    finally:
        _prefix.reset(outer)


def add_line_prefix(text: str) -> str:
    """Begin a line with whom it is about, inside ``prefix_log_lines``."""
    return _prefix.get() + text


def name_log_line(name: str, text: str) -> str:
    """Begin a line with whom it is about, unless all lines do (``prefix_log_lines``)."""
    return text if _prefix.get() else f"{name}: {text}"


def _write_line(text: str) -> None:
    text = make_printable(shell.hide_credentials(text))
    with _screen.lock:
        if _screen.print_above is not None:
            _screen.print_above(text)
            return
        stream = get_log_stream()
        stream.write(text + "\n")
        stream.flush()
