"""Which wheel files the installed distributions are of: results are evidence for those files alone.

An installer leaves no digest of a wheel that came from an index. So a wheel that is named, or that
direct_url.json names (PEP 610), is compared with what is installed: by the digests of all its files in both
RECORDs, and by those of the files on the disk, which somebody may have changed since.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name

from rocm_wheels import log
from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.testing.target import Distribution
from rocm_wheels.wheels.members import digest_of_file
from rocm_wheels.wheels.record import encode_digest, parse_record

_TIP = "install the wheels that are to be tested, or name those that are installed: --wheels"


def wheels_under_test(installed: Iterable[Distribution], given: Sequence[Path]) -> dict[str, str]:
    """Return the sha256 of the wheels that are installed, by file name.

    ``given`` are wheels, which must be what is installed, and folders of wheels: of each project there that
    is installed, one of its wheels must be. Without any, what direct_url.json says. Raises UsageError for a
    wheel that is not installed or is another one than that which is, and where the torch that is installed
    is of none of them; DataError for a file that is no wheel.
    """
    there: dict[str, Distribution] = {canonicalize_name(one.name): one for one in installed}
    if not given:
        return _from_urls(there.values())
    found: dict[str, str] = {}
    for path in given:
        if not path.exists():
            raise UsageError(f"there is no wheel {path}")
        found.update(_of_folder(path, there) if path.is_dir() else _of_wheel(path, there))
    if not any(canonicalize_name(name.split("-")[0]) == "torch" for name in found):
        names = ", ".join(map(str, given))
        raise UsageError(f"the torch that is installed is of no wheel in {names}", tip=_TIP)
    return found


def _of_wheel(wheel: Path, there: Mapping[str, Distribution]) -> dict[str, str]:
    fault = _why_not(wheel, there)
    if fault is not None:
        raise UsageError(f"{wheel.name} is not what is tested: {fault}", tip=_TIP)
    return {wheel.name: digest_of_file(wheel)}


def _of_folder(folder: Path, there: Mapping[str, Distribution]) -> dict[str, str]:
    """Return the wheels of a folder that are installed; of each project that is there, one must be."""
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    for wheel in sorted(folder.glob("*.whl")):
        name = canonicalize_name(wheel.name.split("-")[0])
        if (fault := _why_not(wheel, there)) is None:
            found[wheel.name] = digest_of_file(wheel)
        elif name in there:
            others.setdefault(name, f"{wheel.name}: {fault}")
    for name in {canonicalize_name(one.split("-")[0]) for one in found}:
        others.pop(name, None)
    for project, why in others.items():
        raise UsageError(f"the {project} that is installed is of no wheel in {folder}: {why}", tip=_TIP)
    return found


def _why_not(wheel: Path, there: Mapping[str, Distribution]) -> str | None:
    """Say why a wheel is not what is installed; None, when it is."""
    name = canonicalize_name(wheel.name.split("-")[0])
    if name not in there:
        return f"{name} is not installed"
    record = there[name].place / "RECORD"
    if not record.is_file():
        return f"{name} is installed without a RECORD"
    installed = {one.path: one.digest for one in parse_record(record.read_bytes(), name=str(record))}
    own = _record_of(wheel)
    changed = [path for path, digest in own.items() if installed.get(path) != digest]
    if changed:
        return f"{len(changed)} of its files are others in {record.parent}, among them {changed[0]}"
    return _changed(record.parent.parent, own)


def _changed(site: Path, digests: Mapping[str, str]) -> str | None:
    """Say which of the installed files is not any more what RECORD says; None, when all are."""
    for path, digest in digests.items():
        file = site / path
        if not file.is_file():
            return f"{file} is not there any more"
        if encode_digest(bytes.fromhex(digest_of_file(file))) != digest:
            return f"{file} was changed after it was installed"
    return None


def _record_of(wheel: Path) -> dict[str, str]:
    """Return the digests of a wheel's files that an installer leaves where they are."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", one)]
            if len(names) != 1:
                raise DataError(f"{wheel} has {len(names)} RECORDs, and a wheel has one")
            entries = parse_record(archive.read(names[0]), name=f"{wheel.name}/{names[0]}")
    except (OSError, zipfile.BadZipFile) as cause:
        raise DataError(f"{wheel} is no wheel") from cause
    moved = f"{names[0].split('.dist-info')[0]}.data/"
    return {one.path: one.digest for one in entries if one.digest and not one.path.startswith(moved)}


def _from_urls(installed: Iterable[Distribution]) -> dict[str, str]:
    """Return the wheels that direct_url.json names: by its digest, or (uv notes none) by the file itself."""
    found = {}
    for one in installed:
        url = urlsplit(str((one.url or {}).get("url", "")))
        archive: Mapping[str, Any] = (one.url or {}).get("archive_info") or {}
        old = str(archive.get("hash", "")).partition("=")
        digest = (archive.get("hashes") or {}).get("sha256") or (old[2] if old[0] == "sha256" else "")
        name = unquote(url.path).rpartition("/")[2]
        wheel = Path(url2pathname(url.path)) if url.scheme == "file" else None
        if not name.endswith(".whl") or not (digest or (wheel and wheel.is_file())):
            continue
        there: dict[str, Distribution] = {canonicalize_name(one.name): one}
        fault = _why_not(wheel, there) if wheel and wheel.is_file() else _own_changes(one)
        if fault is None and not digest and wheel:
            digest = digest_of_file(wheel)
        if fault is not None:
            log.warn(f"the results are no evidence for {name}: {fault}")
        elif digest:
            found[name] = str(digest)
    return dict(sorted(found.items()))


def _own_changes(one: Distribution) -> str | None:
    """Say which file of a distribution is not what its own RECORD says; scripts may be (their first line)."""
    record = one.place / "RECORD"
    if not record.is_file():
        return f"{one.name} is installed without a RECORD"
    entries = parse_record(record.read_bytes(), name=str(record))
    own = {one.path: one.digest for one in entries if one.digest and not one.path.startswith("..")}
    return _changed(record.parent.parent, own)
