"""Which targets a library has code for, from the tables of its bundles alone: milliseconds a gigabyte.

``objects`` reads every byte and checks every hash, as a wheel that is to be published wants it. Here a
library is asked that is installed: the IDs in the tables are what the HIP runtime itself goes by, so
a compressed bundle is inflated as far as its table, and its content is skipped.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.wheels.device_code import elf, kpack, loading, objects, offload, pe
from rocm_wheels.wheels.device_code.span import Section, Span
from rocm_wheels.wheels.device_code.target_id import EntryId, TargetId, own_target

FATBIN_SECTIONS = (".hip_fatbin", ".hip_fat")
_DEVICE_KINDS = ("hip", "hipv4")


@dataclass(frozen=True)
class Library:
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


def read_library(path: Path) -> Library:
    """Read the tables of one file; DataError when it cannot be read or is damaged.

    A file that is of no kind that holds device code has no targets.
    """
    try:
        with open(path, "rb") as file:
            if not file.seek(0, 2):
                return Library(path)
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}") from None
    return read_tables(mapped, path)


def read_tables(data: memoryview, path: Path) -> Library:
    """Read the tables of a file's content; ``path`` stands for it in messages."""
    span = Span(data, str(path))
    if span.starts(kpack.MAGIC) or path.suffix == kpack.SUFFIX:
        return _library(path, (TargetId.parse(kernel.target) for kernel in kpack.read_kernels(span)))
    if span.starts(offload.PLAIN_MAGIC) or span.starts(offload.COMPRESSED_MAGIC):
        return _library(path, _bundled(span))
    if elf.is_readable(data):
        header = elf.read_header(span)
        if header.machine == elf.EM_AMDGPU:
            return _library(path, [own_target(header.flags, header.abi_version)])
        sections = elf.read_sections(span, header) if header.sections_at else []
        host = loading.read_loading(data, str(path))
        needed = host.needed if host else ()
    elif span.starts(pe.MAGIC) and (signature := pe.signature_at(span)) is not None:
        sections, needed = pe.read_image_sections(span, signature), ()
    else:
        return Library(path)
    if archives := objects.named_archives(data, str(path)):
        return Library(path, (), archives, needed)
    found = [target for section in sections for target in _in_section(span, section)]
    return _library(path, found, needed)


def _library(path: Path, targets: Iterable[TargetId], needed: tuple[str, ...] = ()) -> Library:
    return Library(path, tuple(str(one) for one in sorted(set(targets), key=TargetId.order)), (), needed)


def _in_section(span: Span, section: Section) -> Iterator[TargetId]:
    if section.name in FATBIN_SECTIONS and section.size:
        yield from _bundled(span.within(section.offset, section.size, f"section {section.name}"))


def _bundled(span: Span) -> Iterator[TargetId]:
    for name, size in offload.read_tables(span):
        try:
            identity = EntryId.parse(name)
            if size and identity.kind in _DEVICE_KINDS:
                yield TargetId.parse(identity.target)
        except ValueError as cause:
            raise span.fault(str(cause)) from None
