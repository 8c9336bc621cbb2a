"""Hipify: the project's own script turns CUDA sources into HIP sources, in the tree.

The script is the project's; what we add is that it can be done again. Files whose content
stays keep their times, the commit (where asked for) has the same id for the same input, and
the user's own work is never mixed in.

For projects that are told by variables, a checkout leaves ``build_env.json`` in the tree for the build. git
does not see the file (``info/exclude`` of the repository): HEAD stays the upstream commit, which is in
Triton's version, and the tree counts as unchanged. A file with anything else in it is the user's, and kept.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocm_wheels.core import errors, log, process, progress, shell, tables
from rocm_wheels.core.files import lock_folder, write_atomically
from rocm_wheels.sources import checkout_state, commits, hipify_record, own_changes, trees
from rocm_wheels.sources.git import Git, disable_private_filters, find_git_directory, is_linked

if TYPE_CHECKING:
    from rocm_wheels.models.project import Project

BUILD_ENV_FILE = "build_env.json"


def whose_build_env(project: Project, directory: Path) -> str:
    """Say whose file lies in a tree: ``ours``, with what the recipe says, ``theirs``, "" for no file.

    Of a project that is told nothing by variables, no build reads the file: it does not matter there.
    """
    file = directory / BUILD_ENV_FILE
    if project.hipify.variables is None or not file.is_file():
        return ""
    return "ours" if file.read_bytes() == _format_build_env(project.hipify.variables) else "theirs"


def warn_of_their_build_env(directory: Path) -> None:
    """Say that the build reads another file than the recipe's: a user's, or one of an earlier recipe."""
    log.log_warning(
        f"{directory / BUILD_ENV_FILE} has not what the recipe says; it is left as it is, and the build "
        "reads it (remove it, and check out again, for the recipe's)"
    )


def write_build_env(git: Git, git_dir: Path, project: Project, *, hipified: bool) -> None:
    """Write or remove the file; one with something else in it stays, and that is said."""
    file, variables = git.directory / BUILD_ENV_FILE, project.hipify.variables
    whose = whose_build_env(project, git.directory)
    if whose == "theirs":
        warn_of_their_build_env(git.directory)
    elif hipified and variables is not None:
        _exclude_from_git(git, git_dir)
        if not whose:
            write_atomically(file, _format_build_env(variables))
            log.log_note(f"variables for the build of {project.name}: {BUILD_ENV_FILE} in its tree")
    elif whose:
        file.unlink()


def _format_build_env(variables: Mapping[str, str]) -> bytes:
    return (json.dumps(dict(variables), indent=2, sort_keys=True) + "\n").encode("ascii")


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
    """One repository of the tree while the script runs."""

    part: trees.TreePart
    state: checkout_state.RepositoryState
    scan: commits.RepositoryScan

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

    written: dict[str, commits.FileStamp | None]
    changed: list[str]
    generated: list[str]


def run_keeping_edits(
    parts: list[HipifyRepository],
    run: Callable[[], None],
    known_records: Mapping[str, hipify_record.HipifyRecord | None] | None,
    generated: set[str],
    *,
    keep_edited: bool,
) -> HipifyRun:
    """Run the script, and keep what is not its own: edits of what it makes, what it translated before.

    Raises EditedOutputError, with the tree as it was, where an edit cannot be kept.
    """
    # what the script changes the first time, it changes at each run
    just_made = known_records is None
    ran_before = known_records is not None and (
        any(known_records.values()) or bool(trees.select_changed(part.part for part in parts))
    )
    listings = trees.run_side_by_side(lambda part: part.scan.list_files(), parts)
    items = list(zip(parts, listings, strict=True))

    def settle() -> list[ScriptOutput]:
        return trees.run_side_by_side(lambda item: _collect_output(*item), items)

    past = {part.path: (known_records or {}).get(part.path) or hipify_record.HipifyRecord() for part in parts}
    kept_files = {part.path: hipify_record.set_outputs_aside(part.part, past[part.path]) for part in parts}
    try:
        run()
        records: dict[str, hipify_record.HipifyRecord] = {}
        conflicts: dict[str, str] = {}
        for part in parts:
            records[part.path], edited = hipify_record.settle_outputs(
                part.part, past[part.path], kept_files[part.path]
            )
            conflicts |= {part.part.path_from_root(path): source for path, source in edited.items()}
        outputs = settle()
        if conflicts and not keep_edited:
            _remove_new(items, outputs)
            raise hipify_record.EditedOutputError(parts[0].git.directory, conflicts)
    except BaseException:
        for part in parts:
            hipify_record.restore_kept_files(part.part, kept_files[part.path])
        settle()
        raise
    unknown = {
        part.path: _find_rewritten(records[part.path], listing.sources, output)
        for (part, listing), output in zip(items, outputs, strict=True)
    }
    # where nothing is recorded it may have run in a commit of somebody's: what it makes of another file has
    # ``hip`` in its path, as all that PyTorch's hipify makes
    unclear = not just_made and any("hip" in path.lower() for paths in unknown.values() for path in paths)
    if any(unknown.values()) and (unclear or ran_before):
        unknown = _find_always_rewritten(parts, run, records, outputs, unknown)
        outputs = settle()
    generated |= {path for output in outputs for path in output.generated}
    for (part, listing), output in zip(items, outputs, strict=True):
        records[part.path] = hipify_record.renew_record(
            part.part,
            records[part.path],
            new=[path for path, entry in output.written.items() if entry and path not in listing.sources],
            ignored=_select_below(part.path, [other.path for other in parts], generated),
            rewritten=unknown[part.path],
            stored={path: entry.object for path, entry in output.written.items() if entry},
        )
    return HipifyRun(
        parts,
        [output.written for output in outputs],
        tuple(path for output in outputs for path in output.changed),
        tuple(sorted(generated)),
        records,
    )


def _find_rewritten(
    record: hipify_record.HipifyRecord, before: commits.FileListing, output: ScriptOutput
) -> list[str]:
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


def _find_always_rewritten(
    parts: list[HipifyRepository],
    run: Callable[[], None],
    records: Mapping[str, hipify_record.HipifyRecord],
    outputs: Sequence[ScriptOutput],
    unknown: Mapping[str, list[str]],
) -> dict[str, list[str]]:
    """Find, of files that the script changed, those that it changes at each run; the tree stays as it is.

    The others are made of a source that changed: it makes the same of it again.
    """
    kept_files = {}
    for part, output in zip(parts, outputs, strict=True):
        record = records[part.path]
        kept_files[part.path] = hipify_record.keep_files(
            part.part, {*record.made, *record.rewritten, *output.written}
        )
    try:
        run()
    finally:
        changed = {
            part.path: hipify_record.restore_kept_files(part.part, kept_files[part.path]) for part in parts
        }
    return {path: [name for name in names if name in changed[path]] for path, names in unknown.items()}


def _remove_new(
    items: Sequence[tuple[HipifyRepository, commits.RepositoryListing]], outputs: Sequence[ScriptOutput]
) -> None:
    """Remove what the script made that was not there before."""
    for (part, listing), output in zip(items, outputs, strict=True):
        inside = part.part.path_from_root
        old = {inside(path) for path in (*listing.sources, *listing.ignored)}
        written = [inside(path) for path, entry in output.written.items() if entry is not None]
        new = [path for path in (*written, *output.generated) if path not in old]
        commits.remove_files(items[0][0].git.directory, new)


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


class FailedScriptError(errors.SourceError):
    """The script of a project failed, and left nothing in the tree."""


def run_hipify_script(root: trees.TreePart, script: str, python: Path) -> None:
    """Run the project's script in its tree, with its output in a log inside the repository.

    Raises SourceError when the script is missing, FailedScriptError when it fails: the tree is as it was.
    """
    git = root.git
    if not (git.directory / script).is_file():
        raise errors.SourceError(
            f"{git.directory} has no {script}, which its recipe names for hipify",
            tip="check out a commit that has it, or run `checkout` with --no-hipify",
        )
    record = root.git_dir / checkout_state.OWN_FOLDER / "hipify.log"
    process.run_command(
        [python, Path(__file__).with_name("hipify_runner.py"), script],
        # compiled modules of the script would count as new files where they are not ignored
        env={**git.env, **git.variables, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=git.directory,
        log=record,
        on_line=progress.show_live_line,
        check=FailedScriptError,
        description=f"hipify ({script} in {git.directory})",
        tip=f"the whole output is in {record}",
    )
    progress.show_live_line("")


def _collect_output(part: HipifyRepository, before: commits.RepositoryListing) -> ScriptOutput:
    """Find what the script did in a repository; what it wrote with the same content gets its time back."""
    after = part.scan.list_files()
    written = commits.find_touched_files(before.sources, after.sources)
    touched = commits.find_touched_files(before.ignored, after.ignored)
    generated = [path for path, entry in touched.items() if entry is not None]
    changed = [
        *commits.restore_times(part.git, before.sources, after.sources),
        *commits.restore_times(part.git, before.ignored, after.ignored),
    ]
    inside = part.part.path_from_root
    return ScriptOutput(written, [inside(path) for path in changed], [inside(path) for path in generated])


class HipifyRun(NamedTuple):
    """A run of the script in a tree. ``records``: what it makes and rewrites now, by repository."""

    parts: list[HipifyRepository]
    written: list[dict[str, commits.FileStamp | None]]
    changed: tuple[str, ...]
    generated: tuple[str, ...]
    records: Mapping[str, hipify_record.HipifyRecord]


class HipifyOutcome(NamedTuple):
    """A hipified tree: its state, the files that changed, what hipify did in each repository."""

    state: checkout_state.CheckoutState
    changed: tuple[str, ...]
    records: Mapping[str, hipify_record.HipifyRecord]


def hipify_repositories(
    tree: Sequence[trees.TreePart],
    project: Project,
    state: checkout_state.CheckoutState | None,
    *,
    commit: bool,
    python: Path,
    known_records: Mapping[str, hipify_record.HipifyRecord | None] | None = None,
    keep_edited: bool = False,
) -> HipifyOutcome:
    """Run the recipe's script in a tree (its repositories, as they are) and settle what it wrote.

    ``known_records``: what hipify did in them; without, they were just checked out, and their tags removed.
    ``keep_edited``: an edit of a file that the script makes is the last word.
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
        )
        states = _commit_all(run.parts, run.written) if commit else _remember_all(run.parts, run.written)
    blank = state or checkout_state.CheckoutState(origin="", ref="", upstream=run.parts[0].state.upstream)
    new = replace(
        blank, left=states, generated=run.generated, hipify="committed" if commit else "uncommitted"
    )
    if project.hipify.script:
        log_changed_files(project, run.changed)
    return HipifyOutcome(new, run.changed, run.records)


def log_changed_files(project: Project, changed: Sequence[str]) -> None:
    """Tell how many files hipify changed."""
    log.log_note(f"hipified {project.name}: {tables.format_count(len(changed), 'file')} changed")


def run_hipify(
    tree: Sequence[trees.TreePart],
    project: Project,
    state: checkout_state.CheckoutState | None,
    python: Path,
    known_records: Mapping[str, hipify_record.HipifyRecord | None] | None,
    *,
    folder: Path,
    keep_edited: bool = False,
) -> HipifyRun:
    """Run the script where anything changed since it ran, and settle what it wrote (see ``hipified``).

    ``folder``: where indexes may be put, until what was written is committed.
    """
    generated: set[str] = set(state.generated) if state is not None else set()
    items = [(part, folder / f"index{number}") for number, part in enumerate(tree)]
    parts = trees.run_side_by_side(
        lambda item: _inspect_repository(*item, project, state),
        items,
    )
    records = {path: record for path, record in (known_records or {}).items() if record is not None}
    script = project.hipify.script
    if not script or (not keep_edited and _is_current(tree, state, records)):
        return HipifyRun(parts, [{} for _ in parts], (), tuple(sorted(generated)), records)

    def run() -> None:
        run_hipify_script(tree[0], script, python)

    return run_keeping_edits(parts, run, known_records, generated, keep_edited=keep_edited)


def _is_current(
    tree: Sequence[trees.TreePart],
    state: checkout_state.CheckoutState | None,
    records: Mapping[str, hipify_record.HipifyRecord],
) -> bool:
    """Tell whether nothing changed in a tree since it was hipified."""
    root = records.get("")
    if root is None or not root.whole:
        return False
    return root.is_current(tree[0].git.directory, trees.hash_files(tree, state))


def skip_hipify(
    project: Project, state: checkout_state.CheckoutState, *, commit: bool
) -> checkout_state.CheckoutState:
    """Return the state of a tree in which hipify has nothing to do, and where its tags are already."""
    _log_nothing_to_do(project)
    return replace(state, hipify="committed" if commit else "uncommitted")


def _log_nothing_to_do(project: Project) -> None:
    log.log_note(f"nothing to hipify in the tree of {project.name}: {project.hipify.reason}")


def _inspect_repository(
    part: trees.TreePart,
    index: Path,
    project: Project,
    state: checkout_state.CheckoutState | None,
) -> HipifyRepository:
    trees.require_commit(part)
    git, head = part.git, part.head
    recorded = state.left.get(part.path) if state is not None else None
    if recorded is None or recorded.head != head:
        recorded = checkout_state.RepositoryState(head, _tag_upstream_of(part), part.tree)
    recorded = replace(recorded, tree=recorded.tree or part.tree)
    seed = trees.choose_seed_index(part.git_dir, head, state, part.path)
    if seed.exists():
        shutil.copy2(seed, index)
    scan = commits.RepositoryScan(git, index, project.build.trees if not part.path else ())
    return HipifyRepository(part, recorded, scan)


def _tag_upstream_of(part: trees.TreePart) -> str:
    """Return upstream's commit below HEAD, tagged: as it was, if HEAD has that, else as remotes have it.

    A commit of somebody's own is not upstream's.
    """
    tagged = trees.read_tags(part.git)[0]
    if tagged and (part.path or part.git.succeeds("merge-base", "--is-ancestor", tagged, part.head)):
        return tagged
    upstream = part.head if part.path else commits.find_upstream_commit(part.git, part.head)
    part.git.text("update-ref", f"refs/tags/{checkout_state.UPSTREAM_TAG}", upstream)
    return upstream


def _commit_all(
    parts: list[HipifyRepository], written: list[dict[str, commits.FileStamp | None]]
) -> dict[str, checkout_state.RepositoryState]:
    """Commit in every repository, innermost first: a parent then names its submodules' new commits."""
    paths = [part.path for part in parts]
    above = {path: trees.find_holder(path, paths) for path in paths if path}
    depth = {"": 0}
    for path in paths[1:]:
        depth[path] = depth[above[path]] + 1
    states: dict[str, checkout_state.RepositoryState] = {}

    def commit(
        item: tuple[HipifyRepository, dict[str, commits.FileStamp | None]],
    ) -> tuple[str, checkout_state.RepositoryState]:
        part, files = item
        links = {
            path.removeprefix(f"{part.path}/"): state.head
            for path, state in states.items()
            if above[path] == part.path
        }
        return part.path, _commit_repository(part, files, links)

    for level in range(max(depth.values()), -1, -1):
        level_items = [item for item in zip(parts, written, strict=True) if depth[item[0].path] == level]
        states.update(trees.run_side_by_side(commit, level_items))
    return {path: states[path] for path in paths}


def _commit_repository(
    part: HipifyRepository, files: dict[str, commits.FileStamp | None], links: dict[str, str]
) -> checkout_state.RepositoryState:
    tree, head = part.state.tree, part.head
    if tree != part.part.tree:  # written before, and not committed
        part.git.text("read-tree", tree)
    if files or links:  # the index is that of the commit: nothing of anybody's own is in it
        tree = commits.change_index(part.git, files, links)
    if tree != part.part.tree:
        head = commits.commit_hipify(part.part, tree, part.state.upstream)
    elif head == part.state.upstream or not commits.list_foreign_commits(part.git, part.state.upstream):
        commits.tag_unchanged(part.git, head)  # not somebody's own commit
    return checkout_state.RepositoryState(head, part.state.upstream, tree)


def _remember_all(
    parts: list[HipifyRepository], written: list[dict[str, commits.FileStamp | None]]
) -> dict[str, checkout_state.RepositoryState]:
    """Remember what we wrote without a commit: as a tree, and as an index that knows the files."""
    done = trees.run_side_by_side(lambda item: _remember_repository(*item), zip(parts, written, strict=True))
    return {part.path: state for part, state in zip(parts, done, strict=True)}


def _remember_repository(
    part: HipifyRepository, files: dict[str, commits.FileStamp | None]
) -> checkout_state.RepositoryState:
    tree = commits.build_tree(part.git, part.state.tree, files, {}) if files else part.state.tree
    uncommitted = tree != part.part.tree
    if uncommitted:
        side = part.part.git_dir / checkout_state.OWN_FOLDER / checkout_state.SIDE_INDEX
        part.scan.index_git.text("read-tree", "-m", tree)
        part.git.text("update-ref", checkout_state.LEFT_REF, tree)
        side.parent.mkdir(exist_ok=True)
        shutil.copy2(part.scan.index, side.with_suffix(".part"))
        side.with_suffix(".part").replace(side)
    return checkout_state.RepositoryState(part.head, part.state.upstream, tree, uncommitted)


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
        raise errors.SourceError(f"{directory} is not a git checkout", tip=trees.CHECKOUT_TIP)
    script = project.hipify.script
    if script and not (directory / script).is_file():
        raise errors.SourceError(
            f"{directory} has no {script}, which the recipe of {project.name} names for hipify",
            tip="is this the right folder? --source-dir names another, or --checkout-dir of the script",
        )
    plain = Git(directory, env)
    git_dir = find_git_directory(plain)
    with lock_folder(git_dir / checkout_state.OWN_FOLDER, purpose=f"hipify of {project.name}"):
        git = disable_private_filters(plain)
        state = checkout_state.read_state(git_dir)
        if state is not None and state.operation not in (None, "hipify", "hipify without commit"):
            raise errors.SourceError(
                f"the checkout in {directory} was interrupted", tip="run `checkout` again; it continues"
            )
        if commit and state is not None and state.operation == "hipify":
            own_changes.recover_hipify(git, git_dir, state)
        parts = trees.list_repositories(git)
        if is_foreign := state is None or state.is_foreign:
            state = None
        if commit:
            own_changes.refuse_uncommitted(parts, state)
        if script and (state is None or state.submodules):
            _refuse_missing_submodules(directory, parts)
        # in a tree of somebody's as well, until it is done: what is dirty after a kill is then not all theirs
        noted = state or checkout_state.note_foreign_tree({part.path: part.head for part in parts})
        if commit or not is_foreign:
            operation = "hipify" if commit else "hipify without commit"
            checkout_state.write_state(git_dir, replace(noted, operation=operation))
        try:
            new, changed, records = hipify_repositories(
                parts,
                project,
                state,
                commit=commit,
                python=python,
                known_records=read_hipify_records(parts),
            )
        except (hipify_record.EditedOutputError, FailedScriptError):
            if state is None:
                checkout_state.locate_state_file(git_dir).unlink(missing_ok=True)
            else:
                checkout_state.write_state(git_dir, replace(state, operation=None))  # the tree is as it was
            raise
        write_build_env(git, git_dir, project, hipified=True)
        now = trees.list_repositories(git)
        done, changed_parts = settle_state(new, now)
        hipify_record.write_hipify_records(now, records, done.identity)
        if state is not None:
            shared = replace(done, identity="")  # of a tree in which not all is ours
            if any(own_changes.list_own_changes(part, done) for part in changed_parts) or any(
                own_changes.list_own_commits(part, shared, done.upstream) for part in now
            ):
                done = shared
            checkout_state.write_state(git_dir, done)
        else:
            checkout_state.locate_state_file(git_dir).unlink(missing_ok=True)
    return HipifyResult(directory, new.left[""].head, changed)


def _refuse_missing_submodules(directory: Path, parts: Sequence[trees.TreePart]) -> None:
    """Raise SourceError where submodules are not there: fetched later, they would count as hipified."""
    if missing := trees.select_missing_submodules(parts):
        update = shell.format_command(
            ["git", "-C", directory, "submodule", "update", "--init", "--recursive"]
        )
        raise errors.SourceError(
            f"{directory} lacks {tables.format_count(len(missing), 'submodule')}, to be hipified with it: "
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
    state = checkout_state.read_state(git_dir)
    if state is not None and state.hipify == "uncommitted":
        return hipify_checkout(project, directory, commit=False, env=env, python=python).changed
    with lock_folder(git_dir / checkout_state.OWN_FOLDER, purpose=f"hipify of {project.name}"):
        git = disable_private_filters(plain)
        state, parts = checkout_state.read_state(git_dir), trees.list_repositories(git)
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-hipify-") as name:
            run = run_hipify(parts, project, state, python, read_hipify_records(parts), folder=Path(name))
        if run.changed:
            log_changed_files(project, run.changed)
        whole = trees.hash_files(parts, state)
        hipify_record.write_hipify_records(parts, run.records, whole)
        if state is not None:
            checkout_state.write_state(git_dir, replace(state, generated=run.generated))
    return run.changed


def check_hipify(project: Project, git: Git, whole: str = "") -> str:
    """Say whether a tree is hipified, by content: ``current``, ``stale`` (something changed since), ``no``.

    ``unknown`` where nobody remembers that it ever was. ``whole``: its ``hash_tree``, if at hand.
    """
    record = hipify_record.read_hipify_record(git) if project.hipify.script else None
    if record is None:
        return "unknown" if project.hipify.script else "current"
    if not record.is_hipified(git):
        return "no"
    whole = whole or trees.read_current_tree(git, checkout_state.read_state(find_git_directory(git)))[1]
    return "current" if record.is_current(git.directory, whole) else "stale"


def settle_state(
    state: checkout_state.CheckoutState, parts: Sequence[trees.TreePart]
) -> tuple[checkout_state.CheckoutState, list[trees.TreePart]]:
    """Return the state of a tree on which nothing is under way, with its identity now, and what is changed.

    Indexes are brought up to date meanwhile: git reads a file again, at each look, that was written in the
    same moment as its index.
    """
    changed = trees.select_changed(
        replace(part, git=part.git.with_variables(GIT_OPTIONAL_LOCKS="1")) for part in parts
    )
    identity = trees.hash_tree(parts[0], state)[0] if changed else parts[0].tree
    return replace(state, operation=None, identity=identity), changed


def read_hipify_records(tree: Sequence[trees.TreePart]) -> dict[str, hipify_record.HipifyRecord | None]:
    """Return what hipify did in the repositories of a tree, by path; ``None`` where that is not known."""
    records = trees.run_side_by_side(lambda part: hipify_record.read_hipify_record(part.git), tree)
    return {part.path: record for part, record in zip(tree, records, strict=True)}
