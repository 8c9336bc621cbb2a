"""Attempt again what may go well a little later: the one policy of waits, and the one loop that follows it.

The caller says which failures may pass. ``tenacity`` does as much, but loads 71 modules for it (0.1 s or
more), and would need as many lines around it: failures in a row, and waits that an interruption cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rocm_wheels.core import process

ResultT = TypeVar("ResultT")

BUSY_STATUSES = (408, 425, 429, 500, 502, 503, 504)  # of HTTP: the same request may be answered later


class TransientError(Exception):
    """A failure that may pass; ``retry_after``: the seconds that the server asks for, 0 for none."""

    def __init__(self, message: str, *, retry_after: float = 0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class RetryPolicy:
    """How often something is attempted again, and how many seconds before.

    The wait begins with ``first_wait`` and grows by the factor ``growth`` up to ``longest_wait``.
    ``jitter`` is the share of it that chance may take away: machines that were cut off at the same moment
    do not come back at the same moment.
    """

    retries: int = 5
    first_wait: float = 1.0
    growth: float = 2.0
    longest_wait: float = 60.0
    jitter: float = 0.5

    def compute_wait(self, failures: int, retry_after: float = 0) -> float:
        """Return the seconds to wait after so many failures (1 or more) in a row.

        What a server asks for (``retry_after``) is waited for, up to ``longest_wait``.
        """
        import random

        if retry_after:
            return min(retry_after, self.longest_wait)
        whole = min(self.first_wait * self.growth ** (failures - 1), self.longest_wait)
        return whole * (1 - self.jitter * random.random())


def run_with_retries(
    work: Callable[[], ResultT],
    *,
    policy: RetryPolicy,
    is_transient: Callable[[Exception], bool] = lambda failure: isinstance(failure, TransientError),
    has_progressed: Callable[[], bool] = lambda: False,
    on_retry: Callable[[Exception, int, float], None] = lambda *_: None,
) -> ResultT:
    """Return what ``work`` returns, attempted again while ``is_transient`` says so of its failure.

    After an attempt that ``has_progressed`` the failures before it no longer count. ``on_retry`` is called
    with the failure, how many there were in a row, and the seconds until the next attempt. Raises the
    last failure, and RocmWheelsError when everything is being ended meanwhile.
    """
    failures = 0
    while True:
        try:
            return work()
        except Exception as failure:
            failures = 1 if has_progressed() else failures + 1
            if failures > policy.retries or not is_transient(failure):
                raise
            retry_after = failure.retry_after if isinstance(failure, TransientError) else 0
            seconds = policy.compute_wait(failures, retry_after)
            on_retry(failure, failures, seconds)
        process.wait_or_stop(seconds)


def parse_retry_after(text: str) -> float:
    """Return the seconds that a ``Retry-After`` asks for (RFC 9110: a number or a date), 0 for none."""
    from urllib3.exceptions import InvalidHeader
    from urllib3.util import Retry

    try:
        return Retry().parse_retry_after(text)
    except (InvalidHeader, ValueError, OverflowError):
        return 0
