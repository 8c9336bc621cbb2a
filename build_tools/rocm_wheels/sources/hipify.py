"""Hipify: the project's own script turns CUDA sources into HIP sources, in the tree.

The script is the project's; what we add is that it can be done again. Files whose content
stays keep their times, the commit (where asked for) has the same id for the same input, and
the user's own work is never mixed in.

For projects that are told by variables, a checkout leaves ``build_env.json`` in the tree for the build. git
does not see the file (``info/exclude`` of the repository): HEAD stays the upstream commit, which is in
Triton's version, and the tree counts as unchanged. What we wrote last is noted inside the repository, so
that a file of the user's own is told apart and kept.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocm_wheels.core import (
    SourceError,
    format_command,
    format_count,
    lock_folder,
    log_note,
    log_warning,
    run_command,
    show_live_line,
    write_atomically,
)
from rocm_wheels.sources.checkout_state import (
    LEFT_REF,
    OWN_FOLDER,
    SIDE_INDEX,
    UPSTREAM_TAG,
    CheckoutState,
    RepositoryState,
    read_state,
    write_state,
)
from rocm_wheels.sources.commits import (
    FileListing,
    FileStamp,
    RepositoryListing,
    RepositoryScan,
    build_tree,
    commit_hipify,
    find_touched_files,
    find_upstream_commit,
    list_foreign_commits,
    move_submodules,
    remove_files,
    restore_times,
    tag_unchanged,
)
from rocm_wheels.sources.git import Git, disable_private_filters, find_git_directory, is_linked
from rocm_wheels.sources.hipify_record import (
    EditedOutputError,
    HipifyRecord,
    keep_files,
    merge_outputs,
    read_hipify_record,
    renew_record,
    restore_kept_files,
    set_outputs_aside,
    write_hipify_records,
)
from rocm_wheels.sources.local_changes import (
    list_own_changes,
    list_own_commits,
    recover_hipify,
    refuse_uncommitted,
)
from rocm_wheels.sources.trees import (
    CHECKOUT_TIP,
    TreePart,
    choose_seed_index,
    find_holder,
    hash_whole_tree,
    list_repositories,
    read_current_tree,
    require_commit,
    run_side_by_side,
    select_missing_submodules,
    stamp_index,
    update_heads,
    write_index_notes,
)

if TYPE_CHECKING:
    from rocm_wheels.models import Project

BUILD_ENV_FILE = "build_env.json"


def is_build_env_current(project: Project, directory: Path, git_dir: Path, *, hipified: bool) -> bool:
    """Tell whether the file is as a checkout leaves it; ``git_dir`` is the git directory.

    ``hipified``: the checkout hipifies, which for such a project is to leave the file.
    """
    current, noted, _ = _read_build_env(directory, git_dir)
    return (current is not None and current != noted) or current == _format_build_env(project, hipified)


def is_foreign_build_env(directory: Path, git_dir: Path) -> bool:
    """Tell whether the file is there and not as a checkout of ours left it."""
    current, noted, _ = _read_build_env(directory, git_dir)
    return current is not None and current != noted


def write_build_env(git: Git, git_dir: Path, project: Project, *, hipified: bool) -> None:
    """Write, renew or remove the file; one that we did not write stays, and that is said."""
    directory = git.directory
    current, noted, note = _read_build_env(directory, git_dir)
    content = _format_build_env(project, hipified)
    if project.hipify.by != "variables" and noted is None:
        return
    if current is not None and current not in (noted, content):
        log_warning(f"{directory / BUILD_ENV_FILE} is not ours; it is left as it is, and the build reads it")
    elif content is None:
        (directory / BUILD_ENV_FILE).unlink(missing_ok=True)
        note.unlink(missing_ok=True)
    else:
        _exclude_from_git(git, git_dir)
        write_atomically(note, content)
        if current != content:
            write_atomically(directory / BUILD_ENV_FILE, content)
            log_note(f"variables for the build of {project.name}: {BUILD_ENV_FILE} in its tree")


def _read_build_env(directory: Path, git_dir: Path) -> tuple[str | None, str | None, Path]:
    """Return the file's content, what we wrote last, and where that is noted (``None``: no file)."""
    note = git_dir / OWN_FOLDER / BUILD_ENV_FILE
    contents = [
        path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else None
        for path in (directory / BUILD_ENV_FILE, note)
    ]
    return contents[0], contents[1], note


def _format_build_env(project: Project, hipified: bool) -> str | None:
    if not hipified or project.hipify.variables is None:
        return None
    return json.dumps(dict(project.hipify.variables), indent=2, sort_keys=True) + "\n"


def _exclude_from_git(git: Git, git_dir: Path) -> None:
    """Have git ignore the file in this repository."""
    path = git_dir / "info" / "exclude"
    if is_linked(git_dir):
        path = git.directory / git.text("rev-parse", "--git-path", "info/exclude")
    before = path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else ""
    lines = [f"/{BUILD_ENV_FILE}", f"/.{BUILD_ENV_FILE}.*.part"]  # the second: while it is being written
    missing = [line for line in lines if line not in before.splitlines()]
    if missing:
        start = before if before.endswith("\n") or not before else f"{before}\n"
        text = start + "".join(f"{line}\n" for line in missing)
        write_atomically(path, text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class HipifyRepository:
    """One repository of the tree while the script runs; ``untagged``: hipify has no tag in it yet."""

    part: TreePart
    state: RepositoryState
    scan: RepositoryScan
    untagged: bool

    @property
    def git(self) -> Git:
        return self.part.git

    @property
    def path(self) -> str:
        return self.part.path

    @property
    def head(self) -> str:
        return self.part.head


class ScriptOutput(NamedTuple):
    """What the script did in a repository; ``changed`` and ``generated`` (git-ignored) from the root."""

    written: dict[str, FileStamp | None]
    changed: list[str]
    generated: list[str]


def run_keeping_edits(
    parts: list[HipifyRepository],
    run: Callable[[], None],
    known_records: Mapping[str, HipifyRecord | None] | None,
    generated: set[str],
    *,
    keep_edited: bool,
) -> tuple[list[dict[str, FileStamp | None]], tuple[str, ...], tuple[str, ...], dict[str, HipifyRecord]]:
    """Run the script, and keep what is not its own: edits of what it makes, what it translated before.

    Raises EditedOutputError, with the tree as it was, where an edit cannot be kept.
    """
    listings = run_side_by_side(lambda part: part.scan.list_files(), parts)
    items = list(zip(parts, listings, strict=True))

    def settle() -> list[ScriptOutput]:
        return run_side_by_side(lambda item: _collect_output(*item), items)

    past = {part.path: (known_records or {}).get(part.path) or HipifyRecord() for part in parts}
    kept_files = {part.path: set_outputs_aside(part.part, past[part.path]) for part in parts}
    try:
        run()
        records: dict[str, HipifyRecord] = {}
        conflicts: list[str] = []
        for part in parts:
            records[part.path], edited = merge_outputs(part.part, past[part.path], kept_files[part.path])
            conflicts += [part.part.path_from_root(path) for path in edited]
        outputs = settle()
        if conflicts and not keep_edited:
            _remove_new(items, outputs)
            raise EditedOutputError(parts[0].git.directory, conflicts)
    except BaseException:
        for part in parts:
            restore_kept_files(part.part, kept_files[part.path])
        settle()
        raise
    unknown = {
        part.path: _find_rewritten(records[part.path], listing.sources, output)
        for (part, listing), output in zip(items, outputs, strict=True)
    }
    if any(unknown.values()) and not _is_first_run(parts, known_records, unknown):
        unknown = _find_always_rewritten(parts, run, records, outputs, unknown)
        outputs = settle()
    generated |= {path for output in outputs for path in output.generated}
    for (part, listing), output in zip(items, outputs, strict=True):
        records[part.path] = renew_record(
            part.part,
            records[part.path],
            new=[path for path, entry in output.written.items() if entry and path not in listing.sources],
            ignored=_select_below(part.path, [other.path for other in parts], generated),
            rewritten=unknown[part.path],
            stored={path: entry.object for path, entry in output.written.items() if entry},
        )
    written = [output.written for output in outputs]
    changed = tuple(path for output in outputs for path in output.changed)
    return written, changed, tuple(sorted(generated)), records


def _find_rewritten(record: HipifyRecord, before: FileListing, output: ScriptOutput) -> list[str]:
    """List the files that the script changed though it neither makes them nor is known to rewrite them."""
    return [
        path
        for path, entry in output.written.items()
        if entry is not None
        and path in before
        and before[path].object != entry.object
        and path not in record.made
        and path not in record.rewritten
    ]


def _is_first_run(
    parts: Sequence[HipifyRepository],
    known_records: Mapping[str, HipifyRecord | None] | None,
    unknown: Mapping[str, list[str]],
) -> bool:
    """Tell whether the script surely ran for the first time: what it changed then, it changes at each run.

    Where nothing is recorded it may have run in a commit of somebody's. What it made there has ``hip`` in its
    path, as all that PyTorch's hipify makes of another file.
    """
    if known_records is None:  # just checked out
        return True
    if any(known_records.values()) or not all(part.scan.clean for part in parts):
        return False
    return not any("hip" in path.lower() for paths in unknown.values() for path in paths)


def _find_always_rewritten(
    parts: list[HipifyRepository],
    run: Callable[[], None],
    records: Mapping[str, HipifyRecord],
    outputs: Sequence[ScriptOutput],
    unknown: Mapping[str, list[str]],
) -> dict[str, list[str]]:
    """Find, of files that the script changed, those that it changes at each run; the tree stays as it is.

    The others are made of a source that changed: it makes the same of it again.
    """
    kept_files = {}
    for part, output in zip(parts, outputs, strict=True):
        record = records[part.path]
        kept_files[part.path] = keep_files(part.part, {*record.made, *record.rewritten, *output.written})
    try:
        run()
    finally:
        changed = {part.path: restore_kept_files(part.part, kept_files[part.path]) for part in parts}
    return {path: [name for name in names if name in changed[path]] for path, names in unknown.items()}


def _remove_new(
    items: Sequence[tuple[HipifyRepository, RepositoryListing]], outputs: Sequence[ScriptOutput]
) -> None:
    """Remove what the script made that was not there before."""
    for (part, listing), output in zip(items, outputs, strict=True):
        inside = part.part.path_from_root
        old = {inside(path) for path in (*listing.sources, *listing.ignored)}
        written = [inside(path) for path, entry in output.written.items() if entry is not None]
        new = [path for path in (*written, *output.generated) if path not in old]
        remove_files(items[0][0].git.directory, new)


def _select_below(path: str, paths: Sequence[str], files: Iterable[str]) -> list[str]:
    """List those of the files (from the root) that are in the repository at ``path``, as seen from there."""
    if not path and paths == [""]:
        return sorted(files)
    inside = []
    for file in files:
        folders = [folder for folder in paths if folder and file.startswith(f"{folder}/")]
        if max(folders, key=len, default="") == path:
            inside.append(file.removeprefix(f"{path}/") if path else file)
    return sorted(inside)


class FailedScriptError(SourceError):
    """The script of a project failed, and left nothing in the tree."""


def run_hipify_script(root: TreePart, script: str, python: Path) -> None:
    """Run the project's script in its tree, with its output in a log inside the repository.

    Raises SourceError when the script is missing, FailedScriptError when it fails: the tree is as it was.
    """
    git = root.git
    if not (git.directory / script).is_file():
        raise SourceError(
            f"{git.directory} has no {script}, which its recipe names for hipify",
            tip="check out a commit that has it, or run `checkout` with --no-hipify",
        )
    record = root.git_dir / OWN_FOLDER / "hipify.log"
    run_command(
        [python, Path(__file__).with_name("hipify_runner.py"), script],
        # compiled modules of the script would count as new files where they are not ignored
        env={**git.env, **git.variables, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=git.directory,
        log=record,
        on_line=show_live_line,
        check=FailedScriptError,
        description=f"hipify ({script} in {git.directory})",
        tip=f"the whole output is in {record}",
    )
    show_live_line("")


def _collect_output(part: HipifyRepository, before: RepositoryListing) -> ScriptOutput:
    """Find what the script did in a repository; what it wrote with the same content gets its time back."""
    after = part.scan.list_files()
    written = find_touched_files(before.sources, after.sources)
    touched = find_touched_files(before.ignored, after.ignored)
    generated = [path for path, entry in touched.items() if entry is not None]
    git = part.scan.index_git if part.scan.clean else part.git
    changed = [
        *restore_times(git, before.sources, after.sources),
        *restore_times(git, before.ignored, after.ignored),
    ]
    inside = part.part.path_from_root
    return ScriptOutput(written, [inside(path) for path in changed], [inside(path) for path in generated])


class HipifyRun(NamedTuple):
    """A run of the script in a tree. ``records``: what it makes and rewrites now, by repository."""

    parts: list[HipifyRepository]
    written: list[dict[str, FileStamp | None]]
    changed: tuple[str, ...]
    generated: tuple[str, ...]
    records: Mapping[str, HipifyRecord]


class HipifyOutcome(NamedTuple):
    """A hipified tree: its state, the files that changed, and what hipify did in each repository."""

    state: CheckoutState
    changed: tuple[str, ...]
    records: Mapping[str, HipifyRecord]


def hipify_repositories(
    tree: Sequence[TreePart],
    project: Project,
    state: CheckoutState | None,
    *,
    commit: bool,
    python: Path,
    known_records: Mapping[str, HipifyRecord | None] | None = None,
    keep_edited: bool = False,
    clean: bool = False,
) -> HipifyOutcome:
    """Run the recipe's script in a tree (its repositories, as they are) and settle what it wrote.

    ``known_records``: what hipify did in them; without, they were just checked out, and their tags removed.
    ``keep_edited``: an edit of a file that the script makes is the last word. ``clean``: git finds no change.
    Without a state (a checkout of somebody else's) HEAD counts as upstream.
    """
    if project.hipify.by != "script":
        _log_nothing_to_do(project)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-hipify-") as name:
        run = run_hipify(
            tree,
            project,
            state,
            python,
            known_records,
            folder=Path(name),
            keep_edited=keep_edited,
            clean=clean,
        )
        states = _commit_all(run.parts, run.written) if commit else _remember_all(run.parts, run.written)
    blank = state or CheckoutState(origin="", ref="", upstream=run.parts[0].state.upstream)
    new = replace(
        blank, left=states, generated=run.generated, hipify="committed" if commit else "uncommitted"
    )
    if project.hipify.script:
        log_changed_files(project, run.changed)
    return HipifyOutcome(new, run.changed, run.records)


def log_changed_files(project: Project, changed: Sequence[str]) -> None:
    """Tell how many files hipify changed."""
    log_note(f"hipified {project.name}: {format_count(len(changed), 'file')} changed")


def run_hipify(
    tree: Sequence[TreePart],
    project: Project,
    state: CheckoutState | None,
    python: Path,
    known_records: Mapping[str, HipifyRecord | None] | None,
    *,
    folder: Path,
    keep_edited: bool = False,
    clean: bool = False,
) -> HipifyRun:
    """Run the script where anything changed since it ran, and settle what it wrote (see ``hipified``).

    ``folder``: where indexes may be put, until what was written is committed.
    """
    generated: set[str] = set(state.generated) if state is not None else set()
    items = [(part, folder / f"index{number}") for number, part in enumerate(tree)]
    parts = run_side_by_side(
        lambda item: _inspect_repository(*item, project, state, untagged=known_records is None, clean=clean),
        items,
    )
    records = {path: record for path, record in (known_records or {}).items() if record is not None}
    script = project.hipify.script
    if not script or (not keep_edited and _is_current(tree, state, records)):
        return HipifyRun(parts, [{} for _ in parts], (), tuple(sorted(generated)), records)

    def run() -> None:
        run_hipify_script(tree[0], script, python)

    return HipifyRun(parts, *run_keeping_edits(parts, run, known_records, generated, keep_edited=keep_edited))


def _is_current(
    tree: Sequence[TreePart], state: CheckoutState | None, records: Mapping[str, HipifyRecord]
) -> bool:
    """Tell whether nothing changed in a tree since it was hipified."""
    root = records.get("")
    if root is None or not root.whole:
        return False
    return root.is_current(tree[0].git.directory, hash_whole_tree(tree, state))


def skip_hipify(project: Project, state: CheckoutState, *, commit: bool) -> CheckoutState:
    """Return the state of a tree in which hipify has nothing to do, and where its tags are already."""
    _log_nothing_to_do(project)
    return replace(state, hipify="committed" if commit else "uncommitted")


def _log_nothing_to_do(project: Project) -> None:
    log_note(f"nothing to hipify in the tree of {project.name}: {project.hipify.reason}")


def _inspect_repository(
    part: TreePart,
    index: Path,
    project: Project,
    state: CheckoutState | None,
    *,
    untagged: bool,
    clean: bool,
) -> HipifyRepository:
    require_commit(part)
    git, head = part.git, part.head
    recorded = state.left.get(part.path) if state is not None else None
    if recorded is None or recorded.head != head:
        recorded = RepositoryState(head, _tag_upstream_of(part), part.tree)
    seed = choose_seed_index(part.git_dir, head, state, part.path)
    if seed.exists():
        shutil.copy2(seed, index)
    just_written = untagged and recorded.tree == part.tree
    skip = project.build.trees if not part.path else ()
    scan = RepositoryScan(git, index, skip, clean=clean or just_written)
    return HipifyRepository(part, recorded, scan, untagged)


def _tag_upstream_of(part: TreePart) -> str:
    """Return upstream's commit below HEAD, tagged: as it was, if HEAD has that, else as remotes have it.

    A commit of somebody's own is not upstream's.
    """
    name = f"refs/tags/{UPSTREAM_TAG}"
    tagged = part.git.text("for-each-ref", "--format=%(objectname)", name)
    if tagged and (part.path or part.git.succeeds("merge-base", "--is-ancestor", tagged, part.head)):
        return tagged
    upstream = part.head if part.path else find_upstream_commit(part.git, part.head)
    part.git.text("update-ref", name, upstream)
    return upstream


def _commit_all(
    parts: list[HipifyRepository], written: list[dict[str, FileStamp | None]]
) -> dict[str, RepositoryState]:
    """Commit in every repository, innermost first: a parent then names its submodules' new commits."""
    paths = [part.path for part in parts]
    above = {path: find_holder(path, paths) for path in paths if path}
    depth = {"": 0}
    for path in paths[1:]:
        depth[path] = depth[above[path]] + 1
    states: dict[str, RepositoryState] = {}

    def commit(item: tuple[HipifyRepository, dict[str, FileStamp | None]]) -> tuple[str, RepositoryState]:
        part, files = item
        links = {
            path.removeprefix(f"{part.path}/"): state.head
            for path, state in states.items()
            if above[path] == part.path
        }
        return part.path, _commit_repository(part, files, links)

    for level in range(max(depth.values()), -1, -1):
        level_items = [item for item in zip(parts, written, strict=True) if depth[item[0].path] == level]
        states.update(run_side_by_side(commit, level_items))
    return {path: states[path] for path in paths}


def _commit_repository(
    part: HipifyRepository, files: dict[str, FileStamp | None], links: dict[str, str]
) -> RepositoryState:
    tree, head = part.state.tree, part.head
    if part.scan.clean and (files or links):
        tree = move_submodules(part.scan.index_git, links)
    elif files or links:
        tree = build_tree(part.git, tree, files, links)
    if tree != part.part.tree:
        index = part.scan.index if part.scan.clean else None
        head = commit_hipify(part.part, tree, part.state.upstream, untagged=part.untagged, index=index)
    elif head == part.state.upstream or not list_foreign_commits(part.git, part.state.upstream):
        tag_unchanged(part.git, head, untagged=part.untagged)  # not somebody's own commit
    return RepositoryState(head, part.state.upstream, tree)


def _remember_all(
    parts: list[HipifyRepository], written: list[dict[str, FileStamp | None]]
) -> dict[str, RepositoryState]:
    """Remember what we wrote without a commit: as a tree, and as an index that knows the files."""
    done = run_side_by_side(lambda item: _remember_repository(*item), zip(parts, written, strict=True))
    return {part.path: state for part, state in zip(parts, done, strict=True)}


def _remember_repository(part: HipifyRepository, files: dict[str, FileStamp | None]) -> RepositoryState:
    tree = build_tree(part.git, part.state.tree, files, {}) if files else part.state.tree
    uncommitted = tree != part.part.tree
    if uncommitted:
        side = part.part.git_dir / OWN_FOLDER / SIDE_INDEX
        part.scan.index_git.text("read-tree", "-m", tree)
        part.git.text("update-ref", LEFT_REF, tree)
        side.parent.mkdir(exist_ok=True)
        shutil.copy2(part.scan.index, side.with_suffix(".part"))
        side.with_suffix(".part").replace(side)
    return RepositoryState(part.head, part.state.upstream, tree, uncommitted)


@dataclass(frozen=True)
class HipifyResult:
    """``head``: the commit of the root afterwards; ``changed``: the files whose content changed."""

    directory: Path
    head: str
    changed: tuple[str, ...]


def hipify_checkout(
    project: Project, directory: Path, *, commit: bool, env: Mapping[str, str], python: Path
) -> HipifyResult:
    """Hipify the checkout in ``directory``; with ``commit``, commit what changed and tag it.

    Works on any git checkout, ours or not. A tree in which nothing changed since is left alone. Raises
    SourceError when changes of somebody's own would get into the commit, when the script is missing or
    fails, when a file was edited that it has to write anew.
    """
    directory = directory.absolute()
    if not (directory / ".git").exists():
        raise SourceError(f"{directory} is not a git checkout", tip=CHECKOUT_TIP)
    script = project.hipify.script
    if script and not (directory / script).is_file():
        raise SourceError(
            f"{directory} has no {script}, which the recipe of {project.name} names for hipify",
            tip="is this the right folder? --checkout-dir of the project's script names another,"
            " --pytorch-dir and the like of `rocm-wheels`",
        )
    plain = Git(directory, env)
    git_dir = find_git_directory(plain)
    with lock_folder(git_dir / OWN_FOLDER, purpose=f"hipify of {project.name}"):
        git = disable_private_filters(plain)
        state = read_state(git_dir)
        if state is not None and state.operation not in (None, "hipify", "hipify without commit"):
            raise SourceError(
                f"the checkout in {directory} was interrupted", tip="run `checkout` again; it continues"
            )
        if commit and state is not None and state.operation == "hipify":
            recover_hipify(git, state)
        parts = list_repositories(git)
        clean = commit and refuse_uncommitted(parts, state)
        if script and (state is None or state.submodules):
            _refuse_missing_submodules(directory, parts)
        before = state
        if state is not None:
            write_state(git_dir, replace(state, operation="hipify" if commit else "hipify without commit"))
        try:
            new, changed, records = hipify_repositories(
                parts,
                project,
                state,
                commit=commit,
                python=python,
                known_records=read_hipify_records(parts),
                clean=clean,
            )
        except (EditedOutputError, FailedScriptError):
            if before is not None:
                write_state(git_dir, replace(before, operation=None))  # the tree is as it was
            raise
        write_build_env(git, git_dir, project, hipified=True)
        now = update_heads(parts, new.left)
        done = settle_state(new, now, clean=clean)
        write_hipify_records(now, records, done.identity)
        if state is not None:
            shared = replace(done, identity="")  # of a tree in which not all is ours
            for part in now:
                edits = [] if clean else list_own_changes(part, done)
                if edits or list_own_commits(part, shared, done.upstream):
                    done = shared
            write_state(git_dir, done)
    return HipifyResult(directory, new.left[""].head, changed)


def _refuse_missing_submodules(directory: Path, parts: Sequence[TreePart]) -> None:
    """Raise SourceError where submodules are not there: fetched later, they would count as hipified."""
    if missing := select_missing_submodules(parts):
        update = format_command(["git", "-C", directory, "submodule", "update", "--init", "--recursive"])
        raise SourceError(
            f"{directory} lacks {format_count(len(missing), 'submodule')}, to be hipified with it: "
            f"{', '.join(missing)}",
            tip=f"`{update}`, then again",
        )


def hipify_changes(
    project: Project, directory: Path, *, env: Mapping[str, str], python: Path
) -> tuple[str, ...]:
    """Hipify what changed in a tree since it was hipified; return the files that are other ones now.

    In a tree whose hipify is committed what it makes of them is not: whoever commits the sources may commit
    it with them, or leave it; it does not count as theirs. Raises SourceError as ``hipify_checkout`` does,
    and for a tree that is not hipified any more.
    """
    plain = Git(directory.absolute(), env)
    git_dir = find_git_directory(plain)
    state = read_state(git_dir)
    if state is not None and state.hipify == "uncommitted":
        return hipify_checkout(project, directory, commit=False, env=env, python=python).changed
    with lock_folder(git_dir / OWN_FOLDER, purpose=f"hipify of {project.name}"):
        git = disable_private_filters(plain)
        state, parts = read_state(git_dir), list_repositories(git)
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-hipify-") as name:
            run = run_hipify(parts, project, state, python, read_hipify_records(parts), folder=Path(name))
        if run.changed:
            log_changed_files(project, run.changed)
        whole = hash_whole_tree(parts, state)
        write_hipify_records(parts, run.records, whole)
        if state is not None:
            write_state(git_dir, replace(state, generated=run.generated))
    return run.changed


def check_hipify(project: Project, git: Git, whole: str = "") -> str:
    """Say whether a tree is hipified, by content: ``current``, ``stale`` (something changed since), ``no``.

    ``unknown`` where nobody remembers that it ever was. ``whole``: its ``hash_combined_tree``, if at hand.
    """
    record = read_hipify_record(git) if project.hipify.script else None
    if record is None:
        return "unknown" if project.hipify.script else "current"
    if not record.is_hipified(git):
        return "no"
    whole = whole or read_current_tree(git, read_state(find_git_directory(git)))[1]
    return "current" if record.is_current(git.directory, whole) else "stale"


def settle_state(state: CheckoutState, tree: Sequence[TreePart], *, clean: bool = False) -> CheckoutState:
    """Return the state of a tree (its repositories) on which nothing is under way, with its identity now.

    ``clean``: nothing was changed in it before, and so all that is in it are commits; it is not looked at.
    What is in its indexes is noted. While something is under way, they are brought up to date: git reads a
    file again, at each look, that was written in the same moment as its index.
    """
    if clean and not any(repository.uncommitted for repository in state.left.values()):
        write_index_notes(tree, tree[0].git_dir)
        return replace(state, operation=None, identity=state.left[""].tree)
    locks = "0" if state.operation is None else "1"
    looked_at = [replace(part, git=part.git.with_variables(GIT_OPTIONAL_LOCKS=locks)) for part in tree]
    unchanged = [part for part in tree if part.index == stamp_index(part.git_dir)]
    state = replace(state, operation=None)
    state = replace(state, identity=hash_whole_tree(looked_at, state))
    write_index_notes([replace(part, index=stamp_index(part.git_dir)) for part in unchanged], tree[0].git_dir)
    return state


def read_hipify_records(tree: Sequence[TreePart]) -> dict[str, HipifyRecord | None]:
    """Return what hipify did in the repositories of a tree, by path; ``None`` where that is not known."""
    records = run_side_by_side(lambda part: read_hipify_record(part.git), tree)
    return {part.path: record for part, record in zip(tree, records, strict=True)}
