"""Kernels in wheels of their own: a host wheel whose extras (``device-gfx942``) require them.

The extras are what METADATA of the host wheel says (``Provides-Extra``, ``Requires-Dist``); whether what an
extra requires is in the index for this version and platform is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels import parallel
from rocm_wheels.errors import HostError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.gpus.names import find_generic_target
from rocm_wheels.hosts.choose.host import TargetHost
from rocm_wheels.hosts.choose.pages import read_wheel_metadata, read_project_links, make_unreachable_error
from rocm_wheels.hosts.choose.served import list_amd_gpus
from rocm_wheels.hosts.choose.sift import OfferedWheel, sift_files
from rocm_wheels.index.reach import IndexReader, UnreachableError
from rocm_wheels.index.reading import IndexLink
from rocm_wheels.wheels.metadata import WheelMetadata, parse_metadata

_LOOKUP_JOBS = 8
_DEVICE_PREFIX = "device-"
_ROCM_PROJECT = re.compile(r"rocm|rocm-sdk-.*|(pytorch-)?triton-rocm")
ALL_DEVICES = "device-all"


@dataclass(frozen=True)
class DeviceSource:
    """The machine, the URL of the index that wheels come from, and the way to it.

    ``links`` are those of the page that the host wheel is on: a folder of wheels has no other.
    """

    host: TargetHost
    base: str
    reach: IndexReader
    links: Sequence[IndexLink] = ()


@dataclass(frozen=True)
class DeviceExtras:
    """The extras to install a host wheel with, and the GPUs that get kernels by them."""

    extras: tuple[str, ...]
    served: tuple[tuple[Gpu, bool], ...]
    notes: tuple[str, ...]


def read_offer_metadata(offer: OfferedWheel, reach: IndexReader) -> WheelMetadata:
    """Read METADATA of a wheel. HostError when it cannot be had, DataError when it is not what it must be."""
    try:
        content = read_wheel_metadata(offer.link, reach)
    except UnreachableError as cause:
        raise make_unreachable_error(offer.link.url, cause) from None
    return parse_metadata(content, name=f"METADATA of {offer.file}")


def find_rocm_requirement(metadata: WheelMetadata) -> str:
    """Return the requirement by which a wheel says that it is built for ROCm, "" when none does.

    Those are ROCm's own packages (``rocm[libraries]``, ``rocm-sdk-core``) and the builds of triton for it.
    """
    for text in metadata.requires_dist:
        requirement = Requirement(text)
        extra = requirement.marker is not None and "extra" in str(requirement.marker)
        if not extra and _ROCM_PROJECT.fullmatch(canonicalize_name(requirement.name)):
            return text
    return ""


def choose_device_extras(
    offer: OfferedWheel, metadata: WheelMetadata, requested: Sequence[str], source: DeviceSource
) -> DeviceExtras | None:
    """Choose the device extras for a machine; None for a wheel that has none.

    ``requested`` are the extras that the requirement names: when device extras are among them, they are kept as
    they are. HostError for one that the wheel does not have, or whose wheels the index does not have.
    """
    offered = [
        extra for extra in map(canonicalize_name, metadata.provides_extra) if extra.startswith(_DEVICE_PREFIX)
    ]
    named_extras = [
        str(canonicalize_name(extra))
        for extra in requested
        if canonicalize_name(extra).startswith(_DEVICE_PREFIX)
    ]
    if not offered and not named_extras:
        return None
    for extra in named_extras:
        if extra not in offered:
            from rocm_wheels.records import suggest_name

            raise HostError(
                f"{offer.file} has no extra {extra}{suggest_name(extra, offered)}",
                tip=f"it has {', '.join(sorted(offered))}"
                if offered
                else "it has none of that kind: ask without",
            )
    extra_by_gpu = {gpu: _find_extra(gpu, offered) for gpu in list_amd_gpus(source.host.hardware)}
    extras = named_extras or list(dict.fromkeys(extra for extra in extra_by_gpu.values() if extra))
    lacking = dict(zip(extras, _find_lacking(extras, metadata, source), strict=True))
    if unmet := [extra for extra in named_extras if lacking[extra]]:
        raise HostError(
            f"{offer.file}[{unmet[0]}] needs {lacking[unmet[0]]}, which the index does not have",
            tip="take another version, or index",
        )
    available = [extra for extra in extras if not lacking[extra]]
    served = tuple(
        (gpu, extra in available or bool(extra and ALL_DEVICES in available))
        for gpu, extra in extra_by_gpu.items()
    )
    return DeviceExtras(tuple(available), served, tuple(_describe_gaps(extra_by_gpu, lacking, offer)))


def _find_extra(gpu: Gpu, offered: Sequence[str]) -> str | None:
    """Return the extra of a GPU: its own, its generic target's, else a family's; None without one."""
    if gpu.gfx is None:
        return None
    from rocm_wheels.model.gfx import find_families

    names = [gpu.gfx, find_generic_target(gpu.gfx) or gpu.gfx, *find_families([gpu.gfx])]
    matching = [extra for name in names if (extra := canonicalize_name(_DEVICE_PREFIX + name)) in offered]
    return matching[0] if matching else None


def _find_lacking(extras: Sequence[str], metadata: WheelMetadata, source: DeviceSource) -> list[str]:
    """Return for each extra the first requirement that the index cannot meet; "" when it meets all."""
    requirements = {extra: _list_required(metadata, extra, source.host) for extra in extras}
    every = list(dict.fromkeys(str(required) for several in requirements.values() for required in several))

    def is_available(text: str) -> bool:
        requirement = Requirement(text)
        links = read_project_links(source.base, canonicalize_name(requirement.name), source.reach)
        return bool(sift_files(links or source.links, requirement, source.host, pre=True).usable)

    availability = dict(
        zip(every, parallel.run_in_parallel(is_available, every, jobs=_LOOKUP_JOBS), strict=True)
    )
    return [
        next((str(required) for required in requirements[extra] if not availability[str(required)]), "")
        for extra in extras
    ]


def _list_required(metadata: WheelMetadata, extra: str, host: TargetHost) -> list[Requirement]:
    """Return what an extra adds to what a wheel requires on a machine, without its marker."""
    requirements = []
    for text in metadata.requires_dist:
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        if marker is None:
            continue
        environment = _make_markers(host)
        if marker.evaluate({**environment, "extra": extra}) and not marker.evaluate(
            {**environment, "extra": ""}
        ):
            requirements.append(requirement)
    return requirements


def _make_markers(host: TargetHost) -> Mapping[str, str]:
    """Return the markers of a machine (PEP 508) that say what it is."""
    system, os_name, platform = {
        "linux": ("Linux", "posix", "linux"),
        "windows": ("Windows", "nt", "win32"),
        "macos": ("Darwin", "posix", "darwin"),
    }[host.platform]
    python = host.python.removesuffix("t")
    return {
        "os_name": os_name,
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": host.machine.upper() if host.platform == "windows" else host.machine,
        "python_version": python,
        "python_full_version": host.full_python if host.full_python.count(".") > 1 else f"{python}.0",
    }


def _describe_gaps(
    extra_by_gpu: Mapping[Gpu, str | None], lacking: Mapping[str, str], offer: OfferedWheel
) -> list[str]:
    notes = []
    for gpu, extra in extra_by_gpu.items():
        if extra is None:
            notes.append(f"{offer.file} has no kernels for {gpu.gfx or gpu.name or 'an unknown GPU'}")
        elif lacking.get(extra):
            notes.append(
                f"no kernels for {gpu.gfx}: {extra} needs {lacking[extra]}, which the index does not have"
            )
    return list(dict.fromkeys(notes))
