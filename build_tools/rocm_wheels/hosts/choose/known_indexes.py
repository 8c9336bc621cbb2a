"""What the compatibility tables say of indexes: which is for a machine, and whom a given one serves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.version import Version

from rocm_wheels.errors import HostError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.vendors import gpus_that_count
from rocm_wheels.model.compat.builds import builds_of
from rocm_wheels.model.compat.overrides import VARIABLE, overrides
from rocm_wheels.model.compat.releases import Index, index_at, indexes_for


def indexes_of(host: Host, channel: str) -> tuple[tuple[Index, ...], tuple[str, ...]]:
    """Return the indexes for the best GPU of a machine that any serves, with notes on GPUs that none does.

    Without such a GPU they are those for its CPU. HostError when there is none at all.
    """
    found: tuple[Index, ...] = ()
    missed: list[str] = []
    for gpu in gpus_that_count(host):
        if found := _asked(_target(gpu), gpu.vendor, host, channel):
            break
        missed.append(_named(gpu, host))
    notes: tuple[str, ...] = ()
    if missed:
        names = " and ".join(dict.fromkeys(missed))
        said = f"no {channel} index that is known here serves {names} with Python {host.python}"
        notes = (said,) if found else (f"{said}: for the CPU", *_others_kernels(missed, host, channel))
    if not found:
        found = _asked(None, "none", host, channel)
    if not found:
        raise HostError(
            f"no {channel} index is known for Python {host.python} on {host.platform} {host.machine}",
            tip="name one: --index URL",
        )
    return found, notes


def index_of_vendor(host: Host, channel: str = "stable") -> Index | None:
    """Return the index for the NVIDIA or Intel GPU of a machine without a better one; None without such."""
    best = next(iter(gpus_that_count(host)), None)
    if best is None or best.vendor not in ("nvidia", "intel"):
        return None
    return next(iter(_asked(_target(best), best.vendor, host, channel)), None)


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


def _named(gpu: Gpu, host: Host) -> str:
    name = gpu.gfx or gpu.name or gpu.vendor
    driver = host.hardware.cuda if gpu.vendor == "nvidia" else None
    return f"{name} (whose driver has CUDA {driver})" if driver else name


def _target(gpu: Gpu) -> str | None:
    return gpu.gfx if gpu.vendor == "amd" else gpu.capability if gpu.vendor == "nvidia" else None


def _others_kernels(missed: Sequence[str], host: Host, channel: str) -> Iterator[str]:
    """Say of a GPU that no index has kernels for whose kernels it is known to run, where some has those."""
    known = overrides().cards
    for name in dict.fromkeys(missed) if host.platform == "linux" else ():
        for option in known.get(name, ()):
            if not option.risky and _asked(option.target, "amd", host, channel):
                posing = f"{VARIABLE}={option.version}"
                yield f"{name} can run kernels for {option.target} with {posing}: --gfx {option.target}"
                break


def _asked(target: str | None, vendor: str, host: Host, channel: str) -> tuple[Index, ...]:
    found = indexes_for(
        target,
        vendor=vendor,
        platform=host.platform,
        channel=channel,
        python=host.python,
        machine=host.machine,
    )
    driver = host.hardware.cuda if vendor == "nvidia" else None
    return tuple(one for one in found if driver is None or _cuda(one) <= Version(driver).major)


def _cuda(index: Index) -> int:
    """Return the major version of CUDA that an index is for; a driver serves all minor ones of its own."""
    found = re.search(r"/cu(\d+)\d/?$", index.url)
    return int(found[1]) if found else 0
