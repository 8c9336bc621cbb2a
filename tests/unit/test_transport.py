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
    "something that nobody has seen before",
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
    "fatal: remote error: filter 'blob:none' not supported\nfatal: the remote end hung up unexpectedly",
]


@pytest.mark.parametrize("said", PASSING)
def test_a_failure_that_may_pass(said: str) -> None:
    assert network.is_transient(errors.SourceError(said))


@pytest.mark.parametrize("said", LASTING)
def test_a_failure_that_will_not(said: str) -> None:
    assert not network.is_transient(errors.SourceError(said))
