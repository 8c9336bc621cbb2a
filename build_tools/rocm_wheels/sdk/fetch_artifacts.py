"""Fetch artifacts of a ROCm build: list, choose, download, check, unpack; install a whole ROCm tree of them.

| in the folder | what it is |
|---|---|
| ``<artifact>/`` | an artifact, unpacked; it appears whole |
| ``.fetch/parts/<file>/`` | a download under way |
| ``.fetch/<file>`` | an archive, checked, until it is unpacked; one that is kept lies beside the folders |
| ``.fetch/done.json`` | which archive (sha256) each artifact, or the flat tree, was unpacked from |

What is finished is not done again, whenever and wherever a run ended; two runs wait for each other.
Nothing is written outside of the folder that an archive is unpacked to.

A whole tree is installed from a run's artifacts, from a published tarball, or from another folder. It is made
beside the folder, in ``.<name>.install/``, and takes its place when it is whole; until then
the folder is what it was. Names of tarballs: ROCm/TheRock at 89553ce3746eda74ade42557470d25e37c91b6f0,
``install_rocm_from_artifacts.py``.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import os
import posixpath
import re
import shutil
import tarfile
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from packaging.version import Version

from rocm_wheels.core import download, errors, log, parallel, process, progress, tables
from rocm_wheels.core.files import (
    copy_atomically,
    hash_file,
    lock_folder,
    measure_free_space,
    replace_folder,
    write_json_file,
)
from rocm_wheels.index import reader
from rocm_wheels.models import libraries
from rocm_wheels.sdk import artifact_sources, artifacts

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
                raise errors.SdkError(
                    f"{archive} holds {member.name}, which its {artifacts.ARTIFACT_MANIFEST} does not name",
                    tip=_DAMAGED_TIP,
                )
            _write_member(tar, member, folder, archive)
    if not bases:
        raise errors.SdkError(f"{archive} is no artifact: it is empty", tip=_DAMAGED_TIP)


def unpack_tree(archive: Path, folder: Path) -> None:
    """Unpack a whole ROCm tree (``.tar.gz``) into a new folder. Raises SdkError."""
    with _open_archive(archive) as tar:
        for member in tar:
            _refuse_interrupted()
            if PurePosixPath(member.name) != PurePosixPath():
                _write_member(tar, member, folder, archive)


def _refuse_interrupted() -> None:
    if process.is_interrupted():
        raise errors.RocmWheelsError("interrupted")


def _is_below(member: tarfile.TarInfo, bases: Sequence[str]) -> bool:
    """Tell whether a member lies in a base folder, or is one, or a folder above one."""
    name = member.name
    inside = any(name == base or name.startswith(f"{base}/") for base in bases)
    return inside or (member.isdir() and any(base.startswith(f"{name}/") for base in bases))


@contextlib.contextmanager
def _open_archive(archive: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive to be read once, in its order. Raises SdkError for what is found wrong with it."""
    from rocm_wheels.core import zstd

    try:
        with _open_stream(archive) as tar:
            yield tar
    except (*_DAMAGE_ERRORS, zstd.ZstdError) as cause:
        raise errors.SdkError(f"{archive} is cut or damaged", tip=_DAMAGED_TIP) from cause


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
        from rocm_wheels.core import zstd

        opener: Any = zstd.ZstdFile
    else:
        opener = lzma.open if archive.name.endswith(".xz") else gzip.open
    with opener(archive, "rb") as stream:
        yield stream


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path) -> None:
    parts = [part for part in PurePosixPath(member.name).parts if part != "."]
    if member.name.startswith("/") or ".." in parts or not parts or "\\" in member.name:
        raise errors.SdkError(f"{archive} holds {member.name}, which leads out of it: it is not used")
    target = folder.joinpath(*parts)
    if any(above.is_symlink() for above in target.parents if above.is_relative_to(folder)):
        raise errors.SdkError(f"{archive} writes {member.name} through a link: it is not used")
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
            raise errors.SdkError(
                f"{archive}: {member.name} is another name of {member.linkname}, which is no file"
            )
        target.hardlink_to(linked)
    elif member.isreg():
        content = tar.extractfile(member)
        assert content is not None  # a regular file
        with content, target.open("xb") as sink:
            shutil.copyfileobj(content, sink, _CHUNK)
        target.chmod(0o755 if member.mode & 0o111 else 0o644)
    else:
        raise errors.SdkError(
            f"{archive} holds {member.name}, which is no file, folder or link: it is not used"
        )


def _refuse_leaving(name: str, reached: str, archive: Path) -> None:
    if reached.startswith("/") or posixpath.normpath(reached).split("/")[0] == "..":
        raise errors.SdkError(f"{archive}: the link {name} leads out of it, to {reached}: it is not used")


def _read_manifest(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path) -> list[str]:
    """Write the manifest and return the base folders in it. Raises SdkError for another first member."""
    content = (
        tar.extractfile(member) if member.name == artifacts.ARTIFACT_MANIFEST and member.isreg() else None
    )
    if content is None:
        raise errors.SdkError(
            f"{archive} is no artifact: its first member is not {artifacts.ARTIFACT_MANIFEST}",
            tip=_DAMAGED_TIP,
        )
    text = content.read()
    try:
        lines = [line.strip() for line in text.decode("utf-8").splitlines()]
    except UnicodeDecodeError as cause:
        raise errors.SdkError(
            f"{artifacts.ARTIFACT_MANIFEST} of {archive} is not text in UTF-8", tip=_DAMAGED_TIP
        ) from cause
    folder.mkdir(parents=True)
    (folder / artifacts.ARTIFACT_MANIFEST).write_bytes(text)
    return [posixpath.normpath(line) for line in lines if line]


STATE_FOLDER = ".fetch"
FLAT_KEY = "."  # the key of the flat tree in done.json
_PATIENCE_FOR_OTHERS = 6 * 3600.0

Unpacking = Literal["extract", "flatten", "keep"]


@dataclass(frozen=True)
class FetchRequest:
    """What to fetch, to where. ``unpacking``: into a folder each, into one tree, or not at all.

    ``unchecked``: archives without a digest are taken as they come.
    """

    source: artifact_sources.ArtifactSource
    files: artifact_sources.FileSizes
    archives: Sequence[artifact_sources.ArchiveName]
    folder: Path
    unpacking: Unpacking = "extract"
    keep_archives: bool = False
    unchecked: bool = False
    downloads: int = 10
    unpackings: int = field(default_factory=lambda: os.cpu_count() or 1)
    policy: download.DownloadPolicy = field(default_factory=download.DownloadPolicy)

    @property
    def size(self) -> int | None:
        """How many bytes all archives have, ``None`` when the source does not say."""
        sizes = [self.files.get(archive.file) for archive in self.archives]
        return None if None in sizes else sum(size or 0 for size in sizes)


@dataclass(frozen=True)
class FetchResult:
    """What there is now: paths of artifacts, of archives, or of the one tree; which archives were new."""

    paths: tuple[Path, ...]
    fetched: tuple[str, ...]


def fetch_archives(request: FetchRequest, digests: Mapping[str, str | None] | None = None) -> FetchResult:
    """Have all archives of a request here, checked and unpacked. Raises SdkError; what is there is kept.

    ``digests`` are those of ``read_digests``, where that was asked before.
    """
    with (
        lock_folder(
            request.folder / STATE_FOLDER,
            purpose="fetching artifacts",
            patience=_PATIENCE_FOR_OTHERS,
            error=errors.SdkError,
        ),
        progress.show_downloads() as begin,
    ):
        return _FetchRun(request, begin).run(read_digests(request) if digests is None else digests)


def read_digests(request: FetchRequest) -> dict[str, str | None]:
    """Return the sha256 (hex) of every archive of a request. Raises SdkError when one is missing."""
    names, reach = [archive.file for archive in request.archives], reader.IndexReader()
    read = parallel.run_in_parallel(
        lambda name: artifact_sources.read_digest(request.source, name, request.files, reach),
        names,
        jobs=request.downloads,
    )
    digests = dict(zip(names, read, strict=True))
    missing = [name for name, digest in digests.items() if digest is None]
    if missing and not request.unchecked:
        raise errors.SdkError(
            f"{request.source.label} has no {missing[0]}.sha256sum"
            + (
                f", and none of {tables.format_count(len(missing) - 1, 'other archive')}"
                if missing[1:]
                else ""
            ),
            tip="archives cannot be checked without; --allow-missing-sha256sum takes them as they come",
        )
    if missing:
        log.log_warning(f"not checked, as no digest is published: {', '.join(missing)}")
    return digests


def read_flat_digests(folder: Path) -> dict[str, str] | None:
    """Return the archives (sha256 by name) that a tree was unpacked from, ``None`` for one of others."""
    flat = _read_done(folder / STATE_FOLDER).get(FLAT_KEY)
    return flat if isinstance(flat, dict) else None


def write_flat_digests(folder: Path, digests: Mapping[str, str]) -> None:
    """Note which archives a tree was unpacked from."""
    write_json_file(folder / STATE_FOLDER / "done.json", {FLAT_KEY: dict(digests)})


@dataclass(frozen=True)
class _Archive:
    """Where an archive, or what was unpacked from it, is; the sha256 (hex) of the archive."""

    path: Path
    sha256: str


class _FetchRun:
    """One run, which has the folder for itself."""

    def __init__(self, request: FetchRequest, begin: progress.BeginFile) -> None:
        self._request = request
        self._begin = begin
        self._state = request.folder / STATE_FOLDER
        self._done = _read_done(self._state)
        self._lock = threading.Lock()
        self._unpackings = threading.Semaphore(request.unpackings)
        self._fetched: list[str] = []

    def run(self, digests: Mapping[str, str | None]) -> FetchResult:
        request = self._request
        for leftover in self._state.glob("unpacking-*"):
            shutil.rmtree(leftover)  # of a run that was killed; we are alone here
        flat = self._done.get(FLAT_KEY)
        if request.unpacking == "flatten" and flat and all(flat.get(f) == d for f, d in digests.items()):
            log.log_note(f"{request.folder} is up to date")
            return FetchResult((request.folder,), ())
        self._require_space(digests)
        done = parallel.run_in_parallel(
            lambda archive: self._ensure_archive(archive, digests[archive.file]),
            request.archives,
            jobs=request.downloads,
        )
        if request.unpacking == "flatten":
            self._merge_trees(done)
            return FetchResult((request.folder,), tuple(sorted(self._fetched)))
        if not self._fetched:
            log.log_note(
                f"{tables.format_count(len(request.archives), 'artifact')} in {request.folder}: up to date"
            )
        return FetchResult(tuple(archive.path for archive in done), tuple(sorted(self._fetched)))

    def _require_space(self, digests: Mapping[str, str | None]) -> None:
        request = self._request
        if isinstance(request.source, artifact_sources.FolderSource) and request.unpacking != "keep":
            return  # unpacked from where they are
        size = sum(
            request.files.get(archive.file) or 0
            for archive in request.archives
            if not self._is_unpacked(archive, digests[archive.file])
            and not self._locate_archive(archive).exists()
        )
        free = measure_free_space(self._state)
        if size > free:
            raise errors.SdkError(
                (
                    f"{tables.format_size(size)} are to be fetched, and {request.folder} has room for "
                    f"{tables.format_size(free)}"
                ),
                tip="free some space, or name a folder on another disk with --output-dir",
            )

    def _ensure_archive(self, archive: artifact_sources.ArchiveName, digest: str | None) -> _Archive:
        """Return an archive whose artifact is here, fetched and unpacked if it was not."""
        request = self._request
        if request.unpacking == "extract" and digest and self._is_unpacked(archive, digest):
            return _Archive(request.folder / archive.stem, digest)
        packed = self._obtain_archive(archive, digest)
        if request.unpacking == "keep":
            return packed
        with self._unpackings:
            return self._unpack_archive(archive, packed)

    def _locate_archive(self, archive: artifact_sources.ArchiveName) -> Path:
        """Return where a checked archive lies."""
        keep = self._request.unpacking == "keep" or self._request.keep_archives
        return (self._request.folder if keep else self._state) / archive.file

    def _obtain_archive(self, archive: artifact_sources.ArchiveName, digest: str | None) -> _Archive:
        """Return an archive that is whole: the one that is here, one of this machine, or a new one."""
        request, path = self._request, self._locate_archive(archive)
        if path.is_file():
            sha256 = hash_file(path)
            if sha256 == digest:
                return _Archive(path, sha256)
            log.log_warning(f"{path} is not the published file; fetching it again")
            path.unlink()
        url, size = request.source.file_url(archive.file), request.files.get(archive.file)
        local = reader.path_of_url(url)
        if local is None:
            sha256 = self._download_archive(download.DownloadTarget(archive.file, url, digest, size), path)
        else:
            sha256 = hash_file(local)
            if digest not in (None, sha256):
                raise errors.SdkError(
                    f"{local} has the sha256 {sha256}, and must have {digest}", tip="copy it there again"
                )
            if path.parent == self._state:
                path = local
            else:
                copy_atomically(local, path)
        with self._lock:
            self._fetched.append(archive.file)
        return _Archive(path, sha256)

    def _download_archive(self, file: download.DownloadTarget, path: Path) -> str:
        import requests

        folder = self._state / "parts" / file.name
        log.log_note(
            f"fetching {file.name} ({tables.format_size(file.size)}) from {download.host_of_url(file.url)}"
        )
        with requests.Session() as session:
            reader.bypass_proxies_locally(session)
            fetched = download.FileDownload(
                file, folder, session, self._begin(file.name, file.size), self._request.policy,
                error=errors.SdkError, option="--output-dir",
            ).run()  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(fetched.path, path)
        shutil.rmtree(folder)
        return fetched.sha256

    def _unpack_archive(self, archive: artifact_sources.ArchiveName, packed: _Archive) -> _Archive:
        """Unpack an archive beside, then have it in its place, and say so."""
        request = self._request
        fresh = self._state / f"unpacking-{archive.stem}"
        _unpack_whole(packed.path, fresh)
        if request.unpacking == "flatten":
            return _Archive(fresh, packed.sha256)
        target = request.folder / archive.stem
        self._record_digests(archive.stem, None)
        replace_folder(fresh, target, self._state / f"unpacking-{archive.stem}.old")
        self._record_digests(archive.stem, {archive.file: packed.sha256})
        self._delete_archive(archive)
        return _Archive(target, packed.sha256)

    def _merge_trees(self, unpacked: Sequence[_Archive]) -> None:
        """Move what was unpacked into one tree. Files of the same name that differ are refused before."""
        request, before = self._request, self._done.get(FLAT_KEY) or {}
        staged = self._state / "unpacking-flat"
        staged.mkdir()
        for tree, archive in zip(unpacked, request.archives, strict=True):
            tree.path.rename(staged / archive.stem)
        merged = artifacts.merge_artifacts(artifacts.read_artifacts(staged, any_family=True))
        self._record_digests(FLAT_KEY, None)
        for relative, entry in merged.items():
            target = request.folder / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir() and not target.is_symlink():
                raise errors.SdkError(
                    f"{target} is a folder, and a file in {entry.artifact}",
                    tip="name an empty folder with --output-dir",
                )
            os.replace(entry.path, target)
        shutil.rmtree(staged)
        digests = {
            archive.file: tree.sha256 for archive, tree in zip(request.archives, unpacked, strict=True)
        }
        self._record_digests(FLAT_KEY, {**before, **digests})
        for archive in request.archives:
            self._delete_archive(archive)

    def _delete_archive(self, archive: artifact_sources.ArchiveName) -> None:
        """Delete an archive that was unpacked, unless it is to be kept."""
        if not self._request.keep_archives:
            (self._state / archive.file).unlink(missing_ok=True)

    def _is_unpacked(self, archive: artifact_sources.ArchiveName, digest: str | None) -> bool:
        noted = self._done.get(archive.stem, {}).get(archive.file)
        return noted is not None and noted == digest and (self._request.folder / archive.stem).is_dir()

    def _record_digests(self, key: str, digests: Mapping[str, str] | None) -> None:
        with self._lock:
            self._done.pop(key, None)
            if digests is not None:
                self._done[key] = dict(digests)
            write_json_file(self._state / "done.json", self._done)


def _read_done(state: Path) -> dict[str, dict[str, str]]:
    try:
        done = json.loads((state / "done.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # nothing was finished here, or what says so was damaged: it is done again
    return done if isinstance(done, dict) else {}


def _unpack_whole(archive: Path, folder: Path) -> None:
    try:
        unpack_artifact(archive, folder)
    except errors.SdkError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except OSError as cause:
        shutil.rmtree(folder, ignore_errors=True)  # room for others
        raise errors.SdkError(
            f"{archive.name} cannot be unpacked into {folder.parent.parent}",
            tip="free some space and run the same command again; what was fetched is kept",
        ) from cause


TEST_PATTERN = r"_test_"
_TARBALL = re.compile(
    r"therock-dist-(?P<platform>linux|windows)-(?P<group>.+)-"
    r"(?P<version>\d+\.\d+\.\d+(?:(?:a|rc)(?P<date>\d{8})|\.dev0\+[0-9a-f]+)?)\.tar\.gz"
)
_NIGHTLY = re.compile(r"\d+\.\d+\.\d+(?:a|rc)\d{8}")
_DEV = re.compile(r"\d+\.\d+\.\d+\.dev0\+[0-9a-f]+")
_MOST_SHOWN = 5


@dataclass(frozen=True)
class Tarball:
    """A published ROCm tree; ``date`` is YYYYMMDD, "" for a version without one."""

    file: str
    group: str
    version: str
    date: str


def list_part_patterns(
    parts: Collection[str], files: artifact_sources.FileSizes, *, tests: bool, where: str
) -> tuple[str, ...]:
    """Return the patterns of what every ROCm tree has and of some parts. Raises SdkError for a part without.

    Parts are keys of ``data/rocm_artifacts.yaml``.
    """
    table = libraries.load_artifact_table()
    names = [archive.file for archive in artifact_sources.read_archive_names(files)]
    patterns = list(table.base)
    for part in parts:
        of_part = table.parts[part].list_patterns(parts, tests=tests)
        if not any(re.search(pattern, name) for pattern in of_part for name in names):
            raise errors.SdkError(
                f"no artifact for --{part} in {where}", tip="the build has it not: leave the option out"
            )
        patterns += of_part
    return tuple(dict.fromkeys(patterns))


def install_from_artifacts(request: FetchRequest, output: Path) -> bool:
    """Have a tree of these artifacts in ``output``; tell whether it was made anew. Raises SdkError."""
    with _work_folder(output) as work:
        digests = read_digests(request)
        if read_flat_digests(output) == digests:
            log.log_note(f"{output} is up to date")
            return False
        tree = work / "tree"
        _clear_unfinished(tree, digests)
        fetch_archives(replace(request, folder=tree, unpacking="flatten"), digests)
        replace_folder(tree, output, work / "old")
    return True


def install_tarball(request: FetchRequest, output: Path) -> bool:
    """Have the tree of a published tarball in ``output``; tell whether it was made anew. Raises SdkError."""
    (archive,) = request.archives
    with _work_folder(output) as work:
        before, digests = read_flat_digests(output) or {}, read_digests(request)
        if before.keys() == {archive.file} and digests[archive.file] in (None, before[archive.file]):
            log.log_note(f"{output} is up to date")
            return False
        (path,) = fetch_archives(replace(request, folder=work, unpacking="keep"), digests).paths
        tree = work / "tree"
        if tree.exists():
            shutil.rmtree(tree)
        tree.mkdir()
        unpack_tree(path, tree)
        write_flat_digests(tree, {archive.file: hash_file(path)})
        replace_folder(tree, output, work / "old")
        path.unlink()
    return True


def install_folder(source: Path, output: Path) -> None:
    """Have a copy of a ROCm tree in ``output``. Raises SdkError."""
    if not source.is_dir():
        raise errors.SdkError(f"{source} is not a folder", tip="name a ROCm tree with --input-dir")
    if output.resolve().is_relative_to(source.resolve()) or source.resolve().is_relative_to(output.resolve()):
        raise errors.SdkError(
            f"{source} and {output} lie in one another", tip="name another folder with --output-dir"
        )
    with _work_folder(output) as work:
        tree = work / "tree"
        if tree.exists():
            shutil.rmtree(tree)
        shutil.copytree(source, tree, symlinks=True)
        write_flat_digests(tree, {})
        replace_folder(tree, output, work / "old")


def find_tarball_folder(release: str) -> str:
    """Return where the tarball of a version is published. Raises UsageError."""
    folders = libraries.load_artifact_table().tarballs
    if _NIGHTLY.fullmatch(release):
        return folders["nightly"]
    if _DEV.fullmatch(release):
        return folders["dev"]
    raise errors.UsageError(
        f"--release {release!r} is no version of a nightly or dev tarball",
        tip="for example: 7.11.0a20260119, 6.4.0rc20250416 or 6.4.0.dev0+8f6cdfc0",
    )


def choose_tarball(
    files: artifact_sources.FileSizes, platform: str, group: str, release: str | None, *, where: str
) -> artifact_sources.ArchiveName:
    """Return the tarball of a version, by default of the newest. Raises SdkError when there is none."""
    published = [
        tarball for tarball in _list_tarballs(files, platform) if not tarball.group.endswith("-tests")
    ]
    ours = sorted(
        (tarball for tarball in published if tarball.group == group),
        key=lambda tarball: (tarball.date, Version(tarball.version)),
    )
    if not ours:
        groups = sorted({tarball.group for tarball in published})
        raise errors.SdkError(
            f"no tarball for {group} in {where}; there are some for {', '.join(groups) or 'nobody'}",
            tip="name one of these with --artifact-group, or take artifacts with --run-id",
        )
    for tarball in ours if release is not None else ours[-1:]:
        if release in (None, tarball.version):
            log.log_note(f"{tarball.file} of {where}")
            return artifact_sources.ArchiveName(
                tarball.file, tarball.file.removesuffix(".tar.gz"), "therock-dist", "", group
            )
    newest = ", ".join(tarball.version for tarball in ours[-_MOST_SHOWN:])
    raise errors.SdkError(
        f"no tarball of {release} for {group} in {where}; the newest are {newest}", tip="name one"
    )


def _list_tarballs(files: artifact_sources.FileSizes, platform: str) -> Iterator[Tarball]:
    for name in files:
        match = _TARBALL.fullmatch(name)
        if match and match["platform"] == platform:
            yield Tarball(name, match["group"], match["version"], match["date"] or "")


def _clear_unfinished(tree: Path, digests: Mapping[str, str | None]) -> None:
    """Delete what a run that was killed left in a tree, but for archives under way, unless it is whole."""
    flat = read_flat_digests(tree)
    if flat is not None and flat != digests:
        shutil.rmtree(tree)  # of other archives
    elif flat is None and tree.is_dir():
        for path in tree.iterdir():
            if path.is_dir() and not path.is_symlink():
                if path.name != STATE_FOLDER:
                    shutil.rmtree(path)
            else:
                path.unlink()


@contextmanager
def _work_folder(output: Path) -> Iterator[Path]:
    """Give the folder that a tree is made in, to this run alone. Raises SdkError."""
    work = output.parent / f".{output.name}.install"
    with lock_folder(work, purpose="installing ROCm", patience=_PATIENCE_FOR_OTHERS, error=errors.SdkError):
        old = work / "old"
        if old.exists() and not output.exists():
            old.rename(output)  # a run was killed between two renames
        _require_replaceable(output)
        yield work


def _require_replaceable(output: Path) -> None:
    """Raise SdkError for a folder with something else than a ROCm tree: nobody's work is thrown away."""
    if not output.exists() and not output.is_symlink():
        return
    if output.is_dir() and not output.is_symlink():
        is_rocm = (output / "share" / "therock").is_dir() or (output / "bin" / "hipcc").exists()
        if is_rocm or read_flat_digests(output) is not None or not any(output.iterdir()):
            return
    raise errors.SdkError(
        f"{output} holds something else than a ROCm tree, which would be deleted",
        tip="name another folder with --output-dir, or delete it",
    )
