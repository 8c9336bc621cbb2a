"""Local commits of a checkout as a patch set: what `checkout` would apply to make them again.

What is written is applied before, in the repository's objects: a commit that would come back
as another one is refused, so that saving, checking out and saving again changes no byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError
from rocm_wheels.model.project import Project
from rocm_wheels.sources import protect
from rocm_wheels.sources.git import Git, find_git_directory, disable_private_filters
from rocm_wheels.sources.patches.apply import is_our_commit
from rocm_wheels.sources.patches.mail import PatchRefusedError, commit_series, format_patch
from rocm_wheels.sources.patches.sets import Patch, PatchSet, read_patch_set
from rocm_wheels.sources.state import (
    HIPIFY_MESSAGE,
    HIPIFY_TAG,
    OWN_FOLDER,
    UPSTREAM_TAG,
    CheckoutState,
    read_state,
    write_state,
)
from rocm_wheels.sources.trees import TreePart, has_head_commit, read_head_and_folder, list_repositories
from rocm_wheels.sources.unfinished import refuse_unfinished_operations
from rocm_wheels.workspace import lock_folder, write_atomically

_CHECKOUT_TIP = "run `checkout` first, or name it with --checkout-dir"


@dataclass(frozen=True)
class SavedPatches:
    """``patches``: what the set holds now, by name; ``written`` and ``removed``: what changed on the disk."""

    folder: Path
    patches: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class _TaggedRepository:
    """One repository with its two tags (``hipified`` empty: without that tag)."""

    part: TreePart
    upstream: str
    hipified: str
    head: str


def save_patches(
    project: Project, directory: Path, folder: Path, *, replace_others: bool, env: Mapping[str, str]
) -> SavedPatches:
    """Write the commits of ``directory`` to the set in ``folder``: base and, where hipified, hipified.

    What hipify makes of them need not be there: `checkout` hipifies what patches change.
    ``replace_others``: also over patches that this tree was not made with. Raises SourceError,
    with nothing written: no tags, changes that are not committed, history with a merge or not on
    top of the tags, a commit that no patch can give back.
    """
    directory = directory.absolute()
    if not (directory / ".git").exists():
        raise SourceError(f"{directory} is not a git checkout", tip=_CHECKOUT_TIP)
    git = disable_private_filters(Git(directory, env))
    git_dir = find_git_directory(git)
    with lock_folder(git_dir / OWN_FOLDER, purpose=f"save-patches of {project.name}"):
        state = read_state(git_dir)
        _require_settled_tree(git, state)
        tagged = [_read_tags(part) for part in list_repositories(git) if has_head_commit(part.git)]
        old = read_patch_set(folder)
        known_digests = ("", state.patches, state.saved) if state is not None else ("",)
        base = {t.part.path: _make_series(t, "base") for t in tagged}
        hipified: Mapping[str, Sequence[Patch]] = old.hipified
        if tagged[0].hipified:
            hipified = {t.part.path: _make_series(t, "hipified") for t in tagged}
        elif old.hipified:
            log.log_note(f"{folder / 'hipified'} stays as it is: the tree is not hipified")
        new = PatchSet(folder, _drop_empty(base), _drop_empty(hipified))
        if new.digest != old.digest and old.digest not in known_digests and not replace_others:
            raise SourceError(
                f"{folder} has patches that {directory} was not made with; they would be lost",
                tip="check out with that set first (--patchset), save under another name, or use --replace",
            )
        saved = _write_set(old, new)
        if state is not None:
            write_state(git_dir, replace(state, saved=new.digest))
    return saved


def read_patch_origin(directory: Path, *, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the set that a tree was made with, and its ref; empty where that is not known."""
    if not (directory / ".git").exists():
        raise SourceError(f"{directory} is not a git checkout", tip=_CHECKOUT_TIP)
    state = read_state(find_git_directory(Git(directory.absolute(), env)))
    return (state.patch_set, state.ref) if state is not None else ("", "")


def _require_settled_tree(git: Git, state: CheckoutState | None) -> None:
    if state is not None and state.operation is not None:
        raise SourceError(
            f"the {state.operation} in {git.directory} was interrupted",
            tip="run `checkout` again; it carries on",
        )
    parts = list_repositories(git)
    refuse_unfinished_operations(parts)
    root = state.left.get("") if state is not None else None
    if state is not None and state.hipify == "uncommitted" and root is not None:
        for part in list_repositories(git):
            recorded = state.left.get(part.path)
            if recorded is None or not recorded.uncommitted or _is_hipified(part.git):
                continue
            if read_head_and_folder(part.git)[0] != recorded.head:
                raise SourceError(
                    f"{part.git.directory} has commits made while what hipify wrote was not committed; "
                    "the two cannot be told apart",
                    tip="check out with --commit-hipify (or --no-hipify) and commit there",
                )
    files = [part.path_from_root(path) for part in parts for _, path in protect.list_own_changes(part, state)]
    if files:
        raise SourceError(
            f"{git.directory} has changes that are not committed: {', '.join(files[:5])}"
            + (f" and {len(files) - 5} more" if len(files) > 5 else ""),
            tip="commit them, one commit a patch, or put them away with `git stash -u`",
        )


def _is_hipified(git: Git) -> bool:
    """Tell whether what hipify first wrote is committed: what comes after it is in commits of its own."""
    return git.succeeds("merge-base", "--is-ancestor", f"refs/tags/{HIPIFY_TAG}", "HEAD")


def _read_tags(part: TreePart) -> _TaggedRepository:
    git = part.git
    head = read_head_and_folder(git)[0]
    commits = []
    for name in (UPSTREAM_TAG, HIPIFY_TAG):
        commits.append(git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{name}"))
        if commits[-1] and not git.succeeds("merge-base", "--is-ancestor", commits[-1], head):
            raise SourceError(
                f"HEAD of {git.directory} is not on top of {name}",
                tip=f"`git rebase --onto {name} <where your work begins>`, or run `checkout` again",
            )
    if not commits[0]:
        raise SourceError(
            f"{git.directory} has no tag {UPSTREAM_TAG}", tip="run `checkout` first; it sets it"
        )
    return _TaggedRepository(part, commits[0], commits[1], head)


def _make_series(tagged: _TaggedRepository, stage: str) -> list[Patch]:
    """Return the patches of a stage in one repository, after a trial that they give the same again."""
    git, boundary = tagged.part.git, tagged.hipified or tagged.head
    start, end = (tagged.upstream, boundary) if stage == "base" else (boundary, tagged.head)
    commits = _list_commits(git, start, end, hipified=stage == "hipified")
    patches = [format_patch(git, commit, number, tagged.upstream) for number, commit in enumerate(commits, 1)]
    try:
        recommitted, _ = commit_series(git, start, patches, where=f"{start[:12]}, in a trial")
    except PatchRefusedError as cause:
        raise SourceError(
            f"the commits in {git.directory} cannot be saved as patches one after another",
            tip="keep them between the tags in one line, without what a mail cannot hold "
            "(a message with a line that begins with `diff -` or `---`)",
        ) from cause
    for number, (commit, patch) in enumerate(zip(recommitted, patches, strict=True), 1):
        if format_patch(git, commit, number, tagged.upstream) != patch:
            raise SourceError(
                f"commit {commits[number - 1][:12]} of {git.directory} ({patch.name}) would come back as "
                "another one: its message or author has something that a mail cannot hold",
                tip="reword it: no line that begins with `---`, `diff -` or `From:`, no [PATCH] in front",
            )
    prefix = "/".join(word for word in (stage, tagged.part.path) if word)
    return [Patch(f"{prefix}/{patch.name}", patch.data) for patch in patches]


def _list_commits(git: Git, start: str, end: str, *, hipified: bool) -> list[str]:
    """List the commits to save, oldest first: not ours, not those that only move submodules.

    ``hipified``: what hipify made of them belongs to them. A commit is listed with it where another one
    follows, which may change that further.
    """
    commits: list[str] = []
    translated = ""
    form = "--format=%H%x09%P%x09%ce%x09%s"
    for line in git.fields("log", "-z", "--reverse", "--topo-order", form, f"{start}..{end}", "--"):
        commit, parents, email, subject = line.split("\t", 3)
        if len(parents.split()) > 1:
            raise SourceError(
                f"commit {commit[:12]} of {git.directory} is a merge ({subject}), which no patch can hold",
                tip="`git rebase` your work onto the tag",
            )
        if is_our_commit(email, subject):
            translated = commit if hipified and subject == HIPIFY_MESSAGE else translated
            continue
        files = git.fields("diff-tree", "-r", "-z", "--name-only", "--ignore-submodules=all", parents, commit)
        if files or git.text("rev-parse", f"{commit}^{{tree}}") == git.text(
            "rev-parse", f"{parents}^{{tree}}"
        ):
            if commits and translated:
                commits[-1] = _recommit_with_files(git, commits[-1], translated)
            commits.append(commit)
            translated = ""
    return commits


def _recommit_with_files(git: Git, commit: str, later: str) -> str:
    """Store a commit again with the files of a later one; return it."""
    head, _, message = git.text("cat-file", "commit", commit).partition("\n\n")
    tree = git.text("rev-parse", f"{later}^{{tree}}")
    lines = [f"tree {tree}", *head.split("\n")[1:], "", message, ""]
    data = "\n".join(lines).encode("utf-8", "surrogateescape")
    return git.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=data)


def _drop_empty(series: Mapping[str, Sequence[Patch]]) -> dict[str, tuple[Patch, ...]]:
    return {path: tuple(patches) for path, patches in series.items() if patches}


def _write_set(old: PatchSet, new: PatchSet) -> SavedPatches:
    """Make the folder hold ``new``; files that do not change are not written, others appear whole."""
    before = {patch.name: patch.data for patch in old.list_patches()}
    after = {patch.name: patch.data for patch in new.list_patches()}
    written = tuple(name for name, data in after.items() if before.get(name) != data)
    removed = tuple(name for name in before if name not in after)
    for name in written:
        write_atomically(new.folder / name, after[name])
    for name in removed:
        target = new.folder / name
        target.unlink()
        for folder in target.parents:
            if folder == new.folder or any(folder.iterdir()):
                break
            folder.rmdir()
    return SavedPatches(new.folder, tuple(after), written, removed)
