"""Pack checkouts into one file, for machines that are to build from the same trees: hipified once, built
everywhere.

The file is a tar with zstd (RFC 8878), with a checksum. Its first member says what each tree holds; what
comes out is compared with that before it has its name. Build trees, logs and locks stay behind, and so do
files that git ignores, but for those that hipify wrote.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, cast

from rocm_wheels.core import SourceError, lock_folder, name_failed_file, open_hidden_file
from rocm_wheels.sources.checkout_state import OWN_FOLDER, hold_checkout, locate_state_file, read_state
from rocm_wheels.sources.git import Git, find_git_directory
from rocm_wheels.sources.trees import TreeIdentity, identify_tree, list_repositories

_ZSTD_LEVEL = 3
_READ_CHUNK = 1 << 20
_PIECE = 1 << 15  # of a compressed file: what is made of it is in memory


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
    """The content of a compressed file that ends where its frame does; a checksum is at the end of it."""

    def __init__(self, file: BinaryIO) -> None:
        from rocm_wheels.core import ZstdDecompressor

        self._file, self._decompressor, self._ready = file, ZstdDecompressor(), b""

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end. Raises EOFError for a file that ends too early."""
        pieces, length = [self._ready], len(self._ready)
        while length < size and not self._decompressor.eof:
            content = self._file.read(_PIECE)
            if not content:
                raise EOFError("it ends too early")
            pieces.append(self._decompressor.decompress(content))
            length += len(pieces[-1])
        data = b"".join(pieces)
        self._ready = data[size:]
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
            stream = _ZstdFrame(file)
            # as a stream it is only read, though the annotation asks for more
            with tarfile.open(mode="r|", fileobj=cast("Any", stream)) as archive:
                yield archive
            while stream.read(_READ_CHUNK):  # to its end: the checksum is there
                pass
            if stream.has_more():
                raise EOFError("something follows its end")
    except (ZstdError, tarfile.TarError, EOFError) as cause:
        raise SourceError(f"{source} is no packed checkouts, or was cut", tip="fetch it again") from cause


LISTING_MEMBER = "checkouts.json"
_LEFT_OUT = ("index.lock", "HEAD.lock", "config.lock", "FETCH_HEAD", "ORIG_HEAD")


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
    folder.mkdir(parents=True, exist_ok=True)
    work_folder = folder / ".unpacking"
    with lock_folder(work_folder, purpose=f"unpacking {source.name}"):
        for leftover in work_folder.iterdir():  # of a run that was killed
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
        try:
            with read_archive(source) as archive:
                packed = _read_listing(archive, source)
                outcome = _compare_with_folder(packed, folder, env)
                new_names = {name for name, result in outcome.items() if result == "unpacked"}
                if new_names:
                    _extract_trees(archive, work_folder, new_names, source)
            for name in packed.trees:
                if name in new_names:
                    _check_tree(work_folder / name, packed.trees[name], source, env)
            for name in sorted(new_names):
                os.replace(work_folder / name, folder / name)
        except OSError as failure:
            name_failed_file(failure, folder)
            raise
        finally:
            for leftover in work_folder.iterdir():
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
    return outcome


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
    content = (json.dumps({"schema": 1, "trees": trees}, indent=1) + "\n").encode()
    member = tarfile.TarInfo(LISTING_MEMBER)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _add_tree(archive: tarfile.TarFile, name: str, tree: Path, env: Mapping[str, str]) -> None:
    for relative in sorted({*_list_git_files(tree), *_list_tree_files(tree, env)}):
        archive.add(tree / relative, f"{name}/{relative}", recursive=False, filter=_anonymize_member)


def _anonymize_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without the names and numbers of this machine's users; times of files stay."""
    if member.isdir():
        member.mtime = 0
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _list_git_files(tree: Path) -> Iterator[str]:
    """Yield the files and folders of the repository, but for what our own runs left in it."""
    own_folder = tree / ".git" / OWN_FOLDER
    yield ".git"
    for folder, folders, files in os.walk(tree / ".git"):
        path = Path(folder)
        if path == own_folder:
            folders.clear()
        kept_names = [
            name for name in files if path != own_folder or name == locate_state_file(tree / ".git").name
        ]
        for entry in (*folders, *kept_names):
            if entry not in _LEFT_OUT:
                yield (path / entry).relative_to(tree).as_posix()


def _list_tree_files(tree: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Yield what git sees in the root and every submodule, and what hipify wrote that git ignores."""
    git = Git(tree, env)
    parts = list_repositories(git)
    inside = {part.path for part in parts}
    for part in parts:
        for path in part.git.fields("ls-files", "-z", "--cached", "--others", "--exclude-standard"):
            relative = part.path_from_root(path.rstrip("/"))
            if relative not in inside and os.path.lexists(tree / relative):
                yield from _list_with_folders(relative)
        if part.path:
            yield from _list_with_folders(f"{part.path}/.git")
    state = read_state(find_git_directory(git))
    for path in state.generated if state is not None else ():
        if os.path.lexists(tree / path):
            yield from _list_with_folders(path)


def _list_with_folders(relative: str) -> Iterator[str]:
    yield relative
    for parent in PurePosixPath(relative).parents:
        if str(parent) != ".":
            yield str(parent)


def _read_listing(archive: tarfile.TarFile, source: Path) -> PackedCheckouts:
    first = archive.next()
    content = archive.extractfile(first) if first is not None and first.name == LISTING_MEMBER else None
    try:
        if content is None:
            raise ValueError("its first member says nothing of checkouts")
        listing = json.loads(content.read())
        if listing["schema"] != 1:
            raise ValueError(f"it is of a later version (schema {listing['schema']})")
        return PackedCheckouts(
            {_check_name(name): TreeIdentity(**identity) for name, identity in listing["trees"].items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        tip = "make one with `rocm-wheels sources pack`"
        raise SourceError(f"{source} holds no packed checkouts: {cause}", tip=tip) from cause


def _check_name(name: str) -> str:
    if name in {"", ".", ".."} or "/" in name or "\\" in name or name.startswith("."):
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


def _extract_trees(archive: tarfile.TarFile, work_folder: Path, names: set[str], source: Path) -> None:
    """Write the members of the trees that are wanted; nothing is written outside of them."""
    for member in archive:
        parts = PurePosixPath(member.name).parts
        if (
            member.name.startswith("/")
            or ".." in parts
            or not (member.isreg() or member.isdir() or member.issym())
        ):
            raise SourceError(f"{source} holds {member.name}, which no checkout has: it is not used")
        if not parts or parts[0] not in names:
            continue
        target = work_folder.joinpath(*parts)
        if any(
            above.is_symlink()
            for above in target.parents
            if above != work_folder and work_folder in above.parents
        ):
            raise SourceError(f"{source} writes {member.name} through a link: it is not used")
        target.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            target.mkdir(exist_ok=True)
        elif member.issym():
            _make_link(target, member.linkname)
        else:
            _write_file(archive, member, target)


def _make_link(target: Path, link_text: str) -> None:
    try:
        target.symlink_to(link_text)
    except OSError as cause:
        if cause.errno == errno.ENOSPC:
            raise
        tip = "unpack where links can be made; on Windows with its developer mode, or pack there"
        raise SourceError(f"no link can be made here: {target}", tip=tip) from cause


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None  # a regular file
    with content, target.open("xb") as sink:
        shutil.copyfileobj(content, sink, _READ_CHUNK)
    target.chmod(member.mode & 0o777)
    os.utime(target, (member.mtime, member.mtime))


def _check_tree(tree: Path, expected: TreeIdentity, source: Path, env: Mapping[str, str]) -> None:
    if not (tree / ".git").is_dir():
        raise SourceError(f"{source} says that it holds {tree.name}, and does not: it was cut or changed")
    identity = identify_tree(tree, env=env)
    if identity != expected:
        raise SourceError(
            (
                f"{tree.name} comes out of {source} otherwise than it went in: {identity.tree}, not "
                f"{expected.tree}"
            ),
            tip="the file was damaged on its way, or this file system cannot hold the tree (case, links)",
        )
