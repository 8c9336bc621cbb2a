"""How a step at work is shown: one live line on a terminal; all its output, folded, on GitHub, where
log files are lost with the machine; in a pipe its begin, its end and a line a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.pipeline.summary import human_time

_REDRAW_SECONDS = 0.5
_SIGN_OF_LIFE_SECONDS = 60.0


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
        if log.is_github():
            log.note(text)

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.begin

    def start(self) -> None:
        """Begin to draw, or to give signs of life."""
        if not log.is_github():
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop that, and remove the live line."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        log.live("")

    def _draw(self) -> None:
        live = log.is_terminal()
        while not self._ended.wait(_REDRAW_SECONDS if live else _SIGN_OF_LIFE_SECONDS):
            (log.live if live else log.note)(f"{self.name}  {human_time(self.seconds)}  {self.last}")


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
