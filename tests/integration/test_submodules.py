"""Submodules as people have them: odd names, moved, gone, left out, redirected, of nowhere."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from servers import GitServer
from sources import Tree, Upstream, content

from rocm_wheels.core import errors
from rocm_wheels.sources import network

pytestmark = pytest.mark.contract

ODD = 'third "pärty"\nwith a line'


@pytest.fixture
def upstream(sources: Upstream, tmp_path: Path) -> Upstream:
    """One that a test may change."""
    return sources.copy(tmp_path)


@pytest.fixture
def tree(upstream: Upstream, server: GitServer, tmp_path: Path) -> Tree:
    transport = network.Transport(retries=0, timeout=20)
    return Tree(upstream, tmp_path / "tree", origin=f"{server.url}/root", transport=transport, hipifies=False)


def commit(
    upstream: Upstream, change: Callable[[Path], None], branch: str = "next", base: str = "main"
) -> str:
    """Commit a change of the root on a branch of its own."""
    upstream.git("root", "checkout", "-q", "-B", branch, base)
    upstream.git("root", "submodule", "--quiet", "update")
    change(upstream.root)
    made = upstream.commit("root", branch)
    upstream.git("root", "checkout", "-q", "-f", "main")
    upstream.git("root", "clean", "-ffdxq")
    return made


def test_many_come_at_a_time(tree: Tree, upstream: Upstream, server: GitServer) -> None:
    for number in range(4):
        upstream.git("root", "submodule", "--quiet", "add", "../inner", f"many/{number}")
    upstream.commit("root", "many")
    server.delay = 0.4
    tree.transport = network.Transport(retries=0, jobs=3)
    tree.checkout()
    assert server.most == 3
    assert len(server.packs) == 7
    assert tree.is_sound()


def test_names_that_are_hard_to_read(tree: Tree, upstream: Upstream, server: GitServer) -> None:
    upstream.git("root", "submodule", "--quiet", "add", "--name", "plain", "../middle", "odd")
    quoted = '"third \\"pärty\\"\\nwith a line"'

    def change(root: Path) -> None:
        modules = root / ".gitmodules"
        modules.write_text(modules.read_text().replace("path = odd", f"path = {quoted}"))
        upstream.git("root", "update-index", "--force-remove", "odd")
        link = upstream.git("middle", "rev-parse", "main")
        upstream.git("root", "update-index", "--add", "--cacheinfo", f"160000,{link},{ODD}")
        shutil.rmtree(root / "odd")
        (root / ODD).mkdir()

    commit(upstream, change)
    server.fail("forbidden", where="/middle")
    with pytest.raises(errors.SourceError):
        tree.checkout("next")
    tree.checkout("next")
    assert (tree.directory / ODD / "deep dir/deep.cu").read_text() == "cuda deeper\n"
    assert tree.is_sound()
    tree.checkout("main")
    assert not (tree.directory / ODD).exists()


def test_moved_vanished_and_back(tree: Tree, upstream: Upstream, server: GitServer) -> None:
    commit(upstream, lambda root: upstream.git("root", "mv", "third_party/middle", "elsewhere") and None)
    commit(
        upstream, lambda root: upstream.git("root", "rm", "-q", "-f", "third_party/middle") and None, "gone"
    )
    tree.checkout("main")
    here = content(tree.directory)
    server.packs.clear()
    tree.checkout("next")
    assert (tree.directory / "elsewhere/deep dir/deep.cu").read_text() == "cuda deep\n"
    assert not (tree.directory / "third_party").exists()
    tree.checkout("gone")
    assert not (tree.directory / "elsewhere").exists()
    tree.checkout("main")
    assert content(tree.directory) == here
    assert set(server.packs) == {"root"}
    assert tree.is_sound()


def test_one_that_stays_is_tagged_and_watched(tree: Tree, upstream: Upstream) -> None:
    """Going to a commit that has the same submodules touches none of them, and still looks at each."""
    commit(upstream, lambda root: (root / "CMakeLists.txt").write_text("moved\n") and None)
    inner, tag = "third_party/middle/deep dir", "THEROCK_UPSTREAM_DIFFBASE"
    tree.checkout("main")
    tree.git("tag", "-d", tag, where=inner)
    result = tree.checkout("next")
    assert tree.git("rev-parse", f"{tag}^{{}}", where=inner) == tree.git("rev-parse", "HEAD", where=inner)
    assert not tree.checkout("next").changed
    assert tree.is_sound()
    file = tree.directory / inner / "deep.cu"
    tree.git("update-index", "--skip-worktree", "deep.cu", where=inner)
    file.write_text("mine\n")
    with pytest.raises(errors.SourceError):
        tree.checkout("main")
    assert (file.read_text(), tree.git("rev-parse", "HEAD")) == ("mine\n", result.head)


def test_what_gitmodules_leaves_out(tree: Tree, upstream: Upstream) -> None:
    def change(root: Path) -> None:
        upstream.git("root", "config", "-f", ".gitmodules", "submodule.third_party/middle.update", "none")
        upstream.git("root", "config", "-f", ".gitmodules", "submodule.nowhere.path", "nowhere")
        upstream.git("root", "config", "-f", ".gitmodules", "submodule.nowhere.url", "../nowhere")

    commit(upstream, change)
    tree.checkout("next")
    assert not any((tree.directory / "third_party/middle").iterdir())
    tree.git("config", "submodule.third_party/middle.update", "checkout")  # its user wants it
    tree.checkout("feature")
    tree.checkout("next")
    assert (tree.directory / "third_party/middle/deep dir/deep.cu").read_text() == "cuda deep\n"
    assert not (tree.directory / "nowhere").exists()


def test_gitmodules_without_submodules(tree: Tree, upstream: Upstream) -> None:
    for text in ("# nothing\n", '[submodule "x"]\n\tpath = x\n\turl = ../x\n', "[broken"):

        def change(root: Path, text: str = text) -> None:
            upstream.git("root", "rm", "-q", "-f", "--cached", "third_party/middle")
            shutil.rmtree(root / "third_party")
            (root / ".gitmodules").write_text(text)

        commit(upstream, change)
        tree.checkout("next")
        assert (tree.directory / ".gitmodules").read_text() == text


# what is wrong: the URL, the name, the commit, or the whole file → what is said
WRONG = [
    ("url", None, r"third_party/middle is a submodule in \w{12} of .*tree, and \.gitmodules has no URL"),
    ("file", None, r"third_party/middle is a submodule in .* has no URL for it"),
    ("url", "--upload-pack=touch me", "is not a repository"),
    ("url", "../../../../../../up", "goes further up than"),
    ("url", "http://u:s3cret@127.0.0.1:9/x", r"http://\*\*\*@127\.0\.0\.1:9/x"),
    ("url", "ext::touch me", "transport 'ext' not allowed"),
    ("url", "file:///etc", "transport 'file' not allowed"),
    ("url", "/etc", "transport 'file' not allowed"),
    ("url", "../nowhere", r"fetching \w{12} of .*/nowhere \(third_party/middle\)"),
    ("name", "../../hooks", "does not stay in the tree"),
    ("link", "1234" * 10, r"fetching 123412341234 of .*/middle \(third_party/middle\)"),
]


def test_wrong_submodules_change_nothing(tree: Tree, upstream: Upstream) -> None:
    for what, value, message in WRONG:

        def wrong(root: Path, what: str = what, value: str | None = value) -> None:
            text = (root / ".gitmodules").read_text()
            if what == "url":
                text = re.sub(r"\turl = .*\n", f"\turl = {value}\n" if value else "", text)
            if what == "name":
                text = text.replace('"third_party/middle"', f'"{value}"')
            (root / ".gitmodules").write_text(text)
            if what == "file":
                (root / ".gitmodules").unlink()
            if what == "link":
                upstream.git("root", "update-index", "--cacheinfo", f"160000,{value},third_party/middle")

        tree.checkout("main")
        before = content(tree.directory)
        commit(upstream, wrong, base="feature")
        with pytest.raises(errors.SourceError, match=message) as refused:
            tree.checkout("next")
        assert "s3cret" not in str(refused.value)
        assert content(tree.directory) == before, value
        assert not list(tree.directory.parent.rglob("me"))
        assert tree.is_sound(), value
        tree.checkout("next", submodules=False)
        assert not any((tree.directory / "third_party/middle").iterdir()), value


def test_one_repository_inside_another_is_refused(tree: Tree, upstream: Upstream) -> None:
    upstream.git("root", "submodule", "--quiet", "add", "../inner", "x")
    modules = upstream.root / ".gitmodules"
    modules.write_text(modules.read_text().replace('"x"', '"third_party/middle/hooks"'))
    upstream.commit("root", "nested")
    with pytest.raises(errors.SourceError, match="the repository of one would lie inside the other's"):
        tree.checkout()


def test_a_repository_that_is_to_be_where_others_are(tree: Tree, upstream: Upstream) -> None:
    def change(root: Path) -> None:
        modules = root / ".gitmodules"
        modules.write_text(modules.read_text().replace('"third_party/middle"', '"third_party"'))

    commit(upstream, change)
    tree.checkout()
    upstream.git("root", "rm", "-q", "-f", "third_party/middle")
    upstream.git("root", "submodule", "--quiet", "add", "../inner", "inner")
    modules = upstream.root / ".gitmodules"
    modules.write_text(modules.read_text().replace('"inner"', '"third_party"'))
    upstream.commit("root", "another")
    with pytest.raises(errors.SourceError, match="others are in it already: middle"):
        tree.checkout()
    assert (tree.directory / ".git/modules/third_party/middle/HEAD").is_file()
    assert tree.is_sound()


def test_a_redirected_submodule(tree: Tree, upstream: Upstream, server: GitServer, tmp_path: Path) -> None:
    upstream.git("", "clone", "-q", "--bare", "middle", str(tmp_path / "near/middle.git"))
    near = (tmp_path / "near/middle.git").as_uri()
    (tmp_path / "home/.gitconfig").write_text(f'[url "{near}"]\n\tinsteadOf = {server.url}/middle\n')
    tree.checkout()
    assert sorted(server.packs) == ["inner", "root"]
    url = tree.git("config", "remote.origin.url", where="third_party/middle")
    assert url == f"{server.url}/middle"
    assert tree.is_sound()


def test_a_submodule_of_an_older_git(tree: Tree, upstream: Upstream) -> None:
    tree.checkout()
    module = tree.directory / "third_party/middle"
    place = tree.directory / ".git/modules/third_party/middle"
    tree.git("config", "--unset", "core.worktree", where="third_party/middle")
    (module / ".git").unlink()
    place.rename(module / ".git")
    nested = module / "deep dir/.git"
    nested.write_text("gitdir: ../.git/modules/deep dir\n")
    settings = str(module / ".git/modules/deep dir/config")
    tree.git("config", "--file", settings, "core.worktree", "../../../deep dir")
    tree.checkout("feature")
    assert not place.exists()
    assert (module / ".git").is_dir()
    assert (module / "deep dir/deep.cu").read_text() == "cuda deeper\n"
    assert tree.is_sound()


CONFIGURATIONS = (
    "",
    pytest.param("[submodule]\n\tactive = .\n", marks=pytest.mark.exhaustive),
    '[submodule "third_party/middle"]\n\tupdate = merge\n',
)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_what_is_left_is_what_git_leaves(
    tree: Tree, upstream: Upstream, tmp_path: Path, configuration: str
) -> None:
    name = 'as "it" \\ is'
    upstream.git("root", "submodule", "--quiet", "add", "--name", name, "../inner", "third party/a 'b' ;#")
    upstream.commit("root", "odd")
    (tmp_path / "home/.gitconfig").write_text(configuration)
    tree.checkout()

    theirs = replace(tree, directory=tmp_path / "theirs")
    upstream.git("", "clone", "-q", tree.origin, str(theirs.directory))
    theirs.git("submodule", "--quiet", "update", "--init", "--recursive")
    names = ["third_party/middle", "third_party/middle/deep dir", "third party/a 'b' ;#"]

    def seen(tree: Tree) -> list[object]:
        known = [tree.git("config", "--local", "--list", where=where).splitlines() for where in ("", *names)]
        ours = [sorted(one for one in lines if re.match(r"submodule|core\.worktree", one)) for lines in known]
        pointers = [(tree.directory / where / ".git").read_text() for where in names]
        heads = [tree.git("rev-parse", "HEAD", "HEAD^{tree}", where=where) for where in names]
        named = [tree.git("rev-parse", "--symbolic-full-name", "HEAD", where=where) for where in names]
        return [ours, pointers, heads, named, content(tree.directory)]

    assert seen(tree) == seen(theirs)
    assert tree.is_sound()


def test_a_folder_that_a_link_leads_to(tree: Tree, tmp_path: Path) -> None:
    """Up from a folder is another place there than up from its link."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    linked = replace(tree, directory=tmp_path / "link" / "tree")
    linked.checkout()
    assert linked.is_sound()
    assert replace(tree, directory=tmp_path / "a" / "b" / "tree").is_sound()


def test_a_clone_of_somebody_s(tree: Tree, upstream: Upstream, server: GitServer) -> None:
    upstream.git("", "clone", "-q", "--recurse-submodules", tree.origin, str(tree.directory))
    server.packs.clear()
    tree.checkout("feature")
    assert server.packs == []  # all of it came with the clone
    assert tree.is_sound()
    assert tree.git("rev-parse", "HEAD") == upstream.git("root", "rev-parse", "feature")


def test_shallow_as_gitmodules_recommends(tree: Tree, upstream: Upstream) -> None:
    key = "submodule.third_party/middle.shallow"
    commit(upstream, lambda root: upstream.git("root", "config", "-f", ".gitmodules", key, "true") and None)
    upstream.git("root", "checkout", "-q", "feature")
    upstream.git("root", "config", "-f", ".gitmodules", key, "true")
    upstream.commit("root", "shallow")
    tree.checkout("feature")
    assert tree.git("rev-list", "--count", "HEAD", where="third_party/middle") == "1"
    assert tree.git("rev-list", "--count", "HEAD") == "3"
    tree.checkout("next")
    assert tree.is_sound()
