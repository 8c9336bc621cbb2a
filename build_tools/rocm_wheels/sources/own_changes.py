"""Protect the user's own work in a tree, whoever made it: it is refused or kept on a branch, never lost.

Own work is: a file that differs from what we left, a new file that is not ignored, staged content, an ignored
file where a commit has one, a commit that neither upstream nor we made, an operation of git that has begun
and not ended.

After a crash what is dirty may be ours or the user's, so it is kept before it is discarded: as a commit
on ``refs/rocm-wheels/rescued/<n>`` of the repository concerned.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rocm_wheels.core import errors, log, process
from rocm_wheels.sources import checkout_state, hipify_record, network, trees
from rocm_wheels.sources.commits import list_foreign_commits, remove_files, write_commit
from rocm_wheels.sources.git import Git, read_git_pointer

# What git leaves in a repository while something is under way (its wt-status.c and sequencer.c).
_OPERATION_SIGNS = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "am",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
_LOCK_FILES = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock")


def refuse_unfinished_operations(parts: Iterable[trees.TreePart], *, locks: bool = True) -> None:
    """Raise SourceError when something of somebody's is under way in one of the repositories.

    HEAD is then somewhere between: commits made or counted there would be wrong. ``locks``: a git that
    is at work, or was killed, counts too.
    """
    for part in parts:
        directory, git_dir = part.git.directory, part.git_dir
        if begun := next(
            (name for sign, name in _OPERATION_SIGNS.items() if (git_dir / sign).exists()), None
        ):
            ends = "`git bisect reset`" if begun == "bisect" else f"`git {begun} --continue` or `--abort`"
            raise errors.SourceError(
                f"`git {begun}` is under way in {directory}", tip=f"end it with {ends}, then run this again"
            )
        if locked := next(
            (git_dir / name for name in _LOCK_FILES if locks and (git_dir / name).exists()), None
        ):
            raise errors.SourceError(
                f"another git is at work in {directory}: there is {locked}",
                tip="wait for it to end; if there is none, remove that file",
            )


_MOST_SHOWN = 12
_CHANGE_WORDS = {"A": "new", "D": "removed", "M": "modified", "T": "modified", "U": "unmerged"}


def refuse_own_work(
    parts: Sequence[trees.TreePart], state: checkout_state.CheckoutState | None
) -> frozenset[str]:
    """Raise SourceError, with a tip, when files of a tree hold work that a checkout would lose.

    Returns the repositories, by path, in which files differ from their commit: all that does is ours.
    """
    refuse_unfinished_operations(parts)
    changed = trees.select_changed(part for part in parts if part.head)
    if files := _list_changed_files(changed, state):
        raise errors.SourceError(
            _format_list(f"{parts[0].git.directory} has changes of yours", files),
            tip="keep them with `git stash -u` in that repository, or move the files away; "
            "or check out into another folder with --source-dir",
        )
    return frozenset(part.path for part in changed)


def refuse_uncommitted(parts: Sequence[trees.TreePart], state: checkout_state.CheckoutState | None) -> None:
    """Raise SourceError when files of somebody's own would get into our commit."""
    refuse_unfinished_operations(parts)
    if files := _list_changed_files(trees.select_changed(parts), state, links=True):
        raise errors.SourceError(
            _format_list(
                f"{parts[0].git.directory} has changes of yours, which the hipify commit would mix in", files
            ),
            tip="commit yours first, or hipify with --no-commit-hipify",
        )


def keep_commits(
    parts: Sequence[trees.TreePart], state: checkout_state.CheckoutState | None, target: str
) -> None:
    """Have a branch for the commits of somebody's own that going to ``target`` leaves behind; name it.

    Without a state the tree is somebody's clone: commits that its remote has are nobody's work.
    """
    born = [part for part in parts if part.head]
    results = trees.run_side_by_side(lambda part: list_own_commits(part, state, target), born)
    for part, commits in zip(born, results, strict=True):
        if not commits:
            continue
        head = part.head
        branches = part.git.text(
            "for-each-ref", f"--contains={head}", "--format=%(refname:short)", "refs/heads"
        )
        branch = branches.splitlines()[0] if branches else f"kept-{head[:12]}"
        if not branches:
            part.git.text("update-ref", f"refs/heads/{branch}", head)
        log.log_warning(
            _format_list(f"commits of yours in {part.git.directory} are kept on its branch {branch}", commits)
            + f"\n`git switch {branch}` goes back to them"
        )


_IN_THE_WAY = re.compile(r"would be overwritten by checkout:|would lose untracked files in them:")


class FilesInTheWayError(errors.SourceError):
    """Files of which git knows nothing, or that it ignores, are where a commit has files."""


def switch_to_commit(git: Git, commit: str) -> None:
    """Have a repository in which nothing differs from its commit at another one; files that stay are kept.

    Raises FilesInTheWayError, with no file touched.
    """
    try:
        git.text("checkout", "--quiet", "--no-overwrite-ignore", "--detach", commit)
    except errors.SourceError as failure:
        if _IN_THE_WAY.search(failure.message) is None:
            raise
        # git names them in lines of their own, by a tab; capture_output puts a bar before each
        files = re.findall(r"^[ |]*\t(.*)", failure.message, re.MULTILINE)
        raise FilesInTheWayError(
            _format_list(f"in {git.directory} these files are in the way of {commit[:12]}", sorted(files)),
            tip="move them away; git ignores them, and the commit has files of the same names",
        ) from failure


def list_own_changes(
    part: trees.TreePart, state: checkout_state.CheckoutState | None
) -> list[tuple[str, str]]:
    """List (what, path) of the work in one repository that is neither ours nor committed."""
    return _list_changes(part, state, links=False) if trees.select_changed([part]) else []


def _list_changes(
    part: trees.TreePart, state: checkout_state.CheckoutState | None, *, links: bool
) -> list[tuple[str, str]]:
    """``links``: count submodules at another commit as well."""
    git, head, git_dir = part.git, part.head, part.git_dir
    recorded = state.left.get(part.path) if state is not None else None
    expected = [part.tree]
    if recorded is not None and recorded.uncommitted and recorded.head == head:
        expected.insert(0, recorded.tree)
    with trees.temporary_index(
        git, trees.choose_seed_index(git_dir, head, state, part.path), keep=False
    ) as index_git:
        trees.stage_files(index_git)
        now = index_git.text("write-tree")
        by_tree = [
            _list_differences(index_git, "diff-tree", "-r", tree, now, links=links) for tree in expected
        ]
    staged = [_list_differences(git, "diff-index", "--cached", tree, links=links) for tree in expected]
    changes = {} if not all(by_tree) else by_tree[0]
    words = {path: _CHANGE_WORDS.get(change.letter, "changed") for path, change in changes.items()}
    for path in set.intersection(*(set(paths) for paths in staged)):
        word = _CHANGE_WORDS.get(staged[0][path].letter, "changed")
        words.setdefault(path, f"staged ({word})")
    if words:
        for path in hipify_record.list_own_outputs(git, changes.values()):
            del words[path]
    return sorted(((word, path) for path, word in words.items()), key=lambda item: item[1])


def list_own_commits(
    part: trees.TreePart, state: checkout_state.CheckoutState | None, target: str
) -> list[str]:
    """List the commits of one repository that are somebody's own work.

    What the parent names counts as upstream's only in a clone that is not ours: somebody who commits in a
    submodule commits the move in its parent as well.
    """
    recorded = state.left.get(part.path) if state is not None else None
    if state is not None and state.identity and recorded is not None and part.head == recorded.head:
        return []  # what lies there is ours alone
    expected = [target] if not part.path else [checkout_state.FETCHED_REF if state is not None else part.link]
    if recorded is not None:
        expected.append(recorded.upstream)
    if state is not None and not part.path:
        expected.append(state.upstream)
    if part.head in expected:
        return []
    return list_foreign_commits(
        part.git, *(commit for commit in expected if commit), "--remotes", f"--glob={network.SERVED_REFS}"
    )


def _list_changed_files(
    parts: Sequence[trees.TreePart], state: checkout_state.CheckoutState | None, *, links: bool = False
) -> list[str]:
    """List what is somebody's own in changed repositories; ``links``: submodules at other commits, too."""
    results = trees.run_side_by_side(lambda part: _list_changes(part, state, links=links), parts)
    return [
        f"{word} {part.path_from_root(path)}"
        for part, items in zip(parts, results, strict=True)
        for word, path in items
        if not links or not _is_hipified_submodule(part, path)  # git went to a commit that is not hipified
    ]


def _is_hipified_submodule(part: trees.TreePart, path: str) -> bool:
    """Tell whether a submodule is at the commit that its parent names, but for commits of ours on top."""
    link = next((entry.object for entry in part.links if entry.path == path), "")
    git = part.git.in_directory(part.git.directory / path)
    if not link or not trees.is_populated(git.directory) or not trees.has_object(git, link):
        return False
    return git.succeeds("merge-base", "--is-ancestor", link, "HEAD") and not list_foreign_commits(git, link)


def _list_differences(git: Git, *command: str, links: bool) -> dict[str, trees.TreeChange]:
    """Return by path what a diff command finds; submodules' other commits only with ``links``."""
    changes = trees.list_differences(git, *command)
    return {change.path: change for change in changes if links or not change.of_submodule}


def _format_list(head: str, lines: Sequence[str]) -> str:
    more = [f"… and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    return f"{head}:\n" + "\n".join(f"  {line!s}" for line in [*lines[:_MOST_SHOWN], *more])


_PATIENCE_SECONDS = 5.0
_RESCUED_REFS = "refs/rocm-wheels/rescued"


def clear_leftovers(git_dir: Path) -> None:
    """Make an interrupted run's repository fit for git again: locks of git processes that were killed go.

    Raises SourceError while somebody's own git works in the tree; one that the killed run had just started
    is waited for.
    """
    end = time.monotonic() + _PATIENCE_SECONDS
    while pid := _find_running_git(git_dir.parent):
        if time.monotonic() > end:
            raise errors.SourceError(
                f"git (process {pid}) is at work in {git_dir.parent}", tip="wait for it to end, or end it"
            )
        process.wait_or_stop(0.1)
    network.remove_leftovers(git_dir)


def _find_running_git(tree: Path) -> int:
    """Return a git process that works in a tree; 0 for none."""
    import psutil

    for program in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or somebody else's
            if program.name() == "git" and Path(program.cwd()).is_relative_to(tree):
                return program.pid
    return 0


def rescue_all(git: Git, state: checkout_state.CheckoutState, target: str) -> None:
    """Keep, then remove, what nobody committed in root and submodules.

    Tracked files stay as they are: the checkout that follows writes them.
    """
    log.log_note(f"the last {state.operation} in {git.directory} was interrupted; carrying on")
    refuse_unfinished_operations(trees.list_repositories(git), locks=False)  # a killed git of ours left those
    for part in trees.list_repositories(git):
        for link in part.links:
            pointer = part.git.directory / link.path / ".git"
            if pointer.is_file() and not (read_git_pointer(pointer) / "index").is_file():
                pointer.unlink()  # of a submodule that was not connected in whole
    for part in trees.list_repositories(git):
        _rescue_repository(part, state, target)


def recover_hipify(git: Git, git_dir: Path, state: checkout_state.CheckoutState) -> None:
    """Put a tree back to where an interrupted hipify (with commit) found it, keeping what is dirty."""
    clear_leftovers(git_dir)
    rescue_all(git, state, state.upstream)
    for part in trees.list_repositories(git):
        recorded = state.left.get(part.path)
        part.git.text("reset", "-q", "--hard", recorded.head if recorded is not None else "HEAD", "--")


def _rescue_repository(part: trees.TreePart, state: checkout_state.CheckoutState, target: str) -> None:
    """Keep one repository's work on a ref of its own, and remove its untracked files."""
    git, recorded = part.git, state.left.get(part.path)
    commits = {part.head, checkout_state.FETCHED_REF, part.link if part.path else target}
    commits |= {recorded.upstream, recorded.head, recorded.tree} if recorded is not None else set()
    # a fetch that was killed leaves commits without their folders
    listings = [
        trees.list_tree(git, commit)
        for commit in sorted(commits - {""})
        if git.succeeds("ls-tree", "-r", "-t", "--name-only", "--full-tree", commit)
    ]
    ours = {(entry.path, entry.object) for listing in listings for entry in listing}
    seed = trees.choose_seed_index(part.git_dir, part.head, state, part.path)
    with trees.temporary_index(git, seed, keep=True) as index_git:
        trees.stage_files(index_git)
        now = index_git.text("write-tree")
        # and what git ignores, where a commit has a file that will be written
        ignored = {path for path, _ in ours} - {entry.path for entry in trees.list_tree(git, now)}
        names = [path for path in sorted(ignored) if _is_file_inside(git.directory, path)]
        data = "".join(f"{name}\0" for name in names).encode("utf-8", "surrogateescape")
        index_git.text("update-index", "--add", "-z", "--stdin", stdin=data)
        now = index_git.text("write-tree")
    files = [entry for entry in trees.list_tree(git, now) if entry.mode != trees.GITLINK]
    # what was staged, and is not on the disk like that, becomes a second parent, as in `git stash`
    staged = git.text("write-tree")
    kept = ours | {(entry.path, entry.object) for entry in files}
    staged_files = [
        entry.path
        for entry in trees.list_tree(git, staged)
        if entry.mode != trees.GITLINK and (entry.path, entry.object) not in kept
    ]
    rescued = [entry.path for entry in files if (entry.path, entry.object) not in ours] + staged_files
    if rescued or (part.head and list_own_commits(part, state, target)):
        refs = git.text("for-each-ref", "--format=%(refname)", _RESCUED_REFS).splitlines()
        number = 1 + max((int(name.rsplit("/", 1)[1]) for name in refs), default=0)
        parents = [part.head] if part.head else []
        message = f"Files found after an interrupted {state.operation}"
        if staged_files:
            parents.append(write_commit(git, staged, parents, "Staged", dated_like=part.head or None))
        commit = write_commit(git, now, parents, message, dated_like=part.head or None)
        git.text("update-ref", f"{_RESCUED_REFS}/{number}", commit)
        shown = ", ".join(rescued[:5]) + (f" and {len(rescued) - 5} more" if len(rescued) > 5 else "")
        log.log_warning(
            f"kept as {_RESCUED_REFS}/{number} ({commit[:12]}) in {git.directory}: "
            f"{shown or 'commits on top'} (see `git show --stat {commit[:12]}`)"
        )
    tracked = {entry.path for entry in trees.list_tree(git, part.head)} if part.head else set()
    if (
        part.head
    ):  # of a commit of ours, of which the index did not learn any more, the checkout takes all away
        git.text("read-tree", part.head)
    remove_files(git.directory, [entry.path for entry in files if entry.path not in tracked])


def _is_file_inside(directory: Path, path: str) -> bool:
    """Tell whether a file is there, and no link leads to it."""
    file = directory / path
    return file.is_file() and file.parent.resolve() == directory.resolve() / Path(path).parent
