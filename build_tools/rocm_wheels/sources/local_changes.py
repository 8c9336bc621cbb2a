"""Protect the user's own work in a tree: it is refused or kept on a branch, never overwritten.

Own work is: a file that differs from what we left, a new file that is not ignored, staged
content, a commit that neither upstream nor we made, an operation of git that has begun and not ended.

After a crash what is dirty may be ours or the user's, so it is kept before it is discarded: as a commit
on ``refs/rocm-wheels/rescued/<n>`` of the repository concerned. Nothing that was in a file is ever lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rocm_wheels.core import errors, log
from rocm_wheels.sources import checkout_state, hipify_record, network
from rocm_wheels.sources.commits import list_foreign_commits, remove_files, write_commit
from rocm_wheels.sources.git import Git, find_git_directory
from rocm_wheels.sources.trees import (
    GITLINK,
    TreeChange,
    TreeEntry,
    TreePart,
    can_list_tree,
    choose_seed_index,
    has_head_commit,
    has_object,
    is_populated,
    list_differences,
    list_gitlinks,
    list_repositories,
    list_tree,
    require_commit,
    run_side_by_side,
    show_hidden_files,
    stage_files,
    temporary_index,
    write_snapshot,
)

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


def refuse_unfinished_operations(parts: Iterable[TreePart], *, locks: bool = True) -> None:
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


def refuse_own_work(parts: Sequence[TreePart], state: checkout_state.CheckoutState | None) -> bool:
    """Raise SourceError, with a tip, when files of a tree hold work that a checkout would lose.

    Returns whether git finds no change at all, not even one of ours, and was told to look at every file.
    """
    refuse_unfinished_operations(parts)
    changed = _find_changed([part for part in parts if part.head])
    files = _list_changed_files(changed, state)
    if files:
        raise errors.SourceError(
            _format_list(f"{parts[0].git.directory} has changes of yours", files),
            tip="keep them with `git stash -u` in that repository, or move the files away; "
            "or check out into another folder with --source-dir",
        )
    return not changed and not any(part.hidden for part in parts)


def _find_changed(parts: Sequence[TreePart]) -> list[TreePart]:
    """List the repositories in which git finds a change."""
    answers = run_side_by_side(has_changes, parts)
    return [part for part, differs in zip(parts, answers, strict=True) if differs]


def has_changes(part: TreePart) -> bool:
    """Tell whether git finds a change in one repository; what is in submodules is theirs."""
    require_commit(part)
    with show_hidden_files(part) as git:
        return bool(
            git.text("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
        )


def keep_commits(parts: Sequence[TreePart], state: checkout_state.CheckoutState | None, target: str) -> None:
    """Have a branch for the commits of somebody's own that going to ``target`` leaves behind; name it.

    Without a state the tree is somebody's clone: commits that its remote has are nobody's work.
    """
    born = [part for part in parts if part.head]
    results = run_side_by_side(lambda part: list_own_commits(part, state, target), born)
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


def refuse_uncommitted(parts: Sequence[TreePart], state: checkout_state.CheckoutState | None) -> bool:
    """Raise SourceError when files of somebody's own would get into our commit.

    Returns whether git finds no change at all, not even one of ours, and was told to look at every file.
    """
    refuse_unfinished_operations(parts)
    changed = _find_changed(parts)
    files = _list_changed_files(changed, state, links=True)
    if files:
        raise errors.SourceError(
            _format_list(
                f"{parts[0].git.directory} has changes of yours, which the hipify commit would mix in", files
            ),
            tip="commit yours first, or hipify with --no-commit-hipify",
        )
    return not changed and not any(part.hidden for part in parts)


def refuse_blocking_files(
    git: Git, target: str, ours: Sequence[str], changes: Sequence[TreeChange] | None = None
) -> None:
    """Raise SourceError for files on disk that git ignores or does not know, where ``target`` has files.

    ``changes``: from the index to ``target``, where they are known.
    """
    if {entry.name for entry in os.scandir(git.directory)} <= {".git"}:
        return  # nothing is there
    if changes is None:
        changes = list_differences(git, "diff-index", "-R", "--cached", target)
    # what index and target both have is in nobody's way
    new_entries = [TreeEntry(change.path, *change.after) for change in changes if change.letter == "A"]
    known_paths = set(ours) | {change.path for change in changes if change.letter != "A"}
    folders = {str(parent) for path in known_paths for parent in PurePosixPath(path).parents}
    blocking = set()
    for entry in new_entries:
        if entry.path in known_paths or entry.path in folders:
            continue
        above = reversed([str(parent) for parent in PurePosixPath(entry.path).parents if parent.parts])
        for relative in (*above, entry.path):
            path = Path(git.directory, relative)
            folder = path.is_dir() and not path.is_symlink()
            if not os.path.lexists(path) or (
                relative in known_paths and not (folder and not is_populated(path))
            ):
                break  # nothing, or a link, a file, a submodule that is taken away with all that is below
            if relative == entry.path:
                if not _matches_entry(git, entry):
                    blocking.add(relative)
            elif not folder:
                blocking.add(relative)
                break
    if blocking:
        raise errors.SourceError(
            _format_list(f"in {git.directory} these files are in the way of {target[:12]}", sorted(blocking)),
            tip="move them away; git ignores them, and the commit has files of the same names",
        )


def _matches_entry(git: Git, entry: TreeEntry) -> bool:
    """Tell whether a path holds what a commit has there (an empty folder for a submodule)."""
    path = git.directory / entry.path
    if path.is_symlink() or not path.exists():
        return False
    if path.is_dir():
        return entry.mode == GITLINK and not any(path.iterdir())
    content = path.read_bytes()
    head = f"blob {len(content)}\0".encode("ascii")
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest() == entry.object


def list_own_changes(
    part: TreePart, state: checkout_state.CheckoutState | None, *, links: bool = False
) -> list[tuple[str, str]]:
    """List (what, path) of the work in one repository that is neither ours nor committed.

    ``links``: count submodules at another commit as well.
    """
    return _list_changes(part, state, links=links) if has_changes(part) else []


def _list_changes(
    part: TreePart, state: checkout_state.CheckoutState | None, *, links: bool
) -> list[tuple[str, str]]:
    git, head, git_dir = part.git, part.head, part.git_dir
    recorded = state.left.get(part.path) if state is not None else None
    expected = [part.tree]
    if recorded is not None and recorded.uncommitted and recorded.head == head:
        expected.insert(0, recorded.tree)
    with temporary_index(git, choose_seed_index(git_dir, head, state, part.path), keep=False) as index_git:
        stage_files(index_git)
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


def list_own_commits(part: TreePart, state: checkout_state.CheckoutState | None, target: str) -> list[str]:
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
    parts: Sequence[TreePart], state: checkout_state.CheckoutState | None, *, links: bool = False
) -> list[str]:
    """List what is somebody's own in repositories in which git finds a change."""
    results = run_side_by_side(lambda part: _list_changes(part, state, links=links), parts)
    if links:  # hipified already, where git went to a commit that is not
        results = [
            [item for item in items if not _is_hipified_submodule(part, item[1])]
            for part, items in zip(parts, results, strict=True)
        ]
    return [
        f"{word} {part.path_from_root(path)}"
        for part, items in zip(parts, results, strict=True)
        for word, path in items
    ]


def _is_hipified_submodule(part: TreePart, path: str) -> bool:
    """Tell whether a submodule is at the commit that its parent names, but for commits of ours on top."""
    link = next((entry.object for entry in part.links if entry.path == path), "")
    git = part.git.in_directory(part.git.directory / path)
    if not link or not is_populated(git.directory) or not has_object(git, link):
        return False
    return git.succeeds("merge-base", "--is-ancestor", link, "HEAD") and not list_foreign_commits(git, link)


def _list_differences(git: Git, *command: str, links: bool) -> dict[str, TreeChange]:
    """Return by path what a diff command finds; submodules' other commits only with ``links``."""
    changes = list_differences(git, *command)
    return {change.path: change for change in changes if links or not change.of_submodule}


def _format_list(head: str, lines: Sequence[str]) -> str:
    more = [f"… and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    return f"{head}:\n" + "\n".join(f"  {line!s}" for line in [*lines[:_MOST_SHOWN], *more])


TREE_VARIABLE = "ROCM_WHEELS_TREE"  # in the environment of all that we start in a tree: its repository
_RESCUED_REFS = "refs/rocm-wheels/rescued"
_PATIENCE_SECONDS = 60.0


def clear_leftovers(git_dir: Path, env: Mapping[str, str]) -> None:
    """Make an interrupted run's repository (``git_dir``) fit for git again.

    Waits for programs of that run that still work, removes git's lock files and submodule
    repositories whose clone was cut. Raises SourceError when a program does not end.
    """
    wait_for_leftovers(git_dir)
    _remove_locks(git_dir)
    _remove_half_clones(git_dir, env)


def rescue_all(git: Git, state: checkout_state.CheckoutState, target: str) -> None:
    """Keep, then remove, what nobody committed in root and submodules.

    Tracked files stay as they are: the checkout that follows writes them.
    """
    log.log_note(f"the last {state.operation} in {git.directory} was interrupted; carrying on")
    for part in list_repositories(git):
        for link in list_gitlinks(part.git):
            pointer = part.git.directory / link.path / ".git"
            if pointer.is_file() and not is_populated(pointer.parent):
                pointer.unlink()  # of a clone that was cut
    for part in list_repositories(git):
        rescue_repository(part, state, target)


def recover_hipify(git: Git, state: checkout_state.CheckoutState) -> None:
    """Put a tree back to where an interrupted hipify (with commit) found it, keeping what is dirty."""
    clear_leftovers(find_git_directory(git), git.env)
    rescue_all(git, state, state.upstream)
    for part in list_repositories(git):
        recorded = state.left.get(part.path)
        part.git.text("reset", "-q", "--hard", recorded.head if recorded is not None else "HEAD", "--")


def rescue_repository(part: TreePart, state: checkout_state.CheckoutState, target: str) -> None:
    """Keep one repository's work on a ref of its own, and remove its untracked files."""
    git = part.git
    born = has_head_commit(git)
    git_dir = find_git_directory(git)
    head = git.text("rev-parse", "HEAD") if born else ""
    now = write_snapshot(git, choose_seed_index(git_dir, head, state, part.path), keep=True)
    recorded = state.left.get(part.path)
    commits = {head, target if not part.path else part.link}
    commits |= {recorded.upstream, recorded.head} if recorded is not None else set()
    # a fetch that was killed leaves commits without their folders
    trees = [commit for commit in sorted(commits) if has_object(git, commit) and can_list_tree(git, commit)]
    trees += [recorded.tree] if recorded is not None else []
    ours = {(e.path, e.object) for tree in trees for e in list_tree(git, tree)}
    files = [e for e in list_tree(git, now) if e.mode != GITLINK]
    rescued = [e.path for e in files if (e.path, e.object) not in ours]
    if rescued or (born and list_own_commits(part, state, target)):
        _commit_rescued(git, now, head, rescued, state)
    tracked = {e.path for e in list_tree(git, head)} if born else set()
    if born:  # of a commit of ours, of which the index did not learn any more, the checkout takes all away
        git.text("read-tree", head)
    remove_files(git.directory, [e.path for e in files if e.path not in tracked])


def wait_for_leftovers(git_dir: Path) -> None:
    """Wait until programs of a killed run have ended; they still write."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while running := _list_leftovers(git_dir):
        if time.monotonic() > give_up:
            raise errors.SourceError(
                f"a run that was killed left process {running[0]} working in {git_dir.parent}",
                tip=f"end it (`kill {running[0]}`), then run this again",
            )
        time.sleep(0.1)


def _commit_rescued(
    git: Git, tree: str, head: str, files: list[str], state: checkout_state.CheckoutState
) -> None:
    refs = git.text("for-each-ref", "--format=%(refname)", _RESCUED_REFS).splitlines()
    number = 1 + max((int(name.rsplit("/", 1)[1]) for name in refs), default=0)
    message = f"Files found after an interrupted {state.operation}"
    commit = write_commit(git, tree, [head] if head else [], message, dated_like=head or None)
    git.text("update-ref", f"{_RESCUED_REFS}/{number}", commit)
    names = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
    log.log_warning(
        f"kept as {_RESCUED_REFS}/{number} ({commit[:12]}) in {git.directory}: {names or 'commits on top'} "
        f"(see `git show --stat {commit[:12]}`)"
    )


def _list_leftovers(git_dir: Path) -> list[int]:
    import psutil

    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or somebody else's
            is_leftover = process.environ().get(TREE_VARIABLE) == str(git_dir)
            if is_leftover and process.pid != os.getpid():
                pids.append(process.pid)
    return pids


def _list_running_gits(tree: Path) -> list[int]:
    import psutil

    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or somebody else's
            if process.name() == "git" and Path(process.cwd()).is_relative_to(tree):
                pids.append(process.pid)
    return pids


def _remove_locks(git_dir: Path) -> None:
    """Remove the lock files of git processes that were killed; ours do not run any more.

    Raises SourceError while somebody's own git works in the tree.
    """
    if running := _list_running_gits(git_dir.parent):
        raise errors.SourceError(
            f"git (process {running[0]}) is at work in {git_dir.parent}", tip="wait for it to end, or end it"
        )
    for folder, folders, files in os.walk(git_dir):
        if folder == str(git_dir) or ("HEAD" in files and "objects" in folders):  # elsewhere, parts of a name
            folders[:] = [
                name for name in folders if name not in ("objects", "worktrees", checkout_state.OWN_FOLDER)
            ]
        for name in files:
            if name.endswith(".lock"):
                Path(folder, name).unlink()


def _remove_half_clones(git_dir: Path, env: Mapping[str, str]) -> None:
    """Remove submodule repositories whose clone was killed: without a ref there is nothing in them."""
    for module in _list_modules(git_dir / "modules"):
        git = Git(module, env, variables={"GIT_DIR": str(module), "GIT_WORK_TREE": str(git_dir.parent)})
        whole = git.succeeds("rev-parse", "--git-dir") and (
            git.succeeds("rev-parse", "-q", "--verify", "HEAD^{commit}")
            or git.text("for-each-ref", "--count=1")
        )
        if not whole:
            shutil.rmtree(module)


def _list_modules(folder: Path) -> Iterator[Path]:
    """Yield the submodule repositories below a ``modules`` folder, outermost first."""
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        if not entry.is_dir():
            continue
        if (entry / "objects").is_dir() or (entry / "HEAD").is_file():
            yield entry
            if entry.is_dir():
                yield from _list_modules(entry / "modules")
        else:
            yield from _list_modules(entry)
