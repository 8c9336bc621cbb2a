"""Odd names: of files, through checkout, hipify, patches and back; of refs, which mean one commit or none."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sources import HIPIFY, Tree, Upstream, isolated_environment

from rocm_wheels.core import errors
from rocm_wheels.sources import patches

NO_TEXT = os.fsdecode(b"inv\xff\xfe.cu")
NAMES = (
    "a b.cu", " lead", "trail ", 'q"uote.cu', "q'uote", "new\nline.cu", "tab\tx.cu", "\r", "e\x01c",
    "--help", "-x.cu", "-", unicodedata.normalize("NFD", "é.cu"), unicodedata.normalize("NFC", "é.cu"),
    NO_TEXT, "l" * 250 + ".cu", "d/" * 60 + "x", ".gitfoo", ".git.cu", "dir.git/x", "HEAD", "refs/heads/main",
    "name.lock", "back\\slash", "*.cu", "a:b", "[x]", "{a,b}", "$HOME", "`id`", "x;y", "!bang", "#hash", "~t",
    "%41", ".a/.b/.c",
)  # fmt: skip
LINKS = {
    "out": "/etc/hostname",
    "above": "../../x",
    "dangling": "no/where",
    "folder": "dir.git",
    "self": "self",
}
# names that are no UTF-8 need a script that can spell them
SCRIPT = HIPIFY.replace("read_text()", "read_text(errors='surrogateescape')").replace(
    "write_text(text)", "write_text(text, errors='surrogateescape')"
)
WAYS: dict[str, dict[str, bool]] = {
    "plain": {"hipify": False},
    "hipified": {},
    "uncommitted": {"commit_hipify": False},
}


@dataclass(frozen=True)
class Odd(Upstream):
    """An upstream whose commits A, B and C turn everything into something else."""

    commits: tuple[str, str, str] = ("", "", "")


def write(folder: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    path.chmod(mode)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Odd:
    folder = tmp_path_factory.mktemp("odd")
    if sys.platform != "linux":
        pytest.skip("file names that only Linux has")
    up = Upstream(folder / "repositories", isolated_environment(folder / "home"))
    up.folder.mkdir()
    for name in ("root", "sub"):
        up.git("", "init", "-q", "-b", "main", name)
    write(up.folder / "sub", "s.cu", "cuda s\n")
    up.commit("sub", "s")
    root = up.root
    for name in NAMES:
        write(root, name, f"cuda {name[:50]}\n")
    for name, target in LINKS.items():
        (root / name).symlink_to(target)
    for name, text in {
        "tools/amd_build/build_amd.py": SCRIPT, ".gitignore": "*.o\n/ignored_hip/\n", ".gitmodules": "",
        "to folder": "file", "to file/x": "x", "to file/y/z.cu": "cuda z\n", "to link": "x",
        "folder to link/x.cu": "cuda x\n", "Case.cu": "cuda c\n", "module": "was a file",
    }.items():  # fmt: skip
        write(root, name, text)
    write(root, "exec.cu", "cuda e\n", 0o755)
    (root / "link to file").symlink_to("exec.cu")
    (root / "link to folder").symlink_to("exec.cu")
    first = up.commit("root", "A")
    return Odd(up.folder, up.env, (first, *_second_and_third(up)))


def _second_and_third(up: Upstream) -> Iterator[str]:
    root = up.root
    for name in ("to folder", "to link", "link to file", "link to folder", "module"):
        (root / name).unlink()
    shutil.rmtree(root / "to file")
    shutil.rmtree(root / "folder to link")
    write(root, "to folder/new.cu", "cuda n\n")
    write(root, "to file", "a file now\n")
    (root / "to link").symlink_to("exec.cu")
    write(root, "link to file", "file\n")
    write(root, "link to folder/x.cu", "cuda x\n")
    (root / "folder to link").symlink_to("link to folder")
    (root / "Case.cu").rename(root / "case.cu")
    (root / 'q"uote.cu').rename(root / 'renamed "q"\n.cu')
    (root / "exec.cu").chmod(0o644)
    write(root, "a b.cu", "cuda changed\n", 0o755)
    up.git("root", "rm", "-q", "--cached", "module")
    up.git("root", "submodule", "--quiet", "add", "../sub", "module")
    up.git("root", "submodule", "--quiet", "add", "../sub", 'my "sub" ü')
    yield up.commit("root", "B")
    up.git("root", "rm", "-q", "--cached", "module")
    shutil.rmtree(root / "module")
    write(root, "module/s.cu", "cuda mine\n")
    yield up.commit("root", "C")


def files(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return what lies in a tree but for git's own: link and target, or executable and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if ".git" not in name.parts and path.is_symlink():
            found[str(name)] = ("link", str(path.readlink()))
        elif ".git" not in name.parts and path.is_file():
            found[str(name)] = (bool(path.stat().st_mode & 0o100), path.read_bytes())
    return found


def by_git(odd: Odd, folder: Path, commit: str) -> dict[str, tuple[object, ...]]:
    odd.git("", "clone", "-q", "--no-checkout", odd.url, str(folder))
    odd.git(folder, "checkout", "-q", "--detach", commit)
    odd.git(folder, "submodule", "--quiet", "update", "--init")
    return files(folder)


@pytest.mark.contract_slow
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_everything_turns_into_something_else_and_back(odd: Odd, tmp_path: Path, way: str) -> None:
    tree = Tree(odd, tmp_path / "tree", tmp_path / "none")
    first, second, third = odd.commits
    straight: dict[str, tuple[str, dict[str, tuple[object, ...]]]] = {}
    for commit in odd.commits:
        one = Tree(odd, tmp_path / commit, tmp_path / "none")
        straight[commit] = (one.checkout(commit, patch=False, **WAYS[way]).head, files(one.directory))
        if way == "plain":
            assert straight[commit][1] == by_git(odd, tmp_path / f"git-{commit}", commit)
    for commit in (first, second, third, second, first):
        head = tree.checkout(commit, patch=False, **WAYS[way]).head
        assert (head, files(tree.directory)) == straight[commit]
        if way != "uncommitted":
            assert not tree.git("status", "--porcelain", "-uall", "--ignore-submodules=none")
        assert not tree.status().changed


@pytest.mark.contract
@pytest.mark.slow
def test_own_changes_stay_and_come_back_from_patches(odd: Odd, tmp_path: Path) -> None:
    tree = Tree(odd, tmp_path / "tree", tmp_path / "patches/pytorch/main")
    first, second, _ = odd.commits
    tree.checkout(second, patch=False)
    for name in ("a b.cu", "new\nline.cu", "--help", "HEAD", NO_TEXT, 'un"tracked\n'):
        write(tree.directory, name, "mine\n")
    (tree.directory / "tab\tx.cu").rename(tree.directory / "tab\ty.cu")
    before = files(tree.directory)
    with pytest.raises(errors.SourceError, match="has changes of yours") as refused:
        tree.checkout(first, patch=False)
    for words in (
        "modified --help",
        "modified HEAD",
        "modified new\nline.cu",
        "removed tab\tx.cu",
        'new un"tracked\n',
    ):
        assert words in refused.value.message
    assert files(tree.directory) == before
    listed = {path for _, path in tree.status().repositories[0].files}
    assert {"a b.cu", NO_TEXT, "tab\ty.cu", 'un"tracked\n'} <= listed

    assert tree.translate()
    before = files(tree.directory)
    tree.git("add", "-A")
    tree.git("commit", "-q", "-m", "Mine: ünï")
    assert len(tree.save().written) == 1
    wanted = tree.git("rev-parse", "HEAD^{tree}")
    assert tree.checkout(second)
    assert tree.git("rev-parse", "HEAD^{tree}") == wanted
    assert files(tree.directory) == before
    assert tree.save().written == ()
    assert tree.status().labels == ("patched", "hipified")
    with pytest.raises(patches.PatchRefusedError):
        tree.checkout(first)
    assert tree.status().interrupted == "checkout"
    tree.checkout(second)
    assert files(tree.directory) == before


@pytest.mark.contract
def test_a_file_in_the_way_is_named_by_its_outermost_part(odd: Odd, tmp_path: Path) -> None:
    tree = Tree(odd, tmp_path / "tree", tmp_path / "none")
    first, second, third = odd.commits
    tree.checkout(second, patch=False, hipify=False, submodules=False)
    write(tree.directory, "module/s.cu", "mine, where git does not look\n")
    before = files(tree.directory)
    with pytest.raises(errors.SourceError, match=r"are in the way of .*:\n  module/s.cu"):
        tree.checkout(third, patch=False, hipify=False, submodules=False)
    assert files(tree.directory) == before
    (tree.directory / "module/s.cu").unlink()
    tree.checkout(first, patch=False, hipify=False)
    (tree.directory / ".git/info").mkdir(exist_ok=True)
    (tree.directory / ".git/info/exclude").write_text("/case.cu\n")
    (tree.directory / "case.cu").symlink_to("dir.git")
    with pytest.raises(errors.SourceError, match=r"are in the way of .*:\n  case.cu"):
        tree.checkout(second, patch=False, hipify=False)
    assert (tree.directory / "case.cu").is_symlink()


@pytest.fixture(scope="module")
def refs(upstream: Upstream) -> Upstream:
    """An upstream with a ref of every kind; each name says where it leads."""
    up = upstream
    feature = up.git("root", "rev-parse", "feature")
    for words in (
        ("tag", "-a", "twice", "-m", "x", "v1"),
        ("tag", "thrice", "twice"),
        ("tag", "a-tree", "main^{tree}"),
        ("tag", "-a", "a-tree-annotated", "-m", "x", "main^{tree}"),
        ("tag", "a-file", "main:plain.txt"),
        ("tag", "equal", "main"),
        ("branch", "equal", "main"),
        ("tag", "differing", "main"),
        ("branch", "differing", "feature"),
        ("update-ref", f"refs/heads/{feature}", "main"),
        ("update-ref", f"refs/heads/{'1' * 40}", "main"),
        ("update-ref", "refs/tags/refs/heads/main", "feature"),
        ("update-ref", "refs/heads/HEAD", "feature"),
        ("update-ref", "refs/heads/heads/deep", "feature"),
        ("update-ref", "refs/heads/ünï-\N{SNOWMAN}", "feature"),
        ("update-ref", "refs/notes/commits", "main:plain.txt"),
    ):
        up.git("root", *words)
    return up


ONE_COMMIT = {
    "twice": "main",
    "thrice": "main",
    "tags/thrice": "main",
    "refs/pull/7/head": "refs/pull/7/head",
    "pull/7/head": "refs/pull/7/head",
    "equal": "main",
    "refs/tags/differing": "main",
    "heads/differing": "feature",
    "FEATURE": "feature",
    "feature upper": "feature",
    "refs/heads/FEATURE": "main",
    f"refs/heads/{'1' * 40}": "main",
    "refs/heads/main": "main",
    "heads/main": "main",
    "main": "main",
    "MAIN": "main",
    "v1": "main",
    "tags/v1": "main",
    "HEAD": "main",
    "refs/heads/HEAD": "feature",
    "heads/deep": "feature",
    "ünï-\N{SNOWMAN}": "feature",
    "v1 object": "main",
}


@pytest.mark.contract
@pytest.mark.slow
def test_a_ref_means_one_commit(refs: Upstream, tmp_path: Path) -> None:
    tree = Tree(refs, tmp_path / "tree", tmp_path / "none")
    main, feature, tag = refs.git("root", "rev-parse", "main^{commit}", "feature", "v1").split()
    odd = {"feature upper": feature.upper(), "v1 object": tag, "MAIN": main}
    for name, commit in ONE_COMMIT.items():
        ref = odd.get(name, name.replace("FEATURE", feature))
        head = tree.checkout(ref, patch=False, hipify=False, submodules=False, depth=1).head
        assert head == refs.git("root", "rev-parse", f"{commit}^{{commit}}"), name
        assert tree.git("rev-list", "--count", "HEAD") == "1", name


NO_COMMIT = {
    "a-tree": "refs/tags/a-tree of .* is a tree, not a commit",
    "a-tree-annotated": "refs/tags/a-tree-annotated of .* is a tree, not a commit",
    "a-file": "refs/tags/a-file of .* is a blob, not a commit",
    "refs/notes/commits": "refs/notes/commits of .* is a blob, not a commit",
    "differing": r"differing of .* is ambiguous: refs/heads/differing is \w+, refs/tags/differing is \w+",
    "1" * 40: "not our ref",
    "TREE": "is a tree, not a commit",
    "deep": "has no branch, tag or ref deep",
    "feature/": "is not a ref",
}


@pytest.mark.contract
@pytest.mark.parametrize("name", NO_COMMIT)
def test_a_ref_that_means_none_or_two(refs: Upstream, tmp_path: Path, name: str) -> None:
    tree = Tree(refs, tmp_path / "tree", tmp_path / "none")
    ref = refs.git("root", "rev-parse", "main^{tree}") if name == "TREE" else name
    with pytest.raises(errors.RocmWheelsError, match=NO_COMMIT[name]) as refused:
        tree.checkout(ref, patch=False)
    assert refused.value.tip
    assert not tree.directory.exists()
