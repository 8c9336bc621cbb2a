"""Send requests by HTTP, again while the server is busy or out of reach. To be imported where it is used."""

from __future__ import annotations

from typing import Any

import requests

from rocm_wheels.core.retry import (
    BUSY_STATUSES,
    RetryPolicy,
    TransientError,
    parse_retry_after,
    run_with_retries,
)


class BusyServerError(TransientError):
    """A server answers that it is busy."""

    def __init__(self, response: requests.Response) -> None:
        retry_after = parse_retry_after(response.headers.get("Retry-After", ""))
        super().__init__(f"the server answers {response.status_code}", retry_after=retry_after)
        self.response = response


class RetryingSession(requests.Session):
    """A session whose requests follow a policy; the last answer of a busy server is returned as it is.

    The body of a response counts, too, unless it is streamed. Raises requests.RequestException.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        super().__init__()
        self._policy = policy

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        """Send a request and return the response."""

        def send() -> requests.Response:
            response = super(RetryingSession, self).request(*arguments, **options)
            if response.status_code in BUSY_STATUSES:
                response.close()
                raise BusyServerError(response)
            return response

        try:
            return run_with_retries(send, policy=self._policy, is_transient=_is_transient)
        except BusyServerError as failure:
            return failure.response


def _is_transient(failure: Exception) -> bool:
    lasting = (requests.exceptions.SSLError, requests.exceptions.InvalidURL)
    passing = (
        BusyServerError,
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
    )
    return isinstance(failure, passing) and not isinstance(failure, lasting)
