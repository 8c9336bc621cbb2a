"""A run of the project's hipify script in a tree: what it wrote, and what it had no business to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rocm_wheels import log, process
from rocm_wheels.errors import SourceError
from rocm_wheels.model.project import Project
from rocm_wheels.sources.files import (
    FileListing,
    FileStamp,
    remove_files,
    restore_times,
    scan_files,
    scan_ignored_files,
    find_touched_files,
)
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.hipified import (
    EditedOutputError,
    HipifyRecord,
    keep_files,
    restore_kept_files,
    renew_record,
    set_outputs_aside,
    merge_outputs,
)
from rocm_wheels.sources.state import (
    OWN_FOLDER,
    RepositoryState,
)
from rocm_wheels.sources.trees import (
    TreePart,
    run_side_by_side,
)


@dataclass(frozen=True)
class HipifyRepository:
    """One repository of the tree while the script runs; ``untagged``: hipify has no tag in it yet.

    ``base``: an index that holds just what is checked out, if there is one.
    """

    part: TreePart
    state: RepositoryState
    index: Path
    untagged: bool
    base: Path | None

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
    project: Project,
    run: Callable[[], None],
    known_records: Mapping[str, HipifyRecord | None] | None,
    generated: set[str],
    *,
    keep_edited: bool,
) -> tuple[list[dict[str, FileStamp | None]], tuple[str, ...], tuple[str, ...], dict[str, HipifyRecord]]:
    """Run the script, and keep what is not its own: edits of what it makes, what it translated before.

    Raises EditedOutput, with the tree as it was, where an edit cannot be kept.
    """
    listings = run_side_by_side(lambda part: _list_files(project, part), parts)
    items = list(zip(parts, listings, strict=True))

    def settle() -> list[ScriptOutput]:
        return run_side_by_side(lambda item: _collect_output(project, item[0], *item[1]), items)

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
        part.path: _find_rewritten(records[part.path], listing[0], output)
        for (part, listing), output in zip(items, outputs, strict=True)
    }
    if known_records is not None and any(unknown.values()):
        unknown = _find_always_rewritten(parts, run, records, outputs, unknown)
        outputs = settle()
    generated |= {path for output in outputs for path in output.generated}
    for (part, listing), output in zip(items, outputs, strict=True):
        records[part.path] = renew_record(
            part.part,
            records[part.path],
            new=[path for path, entry in output.written.items() if entry and path not in listing[0]],
            ignored=_select_below(part.path, [other.path for other in parts], generated),
            rewritten=unknown[part.path],
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
    items: Sequence[tuple[HipifyRepository, tuple[FileListing, FileListing]]], outputs: Sequence[ScriptOutput]
) -> None:
    """Remove what the script made that was not there before."""
    for (part, (sources, ignored)), output in zip(items, outputs, strict=True):
        inside = part.part.path_from_root
        old = {inside(path) for path in (*sources, *ignored)}
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


def run_hipify_script(root: TreePart, script: str, python: Path) -> None:
    """Run the project's script in its tree, with its output in a log inside the repository.

    Raises SourceError when the script is missing or fails.
    """
    git = root.git
    if not (git.directory / script).is_file():
        raise SourceError(
            f"{git.directory} has no {script}, which its recipe names for hipify",
            tip="check --repo-hashtag and --gitrepo-origin, or use --no-hipify",
        )
    record = root.git_dir / OWN_FOLDER / "hipify.log"
    process.run_command(
        [python, script],
        # compiled modules of the script would count as new files where they are not ignored
        env={**git.env, **git.variables, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=git.directory,
        log=record,
        on_line=log.show_live_line,
        check=SourceError,
        description=f"hipify ({script} in {git.directory})",
        tip=f"the whole output is in {record}",
    )
    log.show_live_line("")


def _list_files(project: Project, part: HipifyRepository) -> tuple[FileListing, FileListing]:
    """List a repository's files: sources, and what git ignores."""
    skip = project.build.trees if not part.path else ()
    return scan_files(part.git, part.index), scan_ignored_files(part.git, skip)


def _collect_output(
    project: Project, part: HipifyRepository, before: FileListing, ignored: FileListing
) -> ScriptOutput:
    """Find what the script did in a repository; what it wrote with the same content gets its time back."""
    after, hidden = _list_files(project, part)
    written = find_touched_files(before, after)
    generated = [path for path, entry in find_touched_files(ignored, hidden).items() if entry is not None]
    changed = [*restore_times(part.git, before, after), *restore_times(part.git, ignored, hidden)]
    inside = part.part.path_from_root
    return ScriptOutput(written, [inside(path) for path in changed], [inside(path) for path in generated])
