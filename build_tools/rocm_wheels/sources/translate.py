"""A tree is hipified where anything changed since, and what was written is committed or remembered."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rocm_wheels import log
from rocm_wheels.model.project import Project
from rocm_wheels.sources.commits import commit_hipify, tag_unchanged, build_tree
from rocm_wheels.sources.files import (
    FileStamp,
)
from rocm_wheels.sources.hipified import (
    HipifyRecord,
)
from rocm_wheels.sources.identity import hash_whole_tree
from rocm_wheels.sources.script import HipifyRepository, run_keeping_edits, run_hipify_script
from rocm_wheels.sources.state import (
    LEFT_REF,
    OWN_FOLDER,
    SIDE_INDEX,
    UPSTREAM_TAG,
    RepositoryState,
    CheckoutState,
)
from rocm_wheels.sources.trees import (
    TreePart,
    find_holder,
    require_commit,
    choose_seed_index,
    run_side_by_side,
)


class HipifyRun(NamedTuple):
    """A run of the script in a tree. ``records``: what it makes and rewrites now, by repository."""

    parts: list[HipifyRepository]
    written: list[dict[str, FileStamp | None]]
    changed: tuple[str, ...]
    generated: tuple[str, ...]
    records: Mapping[str, HipifyRecord]


class HipifyOutcome(NamedTuple):
    """A hipified tree: its state, the files that changed, and what hipify did in each repository."""

    state: CheckoutState
    changed: tuple[str, ...]
    records: Mapping[str, HipifyRecord]


def hipify_repositories(
    tree: Sequence[TreePart],
    project: Project,
    state: CheckoutState | None,
    *,
    commit: bool,
    python: Path,
    known_records: Mapping[str, HipifyRecord | None] | None = None,
    keep_edited: bool = False,
) -> HipifyOutcome:
    """Run the recipe's script in a tree (its repositories, as they are) and settle what it wrote.

    ``known_records``: what hipify did in them; without, they were just checked out, and their tags removed.
    ``keep_edited``: an edit of a file that the script makes is the last word. Without a state (a checkout of
    somebody else's) HEAD counts as upstream.
    """
    if project.hipify.by != "script":
        _log_nothing_to_do(project)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-hipify-") as name:
        run = run_hipify(
            tree, project, state, python, known_records, folder=Path(name), keep_edited=keep_edited
        )
        states = _commit_all(run.parts, run.written) if commit else _remember_all(run.parts, run.written)
    blank = state or CheckoutState(origin="", ref="", upstream=run.parts[0].state.upstream)
    new = replace(
        blank, left=states, generated=run.generated, hipify="committed" if commit else "uncommitted"
    )
    if project.hipify.script:
        log_changed_files(project, run.changed)
    return HipifyOutcome(new, run.changed, run.records)


def log_changed_files(project: Project, changed: Sequence[str]) -> None:
    """Tell how many files hipify changed."""
    log.log_note(f"hipified {project.name}: {len(changed)} files changed")


def run_hipify(
    tree: Sequence[TreePart],
    project: Project,
    state: CheckoutState | None,
    python: Path,
    known_records: Mapping[str, HipifyRecord | None] | None,
    *,
    folder: Path,
    keep_edited: bool = False,
) -> HipifyRun:
    """Run the script where anything changed since it ran, and settle what it wrote (see ``hipified``).

    ``folder``: where indexes may be put, until what was written is committed.
    """
    generated: set[str] = set(state.generated) if state is not None else set()
    items = [(part, folder / f"index{number}") for number, part in enumerate(tree)]
    parts = run_side_by_side(
        lambda item: _inspect_repository(*item, state, untagged=known_records is None), items
    )
    records = {path: record for path, record in (known_records or {}).items() if record is not None}
    script = project.hipify.script
    if not script or (not keep_edited and _is_current(tree, state, records)):
        return HipifyRun(parts, [{} for _ in parts], (), tuple(sorted(generated)), records)

    def run() -> None:
        run_hipify_script(tree[0], script, python)

    return HipifyRun(
        parts, *run_keeping_edits(parts, project, run, known_records, generated, keep_edited=keep_edited)
    )


def _is_current(
    tree: Sequence[TreePart], state: CheckoutState | None, records: Mapping[str, HipifyRecord]
) -> bool:
    """Tell whether nothing changed in a tree since it was hipified."""
    root = records.get("")
    if root is None or not root.whole:
        return False
    return root.is_current(tree[0].git.directory, hash_whole_tree(tree, state))


def skip_hipify(project: Project, state: CheckoutState, *, commit: bool) -> CheckoutState:
    """Return the state of a tree in which hipify has nothing to do, and where its tags are already."""
    _log_nothing_to_do(project)
    return replace(state, hipify="committed" if commit else "uncommitted")


def _log_nothing_to_do(project: Project) -> None:
    log.log_note(f"nothing to hipify in the tree of {project.name}: {project.hipify.reason}")


def _inspect_repository(
    part: TreePart, index: Path, state: CheckoutState | None, *, untagged: bool
) -> HipifyRepository:
    require_commit(part)
    git, head = part.git, part.head
    recorded = state.left.get(part.path) if state is not None else None
    if recorded is None or recorded.head != head:
        tagged = git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{UPSTREAM_TAG}")
        if not tagged:
            git.text("update-ref", f"refs/tags/{UPSTREAM_TAG}", head)
        recorded = RepositoryState(head, tagged or head, part.tree)
    seed = choose_seed_index(part.git_dir, head, state, part.path)
    if seed.exists():
        shutil.copy2(seed, index)
    base = index.with_suffix(".base") if untagged and recorded.tree == part.tree else None
    if base is not None:  # just checked out
        shutil.copy2(part.git_dir / "index", base)
    return HipifyRepository(part, recorded, index, untagged, base)


def _commit_all(
    parts: list[HipifyRepository], written: list[dict[str, FileStamp | None]]
) -> dict[str, RepositoryState]:
    """Commit in every repository, innermost first: a parent then names its submodules' new commits."""
    paths = [part.path for part in parts]
    above = {path: find_holder(path, paths) for path in paths if path}
    depth = {"": 0}
    for path in paths[1:]:
        depth[path] = depth[above[path]] + 1
    states: dict[str, RepositoryState] = {}

    def commit(item: tuple[HipifyRepository, dict[str, FileStamp | None]]) -> tuple[str, RepositoryState]:
        part, files = item
        links = {
            path.removeprefix(f"{part.path}/"): state.head
            for path, state in states.items()
            if above[path] == part.path
        }
        return part.path, _commit_repository(part, files, links)

    for level in range(max(depth.values()), -1, -1):
        level_items = [item for item in zip(parts, written, strict=True) if depth[item[0].path] == level]
        states.update(run_side_by_side(commit, level_items))
    return {path: states[path] for path in paths}


def _commit_repository(
    part: HipifyRepository, files: dict[str, FileStamp | None], links: dict[str, str]
) -> RepositoryState:
    tree, head = part.state.tree, part.head
    if files or links:
        tree = build_tree(part.git, tree, files, links, base_index=part.base)
    if tree != part.part.tree:
        head = commit_hipify(part.git, part.head, tree, part.state.upstream, untagged=part.untagged)
    else:
        tag_unchanged(part.git, head, untagged=part.untagged)
    return RepositoryState(head, part.state.upstream, tree)


def _remember_all(
    parts: list[HipifyRepository], written: list[dict[str, FileStamp | None]]
) -> dict[str, RepositoryState]:
    """Remember what we wrote without a commit: as a tree, and as an index that knows the files."""
    done = run_side_by_side(lambda item: _remember_repository(*item), zip(parts, written, strict=True))
    return {part.path: state for part, state in zip(parts, done, strict=True)}


def _remember_repository(part: HipifyRepository, files: dict[str, FileStamp | None]) -> RepositoryState:
    tree = build_tree(part.git, part.state.tree, files, {}) if files else part.state.tree
    uncommitted = tree != part.part.tree
    if uncommitted:
        side = part.part.git_dir / OWN_FOLDER / SIDE_INDEX
        part.git.with_variables(GIT_INDEX_FILE=str(part.index)).text("read-tree", "-m", tree)
        part.git.text("update-ref", LEFT_REF, tree)
        side.parent.mkdir(exist_ok=True)
        shutil.copy2(part.index, side.with_suffix(".part"))
        side.with_suffix(".part").replace(side)
    return RepositoryState(part.head, part.state.upstream, tree, uncommitted)
