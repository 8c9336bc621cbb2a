"""Checkouts as one file: what comes out is what went in, or nothing comes out."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from zstd_library import zstd

from rocm_wheels.cli.main import sources_group
from rocm_wheels.core import RocmWheelsError, SourceError
from rocm_wheels.sources import (
    CheckoutState,
    RepositoryState,
    identify_tree,
    locate_state_file,
    pack,
    pack_checkouts,
    unpack_checkouts,
    write_state,
)

ENV = {
    **os.environ,
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    said = [
        "git",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "init.defaultBranch=main",
        "-C",
        str(folder),
        *words,
    ]
    return subprocess.run(said, env=ENV, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with a submodule, a link, a program, a file that hipify wrote, and what a build left."""
    inner, outer = tmp_path / "inner", tmp_path / "trees" / "pytorch"
    for folder in (inner, outer):
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
    (inner / "a ü.cu").write_text("inner")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "inner")
    (outer / ".gitignore").write_text("build/\n*.hip\n")
    (outer / "run.sh").write_text("#!/bin/sh\n")
    (outer / "run.sh").chmod(0o755)
    (outer / "link").symlink_to("third_party/inner/a ü.cu")
    git(outer, "submodule", "add", "-q", str(inner), "third_party/inner")
    git(outer, "add", ".")
    git(outer, "commit", "-qm", "outer")
    git(outer, "tag", "THEROCK_UPSTREAM_DIFFBASE")
    (outer / "kernel.hip").write_text("written by hipify")
    (outer / "build").mkdir()
    (outer / "build" / "object.o").write_bytes(b"\0" * 1000)
    commit = git(outer, "rev-parse", "HEAD").strip()
    left = {"": RepositoryState(commit, commit, git(outer, "rev-parse", "HEAD^{tree}").strip())}
    write_state(outer / ".git", CheckoutState("origin", "main", commit, left=left, generated=("kernel.hip",)))
    (locate_state_file(outer / ".git").parent / "trees").mkdir()
    (locate_state_file(outer / ".git").parent / "trees" / "waiting.o").write_text("a build tree that waits")
    return outer


def test_what_comes_out_is_what_went_in(tree: Path, tmp_path: Path) -> None:
    old = 1_600_000_000
    os.utime(tree / "run.sh", (old, old))
    packed = pack_checkouts({"pytorch": tree}, tmp_path / "s.tar.zst", env=ENV)
    assert unpack_checkouts(tmp_path / "s.tar.zst", tmp_path / "out", env=ENV) == {"pytorch": "unpacked"}
    there = tmp_path / "out" / "pytorch"
    assert identify_tree(there, env=ENV) == packed.trees["pytorch"] == identify_tree(tree, env=ENV)
    assert git(there, "status", "--porcelain") == "" and git(there, "fsck", "--strict") == ""
    assert git(there, "describe", "--tags").strip() == "THEROCK_UPSTREAM_DIFFBASE"
    assert (there / "link").readlink() == Path("third_party/inner/a ü.cu") and (
        there / "link"
    ).read_text() == "inner"
    assert os.access(there / "run.sh", os.X_OK) and (there / "run.sh").stat().st_mtime == old
    assert (there / "kernel.hip").read_text() == "written by hipify"
    assert not (there / "build").exists() and not list(there.rglob("waiting.o"))
    # A checkout that holds the same is left alone, and so is the new name of another.
    assert unpack_checkouts(tmp_path / "s.tar.zst", tmp_path / "out", env=ENV) == {"pytorch": "there already"}
    (there / "run.sh").write_text("mine")
    with pytest.raises(SourceError, match="is there, and holds something else"):
        unpack_checkouts(tmp_path / "s.tar.zst", tmp_path / "out", env=ENV)
    assert (there / "run.sh").read_text() == "mine"


def test_the_same_checkouts_are_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    pack_checkouts({"pytorch": tree}, tmp_path / "one", env=ENV)
    pack_checkouts({"pytorch": tree}, tmp_path / "two", env=ENV)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_that_was_cut_gives_nothing(tree: Path, tmp_path: Path) -> None:
    whole = tmp_path / "s.tar.zst"
    pack_checkouts({"pytorch": tree}, whole, env=ENV)
    content = whole.read_bytes()
    for end in (0, 3, 100, len(content) // 2, *(len(content) - less for less in (20, 4, 3, 1))):
        (tmp_path / "cut").write_bytes(content[:end])
        with pytest.raises(SourceError, match="cut is no packed checkouts, or was cut"):
            unpack_checkouts(tmp_path / "cut", tmp_path / "out", env=ENV)
        assert not (tmp_path / "out" / "pytorch").exists()
    (tmp_path / "cut").write_bytes(content + b"x")
    with pytest.raises(SourceError, match="cut is no packed checkouts"):
        unpack_checkouts(tmp_path / "cut", tmp_path / "out", env=ENV)
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 1
    (tmp_path / "cut").write_bytes(bytes(damaged))
    with pytest.raises(SourceError):
        unpack_checkouts(tmp_path / "cut", tmp_path / "out", env=ENV)
    assert not (tmp_path / "out" / "pytorch").exists()
    assert unpack_checkouts(whole, tmp_path / "out", env=ENV) == {"pytorch": "unpacked"}


def test_a_tree_that_changes_meanwhile_is_not_packed(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = identify_tree
    seen: list[Path] = []

    def identity(directory: Path, *, env: dict[str, str]) -> object:
        seen.append(directory)
        found = real(directory, env=env)
        return replace(found, tree="0" * 40) if len(seen) > 1 else found

    monkeypatch.setattr(pack, "identify_tree", identity)
    with pytest.raises(SourceError, match="was changed while it was packed"):
        pack_checkouts({"pytorch": tree}, tmp_path / "s.tar.zst", env=ENV)
    assert not list(tmp_path.glob("*s.tar.zst*"))


def test_a_device_is_not_replaced_and_no_tree_holds_its_own_file(tree: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SourceError, match="is no file: it is not replaced"):
        pack_checkouts({"pytorch": tree}, pipe, env=ENV)
    assert pipe.is_fifo()
    with pytest.raises(SourceError, match="is inside of"):
        pack_checkouts({"pytorch": tree}, tree / "s.tar.zst", env=ENV)
    assert git(tree, "status", "--porcelain", "s.tar.zst") == ""


@pytest.mark.parametrize("name", ["../trees/pytorch", ".", ".hidden", "a/b"])
def test_a_name_that_could_not_come_out_is_not_packed(tree: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="is not the name of a checkout"):
        pack_checkouts({name: tree}, tmp_path / "s", env=ENV)
    assert not (tmp_path / "s").exists()


def test_two_that_write_one_file_do_not_mix(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "others" / "pytorch"
    shutil.copytree(tree, other, symlinks=True)
    real, packed = pack._add_listing, []

    def while_the_first_writes(archive: tarfile.TarFile, identities: object) -> None:
        real(archive, identities)  # type: ignore[arg-type]
        if not packed:
            packed.append("the other")
            pack_checkouts({"pytorch": other}, tmp_path / "s", env=ENV)
            assert (tmp_path / "s").exists()

    monkeypatch.setattr(pack, "_add_listing", while_the_first_writes)
    pack_checkouts({"pytorch": tree}, tmp_path / "s", env=ENV)
    assert unpack_checkouts(tmp_path / "s", tmp_path / "out", env=ENV) == {"pytorch": "unpacked"}
    assert not list(tmp_path.glob(".s*"))


def test_a_full_disk_is_said_with_its_place(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_checkouts({"pytorch": tree}, tmp_path / "s", env=ENV)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pack.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left on device") as failure:
        unpack_checkouts(tmp_path / "s", tmp_path / "out", env=ENV)
    assert failure.value.filename == str(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_system_without_links_is_said(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_checkouts({"pytorch": tree}, tmp_path / "s", env=ENV)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refused)
    with pytest.raises(SourceError, match=r"no link can be made here: .*/link"):
        unpack_checkouts(tmp_path / "s", tmp_path / "out", env=ENV)
    assert not (tmp_path / "out").exists()


def test_what_a_killed_run_left_is_cleared(tree: Path, tmp_path: Path) -> None:
    pack_checkouts({"pytorch": tree}, tmp_path / "s", env=ENV)
    (tmp_path / "out" / ".unpacking" / "pytorch" / ".git").mkdir(parents=True)
    assert unpack_checkouts(tmp_path / "s", tmp_path / "out", env=ENV) == {"pytorch": "unpacked"}
    assert not (tmp_path / "out" / ".unpacking" / "pytorch").exists()


def made(path: Path, *members: tuple[str, bytes | str], listing: object = None) -> Path:
    """A file as somebody else would make it: (name, content or "-> target")."""
    stream = io.BytesIO()
    with tarfile.open(mode="w", fileobj=stream) as archive:
        said = listing if listing is not None else {"schema": 1, "trees": {"t": IDENTITY}}
        for name, content in (("checkouts.json", json.dumps(said).encode()), *members):
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    path.write_bytes(zstd.compress(stream.getvalue()))
    return path


IDENTITY = {"commit": "c", "upstream": None, "tree": "t", "dirty": False, "epoch": 0}


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("t/../../escaped", b"x")], "which no checkout has"),
        ([("/tmp/escaped", b"x")], "which no checkout has"),
        ([("t/out", "../../.."), ("t/out/escaped", b"x")], "through a link"),
        ([("t/.git/x", b"x")], "was cut or changed"),
        ([], "was cut or changed"),
    ],
)
def test_nothing_is_written_elsewhere(
    tmp_path: Path, members: list[tuple[str, bytes | str]], said: str
) -> None:
    with pytest.raises(SourceError, match=said):
        unpack_checkouts(made(tmp_path / "s", *members), tmp_path / "a" / "out", env=ENV)
    assert [path.name for path in tmp_path.rglob("*")] == ["s"]


@pytest.mark.parametrize(
    "listing",
    [[], {"schema": 2, "trees": {}}, {"schema": 1, "trees": {"../t": IDENTITY}}, {"schema": 1, "trees": 3}],
)
def test_a_listing_that_is_none_is_refused(tmp_path: Path, listing: object) -> None:
    with pytest.raises(SourceError, match="holds no packed checkouts"):
        unpack_checkouts(made(tmp_path / "s", listing=listing), tmp_path / "out", env=ENV)


def test_the_commands(tree: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(sources_group, ["pack", str(tmp_path / "s"), "--source-dir", str(tree.parent)])
    assert done.exit_code == 0 and done.output.startswith("pytorch "), done.output
    done = runner.invoke(
        sources_group, ["unpack", str(tmp_path / "s"), "--source-dir", str(tmp_path / "out")]
    )
    assert done.output == f"{tmp_path / 'out' / 'pytorch'}: unpacked\n"
    empty = runner.invoke(
        sources_group, ["pack", str(tmp_path / "s2"), "--source-dir", str(tmp_path / "nothing")]
    )
    assert isinstance(empty.exception, SourceError) and "there are no source trees" in str(empty.exception)
    named = runner.invoke(
        sources_group, ["pack", str(tmp_path / "s2"), "torch", "--source-dir", str(tree.parent)]
    )
    assert named.exit_code == 0 and named.output.startswith("pytorch "), named.output
    (tree.parent / "empty").mkdir()
    for name, said in (("inner", "there is no project 'inner'"), ("empty", "is not a git checkout")):
        wrong = runner.invoke(
            sources_group, ["pack", str(tmp_path / "s2"), name, "--source-dir", str(tree.parent)]
        )
        assert isinstance(wrong.exception, RocmWheelsError) and said in str(wrong.exception)
    (tmp_path / "file").touch()
    wrong = runner.invoke(
        sources_group, ["unpack", str(tmp_path / "s"), "--source-dir", str(tmp_path / "file")]
    )
    assert wrong.exit_code == 2 and "is a file" in wrong.output
