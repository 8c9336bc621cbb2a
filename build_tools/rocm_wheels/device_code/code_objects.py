"""Device code inside a file or a wheel: which targets, how many code objects, how packed.

Sources of target IDs: LLVM, "Clang Offload Bundler" (bundle entry IDs, target IDs); LLVM, "User Guide
for AMDGPU Backend", tables of ``e_flags``, and the test elf-header-flags-mach.ll, which
lists every number; ``gfx940`` and ``gfx941`` as LLVM 17 to 19 had them.

Read are ELF and PE libraries (``.hip_fatbin``, ``.hip_fat``), static libraries, objects,
bare bundles, bare AMDGPU ELF files (``.hsaco``, ``.co``) and ``.kpack`` archives, and
all of these inside a wheel. A file that is none of them holds no device code; one that
is, but is damaged, is a DataError that names file, member, section, bundle and fault.
Each embedded ELF file is a second witness: its ``e_flags`` must name the same target as
the ID in the bundle. A library whose code was moved into ``.kpack`` archives holds none itself, and
names them.

``read_code_objects`` reads every byte and checks every hash, as a wheel that is to be published wants it.
With ``whole=False`` it goes by the tables, as ``read_library_targets`` does with a library that is installed:
the IDs in them are what the HIP runtime itself goes by. A compressed bundle is then inflated as far as its
table, so the second witness is asked in plain bundles only: milliseconds instead of seconds a gigabyte.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rocm_wheels.binaries import elf, limits, pe
from rocm_wheels.core import errors, files
from rocm_wheels.device_code import bundles, kpack

_MACHINE_MASK = 0xFF
ELF_MACHINES = {
    0x20: "gfx600", 0x21: "gfx601", 0x22: "gfx700", 0x23: "gfx701", 0x24: "gfx702", 0x25: "gfx703",
    0x26: "gfx704", 0x28: "gfx801", 0x29: "gfx802", 0x2A: "gfx803", 0x2B: "gfx810", 0x2C: "gfx900",
    0x2D: "gfx902", 0x2E: "gfx904", 0x2F: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c",
    0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012", 0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032",
    0x39: "gfx1033", 0x3A: "gfx602", 0x3B: "gfx705", 0x3C: "gfx805", 0x3D: "gfx1035", 0x3E: "gfx1034",
    0x3F: "gfx90a", 0x40: "gfx940", 0x41: "gfx1100", 0x42: "gfx1013", 0x43: "gfx1150", 0x44: "gfx1103",
    0x45: "gfx1036", 0x46: "gfx1101", 0x47: "gfx1102", 0x48: "gfx1200", 0x49: "gfx1250", 0x4A: "gfx1151",
    0x4B: "gfx941", 0x4C: "gfx942", 0x4E: "gfx1201", 0x4F: "gfx950", 0x50: "gfx1310",
    0x51: "gfx9-generic", 0x52: "gfx10-1-generic", 0x53: "gfx10-3-generic", 0x54: "gfx11-generic",
    0x55: "gfx1152", 0x57: "gfx1154", 0x58: "gfx1153", 0x59: "gfx12-generic", 0x5A: "gfx1251",
    0x5B: "gfx12-5-generic", 0x5C: "gfx1172", 0x5D: "gfx1170", 0x5E: "gfx1171", 0x5F: "gfx9-4-generic",
    0x62: "gfx11-7-generic", 0x63: "gfx13-generic",
}  # fmt: skip

# two bits a feature since code object V4 (e_ident[EI_ABIVERSION] 2): unsupported, any, off, on
_FIRST_ABI_WITH_SETTINGS = 2
_FEATURE_SHIFT = {"xnack": 8, "sramecc": 10}
_SETTINGS = ("unsupported", "any", "-", "+")

_TARGET_ID = re.compile(r"[A-Za-z][\w.-]*(?::[A-Za-z][\w-]*[+-])*", re.ASCII)
_NUMBER = re.compile(r"gfx(?:(?P<major>[0-9]+)[0-9a-f]{2}(?![0-9a-f])|(?P<generation>[0-9]+)-)")
_FEATURE = re.compile(r"([\w-]+)([+-])", re.ASCII)
_ENTRY_ID = re.compile(
    r"(?P<kind>[a-z0-9]+)-(?P<triple>[^-]+-[^-]*-[^-]*)(?:-(?!gfx)(?P<env>[^-]*))?(?:-(?P<target>.*))?",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True)
class TargetId:
    """A processor and the features it was compiled for; a feature left out means "any"."""

    processor: str
    features: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> TargetId:
        """Read ``gfx942:sramecc+:xnack-``; ValueError when it is not a target ID."""
        if not _TARGET_ID.fullmatch(text):
            raise ValueError(f"{text!r} is not a target ID")
        processor, _, rest = text.partition(":")
        features = tuple((name, sign) for name, sign in _FEATURE.findall(rest))
        if len({name for name, _ in features}) != len(features):
            raise ValueError(f"{text!r} states a feature twice")
        return cls(processor, tuple(sorted(features)))

    def get_sort_key(self) -> tuple[int, bool, str]:
        """Return a key that sorts as people do: gfx90a before gfx1030, a generic target after its family."""
        match = _NUMBER.match(self.processor)
        major = int(match["major"] or match["generation"]) if match else 0
        return (major, bool(match and match["generation"]), str(self))

    def __str__(self) -> str:
        return self.processor + "".join(f":{name}{sign}" for name, sign in self.features)


@dataclass(frozen=True)
class BundleEntryId:
    """The ID of a bundle entry: kind (``hip``, ``hipv4``, ``host``, …), triple, target ID ("" if none)."""

    kind: str
    triple: str
    target: str

    @classmethod
    def parse(cls, text: str) -> BundleEntryId:
        """Read ``hipv4-amdgcn-amd-amdhsa--gfx942:xnack-``; ValueError when it is not such an ID.

        The environment field of the triple may be missing (bundles of ROCm before 4).
        """
        match = _ENTRY_ID.fullmatch(text)
        if not match:
            raise ValueError(f"{text!r} is not the ID of a bundle entry")
        return cls(match["kind"], match["triple"], match["target"] or "")


def get_machine_name(flags: int) -> str | None:
    """Return the processor that ``e_flags`` name, None when the number is not in the table."""
    return ELF_MACHINES.get(flags & _MACHINE_MASK)


def get_header_target(flags: int, abi_version: int) -> TargetId:
    """Return the target that an AMDGPU ELF file states in its header (``unknown-0x7e`` included)."""
    number = flags & _MACHINE_MASK
    signs = [(name, _read_setting(flags, name)) for name in sorted(_FEATURE_SHIFT)]
    stated = [(n, s) for n, s in signs if s in "+-"] if abi_version >= _FIRST_ABI_WITH_SETTINGS else []
    return TargetId(ELF_MACHINES.get(number, f"unknown-{number:#04x}"), tuple(stated))


def describe_disagreement(target: TargetId, flags: int, abi_version: int) -> str | None:
    """Say how a bundle entry's target and the header of its ELF file differ, None when they agree.

    A processor number that is not in the table agrees with everything. A feature that the
    ID leaves open agrees with every setting: compilers leave always-on features out of IDs.
    """
    named = get_machine_name(flags)
    if named is not None and named != target.processor:
        return f"its ID says {target.processor}, its e_flags ({flags:#x}) say {named}"
    if abi_version < _FIRST_ABI_WITH_SETTINGS:
        return None
    for name, sign in target.features:
        if name in _FEATURE_SHIFT and _read_setting(flags, name) != sign:
            return (
                f"its ID says {name}{sign}, its e_flags ({flags:#x}) say {name} {_read_setting(flags, name)}"
            )
    return None


def _read_setting(flags: int, feature: str) -> str:
    return _SETTINGS[(flags >> _FEATURE_SHIFT[feature]) & 3]


ZIP_MAGIC = b"PK\x03\x04"

_HEAD_SIZE = 64
_RELEASE_AFTER = 32  # code objects, of some megabytes each
FATBIN_SECTIONS = (".hip_fatbin", ".hip_fat")
# relocatable device code in an object (-fgpu-rdc): the rest of the section's name is the entry's ID
_ENTRY_SECTION = bundles.PLAIN_BUNDLE_MAGIC.decode()
_ENTRY_SECTIONS = tuple(_ENTRY_SECTION + kind for kind in ("hip-", "hipv4-", "openmp-amdgcn"))
_OTHER_FORMAT = ".llvm.offloading"
_DEVICE_KINDS = ("hip", "hipv4", "openmp")
_AMD_TRIPLES = ("amdgcn", "amdgpu", "spirv")
_FORMS = {b"BC\xc0\xde": "bitcode", b"\x03\x02\x23\x07": "spirv"}
_LIBRARY_SUFFIXES = (".dll", ".pyd", ".exe")
_BUNDLE_MAGICS = (bundles.PLAIN_BUNDLE_MAGIC, bundles.COMPRESSED_BUNDLE_MAGIC)
_CODE_MAGICS = (elf.AR_MAGIC, elf.THIN_AR_MAGIC, *_BUNDLE_MAGICS, elf.ELF_MAGIC, kpack.KPACK_MAGIC)


@dataclass(frozen=True)
class CodeObject:
    """One code object.

    ``kind`` is the offload kind (``hip``, ``hipv4``, ``openmp``; ``bare`` for a file of its
    own, ``kpack`` in an archive), ``form`` is ``elf``, ``bitcode``, ``spirv`` or ``empty``, None where only
    the table was read. ``machine`` is the processor that the ELF header names, None when it has none, its
    number is unknown or it was not read. ``offset``
    and ``size`` are bytes, counted in the plain bundle ``bundle`` of ``section``; ``packing`` is
    ``plain`` or like ``zstd v3``. In an archive ``section`` is the library that the code was taken out
    of, and ``bundle`` the number of the kernel. ``abi_version`` is that of the ELF header (code object V3
    is 1, V4 2, …), None where there is none.
    """

    target: TargetId
    kind: str
    form: str | None
    machine: str | None
    section: str
    bundle: int
    packing: str
    offset: int
    size: int
    abi_version: int | None = None


def list_code_targets(objects: Iterable[CodeObject]) -> list[str]:
    """Return the target IDs that there is code for, in the order of the processors' numbers."""
    targets = {o.target for o in objects if o.form != "empty"}
    return [str(target) for target in sorted(targets, key=TargetId.get_sort_key)]


def map_file(path: Path) -> memoryview:
    """Map a file that is not changed; DataError when it cannot be read."""
    try:
        with files.open_regular_file(path) as file:
            if not file.seek(0, 2):
                return memoryview(b"")
            # not closed by hand: an error's traceback may still refer to it
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as cause:
        raise make_unreadable_error(path, cause) from None


def read_code_objects(data: bytes | memoryview, name: str, *, whole: bool = True) -> list[CodeObject]:
    """Return the code objects of a file's content; ``name`` stands for the file in messages.

    Without ``whole`` compressed bundles are read as far as their tables.
    """
    span = elf.BinarySpan(memoryview(data), name)
    is_archive = span.starts_with(elf.AR_MAGIC) or span.starts_with(elf.THIN_AR_MAGIC)
    most = limits.get_object_limit(len(span))
    objects: list[CodeObject] = []
    for file in elf.read_ar_members(span) if is_archive else [span]:
        for code_object in _read_object(file, whole=whole):
            objects.append(code_object)
            span.require_limit(len(objects), most, "code objects")
            if len(objects) % _RELEASE_AFTER == 0:
                files.release_mapped_pages(span.data)
    return objects


def list_named_archives(data: bytes | memoryview, name: str) -> tuple[str, ...]:
    """Return the ``.kpack`` archives that a library names as the place of its device code; () when none."""
    span = elf.BinarySpan(memoryview(data), name)
    marker = next((s for s in _read_host_sections(span) if s.name in kpack.KPACK_SECTIONS), None)
    if marker is None:
        return ()
    return kpack.read_kpack_reference(span.get_span(marker.offset, marker.size, f"section {marker.name}"))


@dataclass(frozen=True)
class HeldCode:
    """Where a file has its device code.

    ``bundle_spans`` are the sections, or the file, that are bundles; ``section_begin`` is where the first
    begins in the file. Without any, ``targets`` are those of code in other forms. ``is_whole_file``: the file
    is nothing but device code.
    """

    bundle_spans: tuple[elf.BinarySpan, ...] = ()
    section_begin: int = 0
    targets: tuple[TargetId, ...] = ()
    is_whole_file: bool = False


def find_held_code(data: memoryview, name: str) -> HeldCode:
    """Say where a file's content has device code; ``name`` stands for it in messages. Raises DataError."""
    span = elf.BinarySpan(data, name)
    if any(map(span.starts_with, _BUNDLE_MAGICS)):
        return HeldCode((span,), is_whole_file=True)
    sections = _read_host_sections(span)
    if any(section.name in kpack.KPACK_SECTIONS for section in sections):
        return HeldCode()  # its code is elsewhere, and what is left here is never loaded
    fat = [section for section in sections if section.name in FATBIN_SECTIONS and section.size]
    if fat:
        spans = [span.get_span(s.offset, s.size, f"section {s.name}") for s in fat]
        return HeldCode(tuple(spans), fat[0].offset)
    targets = tuple(code.target for code in read_code_objects(data, name))
    return HeldCode((), 0, targets, is_whole_file=not sections and not span.starts_with(elf.AR_MAGIC))


def may_hold_code(name: str, head: bytes) -> bool:
    """Tell from a file's first 4096 bytes whether it is worth reading on.

    False only when it certainly holds no device code. A PE file has its section table in
    front, so a DLL without device code is done with here.
    """
    if head.startswith(_CODE_MAGICS) or name.endswith(kpack.KPACK_SUFFIX):
        return True
    try:
        sections = _read_windows_sections(elf.BinarySpan(memoryview(head), name))
    except errors.DataError:
        return True  # the table lies further on, or is damaged: the full reading will tell
    return any(section.name in (*FATBIN_SECTIONS, *kpack.KPACK_SECTIONS) for section in sections)


def make_unreadable_error(path: Path, cause: OSError) -> errors.DataError:
    """Return the error of a file that cannot be opened."""
    if path.is_dir():
        return errors.DataError(f"{path} is a folder", tip=f"name files: {path}/*.whl, or a library in it")
    return errors.DataError(f"cannot read {path}: {cause.strerror}", tip="name another file")


def _read_object(span: elf.BinarySpan, *, whole: bool) -> Iterator[CodeObject]:
    head = bytes(span.data[:_HEAD_SIZE])
    if head.startswith(_BUNDLE_MAGICS):
        for entry in bundles.read_bundles(span, whole=whole):
            yield from _make_code_object(entry, span.place, "")
    elif head.startswith(kpack.KPACK_MAGIC) or span.place.endswith(kpack.KPACK_SUFFIX):
        yield from _read_archive(span)
    elif elf.is_elf(head) and (header := elf.ElfFile(span).header).machine == elf.EM_AMDGPU:
        target, machine = get_header_target(header.flags, header.abi_version), get_machine_name(header.flags)
        yield CodeObject(target, "bare", "elf", machine, "", 0, "plain", 0, len(span), header.abi_version)
    else:
        yield from _read_sections(span, _read_host_sections(span), whole=whole)


def _read_host_sections(span: elf.BinarySpan) -> list[elf.BinarySection]:
    """Return the sections of a host library or object; [] for a file of another kind."""
    if elf.is_elf(span.data):
        file = elf.ElfFile(span)
        return [] if file.header.machine == elf.EM_AMDGPU else file.read_sections()
    return _read_windows_sections(span)


def _read_windows_sections(span: elf.BinarySpan) -> list[elf.BinarySection]:
    if not span.starts_with(pe.PE_MAGIC):
        # objects have no magic but the machine number: the name must say it too
        is_object = span.place.rstrip(")").lower().endswith((".obj", ".o"))
        is_object = is_object and bytes(span.data[:2]) in pe.COFF_MACHINES
        return pe.read_coff_sections(span) if is_object else []
    if (file := pe.read_pe_file(span)) is not None:
        return file.sections
    if PurePosixPath(span.place).suffix.lower() in _LIBRARY_SUFFIXES:
        raise span.make_fault("begins like a Windows library, but has no PE header: cut short or damaged")
    return []


def _read_sections(
    span: elf.BinarySpan, sections: list[elf.BinarySection], *, whole: bool
) -> Iterator[CodeObject]:
    moved = any(section.name in kpack.KPACK_SECTIONS for section in sections)
    taken = 0
    for section in sections:
        if moved and section.name in FATBIN_SECTIONS:
            continue  # what is left of it is never loaded, and may be cut anywhere
        is_device_section = section.name in FATBIN_SECTIONS or section.name.startswith(_ENTRY_SECTIONS)
        if section.name == _OTHER_FORMAT and section.size:
            raise span.make_fault(
                f"section {_OTHER_FORMAT} holds device code that is not linked yet",
                tip="name the linked library instead",
            )
        if not is_device_section or not section.size:
            continue
        content = span.get_span(section.offset, section.size, f"section {section.name}")
        taken += section.size
        if taken > len(span):  # the same bytes again and again: a small file, hours of work
            raise content.make_fault("lies on top of other sections")
        entries: Iterable[bundles.BundleEntry] = bundles.read_bundles(content, whole=whole)
        if section.name not in FATBIN_SECTIONS:
            head = bytes(content.data[: bundles.ENTRY_HEAD_SIZE])
            name = section.name.removeprefix(_ENTRY_SECTION)
            entries = [bundles.BundleEntry(0, "plain", name, 0, section.size, head)]
        for entry in entries:
            yield from _make_code_object(entry, content.place, section.name)


def _read_archive(span: elf.BinarySpan) -> Iterator[CodeObject]:
    for kernel in kpack.read_kpack_kernels(span):
        kernel_span = elf.BinarySpan(
            memoryview(kernel.head), f"{span.place}: {kernel.library} for {kernel.target}"
        )
        try:
            target = TargetId.parse(kernel.target)
        except ValueError as cause:
            raise kernel_span.make_fault(str(cause)) from None
        header = _check_header(kernel_span, target, kernel.size)
        place = (kernel.library, kernel.ordinal, kernel.packing, 0, kernel.size, header.abi_version)
        yield CodeObject(target, "kpack", "elf", get_machine_name(header.flags), *place)


def _check_header(span: elf.BinarySpan, target: TargetId, size: int) -> elf.ElfHeader:
    """Return the ELF header at ``span``; DataError when the processor that it names is not the target's."""
    header = elf.ElfFile(span, size=size).header
    if header.machine != elf.EM_AMDGPU:
        raise span.make_fault(
            f"its ID says {target}, its ELF machine is {header.machine}, not {elf.EM_AMDGPU}"
        )
    if different := describe_disagreement(target, header.flags, header.abi_version):
        raise span.make_fault(different)
    return header


def _make_code_object(entry: bundles.BundleEntry, place: str, section: str) -> Iterator[CodeObject]:
    """Yield the code object of an entry; nothing for those of the host and of other makers' GPUs."""
    head = entry.head
    entry_span = elf.BinarySpan(
        memoryview(head or b""), f"{place}: bundle {entry.bundle}: entry {entry.name}"
    )
    try:
        identity = BundleEntryId.parse(entry.name)
        if identity.kind == "host":
            return
        if identity.kind == "openmp" and not identity.triple.startswith(_AMD_TRIPLES):
            return  # for GPUs of others
        target = TargetId.parse(identity.target)
    except ValueError as cause:
        raise entry_span.make_fault(str(cause)) from None
    if identity.kind not in _DEVICE_KINDS:
        raise entry_span.make_fault(
            f"offload kind {identity.kind} is not known: {', '.join(_DEVICE_KINDS)} are"
        )
    if not identity.triple.startswith(_AMD_TRIPLES):
        raise entry_span.make_fault(f"{identity.triple} is not a triple of AMD device code")
    form, machine, abi_version = None if entry.size else "empty", None, None
    if entry.size and head is not None:
        form = _FORMS.get(head[:4], "elf")
    if form == "elf":
        header = _check_header(entry_span, target, entry.size)
        machine, abi_version = get_machine_name(header.flags), header.abi_version
    extent = (section, entry.bundle, entry.packing, entry.offset, entry.size, abi_version)
    yield CodeObject(target, identity.kind, form, machine, *extent)


_LOADED_KINDS = ("hip", "hipv4")


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


def read_library_targets(path: Path) -> LibraryTargets:
    """Read the tables of one file; DataError when it cannot be read or is damaged.

    A file that is of no kind that holds device code has no targets.
    """
    data = map_file(path)
    needed: tuple[str, ...] = ()
    if elf.is_elf(data):
        file = elf.ElfFile(elf.BinarySpan(data, str(path)))
        if file.is_loadable:
            needed = elf.describe_loading(file).needed
            if not file.header.sections_at:  # stripped of it: nobody can say what it holds
                return LibraryTargets(path, needed=needed)
    if archives := list_named_archives(data, str(path)):
        return LibraryTargets(path, (), archives, needed)
    loaded = [
        code.target
        for code in read_code_objects(data, str(path), whole=False)
        if code.size and code.kind in (*_LOADED_KINDS, "bare", "kpack")
    ]
    targets = sorted(set(loaded), key=TargetId.get_sort_key)
    return LibraryTargets(path, tuple(map(str, targets)), (), needed)


def scan_library_targets(pieces: Iterable[bytes], name: str) -> Iterator[list[str]]:
    """Yield the target IDs of each bundle in a library that comes piece by piece, from its beginning on.

    DataError for an ID that is none; ``name`` stands for the library in messages.
    """
    for entry_ids in bundles.scan_bundle_tables(pieces, name):
        try:
            identities = [BundleEntryId.parse(entry_id) for entry_id in entry_ids]
            targets = [identity.target for identity in identities if identity.kind in _LOADED_KINDS]
            yield [str(TargetId.parse(target)) for target in targets]
        except ValueError as cause:
            raise errors.DataError(f"{name}: {cause}") from None
