"""Parse target IDs (``gfx942:sramecc+:xnack-``) and what an AMDGPU ELF file says of itself.

Sources: LLVM, "Clang Offload Bundler" (bundle entry IDs, target IDs); LLVM, "User Guide
for AMDGPU Backend", tables of ``e_flags``, and the test elf-header-flags-mach.ll, which
lists every number; ``gfx940`` and ``gfx941`` as LLVM 17 to 19 had them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
