"""The state of a checkout: a file in its repository, under ``rocm-wheels/``.

It names the upstream commit, what we left in the tree (root and submodules), and the operation under way: an
entry there says that the tree is half done. Nothing builds from such a tree, and the same command ends what
was cut. One run at a time works in a tree, whatever its work directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, files
from rocm_wheels.sources import git, pins

UPSTREAM_TAG = "THEROCK_UPSTREAM_DIFFBASE"
HIPIFY_TAG = "THEROCK_HIPIFY_DIFFBASE"
HIPIFY_MESSAGE = "DO NOT SUBMIT: HIPIFY"
OWN_FOLDER = "rocm-wheels"  # inside the git directory
SIDE_INDEX = "index"  # inside OWN_FOLDER: the index of a tree that hipify changed without a commit
TIMES_FILE = "times.json"  # inside OWN_FOLDER: times of the files before the operation under way
FETCHED_REF = "refs/rocm-wheels/fetched"
LEFT_REF = "refs/rocm-wheels/left"  # keeps the tree of SIDE_INDEX from garbage collection
HIPIFIED_REF = "refs/worktree/rocm-wheels/hipified"  # what hipify did; of this working tree alone

_STATE_FORMAT = 1


@dataclass(frozen=True)
class RepositoryState:
    """What we left in one repository: commit, its upstream, tree of the files, hipify uncommitted.

    ``tree`` may be empty where it is that of the commit.
    """

    head: str
    upstream: str
    tree: str
    uncommitted: bool = False


@dataclass(frozen=True)
class CheckoutState:
    """One checkout. ``left`` maps ``""`` (root) and submodule paths to what we left there.

    ``origin`` is without credentials: git keeps those, in its own configuration alone.
    """

    origin: str
    ref: str
    upstream: str
    hipify: str = "no"  # no, committed, uncommitted
    submodules: bool = True
    patches: str = ""  # digest of the patch set that was applied
    patch_set: str = ""  # its name
    saved: str = ""  # digest of the set that `save-patches` last wrote from this tree
    identity: str = ""  # what tree_identity said when we left
    left: Mapping[str, RepositoryState] = field(default_factory=dict)
    generated: tuple[str, ...] = ()  # git-ignored files that hipify wrote
    operation: str | None = None  # what is under way, or was when it was killed

    @property
    def is_foreign(self) -> bool:
        """Tell whether the tree is somebody's, and only has a state while we hipify it."""
        return not self.origin


def note_foreign_tree(heads: Mapping[str, str]) -> CheckoutState:
    """Return a state for a tree of somebody's while something is under way; ``heads``: commits by path."""
    left = {path: RepositoryState(head, head, "") for path, head in heads.items()}
    return CheckoutState(origin="", ref="", upstream=heads[""], left=left)


def locate_state_file(git_dir: Path) -> Path:
    """Return where a checkout's state is."""
    return git_dir / OWN_FOLDER / "state.json"


def read_state(git_dir: Path) -> CheckoutState | None:
    """Return the state of a checkout, ``None`` when it is not one of ours.

    Raises SourceError for a file that cannot be understood.
    """
    path = locate_state_file(git_dir)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return _parse_state(json.loads(data.decode("utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError) as cause:
        raise errors.SourceError(
            f"{path} cannot be understood (another version of rocm-wheels?)",
            tip="check out into another folder, or remove that file: the tree then counts as yours",
        ) from cause


def write_state(git_dir: Path, state: CheckoutState) -> None:
    """Record the state, whole or not at all."""
    # ASCII: names that are not UTF-8 come as lone surrogates
    text = json.dumps({"format": _STATE_FORMAT, **asdict(state)}, indent=1, sort_keys=True)
    files.write_atomically(locate_state_file(git_dir), text + "\n")


def refuse_interrupted(
    directory: Path, state: CheckoutState | None, *, tip: str = "run `checkout` again; it continues"
) -> None:
    """Raise SourceError for a tree on which something is under way, or was when it was killed."""
    if state is not None and state.operation is not None:
        raise errors.SourceError(f"the {state.operation} in {directory} was interrupted", tip=tip)


def _parse_state(value: dict[str, Any]) -> CheckoutState:
    if value.pop("format") != _STATE_FORMAT:
        raise ValueError("unknown format")
    repositories = {path: RepositoryState(**entry) for path, entry in value.pop("left").items()}
    generated = tuple(value.pop("generated"))
    state = CheckoutState(left=repositories, generated=generated, **value)
    texts = [state.origin, state.ref, state.upstream, *generated]
    texts += [
        text
        for repository in repositories.values()
        for text in (repository.head, repository.upstream, repository.tree)
    ]
    if not all(isinstance(text, str) for text in texts) or (
        state.operation is None and "" not in repositories
    ):
        raise ValueError("values of another kind")
    if not all(
        map(git.is_inside_tree, filter(None, (*repositories, *generated)))
    ):  # those are written, or removed
        raise ValueError("a path that leaves the tree")
    return state


@contextmanager
def hold_checkout(directory: Path, *, activity: str, env: Mapping[str, str]) -> Iterator[None]:
    """Hold a checkout: no build, checkout or hipify of another run works in it meanwhile.

    Raises UsageError that names the holder. A folder that is no checkout is not held: the step
    that asks for its identity refuses it.
    """
    if not (directory / ".git").exists():
        yield
        return
    folder = git.find_git_directory(git.Git(directory, env)) / OWN_FOLDER
    with files.lock_folder(folder, purpose=activity, tip=f"{files.WAIT_TIP}, or build from another checkout"):
        yield


# without one of these git sees no repository: `git init` was killed
REPOSITORY_NAMES = frozenset({"HEAD", "objects", "refs"})


def find_existing_folder(directory: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(folder for folder in (directory, *directory.parents) if folder.is_dir())


def is_fresh_folder(directory: Path, option: str = pins.ONE_PROJECT_OPTIONS.folder) -> bool:
    """Tell whether nothing is in the folder yet (or only a beginning of ours, killed at once)."""
    above = find_existing_folder(directory)
    if above != directory:
        missing = next(path for path in (directory, *directory.parents) if path.parent == above)
        if missing.is_dir():  # made by another checkout, this moment
            return is_fresh_folder(directory, option)
        if os.path.lexists(missing):
            raise errors.SourceError(f"{missing} is not a folder", tip=f"name another one with {option}")
        return True
    names = {entry.name for entry in directory.iterdir()}
    if names <= {".git"}:
        inner = (
            {entry.name for entry in (directory / ".git").iterdir()}
            if (directory / ".git").is_dir()
            else set()
        )
        untouched = (directory / ".git").is_dir() and not inner  # killed before our folder was in it
        return not names or untouched or (OWN_FOLDER in inner and not inner >= REPOSITORY_NAMES)
    if ".git" not in names:
        raise errors.SourceError(
            f"{directory} is not empty and not a git checkout",
            tip=f"name another folder with {option}, or move this one away",
        )
    return False


def remove_empty_folders(folders: Sequence[Path]) -> None:
    """Remove folders, inner ones first, up to the first that is not empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


@contextmanager
def ensure_folder(folder: Path) -> Iterator[None]:
    """Have a folder, and take it back when nothing has come into it.

    Those who work in it side by side must not find it gone because one of them failed.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    above = created[-1].parent if created else folder
    for path in (*created, above):
        if os.path.lexists(path) and not path.is_dir():
            raise errors.SourceError(f"{path} is not a folder", tip="name another one with --source-dir")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        remove_empty_folders(created)
