"""Records of what was detected: a GPU, a ROCm, and all hardware of a machine that matters for wheels."""

from __future__ import annotations

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
    ``memory`` is in bytes. ``capability`` is NVIDIA's compute capability (``8.9``). ``source`` says what it
    was found by (``kfd``, ``rocminfo``, ``pci``, …); ``confidence`` is ``read`` (the driver or the runtime
    named the target), ``derived`` (looked up from the PCI id), ``forced`` (by a variable or option) or
    ``unknown`` (a GPU is there, its target is unknown). ``notes`` say what is odd about it.
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
    new chip is no reason to stop); ``tried`` what was looked at, in order, with what it said.
    """

    gpus: tuple[Gpu, ...] = ()
    rocm: tuple[RocmInstallation, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    faults: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """The AMD GPUs that a program may use, with a known target."""
        return tuple(gpu for gpu in self.gpus if gpu.vendor == "amd" and gpu.visible and gpu.gfx)
