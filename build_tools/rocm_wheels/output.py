"""What a program prints while it runs: in lines without secrets, for who listens, a log, and an error."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from rocm_wheels.errors import name_failed_file
from rocm_wheels.shell import hide_secrets, format_command

TAIL_LINES = 15
_LINE_ENDS = re.compile(rb"(\n|\r(?=[^\n]))")  # a last \r waits for the byte that says what it is


class ProgramOutput:
    """Takes the lines of a program: each goes to ``on_line`` and, appended, to ``log``.

    ``tail`` are the last ones. The log is closed at the end; an OSError on the way there names it.
    """

    def __init__(self, on_line: Callable[[str], None] | None, log: Path | None) -> None:
        self.tail: list[str] = []
        self._on_line = on_line
        self._log = log
        self._sink: IO[str] | None = None

    def open_log(self, argv: Sequence[str | os.PathLike[str]], cwd: Path | None) -> None:
        """Open the log, where there is to be one, and write the command into it."""
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._sink = self._log.open("a", encoding="utf-8", errors="replace")
            self._sink.write(f"$ {format_command(argv, cwd=cwd)}\n")

    def take_line(self, line: str, *, drawn_over: bool) -> None:
        """Take a line; one that the program draws over goes to ``on_line`` alone, unless it is empty."""
        if drawn_over:
            if self._on_line is not None and line:
                self._on_line(line)
            return
        if self._sink is not None:
            self._sink.write(line + "\n")
            self._sink.flush()
        if self._on_line is not None:
            self._on_line(line)
        self.tail = [*self.tail[1 - TAIL_LINES :], line]

    def __enter__(self) -> ProgramOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            name_failed_file(error, self._log)
        if self._sink is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take was told when it was written
                self._sink.close()


def read_output_lines(
    stream: IO[bytes], secrets: Sequence[str], on_output: Callable[[], None]
) -> Iterator[tuple[str, bool]]:
    """Yield what a program prints, as soon as a line ends or is drawn over, and which of both it was.

    ``on_output`` is told of every byte that comes; ``secrets`` are hidden.
    """
    for raw in _split_lines(stream, on_output):
        yield hide_secrets(raw.decode("utf-8", "replace").rstrip("\r\n"), secrets), raw.endswith(b"\r")


def _split_lines(stream: IO[bytes], on_output: Callable[[], None]) -> Iterator[bytes]:
    rest = b""
    while chunk := os.read(stream.fileno(), 1 << 16):
        on_output()
        *whole, rest = _LINE_ENDS.split(rest + chunk)
        for text, end in zip(whole[::2], whole[1::2], strict=True):
            yield text + end
    if rest:
        yield rest
