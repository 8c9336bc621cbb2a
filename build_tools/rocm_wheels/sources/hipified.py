"""What hipify did, known by content, so that it can be done again without harm.

The project's script knows no second time: what it translated in place it translates again, and what
somebody changed in a file that it makes it writes over. So each repository remembers (a tree of git's,
held by a ref of the working tree's own) which files the script makes, with what it wrote, and which it
rewrites in place.

Then a file that it makes is written when its translation changed, and an edit of it is merged; in a file
that it rewrites in place only lines are translated that are new since; what is made of a source that is
gone goes.
"""

from __future__ import annotations

import difflib
import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.errors import SourceError
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.state import HIPIFIED_REF, HIPIFY_MESSAGE, HIPIFY_TAG
from rocm_wheels.sources.trees import Part, contents, differences, entries, side_by_side, temporary_index

_WHOLE = "whole"


class EditedOutput(SourceError):
    """Files that hipify makes were edited, and it now writes something else into the same lines."""

    def __init__(self, directory: Path, paths: Sequence[str]) -> None:
        shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        super().__init__(
            f"{shown} in {directory}: edited, and hipify now writes something else into the same lines",
            tip="move your file away, hipify, and make your change again in the file that it writes",
        )


@dataclass(frozen=True)
class Record:
    """What hipify did in one repository: blobs by path, without filters.

    ``made``: files that the script makes, as it wrote them; ``ignored``: those of them that git ignores.
    ``rewritten``: sources that it translates in place, as they were left. ``whole``, of the root: the
    ``combined_tree`` that was left, empty where that is not known.
    """

    made: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    rewritten: Mapping[str, str] = field(default_factory=dict)
    whole: str = ""

    def is_in(self, directory: Path) -> bool:
        """Tell whether a working tree is a hipified one: it has any file as hipify made or left it."""
        if made := self.made or self.ignored:  # what git ignores stays where git goes elsewhere
            return any((directory / path).exists() for path in made)
        return not self.rewritten or bool(_unchanged(directory, self.rewritten))

    def is_current(self, directory: Path, whole: str) -> bool:
        """Tell whether nothing changed since: the ``combined_tree`` (``whole``), and what git ignores."""
        return self.whole == whole and len(_unchanged(directory, self.ignored)) == len(self.ignored)


@dataclass(frozen=True)
class Kept:
    """The files of a record that are there before the script runs, by path."""

    content: Mapping[str, bytes]


def read_record(git: Git) -> Record | None:
    """Return what hipify did in a repository; ``None`` where nobody remembers.

    Where the commit of hipify alone is there (TheRock's scripts tag it, too), it tells.
    """
    held = git.text("for-each-ref", "--format=%(objectname)", HIPIFIED_REF)
    if not held:
        return _read_commit(git)
    found: dict[str, dict[str, str]] = {"made": {}, "ignored": {}, "rewritten": {}}
    whole = ""
    for entry in entries(git, held):
        group, _, path = entry.path.partition("/")
        if group == _WHOLE:
            whole = contents(git, [entry.object])[entry.object].decode("ascii")
        else:
            found[group][path] = entry.object
    return Record(**found, whole=whole)


def _read_commit(git: Git) -> Record | None:
    name = f"refs/tags/{HIPIFY_TAG}"
    subject = git.text("for-each-ref", "--format=%(subject)", name)
    if subject != HIPIFY_MESSAGE:
        return None
    changes = [one for one in differences(git, "diff-tree", "-r", f"{name}^", name) if not one.of_submodule]
    return Record(
        made={one.path: one.after[1] for one in changes if one.letter == "A"},
        rewritten={one.path: one.after[1] for one in changes if one.letter == "M"},
    )


def write_records(parts: Sequence[Part], records: Mapping[str, Record], whole: str) -> None:
    """Remember what was done in the repositories of a tree, whose ``combined_tree`` now is ``whole``."""

    def write(part: Part) -> None:
        record = records[part.path]
        if not part.path:
            record = replace(record, whole=whole)
        if record != Record():
            _write_record(part.git, record)

    side_by_side(write, [part for part in parts if part.path in records])


def settle_lines(part: Part, record: Record) -> Record:
    """Return a record in which the files that are rewritten in place are done with as they lie there."""
    there = [path for path in record.rewritten if _is_file(part.git.directory / path)]
    return replace(record, rewritten=store_files(part.git, there))


def _write_record(git: Git, record: Record) -> None:
    groups = {"made": record.made, "ignored": record.ignored, "rewritten": record.rewritten}
    lines = [f"100644 {blob}\t{name}/{path}" for name, some in groups.items() for path, blob in some.items()]
    if record.whole:
        lines.append(f"100644 {_store(git, record.whole.encode('ascii'))}\t{_WHOLE}")
    data = "".join(f"{line}\0" for line in lines).encode("utf-8", "surrogateescape")
    with temporary_index(git, None, keep=True) as own:
        own.text("update-index", "--add", "-z", "--index-info", stdin=data)
        tree = own.text("write-tree")
    git.text("update-ref", HIPIFIED_REF, tree)


def set_aside(part: Part, record: Record) -> Kept:
    """Note the files of a record before the script runs, and remove those that it made and nobody changed.

    What it does not make again then had a source that is gone.
    """
    directory = part.git.directory
    content = _read_files(directory, (*record.made, *record.ignored, *record.rewritten))
    for path, blob in {**record.made, **record.ignored}.items():
        if path in content and blob_of(content[path]) == blob:
            (directory / path).unlink()
    return Kept(content)


def settle_repository(part: Part, record: Record, kept: Kept) -> tuple[Record, list[str]]:
    """Put right what the script wrote over what was there; return what it makes now, and conflicts.

    A conflict: a file that it makes was edited where its translation changed as well. The edit stays.
    """
    changed = _written_over(part.git.directory, kept)
    _settle_rewritten(part, record, kept, changed)
    made, conflicts = _settle_made(part, record, kept, changed)
    return replace(record, made=made), conflicts


def _settle_rewritten(part: Part, record: Record, kept: Kept, changed: Mapping[str, bytes]) -> None:
    again = {path: blob for path, blob in record.rewritten.items() if path in changed}
    settled = contents(part.git, sorted(again.values()))
    for path, blob in again.items():
        result = translate_new_lines(settled[blob], kept.content[path], changed[path])
        _write(part.git.directory / path, result)


def _settle_made(
    part: Part, record: Record, kept: Kept, changed: Mapping[str, bytes]
) -> tuple[dict[str, str], list[str]]:
    """Merge edits into files that were made anew; return the blobs that the script made, and conflicts."""
    git, directory = part.git, part.git.directory
    edited = [
        path for path, blob in record.made.items() if path in changed and blob_of(kept.content[path]) != blob
    ]
    past = contents(git, sorted({record.made[path] for path in edited}))
    made, conflicts = {}, []
    for path, blob in record.made.items():
        if not _is_file(directory / path):
            continue
        content = (directory / path).read_bytes()
        made[path] = blob_of(content)
        if path in edited:
            _store(git, content)
            mine = kept.content[path]
            merged = mine if made[path] == blob else _merge(git, mine, past[blob], content)
            conflicts += [path] if merged is None else []
            _write(directory / path, mine if merged is None else merged)
    return made, conflicts


def _written_over(directory: Path, kept: Kept) -> dict[str, bytes]:
    """Return what is now in the files that were there and have changed."""
    now = _read_files(directory, kept.content)
    return {path: content for path, content in now.items() if content != kept.content[path]}


def put_back(part: Part, kept: Kept) -> list[str]:
    """Write files back as they were; return those that were not."""
    changed = []
    for path, content in kept.content.items():
        file = part.git.directory / path
        if not _is_file(file) or file.read_bytes() != content:
            changed.append(path)
            _write(file, content)
    return changed


def keep_files(part: Part, paths: Iterable[str]) -> Kept:
    """Note files as they are."""
    return Kept(_read_files(part.git.directory, paths))


def renew_record(
    part: Part, record: Record, *, new: Iterable[str], ignored: Iterable[str], rewritten: Iterable[str]
) -> Record:
    """Return a record with the files that the script made or rewrote for the first time; blobs are stored.

    ``ignored``: all files that it made and git ignores.
    """
    directory = part.git.directory
    lying = [path for path in _unchanged(directory, record.made) if path not in record.ignored]
    asked = sorted({*new, *ignored, *rewritten, *record.rewritten, *lying})
    files = store_files(part.git, [path for path in asked if _is_file(directory / path)])
    return Record(
        made={**record.made, **{path: files[path] for path in new if path in files}},
        ignored={path: files[path] for path in ignored if path in files},
        rewritten={path: files[path] for path in (*record.rewritten, *rewritten) if path in files},
    )


def translate_new_lines(settled: bytes, now: bytes, translated: bytes) -> bytes:
    """Return ``now`` with the translation of those of its lines that ``settled`` does not have."""
    lines, others = now.splitlines(keepends=True), translated.splitlines(keepends=True)
    new = set(range(len(lines)))
    for block in _matcher(settled.splitlines(keepends=True), lines).get_matching_blocks():
        new.difference_update(range(block.b, block.b + block.size))
    result: list[bytes] = []
    for word, start, end, other, other_end in _matcher(lines, others).get_opcodes():
        beside = range(start - 1, end + 1) if word == "insert" else range(start, end)
        if word == "replace" and end - start == other_end - other:
            pairs = zip(range(start, end), others[other:other_end], strict=True)
            result += [text if number in new else lines[number] for number, text in pairs]
        elif (word == "insert" and start == 0 and new) or not new.isdisjoint(
            beside
        ):  # an #include that new device code needs
            result += others[other:other_end]
        else:
            result += lines[start:end]
    return b"".join(result)


def _matcher(old: list[bytes], new: list[bytes]) -> difflib.SequenceMatcher[bytes]:
    return difflib.SequenceMatcher(None, old, new, autojunk=False)


def blob_of(content: bytes) -> str:
    """Return the id that git gives a file's content (no filter, no change of line ends)."""
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


def store_files(git: Git, paths: Sequence[str]) -> dict[str, str]:
    """Store files as they are on the disk; return their blobs by path."""
    if not paths:
        return {}
    names = "".join(f"{_quoted(path)}\n" for path in paths).encode("utf-8", "surrogateescape")
    found = git.text("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names)
    return dict(zip(paths, found.split("\n"), strict=True))


def _merge(git: Git, mine: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """Merge an edit of a file into its new translation; ``None`` where both change the same lines."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-merge-") as folder:
        files = [Path(folder, name) for name in ("mine", "base", "theirs")]
        for file, content in zip(files, (mine, base, theirs), strict=True):
            file.write_bytes(content)
        if not git.succeeds("merge-file", "--quiet", *map(str, files)):
            return None
        return files[0].read_bytes()


def _unchanged(directory: Path, blobs: Mapping[str, str]) -> list[str]:
    """List the files that are as their blobs say."""
    files = _read_files(directory, blobs)
    return [path for path, content in files.items() if blob_of(content) == blobs[path]]


def _is_file(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def _read_files(directory: Path, paths: Iterable[str]) -> dict[str, bytes]:
    return {path: (directory / path).read_bytes() for path in paths if _is_file(directory / path)}


def _write(file: Path, content: bytes) -> None:
    if not _is_file(file) or file.read_bytes() != content:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _store(git: Git, content: bytes) -> str:
    return git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=content)


def _quoted(path: str) -> str:
    """Write a path as `git hash-object --stdin-paths` reads it: one a line."""
    text = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"' if text != path else path
