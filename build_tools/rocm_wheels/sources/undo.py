"""A tree as it was before: noted when a checkout with patches begins, put back when one does not apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.model.project import Project
from rocm_wheels.sources.files import FileListing, remove_files, restore_times
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.materialize import list_all_files, remove_submodule_folder
from rocm_wheels.sources.state import (
    HIPIFIED_REF,
    HIPIFY_TAG,
    LEFT_REF,
    OWN_FOLDER,
    SIDE_INDEX,
    TIMES_FILE,
    UPSTREAM_TAG,
    CheckoutState,
    read_state,
    locate_state_file,
    write_state,
)
from rocm_wheels.sources.trees import (
    TreePart,
    read_head_and_folder,
    find_holder,
    is_populated,
    require_commit,
    list_repositories,
    choose_seed_index,
    run_side_by_side,
    stage_files,
    temporary_index,
)

_OUR_REFS = (f"refs/tags/{UPSTREAM_TAG}", f"refs/tags/{HIPIFY_TAG}", LEFT_REF, HIPIFIED_REF)


@dataclass(frozen=True)
class _RepositorySnapshot:
    """One repository: HEAD and its branch, our refs, the files as a tree, the index that knows them."""

    head: str
    branch: str
    refs: Mapping[str, str]
    tree: str
    side: bytes | None


@dataclass(frozen=True)
class TreeSnapshot:
    """A tree before a checkout; ``state`` is ``None`` for a clone of somebody's, ``origin`` is git's."""

    state: CheckoutState | None
    origin: str
    repositories: Mapping[str, _RepositorySnapshot]


def take_snapshot(
    parts: Sequence[TreePart], state: CheckoutState | None, written: Sequence[str]
) -> TreeSnapshot | None:
    """Note a tree with the ignored files that we wrote (``written``); nothing of a repository just made.

    ``None`` for a tree in the middle of something: there is no whole one to go back to.
    """
    if not parts[0].head:
        return TreeSnapshot(state, "", {})
    if state is not None and state.operation is not None:
        return None
    written_paths: dict[str, list[str]] = {part.path: [] for part in parts}
    for path in written if state is not None else ():
        where = find_holder(path, written_paths)
        written_paths[where].append(path.removeprefix(f"{where}/") if where else path)
    results = run_side_by_side(
        lambda part: _snapshot_repository(part, state, written_paths[part.path]), parts
    )
    snapshots = {part.path: snapshot for part, snapshot in zip(parts, results, strict=True)}
    return TreeSnapshot(state, read_configured_origin(parts[0].git), snapshots)


def read_configured_origin(git: Git) -> str:
    """Return the origin that a repository has, with the credentials in it; empty where it has none."""
    return git.text("config", "--default", "", "--get", "remote.origin.url")


def restore_tree(
    git: Git, git_dir: Path, before: TreeSnapshot | None, project: Project, times: FileListing
) -> None:
    """Make files, HEAD, tags and state of a tree what they were; what was fetched stays in the repository."""
    if before is None:
        log.log_note(f"{git.directory} was in the middle of another checkout; the next one begins from there")
        return
    now = read_state(git_dir)
    generated = now.generated if now is not None else ()
    if not before.repositories:
        _empty_tree(git, git_dir, generated)
        log.log_note(f"{git.directory} is empty again; what was fetched is kept in its repository")
        return
    for part in list_repositories(git)[1:]:
        if part.path not in before.repositories:
            remove_submodule_folder(git, git_dir, part.path)
    remove_files(git.directory, generated)
    for path, snapshot in before.repositories.items():
        _restore_repository(git, path, snapshot)
    restore_times(git, times, list_all_files(list_repositories(git), project, before.state))
    if before.state is not None:
        git.text("config", "--replace-all", "remote.origin.url", before.origin)
        write_state(git_dir, before.state)
    else:
        locate_state_file(git_dir).unlink(missing_ok=True)
    (git_dir / OWN_FOLDER / TIMES_FILE).unlink(missing_ok=True)
    log.log_note(f"{git.directory} is as it was before")


def _snapshot_repository(
    part: TreePart, state: CheckoutState | None, written: Sequence[str]
) -> _RepositorySnapshot:
    require_commit(part)
    head, git_dir = part.head, part.git_dir
    branch = part.git.text("rev-parse", "--symbolic-full-name", "HEAD")
    lines = part.git.text("for-each-ref", "--format=%(refname) %(objectname)", *_OUR_REFS).splitlines()
    side = git_dir / OWN_FOLDER / SIDE_INDEX
    with temporary_index(
        part.git, choose_seed_index(git_dir, head, state, part.path), keep=True
    ) as index_git:
        stage_files(index_git)
        if present := [path for path in written if (part.git.directory / path).is_file()]:
            names = "".join(f"{path}\0" for path in present).encode("utf-8", "surrogateescape")
            index_git.text("update-index", "--add", "-z", "--stdin", stdin=names)
        tree = index_git.text("write-tree")
    refs = {line.split(" ")[0]: line.split(" ")[1] for line in lines}
    return _RepositorySnapshot(head, branch, refs, tree, side.read_bytes() if side.exists() else None)


def _restore_repository(git: Git, path: str, snapshot: _RepositorySnapshot) -> None:
    if path and not is_populated(git.directory / path):
        above = find_holder(path, (part.path for part in list_repositories(git)))
        parent, name = git.in_directory(git.directory / above), path.removeprefix(f"{above}/")
        parent.text("submodule", "--quiet", "update", "--init", "--force", "--no-fetch", "--", name)
    repository_git = git.in_directory(git.directory / path)
    repository_git.text("checkout", "--quiet", "--force", "--detach", snapshot.head)
    if snapshot.tree != repository_git.text("rev-parse", "HEAD^{tree}"):
        with temporary_index(repository_git, None, keep=True) as index_git:
            index_git.text("read-tree", snapshot.tree)
            index_git.text("checkout-index", "--all", "--force")
    if snapshot.branch != "HEAD":
        repository_git.text("symbolic-ref", "HEAD", snapshot.branch)
    for name in _OUR_REFS:
        if name in snapshot.refs:
            repository_git.text("update-ref", name, snapshot.refs[name])
        else:
            repository_git.text("update-ref", "-d", name)
    side = read_head_and_folder(repository_git)[1] / OWN_FOLDER / SIDE_INDEX
    if snapshot.side is not None:
        side.write_bytes(snapshot.side)


def _empty_tree(git: Git, git_dir: Path, generated: Sequence[str]) -> None:
    """Take the files of a first checkout out again; objects stay, and the state says that it is not done."""
    for part in list_repositories(git)[1:]:
        remove_submodule_folder(git, git_dir, part.path)
    remove_files(git.directory, [*generated, *git.fields("ls-files", "-z")])
    git.text("read-tree", "--empty")
    git.text("symbolic-ref", "HEAD", "refs/heads/main")
    for name in _OUR_REFS:
        git.text("update-ref", "-d", name)
