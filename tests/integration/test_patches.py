"""Patches: saved, applied, saved again; what does not apply leaves the tree as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sources import DEEP, MIDDLE, ODD, Tree, Upstream, times, write_files

from rocm_wheels.core import errors
from rocm_wheels.models.lock import Lock, LockedPatches, LockedProject
from rocm_wheels.sources import lock, patches, resolve_lock

pytestmark = pytest.mark.contract

UPSTREAM, HIPIFIED = "THEROCK_UPSTREAM_DIFFBASE", "THEROCK_HIPIFY_DIFFBASE"


@pytest.fixture
def tree(upstream: Upstream, hipified: Path, tmp_path: Path) -> Tree:
    return Tree(upstream, tmp_path / "tree", tmp_path / "patches/pytorch/main", template=hipified)


@pytest.fixture(scope="module")
def saved(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set with all that is awkward, written from two trees as a developer would."""
    folder = tmp_path_factory.mktemp("saved")
    tree = Tree(upstream, folder / "tree", folder / "patches/pytorch/main")
    awkward(tree)
    return tree.patch_set


def awkward(tree: Tree) -> None:
    """Make patches of every kind: base ones without hipify, then hipified ones on top."""
    tree.checkout(hipify=False)
    tree.commit("Deep base", {"deep.cu": "cuda patched deep\n"}, DEEP)
    title = "[ROCm] Base: ünïcode, and a subject that is much longer than what fits a line"
    tree.commit(title, {
        "a.cu": "cuda patched\n", "new/näme \"q\"": "x\n",
        "crlf.txt": b"one\r\ntwo\r\n", "latin": b"caf\xe9\n",
    })  # fmt: skip
    tree.commit("Change them\n\nA body\n\n  indented, and trailing \n@@ -1 +1 @@ no hunk\n", {
        "crlf.txt": b"one\r\n2\r\n", "bin": bytes(range(256)) * 9, "no newline": "x", "spaces": "a \n\t\n",
    })  # fmt: skip
    (tree.directory / "plain.txt").rename(tree.directory / "renamed.txt")
    (tree.directory / "version.txt").chmod(0o755)
    tree.git("rm", "-q", "b.cu")
    (tree.directory / "link").symlink_to("renamed.txt")
    tree.commit("Rename, mode, link", {})
    tree.commit("Nothing at all", {})
    tree.save()
    tree.checkout()
    tree.commit("Hipified deep", {"hip/deep.hip": "hip patched deep\n"}, DEEP)
    tree.commit("Hipified middle", {"hip/mid.hip": "hip patched mid\n"}, MIDDLE)
    tree.commit("Hipified root", {"hip/a.hip": "hip edited\n", ODD: "odd\n"})
    tree.save()


def test_save_checkout_save_is_the_identity(upstream: Upstream, saved: Path, tmp_path: Path) -> None:
    first = Tree(upstream, tmp_path / "first", shutil.copytree(saved, tmp_path / "a/main"))
    head, before = first.checkout().head, first.patches()
    assert sorted(before) == [
        "base/0001-ROCm-Base-n-code-and-a-subject-that-is-much-longer-t.patch",
        "base/0002-Change-them.patch",
        "base/0003-Rename-mode-link.patch",
        "base/0004-Nothing-at-all.patch",
        f"base/{DEEP}/0001-Deep-base.patch",
        "hipified/0001-Hipified-root.patch",
        f"hipified/{MIDDLE}/0001-Hipified-middle.patch",
        f"hipified/{DEEP}/0001-Hipified-deep.patch",
    ]
    again = first.save()
    assert (again.written, again.removed, first.patches()) == ((), (), before)
    tree = first.directory
    assert (tree / "crlf.txt").read_bytes() == b"one\r\n2\r\n"
    assert (tree / "bin").read_bytes() == bytes(range(256)) * 9
    assert (tree / "latin").read_bytes() == b"caf\xe9\n"
    assert (tree / 'new/näme "q"').read_text() == "x\n"
    assert (tree / "hip/a.hip").read_text() == "hip edited\n"
    assert (tree / DEEP / "hip/deep.hip").read_text() == "hip patched deep\n"
    assert (tree / "link").readlink() == Path("renamed.txt")
    assert os.access(tree / "version.txt", os.X_OK)
    assert not first.git("status", "--porcelain", "-uall", "--ignore-submodules=none")
    assert first.git("rev-parse", UPSTREAM) == upstream.git("root", "rev-parse", "main")
    subjects = first.git("log", "--format=%s", "--reverse", f"{UPSTREAM}..HEAD").splitlines()
    middle = subjects.index("DO NOT SUBMIT: HIPIFY")
    assert first.git("log", "-1", "--format=%s", HIPIFIED) == "DO NOT SUBMIT: HIPIFY"
    assert subjects[middle + 1 :] == [
        "DO NOT SUBMIT: SUBMODULES OF PATCHES",
        "Hipified root",
        "DO NOT SUBMIT: HIPIFY",  # of the source that the patch changes
    ]
    translated = ODD.removesuffix(".cu") + ".hip"
    assert (tree / "hip" / translated).read_text() == "odd\n"
    assert first.git("log", "-1", "--format=%an %ai|%cn %ci", "HEAD^") == (
        "Up Stream 2023-11-15 03:43:20 +0530|rocm-wheels 2023-11-15 03:43:20 +0530"
    )
    second = Tree(upstream, tmp_path / "second", first.patch_set)
    others = {"TZ": "Asia/Tokyo", "GIT_AUTHOR_NAME": "X", "EMAIL": "x@y.z", "HOME": str(hostile(tmp_path))}
    second.env = {**second.env, **others}
    assert second.checkout().head == head
    assert second.save().written == ()


def test_git_am_takes_the_files(upstream: Upstream, saved: Path, tmp_path: Path) -> None:
    tree = Tree(upstream, tmp_path / "tree", saved)
    tree.checkout(hipify=False)
    wanted = tree.git("log", "--format=%an %ae %ai %B", f"{UPSTREAM}..HEAD", "--", ".", f":!{MIDDLE}")
    tree.git("checkout", "-q", UPSTREAM)
    files = sorted(map(str, saved.glob("base/000[123]*.patch")))
    tree.git("am", "-q", "--keep-cr", "--keep-non-patch", *files)
    assert tree.git("log", "--format=%an %ae %ai %B", f"{UPSTREAM}..HEAD") == wanted


def hostile(folder: Path) -> Path:
    """Return a HOME whose git configuration would change every patch file."""
    home = folder / "hostile"
    home.mkdir()
    settings = """
        apply.whitespace=fix apply.ignoreWhitespace=change core.abbrev=7 core.quotePath=false
        diff.algorithm=patience diff.context=9 diff.interHunkContext=5 diff.mnemonicPrefix=true
        diff.noprefix=true diff.renames=copies diff.suppressBlankEmpty=true format.attach=x
        format.from=true format.headers=X-Y:z format.numbered=true format.signOff=true
        format.signature=me format.subjectPrefix=RFC format.suffix=.txt format.to=a@b.c
        format.useAutoBase=true format.coverLetter=true i18n.commitEncoding=latin1 am.keepcr=false
        i18n.logOutputEncoding=latin1 user.name=Me user.email=me@here mailinfo.scissors=true
        commit.gpgSign=true format.thread=true format.notes=true
    """
    for key, value in (setting.split("=") for setting in settings.split()):
        subprocess.run(["git", "config", "--file", home / ".gitconfig", key, value], check=True)
    return home


def test_a_changed_set_is_applied_again_and_unchanged_files_keep_their_times(
    upstream: Upstream, saved: Path, tmp_path: Path
) -> None:
    tree = Tree(upstream, tmp_path / "tree", shutil.copytree(saved, tmp_path / "main"))
    head = tree.checkout().head
    before = times(tree.directory)
    assert tree.checkout().head == head
    assert times(tree.directory) == before
    (tree.patch_set / "hipified/0001-Hipified-root.patch").unlink()
    assert tree.checkout().head != head
    assert (tree.directory / "hip/a.hip").read_text() == "hip patched\n"
    after = times(tree.directory)
    changed = {name for name in before if after.get(name) != before[name]}
    translated = ODD.removesuffix(".cu") + ".hip"
    assert changed == {"hip/a.hip", ODD, f"hip/{translated}", f"ignored_hip/{translated}"}
    plain = tree.checkout(patch=False, hipify=False).head
    assert plain == upstream.git("root", "rev-parse", "main")
    assert tree.checkout(commit_hipify=False, patch=False).head == plain


def test_where_the_sets_lead_without_hipify_or_commit(
    upstream: Upstream, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(upstream, tmp_path / "tree", shutil.copytree(saved, tmp_path / "main"))
    for way, said in (
        ("commit_hipify", "hipified has patches, which go on top of the commit"),
        ("submodules", r"for submodules \(third_party/middle.*there are to be none"),
    ):
        with pytest.raises(patches.PatchRefusedError, match=said):
            tree.checkout(**{way: False})
    assert not tree.directory.exists()
    tree.checkout(hipify=False)
    assert "hipified is left out: the tree is not hipified" in capsys.readouterr().err
    assert not (tree.directory / "hip").exists()
    before = tree.patches()
    assert tree.save().written == ()
    assert tree.patches() == before
    assert "stays as it is" in capsys.readouterr().err
    shutil.rmtree(tree.patch_set / "hipified")
    tree.checkout(commit_hipify=False)
    assert (tree.directory / "hip/a.hip").read_text() == "hip patched\n"
    tree.git("commit", "-q", "--allow-empty", "-m", "Mine")
    with pytest.raises(errors.SourceError, match="cannot be told apart"):
        tree.save()


# which repository a patch no longer fits → its file, what it takes away, what it would have to
BREAKS = {
    "base": ("base/0002-Change-them.patch", b"-two\r", b"-three\r"),
    "deep": (f"base/{DEEP}/0001-Deep-base.patch", b"-cuda deep", b"-cuda other"),
    "hipified": ("hipified/0001-Hipified-root.patch", b"-hip patched", b"-hip other"),
}


def break_patch(what: str, folder: Path) -> str:
    name, old, new = BREAKS[what]
    (folder / name).write_bytes((folder / name).read_bytes().replace(old, new))
    return Path(name).name


@pytest.mark.slow
@pytest.mark.parametrize("what", BREAKS)
def test_a_patch_that_does_not_apply(
    upstream: Upstream, saved: Path, tmp_path: Path, what: str, exhaustive: bool
) -> None:
    """A base patch is tried before a file is touched; a hipified one leaves a tree that says it is half done.

    In trees that were checked out in three ways; a sample has one of them for each patch.
    """
    good = Tree(upstream, tmp_path / "tree", saved)
    bad = Tree(upstream, tmp_path / "tree", shutil.copytree(saved, tmp_path / "main"))
    name = break_patch(what, bad.patch_set)
    middle = upstream.git("root", "rev-parse", f"main:{MIDDLE}")
    deep = upstream.git("middle", "rev-parse", f"{middle}:deep dir")
    needed = deep if what == "deep" else upstream.git("root", "rev-parse", "main")
    ways: list[dict[str, object]] = [
        {},
        {"commit_hipify": False, "patch": False},
        {"patch": False, "hipify": False},
    ]
    turn = list(BREAKS).index(what)
    for way in ways if exhaustive else ways[turn : turn + 1]:
        good.checkout(**way)  # type: ignore[arg-type]
        before, seen = good.everything(), times(good.directory)
        with pytest.raises(patches.PatchRefusedError, match=name) as refused:
            bad.checkout("main")
        assert f"it needs commit {needed}" in refused.value.message
        if what == "hipified":
            assert good.status().interrupted == "checkout"
        else:
            assert good.everything() == before
            assert times(good.directory) == seen
        assert good.checkout(**way).head == good.git("rev-parse", "HEAD")  # type: ignore[arg-type]
        assert good.everything()[0] == before[0]
        assert times(good.directory) == seen
    shutil.rmtree(good.directory)
    with pytest.raises(patches.PatchRefusedError, match=name):
        bad.checkout()
    assert what == "hipified" or [path.name for path in bad.directory.iterdir()] == [".git"]
    good.checkout()
    fresh = Tree(upstream, tmp_path / "fresh", saved)
    fresh.checkout()
    assert good.everything()[:6] == fresh.everything()[:6]


def test_a_line_that_moved_on(upstream: Upstream, saved: Path, tmp_path: Path) -> None:
    tree = Tree(upstream, tmp_path / "tree", saved)
    tree.checkout()
    before = tree.everything()
    needed = upstream.git("root", "rev-parse", "main")
    with pytest.raises(
        patches.PatchRefusedError,
        match=rf"0001-ROCm.*does not apply to upstream's .*it needs commit {needed}",
    ):
        tree.checkout("feature")
    assert tree.everything() == before


def test_a_clone_of_somebodys_keeps_its_branch(upstream: Upstream, saved: Path, tmp_path: Path) -> None:
    upstream.git(tmp_path, "clone", "-q", "--recursive", upstream.url, "tree")
    tree = Tree(upstream, tmp_path / "tree", shutil.copytree(saved, tmp_path / "main"))
    mine = tree.commit("Mine", {"a.cu": "cuda mine\n"})
    break_patch("hipified", tree.patch_set)
    with pytest.raises(patches.PatchRefusedError):
        tree.checkout("main")
    assert tree.git("rev-parse", "refs/heads/main") == mine
    tree.checkout("main", patch=False)
    assert tree.git("rev-parse", "refs/heads/main") == mine


def test_commits_of_ones_own_are_kept_on_a_named_branch(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.checkout(patch=False)
    mine = tree.commit("Mine", {"a.cu": "cuda mine\n"})
    deep = tree.commit("Deeper", {"x": "y"}, DEEP)
    tree.checkout("feature", patch=False)
    said = capsys.readouterr().err
    assert f"kept on its branch kept-{mine[:12]}" in said
    assert f"kept on its branch kept-{deep[:12]}" in said
    assert "Mine" in said
    assert tree.git("rev-parse", f"kept-{mine[:12]}") == mine
    assert tree.git("rev-parse", f"kept-{deep[:12]}", where=DEEP) == deep
    tree.git("switch", "-q", f"kept-{mine[:12]}")
    tree.checkout("main", patch=False)
    assert f"its branch kept-{mine[:12]}" in capsys.readouterr().err
    assert len(tree.git("for-each-ref", "refs/heads").splitlines()) == 1
    tree.checkout("feature", patch=False)
    assert "kept" not in capsys.readouterr().err


def test_a_patch_of_a_source_brings_what_hipify_makes_of_it(upstream: Upstream, tmp_path: Path) -> None:
    sets = tmp_path / "patches/pytorch/main"
    mine = Tree(upstream, tmp_path / "mine", sets)
    mine.checkout(patch=False)
    mine.commit("Edit a kernel", {"a.cu": "cuda mine\n"})
    assert mine.save().written == ("hipified/0001-Edit-a-kernel.patch",)
    other = Tree(upstream, tmp_path / "other", sets)
    other.checkout()
    assert (other.directory / "hip/a.hip").read_text() == "hip mine\n"
    assert (other.directory / "ignored_hip/a.hip").read_text() == "hip mine\n"
    assert not other.git("status", "--porcelain", "-uall")
    assert other.save().written == ()
    status = other.status()
    assert (status.labels, status.changed_since_hipify) == (("patched", "hipified"), False)
    # what hipify made of it is in the patch where another one builds on it
    other.commit("Edit what it makes", {"hip/a.hip": "hip mine, and more\n"})
    assert set(other.save().written) == {
        "hipified/0001-Edit-a-kernel.patch",
        "hipified/0002-Edit-what-it-makes.patch",
    }
    third = Tree(upstream, tmp_path / "third", sets)
    third.checkout()
    assert (third.directory / "hip/a.hip").read_text() == "hip mine, and more\n"
    assert (third.directory / "a.cu").read_text() == "cuda mine\n"
    assert third.save().written == ()


def test_commits_after_an_uncommitted_hipify_of_a_hipified_tree_are_saved(
    upstream: Upstream, tmp_path: Path
) -> None:
    mine = Tree(upstream, tmp_path / "mine", tmp_path / "patches/pytorch/main")
    mine.checkout(patch=False)
    (mine.directory / "a.cu").write_text("cuda mine\n")
    mine.hipify(commit=False)
    mine.commit("Both", {})
    assert mine.save().written == ("hipified/0001-Both.patch",)
    assert b"+hip mine" in mine.patches()["hipified/0001-Both.patch"]


MAIL = "From: A <a@b.c>\nDate: Sat, 21 Nov 2026 11:25:01 +0000\nSubject: x\n\n---\n"
NEW = MAIL + "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+b\n"
MOVE = (
    f"{MAIL}diff --git a/{MIDDLE} b/{MIDDLE}\nindex OLD..{'1' * 40} 160000\n--- a/{MIDDLE}\n+++ b/{MIDDLE}\n"
    f"@@ -1 +1 @@\n-Subproject commit OLD\n+Subproject commit {'1' * 40}\n"
)
# a file of the set and what is in it → what is said; the tree is as it was
WRONG_SETS = [
    ("x.patch", "x", "is neither in base/ nor in hipified/"),
    ("hipify/x.patch", "x", "is neither in base/ nor in hipified/"),
    ("base/x.diff", "x", "does not end in .patch"),
    ("base/x.patch", "\n", "base/x.patch is empty"),
    ("base/x.patch", "diff --git a/a b/a\n", "has no author and date"),
    ("base/x.patch", "From: A <a@b.c>\nSubject: x\n\n---\n", "has no author and date"),
    ("base/x.patch", "From: A <a@b.c>\nDate: yesterday\nSubject: x\n\n---\n", "has no author and date"),
    ("base/nowhere/x.patch", "x", "is for a submodule nowhere, which is not in"),
    ("base/x.patch", f"{MAIL}--- a.cu\n+++ a.cu\n@@ -1 +1 @@\n-cuda a\n+b\n", "is not a git diff"),
    (
        "base/x.patch",
        MAIL + "diff --git a/n b/n\n--- a/n\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n",
        "does not say which",
    ),
    ("base/x.patch", NEW.format("../o"), "x.patch does not apply"),
    ("base/x.patch", NEW.format(".git/o"), "x.patch does not apply"),
    ("base/x.patch", MOVE, f"move the submodule {MIDDLE}"),
]


@pytest.fixture(scope="module")
def plain(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = Tree(upstream, tmp_path_factory.mktemp("plain") / "tree", Path("none"))
    tree.checkout(hipify=False, patch=False)
    return tree.directory


@pytest.mark.parametrize("row", WRONG_SETS)
def test_wrong_sets(upstream: Upstream, plain: Path, tmp_path: Path, row: tuple[str, str, str]) -> None:
    name, text, said = row
    tree = Tree(upstream, plain, tmp_path / "main")
    (tree.patch_set / name).parent.mkdir(parents=True)
    (tree.patch_set / name).write_text(
        text.replace("OLD", upstream.git("root", "rev-parse", f"main:{MIDDLE}"))
    )
    before = tree.everything()
    with pytest.raises(errors.RocmWheelsError) as refused:
        tree.checkout(hipify=False)
    assert said in errors.explain_error(refused.value)
    assert "tip:" in errors.explain_error(refused.value)
    assert tree.everything() == before


def test_an_ignored_file_where_a_patch_has_one_is_kept(tree: Tree) -> None:
    tree.checkout(hipify=False, patch=False)
    (tree.directory / "x.o").write_text("ignored, and somebody's")
    assert tree.patch_set is not None
    (tree.patch_set / "base").mkdir(parents=True)
    (tree.patch_set / "base/x.patch").write_text(NEW.format("x.o"))
    with pytest.raises(patches.PatchRefusedError) as refused:
        tree.checkout(hipify=False)
    assert "in the way" in errors.explain_error(refused.value)
    assert (tree.directory / "x.o").read_text() == "ignored, and somebody's"
    (tree.directory / "x.o").rename(tree.directory / "y.o")
    tree.checkout(hipify=False)
    assert (tree.directory / "y.o").read_text() == "ignored, and somebody's"


def merge_side(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "side", "HEAD~0")
    tree.commit("Side", {"s": "s"})
    tree.git("checkout", "-q", "--detach", HIPIFIED)
    tree.git("merge", "-q", "--no-ff", "-m", "Merge", "side")


def commit(message: str) -> Callable[[Tree], object]:
    return lambda tree: tree.commit(message, {"x": "y"})


# what is done in a tree → why it cannot be saved
UNSAVEABLE: list[tuple[Callable[[Tree], object], str]] = [
    (lambda tree: write_files(tree.directory, {"a.cu": "mine"}), "changes that are not committed: a.cu"),
    (merge_side, "is a merge (Merge)"),
    (lambda tree: tree.git("checkout", "-q", UPSTREAM), f"is not on top of {HIPIFIED}"),
    (lambda tree: tree.git("tag", "-d", UPSTREAM, where=MIDDLE), f"has no tag {UPSTREAM}"),
    (commit("One\n\nbody\n---\nlost"), "come back as another one"),
    (commit("One\n\ndiff --git a/x b/x\nlost"), "cannot"),
    (commit("One\n\nFrom: Other <o@o.o>\n\nbody"), "come back as another one"),
    (commit("[PATCH 1/2] One"), "come back as another one"),
    (
        lambda tree: write_files(tree.patch_set, {"base/0001-x.patch": "not of this tree"}),
        "was not made with",
    ),
]


@pytest.mark.parametrize(("work", "said"), UNSAVEABLE)
def test_what_cannot_be_saved(tree: Tree, work: Callable[[Tree], object], said: str) -> None:
    tree.checkout(patch=False)
    work(tree)
    before = (tree.everything(), tree.patches() if tree.patch_set.exists() else None)
    with pytest.raises(errors.SourceError) as refused:
        tree.save()
    assert said in refused.value.message and refused.value.tip
    assert (tree.everything(), tree.patches() if tree.patch_set.exists() else None) == before


def test_saving_twice_and_less(tree: Tree) -> None:
    tree.checkout(patch=False)
    tree.commit("One", {"x": "y"})
    tree.commit("Two", {"x": "z"})
    assert len(tree.save().written) == 2
    tree.git("reset", "-q", "--hard", "HEAD^")
    assert tree.save().removed == ("hipified/0002-Two.patch",)
    tree.git("reset", "-q", "--hard", "HEAD^")
    tree.save()
    assert not list(tree.patch_set.iterdir())


def test_locked_files_are_read_and_patched_to_their_last_line(tree: Tree, tmp_path: Path) -> None:
    """As `lock update FILE tools` reads requirements: a patch that adds to the end of one applies."""
    tree.checkout(hipify=False, patch=False)
    text = (tree.directory / "version.txt").read_text()
    assert text.endswith("\n")
    tree.commit("More", {"version.txt": f"{text}more\n", "none.txt": b"\xef\xbb\xbf-r version.txt\n"})
    tree.save()
    patch_set = patches.read_patch_set(tree.patch_set)
    locked = LockedProject(
        origin=tree.upstream.url,
        ref="main",
        why="test",
        commit=tree.upstream.git("root", "rev-parse", "main"),
        patches=LockedPatches(name=patch_set.folder.name, digest=patch_set.digest),
    )
    texts = list[str]()

    def list_included(read: str) -> list[str]:
        texts.append(read)
        return []

    resolve_lock.write_locked_files(
        lock.LockFile(tmp_path / "lock", Lock(platform="linux", projects={"pytorch": locked})),
        {"pytorch": ["version.txt", "none.txt"]},
        tmp_path / "files",
        list_included=list_included,
        checkouts=None,
        patches=tmp_path / "patches",
        env=tree.env,
        transport=tree.transport,
    )
    assert texts == [f"{text}more\n", "-r version.txt\n"]  # and no mark of UTF-8
