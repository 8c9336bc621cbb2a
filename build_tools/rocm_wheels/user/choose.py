"""Choose wheels for a machine: per requirement the file, and why none of the others.

Versions come first (newest first), builds for this machine's GPUs before others, then variants within
a version. The notes state plainly when a wheel is for the CPU, which GPUs are served and what an index
lacks. When nothing fits, the error names the wheel that came nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix
from typing import TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.core import errors, installation, parallel, shell
from rocm_wheels.gpus import variables, vendors
from rocm_wheels.index import reader
from rocm_wheels.models import package_indexes
from rocm_wheels.models.versions import is_asan_version
from rocm_wheels.user import (
    candidates,
    device_extras,
    gpu_support,
    index_pages,
    install_options,
    variant_wheels,
)
from rocm_wheels.user.candidates import ChoiceCandidate, ProjectFiles, RejectionStage, WheelChoice
from rocm_wheels.user.host import TargetHost
from rocm_wheels.variants import document
from rocm_wheels.wheels import dist_info

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")
_JOBS = 8
_MOST_OLDER = 4  # versions whose METADATA is read when the newest has no kernels for the GPUs here
_VISIBLE_VARIABLES = (
    variables.ROCR_VISIBLE_DEVICES,
    variables.HIP_VISIBLE_DEVICES,
    variables.CUDA_VISIBLE_DEVICES,
)


def choose_wheels(
    requirements: Sequence[str],
    index: str | None,
    host: TargetHost,
    reach: reader.IndexReader,
    *,
    channel: str = "stable",
    pre: bool = False,
    allow_cpu: bool = True,
    refused: Mapping[str, install_options.UnservedGpuError] | None = None,
) -> tuple[WheelChoice, ...]:
    """Choose a wheel for each requirement, all from one index.

    ``index`` is a URL, a folder, or a URL with ``{family}`` in it; None: of the indexes of ``channel`` that
    are known for this machine the best one that has wheels for everything. UsageError for a requirement or
    index that cannot be one, HostError when nothing fits; without ``allow_cpu`` UnservedGpuError where the
    known indexes have wheels for the CPU alone, and there is an AMD GPU. Of the known indexes those in
    ``refused`` are passed over, as their torch was refused (``kernel_proof``); the first such error is raised
    where no other has what fits.
    """
    parsed = [_parse_requirement(text) for text in requirements]
    if not parsed:
        raise errors.UsageError("no requirement is given", tip="for example: torch")
    if index is not None:
        if index_pages.FAMILY_PLACEHOLDER not in index and not index_pages.is_page_url(index):
            reader.resolve_index_url(index)  # says what is wrong with it
        return _choose_from_index(index, parsed, host, reach, pre=pre)

    for asked in index_pages.list_rounds(host, channel):
        if asked.gpu is None and refused:
            raise next(iter(refused.values()))
        if asked.gpu is None and not allow_cpu:
            install_options.require_gpu_index(host, channel)

        def ask(
            known: package_indexes.PackageIndex, asked_host: TargetHost = asked.host
        ) -> tuple[WheelChoice, ...]:
            return _choose_from_index(known.url, parsed, asked_host, reach, pre=pre)

        if choices := _choose_first(asked, ask, channel, refused or {}):
            return choices
    raise index_pages.make_unknown_error(host, channel)


def _choose_first(
    asked: index_pages.IndexRound,
    ask: Callable[[package_indexes.PackageIndex], tuple[WheelChoice, ...]],
    channel: str,
    refusals: Mapping[str, install_options.UnservedGpuError],
) -> tuple[WheelChoice, ...]:
    """Choose from the first index that has wheels for everything, with code for the GPU that is asked for.

    () where none has, nor should by the tables, or one was refused; where one is listed, HostError says why
    none fits. UnreachableError for one that cannot be asked, when what it has counts.
    """
    failures: list[errors.HostError] = []  # why the indexes before were passed over
    unasked: reader.UnreachableError | None = None
    unserved: tuple[WheelChoice, ...] = ()
    gfx = asked.gpu.gfx if asked.gpu and asked.gpu.vendor == "amd" else None
    for known, answer in _try_in_turn(ask, asked.indexes):
        is_unlisted = gfx is not None and known.find_serving(asked.host.platform, gfx) is None
        if isinstance(answer, reader.UnreachableError):
            message = f"cannot ask {known.name}, a {known.reason}"
            failure = reader.UnreachableError(message, tip=answer.tip)
            failure.__cause__ = answer
            if not is_unlisted:  # what it has is not known: a worse one is no answer
                raise failure
            unasked = unasked or failure
            failures.append(failure)
            continue
        if isinstance(answer, errors.HostError):
            failures.append(answer)
            continue
        if isinstance(answer, errors.RocmWheelsError):
            raise answer
        if refused := [refusals[choice.index] for choice in answer if choice.index in refusals]:
            first_line = str(refused[0]).partition("\n")[0]
            failures.append(errors.HostError(f"{known.name} has {first_line}"))
            continue
        reason = f"it has code for {gfx}, which no table lists of it" if is_unlisted else known.reason
        passed = (f"passed over: {failure}" for failure in failures)
        asked_notes = map(installation.adapt_commands, asked.notes)
        index_notes = (f"{known.name} was taken: {reason}", *asked_notes, *passed)
        noted = tuple(replace(choice, notes=(*index_notes, *choice.notes)) for choice in answer)
        served = [entry for choice in answer for entry in choice.served]
        is_served = not served or any(runs for _, runs in served)
        if (asked.gpu, True) in served if is_unlisted else is_served:
            return noted
        unserved = unserved if is_unlisted else unserved or noted
        lacking = gfx if is_unlisted else "the GPUs here, whatever tables say"
        failures.append(errors.HostError(f"{known.name} has no kernels for {lacking}"))
    if unserved or refusals:
        return unserved
    if unasked:
        raise unasked
    if not (asked.is_listed and asked.indexes):
        return ()
    message = f"none of the {len(asked.indexes)} {channel} indexes for this machine has what fits"
    reasons = errors.HostError("; ".join(map(str, failures)), tip=failures[-1].tip)
    raise errors.HostError(message) from reasons


def _try_in_turn(
    ask: Callable[[ItemT], AnswerT], items: Sequence[ItemT]
) -> Iterator[tuple[ItemT, AnswerT | errors.RocmWheelsError]]:
    """Yield each item with its answer, or the error; the first is asked alone, as mostly it has it."""

    def try_item(item: ItemT) -> AnswerT | errors.RocmWheelsError:
        try:
            return ask(item)
        except errors.RocmWheelsError as failure:
            return failure

    for batch in (items[:1], *(items[start : start + _JOBS] for start in range(1, len(items), _JOBS))):
        yield from zip(batch, parallel.run_in_parallel(try_item, batch, jobs=_JOBS), strict=True)


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
) -> tuple[WheelChoice, ...]:
    def choose_wheel(requirement: Requirement) -> WheelChoice:
        located = index_pages.locate_project(index, canonicalize_name(requirement.name), host, reach)
        files = candidates.read_project_files(located.links, requirement, host, pre=pre)
        chosen = newest = _decide(requirement, located, files, host, reach)
        # an index drops targets: an older host wheel may have the kernels that the newest has no more
        for _ in range(_MOST_OLDER):
            if chosen.layout != "multi-arch" or not host.hardware.targets or chosen.is_served:
                break
            reason = f"it has no kernels for {', '.join(host.hardware.targets)}"
            files = files.reject_version(chosen.picked.wheel.version, reason)
            try:
                chosen = _decide(requirement, located, files, host, reach)
            except reader.UnreachableError:
                raise  # what the older one has is not known, and counts
            except errors.HostError:
                break
        return chosen if chosen.layout == "multi-arch" and chosen.is_served else newest

    return tuple(parallel.run_in_parallel(choose_wheel, requirements, jobs=_JOBS))


def _decide(
    requirement: Requirement,
    located: index_pages.LocatedProject,
    files: ProjectFiles,
    host: TargetHost,
    reach: reader.IndexReader,
) -> WheelChoice:
    """Choose the best wheel of a project's files and its device extras, and say what is to be said of it.

    HostError where nothing fits.
    """
    release, out, is_last_resort = _pick_release(requirement, located, files, host, reach)
    best = release.ranked[0]
    kind = candidates.get_build_kind(best.wheel.version)

    # METADATA says which extras a wheel has
    requested = sorted(requirement.extras)
    devices = None
    if any(extra.startswith("device-") for extra in requested) or (
        best.has_compiled_code and best.label is None and host.hardware.amd
    ):
        content = index_pages.read_wheel_metadata(best.link, reach)
        metadata = dist_info.parse_metadata(content, name=f"METADATA of {best.name}")
        devices = device_extras.choose_device_extras(
            best, metadata, requested, located=located, host=host, reach=reach
        )

    # how the index serves GPUs, and which of this machine's the wheel has kernels for, as far as it says
    served: gpu_support.ServedGpus = ()
    layout = "per-family" if located.family else "plain"
    if release.variants:
        layout = "variants"
        labelled = best.properties.get("amd", {}).get("gfx_arch", ())
        names_targets = any("gfx_arch" in other.get("amd", {}) for other in release.variants.values())
        if labelled or (best.label == document.NULL_LABEL and names_targets):
            served = gpu_support.find_served_gpus(labelled, host.hardware)
    elif devices:
        layout, served = "multi-arch", devices.served
    elif best.has_compiled_code and (kind == "rocm" or kind not in host.build_kinds):
        # it has code for GPUs, and not for that of another vendor which is here
        targets: Sequence[str] | None = None
        if kind not in ("", "rocm"):
            targets = ()
        elif located.family:
            targets = index_pages.list_family_targets(located.family, host)
        elif known := package_indexes.find_index_by_url(located.index):
            targets = known.list_targets(host.platform) or None
        served = () if targets is None else gpu_support.find_served_gpus(targets, host.hardware)

    is_for_cpu = best.label is None and kind == "cpu"
    if best.label == document.NULL_LABEL:
        is_for_cpu = release.has_variants
    is_unserved = bool(served) and not any(is_served for _, is_served in served)
    posed = None if is_for_cpu or is_unserved else host.posed
    notes = []
    if is_for_cpu or (best.label is None and release.has_variants):
        verdict = "is the wheel for the CPU" if is_for_cpu else "is no variant, and its name tells nothing"
        notes.append(f"{best.name} {verdict}: {_explain_no_variant(best, out, host)}")
    elif is_last_resort:
        notes.append(f"{best.name} is made for GPUs, and there is none here: it computes on the CPU")
    notes += _name_other_vendor(kind, host)
    notes += [f"{posed}, which `rocm-wheels configure` sets"] if posed else []
    notes += devices.notes if devices else ()
    if not is_for_cpu:
        notes += _describe_served(best, served)
    notes += _explain_newer(best, out, requirement, host)
    if best.link.yanked is not None:
        why = best.link.yanked or "no reason is given"
        notes.append(f"{best.name} was yanked ({why}); taken because it is pinned exactly")
    all_extras = sorted({*requested, *(devices.extras if devices else ())})
    extras_text = f"[{','.join(all_extras)}]" if all_extras else ""
    return WheelChoice(
        requirement=str(requirement),
        project=str(canonicalize_name(requirement.name)),
        extras=tuple(requested),
        index=located.index,
        layout=layout,
        picked=best,
        candidates=(*release.ranked, *out),
        requires=(f"{requirement.name}{extras_text}=={best.version}",),
        notes=tuple(dict.fromkeys(map(installation.adapt_commands, [*notes, *release.notes]))),
        served=served,
        visible_line=gpu_support.make_visible_line(served),
        override_line=posed.line if posed else None,
        known=release.known,
        devices=devices.wheels if devices else (),
    )


def _pick_release(
    requirement: Requirement,
    located: index_pages.LocatedProject,
    files: ProjectFiles,
    host: TargetHost,
    reach: reader.IndexReader,
) -> tuple[variant_wheels.RankedRelease, tuple[ChoiceCandidate, ...], bool]:
    """Pick the newest version of which a wheel fits: builds for this machine's GPUs come before others.

    Returns it; the wheels that are not taken, the newest first, of a version those that came furthest; and
    whether it is a last resort, a build that is not for this machine's GPU, for want of one that is.

    ``+rocm7.2``, ``+cu128``, ``+xpu`` and ``+cpu`` tell what a build is for. A build for the GPU of a vendor
    that is not here is out, and never taken in place of one for the CPU; so is one with AddressSanitizer, but
    for who preloads its runtime. One that is asked for by its local version is taken. HostError where no
    wheel fits.
    """
    kinds = host.build_kinds
    first = kinds or ("cpu",)
    is_local = any("+" in clause.version for clause in requirement.specifier)
    tiers: list[dict[Version, list[ChoiceCandidate]]] = [{} for _ in (*first, "the rest")]
    out = {wheel.name: wheel for wheel in files.wheels if wheel.reason}
    for version, wheels in files.list_usable().items():
        kind = candidates.get_build_kind(version)
        if not (is_local or host.hardware.sanitizer) and is_asan_version(version):
            reason = f"it {candidates.UNASKED_ASAN}"
            out |= {wheel.name: wheel.reject(RejectionStage.BUILD, reason) for wheel in wheels}
        elif is_local or not kind:
            tiers[0][version] = wheels
        elif kind in first:
            tiers[first.index(kind)][version] = wheels
        elif kind == "cpu" or not kinds:
            tiers[-1][version] = wheels
        else:
            title, *here = (candidates.KIND_TITLES[name] for name in (kind, *kinds))
            reason = f"a build for {title} (+{version.local}); this machine has {' and '.join(here)}"
            out |= {wheel.name: wheel.reject(RejectionStage.BUILD, reason) for wheel in wheels}

    def rank(entry: tuple[Version, list[ChoiceCandidate]]) -> variant_wheels.RankedRelease:
        version, wheels = entry
        return variant_wheels.rank_release(version, wheels, files.documents.get(version), host, reach)

    for tier in tiers:
        for _, release in _try_in_turn(rank, list(tier.items())):
            if isinstance(release, Exception):
                raise release  # a document that cannot be read is an error when its turn comes, not before
            out |= {wheel.name: wheel for wheel in release.out}
            if not release.ranked:
                continue
            for wheel in files.wheels:
                version = wheel.wheel.version
                reason = f"older than {release.version}"
                # the local parts of two builds of one version are no order
                if Version(version.public) >= Version(release.version.public):
                    hardware = candidates.KIND_TITLES.get(
                        candidates.get_build_kind(version), "other hardware"
                    )
                    reason = f"a build for {hardware}: one for the GPU here comes first"
                out.setdefault(wheel.name, replace(wheel, reason=reason))
            for wheel in release.ranked:
                del out[wheel.name]
            by_name = sorted(out.values(), key=lambda wheel: wheel.name)
            newest_first = sorted(by_name, key=lambda wheel: (wheel.wheel.version, wheel.stage), reverse=True)
            return release, tuple(newest_first), tier is tiers[-1]

    where = shell.hide_credentials(located.index)
    if not out:
        tip = "name another index: --index URL"
        raise errors.HostError(f"{where} has no wheels of {requirement.name}", tip=tip)
    nearest = _find_nearest(out.values(), host)
    tip = _STAGE_TIPS[nearest.stage]
    if nearest.stage is RejectionStage.TAGS and "this is Python" not in nearest.reason:
        tip = "name an index with wheels for this platform: --index URL"
    among = f"of {len(out)} wheels the nearest is " if len(out) > 1 else ""
    failure = errors.HostError(f"no wheel of {requirement} in {where} fits this machine", tip=tip)
    raise failure from errors.HostError(f"{among}{nearest.name}: {nearest.reason}")


# --- what is said of it ---


def _explain_no_variant(best: ChoiceCandidate, out: Sequence[ChoiceCandidate], host: TargetHost) -> str:
    """Say why no wheel for a GPU of the machine is taken."""
    hardware = host.hardware
    missed = [
        wheel
        for wheel in out
        if wheel.stage is RejectionStage.PROPERTIES and wheel.wheel.version == best.wheel.version
    ]
    if hardware.usable and missed:
        nearest = _find_nearest(missed, host)
        return f"no variant fits this machine; the nearest is {nearest.label}: {nearest.reason}"
    if hardware.usable:
        return "the index has no build for AMD GPUs that fits"
    if hardware.amd:
        return "the target of the AMD GPU is unknown"
    hidden = dict.fromkeys(card.hidden_by for card in hardware.gpus if card.vendor == "amd")
    if not hidden:
        return "there is no AMD GPU here"
    by = " and ".join(hidden)
    by_variables = all(reason in _VISIBLE_VARIABLES for reason in hidden)
    return f"{by} hides the AMD GPU" if by_variables else f"the AMD GPU is not for this process, by {by}"


def _name_other_vendor(kind: str, host: TargetHost) -> Iterator[str]:
    """Say where the wheels for the best GPU are that is of another vendor than the wheel is for."""
    maker = vendors.GPU_VENDORS[host.usable_gpus[0].vendor] if host.usable_gpus else None
    other_kinds = {vendor.build_kind for vendor in vendors.GPU_VENDORS.values()} - {"", "rocm"}
    if maker is not None and maker.build_kind in other_kinds and kind not in other_kinds:
        indexes = index_pages.query_indexes(host.usable_gpus[0], host, "stable")
        where = f": their wheels are at {indexes[0].url}" if indexes else ""
        yield f"the {'better GPU' if host.hardware.usable else 'GPU'} here is one of {maker.title}{where}"


def _describe_served(best: ChoiceCandidate, served: gpu_support.ServedGpus) -> Iterator[str]:
    """Say which GPUs of the machine the wheel has no kernels for."""
    names: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for card, is_served in served:
        names[is_served][card.gfx or card.name or "an unknown GPU"] = None
    with_kernels, without = (", ".join(names[is_served]) for is_served in (True, False))
    if with_kernels and without:
        count = sum(is_served for _, is_served in served)
        yield f"{count} of {len(served)} GPUs are served: {with_kernels}; not {without}"
    elif without:
        yield f"{best.name} has no kernels for {without}: it computes on the CPU at best"


def _explain_newer(
    best: ChoiceCandidate, out: Sequence[ChoiceCandidate], requirement: Requirement, host: TargetHost
) -> Iterator[str]:
    """Say why a newer version was not taken."""
    newer = [
        wheel
        for wheel in out
        if Version(wheel.wheel.version.public) > Version(best.wheel.version.public)
        and wheel.stage not in (RejectionStage.VERSION, RejectionStage.YANKED, RejectionStage.USABLE)
        and requirement.specifier.contains(wheel.wheel.version)
    ]
    if newer:
        newest = [wheel for wheel in newer if wheel.wheel.version == newer[0].wheel.version]
        nearest = _find_nearest(newest, host)
        yield f"{nearest.version} is newer and has nothing for this machine: {nearest.name}: {nearest.reason}"


_STAGE_TIPS = {
    RejectionStage.VERSION: "ask for another version, or with 'NAME>=0.dev0' for pre-releases too",
    RejectionStage.TAGS: "take a Python that there are wheels for, or another index",
    RejectionStage.PYTHON: "take a Python that there are wheels for, or another index",
    RejectionStage.YANKED: "a yanked version must be requested exactly: ==",
    RejectionStage.BUILD: "name an index for this machine, or none: then the one for its GPU is taken",
    RejectionStage.PROPERTIES: "nor has the index a wheel for the CPU: name another one, with --index",
}


def _find_nearest(out: Collection[ChoiceCandidate], host: TargetHost) -> ChoiceCandidate:
    """Return the wheel that came furthest: of variants the one that is made for the most similar GPU."""

    def rate(wheel: ChoiceCandidate) -> tuple[object, ...]:
        targets = wheel.properties.get("amd", {}).get("gfx_arch", ())
        alike = max(
            (
                len(commonprefix((chip, target)))  # noqa: RUF071 - letters are meant
                for chip in host.hardware.targets
                for target in targets
            ),
            default=0,
        )
        return wheel.stage, wheel.wheel.version, alike, -wheel.reason.count(";"), wheel.name

    return max(out, key=rate)
