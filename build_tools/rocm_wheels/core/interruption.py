"""Tell all threads of an interruption, which reaches one of them only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rocm_wheels.core.errors import RocmWheelsError

_interrupted = threading.Event()


@contextmanager
def block_new_work() -> Iterator[None]:
    """Let nothing begin inside, in whatever thread: no program is started, and ``wait_or_stop`` is cut."""
    _interrupted.set()
    try:
        yield
    finally:
        _interrupted.clear()


def is_interrupted() -> bool:
    """Tell whether everything is being ended."""
    return _interrupted.is_set()


def wait_or_stop(seconds: float) -> None:
    """Wait. Raises RocmWheelsError when everything is being ended meanwhile."""
    if _interrupted.wait(seconds):
        raise RocmWheelsError("interrupted")
