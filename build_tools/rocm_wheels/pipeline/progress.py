"""One live line a step on a terminal; plain lines with begin and end everywhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.pipeline.summary import human_time

_REDRAW_SECONDS = 0.5


class LiveStep:
    """Shows how long a step has been at work and the last line that it printed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last = ""
        self.begin = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def line(self, text: str) -> None:
        """Take a line of output."""
        self.last = text.strip() or self.last

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.begin

    def start(self) -> None:
        """Begin to draw, on a terminal only."""
        if log.is_terminal():
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop drawing and remove the line."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        log.live("")

    def _draw(self) -> None:
        while not self._ended.wait(_REDRAW_SECONDS):
            log.live(f"{self.name}  {human_time(self.seconds)}  {self.last}")


@contextmanager
def step(name: str, *, why: str = "", log_file: Path | None = None) -> Iterator[LiveStep]:
    """Run a step's work under its name; its end is told with the time, also when it fails."""
    shown = LiveStep(name)
    with log.group(name + (f": {why}" if why else "") + (f" (log: {log_file})" if log_file else "")):
        shown.start()
        try:
            yield shown
        except BaseException:
            shown.stop()
            log.note(f"{name}: {log.paint('failed', 'red')} after {human_time(shown.seconds)}")
            raise
        shown.stop()
    log.note(f"{name}: {log.paint('done', 'green')} in {human_time(shown.seconds)}")
