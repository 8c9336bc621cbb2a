"""Choose wheels for a machine: per requirement the file, why it, and why none of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels import parallel
from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.hosts.choose.candidate import ChoiceCandidate, WheelChoice, KnownFeature
from rocm_wheels.hosts.choose.devices import (
    DeviceExtras,
    DeviceSource,
    choose_device_extras,
    read_offer_metadata,
    find_rocm_requirement,
)
from rocm_wheels.hosts.choose.host import TargetHost
from rocm_wheels.hosts.choose.located import (
    FAMILY_PLACEHOLDER,
    LocatedProject,
    find_family,
    locate_project,
)
from rocm_wheels.hosts.choose.misses import make_no_match_error
from rocm_wheels.hosts.choose.notes import ChoiceFacts, has_compiled_code, explain_choice
from rocm_wheels.hosts.choose.pages import UnreachableIndexError, is_page_url
from rocm_wheels.hosts.choose.picking import PickedVersion, pick_version
from rocm_wheels.hosts.choose.served import ServedGpus, list_amd_gpus, find_served_gpus, make_visible_line
from rocm_wheels.hosts.choose.sift import SiftedFiles, get_build_kind, sift_files
from rocm_wheels.hosts.choose.vendors import list_build_kinds
from rocm_wheels.index.reach import IndexReader, resolve_index_url, path_of_url
from rocm_wheels.variants.document import NULL_LABEL

_JOBS = 8


def choose_wheels(
    requirements: Sequence[str],
    index: str | None,
    host: TargetHost,
    reach: IndexReader,
    *,
    channel: str = "stable",
    pre: bool = False,
) -> tuple[WheelChoice, ...]:
    """Choose a wheel for each requirement, all from one index.

    ``index`` is a URL, a folder, or a URL with ``{family}`` in it; None: of the indexes of ``channel`` that
    are known for this machine the best one that has wheels for everything. UsageError for a requirement or
    index that cannot be one, HostError when nothing fits.
    """
    parsed = [_parse_requirement(text) for text in requirements]
    if not parsed:
        raise UsageError("no requirement is given", tip="for example: torch")
    if index is not None:
        if FAMILY_PLACEHOLDER not in index and not is_page_url(index):
            resolve_index_url(index)  # says what is wrong with it
        return _choose_from_index(index, parsed, host, reach, pre=pre)
    from rocm_wheels.hosts.choose.known_indexes import find_host_indexes

    indexes, notes = find_host_indexes(host, channel)
    failures: list[HostError] = []
    for known_index in indexes:
        try:
            choices = _choose_from_index(known_index.url, parsed, host, reach, pre=pre)
        except UnreachableIndexError as failure:  # what it has is not known: a worse one is no answer
            raise UnreachableIndexError(f"cannot ask {known_index.name}, a {known_index.reason}") from failure
        except HostError as failure:
            failures.append(failure)
            continue
        passed = tuple(f"passed over: {failure}" for failure in failures)
        index_notes = (f"{known_index.name} was taken: {known_index.reason}", *notes, *passed)
        return tuple(_prepend_notes(choice, index_notes) for choice in choices)
    last = HostError(f"none of the {len(indexes)} {channel} indexes for this machine has what fits")
    raise last from _join_failures(failures)


def _parse_requirement(text: str) -> Requirement:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as cause:
        raise UsageError(
            f"{text!r} is not a requirement", tip="for example: torch, or 'torch>=2.9,<3'"
        ) from cause
    if requirement.url:
        raise UsageError(f"{text!r} names a file: there is nothing to choose", tip="name the project alone")
    if requirement.marker:
        raise UsageError(
            f"{text!r} has a marker", tip="name what this machine wants, without `; …`: it is asked for here"
        )
    return requirement


def _choose_from_index(
    index: str, requirements: Sequence[Requirement], host: TargetHost, reach: IndexReader, *, pre: bool
) -> tuple[WheelChoice, ...]:
    def choose_wheel(requirement: Requirement) -> WheelChoice:
        located = locate_project(index, canonicalize_name(requirement.name), host, reach)
        sifted = sift_files(located.links, requirement, host, pre=pre)
        return _choose_wheel(requirement, located, sifted, host, reach)

    return tuple(parallel.run_in_parallel(choose_wheel, requirements, jobs=_JOBS))


def _choose_wheel(
    requirement: Requirement,
    located: LocatedProject,
    sifted: SiftedFiles,
    host: TargetHost,
    reach: IndexReader,
) -> WheelChoice:
    picked = pick_version(sifted, requirement, host, reach)
    if picked.version is None:
        raise make_no_match_error(requirement, located, sifted, picked, host)
    best = picked.ranking.ranked[0].offer
    devices, rocm = None, ""
    names_device = any(extra.startswith("device-") for extra in requirement.extras)
    metadata = read_offer_metadata(best, reach) if names_device or _needs_metadata(picked, host) else None
    if metadata and (names_device or best.name.label is None):
        source = DeviceSource(host, located.index, reach, located.links)
        devices = choose_device_extras(best, metadata, sorted(requirement.extras), source)
    if metadata and not devices and _is_beside_variants(picked):
        rocm = find_rocm_requirement(metadata)
    layout, served = _find_layout(picked, devices, located, host)
    served = () if rocm else served  # it has code, and nothing says for which GPUs
    first = picked.candidates[0]
    return WheelChoice(
        requirement=str(requirement),
        project=str(canonicalize_name(requirement.name)),
        extras=tuple(sorted(requirement.extras)),
        index=located.index,
        layout=layout,
        picked=first,
        candidates=picked.candidates,
        requires=(_format_pin(requirement, first, devices),),
        notes=explain_choice(ChoiceFacts(requirement, host, sifted, picked, layout, served, devices, rocm)),
        served=served,
        visible_line=make_visible_line(served),
        known=_list_known_features(picked),
    )


def _needs_metadata(picked: PickedVersion, host: TargetHost) -> bool:
    """Tell whether METADATA can say more of the best wheel: what extras it has, or that it is for ROCm."""
    offer = picked.ranking.ranked[0].offer
    if not has_compiled_code(offer) or offer.name.label not in (None, NULL_LABEL):
        return False
    if offer.name.label is None and list_amd_gpus(host.hardware):
        return True
    return _is_beside_variants(picked) and offer.link.metadata is not None


def _is_beside_variants(picked: PickedVersion) -> bool:
    """Tell whether the best wheel says by nothing but its METADATA what it is for, and others say it."""
    offer = picked.ranking.ranked[0].offer
    is_labelled = offer.name.label not in (None, NULL_LABEL) or get_build_kind(offer.version) == "cpu"
    return not is_labelled and any(picked.document.metadata.variants.values())


def _find_layout(
    picked: PickedVersion, devices: DeviceExtras | None, located: LocatedProject, host: TargetHost
) -> tuple[str, ServedGpus]:
    """Return how the index serves GPUs, and which of this machine's the picked wheel has kernels for."""
    best = picked.ranking.ranked[0]
    gpus = list_amd_gpus(host.hardware)
    if variants := picked.document.metadata.variants:
        targets = best.properties.get("amd", {}).get("gfx_arch", ())
        is_unlabelled = best.offer.name.label in (None, NULL_LABEL)
        names_targets = is_unlabelled and any(
            "gfx_arch" in properties.get("amd", {}) for properties in variants.values()
        )
        return "variants", find_served_gpus(targets, host.hardware) if targets or names_targets else ()
    if devices:
        return "multi-arch", devices.served
    family = located.family or find_family(located.index)
    layout = "per-family" if family else "plain"
    kind = get_build_kind(best.offer.version)
    if not gpus or not has_compiled_code(best.offer):
        return layout, ()
    if kind and kind != "rocm":  # for another GPU that is here, or for none
        return layout, () if kind in list_build_kinds(host) else find_served_gpus((), host.hardware)
    if family:
        from rocm_wheels.model.gfx import get_gfx_families

        return layout, find_served_gpus(get_gfx_families()[family], host.hardware)
    if path_of_url(located.index) is not None:
        return layout, ()
    from rocm_wheels.hosts.choose.known_indexes import list_index_targets

    torch = Version(best.offer.version.public) if best.offer.name.name == "torch" else None
    targets = list_index_targets(located.index, host.platform, torch)
    return layout, find_served_gpus(targets, host.hardware) if targets else ()


def _format_pin(requirement: Requirement, picked: ChoiceCandidate, devices: DeviceExtras | None) -> str:
    extras = sorted({*requirement.extras, *(devices.extras if devices else ())})
    extras_text = f"[{','.join(extras)}]" if extras else ""
    return f"{requirement.name}{extras_text}=={picked.version}"


def _list_known_features(picked: PickedVersion) -> tuple[KnownFeature, ...]:
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
            known_features.append(KnownFeature(namespace, feature, values, answer.source))
    return tuple(known_features)


def _prepend_notes(choice: WheelChoice, notes: tuple[str, ...]) -> WheelChoice:
    return replace(choice, notes=(*notes, *choice.notes))


def _join_failures(failures: Sequence[HostError]) -> HostError:
    """Return several failures as one that says each."""
    return HostError("; ".join(str(failure) for failure in failures), tip=failures[-1].tip)
