"""The repository of a checkout, before any file of its tree is touched: made, and given the wanted commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log, shell
from rocm_wheels.errors import SourceError
from rocm_wheels.sources.configuration import Configuration, configuration
from rocm_wheels.sources.git import Git, is_linked
from rocm_wheels.sources.network import remote
from rocm_wheels.sources.network.fetch import Wanted, is_shallow
from rocm_wheels.sources.network.mirrors import obtain
from rocm_wheels.sources.place import REPOSITORY
from rocm_wheels.sources.request import CheckoutRequest
from rocm_wheels.sources.state import State, write_state
from rocm_wheels.sources.trees import has_commit, is_whole


@dataclass(frozen=True)
class Ready:
    """A repository with the wanted commit in it, and its configuration; ``made`` by this run.

    ``noted``: the state that says so on the disk, where this run has written one. ``tree``: the commit's,
    where it was made and looked at.
    """

    commit: str
    known: Configuration
    made: bool
    noted: State | None
    tree: str


def prepare(
    request: CheckoutRequest,
    place: Path,
    state: State | None,
    commit: str,
    source: str,
    *,
    env: Mapping[str, str],
) -> Ready:
    """Have a repository with the wanted commit in it; no file of the tree is touched."""
    pin, plain = request.pin, Git(request.directory, env)
    linked = is_linked(place)
    there = {name for name in REPOSITORY if (place / name).exists()}
    noted, fresh, made = None, not linked and there != REPOSITORY, not linked and not there
    if fresh or (state is not None and state.operation is not None):
        blank = State(
            remote.without_credentials(pin.origin),
            pin.ref,
            commit,
            submodules=request.submodules,
            operation="checkout",
        )
        noted = state or blank
        write_state(place, noted)
        plain.text("init", "--quiet", "--initial-branch=main", "--template=")
    known = configuration(plain)
    if known.values.get("extensions.objectformat", "sha1") != "sha1":
        raise remote.no_sha256(f"the repository in {request.directory}")
    origin = known.origin
    if origin != pin.origin and state is None and not fresh:
        what = f"a clone of {shell.hide_credentials(origin)}, not" if origin else "no clone"
        raise SourceError(
            f"{request.directory} is {what} of {shell.hide_credentials(pin.origin)}",
            tip="name another folder with --checkout-dir"
            + (", or give that origin with --gitrepo-origin" if origin else ""),
        )
    tree = ""
    if made or not is_whole(plain, commit):
        depth = request.depth
        if depth is not None and has_commit(plain) and not is_shallow(plain):
            log.note("the checkout has its whole history already; --depth is not needed")
            depth = None
        wanted = Wanted(pin.origin, source)
        commit, tree = obtain(plain, wanted, commit, depth=depth, transport=request.transport)
    return Ready(commit, known, made, noted, tree if made else "")
