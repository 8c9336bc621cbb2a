"""Install a whole ROCm tree into a folder: from a run's artifacts, from a published tarball, or from another
folder.

The tree is made beside the folder, in ``.<name>.install/``, and takes its place when it is whole; until then
the folder is what it was. Names of tarballs: ROCm/TheRock at 89553ce3746eda74ade42557470d25e37c91b6f0,
``install_rocm_from_artifacts.py``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from rocm_wheels.core import SdkError, UsageError, hash_file, lock_folder, log_note
from rocm_wheels.models import load_artifact_table
from rocm_wheels.sdk.artifact_sources import ArchiveName, FileSizes, read_archive_names
from rocm_wheels.sdk.fetch_artifacts import (
    STATE_FOLDER,
    FetchRequest,
    fetch_archives,
    read_digests,
    read_flat_digests,
    unpack_tree,
    write_flat_digests,
)

TEST_PATTERN = r"_test_"
_PATIENCE_FOR_OTHERS = 6 * 3600.0
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
    parts: Collection[str], files: FileSizes, *, tests: bool, where: str
) -> tuple[str, ...]:
    """Return the patterns of what every ROCm tree has and of some parts. Raises SdkError for a part without.

    Parts are keys of ``data/rocm_artifacts.yaml``.
    """
    table = load_artifact_table()
    names = [archive.file for archive in read_archive_names(files)]
    patterns = list(table.base)
    for part in parts:
        of_part = table.parts[part].list_patterns(parts, tests=tests)
        if not any(re.search(pattern, name) for pattern in of_part for name in names):
            raise SdkError(
                f"no artifact for --{part} in {where}", tip="the build has it not: leave the option out"
            )
        patterns += of_part
    return tuple(dict.fromkeys(patterns))


def install_from_artifacts(request: FetchRequest, output: Path) -> bool:
    """Have a tree of these artifacts in ``output``; tell whether it was made anew. Raises SdkError."""
    with _work_folder(output) as work:
        digests = read_digests(request)
        if read_flat_digests(output) == digests:
            log_note(f"{output} is up to date")
            return False
        tree = work / "tree"
        _clear_unfinished(tree, digests)
        fetch_archives(replace(request, folder=tree, unpacking="flatten"), digests)
        _put_in_place(tree, output, work)
    return True


def install_tarball(request: FetchRequest, output: Path) -> bool:
    """Have the tree of a published tarball in ``output``; tell whether it was made anew. Raises SdkError."""
    (archive,) = request.archives
    with _work_folder(output) as work:
        before, digests = read_flat_digests(output) or {}, read_digests(request)
        if before.keys() == {archive.file} and digests[archive.file] in (None, before[archive.file]):
            log_note(f"{output} is up to date")
            return False
        (path,) = fetch_archives(replace(request, folder=work, unpacking="keep"), digests).paths
        tree = work / "tree"
        if tree.exists():
            shutil.rmtree(tree)
        tree.mkdir()
        unpack_tree(path, tree)
        write_flat_digests(tree, {archive.file: hash_file(path)})
        _put_in_place(tree, output, work)
        path.unlink()
    return True


def install_folder(source: Path, output: Path) -> None:
    """Have a copy of a ROCm tree in ``output``. Raises SdkError."""
    if not source.is_dir():
        raise SdkError(f"{source} is not a folder", tip="name a ROCm tree with --input-dir")
    if output.resolve().is_relative_to(source.resolve()) or source.resolve().is_relative_to(output.resolve()):
        raise SdkError(
            f"{source} and {output} lie in one another", tip="name another folder with --output-dir"
        )
    with _work_folder(output) as work:
        tree = work / "tree"
        if tree.exists():
            shutil.rmtree(tree)
        shutil.copytree(source, tree, symlinks=True)
        write_flat_digests(tree, {})
        _put_in_place(tree, output, work)


def find_tarball_folder(release: str) -> str:
    """Return where the tarball of a version is published. Raises UsageError."""
    folders = load_artifact_table().tarballs
    if _NIGHTLY.fullmatch(release):
        return folders["nightly"]
    if _DEV.fullmatch(release):
        return folders["dev"]
    raise UsageError(
        f"--release {release!r} is no version of a nightly or dev tarball",
        tip="for example: 7.11.0a20260119, 6.4.0rc20250416 or 6.4.0.dev0+8f6cdfc0",
    )


def choose_tarball(
    files: FileSizes, platform: str, group: str, release: str | None, *, where: str
) -> ArchiveName:
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
        raise SdkError(
            f"no tarball for {group} in {where}; there are some for {', '.join(groups) or 'nobody'}",
            tip="name one of these with --artifact-group, or take artifacts with --run-id",
        )
    for tarball in ours if release is not None else ours[-1:]:
        if release in (None, tarball.version):
            log_note(f"{tarball.file} of {where}")
            return ArchiveName(tarball.file, tarball.file.removesuffix(".tar.gz"), "therock-dist", "", group)
    newest = ", ".join(tarball.version for tarball in ours[-_MOST_SHOWN:])
    raise SdkError(f"no tarball of {release} for {group} in {where}; the newest are {newest}", tip="name one")


def _list_tarballs(files: FileSizes, platform: str) -> Iterator[Tarball]:
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
    with lock_folder(work, purpose="installing ROCm", patience=_PATIENCE_FOR_OTHERS, error=SdkError):
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
    raise SdkError(
        f"{output} holds something else than a ROCm tree, which would be deleted",
        tip="name another folder with --output-dir, or delete it",
    )


def _put_in_place(tree: Path, output: Path, work: Path) -> None:
    old = work / "old"
    if old.exists():
        shutil.rmtree(old)
    if output.exists():
        output.rename(old)
    tree.rename(output)
    shutil.rmtree(old, ignore_errors=True)
