"""The files of a commit in the working trees: written, listed, tagged, put aside."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.model.project import Project
from rocm_wheels.sources.commits import tag_upstream
from rocm_wheels.sources.files import Listing, prefixed, remove_files, scan, scan_ignored
from rocm_wheels.sources.git import Git, git_directory
from rocm_wheels.sources.state import LEFT_REF, OWN_FOLDER, SIDE_INDEX, Left, State
from rocm_wheels.sources.trees import (
    GITLINK,
    entries,
    has_commit,
    has_object,
    head_and_place,
    repositories,
    seed_index,
)


def written_by_us(git: Git, state: State | None) -> list[str]:
    """List the files, from the root, that we wrote and did not commit; they may be removed."""
    found = list(state.generated) if state is not None else []
    for part in repositories(git):
        left = state.left.get(part.path) if state is not None else None
        if left is not None and left.uncommitted and has_object(part.git, left.head):
            committed = {entry.path for entry in entries(part.git, left.head)}
            found += [part.inside(e.path) for e in entries(part.git, left.tree) if e.path not in committed]
    return found


def write_files(git: Git, place: Path, commit: str, ours: list[str], *, submodules: bool) -> None:
    """Make the files those of ``commit``; what is not ``ours`` or tracked stays.

    The commits of its submodules must be there: no server is asked.
    """
    remove_files(git.directory, ours)
    old = repositories(git)
    for part in old:
        part.git.text("update-ref", "-d", LEFT_REF)
        (git_directory(part.git) / OWN_FOLDER / SIDE_INDEX).unlink(missing_ok=True)
    wanted = {e.path for e in entries(git, commit) if e.mode == GITLINK} if submodules else set()
    for part in old[1:]:
        if not any(part.path == path or part.path.startswith(f"{path}/") for path in wanted):
            put_aside(git, place, part.path)
    git.text("checkout", "--quiet", "--force", "--detach", commit)
    if wanted:
        _update_submodules(git)
        there = {part.path for part in repositories(git)}
        for part in old[1:]:
            if part.path not in there:
                put_aside(git, place, part.path)


def _update_submodules(git: Git) -> None:
    """Put every submodule, recursively, at the commit that its parent names; no server is asked."""
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


def tag_all(git: Git) -> dict[str, Left]:
    """Tag every repository's commit as upstream's; return what lies there."""
    lefts = {}
    for part in repositories(git):
        head = head_and_place(part.git)[0]
        tag_upstream(part.git, head)
        lefts[part.path] = Left(head, head, part.git.text("rev-parse", "HEAD^{tree}"))
    return lefts


def list_all(git: Git, project: Project, state: State | None) -> Listing:
    """List all files, from the root, submodules and git-ignored ones included (build trees not)."""
    found: Listing = {}
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        for number, part in enumerate(repositories(git)):
            if not has_commit(part.git):
                continue
            head, place = head_and_place(part.git)
            index, seed = Path(folder, str(number)), seed_index(place, head, state, part.path)
            if seed.exists():
                shutil.copy2(seed, index)
            skip = project.build.trees if not part.path else ()
            found |= prefixed(part.path, {**scan_ignored(part.git, skip), **scan(part.git, index)})
    return found
