"""Mirrors: what one checkout fetched, the next takes; and no harm comes to a checkout from them."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from servers import GitServer
from sources import Tree, Upstream, content

from rocm_wheels.core import errors
from rocm_wheels.sources import mirrors as sharing
from rocm_wheels.sources import network

MODULES = ("", "modules/third_party/middle", "modules/third_party/middle/modules/deep dir")
DRIVER = """
import os, sys
from pathlib import Path
from rocm_wheels.models.project import load_project
from rocm_wheels.sources.checkout import CheckoutRequest, checkout_project
from rocm_wheels.sources.network import Transport
from rocm_wheels.sources.pins import Pin
url, ref, tree, folder = sys.argv[1:]
transport = Transport(retries=0, timeout=60, mirrors=Path(folder) if folder else None)
request = CheckoutRequest(load_project("pytorch"), Path(tree), Pin(url, ref, "test"), hipify=False,
    transport=transport)
checkout_project(request, env=os.environ, python=Path(sys.executable))
"""


@pytest.fixture(scope="module")
def upstream(sources: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """Torch has a fork, whose submodules are those of torch."""
    up = sources.copy(tmp_path_factory.mktemp("upstream"))
    up.git("", "clone", "-q", "--bare", "root", "forks/root.git")
    up.git("", "clone", "-q", "root", "work")
    (up.folder / "work/fork.txt").write_text("fork\n")
    up.commit("work", "of the fork")
    up.git("work", "push", "-q", str(up.folder / "forks/root.git"), "HEAD:refs/heads/fork")
    for name in ("middle", "inner"):  # the fork's submodules are relative
        (up.folder / "forks" / name).symlink_to(f"../{name}")
    return up


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mir rors"


@pytest.fixture
def tree(upstream: Upstream, server: GitServer, tmp_path: Path, folder: Path) -> Tree:
    transport = network.Transport(retries=0, mirrors=folder)
    return Tree(
        upstream, tmp_path / "first", origin=f"{server.url}/root", transport=transport, hipifies=False
    )


def another(tree: Tree, name: str, **changes: object) -> Tree:
    values = {**vars(tree), "directory": tree.directory.with_name(name), **changes}
    return Tree(**values)  # type: ignore[arg-type]


@pytest.mark.contract
def test_a_second_checkout_fetches_only_what_is_new(tree: Tree, server: GitServer, folder: Path) -> None:
    tree.checkout()
    assert sorted(server.packs) == ["inner", "middle", "root"]
    server.packs.clear()
    second = another(tree, "second")
    second.checkout()
    assert server.packs == []
    for where in MODULES:
        assert second.packs(where) == tree.packs(where) != {}  # one file, three names
    server.packs.clear()
    second.checkout("feature")
    assert sorted(server.packs) == ["inner", "middle", "root"]
    sizes = [path.stat().st_size for path in sorted((folder / "root.git/objects/pack").glob("*.pack"))]
    assert min(sizes) < max(sizes) * 0.8  # the second held what was new alone
    assert second.is_sound()
    plain = another(tree, "plain", transport=network.Transport(retries=0))
    plain.checkout("feature")
    for args in (("config", "--list", "--local"), ("for-each-ref",), ("rev-parse", "HEAD")):
        assert second.git(*args) == plain.git(*args)
    assert content(second.directory) == content(plain.directory)


@pytest.mark.contract
def test_forks_share_one_mirror(tree: Tree, server: GitServer, folder: Path) -> None:
    tree.checkout()
    before = set((folder / "root.git/objects/pack").glob("*.pack"))
    server.packs.clear()
    fork = another(tree, "fork", origin=f"{server.url}/forks/root.git")
    fork.checkout("fork")
    assert (fork.directory / "fork.txt").read_text() == "fork\n"
    assert sorted(path.name for path in folder.iterdir()) == ["inner.git", "middle.git", "root.git"]
    (new,) = set((folder / "root.git/objects/pack").glob("*.pack")) - before
    listed = tree.upstream.git(folder / "root.git", "verify-pack", "-v", str(new)).splitlines()
    assert len([line for line in listed if " commit " in line]) == 1
    assert len([line for line in listed if " blob " in line]) == 1
    refs = tree.upstream.git(folder / "root.git", "for-each-ref", "--format=%(refname)").splitlines()
    assert len({ref.split("/")[2] for ref in refs}) == 2
    assert fork.is_sound()


@pytest.mark.slow
def test_a_mirror_may_be_repacked_and_removed(tree: Tree, folder: Path) -> None:
    tree.checkout()
    whole = content(tree.directory)
    for mirror in folder.iterdir():
        for ref in tree.upstream.git(mirror, "for-each-ref", "--format=%(refname)").splitlines():
            tree.upstream.git(mirror, "update-ref", "-d", ref)
        tree.upstream.git(mirror, "repack", "-a", "-d", "-f", "-q")
        tree.upstream.git(mirror, "prune", "--expire=now")
    assert not list((folder / "root.git/objects/pack").glob("*.pack"))  # nothing held the objects any more
    assert tree.is_sound()
    second = another(tree, "second")
    second.checkout("feature")  # the mirror fetches again what it lost
    shutil.rmtree(folder)
    for one in (tree, second):
        assert one.is_sound()
        one.git("gc", "-q", "--prune=now")
        assert one.is_sound()
    second.transport = network.Transport(retries=0)
    second.checkout("main")
    assert content(second.directory) == whole
    tree.checkout("feature")  # and the folder is made again
    assert tree.is_sound()
    assert (folder / "root.git").is_dir()


def test_a_commit_of_the_mirror_needs_no_server_and_a_branch_does(tree: Tree, server: GitServer) -> None:
    tree.checkout("feature")
    commit = tree.upstream.git("root", "rev-parse", "feature")
    server.requests.clear()
    server.fail(*["forbidden"] * 20)
    away = another(tree, "away")
    away.checkout(commit)
    assert server.requests == []
    assert content(away.directory) == content(tree.directory)
    with pytest.raises(errors.SourceError, match=r"asking http://.*/root for feature failed") as refused:
        another(tree, "branch").checkout("feature")
    assert "A mirror never answers for a branch or tag" in str(refused.value.tip)
    assert not tree.directory.with_name("branch").exists()


@pytest.mark.contract
def test_with_depth_the_objects_are_copied(tree: Tree, server: GitServer, folder: Path) -> None:
    tree.checkout()
    server.packs.clear()
    shallow = another(tree, "shallow")
    shallow.checkout("main", depth=1)
    assert server.packs == []
    for where in ("", "third_party/middle"):
        assert shallow.git("rev-parse", "--is-shallow-repository", where=where) == "true"
    shutil.rmtree(folder)
    assert shallow.is_sound()
    shallow.checkout("feature")  # without depth: what is there stays cut
    assert shallow.is_sound()


def test_on_another_file_system_packs_are_copied(
    tree: Tree, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def elsewhere(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))

    monkeypatch.setattr(sharing.os, "link", elsewhere)
    tree.checkout()
    assert capsys.readouterr().err.count("are copied, not linked (Invalid cross-device link)") == 1
    assert {path.stat().st_nlink for path in tree.directory.rglob("*.pack")} == {1}
    shutil.rmtree(folder)
    assert tree.is_sound()


def test_a_pack_that_goes_while_it_is_linked(
    tree: Tree, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.checkout()
    another(tree, "more").checkout("feature")
    link, calls = os.link, []

    def meanwhile(source: Path, target: Path, **how: Any) -> None:
        calls.append(source)
        if len(calls) == 2:
            for mirror in folder.iterdir():
                tree.upstream.git(mirror, "repack", "-a", "-d", "-q")
        return link(source, target)

    monkeypatch.setattr(sharing.os, "link", meanwhile)
    late = another(tree, "late")
    late.checkout("feature")
    assert not all(call.exists() for call in calls)
    assert late.is_sound()


@pytest.mark.contract
def test_a_full_disk_leaves_nothing_harmful(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    link, calls = os.link, []

    def full(source: Path, target: Path, **how: Any) -> None:
        calls.append(source)
        if len(calls) == 4:  # of the first submodule
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))
        return link(source, target)

    monkeypatch.setattr(sharing.os, "link", full)
    with pytest.raises(OSError, match="No space left"):
        tree.checkout()
    assert not (tree.directory / "plain.txt").exists()
    middle = tree.directory / ".git/modules/third_party/middle"
    assert [path.suffix for path in (middle / "objects/pack").iterdir()] == [".pack"]
    assert tree.git("--git-dir", str(middle), "fsck", "--connectivity-only") == ""
    monkeypatch.undo()
    tree.checkout()
    assert tree.is_sound()


@pytest.mark.parametrize("kind", ["shallow", "folder"])
def test_what_is_no_mirror_of_ours_is_left_alone(tree: Tree, folder: Path, kind: str) -> None:
    mirror = folder / "root.git"
    folder.mkdir()
    if kind == "shallow":
        tree.upstream.git("", "clone", "-q", "--mirror", "--depth=1", tree.upstream.url, str(mirror))
    else:
        mirror.mkdir()
        (mirror / "holiday.jpg").write_text("mine")
    before = content(mirror)
    with pytest.raises(errors.SourceError, match="is not a mirror that rocm-wheels made") as refused:
        tree.checkout()
    assert str(mirror) in str(refused.value)
    left = {name: text for name, text in content(mirror).items() if not name.startswith("rocm-wheels/")}
    assert left == before
    assert not (tree.directory / "plain.txt").exists()


@pytest.mark.contract
@pytest.mark.parametrize("state", ["empty", "without configuration", "locked", "half a pack"])
def test_a_mirror_whose_making_was_killed(tree: Tree, folder: Path, state: str) -> None:
    mirror = folder / "root.git"
    own = mirror / "rocm-wheels"
    own.mkdir(parents=True)
    (own / "fetching").touch()
    if state != "empty":
        tree.upstream.git("", "init", "-q", "--bare", "--template=", str(mirror))
        if state == "without configuration":
            (mirror / "config").unlink()
            (mirror / "config.lock").write_text("[core")
        if state == "locked":
            (mirror / "packed-refs.lock").touch()
            (mirror / "config.lock").touch()
        (mirror / "objects/pack").mkdir(exist_ok=True)
        (mirror / "objects/pack/tmp_pack_abc").write_text("PACK")
    tree.checkout()
    assert tree.is_sound()
    assert not list(mirror.glob("*.lock"))
    assert not list(mirror.rglob("tmp_*"))
    assert not (own / "fetching").exists()


def start(tree: Tree, folder: Path | str, ref: str = "main") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DRIVER, tree.origin, ref, str(tree.directory), str(folder)]
    return subprocess.Popen(command, env=tree.upstream.env, stderr=subprocess.PIPE, text=True)


@pytest.mark.contract
def test_two_runs_on_one_mirror(tree: Tree, server: GitServer, folder: Path) -> None:
    server.delay = 0.5
    trees = [tree, another(tree, "second")]
    runs = [start(one, folder) for one in trees]
    said = [run.communicate()[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    assert sorted(server.packs) == ["inner", "middle", "root"]
    assert any("is in use by process" in text for text in said), said  # each may wait for the other once
    assert all(one.is_sound() for one in trees)


@pytest.mark.contract_slow
@pytest.mark.parametrize(
    ("where", "mirrored"),
    [
        ("/root", False),
        ("/middle", True),
        pytest.param("/root", True, marks=pytest.mark.exhaustive),
        pytest.param("/inner", False, marks=pytest.mark.exhaustive),
    ],
)
def test_killed_while_a_transfer_stands_still(
    tree: Tree, server: GitServer, folder: Path, where: str, mirrored: bool
) -> None:
    server.fail("stall", where=f"{where}/git-upload-pack")
    run = start(tree, folder if mirrored else "")
    assert server.stalled.wait(30)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    server.packs.clear()
    tree.transport = network.Transport(retries=0, mirrors=folder if mirrored else None)
    tree.checkout()
    assert tree.is_sound()
    assert not list(tree.directory.parent.rglob("tmp_pack*"))
    assert where.strip("/") in server.packs
    assert ("root" in server.packs) == (where == "/root")  # what had come is kept


@pytest.mark.parametrize(
    ("origin", "name", "slug"),
    [
        ("https://github.com/pytorch/pytorch.git", "pytorch", "github-com-pytorch-pytorch-"),
        ("https://u:p@github.com/ROCm/PyTorch/", "pytorch", "github-com-ROCm-PyTorch-"),
        ("git@github.com:ROCm/apex", "apex", "github-com-ROCm-apex-"),
        ("file:///a b/ä.git", "_", "a-b-"),
        ("/srv/..", "repository", "srv-"),
        ("C:\\x\\y", "y", "C-x-y-"),
    ],
)
def test_names(origin: str, name: str, slug: str) -> None:
    assert sharing.name_repository(origin) == name
    assert sharing.make_origin_slug(origin).startswith(slug)
    assert (
        subprocess.run(
            ["git", "check-ref-format", f"refs/origins/{sharing.make_origin_slug(origin)}/x"], check=False
        ).returncode
        == 0
    )


@pytest.mark.contract
def test_an_origin_is_the_same_with_and_without_a_password() -> None:
    slugs = {sharing.make_origin_slug(f"https://{user}h/a/b") for user in ("", "u@", "u:p@w@")}
    assert len(slugs) == 1
    assert sharing.make_origin_slug("https://h/a/c") not in slugs
