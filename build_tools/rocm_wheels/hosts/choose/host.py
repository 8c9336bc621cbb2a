"""The machine that wheels are chosen for, real or stated."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.tags import Tag

from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.variants.order import SupportedFeatures


@dataclass(frozen=True)
class TargetHost:
    """A machine and the Python on it.

    ``platform`` is ``linux``, ``windows`` or ``macos``; ``machine`` as Python calls it (``x86_64``,
    ``aarch64``, ``amd64``); ``python`` like ``3.12`` (``3.14t`` without the global lock). ``tags`` are those
    of the wheels that it can use, best first. ``supported`` is what it supports of the namespaces that
    a plugin answers for (``amd``); what a document declares for everybody is found there. ``full_python`` is
    the whole version, for ``Requires-Python`` ("": ``python`` is all that is known). ``enabled`` are the
    namespaces whose optional providers count.
    """

    platform: str
    machine: str
    python: str
    tags: tuple[Tag, ...]
    hardware: Hardware
    supported: SupportedFeatures
    full_python: str = ""
    enabled: frozenset[str] = frozenset()
