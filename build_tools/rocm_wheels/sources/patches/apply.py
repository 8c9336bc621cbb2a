"""A patch set in a tree: planned as commits first, files written after.

Submodules go before the repository that holds them: it then names their new commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError
from rocm_wheels.sources import protect
from rocm_wheels.sources.commits import build_tree, write_commit
from rocm_wheels.sources.git import OUR_EMAIL, Git
from rocm_wheels.sources.patches.mail import PatchRefusedError, commit_series
from rocm_wheels.sources.patches.sets import Patch, PatchSet
from rocm_wheels.sources.state import HIPIFY_MESSAGE, RepositoryState, CheckoutState, write_state
from rocm_wheels.sources.trees import TreePart, list_differences, find_holder

LINKS_MESSAGE = "DO NOT SUBMIT: SUBMODULES OF PATCHES"  # our commit that names patched submodules

PatchSeries = Mapping[str, Sequence[Patch]]


def is_our_commit(email: str, subject: str) -> bool:
    """Tell whether a commit between the tags is no patch: hipify's, or the one that names submodules.

    Hipify's is known by its message alone: TheRock's scripts commit it in the user's name.
    """
    return subject == HIPIFY_MESSAGE or (email, subject) == (OUR_EMAIL, LINKS_MESSAGE)


def check_patch_request(patches: PatchSet | None, *, hipify: bool, commit: bool, submodules: bool) -> None:
    """Raise PatchRefused where a set cannot be applied the way the tree is wanted."""
    if patches is None:
        return
    if patches.hipified and hipify and not commit:
        raise PatchRefusedError(
            f"{patches.folder / 'hipified'} has patches, which go on top of the commit that hipify makes",
            tip="leave out --no-commit-hipify, or use --no-patch or another --patchset",
        )
    log.log_note(f"patches: {len(patches.list_patches())} in {patches.folder}")
    below = sorted({*patches.base, *(patches.hipified if hipify else ())} - {""})
    if below and not submodules:
        raise PatchRefusedError(
            f"{patches.folder} has patches for submodules ({', '.join(below)}), and there are to be none",
            tip="leave out --no-submodules, or use --no-patch",
        )
    if patches.hipified and not hipify:
        log.log_note(f"{patches.folder / 'hipified'} is left out: the tree is not hipified")


def require_base_applies(git: Git, commit: str, patches: PatchSet | None) -> None:
    """Raise PatchRefused when the root's base patches do not apply to ``commit``; no file is touched."""
    if patches is not None and patches.base:
        commit_series(git, commit, patches.base.get("", ()), where=f"upstream's {commit[:12]}")


def apply_stage(
    parts: Sequence[TreePart], git_dir: Path, state: CheckoutState, series: PatchSeries, name: str
) -> CheckoutState:
    """Apply the patches of a stage (``base`` or ``hipified``); return the state of the tree then.

    ``parts`` are the tree's repositories; their commits are what ``state`` says. Raises PatchRefused; then
    no file was touched. What is to be left is on the disk before the first file is written, so that a run
    after a crash knows it as ours.
    """
    if not series:
        return state
    new = replace(state, left=plan_stage(parts, state.left, series, name))
    write_state(git_dir, replace(new, operation="checkout"))
    write_stage(parts, state.left, new.left)
    log.log_note(f"{sum(map(len, series.values()))} {name} patches applied")
    return new


def plan_stage(
    tree: Sequence[TreePart], states: Mapping[str, RepositoryState], series: PatchSeries, stage: str
) -> dict[str, RepositoryState]:
    """Store the commits of a stage on top of what lies in the tree; return what is to lie there.

    Raises PatchRefused: a patch that does not apply, one for a submodule that is not there,
    one that moves a submodule. No file and no ref is touched.
    """
    parts = {part.path: part for part in tree}
    if missing := sorted(set(series) - set(parts)):
        submodules = ", ".join(sorted(set(parts) - {""})) or "none"
        raise PatchRefusedError(
            f"{series[missing[0]][0].name} is for a submodule {missing[0]}, "
            f"which is not in {tree[0].git.directory}",
            tip=f"its submodules: {submodules}; move the folder, or use --no-patch",
        )
    new: dict[str, RepositoryState] = {}
    for path in reversed(parts):
        links = {
            below.removeprefix(f"{path}/"): state.head
            for below, state in new.items()
            if state.head != states[below].head and find_holder(below, parts) == path
        }
        new[path] = _plan_repository(parts[path], states[path], series.get(path, ()), links, stage)
    return dict(reversed(new.items()))


def write_stage(
    parts: Sequence[TreePart], old: Mapping[str, RepositoryState], new: Mapping[str, RepositoryState]
) -> None:
    """Bring files, HEAD and index from ``old`` to ``new``; files that do not differ keep their times.

    Raises PatchRefused, before any file is written, when a file that git ignores is in the way.
    """
    moved = [part for part in parts if new[part.path].head != old[part.path].head]
    for part in moved:
        try:
            protect.refuse_blocking_files(part.git, new[part.path].head, ())
        except SourceError as cause:
            raise PatchRefusedError("the patches cannot be applied", tip=cause.tip) from cause
    for part in reversed(moved):
        part.git.text("checkout", "--quiet", "--force", "--detach", new[part.path].head)


def _plan_repository(
    part: TreePart, state: RepositoryState, patches: Sequence[Patch], links: dict[str, str], stage: str
) -> RepositoryState:
    head, tree = state.head, state.tree
    if links:
        tree = build_tree(part.git, head, {}, links)
        head = write_commit(part.git, tree, [head], LINKS_MESSAGE, dated_like=state.upstream)
    if patches:
        base = "upstream's" if stage == "base" else "what hipify made of upstream's"
        where = f"{base} {state.upstream[:12]}" + (f" in {part.path}" if part.path else "")
        before = head
        commits, tree = commit_series(part.git, before, patches, where=where)
        head = commits[-1]
        moves = [
            change.path
            for change in list_differences(part.git, "diff-tree", "-r", before, head)
            if change.of_submodule
        ]
        if moves:
            raise PatchRefusedError(
                f"the patches in {patches[0].name.rpartition('/')[0]} add, remove or move the submodule "
                f"{min(moves)}",
                tip="patch what is in it: the folder of its path takes the patches",
            )
    if head == state.head:
        return state
    return replace(state, head=head, tree=tree)
