"""Transfers: a commit of an origin into a repository, tried again and cut as a transport says."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rocm_wheels import log, shell
from rocm_wheels.errors import SourceError
from rocm_wheels.sources.git import Git, find_objects_folder
from rocm_wheels.sources.network.remote import is_commit, make_sha256_error
from rocm_wheels.sources.network.transport import Transport, attempt_with_retries
from rocm_wheels.sources.state import OWN_FOLDER
from rocm_wheels.sources.trees import has_object

SERVED_REFS = "refs/rocm-wheels/served"  # all branches and tags of a server that gives out nothing else
NEW_FOLDER_PREFIX = (
    "new-"  # begins the names of folders in OWN_FOLDER that are moved to their place when whole
)
_FETCHING_MARK = (
    "fetching"  # in OWN_FOLDER while a repository is written, and no operation on its tree is noted
)
_BY_NAME_ONLY = re.compile("unadvertised object")  # git 2.28 to 2.51: fetch-pack.c
_NO_REPOSITORY = re.compile(
    r"repository .* (not found|does not exist)|does not appear to be a git repository"
)
_NO_DEPTH = re.compile("not support shallow|shallow capabilities", re.IGNORECASE)  # fetch-pack.c, http


@dataclass(frozen=True)
class CommitRequest:
    """What is to be had: ``source``, a ref or a commit, of ``origin``; ``name`` is a submodule's path.

    ``trusted``: the user chose the origin. What a repository names may only come from a server,
    as for git itself (``GIT_PROTOCOL_FROM_USER``).
    """

    origin: str
    source: str
    name: str = ""
    trusted: bool = True

    @property
    def description(self) -> str:
        """Say it to people, without credentials."""
        source = self.source[:12] if is_commit(self.source) else self.source
        return f"{source} of {shell.hide_credentials(self.origin)}" + (f" ({self.name})" if self.name else "")


class FetchedCommit(NamedTuple):
    """A commit that is there now, and its tree (empty where nobody looked)."""

    commit: str
    tree: str = ""


def fetch_commit(
    git: Git,
    request: CommitRequest,
    target: str,
    *,
    depth: int | None,
    transport: Transport,
    space: str = SERVED_REFS,
) -> FetchedCommit:
    """Fetch into the ref ``target`` and return the commit that came; no file of a tree is touched.

    A server that cuts no history gives the whole one, and one that gives out commits only by
    branch or tag gives all of them, below ``space``: both are said. Raises SourceError.
    """
    log.log_note(f"fetching {request.description}" + (f", {depth} commits deep" if depth is not None else ""))
    options = [f"--depth={depth}"] if depth is not None else []
    try:
        _run_transfer(git, request, [*options, f"+{request.source}:{target}"], transport)
    except SourceError as refused:
        if is_commit(request.source) and _BY_NAME_ONLY.search(str(refused)):
            _fetch_all(git, request, target, space, transport)
        elif depth is not None and _NO_DEPTH.search(str(refused)):
            log.log_warning(
                f"{request.description}: the server cuts no history (--depth); fetching all of it"
            )
            _run_transfer(git, request, [f"+{request.source}:{target}"], transport)
        else:
            raise
    query = f"{target}^{{}}\n{target}^{{tree}}\n".encode("ascii")
    answers = git.text("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=query).split("\n")
    (commit, kind), tree = answers[0].split(" "), answers[1].split(" ")[0]
    if kind != "commit":
        git.text("update-ref", "-d", target)
        raise SourceError(
            f"{request.description} is a {kind}, not a commit", tip="name a branch, a commit, or a tag of one"
        )
    return FetchedCommit(commit, tree)


def is_shallow(git: Git) -> bool:
    """Tell whether history was cut."""
    return git.text("rev-parse", "--is-shallow-repository") == "true"


@contextmanager
def mark_under_way(git_dir: Path) -> Iterator[None]:
    """Mark a repository that is written to; what a killed run left half written is removed first.

    Only for somebody who holds the repository (``workspace.exclusive``).
    """
    mark = git_dir / OWN_FOLDER / _FETCHING_MARK
    if was_interrupted(git_dir):
        _remove_leftovers(git_dir)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def was_interrupted(git_dir: Path) -> bool:
    """Tell whether a run was killed while it wrote into a repository (``mark_under_way``)."""
    return (git_dir / OWN_FOLDER / _FETCHING_MARK).exists()


def _fetch_all(git: Git, request: CommitRequest, target: str, space: str, transport: Transport) -> None:
    log.log_warning(
        f"{request.description}: the server gives out branches and tags only; fetching all, with whole history"
    )
    names = [f"+refs/{kind}/*:{space}/{kind}/*" for kind in ("heads", "tags")]
    _run_transfer(git, request, [*(["--unshallow"] if is_shallow(git) else []), "--prune", *names], transport)
    if not has_object(git, request.source):
        raise SourceError(
            f"no branch or tag of {shell.hide_credentials(request.origin)} holds {request.source}",
            tip="name another commit, or an origin that has it",
        )
    git.text("update-ref", target, request.source)


def _run_transfer(git: Git, request: CommitRequest, arguments: Sequence[str], transport: Transport) -> None:
    asking = git.with_settings(*transport.settings)
    if not any((find_objects_folder(git) / "pack").glob("*.pack")):
        # the first comes as one file, however small: hundreds of files are slow to write, and not synced
        asking = asking.with_settings("fetch.unpackLimit=1")
    if not request.trusted:
        asking = asking.with_variables(GIT_PROTOCOL_FROM_USER="0")
    options = [argument for argument in arguments if argument.startswith("-")]
    activity = f"fetching {request.description}"
    tip = "run the same command again when the network is back; what was fetched is kept"
    if is_commit(request.source):
        tip = (
            "the server may not have this commit, or may give out commits only by branch or tag: "
            "name one that holds it with --repo-hashtag"
        )

    def attempt() -> None:
        with transport.hold_slot(), _remove_partial_packs(git):
            asking.run_network(
                "fetch",
                "--progress",
                "--no-tags",
                "--no-recurse-submodules",
                "--force",
                *options,
                "--",
                request.origin,  # not a remote's name: a fetch that fails leaves the configuration as it was
                *arguments[len(options) :],
                activity=activity,
                silence=transport.timeout,
                tip=tip,
            )

    try:
        attempt_with_retries(attempt, transport=transport, activity=activity)
    except SourceError as failure:
        if "mismatched algorithms" in str(failure):
            raise make_sha256_error(shell.hide_credentials(request.origin)) from failure
        if _NO_REPOSITORY.search(str(failure)):
            failure.tip = "check where it is to come from; a server may say so, too, to who may not see it"
        raise


@contextmanager
def _remove_partial_packs(git: Git) -> Iterator[None]:
    """Remove what a transfer that fails leaves: git keeps the beginning of a pack and never uses it."""
    packs = find_objects_folder(git) / "pack"
    before = set(packs.glob("tmp_*"))
    try:
        yield
    except BaseException:
        for scrap in set(packs.glob("tmp_*")) - before:
            scrap.unlink(missing_ok=True)
        raise


def _remove_leftovers(git_dir: Path) -> None:
    """Remove locks and beginnings of packs in a repository and those of its submodules."""
    for begun in (git_dir / OWN_FOLDER).glob(f"{NEW_FOLDER_PREFIX}*"):
        shutil.rmtree(begun)
    for folder, folders, files in os.walk(git_dir):
        path = Path(folder)
        if path.name == "objects":
            folders[:] = [name for name in folders if name == "pack"]
        folders[:] = [name for name in folders if name not in ("worktrees", OWN_FOLDER)]
        in_packs = path.name == "pack" and path.parent.name == "objects"
        for name in files:
            if (in_packs and name.startswith(("tmp_", ".pack-"))) or (
                not in_packs and name.endswith(".lock")
            ):
                (path / name).unlink(missing_ok=True)
