"""Unpack archives of ROCm builds: nothing is written outside of the folder that they are unpacked to."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

from rocm_wheels import ending
from rocm_wheels.errors import RocmWheelsError, SdkError
from rocm_wheels.sdk.artifacts import ARTIFACT_MANIFEST

_CHUNK = 1 << 20
_DAMAGE_ERRORS = (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
_DAMAGED_TIP = "delete it and fetch it again"


def unpack_artifact(archive: Path, folder: Path) -> None:
    """Unpack an artifact into a new folder. Raises SdkError.

    Its first member is the manifest of base folders, and everything else lies below one of them.
    """
    bases: list[str] = []
    with _open_archive(archive) as tar:
        for number, member in enumerate(tar):
            _refuse_interrupted()
            if number == 0:
                bases = _read_manifest(tar, member, folder, archive)
                continue
            if not _is_below(member, bases):
                raise SdkError(
                    f"{archive} holds {member.name}, which its {ARTIFACT_MANIFEST} does not name",
                    tip=_DAMAGED_TIP,
                )
            _write_member(tar, member, folder, archive)
    if not bases:
        raise SdkError(f"{archive} is no artifact: it is empty", tip=_DAMAGED_TIP)


def unpack_tree(archive: Path, folder: Path) -> None:
    """Unpack a whole ROCm tree (``.tar.gz``) into a new folder. Raises SdkError."""
    with _open_archive(archive) as tar:
        for member in tar:
            _refuse_interrupted()
            if PurePosixPath(member.name) != PurePosixPath():
                _write_member(tar, member, folder, archive)


def _refuse_interrupted() -> None:
    if ending.is_interrupted():
        raise RocmWheelsError("interrupted")


def _is_below(member: tarfile.TarInfo, bases: Sequence[str]) -> bool:
    """Tell whether a member lies in a base folder, or is one, or a folder above one."""
    name = member.name
    inside = any(name == base or name.startswith(f"{base}/") for base in bases)
    return inside or (member.isdir() and any(base.startswith(f"{name}/") for base in bases))


@contextlib.contextmanager
def _open_archive(archive: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive to be read once, in its order. Raises SdkError for what is found wrong with it."""
    import zstandard

    try:
        with _open_stream(archive) as tar:
            yield tar
    except (*_DAMAGE_ERRORS, zstandard.ZstdError) as cause:
        raise SdkError(f"{archive} is cut or damaged", tip=_DAMAGED_TIP) from cause


@contextlib.contextmanager
def _open_stream(archive: Path) -> Iterator[tarfile.TarFile]:
    with _open_decompressed(archive) as stream:
        with tarfile.open(mode="r|", fileobj=cast("Any", stream)) as tar:
            yield tar
        while stream.read(_CHUNK):  # to its end: a checksum is there
            _refuse_interrupted()


@contextlib.contextmanager
def _open_decompressed(archive: Path) -> Iterator[Any]:
    if archive.name.endswith(".zst"):
        import zstandard

        with (
            archive.open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream,
        ):
            yield stream
        return
    opener: Any = lzma.open if archive.name.endswith(".xz") else gzip.open
    with opener(archive, "rb") as stream:
        yield stream


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path) -> None:
    parts = [part for part in PurePosixPath(member.name).parts if part != "."]
    if member.name.startswith("/") or ".." in parts or not parts or "\\" in member.name:
        raise SdkError(f"{archive} holds {member.name}, which leads out of it: it is not used")
    target = folder.joinpath(*parts)
    if any(above.is_symlink() for above in target.parents if above.is_relative_to(folder)):
        raise SdkError(f"{archive} writes {member.name} through a link: it is not used")
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(exist_ok=True)
        return
    if target.is_symlink() or target.is_file():
        target.unlink()  # the later one of two counts, as for tar
    if member.issym():
        _refuse_leaving(member.name, posixpath.join(posixpath.dirname(member.name), member.linkname), archive)
        target.symlink_to(member.linkname)
    elif member.islnk():
        _refuse_leaving(member.name, member.linkname, archive)
        linked = folder.joinpath(*PurePosixPath(member.linkname).parts)
        if linked.is_symlink() or not linked.is_file():
            raise SdkError(f"{archive}: {member.name} is another name of {member.linkname}, which is no file")
        target.hardlink_to(linked)
    elif member.isreg():
        content = tar.extractfile(member)
        assert content is not None  # a regular file
        with content, target.open("xb") as sink:
            shutil.copyfileobj(content, sink, _CHUNK)
        target.chmod(0o755 if member.mode & 0o111 else 0o644)
    else:
        raise SdkError(f"{archive} holds {member.name}, which is no file, folder or link: it is not used")


def _refuse_leaving(name: str, reached: str, archive: Path) -> None:
    if reached.startswith("/") or posixpath.normpath(reached).split("/")[0] == "..":
        raise SdkError(f"{archive}: the link {name} leads out of it, to {reached}: it is not used")


def _read_manifest(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path) -> list[str]:
    """Write the manifest and return the base folders in it. Raises SdkError for another first member."""
    content = tar.extractfile(member) if member.name == ARTIFACT_MANIFEST and member.isreg() else None
    if content is None:
        raise SdkError(
            f"{archive} is no artifact: its first member is not {ARTIFACT_MANIFEST}", tip=_DAMAGED_TIP
        )
    text = content.read()
    try:
        lines = [line.strip() for line in text.decode("utf-8").splitlines()]
    except UnicodeDecodeError as cause:
        raise SdkError(f"{ARTIFACT_MANIFEST} of {archive} is not text in UTF-8", tip=_DAMAGED_TIP) from cause
    folder.mkdir(parents=True)
    (folder / ARTIFACT_MANIFEST).write_bytes(text)
    return [posixpath.normpath(line) for line in lines if line]
