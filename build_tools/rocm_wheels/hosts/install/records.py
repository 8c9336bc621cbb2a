"""RECORD of wheels and of what was installed of them: is this installation of that very file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.hosts.install.offers import Offer
from rocm_wheels.hosts.installed.distributions import Distribution
from rocm_wheels.index.reach import local_path, past_proxies
from rocm_wheels.wheels.record import RecordEntry, parse_record

_MOST_NAMED = 3


def wheel_record(offer: Offer, path: Path | None) -> list[RecordEntry] | None:
    """Return the lines of a wheel's RECORD: of the file where it is here and whole, else by ranges.

    None when the server gives no ranges: then only the whole file tells; and of a source distribution.
    """
    if offer.is_sdist:
        return None
    here = path or local_path(offer.url)
    if here is not None:
        try:
            with zipfile.ZipFile(here) as archive:
                return _read(archive, offer.name)
        except (OSError, zipfile.BadZipFile, zlib.error):  # a cache may rot; fetching tells of it
            if local_path(offer.url) is not None:
                return None
    from remotezip import RemoteZip, RemoteZipError  # type: ignore[import-untyped]
    from requests import RequestException, Session

    try:
        with Session() as session, RemoteZip(offer.url, session=past_proxies(session), timeout=60) as archive:
            return _read(archive, offer.name)
    except (RemoteZipError, RequestException, OSError, zipfile.BadZipFile, zlib.error):
        return None


def differences(entries: list[RecordEntry], installed: Distribution) -> list[str]:
    """Return how an installation differs from a wheel's RECORD; [] when it was made of that wheel.

    Installers move what lies in ``.data`` folders, change scripts and write RECORD: these do not count.
    The digests are those that the installer noted; of the files themselves place and size are looked at.
    """
    try:
        there = {one.path: one for one in parse_record(_installed_record(installed), name="RECORD")}
    except (OSError, DataError) as cause:
        return [f"its RECORD cannot be read: {cause}"]
    other, gone = [], []
    for one in entries:
        if not one.digest or ".data/" in one.path or one.path.split("/")[0].endswith(".data"):
            continue
        noted = there.get(one.path)
        if noted is None or noted.digest != one.digest:
            other.append(one.path)
            continue
        file = installed.place / one.path
        if not file.is_file() or (one.size is not None and file.stat().st_size != one.size):
            gone.append(one.path)
    found = [f"{_some(other)} of another build"] if other else []
    return found + ([f"{_some(gone)} missing or cut short"] if gone else [])


def _read(archive: zipfile.ZipFile, name: str) -> list[RecordEntry]:
    found = [one for one in archive.namelist() if one.count("/") == 1 and one.endswith(".dist-info/RECORD")]
    if len(found) != 1:
        raise DataError(f"{name} has {len(found)} files RECORD: a wheel has exactly one")
    return parse_record(archive.read(found[0]), name=f"{name}: RECORD")


def _installed_record(installed: Distribution) -> bytes:
    return (installed.info / "RECORD").read_bytes()


def _some(paths: list[str]) -> str:
    shown = ", ".join(paths[:_MOST_NAMED])
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return f"{shown}{more} {'is' if len(paths) == 1 else 'are'}"
