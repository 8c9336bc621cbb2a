"""Unpack the development tree on first use, and link the device packages' files into it.

The tree comes as an archive, because a wheel can hold no links. It is unpacked beside the
runtime packages, whose files it links to. What is about to be written goes into the
package's RECORD first and a mark is written last: an interrupted unpacking is never taken
for a tree, is done again by the next call, and is removed by an uninstall in any case.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import posixpath
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from ._dist_info import __version__
from ._packages import module_folder

TREE = "_rocm_sdk_devel"
LIBRARIES = "_rocm_sdk_libraries"
_MARK = ".unpacked.json"
_LISTING = "_devel_files.txt"


class BrokenInstallation(ImportError):
    """The installed packages cannot be made into a development tree."""


def devel_root() -> Path:
    """Return the root of the development tree, unpacked and with all device files linked.

    ModuleNotFoundError when ``rocm-sdk-devel`` is not installed, BrokenInstallation when it
    is damaged or of another version than the rest.
    """
    package = module_folder("rocm_sdk_devel", "devel")
    root = package.parent / TREE
    archive = _archive(package)
    if archive is not None or not _is_complete(root):
        with _alone(package):
            _unpack(package, root)
    _link_devices(package, root)
    return root


def _archive(package: Path) -> Path | None:
    path = package / "_devel.tar"
    return path if path.is_file() else None


def _is_complete(root: Path) -> bool:
    try:
        mark = json.loads((root / _MARK).read_text(encoding="utf-8"))
        return bool(mark["version"] == __version__)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False


def _unpack(package: Path, root: Path) -> None:
    """Unpack the archive and remove it; only with the lock held."""
    archive = _archive(package)
    site = package.parent
    if archive is None:
        if _is_complete(root):
            return
        raise BrokenInstallation(
            f"{root} is incomplete and the archive it came from is gone;"
            f" pip install --force-reinstall --no-deps rocm-sdk-devel=={__version__}"
        )
    record = _record(site, "rocm_sdk_devel")
    if not _is_complete(root):
        if root.exists():
            shutil.rmtree(root)
        names = (package / _LISTING).read_text(encoding="utf-8").splitlines()
        for name in names:
            if posixpath.normpath(name) != name or not name.startswith(f"{TREE}/"):
                raise BrokenInstallation(f"{package / _LISTING} names {name}, which is outside {TREE}")
        _change_record(record, add=[*names, f"{TREE}/{_MARK}"])
        listed = set(names)
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name not in listed:
                    raise BrokenInstallation(f"{archive} holds {member.name}, which {_LISTING} does not name")
                _place(tar, member, site)
        _write(root / _MARK, json.dumps({"version": __version__}) + "\n")
    archive.unlink()
    _change_record(record, remove=[archive.relative_to(site).as_posix()])


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, site: Path) -> None:
    target = site / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))
        if reached.startswith(f"{TREE}/") and sys.platform != "win32":
            target.symlink_to(member.linkname)
            return
        # Programs look for their own tree through /proc/self/exe, which follows symbolic links:
        # what belongs to a sibling package is the same file here, not a link to it.
        _share(site / reached, target)
        return
    source = tar.extractfile(member)
    if source is None:
        raise BrokenInstallation(f"{member.name} is neither file, folder nor link")
    with source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    target.chmod(member.mode & 0o777)


def _share(source: Path, target: Path) -> None:
    """Give ``target`` the content of ``source``: the same file where the system allows it."""
    if not source.is_file():
        raise BrokenInstallation(f"{source} is missing; install the ROCm packages again, all of one version")
    try:
        os.link(source.resolve(), target)
    except FileExistsError:
        return
    except OSError:
        # Another file system, or a file of another user.
        part = target.with_name(f"{target.name}.part")
        shutil.copy2(source, part)
        part.replace(target)


def _link_devices(package: Path, root: Path) -> None:
    """Give the tree the files of every installed device package."""
    site = package.parent
    for manifest in sorted((site / LIBRARIES / ".devel_links").glob("*.json")):
        target = manifest.stem
        version, links = _device_links(manifest)
        if _without_post(version) != _without_post(__version__):
            raise BrokenInstallation(
                f"rocm-sdk-device-{target} {version} does not belong to ROCm {__version__};"
                f" pip install rocm-sdk-device-{target}=={__version__}"
            )
        if all((root / relative).exists() for relative, _ in links):
            continue
        with _alone(package):
            record = _record(site, f"rocm_sdk_device_{target}")
            _change_record(record, add=[f"{TREE}/{relative}" for relative, _ in links])
            for relative, text in links:
                place = root / relative
                place.parent.mkdir(parents=True, exist_ok=True)
                _share(site / posixpath.normpath(f"{posixpath.dirname(f'{TREE}/{relative}')}/{text}"), place)


def _device_links(manifest: Path) -> tuple[str, list[tuple[str, str]]]:
    """Return a device package's version, and the path and link text of each of its files."""
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        return str(content["version"]), [(link["relpath"], link["target"]) for link in content["links"]]
    except (ValueError, KeyError, TypeError) as cause:
        raise BrokenInstallation(
            f"{manifest} is damaged;"
            f" pip install --force-reinstall --no-deps rocm-sdk-device-{manifest.stem}=={__version__}"
        ) from cause


def _without_post(version: str) -> str:
    return re.sub(r"\.post\d+", "", version)


def _record(site: Path, name: str) -> Path:
    records = [path / "RECORD" for path in site.glob(f"{name}-*.dist-info") if (path / "RECORD").is_file()]
    if len(records) != 1:
        raise BrokenInstallation(
            f"{len(records)} installations of {name.replace('_', '-')} with a RECORD in {site}, not one:"
            " without it the development tree could never be uninstalled; install into a virtual environment"
        )
    return records[0]


def _change_record(record: Path, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
    """Add and remove rows (path, no digest, no size) of a RECORD; it changes whole or not at all."""
    with record.open(encoding="utf-8", newline="") as file:
        rows = {row[0]: row for row in csv.reader(file) if row}
    changed = {path: row for path, row in rows.items() if path not in set(remove)}
    for path in add:
        changed.setdefault(path, [path, "", ""])
    if list(changed) != list(rows):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(changed.values())
        _write(record, text.getvalue())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _alone(package: Path) -> Iterator[None]:
    """Hold the lock of the installation; it ends with the process, however that ends."""
    with (package / "_lock").open("r+b") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:
                    continue  # LK_LOCK gives up after ten seconds, we do not
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
