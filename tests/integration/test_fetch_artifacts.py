"""Artifacts of ROCm builds from S3, pages and folders, over lines that break, onto disks that are full."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import servers
from commands import call
from rocm import add, compressed, make_artifacts, pack, packed_tree, page, put, with_digests
from servers import FileServer, serving
from warm_python import warm_python

from rocm_wheels.core import workspace
from rocm_wheels.core.files import lock_folder
from rocm_wheels.sdk import build_packages

DOOR = workspace.get_project_home() / "build_tools" / "fetch_artifacts.py"
BLAS = "blas_lib_gfx942.tar.zst"
Fetch = Callable[..., "tuple[list[str], str]"]


pytestmark = pytest.mark.usefixtures("nobody")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return packed_tree(tmp_path / "tree")


@pytest.fixture
def server(files: dict[str, bytes]) -> Iterator[FileServer]:
    with serving(FileServer({**files, "index.html": page(sorted(files))})) as running:
        yield running


@pytest.fixture
def fetch(tmp_path: Path) -> Fetch:
    def run(*words: str, code: int = 0, to: str = "got") -> tuple[list[str], str]:
        places = ("--output-dir", tmp_path / to, "--platform", "linux")
        both = call("fetch-artifacts", *words, *places, code=code)
        return [Path(line).name for line in both.out.splitlines()], both.err

    return run


def number() -> str:
    """A run that no other test has."""
    return servers.a_bucket().removeprefix("bucket-") + "0000"


def names(server: FileServer) -> list[str]:
    """The archives that were read."""
    return [name for name, _, status in server.requests if name.endswith(("zst", "xz")) and status < 300]


@pytest.mark.contract
def test_a_run_is_found_in_its_bucket_and_packages_are_made_of_it(
    fetch: Fetch, s3: None, files: dict[str, bytes], tmp_path: Path
) -> None:
    run, bucket = number(), "therock-ci-artifacts"
    xnack = add(tmp_path / "more", "blas_lib_gfx942:xnack+", "math-libs/BLAS/stage", {"lib/x.dat": "xnack\n"})
    more = {"blas_lib_gfx942:xnack+.tar.xz": pack(tmp_path / "more" / "blas_lib_gfx942:xnack+", "xz")}
    assert xnack.is_dir()
    put(bucket, f"{run}-linux", {**files, **with_digests(more), "manifests/therock_manifest.json": b"{}"})
    put(bucket, f"{run}-linux-old", {"other_lib_generic.tar.zst": b"another run"})
    put(bucket, f"1{run}-linux", {"other_lib_generic.tar.zst": b"another run"})
    put(bucket, f"{run}-linux/logs", {f"log_{n}_generic.tar.xz": b"" for n in range(3)})
    got, said = fetch("--run-id", run, "--gfx", "gfx942")
    assert "blas_lib_gfx942:xnack+" in got and "blas_lib_gfx942" in got and "core-hip_lib_generic" in got
    assert not [name for name in got if "gfx1100" in name or "other" in name or "log" in name]
    link = tmp_path / "got" / "amd-llvm_run_generic/compiler/amd-llvm/stage/llvm"
    assert link.readlink() == Path("lib/llvm")
    assert not list((tmp_path / "got").rglob("*.tar.*"))
    request = build_packages.PackageRequest(tmp_path / "got", tmp_path / "packages", targets=("gfx942",))
    assert build_packages.read_package_set(request).version == "7.1.0+small"
    again, said = fetch("--run-id", run, "--gfx", "gfx942")
    assert again == got and "up to date" in said and "fetching" not in said


@pytest.mark.contract
def test_a_folder_of_more_than_one_page_is_listed_whole(
    fetch: Fetch, s3: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    bucket, asked = servers.a_bucket(), []
    put(bucket, "1-linux", {f"part{n}_lib_generic.tar.zst": b"x" for n in range(23)})
    with servers.bad_line(lambda _, path: asked.append(path) or "") as line:  # type: ignore[func-returns-value]
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        got, said = fetch("--source", f"s3://{bucket}/1-linux", "--dry-run")
    assert len(got) == 23 and "23 archives, 23 B" in said
    assert len([path for path in asked if "list-type=2" in path]) == 3


def test_a_run_of_a_fork_is_found_where_those_are(
    fetch: Fetch, s3: None, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = number()
    put("therock-ci-artifacts-external", f"ROCm-TheRock/{run}-linux", files)
    put("therock-ci-artifacts-external", f"someone-else/{run}1-linux", files)
    put("therock-nightly-artifacts", f"{run}2-linux", files)
    assert len(fetch("--run-id", run, "--dry-run")[0]) == 8
    with monkeypatch.context() as variables:
        variables.setenv("RELEASE_TYPE", "nightly")
        assert len(fetch("--run-id", f"{run}2", "--dry-run")[0]) == 8
        variables.setenv("RELEASE_TYPE", "monthly")
        assert "RELEASE_TYPE='monthly' has no bucket" in fetch("--run-id", "1", code=2)[1]
    said = fetch("--run-id", f"{run}2", code=11)[1]
    assert f"therock-ci-artifacts/{run}2-linux or s3://therock-ci-artifacts-external/ROCm-TheRock" in said
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/else")
    assert len(fetch("--run-id", f"{run}1", "--dry-run")[0]) == 8
    monkeypatch.setenv("GITHUB_REPOSITORY", "TheRock")
    assert "is not owner/name" in fetch("--run-id", "1", code=2)[1]


@pytest.mark.contract
def test_a_public_bucket_is_read_without_credentials(
    fetch: Fetch, s3: None, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    bucket = servers.a_bucket()
    put(bucket, "1-linux", files)
    said = [*("--source", f"s3://{bucket}/1-linux"), "base_lib"]
    asked: list[str] = []
    with servers.bad_line(lambda _, path: asked.append(path) or "") as line:  # type: ignore[func-returns-value]
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        assert fetch(*said)[0] == ["base_lib_generic"]
        assert any("X-Amz-Signature" in path for path in asked)
        asked.clear()
        statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:*"}
        statement["Resource"] = f"arn:aws:s3:::{bucket}/*"
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        servers._client(servers.moto()).call("put_bucket_policy", Bucket=bucket, Policy=policy)
        servers._client(servers.moto()).call("put_bucket_acl", Bucket=bucket, ACL="public-read")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        assert fetch(*said, to="without")[0] == ["base_lib_generic"]
        assert asked and not any("X-Amz-Signature" in path for path in asked)


def test_a_bucket_that_is_not_there_or_closed_is_said(
    fetch: Fetch, s3: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fetch("--source", "s3://no-bucket-of-that-name/1-linux", code=11)[1]
    assert "cannot be listed" in said and "there is no bucket" in said
    with servers.bad_line(lambda *_: "403 AccessDenied") as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        said = fetch("--source", f"s3://{servers.a_bucket()}/1-linux", code=11)[1]
    assert "403 AccessDenied" in said


@pytest.mark.contract
def test_the_line_to_a_bucket_may_break(
    fetch: Fetch, s3: None, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = servers.a_bucket()
    put(bucket, "1-linux", files)
    faults = {"list-type": ["503", "lost"], BLAS: ["half", "503"], f"{BLAS}.sha256sum": ["503"]}

    def fail(method: str, path: str) -> str:
        key = path.split("?", maxsplit=1)[0].rpartition("/")[2]
        mine = faults.get(key) or (faults["list-type"] if "list-type" in path else [])
        return mine.pop(0) if mine else ""

    with servers.bad_line(fail) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        assert fetch("--source", f"s3://{bucket}/1-linux", "blas_lib")[0] == [
            *("blas_lib_generic", "blas_lib_gfx1100", "blas_lib_gfx942"),
        ]
    assert not any(faults.values())


@pytest.mark.contract
def test_a_page_is_read_and_zstd_preferred(
    fetch: Fetch, server: FileServer, files: dict[str, bytes], tmp_path: Path
) -> None:
    other = packed_tree(tmp_path / "xz", form="xz")
    only = {name: content for name, content in other.items() if "prim" in name}
    links = page(sorted({*files, *other})) + b'<a href="http://[x/">no URL</a>'
    server.files |= {**other, "index.html": links}
    got, _ = fetch("--source", f"{server.url}/index.html")
    assert len(got) == 8 and {name.rpartition(".")[2] for name in names(server)} == {"zst"}
    server.files = {**only, "index.html": page([name for name in only if not name.endswith("sum")])}
    assert fetch("--source", f"{server.url}/index.html", to="xz")[0] == ["prim_dev_generic"]
    assert (tmp_path / "xz/prim_dev_generic/math-libs/rocPRIM/stage/include/rocprim/a, b.hpp").is_file()
    assert "answers 404" in fetch("--source", f"{server.url}/nothing.html", code=11)[1]
    server.files["empty.html"] = page([])
    assert "no artifact in" in fetch("--source", f"{server.url}/empty.html", code=11)[1]


@pytest.mark.contract
def test_a_folder_is_a_source(fetch: Fetch, files: dict[str, bytes], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in files.items():
        (source / name).write_bytes(content)
    assert len(fetch("--source", str(source))[0]) == 8
    assert fetch("--source", source.as_uri(), "prim", to="again")[0] == ["prim_dev_generic"]
    assert {path.name for path in source.iterdir()} == set(files)  # nothing was taken from it
    (source / BLAS).write_bytes(files[BLAS][:-1])
    (source / f"{BLAS}.sha256sum").write_bytes(b"0" * 64)
    assert "must have 0000" in fetch("--source", str(source), "blas", to="wrong", code=11)[1]


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gfx", "gfx90a"], "no artifact for gfx90a in .*; there are some for gfx942, gfx1100"),
        (["--gfx", "gfx942,gfx90a"], "no artifact for gfx90a"),
        (["--artifact-group", "gfx94X-dcgpu"], "no artifact for gfx94X-dcgpu"),
        (["no-such"], "matches 'no-such'; there are amd-llvm, base, blas, core-hip, prim"),
        (["base", "blas_(dev|doc)"], "matches 'blas_"),
        (["--exclude", "_lib_", "_dev_", "_run_"], "--exclude leaves no artifact"),
    ],
)
def test_what_is_asked_for_and_not_there_is_an_error(
    fetch: Fetch, server: FileServer, words: list[str], said: str, tmp_path: Path
) -> None:
    import re

    assert re.search(said, fetch("--source", f"{server.url}/index.html", *words, code=11)[1])
    assert not (tmp_path / "got").exists()


@pytest.mark.contract
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--run-id", "1", "--source", "x"],
        ["--run-id", "../1"],
        ["--source", "s3://"],
        ["--source", "s3://key:secret/bucket"],
        ["--source", "gopher://x"],
        ["--source", "http://[x"],
        ["--source", "file://[x"],
        ["--source", "x", "("],
        ["--source", "x", "--gfx", "mi999"],
    ],
)
def test_what_cannot_be_meant(fetch: Fetch, words: list[str]) -> None:
    told = fetch(*words, code=2)[1]
    assert "tip" in told
    assert "secret" not in told


@pytest.mark.contract
def test_the_door_takes_the_words_of_therocks_script(server: FileServer, tmp_path: Path) -> None:
    words = ["--source", f"{server.url}/index.html", "base", "core-(hip|ocl)", "--exclude", "_dev_", "_x"]
    done = subprocess.run(
        [*warm_python(), DOOR, *words, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    listed = [line.rpartition("/")[2] for line in done.stdout.splitlines()]
    assert listed == ["base_lib_generic.tar.zst", "core-hip_lib_generic.tar.zst"]
    assert list(tmp_path.glob("build")) == []


@pytest.mark.contract
def test_digests_are_held_to(
    fetch: Fetch, server: FileServer, files: dict[str, bytes], tmp_path: Path
) -> None:
    source = ["--source", f"{server.url}/index.html", "blas_lib"]
    server.files[BLAS] = files[BLAS][:-1] + b"x"
    assert "must have" in fetch(*source, code=11)[1]
    assert not (tmp_path / "got" / "blas_lib_gfx942").exists()
    assert not [path for path in (tmp_path / "got").rglob(f"{BLAS}*") if path.is_file()]
    server.files[BLAS] = files[BLAS]
    assert len(fetch(*source)[0]) == 3
    assert len([name for name in names(server) if name == BLAS]) == 2  # the others are kept
    # a build that was made again under the same name
    add(tmp_path / "tree", "blas_lib_gfx942", "math-libs/BLAS/stage", {"lib/new.dat": "new\n"})
    server.files |= with_digests({BLAS: pack(tmp_path / "tree" / "blas_lib_gfx942")})
    fetch(*source)
    assert (tmp_path / "got/blas_lib_gfx942/math-libs/BLAS/stage/lib/new.dat").is_file()


@pytest.mark.contract
def test_without_a_digest_nothing_is_taken(fetch: Fetch, server: FileServer, tmp_path: Path) -> None:
    source = ["--source", f"{server.url}/index.html", "blas_lib"]
    del server.files[f"{BLAS}.sha256sum"]
    server.files["index.html"] = page([name for name in server.files if name.endswith("zst")])
    assert f"has no {BLAS}.sha256sum" in fetch(*source, code=11)[1]
    assert names(server) == []
    assert not (tmp_path / "got" / "blas_lib_gfx942").exists()
    server.files["blas_lib_generic.tar.zst.sha256sum"] = b"<html>sorry</html>"
    assert "holds no sha256" in fetch(*source, code=11)[1]


def test_what_is_there_is_not_taken_for_whole(
    fetch: Fetch, server: FileServer, files: dict[str, bytes], tmp_path: Path
) -> None:
    """Half an archive, half an unpacked folder, a record that is cut: of a run that was killed."""
    state = tmp_path / "got" / ".fetch"
    state.mkdir(parents=True)
    (state / BLAS).write_bytes(files[BLAS][: len(files[BLAS]) // 2])
    (state / "unpacking-blas_lib_gfx942").mkdir()
    (state / "done.json").write_text('{"blas_lib_gfx942": {"blas_')
    (tmp_path / "got" / "blas_lib_gfx942").mkdir()
    fetch("--source", f"{server.url}/index.html", "blas_lib_gfx942")
    assert (tmp_path / "got/blas_lib_gfx942/math-libs/BLAS/stage/.kpack/blas_gfx942.kpack").is_file()
    assert {path.name for path in state.iterdir() if path.name[0] != "."} == {"done.json", "parts"}


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


EVIL = {
    "no manifest": [member("x/stage/a")],
    "outside": [member("artifact_manifest.txt"), member("x/stage/../../../../evil")],
    "absolute": [member("artifact_manifest.txt"), member("/tmp/evil")],
    "not named": [member("artifact_manifest.txt"), member("y/stage/a")],
    "link out": [member("artifact_manifest.txt"), member("x/stage/a", tarfile.SYMTYPE, "../../../evil")],
    "link to /": [member("artifact_manifest.txt"), member("x/stage/a", tarfile.SYMTYPE, "/etc")],
    "through a link": [
        *(member("artifact_manifest.txt"), member("x/stage/b", tarfile.DIRTYPE)),
        *(member("x/stage/a", tarfile.SYMTYPE, "b"), member("x/stage/a/evil")),
    ],
    "hard link out": [member("artifact_manifest.txt"), member("x/stage/a", tarfile.LNKTYPE, "../../../evil")],
    "a device": [member("artifact_manifest.txt"), member("x/stage/a", tarfile.CHRTYPE)],
}


@pytest.mark.contract
@pytest.mark.parametrize("evil", EVIL)
def test_nothing_is_written_outside(fetch: Fetch, server: FileServer, evil: str, tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for info in EVIL[evil]:
            info.size = 8 if info.name == "artifact_manifest.txt" else 0
            tar.addfile(info, io.BytesIO(b"x/stage\n"))
    server.files |= with_digests({"evil_lib_generic.tar.xz": compressed(content.getvalue(), "xz")})
    server.files["index.html"] = page(sorted(server.files))

    def list_outside() -> set[Path]:
        near = {*tmp_path.rglob("*"), *tmp_path.parent.iterdir()}  # below its parent are other tests' worlds
        return {path for path in near if "got" not in path.parts}

    before = list_outside()
    fetch("--source", f"{server.url}/index.html", "evil", code=11)
    assert list_outside() == before
    assert not (tmp_path / "got" / "evil_lib_generic").exists()


@pytest.mark.contract
def test_hard_links_stay(fetch: Fetch, server: FileServer, tmp_path: Path) -> None:
    tree = make_artifacts(tmp_path / "linked", compile_elf=False) / "core-hip_lib_generic"
    stage = tree / "core/hipcc/stage/bin"
    (stage / "hipconfig").hardlink_to(stage / "hipcc")
    server.files |= with_digests({"core-hip_lib_generic.tar.zst": pack(tree)})
    fetch("--source", f"{server.url}/index.html", "core-hip_lib")
    got = tmp_path / "got/core-hip_lib_generic/core/hipcc/stage/bin"
    assert (got / "hipcc").samefile(got / "hipconfig")


@pytest.mark.parametrize("cut", [0, 1, 20, 1000])
def test_a_cut_archive_with_the_digest_of_a_cut_archive(
    fetch: Fetch, server: FileServer, files: dict[str, bytes], cut: int
) -> None:
    """What was published was cut already."""
    server.files |= with_digests(
        {BLAS: files[BLAS][:-cut]}
    )  # of 0 and of more than there is, nothing is left
    said = fetch("--source", f"{server.url}/index.html", "blas_lib_gfx942", code=11)[1]
    assert BLAS in said


def start(server: FileServer, folder: Path, *words: str, **more: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "rocm_wheels", "fetch-artifacts", "--source", f"{server.url}/index.html"]
    argv += ["--output-dir", str(folder), *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)  # type: ignore[call-overload,no-any-return]


def add_large(server: FileServer, folder: Path, content: bytes) -> str:
    """Have the server have one more artifact; return its name."""
    base = add(folder, "big_lib_generic", "x/stage", {"small": "x"})
    (base / "noise").write_bytes(content)
    server.files |= with_digests({"big_lib_generic.tar.zst": pack(folder / "big_lib_generic")})
    server.files["index.html"] = page(sorted(server.files))
    return "big_lib_generic"


@pytest.fixture
def large(server: FileServer, tmp_path: Path) -> str:
    """An artifact of 3 MB that cannot be compressed."""
    return add_large(server, tmp_path / "large", os.urandom(3 << 20))


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.contract
def test_a_killed_run_is_carried_on(fetch: Fetch, server: FileServer, large: str, tmp_path: Path) -> None:
    server.fail("", "", "slow")  # the page, the digest, the archive
    part = tmp_path / "got/.fetch/parts/big_lib_generic.tar.zst/part"
    run = start(server, tmp_path / "got", large)
    until(lambda: part.exists() and part.stat().st_size)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    there = part.stat().st_size
    assert 0 < there < 3 << 20
    assert fetch("--source", f"{server.url}/index.html", large)[0] == [large]
    assert server.requests[-1][1] == f"bytes={there}-"
    assert (tmp_path / "got" / large / "x/stage/noise").stat().st_size == 3 << 20


@pytest.mark.contract
@pytest.mark.parametrize("content", [os.urandom(3 << 20), bytes(3 << 20)], ids=["fetching", "unpacking"])
def test_a_full_disk_keeps_what_is_there(
    fetch: Fetch, server: FileServer, tmp_path: Path, content: bytes
) -> None:
    """RLIMIT_FSIZE stands for the disk, while the archive comes and while it is unpacked."""
    add_large(server, tmp_path / "large", content)
    limit = 1 << 20
    set_limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # noqa: E731
    run = start(server, tmp_path / "got", "big_lib", preexec_fn=set_limit)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 11 and "free some space" in said, said
    state = tmp_path / "got" / ".fetch"
    assert not (tmp_path / "got" / "big_lib_generic").exists() and not list(state.glob("unpacking-*"))
    asked = len(names(server))
    assert fetch("--source", f"{server.url}/index.html", "big_lib")[0] == ["big_lib_generic"]
    again = [span for name, span, _ in server.requests if name == "big_lib_generic.tar.zst"][asked:]
    assert again == ([f"bytes={limit}-"] if any(content) else [])


def test_two_runs_at_once_fetch_once(server: FileServer, large: str, tmp_path: Path) -> None:
    with lock_folder(tmp_path / "got" / ".fetch", purpose="fetching artifacts"):
        runs = [start(server, tmp_path / "got", large) for _ in range(2)]
        for run in runs:
            assert run.stdout is not None and "waiting" in run.stdout.readline()
        assert names(server) == []
    said = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    assert len(names(server)) == 1


@pytest.mark.contract
def test_no_room_is_said_before_anything_is_fetched(
    fetch: Fetch, s3: None, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a page the sizes are not known; of a bucket they are."""

    bucket = servers.a_bucket()
    put(bucket, "1-linux", files)
    monkeypatch.setattr("rocm_wheels.core.files.measure_free_space", lambda _: 10)
    assert "has room for 10 B" in fetch("--source", f"s3://{bucket}/1-linux", "blas", code=11)[1]
    assert not [path for path in (tmp_path / "got").rglob("*") if ".tar." in path.name]


def test_an_interruption_is_no_failure(server: FileServer, large: str, tmp_path: Path) -> None:
    server.fail("", "", "slow")
    run = start(server, tmp_path / "got", large)
    until((tmp_path / "got/.fetch/parts").exists)
    os.kill(run.pid, signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 130 and "Traceback" not in said
