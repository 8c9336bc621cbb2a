"""Read a wheel or source distribution that an index is to have: its digest, its METADATA, its variant.

Digests may be given, in a file as ``sha256sum`` writes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log, tables
from rocm_wheels.core.files import hash_file
from rocm_wheels.index.folder import METADATA_SUFFIX, SDIST_SUFFIX, IndexEntry, parse_file_name
from rocm_wheels.wheels import dist_info
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.installer_slots import are_interchangeable
from rocm_wheels.wheels.scan import scan_wheel

_MOST_SHOWN = 20

_METADATA_FIELD = re.compile(
    rb"^(Name|Version|Requires-Python):[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE | re.IGNORECASE
)

_HEADERS_END = re.compile(rb"\n\r?\n")


@dataclass(frozen=True)
class WheelFileState:
    """A file of a wheel: its name, size and time (nanoseconds), and its place from the project page."""

    name: str
    size: int
    changed: int
    place: str


@dataclass(frozen=True)
class IndexedFile:
    """A file as it is to be listed, its project, its METADATA (None: the index has it, or it has none)."""

    project: str
    entry: IndexEntry
    metadata: bytes | None = None
    beside: bool = False  # the METADATA comes from a file beside the wheel


def read_wheel_file(
    path: Path,
    *,
    now: str,
    digest: str | None = None,
    place: str = "",
    startup_files: Collection[str] = (),
) -> IndexedFile:
    """Read a wheel or a source distribution whole; its ``digest``, where one is given, is taken at its word.

    ``now`` is when it is added; ``startup_files`` are globs of the ``.pth`` that may be inside. DataError for
    a file that is damaged, misnamed or dangerous, or whose variant breaks a rule.
    """
    if path.name.endswith(SDIST_SUFFIX):
        return _read_sdist(path, now=now, digest=digest, place=place)
    project, _, label = parse_file_name(path.name)
    status = path.stat()
    scan = scan_wheel(path, sha256=digest)
    if refusals := scan.list_refusals(startup_files):
        more = [f"{path}: {tables.format_count(len(refusals) - _MOST_SHOWN, 'more fault')}"]
        shown = refusals if len(refusals) <= _MOST_SHOWN else [*refusals[:_MOST_SHOWN], *more]
        is_allowable = not scan.list_refusals(startup_files=("*",))
        tip = "look at what it runs; --allow-pth NAME takes wheels with that file"
        raise errors.DataError(
            "\n".join(shown), tip=tip if is_allowable else "`rocm-wheels audit` says more of it"
        )
    folder = dist_info.list_dist_info_folders(member.name for member in scan.members)[0]
    content = scan.texts[f"{folder}/METADATA"]
    variant = None if label is None else _read_variant(scan.texts.get, f"{path}: ", folder, label)
    state = WheelFileState(path.name, status.st_size, status.st_mtime_ns, place)
    return IndexedFile(project, _make_entry(state, scan.sha256, now, content, variant), content)


def _describe_content(status: os.stat_result) -> tuple[int, int, int]:
    """Return what changes when a file is written to, or put in another's place; reading changes its atime."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_sdist(path: Path, *, now: str, digest: str | None, place: str) -> IndexedFile:
    project, _, _ = parse_file_name(path.name)
    status = path.stat()
    try:
        with tarfile.open(path, "r:gz") as archive:
            top = path.name.removesuffix(SDIST_SUFFIX)
            stated = archive.extractfile(f"{top}/PKG-INFO")
            python = read_requires_python(stated.read() if stated else b"", path.name)
            for _ in archive:  # to its end: a file that was cut is found here
                pass
    except (tarfile.TarError, EOFError, zlib.error, KeyError) as cause:
        raise errors.DataError(f"{path} is not a readable source distribution with a PKG-INFO") from cause
    sha256 = digest or hash_file(path)
    if _describe_content(path.stat()) != _describe_content(status):
        raise errors.DataError(f"{path} changed while it was read")
    state = WheelFileState(path.name, status.st_size, status.st_mtime_ns, place)
    return IndexedFile(project, _make_entry(state, sha256, now, None, None, python=python))


def read_listed_wheel(path: str, state: WheelFileState, *, now: str, digest: str) -> IndexedFile | None:
    """Take a wheel with a known digest and METADATA beside it at their word: it is not opened.

    None when it must be opened: there is no such file, it has a label, or is no wheel.
    """
    project, _, label = parse_file_name(state.name)
    if label is not None or state.name.endswith(SDIST_SUFFIX):
        return None
    try:
        with open(path + METADATA_SUFFIX, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    return IndexedFile(project, _make_entry(state, digest, now, content, None), content, beside=True)


def _make_entry(
    state: WheelFileState,
    sha256: str,
    now: str,
    metadata: bytes | None,
    variant: str | None,
    *,
    python: str = "",
) -> IndexEntry:
    return IndexEntry(
        name=state.name,
        size=state.size,
        changed=state.changed,
        sha256=sha256,
        uploaded=now,
        metadata="" if metadata is None else hashlib.sha256(metadata).hexdigest(),
        requires_python=python if metadata is None else read_requires_python(metadata, state.name),
        variant=variant,
        place=state.place,
    )


def read_metadata_and_variant(
    archive: WheelArchive, path: Path, label: str | None
) -> tuple[bytes, str | None]:
    """Return METADATA of a wheel and, with a label, its ``variant.json``; DataError when one is wrong."""
    folders = dist_info.list_dist_info_folders(entry.name for entry in archive.members)
    if len(folders) != 1:
        raise errors.DataError(f"{path}: {len(folders)} .dist-info folders: a wheel has exactly one")
    files = {entry.name: entry for entry in archive.members}
    where = f"{folders[0]}/METADATA"
    if where not in files:
        raise errors.DataError(f"{path}: {where} is missing")
    content = archive.read(files[where])
    metadata = dist_info.parse_metadata(content, name=f"{path}: {where}", variant_markers=True)
    faults = dist_info.compare_names(dist_info.parse_wheel_name(path.name), folders[0], metadata)
    if faults:
        raise errors.DataError("\n".join(f"{path}: {fault}" for fault in faults))
    if label is None:
        return content, None

    def read_file(name: str) -> bytes | None:
        return archive.read(files[name]) if name in files else None

    return content, _read_variant(read_file, f"{path}: ", folders[0], label)


def _read_variant(read_file: Callable[[str], bytes | None], prefix: str, folder: str, label: str) -> str:
    """Return the ``variant.json`` of a wheel with a label; DataError when it is missing or wrong."""
    from rocm_wheels.variants.document import VARIANT_FILE_NAME, read_wheel_document

    where = f"{folder}/{VARIANT_FILE_NAME}"
    content = read_file(where)
    if content is None:
        raise errors.DataError(f"{prefix}{where} is missing, the file name has the label {label}")
    document, notes = read_wheel_document(content, name=f"{prefix}{where}", label=label)
    if notes:
        log.log_note(
            f"{prefix}{where} is of an older form, which uv does not read; "
            "`rocm-wheels wheel stamp --replace` gives it a new one"
        )
    return document.to_json().decode()


def read_requires_python(metadata: bytes, file_name: str) -> str:
    """Return Requires-Python of a wheel's METADATA; DataError when that is of another wheel or wrong."""
    fields: dict[bytes, str] = {}
    for key, value in _METADATA_FIELD.findall(_HEADERS_END.split(metadata, maxsplit=1)[0]):
        fields.setdefault(key.lower(), value.decode("utf-8", "replace"))
    name, version, _ = parse_file_name(file_name)
    stated = fields.get(b"name", ""), fields.get(b"version", "")
    if canonicalize_name(stated[0]) != name or _parse_version(stated[1]) != version:
        raise errors.DataError(f"METADATA of {file_name} is of {' '.join(stated).strip() or 'nothing'}")
    python = fields.get(b"requires-python", "")
    if not _is_specifier(python):
        raise errors.DataError(f"METADATA of {file_name}: Requires-Python: {python!r} is not a specifier")
    return python


def requires_rocm(metadata: bytes, name: str) -> bool:
    """Tell whether METADATA require ROCm's packages, as every torch does that does not carry its ROCm."""
    requirements = dist_info.parse_metadata(
        metadata, name=f"METADATA of {name}", variant_markers=True
    ).requires_dist
    return any(canonicalize_name(Requirement(text.partition(";")[0]).name) == "rocm" for text in requirements)


_REQUIREMENT_NAME = re.compile(rb"^Requires-Dist: *([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)


def list_required_names(metadata: bytes) -> set[str]:
    """Return the projects that METADATA require, with whatever extra or marker, by their normalized names."""
    return {canonicalize_name(name.decode("ascii")) for name in _REQUIREMENT_NAME.findall(metadata)}


def find_mixed_rocm(names: Iterable[str], requires: Callable[[str], bool]) -> tuple[str, str] | None:
    """Return a wheel that does not require ROCm's packages and one that does, between which installers
    would choose.
    """
    by_version: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(names):
        if name.endswith(".whl"):
            by_version.setdefault(tuple(name.split("-", 2)[:2]), []).append(name)
    for same in by_version.values():
        for first, second in combinations(same, 2):
            if are_interchangeable(first, second) and (is_thin := requires(first)) != requires(second):
                return (second, first) if is_thin else (first, second)
    return None


@lru_cache(maxsize=4096)
def _parse_version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


@lru_cache(maxsize=512)
def _is_specifier(text: str) -> bool:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


_SHA256SUM_LINE = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>.+)")


def read_digests_file(path: Path) -> Mapping[str, str]:
    """Return digests (hex) by file name without folders; DataError with the line that is none.

    They are taken at their word; ``verify --full`` compares them with the files.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise errors.DataError(f"cannot read {path}") from cause
    digests: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        match = _SHA256SUM_LINE.fullmatch(line)
        if not match:
            raise errors.DataError(
                f"{path}:{number}: {line[:80]!r} is not a line of sha256sum",
                tip="for example: sha256sum *.whl > SHA256SUMS",
            )
        name = match["name"].rpartition("/")[2]
        digest = match["digest"].lower()
        if digests.setdefault(name, digest) != digest:
            raise errors.DataError(
                f"{path}:{number}: {name} is listed with two digests: {digests[name]}, {digest}"
            )
    return digests
