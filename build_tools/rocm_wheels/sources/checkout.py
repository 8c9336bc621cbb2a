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
from rocm_wheels.sources.bring import bring_to_commit
from rocm_wheels.sources.commits import is_tagged
from rocm_wheels.sources.git import Git, find_git_directory, disable_private_filters
from rocm_wheels.sources.identity import read_current_tree
from rocm_wheels.sources.network import remote
from rocm_wheels.sources.network.fetch import mark_under_way, was_interrupted
from rocm_wheels.sources.network.mirrors import refuse_mirrors_inside
from rocm_wheels.sources.patches.apply import check_patch_request
from rocm_wheels.sources.place import (
    is_fresh_folder,
    make_repository_folder,
    find_existing_folder,
    remove_created_folders,
)
from rocm_wheels.sources.prepare import prepare_repository
from rocm_wheels.sources.recover import TREE_VARIABLE, clear_leftovers
from rocm_wheels.sources.request import CheckoutRequest, CheckoutResult
from rocm_wheels.sources.state import OWN_FOLDER, CheckoutState, read_state
from rocm_wheels.workspace import lock_folder


def checkout_project(request: CheckoutRequest, *, env: Mapping[str, str], python: Path) -> CheckoutResult:
    """Check a project out; a tree that is there already is brought to the wanted commit.

    ``python`` runs the project's hipify script. Does nothing when all is as wanted. Raises
    SourceError: no such ref, no network, somebody's own work in the tree, a folder of
    something else; then no file was touched.
    """
    directory = request.directory.absolute()
    request = replace(request, directory=directory)
    pin = request.pin
    remote.check_ref(pin.ref)
    refuse_mirrors_inside(request.transport.mirrors, directory)
    check_patch_request(
        request.patches, hipify=request.hipify, commit=request.commit_hipify, submodules=request.submodules
    )
    fresh = is_fresh_folder(directory)
    git_dir = directory / ".git" if fresh else find_git_directory(Git(directory, env))
    env = {**env, TREE_VARIABLE: str(git_dir)}
    shown_origin = shell.hide_credentials(pin.origin)
    description = f"{pin.ref} at {pin.commit[:12]}" if pin.commit not in ("", pin.ref) else pin.ref
    log.log_note(
        log.name_log_line(request.project.name, f"{description} of {shown_origin} ({pin.why}) → {directory}")
    )
    asking, ref = Git(find_existing_folder(directory), env), pin.commit or pin.ref
    commit, source = remote.resolve_ref(asking, pin.origin, ref, transport=request.transport)
    state = None if fresh else read_state(git_dir)
    if state is not None and _is_up_to_date(request, state, commit, git_dir, env):
        log.log_note(f"{directory} is at {commit[:12]} already; nothing to do")
        return CheckoutResult(directory, replace(pin, commit=commit), state, False)
    created = make_repository_folder(git_dir) if fresh else []
    try:
        with lock_folder(git_dir / OWN_FOLDER, purpose=f"checkout of {request.project.name}"):
            before = read_state(git_dir)
            if (before is not None and before.operation is not None) or was_interrupted(git_dir):
                clear_leftovers(git_dir, env)
            with mark_under_way(git_dir):
                ready = prepare_repository(request, git_dir, before, commit, source, env=env)
            commit = ready.commit
            created = []  # from here on there is something to keep
            new_state, tree = bring_to_commit(request, git_dir, before, ready, env=env, python=python)
    finally:
        remove_created_folders(created, directory)
    result = CheckoutResult(directory, replace(pin, commit=commit), new_state, True, tree)
    hipified = f", HEAD {result.head[:12]}" if result.head != commit else ""
    log.log_note(f"{directory} is at {commit[:12]}{hipified}")
    return result


def _is_up_to_date(
    request: CheckoutRequest, state: CheckoutState, commit: str, git_dir: Path, env: Mapping[str, str]
) -> bool:
    if state.operation is not None or state.upstream != commit:
        return False
    git = Git(request.directory, env)
    if not _is_from_origin(git, request.pin.origin, state):
        return False
    if (state.hipify, state.submodules) != (request.hipify_way, request.submodules):
        return False
    if state.patches != request.patched_with:
        return False
    committed = state.hipify == "committed"
    if not is_tagged(git, commit, hipified=committed):
        return False
    if not build_env.is_build_env_current(
        request.project, request.directory, git_dir, hipified=request.hipify
    ):
        return False
    return read_current_tree(disable_private_filters(git), state) == (state.left[""].head, state.identity)


def _is_from_origin(git: Git, origin: str, state: CheckoutState) -> bool:
    """Tell whether a tree is from an origin; credentials that are named are those that its git has."""
    plain = remote.strip_credentials(origin)
    return plain == state.origin and (plain == origin or undo.read_configured_origin(git) == origin)
