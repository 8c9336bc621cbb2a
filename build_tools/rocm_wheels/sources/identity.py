"""What a source tree holds right now, as one id: the fingerprint of a build uses it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import SourceError
from rocm_wheels.sources.git import Git, without_private_filters
from rocm_wheels.sources.state import UPSTREAM_TAG, State, read_state
from rocm_wheels.sources.trees import head_and_place, seed_index, seeing_all, snapshot


@dataclass(frozen=True)
class TreeIdentity:
    """``commit`` is HEAD, ``upstream`` the commit it was made from (``None`` when not known).

    ``tree`` changes with any file that is tracked, or untracked and not ignored, in the
    root and in every submodule. ``dirty``: somebody changed something since the commit;
    an uncommitted hipify of ours does not count. ``epoch``: the commit's date, seconds since 1970.
    """

    commit: str
    upstream: str | None
    tree: str
    dirty: bool
    epoch: int


def tree_identity(directory: Path, *, env: Mapping[str, str]) -> TreeIdentity:
    """Identify the sources in ``directory``, the top of a git checkout. Nothing is written there.

    Raises SourceError when it is no checkout or has no commit.
    """
    if not (directory / ".git").exists():
        raise SourceError(
            f"{directory} is not a git checkout",
            tip="check the sources out with repos/pytorch_<project>_repo.py checkout",
        )
    git = without_private_filters(Git(directory, env, variables={"GIT_OPTIONAL_LOCKS": "0"}))
    head, place = head_and_place(git)
    state = read_state(place)
    tree, changed = combined_tree(git, head, place, state)
    upstream = state.upstream if state is not None else _tagged(git)
    ours = state is not None and state.operation is None and state.identity == tree
    epoch = int(git.text("rev-list", "--timestamp", "-1", head, "--").split(" ")[0])
    return TreeIdentity(head, upstream or None, tree, changed and not ours, epoch)


def combined_tree(
    git: Git, head: str, place: Path, state: State | None, prefix: str = ""
) -> tuple[str, bool]:
    """Return the id of a tree with its submodules, and whether it differs from ``head``.

    It is git's own tree id where no submodule differs from its gitlink; else a SHA-1 over
    that and the ids of the submodules that do.
    """
    changed_modules: list[str] = []
    with seeing_all(git, place / "index") as whole_git:
        fields = whole_git.fields(
            "status",
            "--porcelain=v2",
            "-z",
            "--untracked-files=normal",
            "--ignore-submodules=none",
            "--no-renames",
        )
    for record in fields:
        parts = record.split(" ", 8)
        if parts[0] == "1" and parts[2][0] == "S" and parts[2][2:] != "..":
            changed_modules.append(parts[8])
    if not fields:
        return git.text("rev-parse", f"{head}^{{tree}}"), False
    tree = snapshot(git, seed_index(place, head, state, prefix))
    modules = []
    for path in sorted(changed_modules):
        module = Git(git.directory / path, git.env, git.settings, git.variables)
        module_head, module_place = head_and_place(module)
        whole = f"{prefix}/{path}" if prefix else path
        modules.append((path, combined_tree(module, module_head, module_place, state, whole)[0]))
    if not modules:
        return tree, True
    digest = hashlib.sha1(tree.encode("ascii"), usedforsecurity=False)
    for path, module_tree in modules:
        digest.update(b"\0" + path.encode("utf-8", "surrogateescape") + b"\0" + module_tree.encode("ascii"))
    return digest.hexdigest(), True


def _tagged(git: Git) -> str | None:
    tags = git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{UPSTREAM_TAG}")
    return tags or None
