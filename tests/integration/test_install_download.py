"""Downloads over real connections that break, lie, fill the disk, are killed or meet each other."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version
from servers import FileServer, serving
from wheels import wheel

from rocm_wheels.core import download, errors
from rocm_wheels.index import reader
from rocm_wheels.user import fetch as fetching
from rocm_wheels.user.lock import LockedPackage
from rocm_wheels.user.plan_reader import PlanReader

CONTENT = random.Random(7).randbytes(3 << 20)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
NAME = "torch-2.9.1+rocm7.2-cp311-cp311-linux_x86_64.whl"
QUICK = download.DownloadPolicy(retries=2, first_wait=0.01, silence=5)
# a run of its own, in another process: what the tests below kill and starve
RUN = """
import sys
from pathlib import Path
from rocm_wheels.core.errors import explain_error, RocmWheelsError
from packaging.version import Version
from rocm_wheels.user.fetch import fetch_packages
from rocm_wheels.user.lock import LockedPackage
url, digest, folder, name = sys.argv[1:]
try:
    package = LockedPackage("torch", Version("2.9.1"), name, url, digest or None)
    print(*(fetched.url for fetched in fetch_packages([package], Path(folder))))
except RocmWheelsError as error:
    print(explain_error(error)); sys.exit(error.exit_code)
"""


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(FileServer({NAME: CONTENT})) as running:
        yield running


def wanted(server: FileServer, digest: str | None = DIGEST, name: str = NAME) -> LockedPackage:
    return LockedPackage("torch", Version("2.9.1"), name, f"{server.url}/{name}", digest)


def take(package: LockedPackage, cache: Path, policy: download.DownloadPolicy | None = QUICK) -> Path:
    (fetched,) = fetching.fetch_packages([package], cache, policy=policy)
    path = reader.path_of_url(fetched.url)
    assert path is not None and fetched.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    return path


def fetch(server: FileServer, cache: Path, digest: str | None = DIGEST) -> Path:
    return take(wanted(server, digest), cache)


def parts(cache: Path) -> list[Path]:
    return sorted((cache / "large").glob("*/part"))


HALF = len(CONTENT) // 2
SURVIVED = [
    # how the answers go wrong, the statuses that came, and of which ranges
    ([], [200], [""]),
    (["cut"], [200, 206], ["", f"bytes={HALF}-"]),
    (["cut", "cut"], [200, 206, 206], ["", f"bytes={HALF}-", f"bytes={HALF + HALF // 2}-"]),
    (["busy", "busy"], [503, 503, 200], ["", "", ""]),
    (["wait"], [429, 200], ["", ""]),
    (["cut", "busy"], [200, 503, 206], ["", f"bytes={HALF}-", f"bytes={HALF}-"]),
    (["cut", "whole"], [200, 200], ["", f"bytes={HALF}-"]),
    (["cut", "unsatisfied"], [200, 416, 200], ["", f"bytes={HALF}-", ""]),
    (["cut", "elsewhere"], [200, 206, 200], ["", f"bytes={HALF}-", ""]),
]


@pytest.mark.contract
@pytest.mark.parametrize(("ways", "statuses", "ranges"), SURVIVED)
def test_what_may_pass_is_survived(
    server: FileServer, tmp_path: Path, ways: list[str], statuses: list[int], ranges: list[str]
) -> None:
    for digest in (DIGEST, None):
        server.fail(*ways)
        server.requests.clear()
        cache = tmp_path / str(digest)
        path = fetch(server, cache, digest)
        assert path.read_bytes() == CONTENT
        assert path == cache / "large" / DIGEST / NAME
        assert [status for _, _, status in server.requests] == statuses
        assert [asked for _, asked, _ in server.requests] == ranges
        assert [entry.name for entry in (cache / "large").iterdir()] == [DIGEST]
        server.requests.clear()
        assert fetch(server, cache, digest) == path
        assert (server.requests == []) == (digest is not None)  # without one it may have changed


FAILED = [
    (["missing"], "answers 404", 0),
    (["forbidden"], "answers 403", 0),
    (["busy"] * 9, "answers 503, 3 times without any progress", 0),
    (["cut", *["busy"] * 9], "answers 503, 3 times without any progress", HALF),
    (["other"], f"must have {DIGEST}", 0),
    (["unsatisfied", "missing"], "answers 404", 0),
]


@pytest.mark.contract
@pytest.mark.parametrize(("ways", "said", "kept"), FAILED)
def test_what_does_not_pass_is_said_and_what_there_is_is_kept(
    server: FileServer, tmp_path: Path, ways: list[str], said: str, kept: int
) -> None:
    if ways[0] == "unsatisfied":
        server.fail("cut", "busy", "busy", "busy")
        with pytest.raises(errors.HostError):
            fetch(server, tmp_path)
    server.fail(*ways)
    with pytest.raises(errors.HostError, match=said) as failure:
        fetch(server, tmp_path)
    assert failure.value.exit_code == 17 and failure.value.tip
    assert sum(path.stat().st_size for path in parts(tmp_path)) == kept
    assert not list((tmp_path / "large").glob("*/*.whl"))
    server.fail()
    assert fetch(server, tmp_path).read_bytes() == CONTENT  # the same command again


@pytest.mark.contract
def test_a_file_that_changes_meanwhile_is_never_mixed(server: FileServer, tmp_path: Path) -> None:
    server.fail("cut", "busy", "busy", "busy")
    with pytest.raises(errors.HostError):
        fetch(server, tmp_path, None)
    server.files[NAME] = other = CONTENT[::-1]
    assert fetch(server, tmp_path, None).read_bytes() == other
    server.files[NAME] = CONTENT  # and what is kept under a URL without a digest is not taken for it
    assert fetch(server, tmp_path, None).read_bytes() == CONTENT


@pytest.mark.contract
def test_without_validators_only_a_digest_lets_a_part_be_carried_on(
    server: FileServer, tmp_path: Path
) -> None:
    server.validators = False
    for digest, ranges in ((DIGEST, ["", f"bytes={HALF}-"]), (None, ["", ""])):
        server.fail("cut")
        server.requests.clear()
        assert fetch(server, tmp_path / str(digest), digest).read_bytes() == CONTENT
        assert [asked for _, asked, _ in server.requests] == ranges
    # a part of other bytes is found out by the digest, and thrown away once
    server.fail("cut", "busy", "busy", "busy")
    with pytest.raises(errors.HostError):
        fetch(server, tmp_path / "mixed")
    part = parts(tmp_path / "mixed")[0]
    part.write_bytes(bytes(part.stat().st_size))
    assert fetch(server, tmp_path / "mixed").read_bytes() == CONTENT


@pytest.mark.contract
def test_no_password_of_an_index_is_written_down(server: FileServer, tmp_path: Path) -> None:
    for digest in (DIGEST, None):
        server.fail("cut", "busy", "busy")
        one = replace(wanted(server, digest), url=f"{server.url.replace('//', '//me:s3cret@')}/{NAME}")
        with pytest.raises(errors.HostError):
            take(one, tmp_path)
        assert len(parts(tmp_path)) == 1
        said = [path.read_text() for path in tmp_path.rglob("*.json")]
        # somebody else's password changes nothing: what is there of the file is carried on
        take(replace(one, url=f"{server.url}/{NAME}"), tmp_path)
        said += [path.read_text() for path in tmp_path.rglob("*.json")]
        assert said and not any("s3cret" in text for text in said)
        assert server.requests[-1][1] == f"bytes={HALF}-"
        shutil.rmtree(tmp_path / "large")


def test_a_server_without_ranges_starts_again_and_says_so(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.ranges = False
    server.fail("cut")
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert "sends no parts" in capsys.readouterr().err


def test_a_wheel_that_was_fetched_for_its_metadata_is_not_fetched_again(tmp_path: Path) -> None:
    path = wheel(tmp_path / "raw", "torch", "2.9.1")
    with serving(FileServer({path.name: path.read_bytes()})) as server:
        server.ranges = False
        reach = PlanReader(tmp_path / "cache")
        url = f"{server.url}/{path.name}"
        first = reach.fetch_metadata_and_variant(url, path.name, None)
        asked = len(server.requests)
        assert reach.fetch_metadata_and_variant(url, path.name, None, variant=False)[0] == first[0]
        assert len(server.requests) == asked


@pytest.mark.contract
def test_a_kept_file_that_has_rotted_is_fetched_again(server: FileServer, tmp_path: Path) -> None:
    path = fetch(server, tmp_path)
    path.write_bytes(b"rotten")
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 2


def start(server: FileServer, cache: Path, **more: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", RUN, f"{server.url}/{NAME}", DIGEST, str(cache), NAME]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.contract
def test_a_killed_run_is_carried_on(server: FileServer, tmp_path: Path) -> None:
    server.fail("slow")
    run = start(server, tmp_path)
    deadline = time.monotonic() + 30
    while not (parts(tmp_path) and parts(tmp_path)[0].stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    there = parts(tmp_path)[0].stat().st_size
    assert 0 < there < len(CONTENT)
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert [asked for _, asked, _ in server.requests] == ["", f"bytes={there}-"]


@pytest.mark.contract
def test_a_full_disk_keeps_the_part(server: FileServer, tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for the disk: the write fails as one to a full disk does (EFBIG, not ENOSPC)."""
    limit = 2 << 20
    run = start(
        server, tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 17, said
    assert "the disk is full; 2.0 MiB of " in said
    assert "XDG_CACHE_HOME" in said
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.requests[-1][1] == f"bytes={limit}-"


def test_two_runs_at_once_fetch_once(server: FileServer, tmp_path: Path) -> None:
    server.fail("slow")
    first = start(server, tmp_path)
    deadline = time.monotonic() + 60
    while not server.requests and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)  # until the second waits, however long that takes to start
    second = start(server, tmp_path)
    assert second.stdout is not None
    told = second.stdout.readline()
    first.send_signal(signal.SIGCONT)
    said = [run.communicate(timeout=60)[0] for run in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert len(server.requests) == 1
    assert "in use by process" in told and "waiting" in told


def test_a_cache_that_cannot_be_written_is_said_before_anything_is_asked_for(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.HostError, match="cannot be written") as failure:
        fetch(server, tmp_path / "file")
    assert "XDG_CACHE_HOME" in str(failure.value.tip)
    huge = replace(wanted(server, DIGEST, "huge.whl"), size=1 << 60)
    with pytest.raises(errors.HostError, match="has room for"):
        take(huge, tmp_path / "cache")
    assert server.requests == []


def test_a_failure_leaves_the_other_files(server: FileServer, tmp_path: Path) -> None:
    server.files["good.whl"] = b"good"
    digest = hashlib.sha256(b"good").hexdigest()
    good = LockedPackage("good", Version("1"), "good.whl", f"{server.url}/good.whl", digest)
    with pytest.raises(errors.RocmWheelsError, match="404"):
        fetching.fetch_packages([good, wanted(server, DIGEST, "none.whl")], tmp_path, policy=QUICK)
    assert (tmp_path / "large" / digest / "good.whl").read_bytes() == b"good"


def test_files_of_the_disk_are_checked_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(CONTENT)
    right = LockedPackage("torch", Version("2.9.1"), NAME, path.as_uri(), DIGEST)
    assert take(right, tmp_path / "cache") == path
    with pytest.raises(errors.HostError, match=f"has the sha256 {DIGEST}"):
        take(replace(right, sha256="0" * 64), tmp_path / "cache")
    path.unlink()
    with pytest.raises(errors.HostError, match="is not there, and the index or lock names it"):
        take(right, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.contract
def test_a_file_of_certificates_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    package = LockedPackage("torch", Version("2.9.1"), NAME, f"https://127.0.0.1:9/{NAME}", DIGEST)
    with pytest.raises(errors.HostError, match=r"there is no file of certificates .*/ca\.pem") as failure:
        take(package, tmp_path)
    assert failure.value.tip == "name a file that is there, or unset it"


@pytest.mark.contract
def test_a_stalled_server_is_left(server: FileServer, tmp_path: Path) -> None:
    server.fail("mute")
    quick = download.DownloadPolicy(retries=2, first_wait=0.01, silence=0.3)
    assert take(wanted(server), tmp_path, quick).read_bytes() == CONTENT
    assert [status for _, _, status in server.requests] == [0, 200]
