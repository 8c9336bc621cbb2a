"""The AMD device code inside a file or a wheel: which targets, how many code objects, how packed.

Read are ELF and PE libraries (``.hip_fatbin``, ``.hip_fat``), static libraries, objects,
bare bundles and bare AMDGPU ELF files (``.hsaco``, ``.co``), whatever they are called, and
all of these inside a wheel. A file that is none of them holds no device code; one that
is, but is damaged, is a DataError that names file, member, section, bundle and fault.
Each embedded ELF file is a second witness: its ``e_flags`` must name the same target as
the ID in the bundle.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rocm_wheels.errors import DataError
from rocm_wheels.wheels import archive, elf, offload, pe
from rocm_wheels.wheels.span import Section, Span
from rocm_wheels.wheels.target_id import EntryId, TargetId, disagreement, machine_name, own_target

ZIP_MAGIC = b"PK\x03\x04"

_HEAD_SIZE = 64
_SECTIONS = (".hip_fatbin", ".hip_fat")
# relocatable device code in an object (-fgpu-rdc): the rest of the section's name is the entry's ID
_ENTRY_SECTION = offload.PLAIN_MAGIC.decode()
_ENTRY_SECTIONS = tuple(_ENTRY_SECTION + kind for kind in ("hip-", "hipv4-", "openmp-amdgcn"))
_OTHER_FORMAT = ".llvm.offloading"
_DEVICE_KINDS = ("hip", "hipv4", "openmp")
_AMD_TRIPLES = ("amdgcn", "amdgpu", "spirv")
_FORMS = {b"BC\xc0\xde": "bitcode", b"\x03\x02\x23\x07": "spirv"}
_LIBRARY_SUFFIXES = (".dll", ".pyd", ".exe")


@dataclass(frozen=True)
class CodeObject:
    """One code object.

    ``kind`` is the offload kind (``hip``, ``hipv4``, ``openmp``; ``bare`` for a file of its
    own), ``form`` is ``elf``, ``bitcode``, ``spirv`` or ``empty``. ``machine`` is the processor that
    the ELF header names, None when it has none or its number is unknown. ``offset`` and
    ``size`` are bytes, counted in the plain bundle ``bundle`` of ``section``; ``packing`` is
    ``plain`` or like ``zstd v3``.
    """

    target: TargetId
    kind: str
    form: str
    machine: str | None
    section: str
    bundle: int
    packing: str
    offset: int
    size: int


def targets_of(objects: Iterable[CodeObject]) -> list[str]:
    """Return the target IDs that there is code for, in the order of the processors' numbers."""
    found = {o.target for o in objects if o.form != "empty"}
    return [str(target) for target in sorted(found, key=TargetId.order)]


def read_any(path: Path) -> dict[str, list[CodeObject]]:
    """Return code objects by member of a wheel or zip archive, or those of another file as member ""."""
    try:
        with open(path, "rb") as file:
            is_archive = file.read(4) == ZIP_MAGIC or path.suffix.lower() == ".whl"
    except OSError as cause:
        raise _unreadable(path, cause) from None
    return read_wheel(path) if is_archive else {"": read_file(path)}


def read_file(path: Path) -> list[CodeObject]:
    """Return the code objects of a file; [] when it is of a kind that holds none.

    DataError when it cannot be read, is damaged, or is a wheel (``read_wheel`` is for those).
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            # not closed by hand: an error's traceback may still refer to it
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else b""
    except OSError as cause:
        raise _unreadable(path, cause) from None
    if bytes(content[:4]) == ZIP_MAGIC:
        raise DataError(f"{path} is a wheel or zip archive", tip="read it as a wheel")
    return read_bytes(content, str(path))


def read_bytes(data: bytes | memoryview, name: str) -> list[CodeObject]:
    """Return the code objects of a file's content; ``name`` stands for the file in messages."""
    span = Span(memoryview(data), name)
    if span.starts(archive.MAGIC) or span.starts(archive.THIN_MAGIC):
        return [found for member in archive.read_members(span) for found in _read_object(member)]
    return list(_read_object(span))


def read_wheel(path: Path) -> dict[str, list[CodeObject]]:
    """Return, for each member of a wheel or zip that holds device code, its code objects.

    Members of other kinds cost a few bytes of inflating and are left out. Memory: about
    64 MiB a thread; a larger member goes through a temporary file.
    """
    from rocm_wheels.wheels.members import WheelArchive

    def choose(name: str, head: bytes) -> Callable[[memoryview], list[CodeObject]] | None:
        if not may_hold_code(name, head):
            return None
        return lambda data: read_bytes(data, f"{path}: {name}")

    with WheelArchive.open(path) as wheel:
        wheel.require_sound()
        contents = wheel.read_all(choose, digest=False)
    for content in contents:
        if content.fault:
            raise DataError(content.fault)
    return {content.name: content.result for content in contents if content.result}


def may_hold_code(name: str, head: bytes) -> bool:
    """Tell from a file's first 4096 bytes whether it is worth reading on.

    False only when it certainly holds no device code. A PE file has its section table in
    front, so a DLL without device code is done with here.
    """
    if head.startswith((archive.MAGIC, archive.THIN_MAGIC, offload.PLAIN_MAGIC, offload.COMPRESSED_MAGIC)):
        return True
    if head.startswith(elf.MAGIC):
        return True
    if not (head.startswith(pe.MAGIC) or _is_object(name, head)):
        return False
    try:
        sections = _pe_sections(Span(memoryview(head), name))
    except DataError:
        return True  # the table lies further on, or is damaged: the full reading will tell
    return any(section.name in _SECTIONS for section in sections)


def _unreadable(path: Path, cause: OSError) -> DataError:
    if path.is_dir():
        return DataError(f"{path} is a folder", tip=f"name files: {path}/*.whl, or a library in it")
    return DataError(f"cannot read {path}: {cause.strerror}")


def _read_object(span: Span) -> Iterator[CodeObject]:
    head = bytes(span.data[:_HEAD_SIZE])
    if head.startswith((offload.PLAIN_MAGIC, offload.COMPRESSED_MAGIC)):
        yield from _read_bundles(span, "")
    elif elf.is_readable(head):
        header = elf.read_header(span)
        if header.machine == elf.EM_AMDGPU:
            yield _bare(span, header)
        else:
            yield from _read_sections(span, elf.read_sections(span, header))
    elif head.startswith(pe.MAGIC) or _is_object(span.place, head):
        yield from _read_sections(span, _pe_sections(span))


def _pe_sections(span: Span) -> list[Section]:
    if not span.starts(pe.MAGIC):
        return pe.read_object_sections(span)
    signature = pe.signature_at(span)
    if signature is not None:
        return pe.read_image_sections(span, signature)
    if PurePosixPath(span.place).suffix.lower() in _LIBRARY_SUFFIXES:
        raise span.fault("begins like a Windows library, but has no PE header: cut short or damaged")
    return []


def _is_object(place: str, head: bytes) -> bool:
    """COFF objects have no magic but the machine number: the name must say it too."""
    return head.startswith(pe.COFF_MACHINES) and place.rstrip(")").lower().endswith((".obj", ".o"))


def _read_sections(span: Span, sections: list[Section]) -> Iterator[CodeObject]:
    for section in sections:
        wanted = section.name in _SECTIONS or section.name.startswith(_ENTRY_SECTIONS)
        if section.name == _OTHER_FORMAT and section.size:
            raise span.fault(
                f"section {_OTHER_FORMAT} holds device code that is not linked yet",
                tip="name the linked library instead",
            )
        if not wanted or not section.size:
            continue
        content = span.within(section.offset, section.size, f"section {section.name}")
        if section.name in _SECTIONS:
            yield from _read_bundles(content, section.name)
        else:
            head = bytes(content.data[: offload.HEAD_SIZE])
            name = section.name.removeprefix(_ENTRY_SECTION)
            entry = offload.Entry(0, "plain", name, 0, section.size, head)
            yield from _code_object(entry, content.place, section.name)


def _read_bundles(span: Span, section: str) -> Iterator[CodeObject]:
    for entry in offload.read_bundles(span):
        yield from _code_object(entry, span.place, section)


def _code_object(entry: offload.Entry, place: str, section: str) -> Iterator[CodeObject]:
    """Yield the code object of an entry; nothing for those of the host and of other makers' GPUs."""
    here = Span(memoryview(entry.head), f"{place}: bundle {entry.bundle}: entry {entry.name}")
    try:
        identity = EntryId.parse(entry.name)
        if identity.kind == "host":
            return
        if identity.kind == "openmp" and not identity.triple.startswith(_AMD_TRIPLES):
            return  # for GPUs of others
        target = TargetId.parse(identity.target)
    except ValueError as cause:
        raise here.fault(str(cause)) from None
    if identity.kind not in _DEVICE_KINDS:
        raise here.fault(f"offload kind {identity.kind} is not known: {', '.join(_DEVICE_KINDS)} are")
    if not identity.triple.startswith(_AMD_TRIPLES):
        raise here.fault(f"{identity.triple} is not a triple of AMD device code")
    form, machine = "empty", None
    if entry.size:
        form = _FORMS.get(entry.head[:4], "elf")
    if form == "elf":
        header = elf.read_header(here, size=entry.size)
        if header.machine == elf.EM_AMDGPU:
            machine = machine_name(header.flags)
            different = disagreement(target, header.flags, header.abi_version)
        else:
            different = f"its ID says {target}, its ELF machine is {header.machine}, not {elf.EM_AMDGPU}"
        if different:
            raise here.fault(different)
    yield CodeObject(
        target, identity.kind, form, machine, section, entry.bundle, entry.packing, entry.offset, entry.size
    )


def _bare(span: Span, header: elf.ElfHeader) -> CodeObject:
    target = own_target(header.flags, header.abi_version)
    machine = machine_name(header.flags)
    return CodeObject(target, "bare", "elf", machine, "", 0, "plain", 0, len(span))
