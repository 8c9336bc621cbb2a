"""An interruption reaches one thread; this tells all others that everything is being ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rocm_wheels.errors import RocmWheelsError

_over = threading.Event()


@contextmanager
def everything() -> Iterator[None]:
    """Let nothing begin inside, in whatever thread: no program is started, and ``pause`` is cut."""
    _over.set()
    try:
        yield
    finally:
        _over.clear()


def is_near() -> bool:
    """Tell whether everything is being ended."""
    return _over.is_set()


def pause(seconds: float) -> None:
    """Wait. Raises RocmWheelsError when everything is being ended meanwhile."""
    if _over.wait(seconds):
        raise RocmWheelsError("interrupted")
