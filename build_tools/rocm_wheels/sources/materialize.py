"""The files of a commit in the working trees: written, listed, tagged, put aside."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.model.project import Project
from rocm_wheels.sources.commits import tag_upstream
from rocm_wheels.sources.files import (
    FileListing,
    prefix_listing,
    remove_files,
    scan_files,
    scan_ignored_files,
)
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.network.prefetch import FetchedSubmodule, SubmoduleFetch
from rocm_wheels.sources.populate import write_submodules
from rocm_wheels.sources.state import OWN_FOLDER, SIDE_INDEX, RepositoryState, CheckoutState
from rocm_wheels.sources.trees import (
    TreePart,
    list_tree,
    has_object,
    require_commit,
    list_repositories,
    choose_seed_index,
    run_side_by_side,
)


def list_our_files(parts: Sequence[TreePart], state: CheckoutState | None) -> list[str]:
    """List the files of a tree, from the root, that we wrote and did not commit; they may be removed."""
    paths = list(state.generated) if state is not None else []
    for part in parts:
        recorded = state.left.get(part.path) if state is not None else None
        if recorded is not None and recorded.uncommitted and has_object(part.git, recorded.head):
            committed = {entry.path for entry in list_tree(part.git, recorded.head)}
            paths += [
                part.path_from_root(e.path)
                for e in list_tree(part.git, recorded.tree)
                if e.path not in committed
            ]
    return paths


def write_commit_files(
    old: Sequence[TreePart],
    git_dir: Path,
    commit: str,
    ours: list[str],
    *,
    modules: SubmoduleFetch,
    moved: bool,
    tree: str,
) -> list[TreePart]:
    """Make the files of a tree those of ``commit``; what is not ``ours`` or tracked stays.

    The commits of its submodules, ``modules`` (none: not wanted), must be there: no server is asked.
    ``moved``: those that git knows may come from elsewhere now. ``tree``: the commit's, known where the root
    was just made. Returns the repositories then.
    """
    git, links = old[0].git, modules.paths
    remove_files(git.directory, ours)
    for part in old:
        (part.git_dir / OWN_FOLDER / SIDE_INDEX).unlink(missing_ok=True)
    for part in old[1:]:
        if not any(part.path == path or part.path.startswith(f"{path}/") for path in links):
            remove_submodule_folder(git, git_dir, part.path)
    git.text("checkout", "--quiet", "--force", "--detach", commit)
    populated = not links or (modules.new is not None and write_submodules(git, git_dir, modules.new))
    if populated and tree and all(submodule.tree for submodule in modules.new or ()):
        return _describe_written(git, git_dir, commit, tree, modules.new or ())
    if not populated:
        _update_submodules(git, moved=moved)
    new = list_repositories(git)
    if links:
        present = {part.path for part in new}
        for part in old[1:]:
            if part.path not in present:
                remove_submodule_folder(git, git_dir, part.path)
    return new


def _describe_written(
    git: Git, git_dir: Path, commit: str, tree: str, modules: Sequence[FetchedSubmodule]
) -> list[TreePart]:
    """Return the repositories of a tree that was all made and written now: what is in them is known."""
    below = [
        TreePart(
            submodule.path,
            git.in_directory(git.directory / submodule.path),
            submodule.commit,
            submodule.folder,
            submodule.commit,
            submodule.tree,
        )
        for submodule in sorted(modules, key=lambda submodule: submodule.path.split("/"))
    ]
    return [TreePart("", git, "", git_dir, commit, tree), *below]


def _update_submodules(git: Git, *, moved: bool) -> None:
    """Put every submodule, recursively, at the commit that its parent names; no server is asked."""
    if moved:
        git.text("submodule", "--quiet", "sync", "--recursive")
    near = git.with_settings("protocol.allow=never")
    near.text("submodule", "--quiet", "update", "--init", "--recursive", "--force", "--no-fetch")


def remove_submodule_folder(git: Git, git_dir: Path, path: str) -> None:
    """Remove a submodule's folder; with ignored files in it, it is moved into the repository instead."""
    directory = git.directory / path
    if not (directory / ".git").exists():
        return
    ignored = git.in_directory(directory).fields(
        "ls-files", "-o", "-i", "-z", "--directory", "--exclude-standard"
    )
    if ignored:
        kept_folder = git_dir / OWN_FOLDER / "kept"
        kept_folder.mkdir(exist_ok=True)
        target = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=kept_folder)) / directory.name
        directory.rename(target)
        log.log_warning(
            f"{path} is no longer a submodule; its folder, with files that git ignores, is now {target}"
        )
    else:
        shutil.rmtree(directory)
    remove_files(git.directory, [path])  # empty folders above it


def tag_upstream_commits(
    parts: Sequence[TreePart], *, hipified: bool, fetched: bool
) -> dict[str, RepositoryState]:
    """Tag every repository's commit as upstream's; return what lies there.

    ``hipified``: nothing is to be translated, and each is what hipify leaves. ``fetched``: with the tag,
    the root's ref of what was fetched is no longer needed.
    """

    def tag(part: TreePart) -> tuple[str, RepositoryState]:
        require_commit(part)
        tag_upstream(part.git, part.head, hipified=hipified, fetched=fetched and not part.path)
        return part.path, RepositoryState(part.head, part.head, part.tree)

    return dict(run_side_by_side(tag, parts))


def list_all_files(parts: Sequence[TreePart], project: Project, state: CheckoutState | None) -> FileListing:
    """List all files of a tree, from its root, git-ignored ones included (build trees not)."""

    def look(item: tuple[int, TreePart]) -> FileListing:
        index, part = Path(folder, str(item[0])), item[1]
        seed = choose_seed_index(part.git_dir, part.head, state, part.path)
        if seed.exists():
            shutil.copy2(seed, index)
        skip = project.build.trees if not part.path else ()
        return prefix_listing(
            part.path, {**scan_ignored_files(part.git, skip), **scan_files(part.git, index)}
        )

    files: FileListing = {}
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        for listing in run_side_by_side(look, enumerate(part for part in parts if part.head)):
            files |= listing
    return files
