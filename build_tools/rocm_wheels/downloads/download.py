"""One file over the network into a folder: carried on where it broke off, never a mix of two versions.

What is there so far is ``part``; ``state.json`` beside it says of which URL it is and by what the server
knows the file (RFC 9110). A range is asked for with ``If-Range``, so that a file that has changed comes as a
whole; without anything to know it by, a range is only trusted where a digest tells in the end.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rocm_wheels import ending, log
from rocm_wheels.downloads.identity import Validators, mark_of
from rocm_wheels.errors import HostError, RocmWheelsError
from rocm_wheels.shell import hide_credentials
from rocm_wheels.words import amount
from rocm_wheels.workspace import write_json

if TYPE_CHECKING:
    import requests

_PIECE = 1 << 20
_SPAN = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LONGEST_WAIT = 30.0
_SAID = {
    401: "the server wants to know who asks: put user and password into ~/.netrc or the URL",
    403: "the server refuses it: is it the right URL, and is this machine let in?",
    404: "a file that was listed is not there: it may be just being changed; try again later",
}

Tell = Callable[[int, "int | None"], None]


class _AgainError(Exception):
    """A failure that may pass; ``wait`` is what the server asks for, in seconds."""

    def __init__(self, text: str, wait: float = 0) -> None:
        super().__init__(text)
        self.wait = wait


@dataclass(frozen=True)
class Wanted:
    """A file to fetch: ``sha256`` (hex) and ``size`` (bytes) are None where nobody says."""

    name: str
    url: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Patience:
    """How long a server is borne: attempts without any progress, seconds before the second, of silence."""

    retries: int = 5
    first_wait: float = 1.0
    silence: float = 60.0


@dataclass(frozen=True)
class Fetched:
    """A whole file, its digest (hex), and what the server said of it."""

    path: Path
    sha256: str
    said: Validators


class Download:
    """One file under way in a folder of its own, which nobody else works in.

    Its failures are of the class ``error``; ``option`` is the one that names a folder on another disk.
    """

    def __init__(
        self,
        wanted: Wanted,
        folder: Path,
        session: requests.Session,
        tell: Tell,
        patience: Patience,
        *,
        error: type[RocmWheelsError] = HostError,
        option: str = "--cache-dir",
    ) -> None:
        self._error = error
        self._option = option
        self._wanted = wanted
        self._session = session
        self._tell = tell
        self._patience = patience
        self._part = folder / "part"
        self._state = folder / "state.json"
        self._hasher, self._hashed = hashlib.sha256(), 0  # of so many bytes of the part, while they come
        self._shown = hide_credentials(wanted.url)

    def run(self) -> Fetched:
        """Fetch it whole; an error with what is kept when that cannot be."""
        self._part.parent.mkdir(parents=True, exist_ok=True)
        began_with, failures = self._size, 0
        while True:
            before = self._size
            try:
                self._transfer()
                digest = self._digest()
                if digest == self._wanted.sha256 or self._wanted.sha256 is None:
                    return Fetched(self._part, digest, self._known())
                self._forget()
                if not began_with:
                    raise self._wrong(digest)
                began_with = 0  # what was there before may have been of another file
                log.warn(f"{self._wanted.name}: what was there did not go with the rest; fetching it anew")
            except _AgainError as cause:
                failures = 1 if self._size > before else failures + 1
                if failures > self._patience.retries:
                    raise self._given_up(str(cause)) from None
                wait = cause.wait or self._patience.first_wait * 2 ** (failures - 1)
                log.note(f"{self._wanted.name}: {cause}; trying again at {amount(self._size)}")
                ending.pause(min(wait, _LONGEST_WAIT))

    @property
    def _size(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _transfer(self) -> None:
        """Fetch what is missing, by one request."""
        import requests
        from urllib3.exceptions import HTTPError

        have, known = self._size, self._known()
        if have and known.size == have:
            return
        may_go_on = bool(known.strong) or (self._wanted.sha256 is not None and known != Validators())
        if have and not may_go_on:
            self._forget()
            have = 0
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if known.strong:
                headers["If-Range"] = known.strong
        try:
            with self._session.get(
                self._wanted.url, headers=headers, stream=True, timeout=(self._patience.silence,) * 2
            ) as answer:
                if self._begins(answer, have):
                    self._receive(answer)
        except (requests.RequestException, HTTPError) as cause:
            raise _AgainError(_short(cause)) from cause

    def _begins(self, answer: requests.Response, have: int) -> bool:
        """Read the head of an answer and make ready for its body; False when there is nothing to come."""
        status = answer.status_code
        if status in _BUSY:
            asked = answer.headers.get("Retry-After", "")
            raise _AgainError(f"the server answers {status}", float(asked) if asked.isdigit() else 0)
        if status == 416:
            whole = re.fullmatch(r"bytes \*/(\d+)", answer.headers.get("Content-Range", ""))
            if have and whole and int(whole[1]) == have:
                return False
            self._forget()
            if not have:
                raise self._refused(status)
            raise _AgainError(f"the server has not the rest of the {amount(have)} that are here")
        if status == 206:
            span = _SPAN.fullmatch(answer.headers.get("Content-Range", ""))
            if span is None or int(span[1]) != have or span[2] not in ("*", str(self._known().size)):
                self._forget()
                raise _AgainError("the server sent another part than the one asked for")
            return True
        if status != 200:
            raise self._refused(status)
        if have:
            log.note(f"{self._wanted.name}: the server sends no parts, or has another file: from the start")
        self._forget()
        self._note(_validators(answer))
        return True

    def _receive(self, answer: requests.Response) -> None:
        size = self._known().size
        with open(self._part, "ab", buffering=0) as file:
            have = file.tell()
            for piece in answer.raw.stream(_PIECE, decode_content=False):
                self._hash(piece, have)
                rest = memoryview(piece)
                try:
                    while rest:
                        rest = rest[file.write(rest) or 0 :]
                except OSError as cause:
                    raise self._no_room(cause, size) from cause
                have += len(piece)
                self._tell(have, size)
                if ending.is_near():
                    raise RocmWheelsError("interrupted")
            os.fsync(file.fileno())
        if size is not None and have < size:
            raise _AgainError(f"the connection ended after {amount(have)} of {amount(size)}")
        if size is not None and have > size:
            self._forget()
            raise _AgainError("the server sent more than it said")
        self._note(Validators(self._known().etag, self._known().modified, have))

    def _known(self) -> Validators:
        """Return what the server said of the part; nothing when it is of another URL, or cannot be read."""
        try:
            said: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
            same = said["url"] == mark_of(self._wanted.url)
            if not same and self._wanted.sha256 is None:
                return Validators()
            if not same:  # another mirror of the same file: only the size holds
                return Validators(size=said["size"])
            return Validators(said["etag"], said["modified"], said["size"])
        except (OSError, ValueError, KeyError, TypeError):
            return Validators()

    def _note(self, said: Validators) -> None:
        known = {"etag": said.etag, "modified": said.modified, "size": said.size}
        known["url"] = mark_of(self._wanted.url)
        write_json(self._state, known)

    def _forget(self) -> None:
        self._part.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)
        self._hasher, self._hashed = hashlib.sha256(), 0

    def _hash(self, piece: bytes, at: int) -> None:
        """Hash a piece of the part, unless one before it came in another run."""
        if at == self._hashed:
            self._hasher.update(piece)
            self._hashed += len(piece)

    def _digest(self) -> str:
        if self._hashed != self._size:
            self._hasher, self._hashed = hashlib.sha256(), 0
            with open(self._part, "rb") as file:
                while piece := file.read(_PIECE):
                    self._hash(piece, self._hashed)
                    if ending.is_near():
                        raise RocmWheelsError("interrupted")
        return self._hasher.hexdigest()

    def _wrong(self, digest: str) -> RocmWheelsError:
        return self._error(
            f"{self._shown} has the sha256 {digest}, and must have {self._wanted.sha256}",
            tip="it was thrown away and nothing was installed; the server, or something on the way to it,"
            " does not give out what was published",
        )

    def _refused(self, status: int) -> RocmWheelsError:
        return self._error(f"{self._shown}: the server answers {status}", tip=_SAID.get(status))

    def _given_up(self, why: str) -> RocmWheelsError:
        return self._error(
            f"{self._shown}: {why}, {self._patience.retries + 1} times without any progress",
            tip=f"{amount(self._size)} are kept; run the same command again later, it goes on from there",
        )

    def _no_room(self, cause: OSError, size: int | None) -> RocmWheelsError | OSError:
        if cause.errno not in _FULL:
            cause.filename = str(self._part)
            return cause
        return self._error(
            f"{self._wanted.name}: the disk is full; {amount(self._size)} of {amount(size)} are kept"
            f" in {self._part}",
            tip="free some space and run the same command again, it goes on from there; or name a folder on"
            f" another disk with {self._option}",
        )


def _validators(answer: requests.Response) -> Validators:
    said = answer.headers
    length = said.get("Content-Length", "")
    return Validators(
        said.get("ETag", ""), said.get("Last-Modified", ""), int(length) if length.isdigit() else None
    )


def _short(cause: BaseException) -> str:
    """Return what a failure of the network was, without the objects that libraries print with it."""
    text = str(cause)
    if "timed out" in text.lower():
        return "the server is silent"
    if "refused" in text.lower():
        return "the server refuses connections"
    if "resolve" in text.lower() or "name or service" in text.lower():
        return "the name of the server is not known"
    if "certificate" in text.lower():
        return "the certificate of the server is not trusted (REQUESTS_CA_BUNDLE names others)"
    return "the connection broke" if "Connection" in type(cause).__name__ + text else type(cause).__name__


def host_of(url: str) -> str:
    """Return the server of a URL for people."""
    return urlsplit(hide_credentials(url)).netloc or "this machine"
