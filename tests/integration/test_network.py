"""Servers that fail: what may pass is tried again, what lasts is told at once, and no file is touched."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from servers import GitServer, serving
from sources import Tree, Upstream, content

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.sources import network, submodules


@pytest.fixture
def tree(upstream: Upstream, server: GitServer, tmp_path: Path) -> Tree:
    transport = network.Transport(retries=1, timeout=20)
    return Tree(upstream, tmp_path / "tree", origin=f"{server.url}/root", transport=transport, hipifies=False)


@pytest.mark.contract
@pytest.mark.parametrize(("way", "where"), [("busy", "/root"), ("cut", "/middle/git-upload-pack")])
def test_what_passes_is_tried_again(
    tree: Tree, server: GitServer, way: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fail(way, where=where)
    tree.checkout()
    assert "trying again in" in capsys.readouterr().err
    assert tree.is_sound()
    assert (tree.directory / "third_party/middle/deep dir/deep.cu").read_text() == "cuda deep\n"


@pytest.mark.contract
def test_a_transfer_that_stands_still_is_cut(
    tree: Tree, server: GitServer, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.transport = network.Transport(retries=3, timeout=4)
    server.fail("stall", where="/middle/git-upload-pack")
    begin = time.monotonic()
    tree.checkout()
    assert time.monotonic() - begin < 60
    assert "trying again" in capsys.readouterr().err
    assert not list(tree.directory.rglob("tmp_pack*"))


def test_a_program_that_says_nothing_is_ended(tree: Tree) -> None:
    tree.env = {**tree.env, "GIT_SSH_COMMAND": "sleep 60 #"}
    tree.origin, tree.transport = "ssh://nowhere/root", network.Transport(retries=0, timeout=1)
    for ref, end in (("1234" * 10, "without any progress"), ("main", "without an end")):
        with pytest.raises(errors.SourceError, match=f"was stopped after 1 s {end}"):
            tree.checkout(ref)
    assert not (tree.directory / "plain.txt").exists()


@pytest.mark.contract
def test_a_failure_leaves_every_file_and_a_later_run_carries_on(tree: Tree, server: GitServer) -> None:
    tree.checkout()
    before, head = content(tree.directory), tree.git("rev-parse", "HEAD")
    configured = (tree.directory / ".git/config").read_bytes()
    server.fail(*["busy"] * 9, where="/inner")
    with pytest.raises(
        errors.SourceError, match=r"(?s)fetching 559f\w+ of .*/inner \(third_party/middle/deep dir\)"
    ):
        tree.checkout("feature")
    assert (content(tree.directory), tree.git("rev-parse", "HEAD")) == (before, head)
    assert (tree.directory / ".git/config").read_bytes() == configured
    assert tree.is_sound()
    server.fail()
    server.packs.clear()
    tree.checkout("feature")
    assert server.packs == ["inner"]  # what had come is kept
    assert (tree.directory / "third_party/middle/deep dir/deep.cu").read_text() == "cuda deeper\n"
    assert tree.is_sound()


@pytest.mark.contract
def test_what_lasts_is_not_tried_again_and_no_password_is_shown(
    tree: Tree, server: GitServer, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.origin = tree.origin.replace("http://", "http://somebody:s3cr%40t@")
    tree.transport = network.Transport(retries=3, mirrors=tree.directory.parent / "mirrors")
    server.fail("forbidden", where="/middle")
    with pytest.raises(errors.SourceError, match="403") as refused:
        tree.checkout()
    assert len([one for one in server.requests if one.name.startswith("middle")]) == 1
    assert "let git know how to log in" in str(refused.value.tip)
    tree.checkout()
    said = str(refused.value) + capsys.readouterr().err
    assert "http://***@127.0.0.1" in said
    assert "s3cr" not in said
    mirrors = [path for path in tree.transport.mirrors.rglob("*") if path.is_file()]  # type: ignore[union-attr]
    assert mirrors and not [path for path in mirrors if b"s3cr" in path.read_bytes()]
    inside = [path for path in tree.directory.rglob("*") if path.is_file() and b"s3cr" in path.read_bytes()]
    assert {path.name for path in inside} == {"config"}  # git's own
    assert not tree.checkout().changed
    tree.origin = tree.origin.replace("s3cr", "n3w")
    assert tree.checkout().changed
    assert tree.git("config", "remote.origin.url") == tree.origin


@pytest.mark.contract
@pytest.mark.parametrize("damage", ["gone", "garbled"])
def test_a_damaged_repository_is_asked_once(
    upstream: Upstream, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(upstream.folder, tmp_path / "damaged", symlinks=True)
    blob = upstream.git("root", "rev-parse", "main:plain.txt")
    file = folder / "root/.git/objects" / blob[:2] / blob[2:]
    file.chmod(0o644)
    file.write_bytes(b"garbled")
    if damage == "gone":
        file.unlink()
    with serving(GitServer(folder)) as server:
        transport = network.Transport(retries=3, timeout=20)
        url = f"{server.url}/root"
        tree = Tree(upstream, tmp_path / "tree", origin=url, transport=transport, hipifies=False)
        with pytest.raises(errors.SourceError, match="repository corruption on the remote side") as refused:
            tree.checkout()
        assert server.packs == ["root"]
    assert "is damaged" in (refused.value.tip or "")
    assert "trying again" not in capsys.readouterr().err


def test_a_server_that_gives_out_names_only(
    tree: Tree, server: GitServer, upstream: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    server.first_protocol = True
    old = upstream.git("root", "rev-parse", "main")
    for depth in (1, None):
        tree.directory = tree.directory.with_name(f"depth {depth}")
        tree.checkout(old, depth=depth)
        said = capsys.readouterr().err
        assert "the server gives out branches and tags only" in said
        assert tree.is_sound()
    mirrors = network.Transport(0, mirrors=tree.directory.parent)
    mirrored = replace(tree, directory=tree.directory.with_name("m"), transport=mirrors)
    mirrored.checkout(old)
    assert mirrored.is_sound()
    with pytest.raises(errors.SourceError, match=r"no branch or tag of .*/root holds 1234"):
        tree.checkout("1234" * 10)


def test_the_history_of_submodules_is_cut_with_depth_and_stays_so(tree: Tree) -> None:
    tree.checkout("feature", depth=1)
    modules = ["", "third_party/middle", "third_party/middle/deep dir"]
    assert [tree.git("rev-list", "--count", "HEAD", where=where) for where in modules] == ["1", "1", "1"]
    tree.checkout("main", depth=1)
    assert tree.git("rev-parse", "--is-shallow-repository", where=modules[1]) == "true"
    assert tree.is_sound()


@pytest.mark.contract
def test_an_origin_that_is_shallow_itself(upstream: Upstream, tmp_path: Path) -> None:
    """As actions/checkout leaves it: a tree takes what there is, as `git clone` does; a mirror cannot."""
    own = upstream.copy(tmp_path / "own")
    own.git("root", "commit", "-q", "--allow-empty", "-m", "two")
    shallow = tmp_path / "own/repositories/shallow"
    own.git(tmp_path, "clone", "-q", "--depth=1", "--branch=main", own.url, str(shallow))
    words = ("--source-dir", "trees", "--origin", shallow.as_uri(), "--ref", "main")
    mirrored = own.script(
        tmp_path, "pytorch_torch_repo.py", "checkout", *words, ROCM_WHEELS_MIRROR_DIR="mirrors"
    )
    assert mirrored.code == 10 and "shallow" in mirrored.err
    assert not (tmp_path / "trees/pytorch").exists()
    for _ in range(2):
        done = own.script(tmp_path, "pytorch_torch_repo.py", "checkout", *words)
        assert done.code == 0, done.err
        tree = tmp_path / "trees/pytorch"
        head = own.git(shallow, "rev-parse", "HEAD")
        assert own.git(tree, "rev-parse", "THEROCK_UPSTREAM_DIFFBASE") == head
        own.git(shallow, "commit", "-q", "--allow-empty", "-m", "three")


@pytest.mark.contract
def test_sha256_is_refused(upstream: Upstream, server: GitServer, tree: Tree, tmp_path: Path) -> None:
    upstream.git(tmp_path, "init", "-q", "--object-format=sha256", "long")
    (tmp_path / "long/a").write_text("a")
    commit = upstream.commit(str(tmp_path / "long"), "a")
    why = "SHA-256 object ids, and only SHA-1"
    for origin, ref in (((tmp_path / "long").as_uri(), "HEAD"), (tree.origin, commit)):
        tree.origin = origin
        with pytest.raises(errors.SourceError, match=why):
            tree.checkout(ref)
        assert not tree.directory.exists()
    short = "1234" * 10
    with pytest.raises(errors.SourceError, match=why):
        replace(tree, origin=(tmp_path / "long").as_uri()).checkout(short)
    with pytest.raises(errors.SourceError, match=why):
        replace(tree, directory=tmp_path / "long", origin=f"{server.url}/root").checkout()
    assert (tmp_path / "long/a").read_text() == "a"


@pytest.mark.contract
def test_names_that_clash_where_case_does_not_count(tree: Tree, upstream: Upstream) -> None:
    upstream.git("middle", "checkout", "-q", "-b", "clash")
    for name in ("Readme", "README"):
        (upstream.folder / "middle" / name).write_text(name)
    commit = upstream.commit("middle", "two")
    upstream.git("middle", "checkout", "-q", "main")
    upstream.git("root", "checkout", "-q", "-b", "clash")
    upstream.git("root", "update-index", "--cacheinfo", f"160000,{commit},third_party/middle")
    upstream.git("root", "commit", "-q", "-m", "clash")
    upstream.git("root", "checkout", "-q", "main")
    tree.checkout()
    tree.git("config", "core.ignorecase", "true")
    before = content(tree.directory)
    with pytest.raises(
        errors.SourceError, match=r"of third_party/middle has 'README' and 'Readme', which are one"
    ):
        tree.checkout("clash")
    assert content(tree.directory) == before
    tree.git("config", "--unset", "core.ignorecase")
    tree.checkout("clash")


@pytest.mark.parametrize(
    ("paths", "pair"),
    [
        (["a/b", "a/c", "d"], None),
        (["a/b", "A/c"], None),
        (["a/b", "A/B"], ("a/b", "A/B")),
        (["x", "straße", "STRASSE"], ("straße", "STRASSE")),
        (["Folder/x", "folder"], ("folder", "Folder/x")),
    ],
)
def test_clash(paths: list[str], pair: tuple[str, str] | None) -> None:
    assert submodules.find_case_clash(paths) == pair


@pytest.mark.contract
def test_a_ref_that_is_none_is_told_before_anything(tree: Tree) -> None:
    with pytest.raises(errors.UsageError):
        tree.checkout("a..b")
    assert not tree.directory.exists()


@pytest.mark.parametrize("ref", ["v1", 40 * "1"], ids=["branch", "commit"])
def test_a_host_that_nobody_knows_is_said_to_be_that(
    ref: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a commit, too, which a server that answers may lack."""
    monkeypatch.setenv("ROCM_WHEELS_RETRIES", "0")
    words = ["checkout", "pytorch", "--source-dir", str(tmp_path), "--ref", ref]
    assert boundary.run_command(main.cli, [*words, "--origin", "https://nobody.invalid/x.git"]) == 10
    told = capsys.readouterr().err
    assert "network" in told and "commit" not in told.partition("tip: ")[2], told
