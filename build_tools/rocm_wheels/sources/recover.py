"""After a crash: what is dirty may be ours or somebody's, so it is kept before it is discarded.

Kept means a commit on ``refs/rocm-wheels/rescued/<n>`` of the repository concerned; nothing
that was in a file is ever lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError
from rocm_wheels.sources.commits import write_commit
from rocm_wheels.sources.files import remove_files
from rocm_wheels.sources.git import Git, find_git_directory
from rocm_wheels.sources.protect import list_own_commits
from rocm_wheels.sources.state import OWN_FOLDER, CheckoutState
from rocm_wheels.sources.trees import (
    GITLINK,
    TreePart,
    list_tree,
    list_gitlinks,
    has_head_commit,
    can_list_tree,
    has_object,
    is_populated,
    list_repositories,
    choose_seed_index,
    write_snapshot,
)

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


def rescue_all(git: Git, state: CheckoutState, target: str) -> None:
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


def recover_hipify(git: Git, state: CheckoutState) -> None:
    """Put a tree back to where an interrupted hipify (with commit) found it, keeping what is dirty."""
    clear_leftovers(find_git_directory(git), git.env)
    rescue_all(git, state, state.upstream)
    for part in list_repositories(git):
        recorded = state.left.get(part.path)
        part.git.text("reset", "-q", "--hard", recorded.head if recorded is not None else "HEAD", "--")


def rescue_repository(part: TreePart, state: CheckoutState, target: str) -> None:
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
    """Wait until programs of a killed run have ended; they still write (Linux; elsewhere not seen)."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while running := _list_leftovers(git_dir):
        if time.monotonic() > give_up:
            raise SourceError(
                f"a run that was killed left process {running[0]} working in {git_dir.parent}",
                tip=f"end it (`kill {running[0]}`), then run this again",
            )
        time.sleep(0.1)


def _commit_rescued(git: Git, tree: str, head: str, files: list[str], state: CheckoutState) -> None:
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
    variable = f"{TREE_VARIABLE}={git_dir}".encode("utf-8", "surrogateescape")
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        # gone meanwhile, or somebody else's
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid() and variable in (process / "environ").read_bytes().split(
                b"\0"
            ):
                pids.append(int(process.name))
    return pids


def _list_running_gits(tree: Path) -> list[int]:
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        # gone meanwhile, or somebody else's
        with contextlib.suppress(OSError):
            if (process / "comm").read_text() == "git\n" and (process / "cwd").readlink().is_relative_to(
                tree
            ):
                pids.append(int(process.name))
    return pids


def _remove_locks(git_dir: Path) -> None:
    """Remove the lock files of git processes that were killed; ours do not run any more.

    Raises SourceError while somebody's own git works in the tree (Linux; elsewhere not seen).
    """
    if running := _list_running_gits(git_dir.parent):
        raise SourceError(
            f"git (process {running[0]}) is at work in {git_dir.parent}", tip="wait for it to end, or end it"
        )
    for folder, folders, files in os.walk(git_dir):
        if folder == str(git_dir) or ("HEAD" in files and "objects" in folders):  # elsewhere, parts of a name
            folders[:] = [name for name in folders if name not in ("objects", "worktrees", OWN_FOLDER)]
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
