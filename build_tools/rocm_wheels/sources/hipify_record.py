"""Remember by content what hipify did, so that it can be done again without harm.

The project's script knows no second time: what it translated in place it translates again, and what
the user changed in a file that it makes it writes over. So each repository remembers (a tree of git's,
held by a ref of the working tree's own) which files the script makes, with what it wrote, and which it
rewrites in place.

Then a file that it makes is written when its translation changed, unless somebody edited it; in a file
that it rewrites in place only lines are translated that are new since; what is made of a source that is
gone goes.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.core import errors
from rocm_wheels.sources import checkout_state, trees
from rocm_wheels.sources.git import Git, is_inside_tree

_WHOLE_TREE = "whole"  # as a gitlink, behind which git looks for no object


class EditedOutputError(errors.SourceError):
    """Files that hipify makes were edited, and it now writes something else there; sources by file."""

    def __init__(self, directory: Path, sources: Mapping[str, str]) -> None:
        shown = [f"{path} (made of {source})" if source else path for path, source in sources.items()][:5]
        more = f" and {len(sources) - 5} more" if len(sources) > 5 else ""
        super().__init__(
            f"{', '.join(shown)}{more} in {directory}: edited, and hipify now writes something else there",
            tip="change what it is made of instead, and move the edited file away: hipify makes it again",
        )


@dataclass(frozen=True)
class HipifyRecord:
    """What hipify did in one repository: blobs by path, without filters.

    ``made``: files that the script makes, as it wrote them; ``ignored``: those of them that git ignores.
    ``rewritten``: sources that it translates in place, as they were left. ``earlier``: what it made before:
    a commit that git goes to may have it. ``whole``, of the root: the ``hash_tree`` that was left, empty
    where that is not known.
    """

    made: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    rewritten: Mapping[str, str] = field(default_factory=dict)
    earlier: frozenset[str] = frozenset()
    whole: str = ""

    def wrote(self, path: str, blob: str) -> bool:
        """Tell whether a file that the script makes is as it wrote it, now or once: nobody edited it."""
        return blob in (self.made.get(path), self.ignored.get(path)) or blob in self.earlier

    def is_hipified(self, git: Git) -> bool:
        """Tell whether a working tree is a hipified one: it has any file as hipify made or left it."""
        directory = git.directory
        if not (generated := self.made or self.ignored):
            return not self.rewritten or bool(_list_unchanged(directory, self.rewritten))
        present = {path for path in generated if (directory / path).exists()}
        if not present or len(present) == len(generated) or _read_hipify_commit(git) is None:
            return bool(present)
        # where git goes elsewhere, what was committed goes, and what git does not know, or ignores, stays
        return not present.isdisjoint(git.fields("ls-files", "-z"))

    def is_current(self, directory: Path, whole: str) -> bool:
        """Tell whether nothing changed: the ``hash_tree`` (``whole``), and what git ignores."""
        return self.whole == whole and len(_list_unchanged(directory, self.ignored)) == len(self.ignored)


KeptFiles = Mapping[str, bytes]
"""The files of a repository that are there before the script runs, by path."""


def read_hipify_record(git: Git) -> HipifyRecord | None:
    """Return what hipify did in a repository; ``None`` where nobody remembers.

    Where the commit of hipify alone is there (TheRock's scripts tag it, too), it tells.
    """
    marks = _read_marks(git)
    tree, _ = marks.get(checkout_state.HIPIFIED_REF, ("", ""))
    if not tree:
        return _read_hipify_commit(git, marks)
    groups: dict[str, dict[str, str]] = {"made": {}, "ignored": {}, "rewritten": {}, "earlier": {}}
    whole = ""
    for entry in trees.list_tree(git, tree):
        group, _, path = entry.path.partition("/")
        if group == _WHOLE_TREE:
            whole = entry.object
        elif group in groups and is_inside_tree(path):  # what is in it is written, or removed
            groups[group][path] = entry.object
        else:
            raise errors.SourceError(
                f"{checkout_state.HIPIFIED_REF} in {git.directory} names {entry.path!a}, which "
                "leaves the tree",
                tip="check out into another folder with --source-dir",
            )
    earlier = frozenset(groups.pop("earlier").values())
    return HipifyRecord(**groups, earlier=earlier, whole=whole)


def _read_marks(git: Git) -> Mapping[str, tuple[str, str]]:
    """Return the object and the subject of the refs by which hipify is remembered."""
    form, tag = "--format=%(refname) %(objectname) %(subject)", f"refs/tags/{checkout_state.HIPIFY_TAG}"
    lines = git.text("for-each-ref", form, checkout_state.HIPIFIED_REF, tag).splitlines()
    return {name: (oid, subject.strip()) for name, oid, subject in (f"{s}  ".split(" ", 2) for s in lines)}


def _read_hipify_commit(git: Git, marks: Mapping[str, tuple[str, str]] | None = None) -> HipifyRecord | None:
    name = f"refs/tags/{checkout_state.HIPIFY_TAG}"
    _, subject = (_read_marks(git) if marks is None else marks).get(name, ("", ""))
    if subject != checkout_state.HIPIFY_MESSAGE:
        return None
    changes = [
        change
        for change in trees.list_differences(git, "diff-tree", "-r", f"{name}^", name)
        if not change.of_submodule
    ]
    return HipifyRecord(
        made={change.path: change.after[1] for change in changes if change.letter == "A"},
        rewritten={change.path: change.after[1] for change in changes if change.letter == "M"},
    )


def write_hipify_records(
    parts: Sequence[trees.TreePart], records: Mapping[str, HipifyRecord], whole: str
) -> None:
    """Remember what was done in the repositories of a tree, whose ``hash_tree`` now is ``whole``."""

    def write(part: trees.TreePart) -> None:
        record = records[part.path]
        if not part.path:
            record = replace(record, whole=whole)
        if record != HipifyRecord():
            _write_record(part.git, record)

    trees.run_side_by_side(write, [part for part in parts if part.path in records])


def list_own_outputs(git: Git, changes: Iterable[trees.TreeChange]) -> set[str]:
    """List those of the changes to a hipified repository that hipify made, and nobody edited since.

    After an edit of a source it writes the file that it makes of it anew; that of a source that is gone goes.
    """
    record = read_hipify_record(git)
    if record is None:
        return set()
    outputs = {change.path for change in changes if record.wrote(change.path, change.after[1])}
    removed = {change.path for change in changes if change.letter == "D"} - record.made.keys()
    if removed and (commit := _read_hipify_commit(git)) is not None:
        outputs |= removed & commit.made.keys()
    return outputs


def find_outputs(git: Git, record: HipifyRecord, changes: Sequence[trees.TreeChange]) -> set[str]:
    """Return those of the files that commits add and that hipify wrote: it did once, or they say so."""
    blobs = trees.read_blobs(git, [c.after[1] for c in changes if c.after[0] != trees.GITLINK])
    banners = {blob for blob, content in blobs.items() if _HIPIFY_BANNER in content.split(b"\n", 1)[0]}
    return {c.path for c in changes if c.after[1] in banners or record.wrote(c.path, c.after[1])}


def list_new_outputs(part: trees.TreePart) -> list[str]:
    """List the files in a repository that hipify made, nobody edited, and its commit does not have."""
    record = read_hipify_record(part.git)
    if record is None or not record.made:
        return []
    committed = {entry.path for entry in trees.list_tree(part.git, part.head)}
    made = {path: blob for path, blob in record.made.items() if path not in committed}
    return _list_unchanged(part.git.directory, made)


def accept_rewritten_files(part: trees.TreePart, record: HipifyRecord) -> HipifyRecord:
    """Return a record in which the files that are rewritten in place are done with as they lie there."""
    present = [path for path in record.rewritten if _is_regular_file(part.git.directory / path)]
    return replace(record, rewritten=store_blobs(part.git, present))


def _write_record(git: Git, record: HipifyRecord) -> None:
    groups = {"made": record.made, "ignored": record.ignored, "rewritten": record.rewritten}
    groups["earlier"] = {blob: blob for blob in record.earlier}
    lines = [
        f"100644 {blob}\t{name}/{path}" for name, blobs in groups.items() for path, blob in blobs.items()
    ]
    if record.whole:
        lines.append(f"{trees.GITLINK} {record.whole}\t{_WHOLE_TREE}")
    data = "".join(f"{line}\0" for line in lines).encode("utf-8", "surrogateescape")
    with trees.temporary_index(git, None, keep=True) as index_git:
        index_git.text("update-index", "--add", "-z", "--index-info", stdin=data)
        tree = index_git.text("write-tree")
    git.text("update-ref", checkout_state.HIPIFIED_REF, tree)


def set_outputs_aside(part: trees.TreePart, record: HipifyRecord) -> KeptFiles:
    """Note the files of a record before the script runs, and remove those that it made and nobody changed.

    What it does not make again then had a source that is gone.
    """
    directory = part.git.directory
    content = _read_files(directory, (*record.made, *record.ignored, *record.rewritten))
    for path in {**record.made, **record.ignored}:
        if path in content and record.wrote(path, trees.hash_blob(content[path])):
            (directory / path).unlink()
    return content


def settle_outputs(
    part: trees.TreePart, record: HipifyRecord, kept_files: KeptFiles
) -> tuple[HipifyRecord, dict[str, str]]:
    """Put right what the script wrote over what was there; return what it makes now, and conflicts.

    A conflict: a file that it makes was edited where its translation changed as well. The edit stays; by its
    path stands what it is made of, "" where that cannot be told.
    """
    changed = _find_overwritten(part.git.directory, kept_files)
    _merge_rewritten(part, record, kept_files, changed)
    generated, conflicts = _keep_edits(part, record, kept_files, changed)
    earlier = record.earlier.union(record.made.values()).difference(generated.values())
    return replace(record, made=generated, earlier=earlier), {
        path: _find_source(part.git, path, record) for path in conflicts
    }


def _merge_rewritten(
    part: trees.TreePart, record: HipifyRecord, kept_files: KeptFiles, changed: Mapping[str, bytes]
) -> None:
    rewritten = {path: blob for path, blob in record.rewritten.items() if path in changed}
    settled = trees.read_blobs(part.git, sorted(rewritten.values()))
    for path, blob in rewritten.items():
        result = translate_new_lines(settled[blob], kept_files[path], changed[path])
        _write_file(part.git.directory / path, result)


def _keep_edits(
    part: trees.TreePart, record: HipifyRecord, kept_files: KeptFiles, changed: Mapping[str, bytes]
) -> tuple[dict[str, str], list[str]]:
    """Write edits back over what was made anew; return the blobs that the script made, and conflicts."""
    directory = part.git.directory
    generated, conflicts = {}, []
    for path, blob in record.made.items():
        if not _is_regular_file(directory / path):
            continue
        content = (directory / path).read_bytes()
        generated[path] = trees.hash_blob(content)
        if path in changed and not record.wrote(path, trees.hash_blob(kept_files[path])):
            _store_blob(part.git, content)
            _write_file(directory / path, kept_files[path])
            conflicts += [path] if generated[path] != blob else []
    return generated, conflicts


def _find_source(git: Git, path: str, record: HipifyRecord) -> str:
    """Return the file that hipify makes ``path`` of, "" where none has such a name."""
    name = _strip_hipify_words(path)
    for other in git.fields("ls-files", "-z", "--cached", "--others", "--exclude-standard"):
        if _strip_hipify_words(other) == name and other != path and other not in record.made:
            return other
    return ""


def _find_overwritten(directory: Path, kept_files: KeptFiles) -> dict[str, bytes]:
    """Return what is now in the files that were there and have changed."""
    now = _read_files(directory, kept_files)
    return {path: content for path, content in now.items() if content != kept_files[path]}


def restore_kept_files(part: trees.TreePart, kept_files: KeptFiles) -> list[str]:
    """Write files back as they were; return those that were not."""
    changed = []
    for path, content in kept_files.items():
        file = part.git.directory / path
        if not _is_regular_file(file) or file.read_bytes() != content:
            changed.append(path)
            _write_file(file, content)
    return changed


def keep_files(part: trees.TreePart, paths: Iterable[str]) -> KeptFiles:
    """Note files as they are."""
    return _read_files(part.git.directory, paths)


def renew_record(
    part: trees.TreePart,
    record: HipifyRecord,
    *,
    new: Iterable[str],
    ignored: Iterable[str],
    rewritten: Iterable[str],
    stored: Mapping[str, str],
) -> HipifyRecord:
    """Return a record with the files that the script made or rewrote for the first time; blobs are stored.

    ``ignored``: all files that it made and git ignores. ``stored``: objects of files, made with git's
    filters.
    """
    directory = part.git.directory
    unchanged = [path for path in _list_unchanged(directory, record.made) if path not in record.ignored]
    to_store = sorted({*new, *ignored, *rewritten, *record.rewritten, *unchanged})
    hashes = {path: trees.hash_blob(content) for path, content in _read_files(directory, to_store).items()}
    files = hashes | store_blobs(part.git, [path for path in hashes if hashes[path] != stored.get(path)])
    return HipifyRecord(
        made={**record.made, **{path: files[path] for path in new if path in files}},
        ignored={path: files[path] for path in ignored if path in files},
        rewritten={path: files[path] for path in (*record.rewritten, *rewritten) if path in files},
        earlier=record.earlier,
    )


def translate_new_lines(settled: bytes, now: bytes, translated: bytes) -> bytes:
    """Return ``now`` with the translation of those of its lines that ``settled`` does not have."""
    lines, others = now.splitlines(keepends=True), translated.splitlines(keepends=True)
    new = set(range(len(lines)))
    for block in _match_lines(settled.splitlines(keepends=True), lines).get_matching_blocks():
        new.difference_update(range(block.b, block.b + block.size))
    result: list[bytes] = []
    for word, start, end, other, other_end in _match_lines(lines, others).get_opcodes():
        nearby = range(start - 1, end + 1) if word == "insert" else range(start, end)
        if word == "replace" and end - start == other_end - other:
            pairs = zip(range(start, end), others[other:other_end], strict=True)
            result += [text if number in new else lines[number] for number, text in pairs]
        elif (word == "insert" and start == 0 and new) or not new.isdisjoint(
            nearby
        ):  # an #include that new device code needs
            result += others[other:other_end]
        else:
            result += lines[start:end]
    return b"".join(result)


def _match_lines(old: list[bytes], new: list[bytes]) -> difflib.SequenceMatcher[bytes]:
    return difflib.SequenceMatcher(None, old, new, autojunk=False)


_HIPIFY_BANNER = (
    b"automatically generated by hipify"  # in the first line of all that it makes of another file
)
_HIPIFY_WORDS = re.compile(r"cuda|hip|[^a-z0-9/]")  # in what its names differ from those of its sources


def find_translated_line(file: Path, line: int, *, env: Mapping[str, str]) -> tuple[Path, int] | None:
    """Return the source that hipify made a file of, and the line there; ``None`` where it made it of none.

    Lines are paired by a diff of both files: hipify adds few, and changes others in their place.
    """
    if not file.is_file() or _HIPIFY_BANNER not in file.read_bytes().split(b"\n", 1)[0]:
        return None
    file = file.resolve()
    top = next((folder for folder in file.parents if (folder / ".git").exists()), None)
    if top is None:
        return None
    name = _strip_hipify_words(str(file.relative_to(top)))
    translated = file.read_bytes().splitlines()
    best, pairs = None, 0
    for path in Git(top, env).fields("ls-files", "-z", "--cached", "--others", "--exclude-standard"):
        if _strip_hipify_words(path) != name or not _is_regular_file(top / path):
            continue
        content = (top / path).read_bytes()
        if top / path == file or _HIPIFY_BANNER in content.split(b"\n", 1)[0]:
            continue
        matcher = _match_lines(content.splitlines(), translated)
        equal = 1 + sum(block.size for block in matcher.get_matching_blocks())
        if equal > pairs:
            best, pairs = (top / path, _pair_line(matcher, line)), equal
    return best


def _strip_hipify_words(path: str) -> str:
    """Return what a source and its translation have in common: ``cuda/Copy.cu`` and ``hip/Copy.hip``."""
    folder, _, base = path.lower().replace(os.sep, "/").rpartition("/")
    stem = base.rpartition(".")[0] or base
    parts = [_HIPIFY_WORDS.sub("", part) for part in (*folder.split("/"), stem)]
    return "/".join(part for part in parts if part)


def _pair_line(matcher: difflib.SequenceMatcher[bytes], line: int) -> int:
    """Return the line of the old text that a line of the new one (both count from 1) stands for."""
    for _, start, end, other, other_end in matcher.get_opcodes():
        if other <= line - 1 < other_end:
            return min(start + line - 1 - other, max(end - 1, start)) + 1
    return max(line, 1)


def store_blobs(git: Git, paths: Sequence[str]) -> dict[str, str]:
    """Store files as they are on the disk; return their blobs by path."""
    if not paths:
        return {}
    names = "".join(f"{_quote_path(path)}\n" for path in paths).encode("utf-8", "surrogateescape")
    output = git.text("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names)
    return dict(zip(paths, output.split("\n"), strict=True))


def _list_unchanged(directory: Path, blobs: Mapping[str, str]) -> list[str]:
    """List the files that are as their blobs say."""
    files = _read_files(directory, blobs)
    return [path for path, content in files.items() if trees.hash_blob(content) == blobs[path]]


def _is_regular_file(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def _read_files(directory: Path, paths: Iterable[str]) -> dict[str, bytes]:
    return {path: (directory / path).read_bytes() for path in paths if _is_regular_file(directory / path)}


def _write_file(file: Path, content: bytes) -> None:
    if not _is_regular_file(file) or file.read_bytes() != content:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _store_blob(git: Git, content: bytes) -> str:
    return git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=content)


def _quote_path(path: str) -> str:
    """Write a path as `git hash-object --stdin-paths` reads it: one a line."""
    text = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"' if text != path else path
