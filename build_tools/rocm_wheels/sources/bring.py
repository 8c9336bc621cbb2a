"""A tree is brought to a commit that its repository has, and made ours: tagged, patched, hipified.

What is under way is noted before the first file is written, so that a run that was killed can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.sources import build_env, protect, undo
from rocm_wheels.sources.configuration import write_configuration
from rocm_wheels.sources.files import FileListing, load_times, restore_times, save_times
from rocm_wheels.sources.git import Git, disable_filters
from rocm_wheels.sources.hipified import HipifyRecord, accept_rewritten_files, write_hipify_records
from rocm_wheels.sources.hipify import settle_state
from rocm_wheels.sources.materialize import (
    list_all_files,
    tag_upstream_commits,
    write_commit_files,
    list_our_files,
)
from rocm_wheels.sources.network import remote
from rocm_wheels.sources.network.fetch import mark_under_way
from rocm_wheels.sources.network.prefetch import SubmoduleFetch, RepositoryCommit, fetch_submodules
from rocm_wheels.sources.patches.apply import require_base_applies, apply_stage
from rocm_wheels.sources.patches.mail import PatchRefusedError
from rocm_wheels.sources.prepare import PreparedRepository
from rocm_wheels.sources.recover import rescue_all
from rocm_wheels.sources.request import CheckoutRequest
from rocm_wheels.sources.state import FETCHED_REF, OWN_FOLDER, TIMES_FILE, CheckoutState, write_state
from rocm_wheels.sources.translate import hipify_repositories, skip_hipify
from rocm_wheels.sources.trees import TreePart, list_differences, list_repositories, update_heads
from rocm_wheels.sources.unfinished import refuse_unfinished_operations


def bring_to_commit(
    request: CheckoutRequest,
    git_dir: Path,
    state: CheckoutState | None,
    ready: PreparedRepository,
    *,
    env: Mapping[str, str],
    python: Path,
) -> tuple[CheckoutState, str]:
    """Bring the tree to the wanted commit, patch and hipify it; return what was left, and upstream's tree."""
    commit, config, project = ready.commit, ready.config, request.project
    git = disable_filters(Git(request.directory, env), config.values)
    require_base_applies(git, commit, request.patches)
    parts = _secure_own_work(git, git_dir, state, ready)
    ours = list_our_files(parts, state)
    protect.refuse_blocking_files(git, commit, ours)
    modules = _fetch_submodules(request, git, git_dir, parts, ready)
    snapshot = undo.take_snapshot(parts, state, ours) if request.patched_with else None
    with mark_under_way(git_dir):  # killed here, git leaves locks, and no operation is noted yet
        # refused, it stays; relative submodules need it from here on
        write_configuration(git, git_dir, config, request.pin.origin, created=ready.created)
        protect.keep_commits(parts, state, commit)
    times = _note_times(git_dir, list_all_files(parts, project, state))
    new = _plan_state(request, commit)
    noted_state = replace(state or new, operation="checkout")
    if noted_state != ready.noted:
        write_state(git_dir, noted_state)
    moved = any(part.path for part in parts) or config.knows_submodules
    parts = write_commit_files(parts, git_dir, commit, ours, modules=modules, moved=moved, tree=ready.tree)
    tree, final = parts[0].tree, request.patches is None
    records: Mapping[str, HipifyRecord] = {}
    hipified = _stays_plain(request) and request.commit_hipify
    new = replace(new, left=tag_upstream_commits(parts, hipified=hipified, fetched=final))
    if not _stays_plain(request):  # else nothing comes that would write another file
        write_state(git_dir, replace(new, operation="checkout"))
    try:
        new, records = _patch_and_hipify(request, parts, git_dir, new, python)
    except PatchRefusedError:
        undo.restore_tree(git, git_dir, snapshot, project, times)
        raise
    if times:
        restore_times(git, times, list_all_files(parts, project, new))
    build_env.write_build_env(git, git_dir, project, hipified=request.hipify)
    if not final:  # until now the tree could be put back, without the tags
        git.text("update-ref", "-d", FETCHED_REF)
    parts = update_heads(parts, new.left)
    new = settle_state(new, parts)
    write_hipify_records(parts, records, new.identity)
    write_state(git_dir, new)
    (git_dir / OWN_FOLDER / TIMES_FILE).unlink(missing_ok=True)
    return new, tree


def _secure_own_work(
    git: Git, git_dir: Path, state: CheckoutState | None, ready: PreparedRepository
) -> Sequence[TreePart]:
    """Return the repositories of a tree once nothing in them is at risk: own work is refused, or rescued."""
    if state is not None and state.operation is not None:
        refuse_unfinished_operations(list_repositories(git), locks=False)  # a killed git of ours left those
        rescue_all(git, state, ready.commit)
        return list_repositories(git)
    parts = [TreePart("", git, "", git_dir, "", "")] if ready.created else list_repositories(git)
    protect.refuse_own_work(parts, state)
    return parts


def _fetch_submodules(
    request: CheckoutRequest, git: Git, git_dir: Path, parts: Sequence[TreePart], ready: PreparedRepository
) -> SubmoduleFetch:
    """Fetch the commits of all submodules."""
    submodule_git = git.with_settings("protocol.file.allow=always") if request.local_origin else git
    return fetch_submodules(
        RepositoryCommit("", submodule_git, git_dir, request.pin.origin, ready.commit),
        {part.path: part.git_dir for part in parts if part.path},
        ready.config,
        enabled=request.submodules,
        depth=request.depth,
        transport=request.transport,
    )


def _note_times(git_dir: Path, now: FileListing) -> FileListing:
    """Note the files that are there ``now``, and return them; after a killed run, those that it had noted."""
    path = git_dir / OWN_FOLDER / TIMES_FILE
    before = {**now, **load_times(path)}
    if before:
        save_times(path, before)
    return before


def _plan_state(request: CheckoutRequest, commit: str) -> CheckoutState:
    """Return the state of a tree that has nothing of ours yet."""
    return CheckoutState(
        remote.strip_credentials(request.pin.origin),
        request.pin.ref,
        commit,
        submodules=request.submodules,
        patches=request.patched_with,
        patch_set=request.patches.folder.name if request.patches is not None else "",
    )


def _stays_plain(request: CheckoutRequest) -> bool:
    """Tell whether hipify and patches leave the tree as upstream has it."""
    return request.patches is None and request.hipify and not request.project.hipify.script


def _patch_and_hipify(
    request: CheckoutRequest, parts: Sequence[TreePart], git_dir: Path, state: CheckoutState, python: Path
) -> tuple[CheckoutState, Mapping[str, HipifyRecord]]:
    """Apply base patches, hipify, apply hipified patches; return the state, and what hipify did."""
    patches, project = request.patches, request.project
    if _stays_plain(request):
        return skip_hipify(project, state, commit=request.commit_hipify), {}
    if patches is not None:
        state = apply_stage(parts, git_dir, state, patches.base, "base")
    if not request.hipify:
        return state, {}
    current_parts = update_heads(parts, state.left)
    state, _, records = hipify_repositories(
        current_parts, project, state, commit=request.commit_hipify, python=python
    )
    write_state(git_dir, replace(state, operation="checkout"))
    if patches is not None and patches.hipified and project.hipify.script:
        before, state = state, apply_stage(parts, git_dir, state, patches.hipified, "hipified")
        current_parts = update_heads(parts, state.left)
        records = {part.path: accept_rewritten_files(part, records[part.path]) for part in current_parts}
        if any(_touches_sources(part, before, records[part.path]) for part in current_parts):
            previous_records = dict(records)
            state, _, records = hipify_repositories(
                current_parts,
                project,
                state,
                commit=True,
                python=python,
                known_records=previous_records,
                keep_edited=True,
            )
            write_state(git_dir, replace(state, operation="checkout"))
    elif patches is not None:
        state = apply_stage(parts, git_dir, state, patches.hipified, "hipified")
    return state, records


def _touches_sources(part: TreePart, before: CheckoutState, record: HipifyRecord) -> bool:
    """Tell whether patches changed a file that hipify may have translated to another one."""
    changes = list_differences(part.git, "diff-tree", "-r", before.left[part.path].head, part.head)
    return any(
        not change.of_submodule and change.path not in record.made and change.path not in record.rewritten
        for change in changes
    )
