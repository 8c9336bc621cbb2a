"""Send requests by HTTP, again while the server is busy or out of reach. To be imported where it is used."""

from __future__ import annotations

import time
from typing import Any

import requests

from rocm_wheels.core import retry

MOST_BYTES = 64 << 20  # of an answer that is not streamed: a page of PyPI with 10,000 files has 5 MB
MOST_SECONDS = 600.0  # for all of it, however steadily it drips
_MOST_UNRESOLVED = 2  # attempts at a server whose name no resolver knows
_LASTING = (requests.exceptions.SSLError, requests.exceptions.InvalidURL)
_PASSING = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)


class EndlessAnswerError(requests.RequestException):
    """An answer is larger than any page, or does not come to its end."""


class RetryingSession(requests.Session):
    """A session whose requests follow a policy; the last answer of a busy server is returned as it is.

    An answer that is not streamed is read here, up to ``MOST_BYTES`` and ``MOST_SECONDS``: a body that breaks
    off counts as a failure, too. Raises requests.RequestException.
    """

    def __init__(self, policy: retry.RetryPolicy) -> None:
        super().__init__()
        self._policy = policy

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        """Send a request and return the response."""
        is_whole = not options.get("stream")
        options["stream"] = True
        busy: requests.Response | None = None
        unresolved = 0

        def send() -> requests.Response:
            nonlocal busy
            response = super(RetryingSession, self).request(*arguments, **options)
            if response.status_code in retry.BUSY_STATUSES:
                response.close()
                busy = response
                retry_after = retry.parse_retry_after(response.headers.get("Retry-After", ""))
                raise retry.TransientError("the server is busy", retry_after=retry_after)
            if is_whole:
                _read_content(response)
            return response

        def is_transient(failure: Exception) -> bool:
            nonlocal unresolved
            if _is_unresolved_name(failure):
                unresolved += 1  # once may be chance; then it is a wrong name, or there is no network
                return unresolved < _MOST_UNRESOLVED
            passes = isinstance(failure, (retry.TransientError, *_PASSING))
            return passes and not isinstance(failure, _LASTING)

        try:
            return retry.run_with_retries(send, policy=self._policy, is_transient=is_transient)
        except retry.TransientError:
            assert busy is not None
            return busy


def _read_content(response: requests.Response) -> None:
    """Read the body of an answer, as requests does where it is not streamed, up to our bounds."""
    pieces, size, end = [], 0, time.monotonic() + MOST_SECONDS
    with response:
        for piece in response.iter_content(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise EndlessAnswerError(f"it sends more than {MOST_BYTES >> 20} MiB for a page")
            if time.monotonic() > end:
                raise EndlessAnswerError(f"a page did not come within {MOST_SECONDS:.0f} seconds")
    response._content = b"".join(pieces)  # as requests.Response.content keeps it
    response._content_consumed = True  # type: ignore[attr-defined]


def _is_unresolved_name(failure: Exception) -> bool:
    """Tell whether no address was found for the name of a server."""
    from urllib3.exceptions import MaxRetryError, NameResolutionError

    reason = failure.args[0] if failure.args else None
    return isinstance(reason, MaxRetryError) and isinstance(reason.reason, NameResolutionError)
