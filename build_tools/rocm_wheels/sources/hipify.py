"""Hipify: the project's own script turns CUDA sources into HIP sources, in the tree.

The script is the project's; what we add is that it can be done again. Files whose content
stays keep their times, the commit (where wanted) has the same id for the same input, and
what is somebody's own work is never mixed in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.errors import SourceError
from rocm_wheels.model.project import Project
from rocm_wheels.sources import build_env, protect
from rocm_wheels.sources.git import Git, git_directory, without_private_filters
from rocm_wheels.sources.hipified import (
    EditedOutput,
    Record,
    read_record,
    write_records,
)
from rocm_wheels.sources.identity import as_it_lies, whole_tree
from rocm_wheels.sources.recover import recover_hipify
from rocm_wheels.sources.state import (
    OWN_FOLDER,
    State,
    read_state,
    write_state,
)
from rocm_wheels.sources.translate import run_again, say_changed, translate
from rocm_wheels.sources.trees import (
    Part,
    repositories,
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


def hipify(
    project: Project, directory: Path, *, commit: bool, env: Mapping[str, str], python: Path
) -> HipifyResult:
    """Hipify the checkout in ``directory``; with ``commit``, commit what changed and tag it.

    Works on any git checkout, ours or not. A tree in which nothing changed since is left alone. Raises
    SourceError when changes of somebody's own would get into the commit, when the script is missing or
    fails, when a file was edited that it has to write anew.
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
        before = state
        if state is not None:
            write_state(place, replace(state, operation="hipify" if commit else "hipify without commit"))
        try:
            new, changed, records = translate(
                parts, project, state, commit=commit, python=python, known=read_records(parts)
            )
        except EditedOutput:
            if before is not None:
                write_state(place, replace(before, operation=None))  # the tree is as it was
            raise
        build_env.settle(git, place, project, wanted=True)
        now = standing(parts, new.left)
        done = settled(new, now)
        write_records(now, records, done.identity)
        if state is not None:
            if any(
                protect.changes(part, done) or protect.own_commits(part, done, done.upstream) for part in now
            ):
                done = replace(done, identity="")  # what lies there is not ours alone
            write_state(place, done)
    return HipifyResult(directory, new.left[""].head, changed)


def hipify_changed(
    project: Project, directory: Path, *, env: Mapping[str, str], python: Path
) -> tuple[str, ...]:
    """Hipify what changed in a tree since it was hipified; return the files that are other ones now.

    In a tree whose hipify is committed it stays among the changes of whoever changed the sources: they commit
    both together. Raises SourceError as ``hipify`` does, and for a tree that is not hipified any more.
    """
    plain = Git(directory.absolute(), env)
    place = git_directory(plain)
    state = read_state(place)
    if state is not None and state.hipify == "uncommitted":
        return hipify(project, directory, commit=False, env=env, python=python).changed
    with exclusive(place / OWN_FOLDER, what=f"hipify of {project.name}"):
        git = without_private_filters(plain)
        state, parts = read_state(place), repositories(git)
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-hipify-") as name:
            run = run_again(parts, project, state, python, read_records(parts), folder=Path(name))
        if run.changed:
            say_changed(project, run.changed)
        whole = whole_tree(parts, state)
        write_records(parts, run.records, whole)
        if state is not None:
            write_state(place, replace(state, generated=run.generated))
    return run.changed


def hipify_state(project: Project, git: Git, whole: str = "") -> str:
    """Say whether a tree is hipified, by content: ``current``, ``stale`` (something changed since), ``no``.

    ``unknown`` where nobody remembers that it ever was. ``whole``: its ``combined_tree``, if at hand.
    """
    record = read_record(git) if project.hipify.script else None
    if record is None:
        return "unknown" if project.hipify.script else "current"
    if not record.is_in(git.directory):
        return "no"
    whole = whole or as_it_lies(git, read_state(git_directory(git)))[1]
    return "current" if record.is_current(git.directory, whole) else "stale"


def settled(state: State, tree: Sequence[Part]) -> State:
    """Return the state of a tree (its repositories) on which nothing is under way, with its identity now."""
    state = replace(state, operation=None)
    return replace(state, identity=whole_tree(tree, state))


def read_records(tree: Sequence[Part]) -> dict[str, Record | None]:
    """Return what hipify did in the repositories of a tree, by path; ``None`` where that is not known."""
    records = side_by_side(lambda part: read_record(part.git), tree)
    return {part.path: record for part, record in zip(tree, records, strict=True)}
