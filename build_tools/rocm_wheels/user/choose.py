"""Choose wheels for a machine and explain the choice: per requirement the file, and why none of the others.

The notes state plainly when a wheel is for the CPU, which GPUs are served and what an index lacks. When
nothing fits, the error names the wheel that came nearest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.core import errors, parallel, shell
from rocm_wheels.gpus import vendors
from rocm_wheels.gpus.variables import CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES
from rocm_wheels.index import reader
from rocm_wheels.user import candidates, gpu_support, index_pages, match
from rocm_wheels.user.host import PosedTarget, TargetHost, get_main_vendor, list_build_kinds
from rocm_wheels.variants import order
from rocm_wheels.variants.document import NULL_LABEL

if TYPE_CHECKING:
    from rocm_wheels.models import package_indexes

_STAGE_TIPS = {
    candidates.RejectionStage.VERSION: "ask for another version, or with --pre for pre-releases too",
    candidates.RejectionStage.TAGS: "take a Python that there are wheels for, or another index",
    candidates.RejectionStage.PYTHON: "take a Python that there are wheels for, or another index",
    candidates.RejectionStage.YANKED: "a yanked version must be requested exactly: ==",
    candidates.RejectionStage.BUILD: (
        "name an index for this machine, or none: then the one for its GPU is taken"
    ),
    candidates.RejectionStage.PROPERTIES: (
        "nor has the index a wheel for the CPU: name another one, with --index"
    ),
}


def make_no_match_error(
    requirement: Requirement,
    located: index_pages.LocatedProject,
    sifted: candidates.SiftedFiles,
    picked: match.PickedVersion,
    host: TargetHost,
) -> errors.HostError:
    """Return the error for a requirement that no wheel fits."""
    where = shell.hide_credentials(located.index)
    if not picked.rejected:
        content = f"{sifted.sources} source distributions" if sifted.sources else "no wheels"
        return errors.HostError(
            f"{where} has {content} of {requirement.name}", tip="name another index: --index URL"
        )
    nearest_wheel = find_nearest(picked.rejected, host)
    count = len({wheel.offer.file for wheel in picked.rejected})
    nearest_text = (
        f"of {count} wheels the nearest is {nearest_wheel.offer.file}"
        if count > 1
        else nearest_wheel.offer.file
    )
    foreign = (
        nearest_wheel.offer.stage is candidates.RejectionStage.TAGS
        and "this is Python" not in nearest_wheel.reason
    )
    tip = (
        "name an index with wheels for this platform: --index URL"
        if foreign
        else _STAGE_TIPS[nearest_wheel.offer.stage]
    )
    failure = errors.HostError(f"no wheel of {requirement} in {where} fits this machine", tip=tip)
    failure.__cause__ = errors.HostError(f"{nearest_text}: {nearest_wheel.reason}")
    return failure


def find_nearest(rejected: Sequence[match.RankedWheel], host: TargetHost) -> match.RankedWheel:
    """Return the wheel that came furthest: of variants the one that is made for the most similar GPU."""
    chips = host.hardware.targets

    def rate_wheel(wheel: match.RankedWheel) -> tuple[object, ...]:
        targets = wheel.properties.get("amd", {}).get("gfx_arch", ())
        alike = max((_count_shared_prefix(chip, target) for chip in chips for target in targets), default=0)
        return wheel.offer.stage, wheel.offer.version, alike, -wheel.reason.count(";"), wheel.offer.file

    return max(rejected, key=rate_wheel)


def _count_shared_prefix(first: str, second: str) -> int:
    matches = [a == b for a, b in zip(first, second, strict=False)]
    return matches.index(False) if False in matches else len(matches)


_MAX_LISTED = 5
_IS_CPU_WHEEL = "is the wheel for the CPU"


@dataclass(frozen=True)
class ChoiceFacts:
    """All that is known of a choice when it is made.

    ``rocm`` is by which requirement the wheel that is taken says that it is built for ROCm, "" by none.
    """

    requirement: Requirement
    host: TargetHost
    sifted: candidates.SiftedFiles
    picked: match.PickedVersion
    layout: str
    served: gpu_support.ServedGpus
    devices: match.DeviceExtras | None = None
    rocm: str = ""

    @property
    def best(self) -> match.RankedWheel:
        """The wheel that is taken."""
        return self.picked.ranking.ranked[0]


def explain_choice(facts: ChoiceFacts) -> tuple[str, ...]:
    """Return sentences for people, the most important first."""
    groups = (
        _explain_cpu(facts),
        _explain_kernels(facts),
        _explain_newer(facts),
        _explain_older_builds(facts),
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
    return candidates.get_build_kind(offer.version) == "cpu"


def find_needed_pose(facts: ChoiceFacts) -> PosedTarget | None:
    """Return what a GPU of the machine must pass for to run the wheel, as far as the index says."""
    if is_for_cpu(facts) or (facts.served and not any(is_served for _, is_served in facts.served)):
        return None
    return facts.host.posed


def _explain_cpu(facts: ChoiceFacts) -> Iterator[str]:
    file, vendor = facts.best.offer.file, get_main_vendor(facts.host)
    if is_for_cpu(facts):
        unsaid = (
            facts.best.offer.name.label is None
            and candidates.get_build_kind(facts.best.offer.version) != "cpu"
        )
        verdict = (
            "has no label, and is the wheel for the CPU as far as anything says" if unsaid else _IS_CPU_WHEEL
        )
        yield f"{file} {verdict}: {_explain_missing_build(facts)}"
    elif facts.rocm:
        but = "" if facts.host.hardware.amd else ", and computes on the CPU without one"
        yield (
            f"{file} requires {facts.rocm}, so it is a build for AMD GPUs{but}: "
            f"{_explain_missing_build(facts)}"
        )
    elif facts.picked.second_best:
        yield f"{file} is made for GPUs, and there is none here: it computes on the CPU"
    maker = vendors.GPU_VENDORS.get(vendor)
    other_kinds = {other.build_kind for other in vendors.GPU_VENDORS.values()} - {"", "rocm"}
    is_served = candidates.get_build_kind(facts.best.offer.version) in other_kinds
    if maker is not None and maker.build_kind in other_kinds and not is_served:
        vendor_index = index_pages.find_vendor_index(facts.host)
        where = f": their wheels are at {vendor_index.url}" if vendor_index else ""
        which = "better GPU" if facts.host.hardware.usable else "GPU"
        yield f"the {which} here is one of {maker.title}{where}"


def _explain_missing_build(facts: ChoiceFacts) -> str:
    missed = [
        wheel for wheel in facts.picked.rejected if wheel.offer.stage is candidates.RejectionStage.PROPERTIES
    ]
    same_version = [wheel for wheel in missed if wheel.offer.version == facts.picked.version]
    if not facts.host.hardware.usable:
        return _explain_missing_gpu(facts.host)
    if not same_version:
        return "the index has no build for AMD GPUs that fits"
    nearest_wheel = find_nearest(same_version, facts.host)
    return (
        f"no variant fits this machine; the nearest is {nearest_wheel.offer.name.label}: "
        f"{nearest_wheel.reason}"
    )


def _explain_missing_gpu(host: TargetHost) -> str:
    if host.hardware.amd:
        return "the target of the AMD GPU is unknown"
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
    gpus = facts.host.hardware.amd
    if posed := find_needed_pose(facts):
        yield f"{posed}, which `rocm-wheels configure` sets"
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
        yield (f"the index does not say which GPUs {offer.file} has code for; {candidates.TARGETS_TIP}")


def _join_unique(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def has_compiled_code(offer: candidates.OfferedWheel) -> bool:
    """Tell whether a wheel is for one platform: others have no compiled code, and none for GPUs."""
    return any(tag.platform != "any" for tag in offer.name.tags)


def _explain_newer(facts: ChoiceFacts) -> Iterator[str]:
    """Say why a newer version was not taken, when it would have been asked for."""
    version = facts.picked.version
    newer = [
        wheel
        for wheel in facts.picked.rejected
        if version is not None
        and Version(wheel.offer.version.public) > Version(version.public)
        and wheel.offer.stage not in (candidates.RejectionStage.VERSION, candidates.RejectionStage.YANKED)
        and facts.requirement.specifier.contains(wheel.offer.version)
    ]
    if newer:
        top = max(wheel.offer.version for wheel in newer)
        nearest_wheel = find_nearest([wheel for wheel in newer if wheel.offer.version == top], facts.host)
        yield (
            f"{top} is newer and has nothing for this machine: {nearest_wheel.offer.file}: "
            f"{nearest_wheel.reason}"
        )
    if facts.best.offer.link.yanked is not None:
        why = facts.best.offer.link.yanked or "no reason is given"
        yield f"{facts.best.offer.file} was yanked ({why}); taken because it is pinned exactly"


def _explain_older_builds(facts: ChoiceFacts) -> Iterator[str]:
    """Say which older version has a build for the GPU here, where the newest has none."""
    older = facts.picked.older
    if older is not None:
        offer = older.offer
        yield (
            f"{offer.version} is older than {facts.picked.version} and has a build for this machine's GPU, "
            f"{offer.name.label}: ask for it with '{facts.requirement.name}=={offer.version}'"
        )


def _explain_documents(facts: ChoiceFacts) -> Iterator[str]:
    document = facts.picked.document
    yield from document.notes
    providers = {*document.metadata.providers, *facts.picked.ranking.support}
    for namespace in sorted(facts.host.enabled - providers):
        yield f"--enable {namespace} changes nothing: no variant of this release has a provider of that name"
    for namespace, answer in facts.picked.ranking.support.items():
        if answer.source == order.NARROWED_SOURCE:
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
    if missing := match.list_missing_labels(document, same_version):
        yield f"{reader.file_name_of_link(link)} lists {', '.join(missing)}, and the index has no such wheel"


def _explain_files(facts: ChoiceFacts) -> Iterator[str]:
    if facts.sifted.unread:
        names = ", ".join(facts.sifted.unread[:_MAX_LISTED])
        remaining = len(facts.sifted.unread) - _MAX_LISTED
        yield f"no names of wheels, left out: {names}{f' and {remaining} more' if remaining > 0 else ''}"
    if facts.sifted.sources:
        yield f"{facts.sifted.sources} source distributions are left out: wheels are chosen here"


_JOBS = 8


def choose_wheels(
    requirements: Sequence[str],
    index: str | None,
    host: TargetHost,
    reach: reader.IndexReader,
    *,
    channel: str = "stable",
    pre: bool = False,
    allow_cpu: bool = True,
) -> tuple[candidates.WheelChoice, ...]:
    """Choose a wheel for each requirement, all from one index.

    ``index`` is a URL, a folder, or a URL with ``{family}`` in it; None: of the indexes of ``channel`` that
    are known for this machine the best one that has wheels for everything. UsageError for a requirement or
    index that cannot be one, HostError when nothing fits; without ``allow_cpu`` UnservedGpuError where the
    known indexes have wheels for the CPU alone, and there is an AMD GPU.
    """
    parsed = [_parse_requirement(text) for text in requirements]
    if not parsed:
        raise errors.UsageError("no requirement is given", tip="for example: torch")
    if index is not None:
        if index_pages.FAMILY_PLACEHOLDER not in index and not index_pages.is_page_url(index):
            reader.resolve_index_url(index)  # says what is wrong with it
        return _choose_from_index(index, parsed, host, reach, pre=pre)

    if unlisted := _choose_for_unlisted(parsed, host, channel, reach, pre=pre):
        return unlisted
    host = index_pages.pose_host(host, channel)
    indexes, notes = index_pages.find_host_indexes(host, channel, allow_cpu=allow_cpu)
    failures: list[errors.HostError] = []
    unserved: tuple[candidates.WheelChoice, ...] = ()
    for known_index in indexes:
        try:
            choices = _choose_from_index(known_index.url, parsed, host, reach, pre=pre)
        except reader.UnreachableError as failure:  # what it has is not known: a worse one is no answer
            raise _make_unasked_error(known_index, failure) from failure
        except errors.HostError as failure:
            failures.append(failure)
            continue
        passed = tuple(f"passed over: {failure}" for failure in failures)
        index_notes = (f"{known_index.name} was taken: {known_index.reason}", *notes, *passed)
        noted = tuple(_prepend_notes(choice, index_notes) for choice in choices)
        if not _is_without_kernels(choices):
            return noted
        unserved = unserved or noted
        failures.append(
            errors.HostError(f"{known_index.name} has no kernels for the GPUs here, whatever tables say")
        )
    if unserved:
        return unserved
    last = errors.HostError(f"none of the {len(indexes)} {channel} indexes for this machine has what fits")
    raise last from _join_failures(failures)


def _is_without_kernels(choices: Sequence[candidates.WheelChoice]) -> bool:
    """Tell whether an index says of every GPU that it has nothing for it."""
    verdicts = [is_served for choice in choices for _, is_served in choice.served]
    return bool(verdicts) and not any(verdicts)


def _choose_for_unlisted(
    requirements: Sequence[Requirement],
    host: TargetHost,
    channel: str,
    reach: reader.IndexReader,
    *,
    pre: bool,
) -> tuple[candidates.WheelChoice, ...]:
    """Choose from an index that has code for the best GPU, which no index has by the tables; () without.

    Tables are older than indexes: what those have for a GPU, their extras, variants and families tell.
    """

    gpus = index_pages.find_unlisted_gpus(host, channel)
    for index in index_pages.list_open_indexes(host, channel) if gpus else ():
        try:
            choices = _choose_from_index(index.url, requirements, host, reach, pre=pre)
        except reader.UnreachableError as failure:
            raise _make_unasked_error(index, failure) from failure
        except errors.HostError:
            continue
        served = [gpu for choice in choices for gpu, is_served in choice.served if is_served and gpu in gpus]
        if served:
            note = f"{index.name} was taken: it has code for {served[0].gfx}, which no table lists of it"
            return tuple(_prepend_notes(choice, (note,)) for choice in choices)
    return ()


def _make_unasked_error(
    index: package_indexes.PackageIndex, failure: reader.UnreachableError
) -> reader.UnreachableError:
    return reader.UnreachableError(f"cannot ask {index.name}, a {index.reason}", tip=failure.tip)


def _parse_requirement(text: str) -> Requirement:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as cause:
        raise errors.UsageError(
            f"{text!r} is not a requirement", tip="for example: torch, or 'torch>=2.9,<3'"
        ) from cause
    if requirement.url:
        raise errors.UsageError(
            f"{text!r} names a file: there is nothing to choose", tip="name the project alone"
        )
    if requirement.marker:
        raise errors.UsageError(f"{text!r} has a marker", tip="name it without the marker (`; …`)")
    return requirement


def _choose_from_index(
    index: str, requirements: Sequence[Requirement], host: TargetHost, reach: reader.IndexReader, *, pre: bool
) -> tuple[candidates.WheelChoice, ...]:
    def choose_wheel(requirement: Requirement) -> candidates.WheelChoice:
        located = index_pages.locate_project(index, canonicalize_name(requirement.name), host, reach)
        sifted = candidates.sift_files(located.links, requirement, host, pre=pre)
        return _choose_wheel(requirement, located, sifted, host, reach)

    return tuple(parallel.run_in_parallel(choose_wheel, requirements, jobs=_JOBS))


def _choose_wheel(
    requirement: Requirement,
    located: index_pages.LocatedProject,
    sifted: candidates.SiftedFiles,
    host: TargetHost,
    reach: reader.IndexReader,
) -> candidates.WheelChoice:
    picked = match.pick_version(sifted, requirement, host, reach)
    if picked.version is None:
        raise make_no_match_error(requirement, located, sifted, picked, host)
    best = picked.ranking.ranked[0].offer
    devices, rocm = None, ""
    names_device = any(extra.startswith("device-") for extra in requirement.extras)
    metadata = (
        match.read_offer_metadata(best, reach) if names_device or _needs_metadata(picked, host) else None
    )
    if metadata and (names_device or best.name.label is None):
        source = match.DeviceSource(host, located.index, reach, located.links)
        devices = match.choose_device_extras(best, metadata, sorted(requirement.extras), source)
    if metadata and not devices and _is_beside_variants(picked):
        rocm = match.find_rocm_requirement(metadata)
    layout, served = _find_layout(picked, devices, located, host)
    served = () if rocm else served  # it has code, and nothing says for which GPUs
    first = picked.candidates[0]
    facts = ChoiceFacts(requirement, host, sifted, picked, layout, served, devices, rocm)
    posed = find_needed_pose(facts)
    return candidates.WheelChoice(
        requirement=str(requirement),
        project=str(canonicalize_name(requirement.name)),
        extras=tuple(sorted(requirement.extras)),
        index=located.index,
        layout=layout,
        picked=first,
        candidates=picked.candidates,
        requires=(_format_pin(requirement, first, devices),),
        notes=explain_choice(facts),
        served=served,
        visible_line=gpu_support.make_visible_line(served),
        override_line=posed.line if posed else None,
        known=_list_known_features(picked),
    )


def _needs_metadata(picked: match.PickedVersion, host: TargetHost) -> bool:
    """Tell whether METADATA can say more of the best wheel: what extras it has, or that it is for ROCm."""
    offer = picked.ranking.ranked[0].offer
    if not has_compiled_code(offer) or offer.name.label not in (None, NULL_LABEL):
        return False
    if offer.name.label is None and host.hardware.amd:
        return True
    return _is_beside_variants(picked) and offer.link.metadata is not None


def _is_beside_variants(picked: match.PickedVersion) -> bool:
    """Tell whether the best wheel says by nothing but its METADATA what it is for, and others say it."""
    offer = picked.ranking.ranked[0].offer
    is_labelled = (
        offer.name.label not in (None, NULL_LABEL) or candidates.get_build_kind(offer.version) == "cpu"
    )
    return not is_labelled and any(picked.document.metadata.variants.values())


def _find_layout(
    picked: match.PickedVersion,
    devices: match.DeviceExtras | None,
    located: index_pages.LocatedProject,
    host: TargetHost,
) -> tuple[str, gpu_support.ServedGpus]:
    """Return how the index serves GPUs, and which of this machine's the picked wheel has kernels for."""
    best = picked.ranking.ranked[0]
    gpus = host.hardware.amd
    if variants := picked.document.metadata.variants:
        targets = best.properties.get("amd", {}).get("gfx_arch", ())
        is_unlabelled = best.offer.name.label in (None, NULL_LABEL)
        names_targets = is_unlabelled and any(
            "gfx_arch" in properties.get("amd", {}) for properties in variants.values()
        )
        return "variants", gpu_support.find_served_gpus(
            targets, host.hardware
        ) if targets or names_targets else ()
    if devices:
        return "multi-arch", devices.served
    family = located.family or index_pages.find_family(located.index, host)
    layout = "per-family" if family else "plain"
    kind = candidates.get_build_kind(best.offer.version)
    if not gpus or not has_compiled_code(best.offer):
        return layout, ()
    if kind and kind != "rocm":  # for another GPU that is here, or for none
        return layout, () if kind in list_build_kinds(host) else gpu_support.find_served_gpus(
            (), host.hardware
        )
    if family:
        return layout, gpu_support.find_served_gpus(
            index_pages.list_family_targets(family, host), host.hardware
        )
    if reader.path_of_url(located.index) is not None:
        return layout, ()

    torch = Version(best.offer.version.public) if best.offer.name.name == "torch" else None
    targets = index_pages.list_index_targets(located.index, host.platform, torch)
    return layout, gpu_support.find_served_gpus(targets, host.hardware) if targets else ()


def _format_pin(
    requirement: Requirement, picked: candidates.ChoiceCandidate, devices: match.DeviceExtras | None
) -> str:
    extras = sorted({*requirement.extras, *(devices.extras if devices else ())})
    extras_text = f"[{','.join(extras)}]" if extras else ""
    return f"{requirement.name}{extras_text}=={picked.version}"


def _list_known_features(picked: match.PickedVersion) -> tuple[candidates.KnownFeature, ...]:
    """Return what was compared: of every feature that a variant has, what the machine supports."""
    known_features = []
    used = {
        (namespace, feature)
        for properties in picked.document.metadata.variants.values()
        for namespace, features in properties.items()
        for feature in features
    }
    for namespace, answer in picked.ranking.support.items():
        for feature in sorted(feature for ns, feature in used if ns == namespace):
            values = tuple(answer.features.get(feature, ()))
            known_features.append(candidates.KnownFeature(namespace, feature, values, answer.source))
    return tuple(known_features)


def _prepend_notes(choice: candidates.WheelChoice, notes: tuple[str, ...]) -> candidates.WheelChoice:
    return replace(choice, notes=(*notes, *choice.notes))


def _join_failures(failures: Sequence[errors.HostError]) -> errors.HostError:
    """Return several failures as one that says each."""
    return errors.HostError("; ".join(str(failure) for failure in failures), tip=failures[-1].tip)
