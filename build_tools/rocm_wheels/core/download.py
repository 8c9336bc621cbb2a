"""Download a file: resumed where it broke off, checked, never a mix of two versions.

What is there so far is ``part``; ``state.json`` beside it says of which URL it is and by what the server
knows the file (RFC 9110). A range is asked for with ``If-Range``, so that a file that has changed comes
as a whole; without anything to recognise it by, a range is only trusted where a digest tells in the end.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rocm_wheels.core import errors, files, log, process, retry, shell, tables
from rocm_wheels.core.environment_numbers import read_process_number

if TYPE_CHECKING:
    import requests


@dataclass(frozen=True)
class _PartState:
    """Of which URL a part is, by its fingerprint, and what the server said by which the file is known again.

    ETag and Last-Modified are "" for none.
    """

    url: str
    etag: str = ""
    modified: str = ""
    size: int | None = None

    @property
    def strong(self) -> str:
        """What ``If-Range`` may hold: a strong ETag, else the date (RFC 9110, 13.1.5); "" for neither."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified


def fingerprint_of_url(url: str) -> str:
    """Return what stands for a URL where it must not be written down, whoever asked."""
    text = shell.hide_credentials(url).replace(f"{shell.HIDDEN}@", "", 1)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


_PIECE_SIZE = 1 << 20
_STATE_HEADERS = ("ETag", "Last-Modified", "Content-Length")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TIPS_BY_STATUS = {
    401: "the server wants to know who asks: put user and password into ~/.netrc or the URL",
    403: "the server refuses it: is it the right URL, and is this machine let in?",
    404: "a file that was listed is not there: it may be just being changed; try again later",
}

ReportBytes = Callable[[int, "int | None"], None]


@dataclass(frozen=True)
class DownloadTarget:
    """A file to fetch: ``sha256`` (hex) and ``size`` (bytes) are None where nobody says."""

    name: str
    url: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class DownloadPolicy(retry.RetryPolicy):
    """How long a server is borne: attempts without any progress, and ``silence``, the seconds of one.

    Those of ROCM_WHEELS_RETRIES and ROCM_WHEELS_TIMEOUT; 5 and 60 where a command has neither.
    """

    retries: int = field(default_factory=partial(read_process_number, "ROCM_WHEELS_RETRIES", 5))
    silence: float = field(default_factory=partial(read_process_number, "ROCM_WHEELS_TIMEOUT", 60))


@dataclass(frozen=True)
class DownloadedFile:
    """A whole file and its digest (hex)."""

    path: Path
    sha256: str


@dataclass
class FileDownload:
    """One file under way in a folder of its own, which nobody else works in.

    Its failures are of the class ``error``; ``option`` is the one that names a folder on another disk.
    """

    target: DownloadTarget
    folder: Path
    session: requests.Session
    report_bytes: ReportBytes
    policy: DownloadPolicy
    error: type[errors.RocmWheelsError] = errors.HostError
    option: str = "--cache-dir"

    def __post_init__(self) -> None:
        self._part, self._state_file = self.folder / "part", self.folder / "state.json"
        self._hasher, self._hashed = hashlib.sha256(), 0  # of so many bytes of the part, while they come
        self._shown = shell.hide_credentials(self.target.url)

    def run(self) -> DownloadedFile:
        """Fetch it whole; an error with what is kept when that cannot be."""
        self._part.parent.mkdir(parents=True, exist_ok=True)
        size_before, has_old_part = 0, self._size > 0

        def attempt() -> DownloadedFile:
            nonlocal size_before, has_old_part
            while True:
                size_before = self._size
                self._transfer()
                digest = self._compute_digest()
                if digest == self.target.sha256 or self.target.sha256 is None:
                    return DownloadedFile(self._part, digest)
                self._discard()
                if not has_old_part:
                    raise self.error(
                        f"{self._shown} has the sha256 {digest}, and must have {self.target.sha256}",
                        tip="it was thrown away and nothing was installed; the server, or something on the"
                        " way to it, does not give out what was published",
                    )
                has_old_part = False  # it may have been of another file
                log.log_warning(
                    f"{self.target.name}: what was there did not go with the rest; fetching it again"
                )

        def note_retry(failure: Exception, _failures: int, _seconds: float) -> None:
            log.log_note(f"{self.target.name}: {failure}; trying again at {tables.format_size(self._size)}")

        try:
            return retry.run_with_retries(
                attempt,
                policy=self.policy,
                has_progressed=lambda: self._size > size_before,
                on_retry=note_retry,
            )
        except retry.TransientError as cause:
            kept = tables.format_size(self._size)
            raise self.error(
                f"{self._shown}: {cause}, {self.policy.retries + 1} times without any progress",
                tip=f"{kept} are kept; run the same command again later, it continues there",
            ) from None

    @property
    def _size(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _transfer(self) -> None:
        """Fetch what is missing, by one request."""
        import requests
        from urllib3.exceptions import HTTPError

        received, state = self._size, self._read_state()
        if received and state.size == received:
            return
        is_told_in_the_end = self.target.sha256 is not None and state != _PartState(state.url)
        if received and not state.strong and not is_told_in_the_end:
            self._discard()
            received = 0
        headers = {"Accept-Encoding": "identity"}
        if received:
            headers["Range"] = f"bytes={received}-"
            if state.strong:
                headers["If-Range"] = state.strong
        try:
            with self.session.get(
                self.target.url, headers=headers, stream=True, timeout=(self.policy.silence,) * 2
            ) as answer:
                if self._begin_body(answer, received):
                    self._receive_body(answer)
        except (requests.RequestException, HTTPError) as cause:
            raise retry.TransientError(describe_failure(cause)) from cause
        except OSError as cause:
            if cause.errno is not None:  # of the disk
                raise
            raise self.error(
                f"{self._shown}: {describe_failure(cause)}", tip="name a file that is there, or unset it"
            ) from None

    def _begin_body(self, answer: requests.Response, received: int) -> bool:
        """Read the head of an answer and make ready for its body; False when there is nothing to come."""
        status, span = answer.status_code, answer.headers.get("Content-Range", "")
        if status in retry.BUSY_STATUSES:
            retry_after = retry.parse_retry_after(answer.headers.get("Retry-After", ""))
            raise retry.TransientError(f"the server answers {status}", retry_after=retry_after)
        if status == 416 and received:
            if span == f"bytes */{received}":
                return False
            self._discard()
            missing = f"the rest of the {tables.format_size(received)} that are here"
            raise retry.TransientError(f"the server has not {missing}")
        if status == 206:
            match, size = _CONTENT_RANGE.fullmatch(span), self._read_state().size
            if match is not None and int(match[1]) == received and match[2] in ("*", str(size)):
                return True
            self._discard()
            raise retry.TransientError("the server sent another range than requested")
        if status != 200:
            raise self.error(f"{self._shown}: the server answers {status}", tip=_TIPS_BY_STATUS.get(status))
        if received:
            log.log_note(
                f"{self.target.name}: the server sends no parts, or has another file: from the start"
            )
        self._discard()
        etag, modified, length = (answer.headers.get(name, "") for name in _STATE_HEADERS)
        size = int(length) if length.isdigit() else None
        self._write_state(_PartState(fingerprint_of_url(self.target.url), etag, modified, size))
        return True

    def _receive_body(self, answer: requests.Response) -> None:
        state = self._read_state()
        size = state.size
        with open(self._part, "ab", buffering=0) as file:
            received = file.tell()
            for piece in answer.raw.stream(_PIECE_SIZE, decode_content=False):
                self._hash_piece(piece, received)
                rest = memoryview(piece)
                try:
                    while rest:
                        rest = rest[file.write(rest) or 0 :]
                except OSError as cause:
                    raise self._explain_disk_failure(cause, size) from cause
                received += len(piece)
                self.report_bytes(received, size)
            os.fsync(file.fileno())
        if size is not None and received < size:
            raise retry.TransientError(
                f"the connection ended after {tables.format_size(received)} of {tables.format_size(size)}"
            )
        if size is not None and received > size:
            self._discard()
            raise retry.TransientError("the server sent more than it announced")
        self._write_state(replace(state, size=received))

    def _read_state(self) -> _PartState:
        """Return what the server said of the part; nothing when it is of another URL, or cannot be read."""
        url = fingerprint_of_url(self.target.url)
        try:
            state = _PartState(**json.loads(self._state_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return _PartState(url)
        if state.url == url:
            return state
        # another mirror of the same file: only the size holds
        return _PartState(url, size=state.size if self.target.sha256 is not None else None)

    def _write_state(self, state: _PartState) -> None:
        files.write_json_file(self._state_file, asdict(state))

    def _discard(self) -> None:
        self._part.unlink(missing_ok=True)
        self._state_file.unlink(missing_ok=True)
        self._hasher, self._hashed = hashlib.sha256(), 0

    def _hash_piece(self, piece: bytes, position: int) -> None:
        """Hash a piece of the part, unless one before it came in another run."""
        if process.is_interrupted():
            raise errors.RocmWheelsError("interrupted")
        if position == self._hashed:
            self._hasher.update(piece)
            self._hashed += len(piece)

    def _compute_digest(self) -> str:
        if self._hashed != self._size:
            self._hasher, self._hashed = hashlib.sha256(), 0
            with open(self._part, "rb") as file:
                for piece in files.read_pieces(file):
                    self._hash_piece(piece, self._hashed)
        return self._hasher.hexdigest()

    def _explain_disk_failure(self, failure: OSError, size: int | None) -> errors.RocmWheelsError | OSError:
        if failure.errno not in _DISK_FULL_ERRNOS:
            failure.filename = str(self._part)
            return failure
        kept = f"{tables.format_size(self._size)} of {tables.format_size(size)} are kept in {self._part}"
        return self.error(
            f"{self.target.name}: the disk is full; {kept}",
            tip="free some space and run the same command again, it continues from there; or name a folder on"
            f" another disk with {self.option}",
        )


_FAILURE_WORDS = {
    "timed out": "the server is silent",
    "refused": "the server refuses connections",
    "resolve": "the name of the server cannot be resolved",
    "name or service": "the name of the server cannot be resolved",
    "certificate bundle": "there is no file of certificates {path}"  # of requests
    " (REQUESTS_CA_BUNDLE or pip's cert names it)",
    "certificate": "the certificate of the server is not trusted (REQUESTS_CA_BUNDLE names others)",
}


def describe_failure(cause: BaseException) -> str:
    """Return what a failure of the network was, without the objects that libraries print with it."""
    text, kind = str(cause), type(cause).__name__
    for words, meaning in _FAILURE_WORDS.items():
        if words in text.lower():
            return meaning.format(path=text.rpartition(": ")[2])
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    if kind in ("TooManyRedirects", "InvalidURL", "InvalidSchema", "MissingSchema"):
        return text  # of requests itself
    return "the connection broke" if "Connection" in kind + text or "IncompleteRead" in text else kind


def host_of_url(url: str) -> str:
    """Return the server of a URL for people."""
    return urlsplit(shell.hide_credentials(url)).netloc or "this machine"
