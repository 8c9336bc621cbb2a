"""Which wheel files the installed distributions are of: results are evidence for those files alone.

An installer leaves no digest of a wheel that came from an index. So a wheel that is named is compared with
what is installed, by the digests of all its files in both RECORDs; else direct_url.json tells (PEP 610).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.testing.target import Distribution
from rocm_wheels.wheels.members import digest_of_file
from rocm_wheels.wheels.record import parse_record


def wheels_under_test(installed: Iterable[Distribution], given: Sequence[Path]) -> dict[str, str]:
    """Return the sha256 of the wheels that are installed, by file name.

    ``given`` are wheels, which must be what is installed, and folders of wheels, of which those count that
    are. Without any, what direct_url.json says. Raises UsageError for a wheel that is not installed or is
    another one than that which is, DataError for a file that is no wheel.
    """
    there: dict[str, Distribution] = {canonicalize_name(one.name): one for one in installed}
    if not given:
        return _from_urls(there.values())
    found = {}
    for path in given:
        if not path.exists():
            raise UsageError(f"there is no wheel {path}")
        for wheel in sorted(path.glob("*.whl")) if path.is_dir() else [path]:
            fault = _why_not(wheel, there)
            if fault is None:
                found[wheel.name] = digest_of_file(wheel)
            elif not path.is_dir():
                raise UsageError(f"{wheel.name} is not what is tested: {fault}")
    if not found:
        raise UsageError(f"nothing that is installed is of a wheel in {', '.join(map(str, given))}")
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
    found = {}
    for one in installed:
        archive: Mapping[str, Any] = (one.url or {}).get("archive_info") or {}
        old = str(archive.get("hash", "")).partition("=")
        digest = (archive.get("hashes") or {}).get("sha256") or (old[2] if old[0] == "sha256" else "")
        name = unquote(urlsplit(str((one.url or {}).get("url", ""))).path).rpartition("/")[2]
        if digest and name.endswith(".whl"):
            found[name] = str(digest)
    return dict(sorted(found.items()))
