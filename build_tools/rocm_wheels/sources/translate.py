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
from rocm_wheels.sources.commits import commit_hipify, tag_unchanged, tree_with
from rocm_wheels.sources.files import (
    Seen,
)
from rocm_wheels.sources.hipified import (
    Record,
)
from rocm_wheels.sources.identity import whole_tree
from rocm_wheels.sources.script import Repository, run_beside_edits, run_script
from rocm_wheels.sources.state import (
    LEFT_REF,
    OWN_FOLDER,
    SIDE_INDEX,
    UPSTREAM_TAG,
    Left,
    State,
)
from rocm_wheels.sources.trees import (
    Part,
    holder,
    refuse_unborn,
    seed_index,
    side_by_side,
)


class Run(NamedTuple):
    """A run of the script in a tree. ``records``: what it makes and rewrites now, by repository."""

    parts: list[Repository]
    written: list[dict[str, Seen | None]]
    changed: tuple[str, ...]
    generated: tuple[str, ...]
    records: Mapping[str, Record]


class Translated(NamedTuple):
    """A hipified tree: its state, the files that changed, and what hipify did in each repository."""

    state: State
    changed: tuple[str, ...]
    records: Mapping[str, Record]


def translate(
    tree: Sequence[Part],
    project: Project,
    state: State | None,
    *,
    commit: bool,
    python: Path,
    known: Mapping[str, Record | None] | None = None,
    keep_edited: bool = False,
) -> Translated:
    """Run the recipe's script in a tree (its repositories, as they are) and settle what it wrote.

    ``known``: what hipify did in them; without, they were just checked out, and their tags removed.
    ``keep_edited``: an edit of a file that the script makes is the last word. Without a state (a checkout of
    somebody else's) HEAD counts as upstream.
    """
    if project.hipify.by != "script":
        _say_nothing_to_do(project)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-hipify-") as name:
        run = run_again(tree, project, state, python, known, folder=Path(name), keep_edited=keep_edited)
        lefts = _commit(run.parts, run.written) if commit else _keep(run.parts, run.written)
    blank = state or State(origin="", ref="", upstream=run.parts[0].left.upstream)
    new = replace(blank, left=lefts, generated=run.generated, hipify="committed" if commit else "uncommitted")
    if project.hipify.script:
        say_changed(project, run.changed)
    return Translated(new, run.changed, run.records)


def say_changed(project: Project, changed: Sequence[str]) -> None:
    """Tell how many files hipify changed."""
    log.note(f"hipified {project.name}: {len(changed)} files changed")


def run_again(
    tree: Sequence[Part],
    project: Project,
    state: State | None,
    python: Path,
    known: Mapping[str, Record | None] | None,
    *,
    folder: Path,
    keep_edited: bool = False,
) -> Run:
    """Run the script where anything changed since it ran, and settle what it wrote (see ``hipified``).

    ``folder``: where indexes may be put, until what was written is committed.
    """
    generated: set[str] = set(state.generated) if state is not None else set()
    looks = [(part, folder / f"index{number}") for number, part in enumerate(tree)]
    parts = side_by_side(lambda item: _look(*item, state, untagged=known is None), looks)
    records = {path: record for path, record in (known or {}).items() if record is not None}
    script = project.hipify.script
    if not script or (not keep_edited and _is_current(tree, state, records)):
        return Run(parts, [{} for _ in parts], (), tuple(sorted(generated)), records)

    def run() -> None:
        run_script(tree[0], script, python)

    return Run(parts, *run_beside_edits(parts, project, run, known, generated, keep_edited=keep_edited))


def _is_current(tree: Sequence[Part], state: State | None, records: Mapping[str, Record]) -> bool:
    """Tell whether nothing changed in a tree since it was hipified."""
    root = records.get("")
    if root is None or not root.whole:
        return False
    return root.is_current(tree[0].git.directory, whole_tree(tree, state))


def untranslated(project: Project, state: State, *, commit: bool) -> State:
    """Return the state of a tree in which hipify has nothing to do, and where its tags are already."""
    _say_nothing_to_do(project)
    return replace(state, hipify="committed" if commit else "uncommitted")


def _say_nothing_to_do(project: Project) -> None:
    log.note(f"nothing to hipify in the tree of {project.name}: {project.hipify.reason}")


def _look(part: Part, index: Path, state: State | None, *, untagged: bool) -> Repository:
    refuse_unborn(part)
    git, head = part.git, part.head
    left = state.left.get(part.path) if state is not None else None
    if left is None or left.head != head:
        tagged = git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{UPSTREAM_TAG}")
        if not tagged:
            git.text("update-ref", f"refs/tags/{UPSTREAM_TAG}", head)
        left = Left(head, tagged or head, part.tree)
    seed = seed_index(part.place, head, state, part.path)
    if seed.exists():
        shutil.copy2(seed, index)
    base = index.with_suffix(".base") if untagged and left.tree == part.tree else None
    if base is not None:  # just checked out
        shutil.copy2(part.place / "index", base)
    return Repository(part, left, index, untagged, base)


def _commit(parts: list[Repository], written: list[dict[str, Seen | None]]) -> dict[str, Left]:
    """Commit in every repository, innermost first: a parent then names its submodules' new commits."""
    paths = [part.path for part in parts]
    above = {path: holder(path, paths) for path in paths if path}
    depth = {"": 0}
    for path in paths[1:]:
        depth[path] = depth[above[path]] + 1
    lefts: dict[str, Left] = {}

    def commit(item: tuple[Repository, dict[str, Seen | None]]) -> tuple[str, Left]:
        part, files = item
        links = {
            path.removeprefix(f"{part.path}/"): left.head
            for path, left in lefts.items()
            if above[path] == part.path
        }
        return part.path, _commit_one(part, files, links)

    for level in range(max(depth.values()), -1, -1):
        some = [item for item in zip(parts, written, strict=True) if depth[item[0].path] == level]
        lefts.update(side_by_side(commit, some))
    return {path: lefts[path] for path in paths}


def _commit_one(part: Repository, files: dict[str, Seen | None], links: dict[str, str]) -> Left:
    tree, head = part.left.tree, part.head
    if files or links:
        tree = tree_with(part.git, tree, files, links, known=part.base)
    if tree != part.part.tree:
        head = commit_hipify(part.git, part.head, tree, part.left.upstream, untagged=part.untagged)
    else:
        tag_unchanged(part.git, head, untagged=part.untagged)
    return Left(head, part.left.upstream, tree)


def _keep(parts: list[Repository], written: list[dict[str, Seen | None]]) -> dict[str, Left]:
    """Remember what we wrote without a commit: as a tree, and as an index that knows the files."""
    done = side_by_side(lambda item: _keep_one(*item), zip(parts, written, strict=True))
    return {part.path: left for part, left in zip(parts, done, strict=True)}


def _keep_one(part: Repository, files: dict[str, Seen | None]) -> Left:
    tree = tree_with(part.git, part.left.tree, files, {}) if files else part.left.tree
    uncommitted = tree != part.part.tree
    if uncommitted:
        side = part.part.place / OWN_FOLDER / SIDE_INDEX
        part.git.using(GIT_INDEX_FILE=str(part.index)).text("read-tree", "-m", tree)
        part.git.text("update-ref", LEFT_REF, tree)
        side.parent.mkdir(exist_ok=True)
        shutil.copy2(part.index, side.with_suffix(".part"))
        side.with_suffix(".part").replace(side)
    return Left(part.head, part.left.upstream, tree, uncommitted)
