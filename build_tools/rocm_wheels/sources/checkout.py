"""Checkout: a project's sources at one upstream commit, tagged, hipified, as often as wanted.

The order makes a run that was killed repeatable: fetch (touches no file), note what is
under way, write the files, tag, hipify, note what was left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocm_wheels import log, shell
from rocm_wheels.sources import build_env, undo
from rocm_wheels.sources.bring import bring
from rocm_wheels.sources.commits import is_tagged
from rocm_wheels.sources.git import Git, git_directory, without_private_filters
from rocm_wheels.sources.identity import as_it_lies
from rocm_wheels.sources.network import remote
from rocm_wheels.sources.network.fetch import under_way, was_cut
from rocm_wheels.sources.network.mirrors import refuse_inside
from rocm_wheels.sources.patches.apply import check_request
from rocm_wheels.sources.place import is_fresh, make_place, nearest, take_back
from rocm_wheels.sources.prepare import prepare
from rocm_wheels.sources.recover import MARK, clear_leftovers
from rocm_wheels.sources.request import CheckoutRequest, CheckoutResult
from rocm_wheels.sources.state import OWN_FOLDER, State, read_state
from rocm_wheels.workspace import exclusive


def checkout(request: CheckoutRequest, *, env: Mapping[str, str], python: Path) -> CheckoutResult:
    """Check a project out; a tree that is there already is brought to the wanted commit.

    ``python`` runs the project's hipify script. Does nothing when all is as wanted. Raises
    SourceError: no such ref, no network, somebody's own work in the tree, a folder of
    something else; then no file was touched.
    """
    directory = request.directory.absolute()
    request = replace(request, directory=directory)
    pin = request.pin
    remote.check_ref(pin.ref)
    refuse_inside(request.transport.mirrors, directory)
    check_request(
        request.patches, hipify=request.hipify, commit=request.commit_hipify, submodules=request.submodules
    )
    fresh = is_fresh(directory)
    place = directory / ".git" if fresh else git_directory(Git(directory, env))
    env = {**env, MARK: str(place)}
    shown = shell.hide_credentials(pin.origin)
    wanted = f"{pin.ref} at {pin.commit[:12]}" if pin.commit not in ("", pin.ref) else pin.ref
    log.note(log.named(request.project.name, f"{wanted} of {shown} ({pin.why}) → {directory}"))
    asking, ref = Git(nearest(directory), env), pin.commit or pin.ref
    commit, source = remote.resolve(asking, pin.origin, ref, transport=request.transport)
    state = None if fresh else read_state(place)
    if state is not None and _is_as_wanted(request, state, commit, place, env):
        log.note(f"{directory} is at {commit[:12]} already; nothing to do")
        return CheckoutResult(directory, replace(pin, commit=commit), state, False)
    made = make_place(place) if fresh else []
    try:
        with exclusive(place / OWN_FOLDER, what=f"checkout of {request.project.name}"):
            before = read_state(place)
            if (before is not None and before.operation is not None) or was_cut(place):
                clear_leftovers(place, env)
            with under_way(place):
                ready = prepare(request, place, before, commit, source, env=env)
            commit = ready.commit
            made = []  # from here on there is something to keep
            left, tree = bring(request, place, before, ready, env=env, python=python)
    finally:
        take_back(made, directory)
    result = CheckoutResult(directory, replace(pin, commit=commit), left, True, tree)
    hipified = f", HEAD {result.head[:12]}" if result.head != commit else ""
    log.note(f"{directory} is at {commit[:12]}{hipified}")
    return result


def _is_as_wanted(
    request: CheckoutRequest, state: State, commit: str, place: Path, env: Mapping[str, str]
) -> bool:
    if state.operation is not None or state.upstream != commit:
        return False
    git = Git(request.directory, env)
    if not _is_from(git, request.pin.origin, state):
        return False
    if (state.hipify, state.submodules) != (request.hipify_way, request.submodules):
        return False
    if state.patches != request.patched_with:
        return False
    committed = state.hipify == "committed"
    if not is_tagged(git, commit, hipified=committed):
        return False
    if not build_env.is_settled(request.project, request.directory, place, wanted=request.hipify):
        return False
    return as_it_lies(without_private_filters(git), state) == (state.left[""].head, state.identity)


def _is_from(git: Git, origin: str, state: State) -> bool:
    """Tell whether a tree is from an origin; credentials that are named are those that its git has."""
    plain = remote.without_credentials(origin)
    return plain == state.origin and (plain == origin or undo.configured_origin(git) == origin)
