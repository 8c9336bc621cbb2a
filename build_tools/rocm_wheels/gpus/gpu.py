"""A GPU as it was detected, and how targets are spelled.

Source: LLVM, "User Guide for AMDGPU Backend" (processors, and which of them a generic one covers).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One GPU as it was found.

    ``vendor`` is ``amd``, ``nvidia``, ``intel`` or ``apple``. ``gfx`` is the target that code for it is
    compiled for (``gfx942``), with ``HSA_OVERRIDE_GFX_VERSION`` applied; None: not an AMD GPU, or not known.
    ``native`` is the target of the hardware itself. ``name`` is for people, "" when nothing says it.
    ``pci_id`` is vendor:device (``1002:74a1``), ``address`` the slot (``0000:03:00.0``), ``uuid`` as the
    ROCm runtime spells it (``GPU-1b2c…``). ``index`` is the place among the devices that the ROCm runtime
    numbers when no variable hides one; None for what it does not number. ``visible`` is False when
    ``ROCR_VISIBLE_DEVICES``, ``HIP_VISIBLE_DEVICES`` or the like hide it, and ``hidden_by`` says which.
    ``hip_index`` is the number that ``HIP_VISIBLE_DEVICES`` takes for it: HIP counts what
    ``ROCR_VISIBLE_DEVICES`` leaves, in the order of that list. ``integrated`` is None when nothing tells.
    ``memory`` is in bytes. ``capability`` is NVIDIA's compute capability (``8.9``); ``before-xe`` for an
    Intel GPU that torch does not use. ``source`` says what it was found by (``kfd``, ``rocminfo``, ``pci``,
    …); ``confidence`` is ``read`` (the driver or the runtime named the target), ``derived`` (looked up from
    the PCI id), ``forced`` (by a variable or option) or ``unknown`` (a GPU is there, its target is unknown).
    ``notes`` say what is odd about it. ``node`` is what the kernel driver calls it in its topology.
    """

    vendor: str
    gfx: str | None = None
    native: str | None = None
    name: str = ""
    pci_id: str | None = None
    address: str | None = None
    uuid: str | None = None
    index: int | None = None
    visible: bool = True
    hidden_by: str = ""
    integrated: bool | None = None
    simd_count: int | None = None
    memory: int | None = None
    capability: str | None = None
    source: str = ""
    confidence: str = "unknown"
    notes: tuple[str, ...] = ()
    hip_index: int | None = None
    node: str = ""


@dataclass(frozen=True)
class RocmInstallation:
    """A ROCm on this machine: ``version`` as it is written there (``7.2.0``), where, and by what it was
    found.

    ``source`` is ``forced``, ``pip`` (Python packages), ``info`` (``.info/version``) or ``header``.
    """

    version: str
    source: str
    path: str


@dataclass(frozen=True)
class Hardware:
    """All GPUs of a machine and every ROCm on it.

    ``gpus`` has every one, best first: visible before hidden, discrete before integrated, AMD first, known
    before unknown, then by index. ``rocm`` has the one that counts first. ``driver`` is the version of the
    amdgpu kernel driver (``in Linux 6.8`` when it is the kernel's own), None without; ``cuda`` the CUDA
    version that NVIDIA's driver serves. ``faults`` say what could not be read or understood (never fatal: a
    new chip is no reason to stop); ``tried`` what was looked at, in order, with what it said. ``sanitizer``:
    what wheels may be compiled with, by a variable.
    """

    gpus: tuple[Gpu, ...] = ()
    rocm: tuple[RocmInstallation, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    faults: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    sanitizer: str = ""

    @property
    def amd(self) -> tuple[Gpu, ...]:
        """The AMD GPUs that a program may use, those with unknown targets too."""
        return tuple(gpu for gpu in self.gpus if gpu.vendor == "amd" and gpu.visible)

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """The AMD GPUs that a program may use, with a known target."""
        return tuple(gpu for gpu in self.amd if gpu.gfx)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of ``usable``, each once, that of the best GPU first."""
        return tuple(dict.fromkeys(gpu.gfx for gpu in self.usable if gpu.gfx))


GENERIC_TARGETS = {
    "gfx9_generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9_4_generic": ("gfx942", "gfx950"),
    "gfx10_1_generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10_3_generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "gfx11_generic": (
        *("gfx1100", "gfx1101", "gfx1102", "gfx1103"),
        *("gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1154"),
    ),
    "gfx11_7_generic": ("gfx1170", "gfx1171", "gfx1172"),
    "gfx12_generic": ("gfx1200", "gfx1201"),
    "gfx12_5_generic": ("gfx1250", "gfx1251"),
    "gfx13_generic": ("gfx1310",),
}
KNOWN_TARGETS = (*("gfx908", "gfx90a"), *(chip for chips in GENERIC_TARGETS.values() for chip in chips))
# cards of before that, which people still have: no ROCm of today compiles for them
OLDER_TARGETS = (
    *("gfx600", "gfx601", "gfx602", "gfx700", "gfx701", "gfx702", "gfx703", "gfx704", "gfx705"),
    *("gfx801", "gfx802", "gfx803", "gfx805", "gfx810"),
)
NEW_MARK = "new:"  # before a target that somebody states and no table knows: new:gfx1399
# targets that exist only inside processors (LLVM's list of products; gfx1170: TheRock's of targets): tells
# where no table knows the card
INTEGRATED_TARGETS = frozenset(
    (
        *("gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037"),
        *("gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1170"),
    )
)
_MOST_NEAR = 7  # targets that are named as what was meant
INTEL_BEFORE_XE = "before-xe"  # the table of PCI ids says so in place of a capability
_TARGET_NAME = re.compile(r"gfx(?:[6-9]|[1-9][0-9])[0-9a-f]{2}")  # gfx110 is none: a 1, 1 and 0 never were
_OVERRIDE_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})")


def find_generic_target(chip: str) -> str | None:
    """Return the generic target whose code runs on a chip; None when there is none, or it is not known."""
    return next((generic for generic, chips in GENERIC_TARGETS.items() if chip in chips), None)


def decode_target_number(version: int) -> str | None:
    """Return the name for the kernel's number (``90010``: ``gfx90a``), also of a chip that is new."""
    return _format_target_name(version // 10000, version // 100 % 100, version % 100)


def is_chip_name(name: str) -> bool:
    """Tell whether a text is the name of one chip (``gfx942``), not of a generic target or anything else."""
    return _TARGET_NAME.fullmatch(name) is not None


def is_known_target(name: str) -> bool:
    """Tell whether a text is the name of a chip that LLVM knows, an old one or one of today."""
    return name in KNOWN_TARGETS or name in OLDER_TARGETS


def parse_stated_target(text: str, *, newer: bool = True) -> str:
    """Return the target that somebody states: one that is known, or a newer one behind ``new:``.

    Features are taken off. ValueError, with what may be meant, for anything else; without ``newer`` it does
    not speak of newer ones.
    """
    marked = text.strip().lower()
    name = marked.removeprefix(NEW_MARK).split(":", 1)[0].removesuffix("-strict").replace("-", "_")
    if is_known_target(name) or (marked.startswith(NEW_MARK) and is_chip_name(name)):
        return name
    if name in GENERIC_TARGETS:
        covered = ", ".join(GENERIC_TARGETS[name])
        raise ValueError(f"{text.strip()} is code for several GPUs, and none of them; say which: {covered}")
    near = " or ".join(", ".join(find_near_targets(name)).rsplit(", ", 1))
    hint = f"; did you mean {near}?" if near else ""
    if newer and is_chip_name(name):
        hint += f" ({NEW_MARK}{name} states one that is newer than the tables)"
    raise ValueError(f"{text.strip()} is no GPU target{hint}")


def find_near_targets(name: str) -> list[str]:
    """Return the known targets that begin as a name does, else the nearest that is one digit off.

    ``gfx110`` is meant for gfx1100 to gfx1103, ``gfx1110`` for gfx1100. The beginning of many tells nothing.
    """
    begun = re.match(r"gfx[0-9a-f]+", name)
    if begun is None:
        return []
    digits = begun[0]
    targets = (*KNOWN_TARGETS, *OLDER_TARGETS)
    longer = [target for target in targets if target.startswith(digits)]
    alike = [target for target in targets if _is_one_digit_off(digits, target)]
    alike.sort(key=lambda target: abs(int(target[3:], 16) - int(digits[3:], 16)))
    if longer:
        return longer if len(longer) <= _MOST_NEAR else []
    return alike[:1]


def _is_one_digit_off(first: str, second: str) -> bool:
    if len(first) == len(second):
        return sum(a != b for a, b in zip(first, second, strict=True)) == 1
    short, long = sorted((first, second), key=len)
    return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def format_stated_target(target: str) -> str:
    """Return a target as ``--gfx`` takes it: behind ``new:`` where no table knows it."""
    return NEW_MARK + target if is_chip_name(target) and not is_known_target(target) else target


def parse_override_version(text: str) -> str:
    """Return the target of a text that ``HSA_OVERRIDE_GFX_VERSION`` takes (``9.0.10``: ``gfx90a``).

    The parts are decimal; blanks may stand before them, and not behind: the runtime refuses that. ValueError
    for any other text.
    """
    match = _OVERRIDE_VERSION.fullmatch(text.lstrip())
    name = _format_target_name(int(match[1]), int(match[2]), int(match[3])) if match else None
    if name is None:
        raise ValueError(f"{text!r} is not a version such as 11.0.0")
    return name


def format_override_version(chip: str) -> str:
    """Return a chip as ``HSA_OVERRIDE_GFX_VERSION`` takes it (``gfx90a``: ``9.0.10``)."""
    if not is_chip_name(chip):
        raise ValueError(f"{chip!r} is not the name of a GPU such as gfx942")
    return f"{int(chip[3:-2])}.{int(chip[-2], 16)}.{int(chip[-1], 16)}"


def _format_target_name(major: int, minor: int, stepping: int) -> str | None:
    return f"gfx{major}{minor:x}{stepping:x}" if 6 <= major < 64 and max(minor, stepping) < 16 else None
