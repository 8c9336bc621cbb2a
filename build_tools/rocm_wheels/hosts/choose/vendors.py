"""Whose GPUs a machine has, and which of them counts."""

from __future__ import annotations

from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.gpus.look import best_first
from rocm_wheels.hosts.choose.host import Host

_KINDS = {"amd": "rocm", "nvidia": "cuda", "intel": "xpu"}


def gpus_that_count(host: Host) -> tuple[Gpu, ...]:
    """Return the GPUs that programs may use, best first; of AMD's those with a known target."""
    gpus = best_first(host.hardware.gpus)
    return tuple(gpu for gpu in gpus if gpu.visible and (gpu.vendor != "amd" or gpu.gfx))


def vendors_of(host: Host) -> tuple[str, ...]:
    """Return whose GPUs there are, the best first: ``amd``, ``nvidia``, ``intel``, ``apple``."""
    return tuple(dict.fromkeys(gpu.vendor for gpu in gpus_that_count(host)))


def kinds_of(host: Host) -> tuple[str, ...]:
    """Return what builds for these GPUs are called (``sift.kind_of``), for the best GPU first."""
    return tuple(_KINDS[vendor] for vendor in vendors_of(host) if vendor in _KINDS)


def vendor_of(host: Host) -> str:
    """Return whose GPU counts: a card's before one inside a processor, then AMD's; ``none`` without one."""
    return next(iter(vendors_of(host)), "none")
