"""The repository of a checkout, before any file of its tree is touched: made, and given the wanted commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log, shell
from rocm_wheels.errors import SourceError
from rocm_wheels.sources.configuration import GitConfiguration, read_configuration
from rocm_wheels.sources.git import Git, is_linked
from rocm_wheels.sources.network import remote
from rocm_wheels.sources.network.fetch import CommitRequest, is_shallow
from rocm_wheels.sources.network.mirrors import obtain_commit
from rocm_wheels.sources.place import REPOSITORY_NAMES
from rocm_wheels.sources.request import CheckoutRequest
from rocm_wheels.sources.state import CheckoutState, write_state
from rocm_wheels.sources.trees import has_head_commit, has_whole_commit


@dataclass(frozen=True)
class PreparedRepository:
    """A repository with the wanted commit in it, and its configuration; ``created`` by this run.

    ``noted``: the state that says so on the disk, where this run has written one. ``tree``: the commit's,
    where it was made and looked at.
    """

    commit: str
    config: GitConfiguration
    created: bool
    noted: CheckoutState | None
    tree: str


def prepare_repository(
    request: CheckoutRequest,
    git_dir: Path,
    state: CheckoutState | None,
    commit: str,
    source: str,
    *,
    env: Mapping[str, str],
) -> PreparedRepository:
    """Have a repository with the wanted commit in it; no file of the tree is touched."""
    pin, plain = request.pin, Git(request.directory, env)
    linked = is_linked(git_dir)
    present = {name for name in REPOSITORY_NAMES if (git_dir / name).exists()}
    noted, fresh, created = None, not linked and present != REPOSITORY_NAMES, not linked and not present
    if fresh or (state is not None and state.operation is not None):
        blank = CheckoutState(
            remote.strip_credentials(pin.origin),
            pin.ref,
            commit,
            submodules=request.submodules,
            operation="checkout",
        )
        noted = state or blank
        write_state(git_dir, noted)
        plain.text("init", "--quiet", "--initial-branch=main", "--template=")
    config = read_configuration(plain)
    if config.values.get("extensions.objectformat", "sha1") != "sha1":
        raise remote.make_sha256_error(f"the repository in {request.directory}")
    origin = config.origin
    if origin != pin.origin and state is None and not fresh:
        kind = f"a clone of {shell.hide_credentials(origin)}, not" if origin else "no clone"
        raise SourceError(
            f"{request.directory} is {kind} of {shell.hide_credentials(pin.origin)}",
            tip="name another folder with --checkout-dir"
            + (", or give that origin with --gitrepo-origin" if origin else ""),
        )
    tree = ""
    if created or not has_whole_commit(plain, commit):
        depth = request.depth
        if depth is not None and has_head_commit(plain) and not is_shallow(plain):
            log.log_note("the checkout has its whole history already; --depth is not needed")
            depth = None
        commit_request = CommitRequest(pin.origin, source)
        commit, tree = obtain_commit(plain, commit_request, commit, depth=depth, transport=request.transport)
    return PreparedRepository(commit, config, created, noted, tree if created else "")
