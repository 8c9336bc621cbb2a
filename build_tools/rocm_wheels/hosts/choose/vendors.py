"""Whose GPUs a machine has, and which of them counts."""

from __future__ import annotations

from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.gpus.look import sort_gpus
from rocm_wheels.hosts.choose.host import TargetHost

_BUILD_KINDS = {"amd": "rocm", "nvidia": "cuda", "intel": "xpu"}


def list_usable_gpus(host: TargetHost) -> tuple[Gpu, ...]:
    """Return the GPUs that programs may use, best first; of AMD's those with a known target."""
    gpus = sort_gpus(host.hardware.gpus)
    return tuple(gpu for gpu in gpus if gpu.visible and (gpu.vendor != "amd" or gpu.gfx))


def list_vendors(host: TargetHost) -> tuple[str, ...]:
    """Return whose GPUs there are, the best first: ``amd``, ``nvidia``, ``intel``, ``apple``."""
    return tuple(dict.fromkeys(gpu.vendor for gpu in list_usable_gpus(host)))


def list_build_kinds(host: TargetHost) -> tuple[str, ...]:
    """Return what builds for these GPUs are called (``sift.kind_of``), for the best GPU first."""
    return tuple(_BUILD_KINDS[vendor] for vendor in list_vendors(host) if vendor in _BUILD_KINDS)


def get_main_vendor(host: TargetHost) -> str:
    """Return whose GPU counts: a card's before one inside a processor, then AMD's; ``none`` without one."""
    return next(iter(list_vendors(host)), "none")
