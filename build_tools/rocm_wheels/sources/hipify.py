"""Hipify: the project's own script turns CUDA sources into HIP sources, in the tree.

The script is the project's; what we add is that it can be done again. Files whose content
stays keep their times, the commit (where wanted) has the same id for the same input, and
what is somebody's own work is never mixed in.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rocm_wheels import log, process
from rocm_wheels.errors import SourceError
from rocm_wheels.model.project import Project
from rocm_wheels.sources import build_env, protect
from rocm_wheels.sources.commits import commit_hipify, tag_unchanged, tree_with
from rocm_wheels.sources.files import Listing, Seen, restore_times, scan, scan_ignored, touched
from rocm_wheels.sources.git import Git, git_directory, without_private_filters
from rocm_wheels.sources.identity import combined_tree
from rocm_wheels.sources.recover import recover_hipify
from rocm_wheels.sources.state import (
    LEFT_REF,
    OWN_FOLDER,
    SIDE_INDEX,
    UPSTREAM_TAG,
    Left,
    State,
    read_state,
    write_state,
)
from rocm_wheels.sources.trees import (
    Part,
    holder,
    refuse_unborn,
    repositories,
    seed_index,
    side_by_side,
    standing,
)
from rocm_wheels.workspace import exclusive


@dataclass(frozen=True)
class HipifyResult:
    """``head``: the commit of the root afterwards; ``changed``: the files whose content changed."""

    directory: Path
    head: str
    changed: tuple[str, ...]


@dataclass(frozen=True)
class _Repository:
    """One repository of the tree while the script runs; ``untagged``: hipify has no tag in it yet.

    ``base``: an index that holds just what is checked out, if there is one.
    """

    part: Part
    left: Left
    index: Path
    untagged: bool
    base: Path | None

    @property
    def git(self) -> Git:
        return self.part.git

    @property
    def path(self) -> str:
        return self.part.path

    @property
    def head(self) -> str:
        return self.part.head


class _Written(NamedTuple):
    """What the script did in a repository; ``changed`` and ``generated`` (git-ignored) from the root."""

    written: dict[str, Seen | None]
    changed: list[str]
    generated: list[str]


def hipify(
    project: Project, directory: Path, *, commit: bool, env: Mapping[str, str], python: Path
) -> HipifyResult:
    """Hipify the checkout in ``directory``; with ``commit``, commit what changed and tag it.

    Works on any git checkout, ours or not. Raises SourceError when changes of somebody's
    own would get into the commit, when the script is missing or when it fails.
    """
    directory = directory.absolute()
    if not (directory / ".git").exists():
        raise SourceError(
            f"{directory} is not a git checkout", tip="run `checkout` first, or name it with --checkout-dir"
        )
    script = project.hipify.script
    if script and not (directory / script).is_file():
        raise SourceError(
            f"{directory} has no {script}, which the recipe of {project.name} names for hipify",
            tip="is this the right folder? name it with --checkout-dir",
        )
    plain = Git(directory, env)
    place = git_directory(plain)
    with exclusive(place / OWN_FOLDER, what=f"hipify of {project.name}"):
        git = without_private_filters(plain)
        state = read_state(place)
        if state is not None and state.operation not in (None, "hipify", "hipify without commit"):
            raise SourceError(
                f"the checkout in {directory} was interrupted", tip="run `checkout` again; it carries on"
            )
        if commit and state is not None and state.operation == "hipify":
            recover_hipify(git, state)
        parts = repositories(git)
        if commit:
            protect.refuse_uncommitted(parts, state)
        if state is not None:
            write_state(place, replace(state, operation="hipify" if commit else "hipify without commit"))
        new, changed = translate(parts, project, state, commit=commit, python=python)
        build_env.settle(git, place, project, wanted=True)
        if state is not None:
            now = standing(parts, new.left)
            done = settled(new, now)
            if any(
                protect.changes(part, done) or protect.own_commits(part, done, done.upstream) for part in now
            ):
                done = replace(done, identity="")  # what lies there is not ours alone
            write_state(place, done)
    return HipifyResult(directory, new.left[""].head, changed)


def settled(state: State, tree: Sequence[Part]) -> State:
    """Return the state of a tree (its repositories) on which nothing is under way, with its identity now."""
    state = replace(state, operation=None)
    paths = [part.path for part in tree]
    modules = [path for path in paths if path and not holder(path, paths)]
    return replace(state, identity=combined_tree(tree[0], modules, state)[0])


def translate(
    tree: Sequence[Part],
    project: Project,
    state: State | None,
    *,
    commit: bool,
    python: Path,
    untagged: bool = False,
) -> tuple[State, tuple[str, ...]]:
    """Run the recipe's script in a tree (its repositories, as they are) and settle what it wrote.

    ``untagged``: hipify's tags were just removed. Returns the new state and the changed files. Without a
    state (a checkout of somebody else's) HEAD counts as upstream.
    """
    if project.hipify.by != "script":
        _say_nothing_to_do(project)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocm-wheels-hipify-")))
        looks = [(part, folder / f"index{number}") for number, part in enumerate(tree)]
        parts = side_by_side(lambda item: _look(*item, state, untagged=untagged), looks)
        written: list[dict[str, Seen | None]] = [{} for _ in parts]
        changed: list[str] = []
        generated: set[str] = set(state.generated) if state is not None else set()
        if project.hipify.script:
            before = side_by_side(lambda part: _listings(project, part), parts)
            run_script(tree[0], project.hipify.script, python)
            found = side_by_side(
                lambda item: _settle(project, item[0], *item[1]), zip(parts, before, strict=True)
            )
            written = [one.written for one in found]
            changed = [path for one in found for path in one.changed]
            generated.update(path for one in found for path in one.generated)
        lefts = _commit(parts, written) if commit else _keep(parts, written)
    blank = state or State(origin="", ref="", upstream=parts[0].left.upstream)
    new = replace(
        blank,
        left=lefts,
        generated=tuple(sorted(generated)),
        hipify="committed" if commit else "uncommitted",
    )
    if project.hipify.script:
        log.note(f"hipified {project.name}: {len(changed)} files changed")
    return new, tuple(changed)


def untranslated(project: Project, state: State, *, commit: bool) -> State:
    """Return the state of a tree in which hipify has nothing to do, and where its tags are already."""
    _say_nothing_to_do(project)
    return replace(state, hipify="committed" if commit else "uncommitted")


def _say_nothing_to_do(project: Project) -> None:
    log.note(f"nothing to hipify in the tree of {project.name}: {project.hipify.reason}")


def run_script(root: Part, script: str, python: Path) -> None:
    """Run the project's script in its tree, with its output in a log inside the repository.

    Raises SourceError when the script is missing or fails.
    """
    git = root.git
    if not (git.directory / script).is_file():
        raise SourceError(
            f"{git.directory} has no {script}, which its recipe names for hipify",
            tip="check --repo-hashtag and --gitrepo-origin, or use --no-hipify",
        )
    record = root.place / OWN_FOLDER / "hipify.log"
    process.run(
        [python, script],
        # compiled modules of the script would count as new files where they are not ignored
        env={**git.env, **git.variables, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=git.directory,
        log=record,
        on_line=log.live,
        check=SourceError,
        what=f"hipify ({script} in {git.directory})",
        tip=f"the whole output is in {record}",
    )
    log.live("")


def _look(part: Part, index: Path, state: State | None, *, untagged: bool) -> _Repository:
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
    return _Repository(part, left, index, untagged, base)


def _listings(project: Project, part: _Repository) -> tuple[Listing, Listing]:
    """List a repository's files: sources, and what git ignores."""
    skip = project.build.trees if not part.path else ()
    return scan(part.git, part.index), scan_ignored(part.git, skip)


def _settle(project: Project, part: _Repository, before: Listing, ignored: Listing) -> _Written:
    """Find what the script did in a repository; what it wrote with the same content gets its time back."""
    after, hidden = _listings(project, part)
    written = touched(before, after)
    made = [path for path, seen in touched(ignored, hidden).items() if seen is not None]
    changed = [*restore_times(part.git, before, after), *restore_times(part.git, ignored, hidden)]
    inside = part.part.inside
    return _Written(written, [inside(path) for path in changed], [inside(path) for path in made])


def _commit(parts: list[_Repository], written: list[dict[str, Seen | None]]) -> dict[str, Left]:
    """Commit in every repository, innermost first: a parent then names its submodules' new commits."""
    paths = [part.path for part in parts]
    above = {path: holder(path, paths) for path in paths if path}
    depth = {"": 0}
    for path in paths[1:]:
        depth[path] = depth[above[path]] + 1
    lefts: dict[str, Left] = {}

    def commit(item: tuple[_Repository, dict[str, Seen | None]]) -> tuple[str, Left]:
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


def _commit_one(part: _Repository, files: dict[str, Seen | None], links: dict[str, str]) -> Left:
    tree, head = part.left.tree, part.head
    if files or links:
        tree = tree_with(part.git, tree, files, links, known=part.base)
    if tree != part.part.tree:
        head = commit_hipify(part.git, part.head, tree, part.left.upstream, untagged=part.untagged)
    else:
        tag_unchanged(part.git, head, untagged=part.untagged)
    return Left(head, part.left.upstream, tree)


def _keep(parts: list[_Repository], written: list[dict[str, Seen | None]]) -> dict[str, Left]:
    """Remember what we wrote without a commit: as a tree, and as an index that knows the files."""
    done = side_by_side(lambda item: _keep_one(*item), zip(parts, written, strict=True))
    return {part.path: left for part, left in zip(parts, done, strict=True)}


def _keep_one(part: _Repository, files: dict[str, Seen | None]) -> Left:
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
