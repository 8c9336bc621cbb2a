"""Trying again, and looking before a write is repeated: its answer may be all that was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rocm_wheels import ending
from rocm_wheels.errors import ReleaseError
from rocm_wheels.stores.store import RUN_AGAIN_TIP

S3Result = TypeVar("S3Result")
RETRY_PAUSES: Sequence[float] = (0.2, 0.5, 1.5, 4, 10)  # seconds before another attempt


class TransientS3Error(Exception):
    """A failure that may pass: a server in trouble, a connection that was lost.

    ``unsure``: the server may have done what it was asked for.
    """

    def __init__(self, message: str, *, unsure: bool) -> None:
        super().__init__(message)
        self.unsure = unsure


class S3ConditionError(Exception):
    """The condition of a write does not hold."""


@dataclass(frozen=True)
class S3Retry:
    """How often something is tried again, and how long the pauses are."""

    pauses: Sequence[float] = RETRY_PAUSES

    def read(self, action: str, work: Callable[[], S3Result]) -> S3Result:
        """Return what ``work`` returns, in the end. Raises ReleaseError when it never does."""
        for pause in (*self.pauses, None):
            try:
                return work()
            except TransientS3Error as failure:
                self._pause_or_fail(action, pause, failure)
        raise AssertionError("the last attempt returns or raises")

    def write(
        self, action: str, work: Callable[[], S3Result], look: Callable[[], S3Result | None]
    ) -> S3Result:
        """Return what ``work`` returns, or ``look`` when an attempt whose answer was lost had been enough.

        ``look`` tells whether we have written, and returns ``None`` when not. ``work`` raises Refused when
        somebody has: that may have been ourselves, since what is below us tries again, too.
        """
        for pause in (*self.pauses, None):
            try:
                return work()
            except S3ConditionError:
                if (result := self.read(action, look)) is None:
                    raise
                return result
            except TransientS3Error as failure:
                if pause is None and failure.unsure and (result := self._look_once(look)) is not None:
                    return result
                self._pause_or_fail(action, pause, failure)
                if failure.unsure and (result := self.read(action, look)) is not None:
                    return result
        raise AssertionError("the last attempt returns or raises")

    def _look_once(self, look: Callable[[], S3Result | None]) -> S3Result | None:
        try:
            return look()
        except TransientS3Error:
            return None

    def _pause_or_fail(self, action: str, pause: float | None, failure: TransientS3Error) -> None:
        if pause is None:
            raise ReleaseError(f"cannot {action}", tip=RUN_AGAIN_TIP) from failure
        ending.wait_or_stop(pause)
