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
    Listing,
    Seen,
    remove_files,
    restore_times,
    scan,
    scan_ignored,
    touched,
)
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.hipified import (
    EditedOutput,
    Record,
    keep_files,
    put_back,
    renew_record,
    set_aside,
    settle_repository,
)
from rocm_wheels.sources.state import (
    OWN_FOLDER,
    Left,
)
from rocm_wheels.sources.trees import (
    Part,
    side_by_side,
)


@dataclass(frozen=True)
class Repository:
    """One repository of the tree while the script runs; ``untagged``: hipify has no tag in it yet.

    ``base``: an index that holds just what is checked out, if there is one.
    """

    part: Part
    left: Left
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


class Written(NamedTuple):
    """What the script did in a repository; ``changed`` and ``generated`` (git-ignored) from the root."""

    written: dict[str, Seen | None]
    changed: list[str]
    generated: list[str]


def run_beside_edits(
    parts: list[Repository],
    project: Project,
    run: Callable[[], None],
    known: Mapping[str, Record | None] | None,
    generated: set[str],
    *,
    keep_edited: bool,
) -> tuple[list[dict[str, Seen | None]], tuple[str, ...], tuple[str, ...], dict[str, Record]]:
    """Run the script, and keep what is not its own: edits of what it makes, what it translated before.

    Raises EditedOutput, with the tree as it was, where an edit cannot be kept.
    """
    listings = side_by_side(lambda part: _listings(project, part), parts)
    items = list(zip(parts, listings, strict=True))

    def settle() -> list[Written]:
        return side_by_side(lambda item: _settle(project, item[0], *item[1]), items)

    past = {part.path: (known or {}).get(part.path) or Record() for part in parts}
    kept = {part.path: set_aside(part.part, past[part.path]) for part in parts}
    try:
        run()
        records: dict[str, Record] = {}
        conflicts: list[str] = []
        for part in parts:
            records[part.path], edited = settle_repository(part.part, past[part.path], kept[part.path])
            conflicts += [part.part.inside(path) for path in edited]
        done = settle()
        if conflicts and not keep_edited:
            _remove_new(items, done)
            raise EditedOutput(parts[0].git.directory, conflicts)
    except BaseException:
        for part in parts:
            put_back(part.part, kept[part.path])
        settle()
        raise
    unknown = {
        part.path: _rewritten(records[part.path], listing[0], repository)
        for (part, listing), repository in zip(items, done, strict=True)
    }
    if known is not None and any(unknown.values()):
        unknown = _rewritten_again(parts, run, records, done, unknown)
        done = settle()
    generated |= {path for repository in done for path in repository.generated}
    for (part, listing), repository in zip(items, done, strict=True):
        records[part.path] = renew_record(
            part.part,
            records[part.path],
            new=[path for path, seen in repository.written.items() if seen and path not in listing[0]],
            ignored=_below_part(part.path, [other.path for other in parts], generated),
            rewritten=unknown[part.path],
        )
    written = [repository.written for repository in done]
    changed = tuple(path for repository in done for path in repository.changed)
    return written, changed, tuple(sorted(generated)), records


def _rewritten(record: Record, before: Listing, repository: Written) -> list[str]:
    """List the files that the script changed though it neither makes them nor is known to rewrite them."""
    return [
        path
        for path, seen in repository.written.items()
        if seen is not None
        and path in before
        and before[path].object != seen.object
        and path not in record.made
        and path not in record.rewritten
    ]


def _rewritten_again(
    parts: list[Repository],
    run: Callable[[], None],
    records: Mapping[str, Record],
    done: Sequence[Written],
    unknown: Mapping[str, list[str]],
) -> dict[str, list[str]]:
    """Find, of files that the script changed, those that it changes at each run; the tree stays as it is.

    The others are made of a source that changed: it makes the same of it again.
    """
    kept = {}
    for part, repository in zip(parts, done, strict=True):
        record = records[part.path]
        kept[part.path] = keep_files(part.part, {*record.made, *record.rewritten, *repository.written})
    try:
        run()
    finally:
        changed = {part.path: put_back(part.part, kept[part.path]) for part in parts}
    return {path: [name for name in names if name in changed[path]] for path, names in unknown.items()}


def _remove_new(items: Sequence[tuple[Repository, tuple[Listing, Listing]]], done: Sequence[Written]) -> None:
    """Remove what the script made that was not there before."""
    for (part, (sources, ignored)), repository in zip(items, done, strict=True):
        inside = part.part.inside
        old = {inside(path) for path in (*sources, *ignored)}
        made = [inside(path) for path, seen in repository.written.items() if seen is not None]
        new = [path for path in (*made, *repository.generated) if path not in old]
        remove_files(items[0][0].git.directory, new)


def _below_part(path: str, paths: Sequence[str], files: Iterable[str]) -> list[str]:
    """List those of the files (from the root) that are in the repository at ``path``, as seen from there."""
    if not path and paths == [""]:
        return sorted(files)
    inside = []
    for file in files:
        folders = [one for one in paths if one and file.startswith(f"{one}/")]
        if max(folders, key=len, default="") == path:
            inside.append(file.removeprefix(f"{path}/") if path else file)
    return sorted(inside)


def run_script(root: Part, script: str, python: Path) -> None:
    """Run the project's script in its tree, with its output in a log inside the repository.

    Raises SourceError when the script is missing or fails.
    """
    git = root.git
    if not (git.directory / script).is_file():
        raise SourceError(
            f"{git.directory} has no {script}, which its recipe names for hipify",
            tip="check --repo-hashtag and --gitrepo-origin, or use --no-hipify",
        )
    record = root.place / OWN_FOLDER / "hipify.log"
    process.run(
        [python, script],
        # compiled modules of the script would count as new files where they are not ignored
        env={**git.env, **git.variables, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=git.directory,
        log=record,
        on_line=log.live,
        check=SourceError,
        what=f"hipify ({script} in {git.directory})",
        tip=f"the whole output is in {record}",
    )
    log.live("")


def _listings(project: Project, part: Repository) -> tuple[Listing, Listing]:
    """List a repository's files: sources, and what git ignores."""
    skip = project.build.trees if not part.path else ()
    return scan(part.git, part.index), scan_ignored(part.git, skip)


def _settle(project: Project, part: Repository, before: Listing, ignored: Listing) -> Written:
    """Find what the script did in a repository; what it wrote with the same content gets its time back."""
    after, hidden = _listings(project, part)
    written = touched(before, after)
    made = [path for path, seen in touched(ignored, hidden).items() if seen is not None]
    changed = [*restore_times(part.git, before, after), *restore_times(part.git, ignored, hidden)]
    inside = part.part.inside
    return Written(written, [inside(path) for path in changed], [inside(path) for path in made])
