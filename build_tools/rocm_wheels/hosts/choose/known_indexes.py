"""What the compatibility tables say of indexes: which is for a machine, and whom a given one serves."""

from __future__ import annotations

from packaging.version import Version

from rocm_wheels.errors import HostError
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.picking import vendor_of
from rocm_wheels.model.compat.builds import builds_of
from rocm_wheels.model.compat.releases import Index, index_at, indexes_for


def indexes_of(host: Host, channel: str) -> tuple[tuple[Index, ...], tuple[str, ...]]:
    """Return the indexes for a machine, best first, with notes when those for its CPU are all there is.

    HostError when there is none at all.
    """
    vendor = vendor_of(host)
    found = _asked(_target(host, vendor), vendor, host, channel)
    notes: tuple[str, ...] = ()
    if not found and vendor != "none":
        gpu = next(gpu for gpu in host.hardware.gpus if gpu.visible and gpu.vendor == vendor)
        name = gpu.gfx or gpu.name or vendor
        notes = (
            f"no {channel} index that is known here serves {name} with Python {host.python}: for the CPU",
        )
        found = _asked(None, "none", host, channel)
    if not found:
        raise HostError(
            f"no {channel} index is known for Python {host.python} on {host.platform} {host.machine}",
            tip="name one: --index URL",
        )
    return found, notes


def index_of_vendor(host: Host, channel: str = "stable") -> Index | None:
    """Return the index for the NVIDIA or Intel GPU of a machine without an AMD one; None without such."""
    vendor = vendor_of(host)
    found = _asked(_target(host, vendor), vendor, host, channel) if vendor in ("nvidia", "intel") else ()
    return found[0] if found else None


def targets_of_index(base: str, platform: str, torch: Version | None) -> tuple[str, ...]:
    """Return the targets of an index by the tables, those of one ``torch`` where they tell; else ()."""
    known = index_at(base)
    if known is None:
        return ()
    builds = builds_of(torch, platform=platform) if torch else ()
    own = [build.targets.get(platform, ()) for build in builds if build.index.name == known.name]
    return tuple(dict.fromkeys(target for targets in own for target in targets)) or known.targets.get(
        platform, ()
    )


def _target(host: Host, vendor: str) -> str | None:
    if vendor == "amd":
        return host.hardware.usable[0].gfx
    same = [gpu for gpu in host.hardware.gpus if gpu.visible and gpu.vendor == vendor]
    return same[0].capability if same and vendor == "nvidia" else None


def _asked(target: str | None, vendor: str, host: Host, channel: str) -> tuple[Index, ...]:
    return indexes_for(
        target,
        vendor=vendor,
        platform=host.platform,
        channel=channel,
        python=host.python,
        machine=host.machine,
    )
