"""Choose wheels for a machine: per requirement the file, why it, and why none of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels import parallel
from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.hosts.choose.candidate import Candidate, Choice, Known
from rocm_wheels.hosts.choose.devices import Devices, Place, choose_devices, read_metadata, required_rocm
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.located import (
    FAMILY,
    Located,
    family_in,
    locate,
)
from rocm_wheels.hosts.choose.misses import nothing_fits
from rocm_wheels.hosts.choose.notes import Findings, has_code, notes_of
from rocm_wheels.hosts.choose.pages import UnreachableIndexError, is_page
from rocm_wheels.hosts.choose.picking import Picked, pick
from rocm_wheels.hosts.choose.served import Served, amd_gpus, served_by, visible_line
from rocm_wheels.hosts.choose.sift import Sifted, kind_of, sift
from rocm_wheels.hosts.choose.vendors import kinds_of
from rocm_wheels.index.reach import Reach, base_url, local_path
from rocm_wheels.variants.document import NULL_LABEL

_JOBS = 8


def choose(
    requirements: Sequence[str],
    index: str | None,
    host: Host,
    reach: Reach,
    *,
    channel: str = "stable",
    pre: bool = False,
) -> tuple[Choice, ...]:
    """Choose a wheel for each requirement, all from one index.

    ``index`` is a URL, a folder, or a URL with ``{family}`` in it; None: of the indexes of ``channel`` that
    are known for this machine the best one that has wheels for everything. UsageError for a requirement or
    index that cannot be one, HostError when nothing fits.
    """
    parsed = [_parsed(text) for text in requirements]
    if not parsed:
        raise UsageError("no requirement is given", tip="for example: torch")
    if index is not None:
        if FAMILY not in index and not is_page(index):
            base_url(index)  # says what is wrong with it
        return _from(index, parsed, host, reach, pre=pre)
    from rocm_wheels.hosts.choose.known_indexes import indexes_of

    found, notes = indexes_of(host, channel)
    failures: list[HostError] = []
    for one in found:
        try:
            choices = _from(one.url, parsed, host, reach, pre=pre)
        except UnreachableIndexError as failure:  # what it has is not known: a worse one is no answer
            raise UnreachableIndexError(f"cannot ask {one.name}, a {one.reason}") from failure
        except HostError as failure:
            failures.append(failure)
            continue
        passed = tuple(f"passed over: {failure}" for failure in failures)
        said = (f"{one.name} was taken: {one.reason}", *notes, *passed)
        return tuple(_with_notes(choice, said) for choice in choices)
    last = HostError(f"none of the {len(found)} {channel} indexes for this machine has what fits")
    raise last from _chained(failures)


def _parsed(text: str) -> Requirement:
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


def _from(
    index: str, requirements: Sequence[Requirement], host: Host, reach: Reach, *, pre: bool
) -> tuple[Choice, ...]:
    def choose_one(requirement: Requirement) -> Choice:
        located = locate(index, canonicalize_name(requirement.name), host, reach)
        sifted = sift(located.links, requirement, host, pre=pre)
        return _choice(requirement, located, sifted, host, reach)

    return tuple(parallel.each(choose_one, requirements, jobs=_JOBS))


def _choice(requirement: Requirement, located: Located, sifted: Sifted, host: Host, reach: Reach) -> Choice:
    picked = pick(sifted, requirement, host, reach)
    if picked.version is None:
        raise nothing_fits(requirement, located, sifted, picked, host)
    best = picked.ranking.ranked[0].offer
    devices, rocm = None, ""
    asked = any(extra.startswith("device-") for extra in requirement.extras)
    metadata = read_metadata(best, reach) if asked or _may_tell(picked, host) else None
    if metadata and (asked or best.name.label is None):
        place = Place(host, located.index, reach, located.links)
        devices = choose_devices(best, metadata, sorted(requirement.extras), place)
    if metadata and not devices and _is_beside_variants(picked):
        rocm = required_rocm(metadata)
    layout, served = _layout(picked, devices, located, host)
    served = () if rocm else served  # it has code, and nothing says for which GPUs
    first = picked.candidates[0]
    return Choice(
        requirement=str(requirement),
        project=str(canonicalize_name(requirement.name)),
        extras=tuple(sorted(requirement.extras)),
        index=located.index,
        layout=layout,
        picked=first,
        candidates=picked.candidates,
        requires=(_required(requirement, first, devices),),
        notes=notes_of(Findings(requirement, host, sifted, picked, layout, served, devices, rocm)),
        served=served,
        visible_line=visible_line(served),
        known=_known(picked),
    )


def _may_tell(picked: Picked, host: Host) -> bool:
    """Tell whether METADATA can say more of the best wheel: what extras it has, or that it is for ROCm."""
    offer = picked.ranking.ranked[0].offer
    if not has_code(offer) or offer.name.label not in (None, NULL_LABEL):
        return False
    if offer.name.label is None and amd_gpus(host.hardware):
        return True
    return _is_beside_variants(picked) and offer.link.metadata is not None


def _is_beside_variants(picked: Picked) -> bool:
    """Tell whether the best wheel says by nothing but its METADATA what it is for, and others say it."""
    offer = picked.ranking.ranked[0].offer
    told = offer.name.label not in (None, NULL_LABEL) or kind_of(offer.version) == "cpu"
    return not told and any(picked.document.metadata.variants.values())


def _layout(picked: Picked, devices: Devices | None, located: Located, host: Host) -> tuple[str, Served]:
    """Return how the index serves GPUs, and which of this machine's the picked wheel has kernels for."""
    best = picked.ranking.ranked[0]
    gpus = amd_gpus(host.hardware)
    if variants := picked.document.metadata.variants:
        targets = best.properties.get("amd", {}).get("gfx_arch", ())
        without = best.offer.name.label in (None, NULL_LABEL)
        told = without and any("gfx_arch" in one.get("amd", {}) for one in variants.values())
        return "variants", served_by(targets, host.hardware) if targets or told else ()
    if devices:
        return "multi-arch", devices.served
    family = located.family or family_in(located.index)
    layout = "per-family" if family else "plain"
    kind = kind_of(best.offer.version)
    if not gpus or not has_code(best.offer):
        return layout, ()
    if kind and kind != "rocm":  # for another GPU that is here, or for none
        return layout, () if kind in kinds_of(host) else served_by((), host.hardware)
    if family:
        from rocm_wheels.model.gfx import gfx_families

        return layout, served_by(gfx_families()[family], host.hardware)
    if local_path(located.index) is not None:
        return layout, ()
    from rocm_wheels.hosts.choose.known_indexes import targets_of_index

    torch = Version(best.offer.version.public) if best.offer.name.name == "torch" else None
    targets = targets_of_index(located.index, host.platform, torch)
    return layout, served_by(targets, host.hardware) if targets else ()


def _required(requirement: Requirement, picked: Candidate, devices: Devices | None) -> str:
    extras = sorted({*requirement.extras, *(devices.extras if devices else ())})
    named = f"[{','.join(extras)}]" if extras else ""
    return f"{requirement.name}{named}=={picked.version}"


def _known(picked: Picked) -> tuple[Known, ...]:
    """Return what was compared: of every feature that a variant has, what the machine supports."""
    found = []
    used = {
        (namespace, feature)
        for properties in picked.document.metadata.variants.values()
        for namespace, features in properties.items()
        for feature in features
    }
    for namespace, answer in picked.ranking.answers.items():
        for feature in sorted(feature for ns, feature in used if ns == namespace):
            values = tuple(answer.features.get(feature, ()))
            found.append(Known(namespace, feature, values, answer.source))
    return tuple(found)


def _with_notes(choice: Choice, notes: tuple[str, ...]) -> Choice:
    return replace(choice, notes=(*notes, *choice.notes))


def _chained(failures: Sequence[HostError]) -> HostError:
    """Return several failures as one that says each."""
    return HostError("; ".join(str(failure) for failure in failures), tip=failures[-1].tip)
