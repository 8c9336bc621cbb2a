"""The files of a commit in the working trees: written, listed, tagged, put aside."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.model.project import Project
from rocm_wheels.sources.commits import tag_upstream
from rocm_wheels.sources.files import Listing, prefixed, remove_files, scan, scan_ignored
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.network.prefetch import Arrived, Fetched
from rocm_wheels.sources.populate import populate
from rocm_wheels.sources.state import OWN_FOLDER, SIDE_INDEX, Left, State
from rocm_wheels.sources.trees import (
    Part,
    entries,
    has_object,
    refuse_unborn,
    repositories,
    seed_index,
    side_by_side,
)


def written_by_us(parts: Sequence[Part], state: State | None) -> list[str]:
    """List the files of a tree, from the root, that we wrote and did not commit; they may be removed."""
    found = list(state.generated) if state is not None else []
    for part in parts:
        left = state.left.get(part.path) if state is not None else None
        if left is not None and left.uncommitted and has_object(part.git, left.head):
            committed = {entry.path for entry in entries(part.git, left.head)}
            found += [part.inside(e.path) for e in entries(part.git, left.tree) if e.path not in committed]
    return found


def write_files(
    old: Sequence[Part],
    place: Path,
    commit: str,
    ours: list[str],
    *,
    modules: Fetched,
    moved: bool,
    tree: str,
) -> list[Part]:
    """Make the files of a tree those of ``commit``; what is not ``ours`` or tracked stays.

    The commits of its submodules, ``modules`` (none: not wanted), must be there: no server is asked.
    ``moved``: those that git knows may come from elsewhere now. ``tree``: the commit's, known where the root
    was just made. Returns the repositories then.
    """
    git, links = old[0].git, modules.paths
    remove_files(git.directory, ours)
    for part in old:
        (part.place / OWN_FOLDER / SIDE_INDEX).unlink(missing_ok=True)
    for part in old[1:]:
        if not any(part.path == path or part.path.startswith(f"{path}/") for path in links):
            put_aside(git, place, part.path)
    git.text("checkout", "--quiet", "--force", "--detach", commit)
    populated = not links or (modules.new is not None and populate(git, place, modules.new))
    if populated and tree and all(one.tree for one in modules.new or ()):
        return _just_written(git, place, commit, tree, modules.new or ())
    if not populated:
        _update_submodules(git, moved=moved)
    new = repositories(git)
    if links:
        there = {part.path for part in new}
        for part in old[1:]:
            if part.path not in there:
                put_aside(git, place, part.path)
    return new


def _just_written(git: Git, place: Path, commit: str, tree: str, modules: Sequence[Arrived]) -> list[Part]:
    """Return the repositories of a tree that was all made and written now: what is in them is known."""
    below = [
        Part(one.path, git.at(git.directory / one.path), one.commit, one.folder, one.commit, one.tree)
        for one in sorted(modules, key=lambda one: one.path.split("/"))
    ]
    return [Part("", git, "", place, commit, tree), *below]


def _update_submodules(git: Git, *, moved: bool) -> None:
    """Put every submodule, recursively, at the commit that its parent names; no server is asked."""
    if moved:
        git.text("submodule", "--quiet", "sync", "--recursive")
    near = git.setting("protocol.allow=never")
    near.text("submodule", "--quiet", "update", "--init", "--recursive", "--force", "--no-fetch")


def put_aside(git: Git, place: Path, path: str) -> None:
    """Remove a submodule's folder; with ignored files in it, it is moved into the repository instead."""
    directory = git.directory / path
    if not (directory / ".git").exists():
        return
    ignored = git.at(directory).fields("ls-files", "-o", "-i", "-z", "--directory", "--exclude-standard")
    if ignored:
        kept = place / OWN_FOLDER / "kept"
        kept.mkdir(exist_ok=True)
        target = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=kept)) / directory.name
        directory.rename(target)
        log.warn(f"{path} is no longer a submodule; its folder, with files that git ignores, is now {target}")
    else:
        shutil.rmtree(directory)
    remove_files(git.directory, [path])  # empty folders above it


def tag_all(parts: Sequence[Part], *, hipified: bool, fetched: bool) -> dict[str, Left]:
    """Tag every repository's commit as upstream's; return what lies there.

    ``hipified``: nothing is to be translated, and each is what hipify leaves. ``fetched``: with the tag,
    the root's ref of what was fetched is no longer needed.
    """

    def tag(part: Part) -> tuple[str, Left]:
        refuse_unborn(part)
        tag_upstream(part.git, part.head, hipified=hipified, fetched=fetched and not part.path)
        return part.path, Left(part.head, part.head, part.tree)

    return dict(side_by_side(tag, parts))


def list_all(parts: Sequence[Part], project: Project, state: State | None) -> Listing:
    """List all files of a tree, from its root, git-ignored ones included (build trees not)."""

    def look(item: tuple[int, Part]) -> Listing:
        index, part = Path(folder, str(item[0])), item[1]
        seed = seed_index(part.place, part.head, state, part.path)
        if seed.exists():
            shutil.copy2(seed, index)
        skip = project.build.trees if not part.path else ()
        return prefixed(part.path, {**scan_ignored(part.git, skip), **scan(part.git, index)})

    found: Listing = {}
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        for listing in side_by_side(look, enumerate(part for part in parts if part.head)):
            found |= listing
    return found
