"""Mirrors: bare repositories that all checkouts share, so that a commit is fetched once.

One repository for all forks of a name: ``pytorch.git`` holds what pytorch/pytorch and ROCm/pytorch
have, and the second asks only for what the first has not. Only commits that were asked for are fetched
(pytorch has ten thousands of refs); each is kept as ``refs/origins/<origin>/commits/<id>``, which
vouches for all that it needs and survives a branch that is rewound. A commit asked for by its id may have
come from another fork: the id is its content.

Checkouts get links to the packs, never a reference to their folder. Git never writes into a pack that is
there: it makes new ones and removes old names. A hard link keeps the file when the other name goes, so a
mirror may be repacked, pruned or removed at any time. With alternates a repository breaks as soon as the
other one loses an object, and ``git repack -ad`` would give each checkout the whole size.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors, files, log
from rocm_wheels.sources import checkout_state, network, trees
from rocm_wheels.sources.git import FETCH_SECONDS, Git, find_objects_folder

_LINK_ATTEMPTS = 20
# Everything arrives as packs, git by itself removes none, and any commit is given out to a checkout.
_MIRROR_SETTINGS = """
[gc]
	auto = 0
[maintenance]
	auto = false
[fetch]
	unpackLimit = 1
[uploadpack]
	allowAnySHA1InWant = true
"""
_MIRROR_MARK = "mirror"  # in OWN_FOLDER once a mirror is set up whole
_USERINFO = re.compile(r"(://)[^/]*@|\A[^/@]+@(?=[^/]*:)")
_MIRROR_TIP = "remove it (no checkout needs it), or name another folder: ROCM_WHEELS_MIRROR_DIR"


@dataclass(frozen=True)
class Mirror:
    """A bare repository in the mirrors' folder; ``space`` is where refs of the origin are."""

    folder: Path
    git: Git
    space: str


def refuse_mirrors_inside(folder: Path | None, checkout: Path) -> None:
    """Raise UsageError for a folder of mirrors in a checkout: they outlive it, and others share them."""
    if folder is not None and folder.absolute().is_relative_to(checkout):
        raise errors.UsageError(
            f"the mirrors' folder {folder} is inside the checkout {checkout}",
            tip="name one that all checkouts can share: ROCM_WHEELS_MIRROR_DIR",
        )


def locate_mirror(
    origin: str, folder: Path, env: Mapping[str, str], settings: tuple[str, ...] = ()
) -> Mirror:
    """Return the mirror of an origin; it need not be there yet."""
    mirror_folder = folder / f"{name_repository(origin)}.git"
    git = Git(mirror_folder, env, settings, {"GIT_DIR": str(mirror_folder)})
    return Mirror(mirror_folder, git, f"refs/origins/{make_origin_slug(origin)}")


def name_repository(origin: str) -> str:
    """Return the last part of an origin without ``.git``, fit for a file's name anywhere."""
    last = re.split(r"[/:\\]", origin.rstrip("/"))[-1].lower().removesuffix(".git")
    return re.sub(r"[^a-z0-9._-]", "_", last).strip(".") or "repository"


def make_origin_slug(origin: str) -> str:
    """Return a part of a ref for an origin: readable, without user or password, one for each origin."""
    plain = _USERINFO.sub(r"\1", origin).rstrip("/").removesuffix(".git")
    digest = hashlib.sha256(plain.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    words = re.sub(r"[^A-Za-z0-9]+", "-", re.sub(r"\A\w+://", "", plain)).strip("-")
    return f"{words[-80:]}-{digest}"


def mirror_has_commit(mirror: Mirror, commit: str) -> bool:
    """Tell whether a mirror has a commit with all that it needs."""
    kept = f"{mirror.space}/commits/{commit}"
    return trees.has_object(mirror.git, kept) or trees.is_held_commit(mirror.git, commit)


def obtain_commit(
    git: Git, request: network.CommitRequest, commit: str, *, depth: int | None, transport: network.Transport
) -> str:
    """Have a commit in a checkout's repository as FETCHED_REF, by way of the mirror if there is one.

    ``commit`` is what ``request.source`` was when the origin was asked; returns the commit that came.
    A commit that the mirror has costs no network. Raises SourceError.
    """
    target = checkout_state.FETCHED_REF
    if transport.mirrors is None:
        return network.fetch_commit(git, request, target, depth=depth, transport=transport)
    mirror = locate_mirror(request.origin, transport.mirrors, git.env, git.settings)
    commit = _fill_mirror(mirror, request, commit, transport)
    if depth is not None:
        near = network.CommitRequest(mirror.folder.as_uri(), commit, request.name)
        local = git.with_settings("protocol.file.allow=always")
        return network.fetch_commit(local, near, target, depth=depth, transport=transport)
    _link_packs(mirror.folder / "objects/pack", find_objects_folder(git) / "pack")
    activity = f"taking {commit[:12]} from {mirror.folder}"
    git.text("update-ref", target, commit, activity=activity, tip=_MIRROR_TIP)
    return commit


def _fill_mirror(
    mirror: Mirror, request: network.CommitRequest, commit: str, transport: network.Transport
) -> str:
    """Have a commit in its mirror, which is made when missing; return the commit that came.

    Another run that fills the same mirror is waited for.
    """
    own_folder, activity = mirror.folder / checkout_state.OWN_FOLDER, f"fetching {request.description}"
    mark, tip = own_folder / _MIRROR_MARK, "wait for it to end, then run this again"
    if mark.exists() and mirror_has_commit(mirror, commit):
        name = f" ({request.name})" if request.name else ""
        log.log_note(f"{commit[:12]}{name} is in the mirror {mirror.folder}")
        return commit
    with files.lock_folder(own_folder, purpose=activity, tip=tip, patience=FETCH_SECONDS):
        strange = {entry.name for entry in mirror.folder.iterdir()} - {checkout_state.OWN_FOLDER}
        if strange and not mark.exists() and not network.was_interrupted(mirror.folder):
            raise errors.SourceError(
                f"{mirror.folder} is not a mirror that rocm-wheels made", tip=_MIRROR_TIP
            )
        with network.mark_under_way(mirror.folder):
            if not mark.exists():
                words = ("init", "--quiet", "--bare", "--template=")
                mirror.git.text(*words, activity=f"making the mirror {mirror.folder}")
                config = mirror.folder / "config"
                files.write_atomically(config, config.read_bytes() + _MIRROR_SETTINGS.encode("ascii"))
                mark.touch()
            if not mirror_has_commit(mirror, commit):
                target, space = f"{mirror.space}/fetched", mirror.space
                commit = network.fetch_commit(
                    mirror.git, request, target, depth=None, transport=transport, space=space
                )
                moves = f"update {space}/commits/{commit} {commit}\ndelete {target}\n"
                mirror.git.text("update-ref", "--stdin", stdin=moves.encode("ascii"))
    return commit


def _link_packs(source: Path, target: Path) -> None:
    """Have all packs of a mirror in another repository.

    Each file appears whole, the index of a pack last: a run that is killed leaves nothing
    that git would take for a pack. Raises SourceError when the mirror changes all the time.
    """
    target.mkdir(parents=True, exist_ok=True)
    for _ in range(_LINK_ATTEMPTS):
        try:
            for index in sorted(source.glob("pack-*.idx")):
                if not (target / index.name).exists():
                    for file in (index.with_suffix(".pack"), *source.glob(f"{index.stem}.rev"), index):
                        _link_or_copy(file, target / file.name)
        except FileNotFoundError as cause:
            last_failure = cause  # somebody repacks; what it held is in another pack now
        else:
            return
    raise errors.SourceError(
        f"the packs in {source} change all the time", tip="wait until it is at rest"
    ) from last_failure


def _link_or_copy(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except FileExistsError:
        return
    except OSError as failure:  # another file system, one without links, a file of somebody else's
        if failure.errno in (errno.ENOENT, errno.ENOSPC):
            raise
        _note_copied(str(file.parents[3]), failure.strerror or "")
        files.copy_atomically(file, target)
        target.chmod(0o444)


@functools.cache
def _note_copied(mirrors: str, why: str) -> None:
    log.log_note(
        f"the packs of {mirrors} are copied, not linked ({why}): each checkout takes their whole size"
    )
