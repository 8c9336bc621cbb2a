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
from rocm_wheels.sources.git import Git, git_directory, without_private_filters
from rocm_wheels.sources.patches.apply import ours
from rocm_wheels.sources.patches.mail import PatchRefused, commit_series, patch_of
from rocm_wheels.sources.patches.sets import Patch, PatchSet, read_patch_set
from rocm_wheels.sources.state import (
    HIPIFY_MESSAGE,
    HIPIFY_TAG,
    OWN_FOLDER,
    UPSTREAM_TAG,
    State,
    read_state,
    write_state,
)
from rocm_wheels.sources.trees import Part, has_commit, head_and_place, repositories
from rocm_wheels.sources.unfinished import refuse_unfinished
from rocm_wheels.workspace import exclusive, write_whole

_NO_TREE = "run `checkout` first, or name it with --checkout-dir"


@dataclass(frozen=True)
class Saved:
    """``patches``: what the set holds now, by name; ``written`` and ``removed``: what changed on the disk."""

    folder: Path
    patches: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class _Tagged:
    """One repository with its two tags (``hipified`` empty: without that tag)."""

    part: Part
    upstream: str
    hipified: str
    head: str


def save_patches(
    project: Project, directory: Path, folder: Path, *, replace_others: bool, env: Mapping[str, str]
) -> Saved:
    """Write the commits of ``directory`` to the set in ``folder``: base and, where hipified, hipified.

    What hipify makes of them need not be there: `checkout` hipifies what patches change.
    ``replace_others``: also over patches that this tree was not made with. Raises SourceError,
    with nothing written: no tags, changes that are not committed, history with a merge or not on
    top of the tags, a commit that no patch can give back.
    """
    directory = directory.absolute()
    if not (directory / ".git").exists():
        raise SourceError(f"{directory} is not a git checkout", tip=_NO_TREE)
    git = without_private_filters(Git(directory, env))
    place = git_directory(git)
    with exclusive(place / OWN_FOLDER, what=f"save-patches of {project.name}"):
        state = read_state(place)
        _refuse_unfinished(git, state)
        tagged = [_tags(part) for part in repositories(git) if has_commit(part.git)]
        old = read_patch_set(folder)
        known = ("", state.patches, state.saved) if state is not None else ("",)
        base = {t.part.path: _series(t, "base") for t in tagged}
        hipified: Mapping[str, Sequence[Patch]] = old.hipified
        if tagged[0].hipified:
            hipified = {t.part.path: _series(t, "hipified") for t in tagged}
        elif old.hipified:
            log.note(f"{folder / 'hipified'} stays as it is: the tree is not hipified")
        new = PatchSet(folder, _kept(base), _kept(hipified))
        if new.digest != old.digest and old.digest not in known and not replace_others:
            raise SourceError(
                f"{folder} has patches that {directory} was not made with; they would be lost",
                tip="check out with that set first (--patchset), save under another name, or use --replace",
            )
        saved = _write(old, new)
        if state is not None:
            write_state(place, replace(state, saved=new.digest))
    return saved


def origin_of_tree(directory: Path, *, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the set that a tree was made with, and its ref; empty where that is not known."""
    if not (directory / ".git").exists():
        raise SourceError(f"{directory} is not a git checkout", tip=_NO_TREE)
    state = read_state(git_directory(Git(directory.absolute(), env)))
    return (state.patch_set, state.ref) if state is not None else ("", "")


def _refuse_unfinished(git: Git, state: State | None) -> None:
    if state is not None and state.operation is not None:
        raise SourceError(
            f"the {state.operation} in {git.directory} was interrupted",
            tip="run `checkout` again; it carries on",
        )
    parts = repositories(git)
    refuse_unfinished(parts)
    left = state.left.get("") if state is not None else None
    if state is not None and state.hipify == "uncommitted" and left is not None:
        for part in repositories(git):
            was = state.left.get(part.path)
            if was is None or not was.uncommitted or _is_hipified(part.git):
                continue
            if head_and_place(part.git)[0] != was.head:
                raise SourceError(
                    f"{part.git.directory} has commits made while what hipify wrote was not committed; "
                    "the two cannot be told apart",
                    tip="check out with --commit-hipify (or --no-hipify) and commit there",
                )
    files = [part.inside(path) for part in parts for _, path in protect.changes(part, state)]
    if files:
        raise SourceError(
            f"{git.directory} has changes that are not committed: {', '.join(files[:5])}"
            + (f" and {len(files) - 5} more" if len(files) > 5 else ""),
            tip="commit them, one commit a patch, or put them away with `git stash -u`",
        )


def _is_hipified(git: Git) -> bool:
    """Tell whether what hipify first wrote is committed: what comes after it is in commits of its own."""
    return git.succeeds("merge-base", "--is-ancestor", f"refs/tags/{HIPIFY_TAG}", "HEAD")


def _tags(part: Part) -> _Tagged:
    git = part.git
    head = head_and_place(git)[0]
    found = []
    for name in (UPSTREAM_TAG, HIPIFY_TAG):
        found.append(git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{name}"))
        if found[-1] and not git.succeeds("merge-base", "--is-ancestor", found[-1], head):
            raise SourceError(
                f"HEAD of {git.directory} is not on top of {name}",
                tip=f"`git rebase --onto {name} <where your work begins>`, or run `checkout` again",
            )
    if not found[0]:
        raise SourceError(
            f"{git.directory} has no tag {UPSTREAM_TAG}", tip="run `checkout` first; it sets it"
        )
    return _Tagged(part, found[0], found[1], head)


def _series(tagged: _Tagged, stage: str) -> list[Patch]:
    """Return the patches of a stage in one repository, after a trial that they give the same again."""
    git, middle = tagged.part.git, tagged.hipified or tagged.head
    start, end = (tagged.upstream, middle) if stage == "base" else (middle, tagged.head)
    commits = _commits(git, start, end, hipified=stage == "hipified")
    made = [patch_of(git, commit, number, tagged.upstream) for number, commit in enumerate(commits, 1)]
    try:
        again, _ = commit_series(git, start, made, where=f"{start[:12]}, in a trial")
    except PatchRefused as cause:
        raise SourceError(
            f"the commits in {git.directory} cannot be saved as patches one after another",
            tip="keep them between the tags in one line, without what a mail cannot hold "
            "(a message with a line that begins with `diff -` or `---`)",
        ) from cause
    for number, (commit, patch) in enumerate(zip(again, made, strict=True), 1):
        if patch_of(git, commit, number, tagged.upstream) != patch:
            raise SourceError(
                f"commit {commits[number - 1][:12]} of {git.directory} ({patch.name}) would come back as "
                "another one: its message or author has something that a mail cannot hold",
                tip="reword it: no line that begins with `---`, `diff -` or `From:`, no [PATCH] in front",
            )
    prefix = "/".join(word for word in (stage, tagged.part.path) if word)
    return [Patch(f"{prefix}/{patch.name}", patch.data) for patch in made]


def _commits(git: Git, start: str, end: str, *, hipified: bool) -> list[str]:
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
        if ours(email, subject):
            translated = commit if hipified and subject == HIPIFY_MESSAGE else translated
            continue
        files = git.fields("diff-tree", "-r", "-z", "--name-only", "--ignore-submodules=all", parents, commit)
        if files or git.text("rev-parse", f"{commit}^{{tree}}") == git.text(
            "rev-parse", f"{parents}^{{tree}}"
        ):
            if commits and translated:
                commits[-1] = _with_files_of(git, commits[-1], translated)
            commits.append(commit)
            translated = ""
    return commits


def _with_files_of(git: Git, commit: str, later: str) -> str:
    """Store a commit again with the files of a later one; return it."""
    head, _, message = git.text("cat-file", "commit", commit).partition("\n\n")
    tree = git.text("rev-parse", f"{later}^{{tree}}")
    lines = [f"tree {tree}", *head.split("\n")[1:], "", message, ""]
    data = "\n".join(lines).encode("utf-8", "surrogateescape")
    return git.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=data)


def _kept(series: Mapping[str, Sequence[Patch]]) -> dict[str, tuple[Patch, ...]]:
    return {path: tuple(patches) for path, patches in series.items() if patches}


def _write(old: PatchSet, new: PatchSet) -> Saved:
    """Make the folder hold ``new``; files that do not change are not written, others appear whole."""
    before = {patch.name: patch.data for patch in old.all()}
    after = {patch.name: patch.data for patch in new.all()}
    written = tuple(name for name, data in after.items() if before.get(name) != data)
    removed = tuple(name for name in before if name not in after)
    for name in written:
        write_whole(new.folder / name, after[name])
    for name in removed:
        place = new.folder / name
        place.unlink()
        for folder in place.parents:
            if folder == new.folder or any(folder.iterdir()):
                break
            folder.rmdir()
    return Saved(new.folder, tuple(after), written, removed)
