"""ROCm trees of what builds published: made beside, checked, and put into place when they are whole."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from commands import call
from crash import killed_at_events
from rocm import add, pack, packed_tree, page, put, with_digests
from servers import FileServer, serving
from warm_python import warm_python

from rocm_wheels.core import workspace
from rocm_wheels.sdk import fetch_artifacts

DOOR = workspace.get_project_home() / "build_tools" / "install_rocm_from_artifacts.py"
FAMILY = ["--family", "gfx94X-dcgpu"]
Install = Callable[..., "tuple[list[str], str]"]


pytestmark = pytest.mark.usefixtures("nobody")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A build with three more artifacts: a library with tests, and one of a family."""
    tree = tmp_path_factory.mktemp("tree")
    files = packed_tree(tree)
    more = {}
    for name in ("rand_lib_generic", "rand_test_generic", "rand_dev_generic", "host-blas_lib_generic"):
        add(tree, name, "math-libs/rocRAND/stage", {f"lib/{name}": name})
        more[f"{name}.tar.xz"] = pack(tree / name, "xz")
    files |= with_digests(more)
    return {**files, "index.html": page(sorted(files))}


@pytest.fixture
def server(files: dict[str, bytes]) -> Iterator[FileServer]:
    with serving(FileServer(files)) as running:
        yield running


@pytest.fixture
def install(tmp_path: Path) -> Install:
    def run(*words: str, code: int = 0) -> tuple[list[str], str]:
        argv = ["install-rocm-from-artifacts", *words, "--output-dir", str(tmp_path / "rocm")]
        both = call(*argv, code=code)
        return [line.rpartition("/")[2] for line in both.out.splitlines()], both.err

    return run


@pytest.fixture
def build(install: Install, server: FileServer) -> Install:
    """Install what the page of the build lists for a family."""
    return partial(install, "--source", f"{server.url}/index.html", *FAMILY)


def tree_of(folder: Path) -> set[str]:
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
    return {str(path) for path in found if path.parts[0] != ".fetch"}


def archives(server: FileServer) -> list[str]:
    return [
        name for name, _, status in server.requests if name.endswith(("zst", "xz", "gz")) and status < 300
    ]


@pytest.mark.contract
def test_a_tree_of_a_family_is_made_and_made_again_only_when_it_is_another(
    install: Install, build: Install, server: FileServer, tmp_path: Path
) -> None:
    build()
    rocm = tmp_path / "rocm"
    assert {".kpack/blas_gfx942.kpack", "bin/hipcc", "llvm", "lib/rand_lib_generic"} <= tree_of(rocm)
    assert not {".kpack/blas_gfx1100.kpack", "lib/rand_test_generic"} & tree_of(rocm)
    server.requests.clear()
    assert "up to date" in build()[1] and archives(server) == []
    (rocm / "of-mine").write_text("is lost with the old tree, as with TheRock's script")
    build("--tests")
    assert "lib/rand_test_generic" in tree_of(rocm) and not (rocm / "of-mine").exists()
    install("--source", f"{server.url}/index.html", "--artifact-group", "gfx110X-all", "--base-only")
    assert tree_of(rocm) == {
        *("bin/hipcc", "lib/.hipInfo", "include/hip/hip_runtime.h", "lib/cmake/hip/hip-config.cmake"),
        *("share/therock/therock_manifest.json", "share/therock/dist_info.json"),
        *("lib/cmake/AMDDeviceLibs/AMDDeviceLibsConfig.cmake", "lib/llvm/bin/amdclang", "llvm"),
    }


@pytest.mark.contract
def test_what_every_tree_has_is_what_therocks_script_takes(build: Install, server: FileServer) -> None:
    base = {"base_lib_generic.tar.zst", "amd-llvm_run_generic.tar.zst"}
    base |= {"core-hip_lib_generic.tar.zst", "core-hip_dev_generic.tar.zst"}
    assert set(build("--dry-run", "--base-only")[0]) == base
    assert archives(server) == []


@pytest.mark.contract
def test_artifacts_that_differ_about_a_file_make_no_tree(
    build: Install, server: FileServer, tmp_path: Path
) -> None:
    add(tmp_path / "more", "other_lib_generic", "x/stage", {"bin/hipcc": "another\n"})
    server.files |= with_digests({"other_lib_generic.tar.zst": pack(tmp_path / "more" / "other_lib_generic")})
    server.files["index.html"] = page(sorted(server.files))
    assert "different files for bin/hipcc" in build(code=11)[1] and not (tmp_path / "rocm").exists()


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--family", "gfx90a", "--source", "{page}"], 11, "no artifact for gfx90a"),
        ([*FAMILY, "--gfx", "gfx90a", "--source", "{page}"], 11, "no artifact for gfx90a"),
        (["--source", "{page}"], 2, "--family is wanted"),
        ([*FAMILY, "--artifact-group", "x", "--source", "{page}"], 2, "given more than once"),
        (FAMILY, 2, "is wanted"),
        ([*FAMILY, "--run-id", "1", "--latest-release"], 2, "is wanted"),
        ([*FAMILY, "--release", "7.11"], 2, "is no version"),
        ([*FAMILY, "--latest-release", "--tests"], 2, "taken whole"),
    ],
)
def test_what_is_not_there_or_not_meant(
    install: Install, server: FileServer, words: list[str], code: int, said: str
) -> None:
    given = [word.replace("{page}", f"{server.url}/index.html") for word in words]
    assert said in install(*given, "--dry-run", code=code)[1]


@pytest.mark.contract
def test_a_folder_of_something_else_is_not_replaced(
    build: Install, server: FileServer, tmp_path: Path
) -> None:
    rocm = tmp_path / "rocm"
    (rocm / "letters").mkdir(parents=True)
    assert "holds something else" in build(code=11)[1]
    assert (rocm / "letters").is_dir() and archives(server) == []
    (rocm / "letters").rmdir()
    build()
    (rocm / ".fetch" / "done.json").unlink()  # a tree of TheRock's script
    build()
    assert "bin/hipcc" in tree_of(rocm)


@pytest.mark.contract
def test_the_old_tree_stays_until_the_new_one_is_whole(
    build: Install, server: FileServer, tmp_path: Path
) -> None:
    build()
    before = tree_of(tmp_path / "rocm")
    right = server.files["rand_test_generic.tar.xz"]
    server.files["rand_test_generic.tar.xz"] = right[:-1] + b"x"
    assert "must have" in build("--tests", code=11)[1]
    assert tree_of(tmp_path / "rocm") == before
    server.files["rand_test_generic.tar.xz"] = right
    server.requests.clear()
    build("--tests")
    assert archives(server) == ["rand_test_generic.tar.xz"]  # the others had come
    assert "lib/rand_test_generic" in tree_of(tmp_path / "rocm")


def test_a_run_that_ends_at_any_rename_is_completed_by_the_next(
    install: Install, server: FileServer, tmp_path: Path, exhaustive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "published"
    folder.mkdir()
    for name, content in server.files.items():
        (folder / name).write_bytes(content)
    said = ["--source", str(folder), *FAMILY]
    monkeypatch.setattr(fetch_artifacts, "DOWNLOADS", 1)
    install(*said)
    whole = tree_of(tmp_path / "rocm")
    for event in killed_at_events(
        lambda: install(*said),
        begin=lambda: install(*said, "--base-only"),
        exhaustive=exhaustive,
        least=30,
        like=r"os\.rename",
    ):
        install(*said)
        assert tree_of(tmp_path / "rocm") == whole, event


def test_a_run_that_ends_while_the_tree_is_made_has_nothing_to_be_fetched_again(
    build: Install, server: FileServer, tmp_path: Path, exhaustive: bool
) -> None:
    build()
    whole, fetched = tree_of(tmp_path / "rocm"), sorted(archives(server))
    assert len(fetched) > 3

    def begin() -> None:
        shutil.rmtree(tmp_path / "rocm")
        assert [path.name for path in (tmp_path / ".rocm.install").iterdir()] == [".lock"]
        server.requests.clear()

    for event in killed_at_events(
        build,
        begin=begin,
        exhaustive=exhaustive,
        # each file that comes into the tree, and the folders when it is whole
        like=r"^os\.(link|rename) .*\.install/(artifacts/\w+_|(tree|artifacts)\W*$)",
    ):
        build()
        assert tree_of(tmp_path / "rocm") == whole, event
        assert sorted(archives(server)) == fetched, event
        assert (tmp_path / "rocm/bin/hipcc").stat().st_nlink == 1


def test_a_tree_is_made_where_there_are_no_hard_links(
    build: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Path, **__: bool) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    build()
    rocm = tmp_path / "rocm"
    whole, mode = tree_of(rocm), (rocm / "bin/hipcc").stat().st_mode
    shutil.rmtree(rocm)
    monkeypatch.setattr(os, "link", refuse)
    build()
    assert tree_of(rocm) == whole and (rocm / "bin/hipcc").stat().st_mode == mode
    assert (rocm / "llvm").is_symlink()


def tarball(text: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, kind in (("./", tarfile.DIRTYPE), ("./bin/hipcc", tarfile.REGTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.size = kind, 0o755, len(text) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("./llvm")
        link.type, link.linkname = tarfile.SYMTYPE, "lib/llvm"
        tar.addfile(link)
    return content.getvalue()


PUBLISHED = {
    f"therock-dist-{name}.tar.gz": tarball(name)
    for name in (
        "linux-gfx94X-dcgpu-7.10.0a20251220",
        "linux-gfx94X-dcgpu-7.11.0a20260119",
        "linux-gfx94X-dcgpu-7.9.0rc20251008",
        "linux-gfx94X-dcgpu-tests-7.11.0a20260301",
        "linux-gfx110X-all-7.11.0a20260201",
        "windows-gfx94X-dcgpu-7.12.0a20260401",
    )
}


@pytest.mark.contract
def test_tarballs_by_version_and_the_newest(install: Install, s3: None, tmp_path: Path) -> None:
    put("therock-nightly-tarball", "v4/tarball", PUBLISHED)
    dev = {"therock-dist-linux-gfx94X-dcgpu-7.1.0.dev0+8f6c.tar.gz": tarball("dev")}
    put("therock-dev-tarball", "v4/tarball", dev)
    hipcc = tmp_path / "rocm" / "bin" / "hipcc"
    newest = "therock-dist-linux-gfx94X-dcgpu-7.11.0a20260119.tar.gz"
    assert install(*FAMILY, "--latest-release", "--dry-run")[0] == [newest]
    install(*FAMILY, "--latest-release")
    assert hipcc.read_text() == "linux-gfx94X-dcgpu-7.11.0a20260119" and hipcc.stat().st_mode & 0o111
    assert (tmp_path / "rocm" / "llvm").readlink() == Path("lib/llvm")
    assert "up to date" in install(*FAMILY, "--latest-release")[1]
    install(*FAMILY, "--release", "7.9.0rc20251008")
    assert hipcc.read_text() == "linux-gfx94X-dcgpu-7.9.0rc20251008"
    install(*FAMILY, "--release", "7.1.0.dev0+8f6c")
    assert hipcc.read_text() == "dev"
    said = install(*FAMILY, "--release", "7.9.0rc20251009", code=11)[1]
    assert "the newest are 7.9.0rc20251008, 7.10.0a20251220, 7.11.0a20260119" in said
    said = install("--family", "gfx90a", "--latest-release", code=11)[1]
    assert "there are some for gfx110X-all, gfx94X-dcgpu" in said
    assert hipcc.read_text() == "dev"


def test_tarballs_of_a_page_that_lists_them_by_a_script(
    install: Install, server: FileServer, tmp_path: Path
) -> None:
    listed = ", ".join(f'{{"name": "{name}", "mtime": 1}}' for name in PUBLISHED)
    server.files = {**PUBLISHED, "index.html": f"<script>const files = [{listed}];</script>".encode()}
    said = [*FAMILY, "--source", f"{server.url}/index.html"]
    name = "therock-dist-linux-gfx94X-dcgpu-7.11.0a20260119.tar.gz"
    server.fail("", "cut", "", "cut")  # the page, the digest that there is not, the tarball
    install(*said, "--latest-release")
    assert archives(server) == [name, name]
    server.files[name] = server.files[name][:-9]
    install(*said, "--release", "7.10.0a20251220")
    assert "is cut or damaged" in install(*said, "--latest-release", code=11)[1]
    assert (tmp_path / "rocm/bin/hipcc").read_text() == "linux-gfx94X-dcgpu-7.10.0a20251220"


@pytest.mark.contract
def test_the_door(server: FileServer, tmp_path: Path) -> None:
    words = ["--source", f"{server.url}/index.html", *FAMILY, "--base-only", "--no-tests"]
    done = subprocess.run(
        [*warm_python(), DOOR, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tmp_path / 'therock-build'}\n"
    assert (tmp_path / "therock-build/bin/hipcc").is_file()
