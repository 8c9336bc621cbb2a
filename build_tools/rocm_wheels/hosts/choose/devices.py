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
from rocm_wheels.gpus.names import generic_of
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.pages import metadata_of, project_links, unreachable
from rocm_wheels.hosts.choose.served import amd_gpus
from rocm_wheels.hosts.choose.sift import Offer, sift
from rocm_wheels.index.reach import Reach, UnreachableError
from rocm_wheels.index.reading import Link
from rocm_wheels.wheels.metadata import WheelMetadata, parse_metadata

_JOBS = 8
_PREFIX = "device-"
_OF_ROCM = re.compile(r"rocm|rocm-sdk-.*|(pytorch-)?triton-rocm")
ALL = "device-all"


@dataclass(frozen=True)
class Place:
    """The machine, the URL of the index that wheels come from, and the way to it.

    ``links`` are those of the page that the host wheel is on: a folder of wheels has no other.
    """

    host: Host
    base: str
    reach: Reach
    links: Sequence[Link] = ()


@dataclass(frozen=True)
class Devices:
    """The extras to install a host wheel with, and the GPUs that get kernels by them."""

    extras: tuple[str, ...]
    served: tuple[tuple[Gpu, bool], ...]
    notes: tuple[str, ...]


def read_metadata(offer: Offer, reach: Reach) -> WheelMetadata:
    """Read METADATA of a wheel. HostError when it cannot be had, DataError when it is not what it must be."""
    try:
        content = metadata_of(offer.link, reach)
    except UnreachableError as cause:
        raise unreachable(offer.link.url, cause) from None
    return parse_metadata(content, name=f"METADATA of {offer.file}")


def required_rocm(metadata: WheelMetadata) -> str:
    """Return the requirement by which a wheel says that it is built for ROCm, "" when none does.

    Those are ROCm's own packages (``rocm[libraries]``, ``rocm-sdk-core``) and the builds of triton for it.
    """
    for text in metadata.requires_dist:
        requirement = Requirement(text)
        extra = requirement.marker is not None and "extra" in str(requirement.marker)
        if not extra and _OF_ROCM.fullmatch(canonicalize_name(requirement.name)):
            return text
    return ""


def choose_devices(
    offer: Offer, metadata: WheelMetadata, asked: Sequence[str], place: Place
) -> Devices | None:
    """Choose the device extras for a machine; None for a wheel that has none.

    ``asked`` are the extras that the requirement names: when device extras are among them, they are kept as
    they are. HostError for one that the wheel does not have, or whose wheels the index does not have.
    """
    offered = [
        extra for extra in map(canonicalize_name, metadata.provides_extra) if extra.startswith(_PREFIX)
    ]
    named = [str(canonicalize_name(extra)) for extra in asked if canonicalize_name(extra).startswith(_PREFIX)]
    if not offered and not named:
        return None
    for extra in named:
        if extra not in offered:
            from rocm_wheels.records import did_you_mean

            raise HostError(
                f"{offer.file} has no extra {extra}{did_you_mean(extra, offered)}",
                tip=f"it has {', '.join(sorted(offered))}"
                if offered
                else "it has none of that kind: ask without",
            )
    wanted = {gpu: _extra_for(gpu, offered) for gpu in amd_gpus(place.host.hardware)}
    extras = named or list(dict.fromkeys(extra for extra in wanted.values() if extra))
    lacking = dict(zip(extras, _lacking(extras, metadata, place), strict=True))
    if gone := [extra for extra in named if lacking[extra]]:
        raise HostError(
            f"{offer.file}[{gone[0]}] needs {lacking[gone[0]]}, which the index does not have",
            tip="take another version, or index",
        )
    kept = [extra for extra in extras if not lacking[extra]]
    served = tuple((gpu, extra in kept or bool(extra and ALL in kept)) for gpu, extra in wanted.items())
    return Devices(tuple(kept), served, tuple(_notes(wanted, lacking, offer)))


def _extra_for(gpu: Gpu, offered: Sequence[str]) -> str | None:
    """Return the extra of a GPU: its own, its generic target's, else a family's; None without one."""
    if gpu.gfx is None:
        return None
    from rocm_wheels.model.gfx import families_of

    names = [gpu.gfx, generic_of(gpu.gfx) or gpu.gfx, *families_of([gpu.gfx])]
    found = [extra for name in names if (extra := canonicalize_name(_PREFIX + name)) in offered]
    return found[0] if found else None


def _lacking(extras: Sequence[str], metadata: WheelMetadata, place: Place) -> list[str]:
    """Return for each extra the first requirement that the index cannot meet; "" when it meets all."""
    wanted = {extra: _required(metadata, extra, place.host) for extra in extras}
    every = list(dict.fromkeys(str(one) for several in wanted.values() for one in several))

    def is_there(text: str) -> bool:
        requirement = Requirement(text)
        links = project_links(place.base, canonicalize_name(requirement.name), place.reach)
        return bool(sift(links or place.links, requirement, place.host, pre=True).usable)

    there = dict(zip(every, parallel.each(is_there, every, jobs=_JOBS), strict=True))
    return [next((str(one) for one in wanted[extra] if not there[str(one)]), "") for extra in extras]


def _required(metadata: WheelMetadata, extra: str, host: Host) -> list[Requirement]:
    """Return what an extra adds to what a wheel requires on a machine, without its marker."""
    found = []
    for text in metadata.requires_dist:
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        if marker is None:
            continue
        environment = _environment(host)
        if marker.evaluate({**environment, "extra": extra}) and not marker.evaluate(
            {**environment, "extra": ""}
        ):
            found.append(requirement)
    return found


def _environment(host: Host) -> Mapping[str, str]:
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


def _notes(wanted: Mapping[Gpu, str | None], lacking: Mapping[str, str], offer: Offer) -> list[str]:
    found = []
    for gpu, extra in wanted.items():
        if extra is None:
            found.append(f"{offer.file} has no kernels for {gpu.gfx or gpu.name or 'an unknown GPU'}")
        elif lacking.get(extra):
            found.append(
                f"no kernels for {gpu.gfx}: {extra} needs {lacking[extra]}, which the index does not have"
            )
    return list(dict.fromkeys(found))
