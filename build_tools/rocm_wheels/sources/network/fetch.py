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
from rocm_wheels.sources.git import Git, objects_of
from rocm_wheels.sources.network.remote import is_commit, no_sha256
from rocm_wheels.sources.network.transport import Transport, tried
from rocm_wheels.sources.state import OWN_FOLDER
from rocm_wheels.sources.trees import has_object

SERVED = "refs/rocm-wheels/served"  # all branches and tags of a server that gives out nothing else
BEGUN = "new-"  # begins the names of folders in OWN_FOLDER that are moved to their place when whole
_MARK = "fetching"  # in OWN_FOLDER while a repository is written, and no operation on its tree is noted
_BY_NAME_ONLY = re.compile("unadvertised object")  # git 2.28 to 2.51: fetch-pack.c
_NO_REPOSITORY = re.compile(
    r"repository .* (not found|does not exist)|does not appear to be a git repository"
)
_NO_DEPTH = re.compile("not support shallow|shallow capabilities", re.IGNORECASE)  # fetch-pack.c, http


@dataclass(frozen=True)
class Wanted:
    """What is to be had: ``source``, a ref or a commit, of ``origin``; ``name`` is a submodule's path.

    ``trusted``: the user chose the origin. What a repository names may only come from a server,
    as for git itself (``GIT_PROTOCOL_FROM_USER``).
    """

    origin: str
    source: str
    name: str = ""
    trusted: bool = True

    @property
    def words(self) -> str:
        """Say it to people, without credentials."""
        source = self.source[:12] if is_commit(self.source) else self.source
        return f"{source} of {shell.hide_credentials(self.origin)}" + (f" ({self.name})" if self.name else "")


class Came(NamedTuple):
    """A commit that is there now, and its tree (empty where nobody looked)."""

    commit: str
    tree: str = ""


def fetch(
    git: Git, wanted: Wanted, target: str, *, depth: int | None, transport: Transport, space: str = SERVED
) -> Came:
    """Fetch into the ref ``target`` and return the commit that came; no file of a tree is touched.

    A server that cuts no history gives the whole one, and one that gives out commits only by
    branch or tag gives all of them, below ``space``: both are said. Raises SourceError.
    """
    log.note(f"fetching {wanted.words}" + (f", {depth} commits deep" if depth is not None else ""))
    options = [f"--depth={depth}"] if depth is not None else []
    try:
        _transfer(git, wanted, [*options, f"+{wanted.source}:{target}"], transport)
    except SourceError as refused:
        if is_commit(wanted.source) and _BY_NAME_ONLY.search(str(refused)):
            _fetch_all(git, wanted, target, space, transport)
        elif depth is not None and _NO_DEPTH.search(str(refused)):
            log.warn(f"{wanted.words}: the server cuts no history (--depth); fetching all of it")
            _transfer(git, wanted, [f"+{wanted.source}:{target}"], transport)
        else:
            raise
    asked = f"{target}^{{}}\n{target}^{{tree}}\n".encode("ascii")
    said = git.text("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked).split("\n")
    (came, kind), tree = said[0].split(" "), said[1].split(" ")[0]
    if kind != "commit":
        git.text("update-ref", "-d", target)
        raise SourceError(
            f"{wanted.words} is a {kind}, not a commit", tip="name a branch, a commit, or a tag of one"
        )
    return Came(came, tree)


def is_shallow(git: Git) -> bool:
    """Tell whether history was cut."""
    return git.text("rev-parse", "--is-shallow-repository") == "true"


@contextmanager
def under_way(place: Path) -> Iterator[None]:
    """Mark a repository that is written to; what a killed run left half written is removed first.

    Only for somebody who holds the repository (``workspace.exclusive``).
    """
    mark = place / OWN_FOLDER / _MARK
    if was_cut(place):
        _remove_leftovers(place)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def was_cut(place: Path) -> bool:
    """Tell whether a run was killed while it wrote into a repository (``under_way``)."""
    return (place / OWN_FOLDER / _MARK).exists()


def _fetch_all(git: Git, wanted: Wanted, target: str, space: str, transport: Transport) -> None:
    log.warn(f"{wanted.words}: the server gives out branches and tags only; fetching all, with whole history")
    names = [f"+refs/{kind}/*:{space}/{kind}/*" for kind in ("heads", "tags")]
    _transfer(git, wanted, [*(["--unshallow"] if is_shallow(git) else []), "--prune", *names], transport)
    if not has_object(git, wanted.source):
        raise SourceError(
            f"no branch or tag of {shell.hide_credentials(wanted.origin)} holds {wanted.source}",
            tip="name another commit, or an origin that has it",
        )
    git.text("update-ref", target, wanted.source)


def _transfer(git: Git, wanted: Wanted, arguments: Sequence[str], transport: Transport) -> None:
    asking = git.setting(*transport.settings)
    if not any((objects_of(git) / "pack").glob("*.pack")):
        # the first comes as one file, however small: hundreds of files are slow to write, and not synced
        asking = asking.setting("fetch.unpackLimit=1")
    if not wanted.trusted:
        asking = asking.using(GIT_PROTOCOL_FROM_USER="0")
    options = [argument for argument in arguments if argument.startswith("-")]
    what = f"fetching {wanted.words}"
    tip = "run the same command again when the network is back; what was fetched is kept"
    if is_commit(wanted.source):
        tip = (
            "the server may not have this commit, or may give out commits only by branch or tag: "
            "name one that holds it with --repo-hashtag"
        )

    def attempt() -> None:
        with transport.turn(), _without_scraps(git):
            asking.network(
                "fetch",
                "--progress",
                "--no-tags",
                "--no-recurse-submodules",
                "--force",
                *options,
                "--",
                wanted.origin,  # not a remote's name: a fetch that fails leaves the configuration as it was
                *arguments[len(options) :],
                what=what,
                silence=transport.timeout,
                tip=tip,
            )

    try:
        tried(attempt, transport=transport, what=what)
    except SourceError as failure:
        if "mismatched algorithms" in str(failure):
            raise no_sha256(shell.hide_credentials(wanted.origin)) from failure
        if _NO_REPOSITORY.search(str(failure)):
            failure.tip = "check where it is to come from; a server may say so, too, to who may not see it"
        raise


@contextmanager
def _without_scraps(git: Git) -> Iterator[None]:
    """Remove what a transfer that fails leaves: git keeps the beginning of a pack and never uses it."""
    packs = objects_of(git) / "pack"
    before = set(packs.glob("tmp_*"))
    try:
        yield
    except BaseException:
        for scrap in set(packs.glob("tmp_*")) - before:
            scrap.unlink(missing_ok=True)
        raise


def _remove_leftovers(place: Path) -> None:
    """Remove locks and beginnings of packs in a repository and those of its submodules."""
    for begun in (place / OWN_FOLDER).glob(f"{BEGUN}*"):
        shutil.rmtree(begun)
    for folder, folders, files in os.walk(place):
        here = Path(folder)
        if here.name == "objects":
            folders[:] = [name for name in folders if name == "pack"]
        folders[:] = [name for name in folders if name not in ("worktrees", OWN_FOLDER)]
        in_packs = here.name == "pack" and here.parent.name == "objects"
        for name in files:
            if (in_packs and name.startswith(("tmp_", ".pack-"))) or (
                not in_packs and name.endswith(".lock")
            ):
                (here / name).unlink(missing_ok=True)
