"""A tree is brought to a commit that its repository has, and made ours: tagged, patched, hipified.

What is under way is noted before the first file is written, so that a run that was killed can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.sources import build_env, protect, undo
from rocm_wheels.sources.configuration import configure
from rocm_wheels.sources.files import Listing, load_times, restore_times, save_times
from rocm_wheels.sources.git import Git, without_filters
from rocm_wheels.sources.hipified import Record, settle_lines, write_records
from rocm_wheels.sources.hipify import settled
from rocm_wheels.sources.materialize import list_all, tag_all, write_files, written_by_us
from rocm_wheels.sources.network import remote
from rocm_wheels.sources.network.fetch import under_way
from rocm_wheels.sources.network.prefetch import Fetched, Here, fetch_submodules
from rocm_wheels.sources.patches.apply import refuse_early, stage
from rocm_wheels.sources.patches.mail import PatchRefused
from rocm_wheels.sources.prepare import Ready
from rocm_wheels.sources.recover import rescue_all
from rocm_wheels.sources.request import CheckoutRequest
from rocm_wheels.sources.state import FETCHED_REF, OWN_FOLDER, TIMES, State, write_state
from rocm_wheels.sources.translate import translate, untranslated
from rocm_wheels.sources.trees import Part, differences, repositories, standing
from rocm_wheels.sources.unfinished import refuse_unfinished


def bring(
    request: CheckoutRequest,
    place: Path,
    state: State | None,
    ready: Ready,
    *,
    env: Mapping[str, str],
    python: Path,
) -> tuple[State, str]:
    """Bring the tree to the wanted commit, patch and hipify it; return what was left, and upstream's tree."""
    commit, known, project = ready.commit, ready.known, request.project
    git = without_filters(Git(request.directory, env), known.values)
    refuse_early(git, commit, request.patches)
    parts = _with_own_work_safe(git, place, state, ready)
    ours = written_by_us(parts, state)
    protect.refuse_in_the_way(git, commit, ours)
    modules = _fetch_submodules(request, git, place, parts, ready)
    way_back = undo.remember(parts, state, ours) if request.patched_with else None
    with under_way(place):  # killed here, git leaves locks, and no operation is noted yet
        # refused, it stays; relative submodules need it from here on
        configure(git, place, known, request.pin.origin, made=ready.made)
        protect.keep_commits(parts, state, commit)
    times = _note_times(place, list_all(parts, project, state))
    new = _wanted_state(request, commit)
    begun = replace(state or new, operation="checkout")
    if begun != ready.noted:
        write_state(place, begun)
    moved = any(part.path for part in parts) or known.knows_submodules
    parts = write_files(parts, place, commit, ours, modules=modules, moved=moved, tree=ready.tree)
    tree, final = parts[0].tree, request.patches is None
    records: Mapping[str, Record] = {}
    hipified = _is_left_plain(request) and request.commit_hipify
    new = replace(new, left=tag_all(parts, hipified=hipified, fetched=final))
    if not _is_left_plain(request):  # else nothing comes that would write another file
        write_state(place, replace(new, operation="checkout"))
    try:
        new, records = _make_ours(request, parts, place, new, python)
    except PatchRefused:
        undo.put_back(git, place, way_back, project, times)
        raise
    if times:
        restore_times(git, times, list_all(parts, project, new))
    build_env.settle(git, place, project, wanted=request.hipify)
    if not final:  # until now the tree could be put back, without the tags
        git.text("update-ref", "-d", FETCHED_REF)
    parts = standing(parts, new.left)
    new = settled(new, parts)
    write_records(parts, records, new.identity)
    write_state(place, new)
    (place / OWN_FOLDER / TIMES).unlink(missing_ok=True)
    return new, tree


def _with_own_work_safe(git: Git, place: Path, state: State | None, ready: Ready) -> Sequence[Part]:
    """Return the repositories of a tree once nothing in them is at risk: own work is refused, or rescued."""
    if state is not None and state.operation is not None:
        refuse_unfinished(repositories(git), locks=False)  # a killed git of ours left those
        rescue_all(git, state, ready.commit)
        return repositories(git)
    parts = [Part("", git, "", place, "", "")] if ready.made else repositories(git)
    protect.refuse_own_work(parts, state)
    return parts


def _fetch_submodules(
    request: CheckoutRequest, git: Git, place: Path, parts: Sequence[Part], ready: Ready
) -> Fetched:
    """Fetch the commits of all submodules."""
    allowed = git.setting("protocol.file.allow=always") if request.local_origin else git
    return fetch_submodules(
        Here("", allowed, place, request.pin.origin, ready.commit),
        {part.path: part.place for part in parts if part.path},
        ready.known,
        wanted=request.submodules,
        depth=request.depth,
        transport=request.transport,
    )


def _note_times(place: Path, now: Listing) -> Listing:
    """Note the files that are there ``now``, and return them; after a killed run, those that it had noted."""
    path = place / OWN_FOLDER / TIMES
    before = {**now, **load_times(path)}
    if before:
        save_times(path, before)
    return before


def _wanted_state(request: CheckoutRequest, commit: str) -> State:
    """Return the state of a tree that has nothing of ours yet."""
    return State(
        remote.without_credentials(request.pin.origin),
        request.pin.ref,
        commit,
        submodules=request.submodules,
        patches=request.patched_with,
        patch_set=request.patches.folder.name if request.patches is not None else "",
    )


def _is_left_plain(request: CheckoutRequest) -> bool:
    """Tell whether hipify and patches leave the tree as upstream has it."""
    return request.patches is None and request.hipify and not request.project.hipify.script


def _make_ours(
    request: CheckoutRequest, parts: Sequence[Part], place: Path, state: State, python: Path
) -> tuple[State, Mapping[str, Record]]:
    """Apply base patches, hipify, apply hipified patches; return the state, and what hipify did."""
    patches, project = request.patches, request.project
    if _is_left_plain(request):
        return untranslated(project, state, commit=request.commit_hipify), {}
    if patches is not None:
        state = stage(parts, place, state, patches.base, "base")
    if not request.hipify:
        return state, {}
    there = standing(parts, state.left)
    state, _, records = translate(there, project, state, commit=request.commit_hipify, python=python)
    write_state(place, replace(state, operation="checkout"))
    if patches is not None and patches.hipified and project.hipify.script:
        before, state = state, stage(parts, place, state, patches.hipified, "hipified")
        there = standing(parts, state.left)
        records = {part.path: settle_lines(part, records[part.path]) for part in there}
        if any(_touches_sources(part, before, records[part.path]) for part in there):
            known = dict(records)
            state, _, records = translate(
                there, project, state, commit=True, python=python, known=known, keep_edited=True
            )
            write_state(place, replace(state, operation="checkout"))
    elif patches is not None:
        state = stage(parts, place, state, patches.hipified, "hipified")
    return state, records


def _touches_sources(part: Part, before: State, record: Record) -> bool:
    """Tell whether patches changed a file that hipify may have translated to another one."""
    changes = differences(part.git, "diff-tree", "-r", before.left[part.path].head, part.head)
    return any(
        not change.of_submodule and change.path not in record.made and change.path not in record.rewritten
        for change in changes
    )
