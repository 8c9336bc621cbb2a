"""What else is to be said of a choice: the CPU wheel, said plainly; what is served; what an index lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.requirements import Requirement

from rocm_wheels.gpus.visible import CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES
from rocm_wheels.hosts.choose.devices import DeviceExtras
from rocm_wheels.hosts.choose.documents import list_missing_labels
from rocm_wheels.hosts.choose.host import TargetHost
from rocm_wheels.hosts.choose.misses import find_nearest
from rocm_wheels.hosts.choose.picking import PickedVersion
from rocm_wheels.hosts.choose.ranking import RankedWheel
from rocm_wheels.hosts.choose.served import ServedGpus, list_amd_gpus
from rocm_wheels.hosts.choose.sift import OfferedWheel, SiftedFiles, RejectionStage, get_build_kind
from rocm_wheels.hosts.choose.vendors import get_main_vendor
from rocm_wheels.index.reading import file_name_of_link
from rocm_wheels.variants.document import NULL_LABEL
from rocm_wheels.variants.order import NARROWED_SOURCE

_VENDOR_NAMES = {"nvidia": "NVIDIA", "intel": "Intel"}
_MAX_LISTED = 5
_IS_CPU_WHEEL = "is the wheel for the CPU"


@dataclass(frozen=True)
class ChoiceFacts:
    """All that is known of a choice when it is made.

    ``rocm`` is by which requirement the wheel that is taken says that it is built for ROCm, "" by none.
    """

    requirement: Requirement
    host: TargetHost
    sifted: SiftedFiles
    picked: PickedVersion
    layout: str
    served: ServedGpus
    devices: DeviceExtras | None = None
    rocm: str = ""

    @property
    def best(self) -> RankedWheel:
        """The wheel that is taken."""
        return self.picked.ranking.ranked[0]


def explain_choice(facts: ChoiceFacts) -> tuple[str, ...]:
    """Return sentences for people, the most important first."""
    groups = (
        _explain_cpu(facts),
        _explain_kernels(facts),
        _explain_newer(facts),
        _explain_documents(facts),
        _explain_files(facts),
    )
    return tuple(dict.fromkeys(note for group in groups for note in group))


def is_for_cpu(facts: ChoiceFacts) -> bool:
    """Tell whether the wheel that is taken is one without code for GPUs, as far as the index says.

    A release whose only variant is ``null`` has none for GPUs: that one is for every machine.
    """
    offer = facts.best.offer
    if facts.rocm:
        return False
    if facts.layout == "variants":
        return offer.name.label in (None, NULL_LABEL) and any(
            facts.picked.document.metadata.variants.values()
        )
    return get_build_kind(offer.version) == "cpu"


def _explain_cpu(facts: ChoiceFacts) -> Iterator[str]:
    file, vendor = facts.best.offer.file, get_main_vendor(facts.host)
    if is_for_cpu(facts):
        unsaid = facts.best.offer.name.label is None and get_build_kind(facts.best.offer.version) != "cpu"
        verdict = (
            "has no label, and is the wheel for the CPU as far as anything says" if unsaid else _IS_CPU_WHEEL
        )
        yield f"{file} {verdict}: {_explain_missing_build(facts)}"
    elif facts.rocm:
        but = "" if list_amd_gpus(facts.host.hardware) else ", and computes on the CPU without one"
        yield f"{file} requires {facts.rocm}, so it is a build for AMD GPUs{but}: {_explain_missing_build(facts)}"
    elif facts.picked.second_best:
        yield f"{file} is made for GPUs, and there is none here: it computes on the CPU"
    if vendor in _VENDOR_NAMES and get_build_kind(facts.best.offer.version) not in ("cuda", "xpu"):
        from rocm_wheels.hosts.choose.known_indexes import find_vendor_index

        vendor_index = find_vendor_index(facts.host)
        where = f": their wheels are at {vendor_index.url}" if vendor_index else ""
        which = "better GPU" if facts.host.hardware.usable else "GPU"
        yield f"the {which} here is one of {_VENDOR_NAMES[vendor]}{where}"


def _explain_missing_build(facts: ChoiceFacts) -> str:
    missed = [wheel for wheel in facts.picked.rejected if wheel.offer.stage is RejectionStage.PROPERTIES]
    same_version = [wheel for wheel in missed if wheel.offer.version == facts.picked.version]
    if not facts.host.hardware.usable:
        return _explain_missing_gpu(facts.host)
    if not same_version:
        return "the index has no build for AMD GPUs that fits"
    nearest_wheel = find_nearest(same_version, facts.host)
    return f"no variant fits this machine; the nearest is {nearest_wheel.offer.name.label}: {nearest_wheel.reason}"


def _explain_missing_gpu(host: TargetHost) -> str:
    if list_amd_gpus(host.hardware):
        return "the target of the AMD GPU is not known"
    hidden = dict.fromkeys(gpu.hidden_by for gpu in host.hardware.gpus if gpu.vendor == "amd")
    if not hidden:
        return "there is no AMD GPU here"
    variables = all(
        reason_text in (ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES)
        for reason_text in hidden
    )
    reason_text = " and ".join(hidden)
    return (
        f"{reason_text} hides the AMD GPU"
        if variables
        else f"the AMD GPU is not for this process, by {reason_text}"
    )


def _explain_kernels(facts: ChoiceFacts) -> Iterator[str]:
    offer = facts.best.offer
    gpus = list_amd_gpus(facts.host.hardware)
    if facts.devices:
        yield from facts.devices.notes
    if facts.served and not is_for_cpu(facts):
        served = [str(gpu.gfx) for gpu, is_served in facts.served if is_served]
        unserved = [
            gpu.gfx or gpu.name or "an unknown GPU" for gpu, is_served in facts.served if not is_served
        ]
        if served and unserved:
            listing = f"{_join_unique(served)}; not {_join_unique(unserved)}"
            yield f"{len(served)} of {len(facts.served)} GPUs are served: {listing}"
        elif unserved:
            yield f"{offer.file} has no kernels for {_join_unique(unserved)}: it computes on the CPU at best"
    elif (
        gpus
        and not facts.served
        and has_compiled_code(offer)
        and offer.name.label is None
        and not is_for_cpu(facts)
    ):
        yield (
            f"which GPUs {offer.file} has code for is not said by its index; "
            "`rocm-wheels targets FILE` reads it out of the file"
        )


def _join_unique(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def has_compiled_code(offer: OfferedWheel) -> bool:
    """Tell whether a wheel is for one platform: others have no compiled code, and none for GPUs."""
    return any(tag.platform != "any" for tag in offer.name.tags)


def _explain_newer(facts: ChoiceFacts) -> Iterator[str]:
    """Say why a newer version was not taken, when it would have been asked for."""
    version = facts.picked.version
    newer = [
        wheel
        for wheel in facts.picked.rejected
        if version is not None
        and wheel.offer.version > version
        and wheel.offer.stage not in (RejectionStage.VERSION, RejectionStage.YANKED)
        and facts.requirement.specifier.contains(wheel.offer.version)
    ]
    if newer:
        top = max(wheel.offer.version for wheel in newer)
        nearest_wheel = find_nearest([wheel for wheel in newer if wheel.offer.version == top], facts.host)
        yield f"{top} is newer and has nothing for this machine: {nearest_wheel.offer.file}: {nearest_wheel.reason}"
    if facts.best.offer.link.yanked is not None:
        why = facts.best.offer.link.yanked or "no reason is given"
        yield f"{facts.best.offer.file} was yanked ({why}); it was asked for exactly"


def _explain_documents(facts: ChoiceFacts) -> Iterator[str]:
    document = facts.picked.document
    yield from document.notes
    providers = {*document.metadata.providers, *facts.picked.ranking.support}
    for namespace in sorted(facts.host.enabled - providers):
        yield f"--enable {namespace} changes nothing: no variant of this release has a provider of that name"
    for namespace, answer in facts.picked.ranking.support.items():
        if answer.source == NARROWED_SOURCE:
            yield (
                f"the document lists {namespace} :: gfx_arch for every machine, and uv takes it so; "
                "here it is compared with the GPUs of this machine"
            )
        if not answer.features and not answer.source.startswith("this machine"):
            yield f"nothing of namespace {namespace} is supported: {answer.source}"
    link = facts.sifted.documents.get(facts.best.offer.version)
    if link is None:
        return
    files = [wheel.offer for wheel in (*facts.picked.ranking.ranked, *facts.picked.rejected)]
    same_version = [offer for offer in files if offer.version == facts.best.offer.version]
    if missing := list_missing_labels(document, same_version):
        yield f"{file_name_of_link(link)} lists {', '.join(missing)}, and the index has no such wheel"


def _explain_files(facts: ChoiceFacts) -> Iterator[str]:
    if facts.sifted.unread:
        names = ", ".join(facts.sifted.unread[:_MAX_LISTED])
        remaining = len(facts.sifted.unread) - _MAX_LISTED
        yield f"no names of wheels, left out: {names}{f' and {remaining} more' if remaining > 0 else ''}"
    if facts.sifted.sources:
        yield f"{facts.sifted.sources} source distributions are left out: wheels are chosen here"
