"""Trying again, and looking before a write is repeated: its answer may be all that was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rocm_wheels import ending
from rocm_wheels.errors import ReleaseError
from rocm_wheels.stores.store import AGAIN

T = TypeVar("T")
PAUSES: Sequence[float] = (0.2, 0.5, 1.5, 4, 10)  # seconds before another attempt


class Passing(Exception):
    """A failure that may pass: a server in trouble, a connection that was lost.

    ``unsure``: the server may have done what it was asked for.
    """

    def __init__(self, message: str, *, unsure: bool) -> None:
        super().__init__(message)
        self.unsure = unsure


class Refused(Exception):
    """The condition of a write does not hold."""


@dataclass(frozen=True)
class Attempts:
    """How often something is tried again, and how long the pauses are."""

    pauses: Sequence[float] = PAUSES

    def read(self, what: str, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, in the end. Raises ReleaseError when it never does."""
        for pause in (*self.pauses, None):
            try:
                return work()
            except Passing as failure:
                self._wait(what, pause, failure)
        raise AssertionError("the last attempt returns or raises")

    def write(self, what: str, work: Callable[[], T], look: Callable[[], T | None]) -> T:
        """Return what ``work`` returns, or ``look`` when an attempt whose answer was lost had been enough.

        ``look`` tells whether we have written, and returns ``None`` when not. ``work`` raises Refused when
        somebody has: that may have been ourselves, since what is below us tries again, too.
        """
        for pause in (*self.pauses, None):
            try:
                return work()
            except Refused:
                if (done := self.read(what, look)) is None:
                    raise
                return done
            except Passing as failure:
                if pause is None and failure.unsure and (done := self._looked(look)) is not None:
                    return done
                self._wait(what, pause, failure)
                if failure.unsure and (done := self.read(what, look)) is not None:
                    return done
        raise AssertionError("the last attempt returns or raises")

    def _looked(self, look: Callable[[], T | None]) -> T | None:
        try:
            return look()
        except Passing:
            return None

    def _wait(self, what: str, pause: float | None, failure: Passing) -> None:
        if pause is None:
            raise ReleaseError(f"cannot {what}", tip=AGAIN) from failure
        ending.pause(pause)
