"""Compare what is installed with wheels (by RECORD) and with what packages require of each other."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors
from rocm_wheels.index import reader
from rocm_wheels.user import installed_packages, package_offers
from rocm_wheels.wheels import dist_info

InstalledVersions = Mapping[str, str]


def list_unmet_requirements(
    requires: Sequence[str], versions: InstalledVersions, markers: Mapping[str, str]
) -> list[str]:
    """Return the requirements that are not met by the versions that are there (by normalized name).

    Those of extras are left out: whether an extra is wanted, an installation does not say.
    """
    unmet = []
    for text in requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            unmet.append(f"{text} (not readable)")
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({**markers, "extra": ""}):
            continue
        version = versions.get(canonicalize_name(requirement.name))
        if version is None:
            unmet.append(f"{requirement.name}{requirement.specifier}, which is not there")
        elif not _is_met(requirement, version):
            unmet.append(f"{requirement.name}{requirement.specifier}, and {version} is there")
    return unmet


def list_broken_requirements(
    changed: Iterable[str],
    distributions: Iterable[installed_packages.InstalledDistribution],
    versions: InstalledVersions,
    markers: Mapping[str, str],
) -> list[str]:
    """Return what other packages of an environment require of changed ones, and no longer get."""
    names = set(changed)
    broken = []
    for distribution in distributions:
        if distribution.name in names:
            continue
        requirements = [text for text in distribution.requires if _get_project(text) in names]
        broken += [
            f"{distribution} requires {message}"
            for message in list_unmet_requirements(requirements, versions, markers)
        ]
    return broken


def _get_project(text: str) -> str:
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement:
        return ""


def _is_met(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


_MAX_NAMED = 3


def read_wheel_record(
    offer: package_offers.PackageOffer, path: Path | None
) -> list[dist_info.RecordEntry] | None:
    """Return the lines of a wheel's RECORD: of the file where it is here and whole, else by ranges.

    None when the server gives no ranges: then only the whole file tells; and of a source distribution.
    """
    if offer.is_sdist:
        return None
    local_file = path or reader.path_of_url(offer.url)
    if local_file is not None:
        try:
            with zipfile.ZipFile(local_file) as archive:
                return _read_record(archive, offer.name)
        except (OSError, zipfile.BadZipFile, zlib.error):  # a cache may rot; fetching tells of it
            if reader.path_of_url(offer.url) is not None:
                return None
    from remotezip import RemoteZip, RemoteZipError  # type: ignore[import-untyped]
    from requests import RequestException, Session

    try:
        with (
            Session() as session,
            RemoteZip(offer.url, session=reader.bypass_proxies_locally(session), timeout=60) as archive,
        ):
            return _read_record(archive, offer.name)
    except (RemoteZipError, RequestException, OSError, zipfile.BadZipFile, zlib.error):
        return None


def list_differences(
    entries: list[dist_info.RecordEntry], installed: installed_packages.InstalledDistribution
) -> list[str]:
    """Return how an installation differs from a wheel's RECORD; [] when it was made of that wheel.

    Installers move what lies in ``.data`` folders, change scripts and write RECORD: these do not count.
    The digests are those that the installer noted; of the files themselves place and size are looked at.
    """
    try:
        recorded = {
            entry.path: entry
            for entry in dist_info.parse_wheel_record(_read_installed_record(installed), name="RECORD")
        }
    except (OSError, errors.DataError) as cause:
        return [f"its RECORD cannot be read: {cause}"]
    changed, missing = [], []
    for entry in entries:
        if not entry.digest or ".data/" in entry.path or entry.path.split("/")[0].endswith(".data"):
            continue
        noted = recorded.get(entry.path)
        if noted is None or noted.digest != entry.digest:
            changed.append(entry.path)
            continue
        file = installed.site_folder / entry.path
        if not file.is_file() or (entry.size is not None and file.stat().st_size != entry.size):
            missing.append(entry.path)
    messages = [f"{_join_paths(changed)} of another build"] if changed else []
    return messages + ([f"{_join_paths(missing)} missing or cut short"] if missing else [])


def _read_record(archive: zipfile.ZipFile, name: str) -> list[dist_info.RecordEntry]:
    records = [
        member
        for member in archive.namelist()
        if member.count("/") == 1 and member.endswith(".dist-info/RECORD")
    ]
    if len(records) != 1:
        raise errors.DataError(f"{name} has {len(records)} files RECORD: a wheel has exactly one")
    return dist_info.parse_wheel_record(archive.read(records[0]), name=f"{name}: RECORD")


def _read_installed_record(installed: installed_packages.InstalledDistribution) -> bytes:
    return (installed.info / "RECORD").read_bytes()


def _join_paths(paths: list[str]) -> str:
    listed = ", ".join(paths[:_MAX_NAMED])
    remaining = f" and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
    return f"{listed}{remaining} {'is' if len(paths) == 1 else 'are'}"
