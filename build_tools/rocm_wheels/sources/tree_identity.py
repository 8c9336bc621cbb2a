"""Identify what a source tree holds right now, as one id: the fingerprint of a build uses it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.core import SourceError
from rocm_wheels.sources.checkout_state import HIPIFY_MESSAGE, UPSTREAM_TAG, CheckoutState, read_state
from rocm_wheels.sources.git import OUR_EMAIL, Git, disable_private_filters
from rocm_wheels.sources.trees import (
    TreePart,
    choose_seed_index,
    find_holder,
    inspect_repository,
    is_populated,
    require_commit,
    run_side_by_side,
    show_hidden_files,
    write_snapshot,
)

_DIRTY_LETTERS = ("1", "2", "u", "?")  # the first letters of what counts in `git status --porcelain=2`


@dataclass(frozen=True)
class TreeIdentity:
    """``commit`` is HEAD, ``upstream`` the commit it was made from (``None`` when not known).

    ``tree`` changes with any file that is tracked, or untracked and not ignored, in the
    root and in every submodule. ``dirty``: somebody changed something since the commit;
    an uncommitted hipify of ours does not count. ``epoch``: the commit's date, seconds since 1970.
    ``source``: the newest commit that neither hipify nor we made: upstream's, or somebody's own on top.
    """

    commit: str
    upstream: str | None
    tree: str
    dirty: bool
    epoch: int
    source: str = field(default="", compare=False)


def identify_tree(directory: Path, *, env: Mapping[str, str]) -> TreeIdentity:
    """Identify the sources in ``directory``, the top of a git checkout. Nothing is written there.

    Raises SourceError when it is no checkout or has no commit.
    """
    if not (directory / ".git").exists():
        raise SourceError(
            f"{directory} is not a git checkout",
            tip="check the sources out with repos/pytorch_<project>_repo.py checkout",
        )
    git = disable_private_filters(Git(directory, env, variables={"GIT_OPTIONAL_LOCKS": "0"}))
    part = inspect_repository("", git, "")
    require_commit(part)
    state = read_state(part.git_dir)
    tree, changed = hash_combined_tree(part, _list_links(part), state)
    upstream = state.upstream if state is not None else _read_upstream_tag(git)
    ours = state is not None and state.operation is None and state.identity == tree
    epoch = int(git.text("rev-list", "--timestamp", "-1", part.head, "--").split(" ")[0])
    source = _find_source_commit(git, part.head, upstream)
    return TreeIdentity(part.head, upstream or None, tree, changed and not ours, epoch, source)


def _find_source_commit(git: Git, head: str, upstream: str | None) -> str:
    if not upstream or upstream == head:
        return head
    form = "--format=%H%x09%ce%x09%s"
    for line in git.fields("log", "-z", "--no-show-signature", form, f"{upstream}..{head}", "--"):
        commit, email, subject = line.split("\t", 2)
        if email != OUR_EMAIL and subject != HIPIFY_MESSAGE:
            return commit
    return upstream


def read_current_tree(git: Git, state: CheckoutState | None) -> tuple[str, str]:
    """Return the commit and the tree (as in ``TreeIdentity``) that are there now."""
    part = inspect_repository("", git, "")
    require_commit(part)
    return part.head, hash_combined_tree(part, _list_links(part), state)[0]


def hash_whole_tree(parts: Sequence[TreePart], state: CheckoutState | None) -> str:
    """Return the tree of all repositories of a tree (as in ``TreeIdentity``)."""
    paths = [part.path for part in parts]
    return hash_combined_tree(
        parts[0], [path for path in paths if path and not find_holder(path, paths)], state
    )[0]


def hash_combined_tree(part: TreePart, links: Iterable[str], state: CheckoutState | None) -> tuple[str, bool]:
    """Return the id of a tree with its submodules (in ``links``), and whether it differs from its commit.

    It is git's own tree id where no submodule differs from its gitlink; else a SHA-1 over
    that and the ids of the submodules that do.
    """
    changed, modules = _find_changes(part, links)
    if not changed:
        return part.tree, False
    tree = write_snapshot(part.git, choose_seed_index(part.git_dir, part.head, state, part.path))

    def below(path: str) -> tuple[str, str]:
        git = replace(part.git, directory=part.git.directory / path)
        module = inspect_repository(part.path_from_root(path), git, "")
        require_commit(module)
        return path, hash_combined_tree(module, _list_links(module), state)[0]

    module_trees = run_side_by_side(below, sorted(modules))
    if not module_trees:
        return tree, tree != part.tree
    digest = hashlib.sha1(tree.encode("ascii"), usedforsecurity=False)
    for path, module_tree in module_trees:
        digest.update(b"\0" + path.encode("utf-8", "surrogateescape") + b"\0" + module_tree.encode("ascii"))
    return digest.hexdigest(), True


def _list_links(part: TreePart) -> list[str]:
    return [link.path for link in part.links]


def _find_changes(part: TreePart, links: Iterable[str]) -> tuple[bool, set[str]]:
    """Tell whether anything differs from the commit, and in which submodules files do.

    It is what `git status --ignore-submodules=none` says, which asks one submodule after the other by
    just this command (git's submodule.c, is_submodule_modified); here they are asked side by side.
    """
    modules = {path for path in links if is_populated(part.git.directory / path)}

    def ask(path: str) -> list[str]:
        if path:
            inside = replace(part.git, directory=part.git.directory / path).with_variables(GIT_DIR=".git")
            return [
                line
                for line in inside.text("status", "--porcelain=2").split("\n")
                if line[:1] in _DIRTY_LETTERS
            ]
        with show_hidden_files(part) as index_git:
            return index_git.fields(
                "status",
                "--porcelain=v2",
                "-z",
                "--untracked-files=normal",
                "--ignore-submodules=dirty",
                "--no-renames",
            )

    paths = ["", *sorted(modules)]
    statuses = dict(zip(paths, run_side_by_side(ask, paths), strict=True))
    unmerged = {record.split(" ", 10)[10] for record in statuses[""] if record.startswith("u ")}
    return any(statuses.values()), {path for path in modules - unmerged if statuses[path]}


def _read_upstream_tag(git: Git) -> str | None:
    tags = git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{UPSTREAM_TAG}")
    return tags or None
