"""Which failures of a network are tried again."""

from __future__ import annotations

import pytest

from rocm_wheels.core import errors
from rocm_wheels.sources import network

# as git 2.39 with libcurl and OpenSSH print them
PASSING = [
    "fatal: unable to access 'https://h/x/': Could not resolve host: h",
    "fatal: unable to access 'https://h/x/': Failed to connect to h port 443 after 1 ms: Connection refused",
    "fatal: unable to access 'https://h/x/': The requested URL returned error: 503",
    "error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502",
    "error: RPC failed; curl 28 Operation too slow. Less than 1000 bytes/sec transferred the last 30 seconds",
    "fetch-pack: unexpected disconnect while reading sideband packet",
    "fatal: early EOF",
    "ssh: connect to host h port 22: Connection timed out",
    "kex_exchange_identification: read: Connection reset by peer",
    "fetching main of x was stopped after 120 s without any progress",
]
LASTING = [
    "fatal: repository 'https://h/x/' not found",
    "fatal: unable to access 'https://h/x/': The requested URL returned error: 403",
    "fatal: Authentication failed for 'https://h/x/'",
    "fatal: couldn't find remote ref nightly",
    "fatal: remote error: upload-pack: not our ref 0123",
    "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
    "error: unable to write file: No space left on device\nfatal: early EOF",
    "remote: aborting due to possible repository corruption on the remote side.\nfatal: early EOF",
    "error: inflate: data stream error (incorrect data check)\nfatal: fetch-pack: invalid index-pack output",
    "something that nobody has seen before",
]


@pytest.mark.parametrize("said", PASSING)
def test_a_failure_that_may_pass(said: str) -> None:
    assert network.is_transient(errors.SourceError(said))


@pytest.mark.parametrize("said", LASTING)
def test_a_failure_that_will_not(said: str) -> None:
    assert not network.is_transient(errors.SourceError(said))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr("rocm_wheels.core.process.wait_or_stop", seconds.append)
    return seconds


def test_the_last_failure_is_the_one_that_is_told(
    waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    said = iter(["early EOF", "RPC failed", "Connection reset by peer"])

    def attempt() -> None:
        raise errors.SourceError(next(said))

    with pytest.raises(errors.SourceError, match="Connection reset"):
        network.attempt_with_retries(attempt, transport=network.Transport(retries=2), activity="fetching")
    assert len(waits) == 2
    assert "fetching: early EOF; trying again in" in capsys.readouterr().err


def test_what_will_not_pass_is_told_at_once(waits: list[float]) -> None:
    def attempt() -> None:
        raise errors.SourceError("repository not found")

    with pytest.raises(errors.SourceError, match="not found"):
        network.attempt_with_retries(attempt, transport=network.Transport(), activity="fetching")
    assert not waits


@pytest.mark.usefixtures("waits")
def test_what_works_the_second_time_is_returned() -> None:
    answers = iter([errors.SourceError("early EOF"), "ok"])

    def attempt() -> str:
        answer = next(answers)
        if isinstance(answer, errors.SourceError):
            raise answer
        return answer

    assert network.attempt_with_retries(attempt, transport=network.Transport(), activity="x") == "ok"
