"""What a demonstration shows: a line for each step with its time; everything else goes into a log file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rocm_wheels.core import format_duration, log_note, show_live_line, write_log_to

_TAIL_LINES = 25  # of the log file, shown where a step fails


class DemoProgress:
    """Numbered steps; what is printed inside a step goes into the log file.

    ``count`` is how many steps there are. The file is begun anew.
    """

    def __init__(self, log_path: Path, count: int) -> None:
        self.log_path = log_path
        self.count = count
        self.number = 0

    @contextlib.contextmanager
    def run_step(self, title: str) -> Iterator[None]:
        """Show one step with its time. Where it fails, show the end of the log file as well."""
        self.number += 1
        label = f"[{self.number:>{len(str(self.count))}}/{self.count}] {title}"
        begin = time.monotonic()
        show_live_line(f"{label} …")
        try:
            with self.log_path.open("w" if self.number == 1 else "a", encoding="utf-8", buffering=1) as file:
                file.write(f"{label}\n")
                with _print_into(file):
                    yield
        except BaseException:
            show_live_line("")
            self._show_tail(label)
            raise
        show_live_line("")
        log_note(f"{label:<66} {format_duration(time.monotonic() - begin):>7}")

    def _show_tail(self, label: str) -> None:
        tail = self.log_path.read_text(encoding="utf-8").splitlines()[-_TAIL_LINES:]
        log_note(f"{label} failed; the end of {self.log_path}:")
        for line in tail:
            log_note(f"  {line}")


@contextlib.contextmanager
def _print_into(file: TextIO) -> Iterator[None]:
    with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file), write_log_to(file):
        yield
