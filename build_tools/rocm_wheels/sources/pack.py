"""Pack checkouts into one file, for machines that are to build from the same trees: hipified once, built
everywhere.

The file is a tar with zstd (RFC 8878), with a checksum. Its first member says what each tree holds; what
comes out is compared with that before it has its name. Whoever made the file is not trusted: repositories are
made anew (``packed_repository``), and what no checkout has is refused. Build trees, logs and locks stay
behind, and so do files that git ignores, but for those that hipify wrote.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import posixpath
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, cast

from rocm_wheels.core import SourceError, lock_folder, log_note, name_failed_file, open_hidden_file
from rocm_wheels.sources.checkout_state import ensure_folder, hold_checkout, read_state
from rocm_wheels.sources.git import Git, find_git_directory
from rocm_wheels.sources.packed_repository import (
    MODULES_FOLDER,
    choose_config,
    describe_left_out,
    find_repository_folder,
    format_config,
    is_git_name,
    is_portable,
    list_portable_files,
    read_config_file,
    rebuild_repositories,
    require_own_objects,
)
from rocm_wheels.sources.trees import TreeIdentity, TreePart, identify_tree, list_repositories

_ZSTD_LEVEL = 3
_READ_CHUNK = 1 << 20
_PIECE = 1 << 15  # of a compressed file
_MOST_EXPANSION = 100  # sources become three to ten times as many bytes
_LEAST_ALLOWANCE = 256 << 20  # bytes, which any file may become
_MOST_FOLDERS = 200  # that a file may be below, in a tree (PyTorch's deepest: 17)
_MOST_NAME_BYTES = 255
_LATEST_TIME = 1 << 33  # seconds: the year 2242


@contextlib.contextmanager
def create_archive(number: int) -> Iterator[tarfile.TarFile]:
    """Have an archive to add to, written through the descriptor of a file, with a checksum at its end."""
    from rocm_wheels.core import CompressionParameter, ZstdFile

    options: dict[int, int] = {
        CompressionParameter.compression_level: _ZSTD_LEVEL,
        CompressionParameter.checksum_flag: 1,
        CompressionParameter.nb_workers: os.cpu_count() or 1,
    }
    with (
        open(number, "wb", closefd=False) as file,
        ZstdFile(file, "w", options=options) as stream,
        tarfile.open(mode="w|", fileobj=stream, format=tarfile.PAX_FORMAT) as archive,
    ):
        yield archive


class _ZstdFrame:
    """The content of a compressed file that ends where its frame does; a checksum is at the end of it.

    It is never more than a few pieces in memory, and no more than a checkout can be packed into.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        from rocm_wheels.core import ZstdDecompressor

        self._file, self._decompressor, self._ready = file, ZstdDecompressor(), b""
        self._left = max(_MOST_EXPANSION * size, _LEAST_ALLOWANCE)

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end.

        Raises EOFError for a file that ends too early, and for one that becomes too many bytes.
        """
        pieces, length = [self._ready], len(self._ready)
        while length < size and not self._decompressor.eof:
            content = self._file.read(_PIECE) if self._decompressor.needs_input else b""
            if not content and self._decompressor.needs_input:
                raise EOFError("it ends too early")
            pieces.append(self._decompressor.decompress(content, _READ_CHUNK))
            length += len(pieces[-1])
        data = b"".join(pieces)
        self._ready = data[size:]
        self._left -= min(size, len(data))
        if self._left < 0:
            raise EOFError(f"it becomes more than {_MOST_EXPANSION} times as many bytes")
        return data[:size]

    def has_more(self) -> bool:
        """Tell whether there is more in the file than the frame, once that has ended."""
        return bool(self._decompressor.unused_data or self._file.read(1))


@contextlib.contextmanager
def read_archive(source: Path) -> Iterator[tarfile.TarFile]:
    """Have the archive of a file, read once in its order. Raises SourceError for a cut or damaged one."""
    from rocm_wheels.core import ZstdError

    try:
        with source.open("rb") as file:
            stream = _ZstdFrame(file, source.stat().st_size)
            with _refuse_damaged_headers():
                # as a stream it is only read, though the annotation asks for more
                archive = tarfile.open(mode="r|", fileobj=cast("Any", stream))  # noqa: SIM115
            with archive:
                yield archive
            while stream.read(_READ_CHUNK):  # to its end: the checksum is there
                pass
            if stream.has_more():
                raise EOFError("something follows its end")
    except (ZstdError, tarfile.TarError, EOFError) as cause:
        raise SourceError(
            f"{source} is no packed checkouts, or was cut: {ascii(str(cause))[1:-1]}", tip="fetch it again"
        ) from cause


@contextlib.contextmanager
def _refuse_damaged_headers() -> Iterator[None]:
    try:
        yield
    except (RecursionError, ValueError, OverflowError) as cause:  # many long names; numbers that are none
        raise tarfile.ReadError(f"a header in it is damaged: {type(cause).__name__}") from cause


def iterate_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive that are still to come. Raises ReadError for headers that lie."""
    while True:
        with _refuse_damaged_headers():
            member = archive.next()
        if member is None:
            return
        yield member
        cast("Any", archive).members.clear()  # it would keep them all


LISTING_MEMBER = "checkouts.json"
_MOST_LISTING_BYTES = 16 << 20


@dataclass(frozen=True)
class PackedCheckouts:
    """What is in a file: the trees by name, with what each holds."""

    trees: Mapping[str, TreeIdentity]


def pack_checkouts(trees: Mapping[str, Path], target: Path, *, env: Mapping[str, str]) -> PackedCheckouts:
    """Write checkouts into one file, which appears whole or not at all. No tree is changed.

    Raises SourceError for what is no checkout, or one that was interrupted, or changes meanwhile, for a name
    that no folder can have again, and for a target that is no file (a device would be replaced) or is inside
    of a tree.
    """
    _require_names(trees)
    _require_target(target, trees)
    with contextlib.ExitStack() as stack:
        for name, tree in trees.items():
            stack.enter_context(hold_checkout(tree, activity=f"packing {name}", env=env))
        identities = {name: _identify_checkout(tree, env) for name, tree in trees.items()}
        try:
            with open_hidden_file(target) as hidden:
                with create_archive(hidden.descriptor) as archive:
                    _add_listing(archive, identities)
                    for name, tree in trees.items():
                        _add_tree(archive, name, tree, env)
                for name, tree in trees.items():
                    if identify_tree(tree, env=env) != identities[name]:
                        raise SourceError(
                            f"{tree} was changed while it was packed", tip="run the same command again"
                        )
                hidden.commit(replace=True)
        except OSError as failure:
            name_failed_file(failure, target)
            raise
    return PackedCheckouts(identities)


def unpack_checkouts(
    source: Path, folder: Path, *, env: Mapping[str, str]
) -> Mapping[str, Literal["unpacked", "there already"]]:
    """Put the checkouts of a file into ``folder``; returns what became of each.

    A checkout that is there already and holds the same is left alone. Raises SourceError for another one, for
    a file that is none of ours or was cut, and for a tree that does not come out as it went in; then nothing
    has its name.
    """
    work_folder = folder / ".unpacking"
    with ensure_folder(folder), lock_folder(work_folder, purpose=f"unpacking {source.name}"):
        try:
            for leftover in work_folder.iterdir():  # of a run that was killed
                if leftover.is_dir() and not leftover.is_symlink():
                    shutil.rmtree(leftover)
            with _name_source(source), read_archive(source) as archive:
                packed = _read_listing(archive, source)
                outcome = _compare_with_folder(packed, folder, env)
                new_names = {name for name, result in outcome.items() if result == "unpacked"}
                trees = _extract_trees(archive, work_folder, new_names) if new_names else {}
            for name in sorted(new_names):
                with _name_source(source):
                    _rebuild_tree(name, trees[name], work_folder, env)
                _check_tree(work_folder / name, packed.trees[name], source, env)
            for name in sorted(new_names):
                os.replace(work_folder / name, folder / name)
        except OSError as failure:
            name_failed_file(failure, folder)
            raise
        finally:
            shutil.rmtree(work_folder, ignore_errors=True)  # Windows keeps the lock's file
    return outcome


@contextlib.contextmanager
def _name_source(source: Path) -> Iterator[None]:
    """Have what is wrong with the content of a file say in which one it is."""
    try:
        yield
    except SourceError as failure:
        if str(source) not in failure.message:
            failure.message = f"{source} is not used: {failure.message}"
            failure.tip = failure.tip or "have it packed again with `rocm-wheels sources pack`"
        raise


def _rebuild_tree(name: str, extracted: _ExtractedTree, work_folder: Path, env: Mapping[str, str]) -> None:
    """Give a tree its repositories, and say what was not taken of those that were packed."""
    tree, raw = work_folder / name, _locate_raw(work_folder, name)
    tree.mkdir(exist_ok=True)  # it may hold no file
    if not (raw / "HEAD").is_file():
        raise SourceError(f"it says that it holds {name}, and does not: it was cut or changed")
    keys = rebuild_repositories(raw, tree, extracted.submodules, env=env)
    shutil.rmtree(raw)
    if files := describe_left_out(extracted.left_out):
        log_note(f"left out of {name}/.git: {files} (commits, refs, the index and files are taken)")
    for folder, left_out in keys.items():
        names = describe_left_out(left_out)
        log_note(f"left out of the configuration in {name}/.git{folder and '/' + folder}: {names}")


def _require_names(names: Iterable[str]) -> None:
    for name in names:
        try:
            _check_name(name)
        except ValueError as cause:
            tip = "name the folder above it with --source-dir"
            raise SourceError(str(cause), tip=tip) from None


def _require_target(target: Path, trees: Mapping[str, Path]) -> None:
    if os.path.lexists(target) and not target.is_file():
        raise SourceError(f"{target} is there, and is no file: it is not replaced", tip="name another file")
    for tree in trees.values():
        if target.resolve().is_relative_to(tree.resolve()):
            raise SourceError(f"{target} is inside of {tree}, which is packed", tip="name a file elsewhere")


def _identify_checkout(tree: Path, env: Mapping[str, str]) -> TreeIdentity:
    identity = identify_tree(tree, env=env)
    state = read_state(find_git_directory(Git(tree, env)))
    if state is not None and state.operation is not None:
        raise SourceError(
            f"{tree}: {state.operation} was interrupted", tip="run the same checkout again first"
        )
    if not (tree / ".git").is_dir():
        raise SourceError(f"{tree} is a worktree or submodule of another repository", tip="pack a checkout")
    return identity


def _add_listing(archive: tarfile.TarFile, identities: Mapping[str, TreeIdentity]) -> None:
    trees = {name: asdict(identity) for name, identity in identities.items()}
    _add_content(
        archive, LISTING_MEMBER, (json.dumps({"schema": 1, "trees": trees}, indent=1) + "\n").encode()
    )


def _add_tree(archive: tarfile.TarFile, name: str, tree: Path, env: Mapping[str, str]) -> None:
    git = Git(tree, env)
    parts = list_repositories(git)
    written = _compose_git_files(tree, parts)
    copied = {*_list_git_files(tree, parts), *_list_tree_files(tree, parts)}
    for relative in sorted({*written, *copied}):
        if relative in written:
            _add_content(archive, f"{name}/{relative}", written[relative].encode("utf-8", "surrogateescape"))
        else:
            archive.add(tree / relative, f"{name}/{relative}", recursive=False, filter=_anonymize_member)


def _add_content(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _compose_git_files(tree: Path, parts: Sequence[TreePart]) -> dict[str, str]:
    """Return what is written anew: the configuration of repositories, and where submodules have theirs."""
    files = {}
    for part in parts:
        settings = read_config_file(part.git, part.git_dir / "config")
        require_own_objects(part.git_dir, part.git.directory, [key for key, _ in settings])
        folder = _locate_inside(tree, part)
        files[f"{folder}/config"] = format_config(choose_config(settings)[0])
        if part.path:
            files[f"{part.path}/.git"] = f"gitdir: {posixpath.relpath(folder, part.path)}\n"
    return files


def _locate_inside(tree: Path, part: TreePart) -> str:
    """Return the folder of a repository from the root of its tree. Raises SourceError for one elsewhere."""
    root = Path(os.path.realpath(tree / ".git"))
    if part.path and (part.git.directory / ".git").is_dir():
        raise SourceError(
            f"{part.git.directory} has its repository inside",
            tip="move it to its place with `git submodule absorbgitdirs`, then pack again",
        )
    if not part.git_dir.is_relative_to(root):
        raise SourceError(
            f"the repository of {part.git.directory} is elsewhere: {part.git_dir}", tip="pack a checkout"
        )
    return (".git" / part.git_dir.relative_to(root)).as_posix()


def _anonymize_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without the names and numbers of this machine's users; times of files stay."""
    if member.isdir():
        member.mtime = 0
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _list_git_files(tree: Path, parts: Sequence[TreePart]) -> Iterator[str]:
    """Yield the files of the repositories that travel, but for those that are written anew."""
    for part in parts:
        folder = _locate_inside(tree, part)
        for file in list_portable_files(part.git_dir):
            yield f"{folder}/{file}"


def _list_tree_files(tree: Path, parts: Sequence[TreePart]) -> Iterator[str]:
    """Yield what git sees in the root and every submodule, and what hipify wrote that git ignores."""
    inside = {part.path for part in parts}
    for part in parts:
        for path in part.git.fields("ls-files", "-z", "--cached", "--others", "--exclude-standard"):
            relative = part.path_from_root(path.rstrip("/"))
            if relative not in inside and os.path.lexists(tree / relative):
                yield from _list_with_folders(relative)
    state = read_state(parts[0].git_dir)
    for path in state.generated if state is not None else ():
        if os.path.lexists(tree / path):
            yield from _list_with_folders(path)


def _list_with_folders(relative: str) -> Iterator[str]:
    yield relative
    for parent in PurePosixPath(relative).parents:
        if str(parent) != ".":
            yield str(parent)


def _read_listing(archive: tarfile.TarFile, source: Path) -> PackedCheckouts:
    first = next(iterate_members(archive), None)
    try:
        if first is None or first.name != LISTING_MEMBER or not _is_plain_file(first):
            raise ValueError("its first member says nothing of checkouts")
        if first.size > _MOST_LISTING_BYTES:
            raise ValueError("its listing is too long")
        content = archive.extractfile(first)
        assert content is not None  # a regular file
        listing = json.loads(content.read())
        if listing["schema"] != 1:
            raise ValueError(f"it is of a later version (schema {listing['schema']})")
        return PackedCheckouts(
            {_check_name(name): TreeIdentity(**identity) for name, identity in listing["trees"].items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        tip = "make one with `rocm-wheels sources pack`"
        raise SourceError(f"{source} holds no packed checkouts: {cause}", tip=tip) from cause


def _check_name(name: str) -> str:
    unsafe = name.startswith((".", "-")) or any(
        letter in "/\\:" or not letter.isprintable() for letter in name
    )
    if not name or unsafe or len(os.fsencode(name)) > _MOST_NAME_BYTES - 5:
        raise ValueError(f"{name!r} is not the name of a checkout")
    return name


def _compare_with_folder(
    packed: PackedCheckouts, folder: Path, env: Mapping[str, str]
) -> dict[str, Literal["unpacked", "there already"]]:
    outcome: dict[str, Literal["unpacked", "there already"]] = {}
    for name, identity in packed.trees.items():
        target = folder / name
        if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
            outcome[name] = "unpacked"
        elif (target / ".git").exists() and identify_tree(target, env=env) == identity:
            outcome[name] = "there already"
        else:
            raise SourceError(
                f"{target} is there, and holds something else", tip="name another folder with --source-dir"
            )
    return outcome


@dataclass
class _ExtractedTree:
    """A tree that has come out without its repositories: those of its submodules, and what was not taken."""

    submodules: dict[str, str] = field(default_factory=dict)  # path → folder in the root's repository
    left_out: list[str] = field(default_factory=list)


def _extract_trees(archive: tarfile.TarFile, work_folder: Path, names: set[str]) -> dict[str, _ExtractedTree]:
    """Write the members of the trees that are wanted; nothing is written outside of them.

    Files of repositories go beside, where no git looks for them. Raises SourceError.
    """
    trees = {name: _ExtractedTree() for name in names}
    kinds: dict[str, bool] = {}  # of what was written: is it a folder?
    for member in iterate_members(archive):
        path = PurePosixPath(member.name)
        _check_member(member, path)
        if path.parts[0] not in names:
            continue
        tree, relative = trees[path.parts[0]], "/".join(path.parts[1:])
        known_folder = kinds.get(str(path))
        inside_file = any(not kinds.get(str(parent), True) for parent in path.parents)
        if inside_file or (known_folder is not None and not (known_folder and member.isdir())):
            raise SourceError(f"it writes {member.name!a} through a link, or over another file")
        kinds[str(path)] = member.isdir()
        kinds.update((str(parent), True) for parent in path.parents)
        target = work_folder / path
        if relative == ".git" or relative.startswith(".git/"):
            target = _locate_raw(work_folder, path.parts[0]) / "/".join(path.parts[2:])
            if member.issym() or (relative == ".git" and not member.isdir()):
                raise SourceError(f"it holds {member.name!a} as a link or a file, which no checkout has")
            if member.isdir() or not _is_portable_anywhere(path.parts[2:]):
                tree.left_out += [] if member.isdir() else ["/".join(path.parts[2:])]
                continue
        elif path.name == ".git" and member.isreg() and member.size < _MOST_POINTER_BYTES:
            content = archive.extractfile(member)
            assert content is not None  # a regular file
            pointer = content.read().decode("utf-8", "surrogateescape")
            tree.submodules[str(PurePosixPath(relative).parent)] = find_repository_folder(relative, pointer)
            continue
        elif any(map(is_git_name, path.parts)):
            raise SourceError(f"it holds {member.name!a}, which git takes for a repository")
        target.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            target.mkdir(exist_ok=True)
        elif member.issym():
            _make_link(target, member.linkname)
        else:
            _write_file(archive, member, target)
    return trees


_MOST_POINTER_BYTES = 1 << 14


def _locate_raw(work_folder: Path, name: str) -> Path:
    """Return where the files of a tree's repositories wait; no tree has such a name."""
    return work_folder / f".{name}.raw"


def _is_portable_anywhere(parts: Sequence[str]) -> bool:
    """Tell whether a file is one that travels, of the root's repository or of some submodule's."""
    if parts[0] != MODULES_FOLDER:
        return is_portable("/".join(parts))
    return any(is_portable("/".join(parts[start:])) for start in range(2, len(parts)))


def _is_plain_file(member: tarfile.TarInfo) -> bool:
    return member.isreg() and not member.issparse()


def _check_member(member: tarfile.TarInfo, path: PurePosixPath) -> None:
    """Raise SourceError for a member that no checkout has: its kind, or its name."""
    parts = path.parts
    named_well = parts and not path.is_absolute() and ".." not in parts and "\0" not in member.name
    kind_fits = member.isdir() or (len(parts) > 1 and (_is_plain_file(member) or member.issym()))
    if not named_well or not kind_fits:
        raise SourceError(f"it holds {member.name[:200]!a}, which no checkout has")
    if len(parts) > _MOST_FOLDERS or max(len(os.fsencode(part)) for part in parts) > _MOST_NAME_BYTES:
        raise SourceError(f"it holds {member.name[:200]!a}…, whose name no checkout can have")


def _make_link(target: Path, link_text: str) -> None:
    try:
        target.symlink_to(link_text)
    except OSError as cause:
        if cause.errno == errno.ENOSPC:
            raise
        if cause.errno in {errno.ENAMETOOLONG, errno.ENOENT}:  # too long a text, or none
            raise SourceError(f"it has a link at {str(target)!a} that cannot be one") from cause
        tip = "unpack where links can be made; on Windows with its developer mode, or pack there"
        raise SourceError(f"no link can be made here: {target}", tip=tip) from cause


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None  # a regular file
    with content, target.open("xb") as sink:
        shutil.copyfileobj(content, sink, _READ_CHUNK)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)  # more git does not know
    if not 0 <= member.mtime < _LATEST_TIME:
        raise SourceError(f"it says of {member.name!a} that it was written at no time that there is")
    os.utime(target, (member.mtime, member.mtime))


def _check_tree(tree: Path, expected: TreeIdentity, source: Path, env: Mapping[str, str]) -> None:
    identity = identify_tree(tree, env=env)
    if identity != expected:
        raise SourceError(
            (
                f"{tree.name} comes out of {source} otherwise than it went in: {identity.tree}, not "
                f"{expected.tree}"
            ),
            tip="the file was damaged on its way, or this file system cannot hold the tree (case, links)",
        )
