"""Choose the extras by which a host wheel gets kernels for the GPUs of a machine.

A host wheel can have its kernels in wheels of their own, which its extras (``device-gfx942``) require.
METADATA of the host wheel lists the extras (``Provides-Extra``, ``Requires-Dist``); whether what an extra
requires is in the index for this version and platform is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, parallel, tables
from rocm_wheels.gpus.gpu import Gpu, find_generic_target
from rocm_wheels.index import reader
from rocm_wheels.user import candidates, index_pages
from rocm_wheels.user.host import TargetHost, make_markers
from rocm_wheels.variants import device_names
from rocm_wheels.wheels import dist_info

_LOOKUP_JOBS = 8
_DEVICE_PREFIX = "device-"


@dataclass(frozen=True)
class DeviceExtras:
    """Extras to install a host wheel with, the GPUs that get kernels by them, and the wheels of these."""

    extras: tuple[str, ...]
    served: tuple[tuple[Gpu, bool], ...]
    notes: tuple[str, ...]
    wheels: tuple[candidates.ChoiceCandidate, ...]


def choose_device_extras(
    wheel: candidates.ChoiceCandidate,
    metadata: dist_info.WheelMetadata,
    requested: Sequence[str],
    *,
    located: index_pages.LocatedProject,
    host: TargetHost,
    reach: reader.IndexReader,
) -> DeviceExtras | None:
    """Choose the device extras for a machine; None for a wheel that has none.

    ``requested`` are the extras that the requirement names: when device extras are among them, they are kept
    as they are. Else each GPU gets its own; beside a card graphics inside a processor get none. HostError for
    one that the wheel does not have, or whose wheels the index (``located``) does not have.
    """
    offered, named = (
        [str(extra) for extra in map(canonicalize_name, extras) if extra.startswith(_DEVICE_PREFIX)]
        for extras in (metadata.provides_extra, requested)
    )
    if not offered and not named:
        return None
    for extra in named:
        if extra not in offered:
            tip = (
                f"it has {', '.join(sorted(offered))}" if offered else "it has none of that kind: ask without"
            )
            hint = tables.suggest_name(extra, offered)
            raise errors.HostError(f"{wheel.name} has no extra {extra}{hint}", tip=tip)
    extra_by_gpu = {gpu: _find_extra(gpu, offered) for gpu in host.hardware.amd}
    extras = named or list(dict.fromkeys(extra for extra in extra_by_gpu.values() if extra))
    required = _list_requirements(extras, metadata, host)

    def find_wheel(text: str) -> candidates.ChoiceCandidate | None:
        requirement = Requirement(text)
        links = index_pages.read_project_links(located.index, canonicalize_name(requirement.name), reach)
        # a folder of wheels has no other page than the host wheel's
        files = candidates.read_project_files(links or located.links, requirement, host, pre=True)
        newest = next(iter(files.list_usable().values()), [])
        return min(newest, key=candidates.ChoiceCandidate.get_install_key, default=None)

    texts = list(dict.fromkeys(text for extra in extras for text in required[extra]))
    wheels = dict(zip(texts, parallel.run_in_parallel(find_wheel, texts, jobs=_LOOKUP_JOBS), strict=True))
    lacking = {
        extra: next(text for text in required[extra] if wheels[text] is None)
        for extra in extras
        if any(wheels[text] is None for text in required[extra])
    }
    for extra in named:
        if extra in lacking:
            raise errors.HostError(
                f"{wheel.name}[{extra}] needs {lacking[extra]}, which the index does not have",
                tip="take another version, or index",
            )

    notes = [
        f"no kernels for {gpu.gfx}: {extra} needs {lacking[extra]}, which the index does not have"
        for gpu, extra in extra_by_gpu.items()
        if extra is not None and extra in lacking
    ]
    taken = [extra for extra in extras if extra not in lacking]
    for_cards = {extra for gpu, extra in extra_by_gpu.items() if not gpu.integrated and extra in taken}
    if for_cards and not named:
        notes += [
            f"{extra} is left out: a card comes before graphics inside a processor; "
            f"torch[{extra}] asks for it"
            for extra in taken
            if extra not in for_cards
        ]
        taken = [extra for extra in taken if extra in for_cards]
    served = tuple(
        (gpu, extra in taken or (extra is not None and device_names.DEVICE_ALL in taken))
        for gpu, extra in extra_by_gpu.items()
    )
    devices = dict.fromkeys(wheels[text] for extra in taken for text in required[extra])
    return DeviceExtras(tuple(taken), served, tuple(dict.fromkeys(notes)), tuple(filter(None, devices)))


def _find_extra(gpu: Gpu, offered: Sequence[str]) -> str | None:
    """Return the extra of a GPU: its own, its generic target's, else a family's; None without one.

    Of a GPU that is of no family in the tables, a family's name that stands for it will do.
    """
    if gpu.gfx is None:
        return None
    from rocm_wheels.models import gfx

    families = gfx.find_families([gpu.gfx]) or [
        family
        for extra in offered
        if index_pages.is_named_by_family(family := extra.removeprefix(_DEVICE_PREFIX), gpu.gfx)
    ]
    names = [gpu.gfx, find_generic_target(gpu.gfx) or gpu.gfx, *families]
    extras = (str(canonicalize_name(_DEVICE_PREFIX + name)) for name in names)
    return next((extra for extra in extras if extra in offered), None)


def _list_requirements(
    extras: Sequence[str], metadata: dist_info.WheelMetadata, host: TargetHost
) -> dict[str, list[str]]:
    """Return what each extra adds to the requirements of a wheel, without markers."""
    markers = make_markers(host)
    required: dict[str, list[str]] = {extra: [] for extra in extras}
    for text in metadata.requires_dist:
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        if marker is not None and not marker.evaluate({**markers, "extra": ""}):  # by an extra alone
            for extra in extras:
                if marker.evaluate({**markers, "extra": extra}):
                    required[extra].append(str(requirement))
    return required
