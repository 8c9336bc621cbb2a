"""The one policy of attempts and waits, and the sessions that follow it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests

from rocm_wheels.core import errors, process, retry
from rocm_wheels.index import http_session

AT_ONCE = retry.RetryPolicy(retries=3, first_wait=0)


def test_waits_double_up_to_a_limit_and_chance_keeps_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = retry.RetryPolicy()
    monkeypatch.setattr("random.random", lambda: 0.0)
    assert [policy.compute_wait(failures) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    monkeypatch.setattr("random.random", lambda: 1.0)
    assert [policy.compute_wait(failures) for failures in range(1, 4)] == [0.5, 1, 2]


def test_a_server_that_asks_for_a_wait_gets_it_up_to_the_limit() -> None:
    policy = retry.RetryPolicy(longest_wait=10)
    assert policy.compute_wait(1, 7) == 7
    assert policy.compute_wait(1, 3600) == 10


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("120", 120), ("0", 0), ("", 0), ("soon", 0), ("-5", 0), ("\u00b2", 0)],
        *[("9" * 5000, 0), ("Wed, 21 Oct 99999 07:28:00 GMT", 0)],
    ],
)
def test_seconds_of_retry_after(text: str, seconds: float) -> None:
    assert retry.parse_retry_after(text) == seconds


def test_date_of_retry_after() -> None:
    now = datetime.now(timezone.utc)
    assert 50 < retry.parse_retry_after(format_datetime(now + timedelta(minutes=1), usegmt=True)) <= 60
    assert retry.parse_retry_after(format_datetime(now - timedelta(minutes=1), usegmt=True)) == 0


def test_failures_in_a_row_are_counted_anew_after_progress() -> None:
    sizes = iter([1, 1, 2, 2, 3, 3, 4, 4, 5])
    sent: list[int] = []

    def work() -> str:
        sent.append(next(sizes))
        if sent[-1] == 5:
            return "all"
        raise retry.TransientError("the connection broke")

    counted: list[int] = []
    result = retry.run_with_retries(
        work,
        policy=retry.RetryPolicy(retries=2, first_wait=0),
        has_progressed=lambda: len(sent) > 1 and sent[-1] > sent[-2],
        on_retry=lambda _failure, failures, _seconds: counted.append(failures),
    )
    assert (result, counted) == ("all", [1, 2, 1, 2, 1, 2, 1, 2])


def test_the_last_failure_is_raised_and_others_at_once() -> None:
    attempts: list[int] = []

    def work() -> None:
        attempts.append(1)
        raise retry.TransientError(str(len(attempts)))

    with pytest.raises(retry.TransientError, match="4"):
        retry.run_with_retries(work, policy=AT_ONCE)
    with pytest.raises(retry.TransientError, match="5"):
        retry.run_with_retries(work, policy=AT_ONCE, is_transient=lambda _: False)


def test_an_interruption_ends_a_wait() -> None:
    def work() -> None:
        raise retry.TransientError("busy")

    with process.block_new_work(), pytest.raises(errors.RocmWheelsError, match="interrupted"):
        retry.run_with_retries(work, policy=retry.RetryPolicy(first_wait=600))


@contextmanager
def busy_server(*answers: int | str) -> Iterator[tuple[str, list[str]]]:
    """Answer by statuses, or ``half`` of a body, the last one again and again; give URL and requests."""
    requested: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.path)
            answer = answers[min(len(requested), len(answers)) - 1]
            self.send_response(200 if isinstance(answer, str) else answer)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"bo" if answer == "half" else b"body")

        def log_message(self, *_arguments: Any) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", requested
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answers", "status", "count"), [((503, 429, 200), 200, 3), ((404,), 404, 1), (("half", 200), 200, 2)]
)
def test_a_session_asks_again(answers: tuple[int | str, ...], status: int, count: int) -> None:
    with busy_server(*answers) as (url, requested), http_session.RetryingSession(AT_ONCE) as session:
        response = session.get(url)
        assert (response.status_code, response.content, len(requested)) == (status, b"body", count)


def test_the_last_answer_of_a_server_that_stays_busy() -> None:
    with busy_server(503) as (url, requested), http_session.RetryingSession(AT_ONCE) as session:
        assert session.get(url).status_code == 503
        assert len(requested) == 4


def test_a_server_out_of_reach_is_an_error_in_the_end() -> None:
    with busy_server("half") as (url, requested), http_session.RetryingSession(AT_ONCE) as session:
        with pytest.raises(requests.RequestException):
            session.get(url)
        assert len(requested) == 4


def test_a_name_that_nobody_knows_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def resolve(host: str, *_arguments: object, **_options: object) -> object:
        asked.append(host)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with http_session.RetryingSession(AT_ONCE) as session, pytest.raises(requests.ConnectionError):
        session.get("http://nowhere.invalid/", timeout=5)
    assert asked == ["nowhere.invalid"] * 2
