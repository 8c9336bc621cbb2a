"""A tree as it was before: noted when a checkout with patches begins, put back when one does not apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.model.project import Project
from rocm_wheels.sources.files import Listing, remove_files, restore_times
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.materialize import list_all, put_aside
from rocm_wheels.sources.state import (
    HIPIFIED_REF,
    HIPIFY_TAG,
    LEFT_REF,
    OWN_FOLDER,
    SIDE_INDEX,
    TIMES,
    UPSTREAM_TAG,
    State,
    read_state,
    state_file,
    write_state,
)
from rocm_wheels.sources.trees import (
    Part,
    head_and_place,
    holder,
    is_populated,
    refuse_unborn,
    repositories,
    seed_index,
    side_by_side,
    stage_files,
    temporary_index,
)

_REFS = (f"refs/tags/{UPSTREAM_TAG}", f"refs/tags/{HIPIFY_TAG}", LEFT_REF, HIPIFIED_REF)


@dataclass(frozen=True)
class _Before:
    """One repository: HEAD and its branch, our refs, the files as a tree, the index that knows them."""

    head: str
    branch: str
    refs: Mapping[str, str]
    tree: str
    side: bytes | None


@dataclass(frozen=True)
class Before:
    """A tree before a checkout; ``state`` is ``None`` for a clone of somebody's, ``origin`` is git's."""

    state: State | None
    origin: str
    repositories: Mapping[str, _Before]


def remember(parts: Sequence[Part], state: State | None, written: Sequence[str]) -> Before | None:
    """Note a tree with the ignored files that we wrote (``written``); nothing of a repository just made.

    ``None`` for a tree in the middle of something: there is no whole one to go back to.
    """
    if not parts[0].head:
        return Before(state, "", {})
    if state is not None and state.operation is not None:
        return None
    mine: dict[str, list[str]] = {part.path: [] for part in parts}
    for path in written if state is not None else ():
        where = holder(path, mine)
        mine[where].append(path.removeprefix(f"{where}/") if where else path)
    looks = side_by_side(lambda part: _look(part, state, mine[part.path]), parts)
    found = {part.path: look for part, look in zip(parts, looks, strict=True)}
    return Before(state, configured_origin(parts[0].git), found)


def configured_origin(git: Git) -> str:
    """Return the origin that a repository has, with the credentials in it; empty where it has none."""
    return git.text("config", "--default", "", "--get", "remote.origin.url")


def put_back(git: Git, place: Path, before: Before | None, project: Project, times: Listing) -> None:
    """Make files, HEAD, tags and state of a tree what they were; what was fetched stays in the repository."""
    if before is None:
        log.note(f"{git.directory} was in the middle of another checkout; the next one begins from there")
        return
    now = read_state(place)
    generated = now.generated if now is not None else ()
    if not before.repositories:
        _empty(git, place, generated)
        log.note(f"{git.directory} is empty again; what was fetched is kept in its repository")
        return
    for part in repositories(git)[1:]:
        if part.path not in before.repositories:
            put_aside(git, place, part.path)
    remove_files(git.directory, generated)
    for path, was in before.repositories.items():
        _restore(git, path, was)
    restore_times(git, times, list_all(repositories(git), project, before.state))
    if before.state is not None:
        git.text("config", "--replace-all", "remote.origin.url", before.origin)
        write_state(place, before.state)
    else:
        state_file(place).unlink(missing_ok=True)
    (place / OWN_FOLDER / TIMES).unlink(missing_ok=True)
    log.note(f"{git.directory} is as it was before")


def _look(part: Part, state: State | None, written: Sequence[str]) -> _Before:
    refuse_unborn(part)
    head, place = part.head, part.place
    branch = part.git.text("rev-parse", "--symbolic-full-name", "HEAD")
    held = part.git.text("for-each-ref", "--format=%(refname) %(objectname)", *_REFS).splitlines()
    side = place / OWN_FOLDER / SIDE_INDEX
    with temporary_index(part.git, seed_index(place, head, state, part.path), keep=True) as own:
        stage_files(own)
        if there := [path for path in written if (part.git.directory / path).is_file()]:
            names = "".join(f"{path}\0" for path in there).encode("utf-8", "surrogateescape")
            own.text("update-index", "--add", "-z", "--stdin", stdin=names)
        tree = own.text("write-tree")
    refs = {line.split(" ")[0]: line.split(" ")[1] for line in held}
    return _Before(head, branch, refs, tree, side.read_bytes() if side.exists() else None)


def _restore(git: Git, path: str, was: _Before) -> None:
    if path and not is_populated(git.directory / path):
        above = holder(path, (part.path for part in repositories(git)))
        parent, name = git.at(git.directory / above), path.removeprefix(f"{above}/")
        parent.text("submodule", "--quiet", "update", "--init", "--force", "--no-fetch", "--", name)
    here = git.at(git.directory / path)
    here.text("checkout", "--quiet", "--force", "--detach", was.head)
    if was.tree != here.text("rev-parse", "HEAD^{tree}"):
        with temporary_index(here, None, keep=True) as own:
            own.text("read-tree", was.tree)
            own.text("checkout-index", "--all", "--force")
    if was.branch != "HEAD":
        here.text("symbolic-ref", "HEAD", was.branch)
    for name in _REFS:
        if name in was.refs:
            here.text("update-ref", name, was.refs[name])
        else:
            here.text("update-ref", "-d", name)
    side = head_and_place(here)[1] / OWN_FOLDER / SIDE_INDEX
    if was.side is not None:
        side.write_bytes(was.side)


def _empty(git: Git, place: Path, generated: Sequence[str]) -> None:
    """Take the files of a first checkout out again; objects stay, and the state says that it is not done."""
    for part in repositories(git)[1:]:
        put_aside(git, place, part.path)
    remove_files(git.directory, [*generated, *git.fields("ls-files", "-z")])
    git.text("read-tree", "--empty")
    git.text("symbolic-ref", "HEAD", "refs/heads/main")
    for name in _REFS:
        git.text("update-ref", "-d", name)
