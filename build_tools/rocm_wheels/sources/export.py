"""Export the user's commits: a branch on upstream's commit, without what hipify wrote, to be pushed.

Each commit of the user's is applied again on upstream's commit, with its author, committer, dates and
message: what hipify makes stays out, and an edit of a file that hipify translated in place goes into
upstream's text of it (three ways). Commits of hipify and of patch sets are nobody's to push. Submodules go
before the repository that holds them, which then names their exported commits. Objects alone are written
until all is known to fit, then a branch in each repository: the same commits give the same branch, and the
same command ends a run that was killed.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.core import errors, log
from rocm_wheels.core.files import lock_folder
from rocm_wheels.sources import checkout_state, commits, hipify_record, own_changes, trees
from rocm_wheels.sources.git import OUR_EMAIL, Git, disable_private_filters, find_git_directory

_REGULAR_MODES = ("100644", "100755")
_SIGNATURE = re.compile(rb"^gpgsig(-sha256)? .*\n( .*\n)*", re.MULTILINE)  # of the commit that it was
_Entry = tuple[str, str]  # mode and object id
_ABSENT: _Entry = ("000000", "0" * 40)


@dataclass(frozen=True)
class ExportedBranch:
    """The branch of one repository: its path in the tree (``""``: the root), upstream's commit, its head.

    ``commits``: id and subject of what is on it, oldest first; without any there is no branch. ``left_out``:
    the user's commits that hold nothing but what hipify wrote. ``edited_outputs``: files that hipify makes,
    and that HEAD has otherwise; ``translated``: those that it translates in place, and the branch changes.
    ``changed``: the branch was made, or moved on.
    """

    path: str
    directory: Path
    upstream: str
    head: str
    commits: tuple[str, ...]
    left_out: tuple[str, ...]
    edited_outputs: tuple[str, ...]
    translated: tuple[str, ...]
    changed: bool = False


def export_commits(directory: Path, branch: str, *, env: Mapping[str, str]) -> list[ExportedBranch]:
    """Have the user's commits in a tree as ``branch``, in the root and in each submodule that has some.

    The work tree, its index and HEAD are not touched; what is not committed is not exported, which is said.
    Returns the repositories that have commits of the user's. Raises UsageError for a name that no branch can
    have; SourceError, with no branch made, where there are no commits, HEAD is not on upstream's commit,
    history has a merge, an edit does not fit upstream's text, or a branch of that name has other commits.
    """
    directory = directory.absolute()
    if not (directory / ".git").exists():
        raise errors.SourceError(f"{directory} is not a git checkout", tip=trees.CHECKOUT_TIP)
    git = disable_private_filters(Git(directory, env))
    commits.check_branch_name(git, branch)
    git_dir = find_git_directory(git)
    with lock_folder(git_dir / checkout_state.OWN_FOLDER, purpose=f"sources export in {directory}"):
        state = checkout_state.read_state(git_dir)
        checkout_state.refuse_interrupted(directory, state)
        parts = {part.path: part for part in trees.list_repositories(git) if part.head}
        own_changes.refuse_unfinished_operations(parts.values())
        exports: list[ExportedBranch] = []
        moved: dict[str, Mapping[str, str]] = {}  # by submodule: the exported commit by the one that it was
        for path, part in reversed(parts.items()):
            below = {
                other.removeprefix(f"{path}/"): moved[other]
                for other in moved
                if trees.find_holder(other, parts) == path
            }
            export, moved[path] = _export_repository(part, state, below)
            if export.commits or export.left_out:
                exports.insert(0, export)
        if not any(export.commits for export in exports):
            raise errors.SourceError(
                f"there are no commits of yours in {directory}"
                + (", but of what hipify writes" if exports else ""),
                tip="commit your edits first; `rocm-wheels sources status` lists them",
            )
        exports = [_compare_branch(parts[export.path].git, branch, export) for export in exports]
        for export in exports:
            if export.changed:
                parts[export.path].git.text("update-ref", f"refs/heads/{branch}", export.head)
        unsaved = [
            part.path_from_root(path)
            for part in parts.values()
            for _, path in own_changes.list_own_changes(part, state)
        ]
    if unsaved:
        log.log_note(f"not committed, so not exported: {', '.join(unsaved[:5])}" + _count_more(unsaved))
    return exports


def _count_more(names: Sequence[str]) -> str:
    return f" and {len(names) - 5} more" if len(names) > 5 else ""


def _compare_branch(git: Git, branch: str, export: ExportedBranch) -> ExportedBranch:
    """Tell whether the branch has to be made, or moved on. Raises SourceError where that loses commits."""
    form = "--format=%(objectname) %(worktreepath)"
    there, _, checked_out = git.text("for-each-ref", form, f"refs/heads/{branch}").partition(" ")
    if not export.commits or there == export.head:
        return export
    on_the_way = not there or git.succeeds("merge-base", "--is-ancestor", there, export.head)
    if checked_out or not on_the_way:
        remove = f", or remove it: `git -C {git.directory} branch -D {branch}`"
        raise errors.SourceError(
            f"branch {branch} of {git.directory} {'is checked out, and ' if checked_out else ''}has "
            "other commits than those to export",
            tip=f"name another one, such as --branch {branch}-upstream" + ("" if checked_out else remove),
        )
    return replace(export, changed=True)


def _export_repository(
    part: trees.TreePart, state: checkout_state.CheckoutState | None, below: Mapping[str, Mapping[str, str]]
) -> tuple[ExportedBranch, Mapping[str, str]]:
    """Store the user's commits of one repository on upstream's; return its branch, and each commit's place.

    ``below``: the same of its submodules, by their paths in it.
    """
    git, recorded = part.git, state.left.get(part.path) if state is not None else None
    upstream, foreign = _find_upstream(part, ours=recorded is not None)
    original = _list_files(git, upstream)
    # hipify wrote this, and no commit has it but the user's
    written = _list_files(git, recorded.tree) if recorded is not None and recorded.uncommitted else {}
    record = hipify_record.read_hipify_record(git) or hipify_record.HipifyRecord()
    outputs = record.made.keys() - original.keys()
    files, tip = dict(original), upstream
    kept: list[str] = []
    left_out: list[str] = []
    mixed: dict[str, str] = {}  # outputs in the user's commits, as the last one has them
    translated: set[str] = set()
    moved = dict.fromkeys(foreign, upstream)
    with trees.temporary_index(git, None, keep=True) as index_git:
        index_git.text("read-tree", upstream)
        form = "--format=%H%x09%P%x09%ce%x09%h%x09%s"
        for line in git.fields("log", "-z", "--reverse", "--topo-order", form, f"{upstream}..HEAD", "--"):
            commit, parent, email, short, subject = line.split("\t", 4)
            if " " in parent:
                raise errors.SourceError(
                    f"commit {short} of {git.directory} is a merge ({subject}), which cannot be exported",
                    tip=f"`git rebase` your work onto {checkout_state.UPSTREAM_TAG}",
                )
            changes = trees.list_differences(git, "diff-tree", "-r", parent, commit)
            new = [change for change in changes if change.letter == "A" and change.path not in original]
            if subject == checkout_state.HIPIFY_MESSAGE:
                outputs |= {change.path for change in new}
            if subject == checkout_state.HIPIFY_MESSAGE or email == OUR_EMAIL or commit in foreign:
                moved[commit] = tip
                continue
            outputs |= hipify_record.find_outputs(git, record, new)
            picked: dict[str, commits.FileStamp | None] = {}
            links: dict[str, str] = {}
            for change in changes:
                path, before, after = change.path, change.before, change.after
                if path in outputs:
                    mixed[path] = after[1]
                elif change.of_submodule and change.letter != "D":
                    exported = below.get(path, {})
                    if exported.get(before[1], before[1]) != exported.get(after[1], after[1]):
                        links[path] = exported.get(after[1], after[1])
                else:
                    if path in written and before == original.get(path):
                        before = written[path]
                    there = files.get(path, _ABSENT)
                    if before != there:
                        what = f"commit {short} ({subject}) of {git.directory} changes lines of {path}"
                        after = _merge_change(git, before, there, after, what)
                    if after != there:
                        picked[path] = commits.FileStamp(*after, 0, (0, 0)) if after != _ABSENT else None
                        translated |= {path} if before != there else set()
                        files[path] = after
            if picked or links or not changes:
                tree = commits.change_index(index_git, picked, links)
                tip = _commit_again(git, commit, tree, tip)
                kept.append(f"{tip[:12]} {subject}")
            else:
                left_out.append(f"{short} {subject}")
            moved[commit] = tip
    edited = [path for path in mixed.keys() & record.made.keys() if not record.wrote(path, mixed[path])]
    ordered = (tuple(kept), tuple(left_out), tuple(sorted(edited)), tuple(sorted(translated)))
    return ExportedBranch(part.path, git.directory, upstream, tip, *ordered), moved


def _find_upstream(part: trees.TreePart, *, ours: bool) -> tuple[str, frozenset[str]]:
    """Return upstream's commit, which is tagged, and those on top that are another program's patches.

    What lies below the hipify of TheRock's scripts is theirs; in a tree of ours, patches bear our name.
    """
    git, (upstream, hipified) = part.git, commits.require_tags(part)
    if ours or not hipified or git.succeeds("rev-parse", "-q", "--verify", checkout_state.HIPIFIED_REF):
        return upstream, frozenset()
    return upstream, frozenset(git.text("rev-list", f"{upstream}..{hipified}").split())


def _list_files(git: Git, tree: str) -> dict[str, _Entry]:
    return {entry.path: (entry.mode, entry.object) for entry in trees.list_tree(git, tree)}


def _merge_change(git: Git, before: _Entry, there: _Entry, after: _Entry, what: str) -> _Entry:
    """Return a file (``there``) in which the change from ``before`` to ``after`` is made as well.

    Raises SourceError where the commit changes what is not there, or lines that are other ones there.
    """
    if after in (_ABSENT, there):
        return after
    if all(mode in _REGULAR_MODES for mode, _ in (before, there, after)):
        blobs = trees.read_blobs(git, [before[1], there[1], after[1]])
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-merge-") as folder:
            names = [Path(folder, name) for name in ("there", "before", "after")]
            for name, (_, blob) in zip(names, (there, before, after), strict=True):
                name.write_bytes(blobs[blob])
            merges = git.succeeds("merge-file", "--quiet", *map(str, names))
            content = names[0].read_bytes()
        if merges:
            mode = after[0] if after[0] != before[0] else there[0]
            return mode, git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=content)
    raise errors.SourceError(
        f"{what} that hipify, or a patch, wrote, and upstream has other ones",
        tip="edit other lines of that file, or keep the commit with `sources save-patches`",
    )


def _commit_again(git: Git, commit: str, tree: str, parent: str) -> str:
    """Store a commit of another tree and parent; author, committer, dates and message are as they were."""
    [(_, _, content)] = trees.read_objects(git, [commit])
    head, _, message = content.partition(b"\n\n")
    head = _SIGNATURE.sub(b"", head + b"\n")
    facts = [line for line in head.splitlines() if not line.startswith((b"tree ", b"parent "))]
    lines = [f"tree {tree}".encode(), f"parent {parent}".encode(), *facts, b"", message]
    return git.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=b"\n".join(lines))
