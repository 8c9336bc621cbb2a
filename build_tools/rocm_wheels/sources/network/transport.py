"""How servers are reached: tried again when a failure may pass, cut when nothing comes any more.

A failure may pass (a name that could not be looked up, a reset connection, a server that is busy) or
it may not (no such repository, no permission, no such ref). Only the first kind is tried again;
what is not known counts as the second, so that a mistake is told at once.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rocm_wheels import ending, log
from rocm_wheels.errors import SourceError

_T = TypeVar("_T")

_FIRST_WAIT = 1.0
_LONGEST_WAIT = 60.0
_SLOW_BYTES = 1000  # a second; less than this for the whole time counts as standing still

# What git, curl and ssh say (git 2.28 to 2.51: http.c, connect.c, pack-protocol; curl's strerror.c).
_TRANSIENT = re.compile(
    r"""could\ not\ resolve\ host | temporary\ failure\ in\ name\ resolution
    | connection\ (was\ )?(reset|refused|timed\ out|closed) | failed\ to\ connect | couldn't\ connect
    | operation\ (too\ slow|timed\ out) | timed\ out | without\ (any\ progress|an\ end)
    | early\ eof | unexpected\ disconnect | the\ remote\ end\ hung\ up | hung\ up\ unexpectedly
    | rpc\ failed | requested\ url\ returned\ error:\ (408|425|429|5\d\d) | http\ (429|5\d\d)
    | empty\ reply\ from\ server | transfer\ closed | recv\ failure | send\ failure
    | gnutls_handshake | ssl_error_syscall | tls\ connection\ was\ non-properly\ terminated | http/2\ stream
    | network\ is\ unreachable | no\ route\ to\ host | invalid\ index-pack\ output | broken\ pipe""",
    re.IGNORECASE | re.VERBOSE,
)
_PERMANENT = re.compile(
    r"""not\ found | does\ not\ (exist|appear\ to\ be) | authentication\ failed | permission\ denied
    | could\ not\ read\ (username|password) | couldn't\ find\ remote\ ref | not\ our\ ref
    | no\ space\ left\ on\ device | mismatched\ algorithms | error:\ (400|401|403|404|410)""",
    re.IGNORECASE | re.VERBOSE,
)
# the server says so of itself (upload-pack.c), or sends objects that cannot be read (zlib.c)
_DAMAGED_SERVER = re.compile(
    r"repository corruption on the remote side|inflate: data stream error|inflate returned",
    re.IGNORECASE,
)
_NO_ACCESS = re.compile(
    r"""authentication\ failed | could\ not\ read\ (username|password) | permission\ denied\ \(
    | error:\ 40[13]""",
    re.IGNORECASE | re.VERBOSE,
)
_DAMAGED_TIP = (
    "the repository that was asked is damaged (`git fsck` there says more): have it repaired, "
    "or take another origin"
)
_LOG_IN_TIP = (
    "let git know how to log in there (credential helper, ~/.netrc, SSH key); locks hold no passwords"
)


@dataclass(frozen=True)
class Transport:
    """``retries`` after a failure that may pass; ``timeout``: seconds that a transfer may stand still.

    ``mirrors``: the folder of bare repositories that checkouts share (``None``: none).
    ``jobs``: transfers at a time, of all repositories that are fetched with this record.
    """

    retries: int = 4
    timeout: float = 120.0
    mirrors: Path | None = None
    jobs: int = 8
    _places: threading.Semaphore = field(init=False, repr=False, compare=False)
    _folders: dict[Path, threading.Lock] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", threading.Semaphore(max(self.jobs, 1)))

    @contextmanager
    def hold_slot(self) -> Iterator[None]:
        """Wait until one of the ``jobs`` places is free, and hold it for one transfer."""
        with self._places:
            yield

    @contextmanager
    def lock_folder(self, folder: Path) -> Iterator[None]:
        """Wait until no other thread is at work in a folder: one line less about it than for another run."""
        with self._folders.setdefault(folder, threading.Lock()):
            yield

    @property
    def settings(self) -> tuple[str, ...]:
        """Configuration (``key=value``) with which git itself gives up on a slow HTTP transfer."""
        return (
            f"http.lowSpeedLimit={_SLOW_BYTES}",
            f"http.lowSpeedTime={max(1, round(self.timeout))}",
        )


def is_transient(failure: SourceError) -> bool:
    """Tell whether a failure of the network is worth another attempt."""
    message = str(failure)
    if _PERMANENT.search(message) or _DAMAGED_SERVER.search(message):
        return False
    return bool(_TRANSIENT.search(message))


def generate_waits(retries: int, chance: Callable[[], float] = random.random) -> Iterator[float]:
    """Yield the seconds before each further attempt: twice as long each time, half of it by chance.

    Chance keeps many machines, cut off at the same moment, from coming back at the same moment.
    """
    for number in range(retries):
        whole = min(_FIRST_WAIT * 2**number, _LONGEST_WAIT)
        yield whole / 2 + whole / 2 * chance()


def attempt_with_retries(
    attempt: Callable[[], _T],
    *,
    transport: Transport,
    activity: str,
    sleep: Callable[[float], None] = ending.wait_or_stop,
) -> _T:
    """Return what ``attempt`` returns; after a failure that may pass it is made again, and that is said.

    Raises the last SourceError.
    """
    for number, seconds in enumerate(generate_waits(transport.retries), start=1):
        try:
            return _attempt_once(attempt)
        except SourceError as failure:
            if not is_transient(failure):
                raise
            reason = str(failure).strip().splitlines()[-1].lstrip(" |")
            log.log_warning(
                f"{activity}: {reason}; trying again in {seconds:.0f} s ({number} of {transport.retries})"
            )
        sleep(seconds)
    return _attempt_once(attempt)


def _attempt_once(attempt: Callable[[], _T]) -> _T:
    """Make an attempt; a server that lets nobody in, or is damaged, gets the tip that helps there."""
    try:
        return attempt()
    except SourceError as failure:
        if _NO_ACCESS.search(str(failure)):
            failure.tip = _LOG_IN_TIP
        elif _DAMAGED_SERVER.search(str(failure)):
            failure.tip = _DAMAGED_TIP
        raise
