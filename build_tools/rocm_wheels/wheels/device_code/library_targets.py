"""Read which targets a library has code for, from the tables of its bundles alone: milliseconds a
gigabyte.

``code_objects`` reads every byte and checks every hash, as a wheel that is to be published wants it.
Here a library is asked that is installed: the IDs in the tables are what the HIP runtime itself goes
by, so a compressed bundle is inflated as far as its table, and its content is skipped.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import DataError
from rocm_wheels.wheels.device_code.bundles import (
    COMPRESSED_BUNDLE_MAGIC,
    PLAIN_BUNDLE_MAGIC,
    read_bundle_tables,
)
from rocm_wheels.wheels.device_code.code_objects import list_named_archives
from rocm_wheels.wheels.device_code.kpack import KPACK_MAGIC, KPACK_SUFFIX, read_kpack_kernels
from rocm_wheels.wheels.device_code.target_id import BundleEntryId, TargetId, get_header_target
from rocm_wheels.wheels.elf import (
    EM_AMDGPU,
    PE_MAGIC,
    BinarySection,
    BinarySpan,
    find_pe_signature,
    is_elf,
    read_elf_header,
    read_elf_sections,
    read_loader_info,
    read_pe_sections,
)

FATBIN_SECTIONS = (".hip_fatbin", ".hip_fat")
_DEVICE_KINDS = ("hip", "hipv4")


@dataclass(frozen=True)
class LibraryTargets:
    """A host library, code object or ``.kpack`` archive as far as its tables tell.

    ``targets`` are target IDs that the file itself holds code for, sorted as people do; ``archives`` the
    ``.kpack`` archives that it names as the place of its code, relative to itself; ``needed`` the
    libraries that an ELF file is linked to.
    """

    path: Path
    targets: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()

    @property
    def has_code(self) -> bool:
        """Tell whether it is a library with device code, here or elsewhere."""
        return bool(self.targets or self.archives)


def read_library_targets(path: Path) -> LibraryTargets:
    """Read the tables of one file; DataError when it cannot be read or is damaged.

    A file that is of no kind that holds device code has no targets.
    """
    try:
        with open(path, "rb") as file:
            if not file.seek(0, 2):
                return LibraryTargets(path)
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}") from None
    return read_table_targets(mapped, path)


def read_table_targets(data: memoryview, path: Path) -> LibraryTargets:
    """Read the tables of a file's content; ``path`` stands for it in messages."""
    span = BinarySpan(data, str(path))
    if span.starts_with(KPACK_MAGIC) or path.suffix == KPACK_SUFFIX:
        return _make_library(path, (TargetId.parse(kernel.target) for kernel in read_kpack_kernels(span)))
    if span.starts_with(PLAIN_BUNDLE_MAGIC) or span.starts_with(COMPRESSED_BUNDLE_MAGIC):
        return _make_library(path, _read_bundle_targets(span))
    if is_elf(data):
        header = read_elf_header(span)
        if header.machine == EM_AMDGPU:
            return _make_library(path, [get_header_target(header.flags, header.abi_version)])
        sections = read_elf_sections(span, header) if header.sections_at else []
        host = read_loader_info(data, str(path))
        needed = host.needed if host else ()
    elif span.starts_with(PE_MAGIC) and (signature := find_pe_signature(span)) is not None:
        sections, needed = read_pe_sections(span, signature), ()
    else:
        return LibraryTargets(path)
    if archives := list_named_archives(data, str(path)):
        return LibraryTargets(path, (), archives, needed)
    targets = [target for section in sections for target in _read_section_targets(span, section)]
    return _make_library(path, targets, needed)


def _make_library(path: Path, targets: Iterable[TargetId], needed: tuple[str, ...] = ()) -> LibraryTargets:
    return LibraryTargets(
        path, tuple(str(target) for target in sorted(set(targets), key=TargetId.get_sort_key)), (), needed
    )


def _read_section_targets(span: BinarySpan, section: BinarySection) -> Iterator[TargetId]:
    if section.name in FATBIN_SECTIONS and section.size:
        yield from _read_bundle_targets(
            span.get_span(section.offset, section.size, f"section {section.name}")
        )


def _read_bundle_targets(span: BinarySpan) -> Iterator[TargetId]:
    for name, size in read_bundle_tables(span):
        try:
            identity = BundleEntryId.parse(name)
            if size and identity.kind in _DEVICE_KINDS:
                yield TargetId.parse(identity.target)
        except ValueError as cause:
            raise span.make_fault(str(cause)) from None
