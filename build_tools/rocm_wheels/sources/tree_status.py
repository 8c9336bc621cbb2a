"""Say what a source tree is: upstream, patched, hipified, changed by the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors, shell
from rocm_wheels.models.project import Project
from rocm_wheels.sources import checkout_state, own_changes, trees
from rocm_wheels.sources.git import OUR_EMAIL, Git, disable_private_filters
from rocm_wheels.sources.hipify import check_hipify
from rocm_wheels.sources.patches import is_our_commit


@dataclass(frozen=True)
class RepositoryStatus:
    """One repository of a tree, by its path from the root (``""``).

    ``base``, ``hipified``: patches that lie in it. ``commits``: somebody's own, newest first.
    ``files``: (new, modified, removed or staged; path) that differ from what was left there.
    """

    path: str
    upstream: str
    head: str
    base: int
    hipified: int
    commits: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TreeStatus:
    """A tree. ``hipify``: no, committed, uncommitted; ``interrupted``: what was, else empty.

    ``changed_since_hipify``: some file, which hipify may translate, is not what it was then.
    ``hipify_lost``: it was hipified, and then git went to a commit that is not.
    ``missing``: submodules that its commit names, and nobody fetched.
    ``origin``, ``ref`` and ``patches`` (digest of the set) are empty where another program made it.
    ``repositories``: the root, and the submodules in which anything differs from upstream.
    """

    directory: str
    origin: str
    ref: str
    upstream: str
    head: str
    hipify: str
    patches: str
    interrupted: str
    changed_since_hipify: bool
    hipify_lost: bool
    repositories: tuple[RepositoryStatus, ...]
    missing: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Tell whether anybody changed anything."""
        return any(repository.commits or repository.files for repository in self.repositories)

    @property
    def labels(self) -> tuple[str, ...]:
        """Say in words what the tree is; ``upstream`` alone for one that is nothing else."""
        base, hipified = (
            sum(repository.base for repository in self.repositories),
            sum(repository.hipified for repository in self.repositories),
        )
        labels = ["patched"] if base or hipified else []
        labels += ["hipified"] if self.hipify != "no" else ["not hipified"] if self.hipify_lost else []
        labels += ["changed"] if self.changed else []
        labels = labels or ["upstream"]
        labels += ["submodules missing"] if self.missing else []
        return (*(["interrupted"] if self.interrupted else []), *labels)


def read_tree_status(project: Project, directory: Path, *, env: Mapping[str, str]) -> TreeStatus:
    """Look at a project's tree. Raises SourceError when it is no checkout or has no commit."""
    if not (directory / ".git").exists():
        raise errors.SourceError(f"{directory} is not a git checkout", tip=trees.CHECKOUT_TIP)
    git = disable_private_filters(Git(directory.absolute(), env, variables={"GIT_OPTIONAL_LOCKS": "0"}))
    repositories = trees.list_repositories(git)
    root = repositories[0]
    if not root.head:
        raise errors.SourceError(
            f"nothing is checked out in {directory} yet", tip="run `checkout` again; it continues"
        )
    state = checkout_state.read_state(root.git_dir)
    whole = trees.hash_files(repositories, state)
    untouched = (
        state is not None
        and state.operation is None
        and state.left[""].head == root.head
        and whole == state.identity
    )
    hipified = check_hipify(project, git, whole)
    # as upstream has it: the root's status looked into it
    plain = {
        path
        for path, recorded in (state.left.items() if state is not None else ())
        if path and untouched and recorded.head == recorded.upstream
    }
    parts = [part for part in repositories if part.path not in plain]
    wants_submodules = state is None or state.submodules
    all_statuses = trees.run_side_by_side(lambda part: _read_repository_status(part, state, untouched), parts)
    statuses = [
        status
        for status in all_statuses
        if not status.path or status.base or status.hipified or status.commits or status.files
    ]
    return TreeStatus(
        str(directory),
        shell.hide_credentials(state.origin) if state is not None else "",
        state.ref if state is not None else "",
        statuses[0].upstream,
        root.head,
        "no" if hipified == "no" else _read_hipify_way(git, state),
        state.patches if state is not None else "",
        (state.operation or "") if state is not None else "",
        hipified == "stale",
        hipified == "no",
        tuple(statuses),
        tuple(trees.select_missing_submodules(repositories) if wants_submodules else ()),
    )


def _read_hipify_way(git: Git, state: checkout_state.CheckoutState | None) -> str:
    """Say how a tree was hipified, as in the state; in another program's, the tag tells."""
    if state is not None:
        return state.hipify
    return "committed" if trees.read_tags(git)[1] else "no"


def _read_repository_status(
    part: trees.TreePart, state: checkout_state.CheckoutState | None, untouched: bool
) -> RepositoryStatus:
    trees.require_commit(part)
    git, head, (tagged, hipified) = part.git, part.head, trees.read_tags(part.git)
    recorded = state.left.get(part.path) if state is not None else None
    upstream = recorded.upstream if recorded is not None else tagged or head
    end = recorded.head if recorded is not None else head
    if hipified not in ("", end) and not git.succeeds("merge-base", "--is-ancestor", hipified, end):
        hipified = ""
    is_ours = recorded is not None  # that patches bear our name; in a tree of TheRock's scripts they do not
    base = _list_patches(git, upstream, hipified or end, applied=is_ours)
    above = _list_patches(git, hipified, end, applied=is_ours) if hipified else []
    if recorded is None:  # whose the commits are that lie on top is not known then: they count as somebody's
        theirs = bool(hipified) and not git.succeeds(
            "rev-parse", "-q", "--verify", checkout_state.HIPIFIED_REF
        )
        commits = (
            above if theirs else [*above, *base]
        )  # those below the hipify of another program are patches
        above, base = [], base if theirs else []
    else:
        commits = [] if untouched else own_changes.list_own_commits(part, state, upstream)
    files = [] if untouched else own_changes.list_own_changes(part, state)
    return RepositoryStatus(part.path, upstream, head, len(base), len(above), tuple(commits), tuple(files))


def _list_patches(git: Git, start: str, end: str, *, applied: bool) -> list[str]:
    """List the commits (id and subject) between two, newest first, but for ours; ``applied``: by us alone.

    Hipify goes on top of somebody's own commits as well: those are no patches.
    """
    if start == end:
        return []
    commits = []
    form = "--format=%ce%x09%h%x09%s"
    for line in git.fields("log", "-z", "--no-show-signature", form, f"{start}..{end}", "--"):
        email, short, subject = line.split("\t", 2)
        if not is_our_commit(email, subject) and (email == OUR_EMAIL or not applied):
            commits.append(f"{short} {subject}")
    return commits
