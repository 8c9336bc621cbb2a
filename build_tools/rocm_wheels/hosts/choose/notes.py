"""What else is to be said of a choice: the CPU wheel, said plainly; what is served; what an index lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.requirements import Requirement

from rocm_wheels.gpus.visible import CUDA, HIP, ROCR
from rocm_wheels.hosts.choose.devices import Devices
from rocm_wheels.hosts.choose.documents import unlisted
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.misses import nearest
from rocm_wheels.hosts.choose.picking import Picked
from rocm_wheels.hosts.choose.ranking import Ranked
from rocm_wheels.hosts.choose.served import Served, amd_gpus
from rocm_wheels.hosts.choose.sift import Offer, Sifted, Stage, kind_of
from rocm_wheels.hosts.choose.vendors import vendor_of
from rocm_wheels.index.reading import file_name
from rocm_wheels.variants.document import NULL_LABEL
from rocm_wheels.variants.order import NARROWED

_VENDORS = {"nvidia": "NVIDIA", "intel": "Intel"}
_MOST = 5
_FOR_CPU = "is the wheel for the CPU"


@dataclass(frozen=True)
class Findings:
    """All that is known of a choice when it is made.

    ``rocm`` is by which requirement the wheel that is taken says that it is built for ROCm, "" by none.
    """

    requirement: Requirement
    host: Host
    sifted: Sifted
    picked: Picked
    layout: str
    served: Served
    devices: Devices | None = None
    rocm: str = ""

    @property
    def best(self) -> Ranked:
        """The wheel that is taken."""
        return self.picked.ranking.ranked[0]


def notes_of(found: Findings) -> tuple[str, ...]:
    """Return sentences for people, the most important first."""
    said = (_cpu(found), _kernels(found), _newer(found), _documents(found), _files(found))
    return tuple(dict.fromkeys(note for several in said for note in several))


def is_for_cpu(found: Findings) -> bool:
    """Tell whether the wheel that is taken is one without code for GPUs, as far as the index says.

    A release whose only variant is ``null`` has none for GPUs: that one is for every machine.
    """
    offer = found.best.offer
    if found.rocm:
        return False
    if found.layout == "variants":
        return offer.name.label in (None, NULL_LABEL) and any(
            found.picked.document.metadata.variants.values()
        )
    return kind_of(offer.version) == "cpu"


def _cpu(found: Findings) -> Iterator[str]:
    file, vendor = found.best.offer.file, vendor_of(found.host)
    if is_for_cpu(found):
        unsaid = found.best.offer.name.label is None and kind_of(found.best.offer.version) != "cpu"
        named = "has no label, and is the wheel for the CPU as far as anything says" if unsaid else _FOR_CPU
        yield f"{file} {named}: {_why_cpu(found)}"
    elif found.rocm:
        but = "" if amd_gpus(found.host.hardware) else ", and computes on the CPU without one"
        yield f"{file} requires {found.rocm}, so it is a build for AMD GPUs{but}: {_why_cpu(found)}"
    elif found.picked.second_best:
        yield f"{file} is made for GPUs, and there is none here: it computes on the CPU"
    if vendor in _VENDORS and kind_of(found.best.offer.version) not in ("cuda", "xpu"):
        from rocm_wheels.hosts.choose.known_indexes import index_of_vendor

        theirs = index_of_vendor(found.host)
        where = f": their wheels are at {theirs.url}" if theirs else ""
        which = "better GPU" if found.host.hardware.usable else "GPU"
        yield f"the {which} here is one of {_VENDORS[vendor]}{where}"


def _why_cpu(found: Findings) -> str:
    missed = [one for one in found.picked.out if one.offer.stage is Stage.PROPERTIES]
    same = [one for one in missed if one.offer.version == found.picked.version]
    if not found.host.hardware.usable:
        return _without_gpu(found.host)
    if not same:
        return "the index has no build for AMD GPUs that fits"
    near = nearest(same, found.host)
    return f"no variant fits this machine; the nearest is {near.offer.name.label}: {near.reason}"


def _without_gpu(host: Host) -> str:
    if amd_gpus(host.hardware):
        return "the target of the AMD GPU is not known"
    hidden = dict.fromkeys(gpu.hidden_by for gpu in host.hardware.gpus if gpu.vendor == "amd")
    if not hidden:
        return "there is no AMD GPU here"
    variables = all(by in (ROCR, HIP, CUDA) for by in hidden)
    by = " and ".join(hidden)
    return f"{by} hides the AMD GPU" if variables else f"the AMD GPU is not for this process, by {by}"


def _kernels(found: Findings) -> Iterator[str]:
    offer = found.best.offer
    gpus = amd_gpus(found.host.hardware)
    if found.devices:
        yield from found.devices.notes
    if found.served and not is_for_cpu(found):
        good = [str(gpu.gfx) for gpu, is_served in found.served if is_served]
        bad = [gpu.gfx or gpu.name or "an unknown GPU" for gpu, is_served in found.served if not is_served]
        if good and bad:
            named = f"{_once(good)}; not {_once(bad)}"
            yield f"{len(good)} of {len(found.served)} GPUs are served: {named}"
        elif bad:
            yield f"{offer.file} has no kernels for {_once(bad)}: it computes on the CPU at best"
    elif gpus and not found.served and has_code(offer) and offer.name.label is None and not is_for_cpu(found):
        yield (
            f"which GPUs {offer.file} has code for is not said by its index; "
            "`rocm-wheels targets FILE` reads it out of the file"
        )


def _once(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def has_code(offer: Offer) -> bool:
    """Tell whether a wheel is for one platform: others have no compiled code, and none for GPUs."""
    return any(tag.platform != "any" for tag in offer.name.tags)


def _newer(found: Findings) -> Iterator[str]:
    """Say why a newer version was not taken, when it would have been asked for."""
    version = found.picked.version
    newer = [
        one
        for one in found.picked.out
        if version is not None
        and one.offer.version > version
        and one.offer.stage not in (Stage.VERSION, Stage.YANKED)
        and found.requirement.specifier.contains(one.offer.version)
    ]
    if newer:
        top = max(one.offer.version for one in newer)
        near = nearest([one for one in newer if one.offer.version == top], found.host)
        yield f"{top} is newer and has nothing for this machine: {near.offer.file}: {near.reason}"
    if found.best.offer.link.yanked is not None:
        why = found.best.offer.link.yanked or "no reason is given"
        yield f"{found.best.offer.file} was yanked ({why}); it was asked for exactly"


def _documents(found: Findings) -> Iterator[str]:
    document = found.picked.document
    yield from document.notes
    providers = {*document.metadata.providers, *found.picked.ranking.answers}
    for namespace in sorted(found.host.enabled - providers):
        yield f"--enable {namespace} changes nothing: no variant of this release has a provider of that name"
    for namespace, answer in found.picked.ranking.answers.items():
        if answer.source == NARROWED:
            yield (
                f"the document lists {namespace} :: gfx_arch for every machine, and uv takes it so; "
                "here it is compared with the GPUs of this machine"
            )
        if not answer.features and not answer.source.startswith("this machine"):
            yield f"nothing of namespace {namespace} is supported: {answer.source}"
    link = found.sifted.documents.get(found.best.offer.version)
    if link is None:
        return
    files = [one.offer for one in (*found.picked.ranking.ranked, *found.picked.out)]
    same = [offer for offer in files if offer.version == found.best.offer.version]
    if gone := unlisted(document, same):
        yield f"{file_name(link)} lists {', '.join(gone)}, and the index has no such wheel"


def _files(found: Findings) -> Iterator[str]:
    if found.sifted.unread:
        names = ", ".join(found.sifted.unread[:_MOST])
        more = len(found.sifted.unread) - _MOST
        yield f"no names of wheels, left out: {names}{f' and {more} more' if more > 0 else ''}"
    if found.sifted.sources:
        yield f"{found.sifted.sources} source distributions are left out: wheels are chosen here"
