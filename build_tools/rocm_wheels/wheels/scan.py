"""One pass over a wheel that serves every check: digests, RECORD, METADATA, WHEEL, device code.

Each member is inflated once; what is wrong with one is a fault in the result, so that
a report can name all of them. Memory: about 64 MiB a thread, whatever the wheel's size (a
larger member with device code goes through a temporary file).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from rocm_wheels.errors import DataError, explain
from rocm_wheels.wheels.archive.contents import largest_text
from rocm_wheels.wheels.device_code.loading import read_loading
from rocm_wheels.wheels.device_code.objects import CodeObject, may_hold_code, named_archives, read_bytes
from rocm_wheels.wheels.dist_info import read_dist_info
from rocm_wheels.wheels.members import WheelArchive
from rocm_wheels.wheels.metadata import WheelFormat, WheelMetadata
from rocm_wheels.wheels.names import WheelName
from rocm_wheels.wheels.record import RecordEntry, compare_record, encode_digest, is_spelling

_DIST_INFO_FILES = ("METADATA", "WHEEL", "RECORD")


@dataclass(frozen=True)
class ScannedMember:
    """A file of the wheel; ``digest`` is spelled as in RECORD, ``recorded`` is its line there."""

    name: str
    size: int
    digest: str
    recorded: RecordEntry | None


@dataclass(frozen=True)
class WheelScan:
    """What one pass found.

    ``device_code`` has the members that hold some, ``elsewhere`` those whose code was moved out, with
    the ``.kpack`` archives that they name, ``run_paths`` the ELF libraries with entries of DT_RUNPATH or
    DT_RPATH, ``texts`` the members that were asked for with ``keep``. A part that could not be read is
    None, and ``faults`` says why; ``damaged`` are the members that cannot be relied on. No faults
    means: every member is whole and listed, and name, METADATA, WHEEL and folder agree. ``repairable``
    is what PyPI refuses beyond that, and what a rewritten wheel no longer has.
    """

    path: Path
    size: int
    sha256: str
    members: tuple[ScannedMember, ...]
    name: WheelName | None
    metadata: WheelMetadata | None
    format: WheelFormat | None
    device_code: Mapping[str, tuple[CodeObject, ...]]
    texts: Mapping[str, bytes]
    faults: tuple[str, ...]
    run_paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    damaged: frozenset[str] = frozenset()
    repairable: tuple[str, ...] = ()

    @property
    def broken(self) -> tuple[str, ...]:
        """The faults but those of spelling alone: right digests in hex, at which no installer looks."""
        return tuple(fault for fault in self.faults if not is_spelling(fault))


@dataclass(frozen=True)
class _Read:
    """What the reader of one member returned."""

    text: bytes | None = None
    code: tuple[CodeObject, ...] = ()
    elsewhere: tuple[str, ...] = ()
    run_paths: tuple[str, ...] = ()
    fault: str | None = None


def scan_wheel(path: Path, *, keep: tuple[str, ...] = (), device_code: bool = True) -> WheelScan:
    """Read a wheel once; ``keep`` are patterns (``*/_rocm_init.py``) of members whose content is wanted.

    Without ``device_code`` none is looked for, and nothing is said of run paths and of code elsewhere.
    DataError only when it is not there or is no archive at all.
    """

    def choose(name: str, head: bytes) -> Callable[[memoryview], _Read] | None:
        if _is_dist_info(name) or any(fnmatchcase(name, pattern) for pattern in keep):
            return lambda data: _read_text(data, name, path)
        if device_code and may_hold_code(name, head):
            return lambda data: _read_code(data, f"{path}: {name}")
        return None

    with WheelArchive.open(path) as archive:
        unsound = archive.unsound()
        repairable = tuple(f"{path}: {fault}" for fault in archive.faults if fault.repaired)
        contents = archive.read_all(choose, digest=True)
        size, file_digest = archive.size, archive.sha256()
    faults = [f"{path}: {name}: {fault}" if name else f"{path}: {fault}" for name, fault in unsound.items()]
    unreadable = {c.name: c.fault or (c.result.fault if c.result else None) for c in contents}
    faults += [fault for fault in unreadable.values() if fault]
    texts = {c.name: c.result.text for c in contents if c.result and c.result.text is not None}
    about = read_dist_info(path.name, [content.name for content in contents], texts)
    whole = {c.name: (c.size, c.sha256) for c in contents if c.sha256 is not None}
    broken = {content.name for content in contents} - whole.keys()
    if about.record is not None:
        listed = [entry for entry in about.record if entry.path not in broken]
        about.faults.extend(compare_record(listed, whole, record=f"{about.folder}/RECORD"))
    recorded = {entry.path: entry for entry in about.record or ()}
    return WheelScan(
        path=path,
        size=size,
        sha256=file_digest,
        members=tuple(
            ScannedMember(member, length, encode_digest(sha256), recorded.get(member))
            for member, (length, sha256) in whole.items()
        ),
        name=about.name,
        metadata=about.metadata,
        format=about.format,
        device_code={c.name: c.result.code for c in contents if c.result and c.result.code},
        texts=texts,
        run_paths={c.name: c.result.run_paths for c in contents if c.result and c.result.run_paths},
        elsewhere={c.name: c.result.elsewhere for c in contents if c.result and c.result.elsewhere},
        faults=(*faults, *(f"{path}: {fault}" for fault in about.faults)),
        repairable=repairable,
        damaged=frozenset(unsound.keys() - {""}) | {name for name, fault in unreadable.items() if fault},
    )


def _is_dist_info(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder.endswith(".dist-info") and file in _DIST_INFO_FILES


def _read_text(data: memoryview, name: str, wheel: Path) -> _Read:
    if len(data) > largest_text(name):
        return _Read(fault=f"{wheel}: {name}: {len(data)} bytes are too many for such a file")
    return _Read(text=bytes(data))


def _read_code(data: memoryview, name: str) -> _Read:
    try:
        loading = read_loading(data, name)
        return _Read(
            code=tuple(read_bytes(data, name)),
            elsewhere=named_archives(data, name),
            run_paths=loading.search if loading else (),
        )
    except DataError as fault:
        return _Read(fault=explain(fault))
