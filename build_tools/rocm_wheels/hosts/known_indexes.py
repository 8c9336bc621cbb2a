"""Find the indexes for a machine in the compatibility tables, and the targets that a given index serves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.version import Version

from rocm_wheels.core import HostError
from rocm_wheels.gpus import Gpu
from rocm_wheels.hosts.host import TargetHost, list_usable_gpus
from rocm_wheels.models import (
    OVERRIDE_VARIABLE,
    PackageIndex,
    find_builds,
    find_index_by_url,
    find_indexes,
    load_overrides,
)


def find_host_indexes(host: TargetHost, channel: str) -> tuple[tuple[PackageIndex, ...], tuple[str, ...]]:
    """Return the indexes for the best GPU of a machine that any serves, with notes on GPUs that none does.

    Without such a GPU they are those for its CPU. HostError when there is none at all.
    """
    indexes: tuple[PackageIndex, ...] = ()
    missed: list[str] = []
    for gpu in list_usable_gpus(host):
        if indexes := _query_indexes(_get_target(gpu), gpu.vendor, host, channel):
            break
        missed.append(_describe_gpu(gpu, host))
    notes: tuple[str, ...] = ()
    if missed:
        names = " and ".join(dict.fromkeys(missed))
        message = f"no {channel} index that is known here serves {names} with Python {host.python}"
        notes = (
            (message,) if indexes else (f"{message}: for the CPU", *_suggest_overrides(missed, host, channel))
        )
    if not indexes:
        indexes = _query_indexes(None, "none", host, channel)
    if not indexes:
        raise HostError(
            f"no {channel} index is known for Python {host.python} on {host.platform} {host.machine}",
            tip="name one: --index URL",
        )
    return indexes, notes


def find_vendor_index(host: TargetHost, channel: str = "stable") -> PackageIndex | None:
    """Return the index for the NVIDIA or Intel GPU of a machine without a better one; None without such."""
    best = next(iter(list_usable_gpus(host)), None)
    if best is None or best.vendor not in ("nvidia", "intel"):
        return None
    return next(iter(_query_indexes(_get_target(best), best.vendor, host, channel)), None)


def list_index_targets(base: str, platform: str, torch: Version | None) -> tuple[str, ...]:
    """Return the targets of an index by the tables, those of one ``torch`` where they tell; else ()."""
    index = find_index_by_url(base)
    if index is None:
        return ()
    builds = find_builds(torch, platform=platform) if torch else ()
    target_lists = [build.targets.get(platform, ()) for build in builds if build.index.name == index.name]
    return tuple(
        dict.fromkeys(target for targets in target_lists for target in targets)
    ) or index.targets.get(platform, ())


def _describe_gpu(gpu: Gpu, host: TargetHost) -> str:
    name = gpu.gfx or gpu.name or gpu.vendor
    driver = host.hardware.cuda if gpu.vendor == "nvidia" else None
    return f"{name} (whose driver has CUDA {driver})" if driver else name


def _get_target(gpu: Gpu) -> str | None:
    return gpu.gfx if gpu.vendor == "amd" else gpu.capability if gpu.vendor == "nvidia" else None


def _suggest_overrides(missed: Sequence[str], host: TargetHost, channel: str) -> Iterator[str]:
    """Say of a GPU that no index has kernels for whose kernels it is known to run, where some has those."""
    cards = load_overrides().cards
    for name in dict.fromkeys(missed) if host.platform == "linux" else ():
        for option in cards.get(name, ()):
            if not option.risky and _query_indexes(option.target, "amd", host, channel):
                posing = f"{OVERRIDE_VARIABLE}={option.version}"
                yield f"{name} can run kernels for {option.target} with {posing}: --gfx {option.target}"
                break


def _query_indexes(
    target: str | None, vendor: str, host: TargetHost, channel: str
) -> tuple[PackageIndex, ...]:
    indexes = find_indexes(
        target,
        vendor=vendor,
        platform=host.platform,
        channel=channel,
        python=host.python,
        machine=host.machine,
    )
    driver = host.hardware.cuda if vendor == "nvidia" else None
    return tuple(
        index for index in indexes if driver is None or _parse_cuda_major(index) <= Version(driver).major
    )


def _parse_cuda_major(index: PackageIndex) -> int:
    """Return the major version of CUDA that an index is for; a driver serves all minor ones of its own."""
    match = re.search(r"/cu(\d+)\d/?$", index.url)
    return int(match[1]) if match else 0
