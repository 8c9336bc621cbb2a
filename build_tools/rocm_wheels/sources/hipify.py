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
from rocm_wheels.sources.git import Git, find_git_directory, disable_private_filters
from rocm_wheels.sources.hipified import (
    EditedOutputError,
    HipifyRecord,
    read_hipify_record,
    write_hipify_records,
)
from rocm_wheels.sources.identity import read_current_tree, hash_whole_tree
from rocm_wheels.sources.recover import recover_hipify
from rocm_wheels.sources.state import (
    OWN_FOLDER,
    CheckoutState,
    read_state,
    write_state,
)
from rocm_wheels.sources.translate import run_hipify, log_changed_files, hipify_repositories
from rocm_wheels.sources.trees import (
    TreePart,
    list_repositories,
    run_side_by_side,
    update_heads,
)
from rocm_wheels.workspace import lock_folder


@dataclass(frozen=True)
class HipifyResult:
    """``head``: the commit of the root afterwards; ``changed``: the files whose content changed."""

    directory: Path
    head: str
    changed: tuple[str, ...]


def hipify_checkout(
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
    git_dir = find_git_directory(plain)
    with lock_folder(git_dir / OWN_FOLDER, purpose=f"hipify of {project.name}"):
        git = disable_private_filters(plain)
        state = read_state(git_dir)
        if state is not None and state.operation not in (None, "hipify", "hipify without commit"):
            raise SourceError(
                f"the checkout in {directory} was interrupted", tip="run `checkout` again; it carries on"
            )
        if commit and state is not None and state.operation == "hipify":
            recover_hipify(git, state)
        parts = list_repositories(git)
        if commit:
            protect.refuse_uncommitted(parts, state)
        before = state
        if state is not None:
            write_state(git_dir, replace(state, operation="hipify" if commit else "hipify without commit"))
        try:
            new, changed, records = hipify_repositories(
                parts, project, state, commit=commit, python=python, known_records=read_hipify_records(parts)
            )
        except EditedOutputError:
            if before is not None:
                write_state(git_dir, replace(before, operation=None))  # the tree is as it was
            raise
        build_env.write_build_env(git, git_dir, project, hipified=True)
        now = update_heads(parts, new.left)
        done = settle_state(new, now)
        write_hipify_records(now, records, done.identity)
        if state is not None:
            if any(
                protect.list_own_changes(part, done) or protect.list_own_commits(part, done, done.upstream)
                for part in now
            ):
                done = replace(done, identity="")  # what lies there is not ours alone
            write_state(git_dir, done)
    return HipifyResult(directory, new.left[""].head, changed)


def hipify_changes(
    project: Project, directory: Path, *, env: Mapping[str, str], python: Path
) -> tuple[str, ...]:
    """Hipify what changed in a tree since it was hipified; return the files that are other ones now.

    In a tree whose hipify is committed it stays among the changes of whoever changed the sources: they commit
    both together. Raises SourceError as ``hipify_checkout`` does, and for a tree that is not hipified any more.
    """
    plain = Git(directory.absolute(), env)
    git_dir = find_git_directory(plain)
    state = read_state(git_dir)
    if state is not None and state.hipify == "uncommitted":
        return hipify_checkout(project, directory, commit=False, env=env, python=python).changed
    with lock_folder(git_dir / OWN_FOLDER, purpose=f"hipify of {project.name}"):
        git = disable_private_filters(plain)
        state, parts = read_state(git_dir), list_repositories(git)
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-hipify-") as name:
            run = run_hipify(parts, project, state, python, read_hipify_records(parts), folder=Path(name))
        if run.changed:
            log_changed_files(project, run.changed)
        whole = hash_whole_tree(parts, state)
        write_hipify_records(parts, run.records, whole)
        if state is not None:
            write_state(git_dir, replace(state, generated=run.generated))
    return run.changed


def check_hipify(project: Project, git: Git, whole: str = "") -> str:
    """Say whether a tree is hipified, by content: ``current``, ``stale`` (something changed since), ``no``.

    ``unknown`` where nobody remembers that it ever was. ``whole``: its ``hash_combined_tree``, if at hand.
    """
    record = read_hipify_record(git) if project.hipify.script else None
    if record is None:
        return "unknown" if project.hipify.script else "current"
    if not record.is_hipified(git.directory):
        return "no"
    whole = whole or read_current_tree(git, read_state(find_git_directory(git)))[1]
    return "current" if record.is_current(git.directory, whole) else "stale"


def settle_state(state: CheckoutState, tree: Sequence[TreePart]) -> CheckoutState:
    """Return the state of a tree (its repositories) on which nothing is under way, with its identity now."""
    state = replace(state, operation=None)
    return replace(state, identity=hash_whole_tree(tree, state))


def read_hipify_records(tree: Sequence[TreePart]) -> dict[str, HipifyRecord | None]:
    """Return what hipify did in the repositories of a tree, by path; ``None`` where that is not known."""
    records = run_side_by_side(lambda part: read_hipify_record(part.git), tree)
    return {part.path: record for part, record in zip(tree, records, strict=True)}
