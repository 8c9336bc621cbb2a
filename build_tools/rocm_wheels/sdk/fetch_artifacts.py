"""Fetch artifacts of a ROCm build: download, check, unpack; install a whole ROCm tree of them.

| in the folder | what it is |
|---|---|
| ``<artifact>/`` | an artifact, unpacked; it appears whole |
| ``.fetch/parts/<file>/`` | a download under way |
| ``.fetch/<file>`` | an archive, checked, until it is unpacked |
| ``.fetch/done.json`` | which archive (sha256) each artifact was unpacked from; of a tree, all |

What is finished is not done again, whenever and wherever a run ended; two runs wait for each other.
Nothing is written outside of the folder that an archive is unpacked to.

A whole tree is installed from a run's artifacts or from a published tarball. It is made beside the folder, in
``.<name>.install/``, and takes its place when it is whole; until then the folder is what it was. Names of
tarballs: ROCm/TheRock at 89553ce3746eda74ade42557470d25e37c91b6f0, ``install_rocm_from_artifacts.py``.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.version import Version

from rocm_wheels.core import download, errors, log, parallel, process, progress, tables
from rocm_wheels.core.files import (
    hash_file,
    lock_folder,
    replace_folder,
    require_room,
    write_json_file,
)
from rocm_wheels.index import reader
from rocm_wheels.models import libraries
from rocm_wheels.sdk import artifact_sources, artifacts

STATE_FOLDER = ".fetch"
DOWNLOADS = 10  # at a time
TEST_PATTERN = r"_test_"
_FLAT_KEY = "."  # the key of a whole tree in done.json
_CHUNK = 1 << 20
_PATIENCE_FOR_OTHERS = 6 * 3600.0
_MOST_SHOWN = 5
_DATED = r"\d+\.\d+\.\d+(?:(?:a|rc)(?P<date>\d{8})|\.dev0\+[0-9a-f]+)"
_TARBALL = re.compile(
    rf"therock-dist-(?P<platform>linux|windows)-(?P<group>.+)-(?P<version>{_DATED}|\d+\.\d+\.\d+)\.tar\.gz"
)


class _BadMemberError(Exception):
    """What an archive holds must not be unpacked, with the reason in words."""


def unpack(archive: Path, folder: Path, *, is_tree: bool = False) -> None:
    """Unpack an artifact, or a whole ROCm tree (``.tar.gz``), into a new folder; it is gone after a failure.

    The first member of an artifact is the manifest of base folders, and everything else lies below one of
    them. Raises SdkError.
    """
    from rocm_wheels.core import zstd

    openers: dict[str, Any] = {".zst": zstd.ZstdFile, ".xz": lzma.open}
    bases: list[str] | None = None
    folder.mkdir(parents=True)
    try:
        with (
            openers.get(archive.suffix, gzip.open)(archive, "rb") as stream,
            tarfile.open(mode="r|", fileobj=stream) as tar,
        ):
            for member in tar:
                process.wait_or_stop(0)
                if is_tree or bases is not None:
                    _unpack_member(tar, member, folder, bases)
                    continue
                if member.name != artifacts.ARTIFACT_MANIFEST or not member.isreg():
                    raise _BadMemberError(f"no artifact: it begins without {artifacts.ARTIFACT_MANIFEST}")
                _unpack_member(tar, member, folder, None)
                text = (folder / member.name).read_text(encoding="utf-8", errors="strict")
                bases = [posixpath.normpath(line) for line in text.split("\n") if line.strip()]
            if bases is None and not is_tree:
                raise _BadMemberError("no artifact: it is empty")
            while stream.read(_CHUNK):  # to its end: a checksum is there
                process.wait_or_stop(0)
    except (_BadMemberError, UnicodeDecodeError) as cause:
        failure = errors.SdkError(f"{archive} is not used: {cause}", tip="delete it and fetch it again")
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, zstd.ZstdError):
        failure = errors.SdkError(f"{archive} is cut or damaged", tip="delete it and fetch it again")
    except OSError as cause:
        failure = errors.SdkError(
            f"{archive.name} cannot be unpacked into {folder}: {cause.strerror or cause}",
            tip="free some space and run the same command again; what was fetched is kept",
        )
    else:
        return
    shutil.rmtree(folder, ignore_errors=True)  # room for others
    raise failure


def _unpack_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, bases: Sequence[str] | None
) -> None:
    """Write a member: a file, folder or link that stays in the folder, and below one of ``bases``."""
    parts = [part for part in PurePosixPath(member.name).parts if part != "."]
    if bases is None and not parts:
        return  # the folder itself
    name, target = "/".join(parts), folder.joinpath(*parts)
    is_below = bases is None or any(
        f"{name}/".startswith(f"{base}/") or (member.isdir() and base.startswith(f"{name}/"))
        for base in bases
    )
    fault = ""
    if member.name.startswith("/") or ".." in parts or not parts or "\\" in member.name:
        fault = f"{member.name} leads out of it"
    elif not is_below:
        fault = f"its {artifacts.ARTIFACT_MANIFEST} does not name {name}"
    elif any(above.is_symlink() for above in target.parents if above.is_relative_to(folder)):
        fault = f"it writes {name} through a link"
    elif not (member.isdir() or member.isreg() or member.issym() or member.islnk()):
        fault = f"{name} is no file, folder or link"
    elif member.linkname and artifacts.leads_out(name if member.issym() else "", member.linkname):
        fault = f"the link {name} leads out of it, to {member.linkname}"
    if fault:
        raise _BadMemberError(fault)
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(exist_ok=True)
        return
    if target.is_symlink() or target.is_file():
        target.unlink()  # the later one of two counts, as for tar
    if member.issym():
        target.symlink_to(member.linkname)
    elif member.islnk():
        linked = folder.joinpath(*PurePosixPath(member.linkname).parts)
        if linked.is_symlink() or not linked.is_file():
            raise _BadMemberError(f"{name} is another name of {member.linkname}, which is no file")
        target.hardlink_to(linked)
    else:
        content = tar.extractfile(member)
        assert content is not None  # a regular file
        with content, target.open("xb") as sink:
            shutil.copyfileobj(content, sink, _CHUNK)
        target.chmod(0o755 if member.mode & 0o111 else 0o644)


@dataclass(frozen=True)
class FetchRequest:
    """Which archives of a source to fetch, and the folder that what is in them comes to."""

    source: artifact_sources.ArtifactSource
    archives: Sequence[artifact_sources.ArchiveName]
    folder: Path

    @property
    def size(self) -> int | None:
        """How many bytes all archives have, ``None`` when the source does not say."""
        sizes = [self.source.files.get(archive.file) for archive in self.archives]
        return None if None in sizes else sum(size or 0 for size in sizes)


Digests = Mapping[str, "str | None"]
"""The sha256 (hex) of archives by their names; ``None`` where none is published."""


def fetch_archives(request: FetchRequest, digests: Digests | None = None) -> tuple[Path, ...]:
    """Have all archives of a request here, each checked and unpacked; return the folders of the artifacts.

    ``digests`` are those of ``read_digests``, where that was asked before. Raises SdkError; what is there is
    kept.
    """
    with _open_run(request, read_digests(request) if digests is None else digests) as run:
        return run.unpack_all()


def read_digests(request: FetchRequest, *, required: bool = True) -> Digests:
    """Return the digest of every archive of a request. Raises SdkError when one is missing, and required."""
    names, reach = [archive.file for archive in request.archives], reader.IndexReader()
    read = parallel.run_in_parallel(
        lambda name: request.source.read_digest(name, reach), names, jobs=DOWNLOADS
    )
    missing = [name for name, digest in zip(names, read, strict=True) if digest is None]
    if missing and required:
        others = tables.format_count(len(missing) - 1, "other archive")
        raise errors.SdkError(
            f"{request.source.label} has no {missing[0]}.sha256sum"
            f"{f', and none of {others}' if missing[1:] else ''}",
            tip="an artifact is not taken unchecked: take it from where its digest is published, too",
        )
    return dict(zip(names, read, strict=True))


@contextlib.contextmanager
def _open_run(request: FetchRequest, digests: Digests) -> Iterator[_FetchRun]:
    """Give a run that has the folder for itself."""
    state = request.folder / STATE_FOLDER
    lock = lock_folder(
        state, purpose="fetching artifacts", patience=_PATIENCE_FOR_OTHERS, error=errors.SdkError
    )
    with lock, progress.show_downloads() as begin:
        for leftover in state.glob("unpacking-*"):
            shutil.rmtree(leftover)  # of a run that was killed; we are alone here
        yield _FetchRun(request, digests, begin)


class _FetchRun:
    """One run, which has the folder for itself."""

    def __init__(self, request: FetchRequest, digests: Digests, begin: progress.BeginFile) -> None:
        self._request, self._digests, self._begin = request, digests, begin
        self._state = request.folder / STATE_FOLDER
        self._done = _read_done(request.folder)
        self._lock = threading.Lock()
        self._unpackings = threading.Semaphore(os.cpu_count() or 1)

    def unpack_all(self) -> tuple[Path, ...]:
        """Have every artifact in a folder of its own."""
        request = self._request
        absent = [
            archive
            for archive in request.archives
            if self._done.get(archive.stem) != {archive.file: self._digests[archive.file]}
            or not (request.folder / archive.stem).is_dir()
        ]
        sizes = [
            request.source.files.get(archive.file) or 0
            for archive in absent
            # those of a folder of this machine are unpacked where they lie
            if request.source.kind != "folder" and not (self._state / archive.file).exists()
        ]
        instead = "name a folder on another disk with --output-dir"
        require_room(request.folder, sum(sizes), "fetched", error=errors.SdkError, instead=instead)
        if not absent:
            count = tables.format_count(len(request.archives), "artifact")
            log.log_note(f"{count} in {request.folder}: up to date")
        parallel.run_in_parallel(self._unpack, absent, jobs=DOWNLOADS)
        return tuple(request.folder / archive.stem for archive in request.archives)

    def _unpack(self, archive: artifact_sources.ArchiveName) -> None:
        """Have an artifact in its folder, whole."""
        path, sha256 = self.obtain(archive)
        with self._unpackings:
            fresh = self._state / f"unpacking-{archive.stem}"
            unpack(path, fresh)
            self._record_digest(archive, None)
            replace_folder(fresh, self._request.folder / archive.stem, self._state / f"{fresh.name}.old")
            self._record_digest(archive, sha256)
            (self._state / archive.file).unlink(missing_ok=True)

    def obtain(self, archive: artifact_sources.ArchiveName) -> tuple[Path, str]:
        """Return an archive that is whole, and its sha256: one that is here, of this machine, or new."""
        import requests

        source, path = self._request.source, self._state / archive.file
        digest = self._digests[archive.file]
        if path.is_file():
            sha256 = hash_file(path)
            if sha256 == digest:
                return path, sha256
            log.log_warning(f"{path} is not the published file; fetching it again")
            path.unlink()
        url, size = source.locate(archive.file), source.files.get(archive.file)
        if (local := reader.path_of_url(url)) is not None:
            sha256 = hash_file(local)
            if digest not in (None, sha256):
                raise errors.SdkError(
                    f"{local} has the sha256 {sha256}, and must have {digest}", tip="copy it there again"
                )
            return local, sha256
        log.log_note(f"fetching {archive.file} ({tables.format_size(size)}) from {download.host_of_url(url)}")
        folder = self._state / "parts" / archive.file
        with requests.Session() as session:
            reader.bypass_proxies_locally(session)
            fetched = download.FileDownload(
                download.DownloadTarget(archive.file, url, digest, size),
                folder,
                session,
                self._begin(archive.file, size),
                download.DownloadPolicy(),
                error=errors.SdkError,
                option="--output-dir",
            ).run()
        os.replace(fetched.path, path)
        shutil.rmtree(folder)
        return path, fetched.sha256

    def _record_digest(self, archive: artifact_sources.ArchiveName, sha256: str | None) -> None:
        with self._lock:
            self._done.pop(archive.stem, None)
            if sha256 is not None:
                self._done[archive.stem] = {archive.file: sha256}
            write_json_file(self._state / "done.json", self._done)


def _read_done(folder: Path) -> dict[str, dict[str, str]]:
    """Return the archives (sha256 by name) that each artifact of a folder, or its flat tree, is of."""
    try:
        done = json.loads((folder / STATE_FOLDER / "done.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # nothing was finished here, or what says so was damaged: it is done again
    return done if isinstance(done, dict) else {}


def install_tree(request: FetchRequest, output: Path, *, tarball: bool = False) -> None:
    """Have a whole ROCm tree in ``output``: of artifacts, or of one ``tarball``.

    Raises SdkError; ``output`` is then what it was.
    """
    with _work_folder(output) as work:
        tree, used = work / "tree", work / "used"
        fetched = replace(request, folder=work / "artifacts")
        before, digests = _read_done(output).get(_FLAT_KEY), read_digests(request, required=not tarball)
        if tarball and before is not None:  # of those none is published; the version is in the name
            digests = {file: digest or before.get(file) for file, digest in digests.items()}
        if before == digests:
            log.log_note(f"{output} is up to date")
            return
        shutil.rmtree(used, ignore_errors=True)  # of a run that was killed
        if _read_done(tree).get(_FLAT_KEY) != digests:  # else a run made it, and was killed before the end
            shutil.rmtree(tree, ignore_errors=True)
            if tarball:
                with _open_run(fetched, digests) as run:
                    archive, sha256 = run.obtain(request.archives[0])
                unpack(archive, tree, is_tree=True)
                digests = {request.archives[0].file: sha256}
            else:
                _merge_archives(fetched, digests, tree)
            write_json_file(tree / STATE_FOLDER / "done.json", {_FLAT_KEY: digests})
        # what was fetched goes when the tree is whole, and before anybody can change the files of both
        if fetched.folder.exists():
            fetched.folder.rename(used)
            shutil.rmtree(used)
        replace_folder(tree, output, work / "old")


def _merge_archives(request: FetchRequest, digests: Digests, tree: Path) -> None:
    """Have all artifacts of a request in one new tree; what was fetched stays, for a run that is killed."""
    parts = {path.name for path in fetch_archives(request, digests)}
    found = artifacts.read_artifacts(request.folder, any_family=True)
    merged = artifacts.merge_artifacts(part for part in found if part.folder.name in parts)
    for relative, entry in merged.items():
        target = tree / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(entry.path, target, follow_symlinks=False)
        except OSError:  # a file system without hard links, or that takes two names for the same
            target.unlink(missing_ok=True)
            shutil.copy2(entry.path, target, follow_symlinks=False)


@contextlib.contextmanager
def _work_folder(output: Path) -> Iterator[Path]:
    """Give the folder that a tree is made in, to this run alone.

    Raises SdkError for an ``output`` with something else than a ROCm tree: nobody's work is thrown away.
    """
    work = output.parent / f".{output.name}.install"
    with lock_folder(work, purpose="installing ROCm", patience=_PATIENCE_FOR_OTHERS, error=errors.SdkError):
        old = work / "old"
        if old.exists() and not output.exists():
            old.rename(output)  # a run was killed between two renames
        is_ours = not os.path.lexists(output)
        if output.is_dir() and not output.is_symlink():
            is_rocm = (output / "share" / "therock").is_dir() or (output / "bin" / "hipcc").exists()
            is_ours = is_rocm or _FLAT_KEY in _read_done(output) or not any(output.iterdir())
        if not is_ours:
            raise errors.SdkError(
                f"{output} holds something else than a ROCm tree, which would be deleted",
                tip="name another folder with --output-dir, or delete it",
            )
        yield work


def find_tarball_folder(release: str | None) -> str:
    """Return where the tarball of a version, or the newest nightly one, is published. Raises UsageError."""
    folders = libraries.load_artifact_table().tarballs
    match = re.fullmatch(_DATED, release) if release is not None else None
    if release is not None and match is None:
        raise errors.UsageError(
            f"--release {release!r} is no version of a nightly or dev tarball",
            tip="for example: 7.11.0a20260119, 6.4.0rc20250416 or 6.4.0.dev0+8f6cdfc0",
        )
    return folders["nightly" if match is None or match["date"] else "dev"]


def choose_tarball(
    source: artifact_sources.ArtifactSource, platform: str, group: str, release: str | None
) -> artifact_sources.ArchiveName:
    """Return the tarball of a version, by default of the newest. Raises SdkError when there is none."""
    found = [match for name in source.files if (match := _TARBALL.fullmatch(name)) is not None]
    found = [m for m in found if m["platform"] == platform and not m["group"].endswith("-tests")]
    ours = [match for match in found if match["group"] == group]
    ours.sort(key=lambda match: (match["date"] or "", Version(match["version"])))
    if not ours:
        groups = ", ".join(sorted({match["group"] for match in found})) or "nobody"
        raise errors.SdkError(
            f"no tarball for {group} in {source.label}; there are some for {groups}",
            tip="name one of these with --artifact-group, or take artifacts with --run-id",
        )
    if fitting := [match[0] for match in ours if release in (None, match["version"])]:
        log.log_note(f"{fitting[-1]} of {source.label}")
        return artifact_sources.ArchiveName(
            fitting[-1], fitting[-1].removesuffix(".tar.gz"), "therock-dist", group
        )
    newest = ", ".join(match["version"] for match in ours[-_MOST_SHOWN:])
    raise errors.SdkError(
        f"no tarball of {release} for {group} in {source.label}; the newest are {newest}", tip="name one"
    )
