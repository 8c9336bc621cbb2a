"""Write the files of a commit into the working trees; list and tag them; put a tree back as it was.

A tree is noted when a checkout with patches begins, and put back when one of them does not apply.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.core import log
from rocm_wheels.models.project import Project
from rocm_wheels.sources import checkout_state, commits, hipify_record, submodules, trees
from rocm_wheels.sources.git import Git


def list_our_files(
    parts: Sequence[trees.TreePart], state: checkout_state.CheckoutState | None, *, clean: bool
) -> list[str]:
    """List the files of a tree, from the root, that we wrote and did not commit; they may be removed.

    ``clean``: git finds no change.
    """
    paths = list(state.generated) if state is not None else []
    for part in parts:
        if state is not None and state.hipify == "committed" and not clean and part.head:
            paths += map(part.path_from_root, hipify_record.list_new_outputs(part))
        recorded = state.left.get(part.path) if state is not None else None
        if recorded is not None and recorded.uncommitted and trees.has_object(part.git, recorded.head):
            committed = {entry.path for entry in trees.list_tree(part.git, recorded.head)}
            paths += [
                part.path_from_root(e.path)
                for e in trees.list_tree(part.git, recorded.tree)
                if e.path not in committed
            ]
    return paths


def write_commit_files(
    old: Sequence[trees.TreePart],
    git_dir: Path,
    commit: str,
    ours: list[str],
    *,
    modules: submodules.SubmoduleFetch,
    moved: bool,
    tree: str,
) -> list[trees.TreePart]:
    """Make the files of a tree those of ``commit``; what is not ``ours`` or tracked stays.

    The commits of its submodules, ``modules`` (none: not wanted), must be there: no server is asked.
    ``moved``: those that git knows may come from elsewhere now. ``tree``: the commit's, where the tree will
    have the submodules of the commit and no others. Returns the repositories then.
    """
    git, links = old[0].git, {link.path for link in modules.links}
    commits.remove_files(git.directory, ours)
    for part in old:
        (part.git_dir / checkout_state.OWN_FOLDER / checkout_state.SIDE_INDEX).unlink(missing_ok=True)
    for part in old[1:]:
        if not any(part.path == path or part.path.startswith(f"{path}/") for path in links):
            remove_submodule_folder(git, git_dir, part.path)
    git.text("checkout", "--quiet", "--force", "--detach", commit)
    if links:
        _update_submodules(git, "--force", sync=moved)
    if tree and not any(part.hidden for part in old):
        written = {"", *modules.parts}
        return _describe_written(replace(old[0], head=commit, tree=tree), modules, written)
    new = trees.list_repositories(git)
    if links:
        present = {part.path for part in new}
        for part in old[1:]:
            if part.path not in present:
                remove_submodule_folder(git, git_dir, part.path)
    return new


def is_switch(parts: Sequence[trees.TreePart], modules: submodules.SubmoduleFetch) -> bool:
    """Tell whether a tree has all submodules of another commit, and no others: git can just switch to it."""
    return {part.path for part in parts if part.path} == modules.parts.keys()


def switch_files(
    parts: Sequence[trees.TreePart], commit: str, tree: str, modules: submodules.SubmoduleFetch
) -> tuple[list[trees.TreePart], list[trees.TreePart]]:
    """Switch a tree without changes to ``commit`` (and its ``tree``); git touches no file that stays.

    For what ``is_switch`` allows; no server is asked. Returns the repositories then, and those of them that
    were switched.
    """
    root, git = parts[0], parts[0].git
    git.text("checkout", "--quiet", "--detach", commit)
    moved = {part.path for part in parts if part.path and part.head != modules.parts[part.path].head}
    if modules.only_moved:
        near = git.with_settings(_NO_SERVER)

        def switch_submodule(path: str) -> None:
            inside = near.in_directory(git.directory / path)
            inside.text("checkout", "--quiet", "--detach", modules.parts[path].head)

        trees.run_side_by_side(switch_submodule, sorted(moved))
    elif outermost := [link.path for link in modules.links if link.path in moved]:
        _update_submodules(git, "--", *outermost, sync=modules.redirected)
    new = _describe_written(replace(root, head=commit, tree=tree), modules, {"", *moved})
    return new, [part for part in new if not part.path or part.path in moved]


def _describe_written(
    root: trees.TreePart, modules: submodules.SubmoduleFetch, written: Collection[str]
) -> list[trees.TreePart]:
    """Return the repositories of a tree that git has just ``written`` (paths): what is in them is known."""
    git, tree = root.git, [replace(root, links=tuple(modules.links))]
    for part in sorted(modules.parts.values(), key=lambda part: part.path.split("/")):
        # the user's configuration may leave one out, or have its commit merged
        part_git = git.in_directory(git.directory / part.path)
        if not trees.is_populated(part_git.directory) or trees.read_detached_head(part.git_dir) != part.head:
            return trees.list_repositories(git)
        tree.append(replace(part, git=part_git))
    return [
        replace(part, index=trees.stamp_index(part.git_dir)) if part.path in written else part
        for part in tree
    ]


_NO_SERVER = "protocol.allow=never"
_WRITE_JOBS = min(2 * (os.cpu_count() or 1), 16)  # as many submodules are connected at a time


def update_submodules(git: Git) -> None:
    """Put submodules at the commits that the checked out one names; none is fetched, none is forced."""
    if trees.list_gitlinks(git):
        _update_submodules(git, sync=False)


def _update_submodules(git: Git, *arguments: str, sync: bool) -> None:
    """Put submodules, recursively, at the commits that their parents name; no server is asked.

    ``sync``: git is to learn first where each comes from.
    """
    if sync:
        git.text("submodule", "--quiet", "sync", "--recursive")
    near = git.with_settings(_NO_SERVER).with_variables(GIT_LITERAL_PATHSPECS="1")
    options = ("--init", "--recursive", "--no-fetch", f"--jobs={_WRITE_JOBS}")
    near.text("submodule", "--quiet", "update", *options, *arguments)


def remove_submodule_folder(git: Git, git_dir: Path, path: str) -> None:
    """Remove a submodule's folder; with ignored files in it, it is moved into the repository instead."""
    directory = git.directory / path
    if not (directory / ".git").exists():
        return
    ignored = git.in_directory(directory).fields(
        "ls-files", "-o", "-i", "-z", "--directory", "--exclude-standard"
    )
    if ignored:
        kept_folder = git_dir / checkout_state.OWN_FOLDER / "kept"
        kept_folder.mkdir(exist_ok=True)
        target = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=kept_folder)) / directory.name
        directory.rename(target)
        log.log_warning(
            f"{path} is no longer a submodule; its folder, with files that git ignores, is now {target}"
        )
    else:
        shutil.rmtree(directory)
    commits.remove_files(git.directory, [path])  # empty folders above it


def tag_upstream_commits(
    parts: Sequence[trees.TreePart], *, hipified: bool, fetched: bool, tagged: Collection[str] = ()
) -> dict[str, checkout_state.RepositoryState]:
    """Tag every repository's commit as upstream's; return what lies there.

    ``hipified``: nothing is to be translated, and each is what hipify leaves. ``fetched``: with the tag,
    the root's ref of what was fetched is no longer needed. ``tagged``: paths of those that have nothing of
    ours but these tags; the tags are only made again when they are gone.
    """

    def tag(part: trees.TreePart) -> tuple[str, checkout_state.RepositoryState]:
        trees.require_commit(part)
        if part.path not in tagged or not commits.has_tag_files(part.git_dir, part.head, hipified=hipified):
            commits.tag_upstream(part.git, part.head, hipified=hipified, fetched=fetched and not part.path)
        return part.path, checkout_state.RepositoryState(part.head, part.head, part.tree)

    return dict(trees.run_side_by_side(tag, parts))


def list_all_files(
    parts: Sequence[trees.TreePart],
    project: Project,
    state: checkout_state.CheckoutState | None,
    *,
    clean: bool = False,
) -> commits.FileListing:
    """List all files of a tree, from its root, git-ignored ones included (build trees not).

    ``clean``: nothing changed since the indexes of its repositories were written.
    """

    def look(item: tuple[int, trees.TreePart]) -> commits.FileListing:
        index, part = Path(folder, str(item[0])), item[1]
        seed = trees.choose_seed_index(part.git_dir, part.head, state, part.path)
        if seed.exists():
            shutil.copy2(seed, index)
        skip = project.build.trees if not part.path else ()
        listing = commits.RepositoryScan(part.git, index, skip, clean=clean).list_files()
        return commits.prefix_listing(part.path, {**listing.ignored, **listing.sources})

    files: commits.FileListing = {}
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        for listing in trees.run_side_by_side(look, enumerate(part for part in parts if part.head)):
            files |= listing
    return files


_OUR_REFS = (
    f"refs/tags/{checkout_state.UPSTREAM_TAG}",
    f"refs/tags/{checkout_state.HIPIFY_TAG}",
    checkout_state.LEFT_REF,
    checkout_state.HIPIFIED_REF,
)


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

    state: checkout_state.CheckoutState | None
    origin: str
    repositories: Mapping[str, _RepositorySnapshot]


def take_snapshot(
    parts: Sequence[trees.TreePart], state: checkout_state.CheckoutState | None, written: Sequence[str]
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
        where = trees.find_holder(path, written_paths)
        written_paths[where].append(path.removeprefix(f"{where}/") if where else path)
    results = trees.run_side_by_side(
        lambda part: _snapshot_repository(part, state, written_paths[part.path]), parts
    )
    snapshots = {part.path: snapshot for part, snapshot in zip(parts, results, strict=True)}
    return TreeSnapshot(state, read_configured_origin(parts[0].git), snapshots)


def read_configured_origin(git: Git) -> str:
    """Return the origin that a repository has, with the credentials in it; empty where it has none."""
    return git.text("config", "--default", "", "--get", "remote.origin.url")


def restore_tree(
    git: Git, git_dir: Path, before: TreeSnapshot | None, project: Project, times: commits.FileListing
) -> None:
    """Make files, HEAD, tags and state of a tree what they were; what was fetched stays in the repository."""
    if before is None:
        log.log_note(f"{git.directory} was in the middle of another checkout; the next one begins from there")
        return
    now = checkout_state.read_state(git_dir)
    generated = now.generated if now is not None else ()
    if not before.repositories:
        _empty_tree(git, git_dir, generated)
        log.log_note(f"{git.directory} is empty again; what was fetched is kept in its repository")
        return
    for part in trees.list_repositories(git)[1:]:
        if part.path not in before.repositories:
            remove_submodule_folder(git, git_dir, part.path)
    commits.remove_files(git.directory, generated)
    for path, snapshot in before.repositories.items():
        _restore_repository(git, path, snapshot)
    commits.restore_times(git, times, list_all_files(trees.list_repositories(git), project, before.state))
    if before.state is not None:
        git.text("config", "--replace-all", "remote.origin.url", before.origin)
        checkout_state.write_state(git_dir, before.state)
    else:
        checkout_state.locate_state_file(git_dir).unlink(missing_ok=True)
    (git_dir / checkout_state.OWN_FOLDER / checkout_state.TIMES_FILE).unlink(missing_ok=True)
    log.log_note(f"{git.directory} is as it was before")


def _snapshot_repository(
    part: trees.TreePart, state: checkout_state.CheckoutState | None, written: Sequence[str]
) -> _RepositorySnapshot:
    trees.require_commit(part)
    head, git_dir = part.head, part.git_dir
    branch = part.git.text("rev-parse", "--symbolic-full-name", "HEAD")
    lines = part.git.text("for-each-ref", "--format=%(refname) %(objectname)", *_OUR_REFS).splitlines()
    side = git_dir / checkout_state.OWN_FOLDER / checkout_state.SIDE_INDEX
    with trees.temporary_index(
        part.git, trees.choose_seed_index(git_dir, head, state, part.path), keep=True
    ) as index_git:
        trees.stage_files(index_git)
        if present := [path for path in written if (part.git.directory / path).is_file()]:
            names = "".join(f"{path}\0" for path in present).encode("utf-8", "surrogateescape")
            index_git.text("update-index", "--add", "-z", "--stdin", stdin=names)
        tree = index_git.text("write-tree")
    refs = {line.split(" ")[0]: line.split(" ")[1] for line in lines}
    return _RepositorySnapshot(head, branch, refs, tree, side.read_bytes() if side.exists() else None)


def _restore_repository(git: Git, path: str, snapshot: _RepositorySnapshot) -> None:
    if path and not trees.is_populated(git.directory / path):
        above = trees.find_holder(path, (part.path for part in trees.list_repositories(git)))
        parent, name = git.in_directory(git.directory / above), path.removeprefix(f"{above}/")
        parent.text("submodule", "--quiet", "update", "--init", "--force", "--no-fetch", "--", name)
    repository_git = git.in_directory(git.directory / path)
    repository_git.text("checkout", "--quiet", "--force", "--detach", snapshot.head)
    if snapshot.tree != repository_git.text("rev-parse", "HEAD^{tree}"):
        with trees.temporary_index(repository_git, None, keep=True) as index_git:
            index_git.text("read-tree", snapshot.tree)
            index_git.text("checkout-index", "--all", "--force")
    if snapshot.branch != "HEAD":
        repository_git.text("symbolic-ref", "HEAD", snapshot.branch)
    for name in _OUR_REFS:
        if name in snapshot.refs:
            repository_git.text("update-ref", name, snapshot.refs[name])
        else:
            repository_git.text("update-ref", "-d", name)
    side = (
        trees.read_head_and_folder(repository_git)[1] / checkout_state.OWN_FOLDER / checkout_state.SIDE_INDEX
    )
    if snapshot.side is not None:
        side.write_bytes(snapshot.side)


def _empty_tree(git: Git, git_dir: Path, generated: Sequence[str]) -> None:
    """Take the files of a first checkout out again; objects stay, and the state says that it is not done."""
    for part in trees.list_repositories(git)[1:]:
        remove_submodule_folder(git, git_dir, part.path)
    commits.remove_files(git.directory, [*generated, *git.fields("ls-files", "-z")])
    git.text("read-tree", "--empty")
    git.text("symbolic-ref", "HEAD", "refs/heads/main")
    for name in _OUR_REFS:
        git.text("update-ref", "-d", name)
