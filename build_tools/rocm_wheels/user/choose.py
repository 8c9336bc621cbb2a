"""Choose wheels for a machine: per requirement the file, and why none of the others.

Versions come first (newest first), builds for this machine's GPUs before others, then variants within
a version. The notes state plainly when a wheel is for the CPU, which GPUs are served and what an index
lacks. When nothing fits, the error names the wheel that came nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import TYPE_CHECKING, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.core import errors, parallel, shell
from rocm_wheels.gpus import gpu, variables, vendors
from rocm_wheels.index import reader
from rocm_wheels.models import package_indexes
from rocm_wheels.user import candidates, device_extras, gpu_support, index_pages, variant_wheels
from rocm_wheels.user.candidates import ChoiceCandidate, ProjectFiles, RejectionStage, WheelChoice
from rocm_wheels.user.host import PosedTarget, TargetHost
from rocm_wheels.user.variant_wheels import RankedRelease
from rocm_wheels.wheels import dist_info

if TYPE_CHECKING:
    from rocm_wheels.user.install_options import UnservedGpuError

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
    refused: Mapping[str, UnservedGpuError] | None = None,
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

    # the best GPU that an index has code for counts: as what it is, else as one whose kernels it runs
    posed = index_pages.pose_host(host, channel)
    asking = _Asking(parsed, reach, channel, pre, refused or {})
    for asked_host in [host] if posed is host else [host, posed]:
        missed: list[gpu.Gpu] = []
        for best in asked_host.usable_gpus:
            notes = [index_pages.describe_missed(missed, host, channel)] if missed else []
            indexes, is_listed = index_pages.list_asked_indexes(best, asked_host, channel)
            if choices := asking.choose_first(indexes, asked_host, notes, best=best, is_listed=is_listed):
                return choices
            missed.append(best)
    if refused:
        raise next(iter(refused.values()))
    indexes, reasons = index_pages.find_host_indexes(host, channel, allow_cpu=allow_cpu)
    return asking.choose_first(indexes, host, reasons)


@dataclass(frozen=True)
class _Asking:
    """What is asked of the known indexes of a channel."""

    requirements: Sequence[Requirement]
    reach: reader.IndexReader
    channel: str
    pre: bool
    refused: Mapping[str, UnservedGpuError]

    def choose_first(
        self,
        indexes: Sequence[package_indexes.PackageIndex],
        host: TargetHost,
        notes: Sequence[str],
        *,
        best: gpu.Gpu | None = None,
        is_listed: bool = True,
    ) -> tuple[WheelChoice, ...]:
        """Choose from the first index that has wheels for everything, with code for the GPU ``best``.

        () where none has, nor should by the tables, or one was refused; where it ``is_listed``, HostError
        says why none fits. UnreachableError for one that cannot be asked, when what it has counts.
        """
        failures: list[errors.HostError] = []
        unasked: reader.UnreachableError | None = None
        unserved: tuple[WheelChoice, ...] = ()
        gfx = best.gfx if best and best.vendor == "amd" else None

        def ask(known: package_indexes.PackageIndex) -> tuple[WheelChoice, ...]:
            return _choose_from_index(known.url, self.requirements, host, self.reach, pre=self.pre)

        for known, answer in _try_in_turn(ask, indexes):
            is_unlisted = gfx is not None and known.find_serving(host.platform, gfx) is None
            if isinstance(answer, reader.UnreachableError):
                failure = reader.UnreachableError(
                    f"cannot ask {known.name}, a {known.reason}", tip=answer.tip
                )
                failure.__cause__ = answer
                if not is_unlisted:  # what it has is not known: a worse one is no answer
                    raise failure
                unasked = unasked or failure
                failures.append(failure)
            elif isinstance(answer, errors.HostError):
                failures.append(answer)
            elif isinstance(answer, errors.RocmWheelsError):
                raise answer
            elif refusals := [
                self.refused[choice.index] for choice in answer if choice.index in self.refused
            ]:
                first_line = str(refusals[0]).partition("\n")[0]
                failures.append(errors.HostError(f"{known.name} has {first_line}"))
            else:
                reason = f"it has code for {gfx}, which no table lists of it" if is_unlisted else known.reason
                passed = (f"passed over: {failure}" for failure in failures)
                index_notes = (f"{known.name} was taken: {reason}", *notes, *passed)
                noted = tuple(replace(choice, notes=(*index_notes, *choice.notes)) for choice in answer)
                served = [entry for choice in answer for entry in choice.served]
                if (
                    (best, True) in served
                    if is_unlisted
                    else not served or any(is_served for _, is_served in served)
                ):
                    return noted
                unserved = unserved if is_unlisted else unserved or noted
                lacking = gfx if is_unlisted else "the GPUs here, whatever tables say"
                failures.append(errors.HostError(f"{known.name} has no kernels for {lacking}"))
        if unserved:
            return unserved
        if self.refused:
            return ()
        if unasked:
            raise unasked
        if not is_listed:
            return ()
        message = f"none of the {len(indexes)} {self.channel} indexes for this machine has what fits"
        reasons = errors.HostError("; ".join(map(str, failures)), tip=failures[-1].tip)
        raise errors.HostError(message) from reasons


def _try_in_turn(
    ask: Callable[[ItemT], AnswerT], items: Sequence[ItemT]
) -> Iterator[tuple[ItemT, AnswerT | errors.RocmWheelsError]]:
    """Yield each item with its answer, or the error; the first is asked alone, as mostly it has it."""
    for batch in (items[:1], *(items[start : start + _JOBS] for start in range(1, len(items), _JOBS))):
        for item, answer in zip(batch, parallel.try_in_parallel(ask, batch, jobs=_JOBS), strict=True):
            if isinstance(answer, Exception) and not isinstance(answer, errors.RocmWheelsError):
                raise answer
            yield item, answer


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
        return _choose_wheel(_Request(requirement, located, files, host, reach))

    return tuple(parallel.run_in_parallel(choose_wheel, requirements, jobs=_JOBS))


@dataclass(frozen=True)
class _Request:
    """What is chosen, from which files of one index, for whom, and the way there."""

    requirement: Requirement
    located: index_pages.LocatedProject
    files: ProjectFiles
    host: TargetHost
    reach: reader.IndexReader


@dataclass(frozen=True)
class _Choice:
    """What was decided for a request, which the notes are about.

    ``out`` are the wheels that are not taken, the newest first, of a version those that came furthest.
    ``is_last_resort``: it is a build that is not for this machine's GPU, taken for want of one that is;
    ``older`` is the best variant for this GPU of an older version, where the newest has none. ``devices`` are
    the extras of a host wheel. ``rocm`` is by which requirement the wheel says that it is built for ROCm, ""
    by none.
    """

    request: _Request
    release: variant_wheels.RankedRelease
    out: tuple[ChoiceCandidate, ...]
    is_last_resort: bool = False
    older: ChoiceCandidate | None = None
    devices: device_extras.DeviceExtras | None = None
    rocm: str = ""
    layout: str = "plain"
    served: gpu_support.ServedGpus = ()

    @property
    def best(self) -> ChoiceCandidate:
        """The wheel that is taken."""
        return self.release.ranked[0]

    @property
    def kind(self) -> str:
        """What it is a build for, by its local version."""
        return candidates.get_build_kind(self.best.wheel.version)

    @property
    def is_served(self) -> bool:
        """Whether the index says that any GPU is served."""
        return any(is_served for _, is_served in self.served)

    @property
    def is_for_cpu(self) -> bool:
        """Whether the wheel is one without code for GPUs, as far as the index says.

        A release whose only variant is ``null`` has none for GPUs: that one is for every machine.
        """
        if self.layout == "variants" and not self.rocm:
            return self.best.is_unlabelled and self.release.has_variants
        return self.kind == "cpu" and not self.rocm

    @property
    def posed(self) -> PosedTarget | None:
        """What a GPU of the machine must pass for to run the wheel, as far as the index says."""
        is_unserved = self.served and not self.is_served
        return None if self.is_for_cpu or is_unserved else self.request.host.posed


def _choose_wheel(request: _Request) -> WheelChoice:
    requirement, targets = request.requirement, request.host.hardware.targets
    newest = chosen = _decide(request)
    # an index drops targets: an older host wheel may have the kernels that the newest has no more
    for _ in range(_MOST_OLDER):
        if chosen.devices is None or not targets or chosen.is_served:
            break
        reason = f"it has no kernels for {', '.join(targets)}"
        wheels = tuple(
            wheel.reject(RejectionStage.PROPERTIES, reason)
            if not wheel.reason and wheel.wheel.version == chosen.best.wheel.version
            else wheel
            for wheel in request.files.wheels
        )
        request = replace(request, files=replace(request.files, wheels=wheels))
        try:
            chosen = _decide(request)
        except reader.UnreachableError:
            raise  # what the older one has is not known, and counts
        except errors.HostError:
            break
    if chosen.devices is None or not chosen.is_served:
        chosen = newest

    extras = sorted({*requirement.extras, *(chosen.devices.extras if chosen.devices else ())})
    extras_text = f"[{','.join(extras)}]" if extras else ""
    return WheelChoice(
        requirement=str(requirement),
        project=str(canonicalize_name(requirement.name)),
        extras=tuple(sorted(requirement.extras)),
        index=request.located.index,
        layout=chosen.layout,
        picked=chosen.best,
        candidates=(*chosen.release.ranked, *chosen.out),
        requires=(f"{requirement.name}{extras_text}=={chosen.best.version}",),
        notes=tuple(dict.fromkeys(_explain_choice(chosen))),
        served=chosen.served,
        visible_line=gpu_support.make_visible_line(chosen.served),
        override_line=chosen.posed.line if chosen.posed else None,
        known=chosen.release.list_known_features(),
        devices=chosen.devices.wheels if chosen.devices else (),
    )


def _decide(request: _Request) -> _Choice:
    """Pick a release and its device extras, and read what the index says of the GPUs.

    HostError where nothing fits.
    """
    requirement, host, reach = request.requirement, request.host, request.reach
    chosen = _pick_release(request)
    best = chosen.best

    # METADATA says which extras the best wheel has; and, where variants say what they are for and this one
    # does not, whether it is for ROCm
    names_device = any(extra.startswith("device-") for extra in requirement.extras)
    is_beside_variants = best.is_unlabelled and chosen.kind != "cpu" and chosen.release.has_variants
    if names_device or (
        best.has_compiled_code
        and ((best.label is None and host.hardware.amd) or (is_beside_variants and best.metadata is not None))
    ):
        content = index_pages.read_wheel_metadata(best.link, reach)
        metadata = dist_info.parse_metadata(content, name=f"METADATA of {best.name}")
        if names_device or best.label is None:
            extras = sorted(requirement.extras)
            devices = device_extras.choose_device_extras(
                best, metadata, extras, located=request.located, host=host, reach=reach
            )
            chosen = replace(chosen, devices=devices)
        if is_beside_variants and not chosen.devices:
            chosen = replace(chosen, rocm=gpu_support.find_rocm_requirement(metadata.requires_dist))
    layout, served = _find_layout(chosen)
    # a plain wheel that requires ROCm has code, and nothing says for which GPUs
    return replace(chosen, layout=layout, served=() if chosen.rocm else served)


def _pick_release(request: _Request) -> _Choice:
    """Pick the newest version of which a wheel fits: builds for this machine's GPUs come before others.

    ``+rocm7.2``, ``+cu128``, ``+xpu`` and ``+cpu`` tell what a build is for. A build for the GPU of a vendor
    that is not here is out, and never taken in place of one for the CPU. One that is asked for by its local
    version is. HostError where no wheel fits.
    """
    requirement, host, files = request.requirement, request.host, request.files
    kinds = host.build_kinds
    first = kinds or ("cpu",)
    is_local = any("+" in clause.version for clause in requirement.specifier)
    tiers: list[dict[Version, list[ChoiceCandidate]]] = [{} for _ in (*first, "the rest")]
    out = {wheel.name: wheel for wheel in files.wheels if wheel.reason}
    for version, wheels in files.list_usable().items():
        kind = candidates.get_build_kind(version)
        if is_local or not kind:
            tiers[0][version] = wheels
        elif kind in first:
            tiers[first.index(kind)][version] = wheels
        elif kind == "cpu" or not kinds:
            tiers[-1][version] = wheels
        else:
            title, *here = (candidates.KIND_TITLES[name] for name in (kind, *kinds))
            reason = f"a build for {title} (+{version.local}); this machine has {' and '.join(here)}"
            out |= {wheel.name: wheel.reject(RejectionStage.BUILD, reason) for wheel in wheels}

    for tier in tiers:

        def rank(version: Version, tier: Mapping[Version, list[ChoiceCandidate]] = tier) -> RankedRelease:
            link = files.documents.get(version)
            return variant_wheels.rank_release(version, tier[version], link, host, request.reach)

        releases = _try_in_turn(rank, list(tier))
        for _, release in releases:
            if isinstance(release, Exception):
                raise release  # a document that cannot be read is an error when its turn comes, not before
            out |= {wheel.name: wheel for wheel in release.out}
            if not release.ranked:
                continue

            # of a null for want of a variant: which older version has one for a GPU is worth a note, and what
            # cannot be read of it no failure
            older = None
            if not release.ranked[0].properties and release.has_variants and host.hardware.amd:
                for _, other in releases:
                    if isinstance(other, Exception):
                        break
                    if other.ranked and "gfx_arch" in other.ranked[0].properties.get("amd", {}):
                        older = other.ranked[0]
                        break

            for wheel in files.wheels:
                if wheel.name not in out:
                    version = wheel.wheel.version
                    reason = f"older than {release.version}"
                    # the local parts of two builds of one version are no order
                    if Version(version.public) >= Version(release.version.public):
                        kind = candidates.get_build_kind(version)
                        hardware = candidates.KIND_TITLES.get(kind, "other hardware")
                        reason = f"a build for {hardware}: one for the GPU here comes first"
                    out[wheel.name] = replace(wheel, reason=reason)
            for wheel in release.ranked:
                del out[wheel.name]
            by_name = sorted(out.values(), key=lambda wheel: wheel.name)
            newest_first = sorted(by_name, key=lambda wheel: (wheel.wheel.version, wheel.stage), reverse=True)
            return _Choice(request, release, tuple(newest_first), tier is tiers[-1], older)
    raise _make_no_match_error(request, out.values())


def _find_layout(chosen: _Choice) -> tuple[str, gpu_support.ServedGpus]:
    """Return how the index serves GPUs, and which of this machine's the picked wheel has kernels for."""
    best, kind, host, located = chosen.best, chosen.kind, chosen.request.host, chosen.request.located
    if variants := chosen.release.metadata.variants:
        labelled = best.properties.get("amd", {}).get("gfx_arch", ())
        names_targets = any("gfx_arch" in properties.get("amd", {}) for properties in variants.values())
        is_said = labelled or (best.is_unlabelled and names_targets)
        return "variants", gpu_support.find_served_gpus(labelled, host.hardware) if is_said else ()
    if chosen.devices:
        return "multi-arch", chosen.devices.served
    layout = "per-family" if located.family else "plain"
    if not best.has_compiled_code or (kind != "rocm" and kind in host.build_kinds):
        return layout, ()  # nothing for GPUs, or for another one that is here
    if kind not in ("", "rocm"):
        return layout, gpu_support.find_served_gpus((), host.hardware)
    targets: Sequence[str] = ()
    if located.family:
        targets = index_pages.list_family_targets(located.family, host)
    elif known := package_indexes.find_index_by_url(located.index):
        targets = known.list_targets(host.platform)
    return layout, gpu_support.find_served_gpus(targets, host.hardware) if targets else ()


# --- what is said of it ---


def _explain_choice(chosen: _Choice) -> Iterator[str]:
    """Yield sentences for people, the most important first."""
    best, requirement, host = chosen.best, chosen.request.requirement, chosen.request.host
    yield from _explain_kind(chosen)
    if chosen.posed:
        yield f"{chosen.posed}, which `rocm-wheels configure` sets"
    if chosen.devices:
        yield from chosen.devices.notes
    if not chosen.is_for_cpu:
        names: dict[bool, dict[str, None]] = {True: {}, False: {}}
        for card, is_served in chosen.served:
            names[is_served][card.gfx or card.name or "an unknown GPU"] = None
        served, unserved = (", ".join(names[is_served]) for is_served in (True, False))
        if served and unserved:
            count = sum(is_served for _, is_served in chosen.served)
            yield f"{count} of {len(chosen.served)} GPUs are served: {served}; not {unserved}"
        elif unserved:
            yield f"{best.name} has no kernels for {unserved}: it computes on the CPU at best"

    # why a newer version was not taken, and which older one has a build for the GPU
    open_stages = (RejectionStage.VERSION, RejectionStage.YANKED, RejectionStage.USABLE)
    newer = [
        wheel
        for wheel in chosen.out
        if Version(wheel.wheel.version.public) > Version(best.wheel.version.public)
        and wheel.stage not in open_stages
        and requirement.specifier.contains(wheel.wheel.version)
    ]
    if newer:
        newest = [wheel for wheel in newer if wheel.wheel.version == newer[0].wheel.version]
        nearest = _find_nearest(newest, host)
        yield (
            f"{nearest.version} is newer and has nothing for this machine: {nearest.name}: {nearest.reason}"
        )
    if best.yanked is not None:
        why = best.yanked or "no reason is given"
        yield f"{best.name} was yanked ({why}); taken because it is pinned exactly"
    if older := chosen.older:
        yield (
            f"{older.version} is older than {best.version} and has a build for this machine's GPU, "
            f"{older.label}: ask for it with '{requirement.name}=={older.version}'"
        )
    yield from chosen.release.notes
    for namespace in sorted(host.enabled - {*chosen.release.metadata.providers, *chosen.release.support}):
        yield f"--enable {namespace} changes nothing: no variant of this release has a provider of that name"


def _explain_kind(chosen: _Choice) -> Iterator[str]:
    """Say when the wheel is for the CPU, or for other GPUs than the best one here, and why."""
    host, best, kind = chosen.request.host, chosen.best, chosen.kind
    if chosen.is_for_cpu or chosen.rocm:
        missed = [
            wheel
            for wheel in chosen.out
            if wheel.stage is RejectionStage.PROPERTIES and wheel.wheel.version == best.wheel.version
        ]
        hidden = dict.fromkeys(card.hidden_by for card in host.hardware.gpus if card.vendor == "amd")
        if host.hardware.amd and not host.hardware.usable:
            why = "the target of the AMD GPU is unknown"
        elif not host.hardware.usable and not hidden:
            why = "there is no AMD GPU here"
        elif not host.hardware.usable and all(reason in _VISIBLE_VARIABLES for reason in hidden):
            why = f"{' and '.join(hidden)} hides the AMD GPU"
        elif not host.hardware.usable:
            why = f"the AMD GPU is not for this process, by {' and '.join(hidden)}"
        elif not missed:
            why = "the index has no build for AMD GPUs that fits"
        else:
            nearest = _find_nearest(missed, host)
            why = f"no variant fits this machine; the nearest is {nearest.label}: {nearest.reason}"
        if chosen.rocm:
            but = "" if host.hardware.amd else ", and computes on the CPU without one"
            verdict = f"requires {chosen.rocm}, so it is a build for AMD GPUs{but}"
        elif best.label is None and kind != "cpu":
            verdict = "has no label, and is the wheel for the CPU as far as anything says"
        else:
            verdict = "is the wheel for the CPU"
        yield f"{best.name} {verdict}: {why}"
    elif chosen.is_last_resort:
        yield f"{best.name} is made for GPUs, and there is none here: it computes on the CPU"
    maker = vendors.GPU_VENDORS[host.usable_gpus[0].vendor] if host.usable_gpus else None
    other_kinds = {other.build_kind for other in vendors.GPU_VENDORS.values()} - {"", "rocm"}
    if maker is not None and maker.build_kind in other_kinds and kind not in other_kinds:
        vendor_indexes = index_pages.query_indexes(host.usable_gpus[0], host, "stable")
        where = f": their wheels are at {vendor_indexes[0].url}" if vendor_indexes else ""
        yield f"the {'better GPU' if host.hardware.usable else 'GPU'} here is one of {maker.title}{where}"


_STAGE_TIPS = {
    RejectionStage.VERSION: "ask for another version, or with --pre for pre-releases too",
    RejectionStage.TAGS: "take a Python that there are wheels for, or another index",
    RejectionStage.PYTHON: "take a Python that there are wheels for, or another index",
    RejectionStage.YANKED: "a yanked version must be requested exactly: ==",
    RejectionStage.BUILD: "name an index for this machine, or none: then the one for its GPU is taken",
    RejectionStage.PROPERTIES: "nor has the index a wheel for the CPU: name another one, with --index",
}


def _make_no_match_error(request: _Request, out: Collection[ChoiceCandidate]) -> errors.HostError:
    """Return the error for a requirement that no wheel fits."""
    requirement, where = request.requirement, shell.hide_credentials(request.located.index)
    if not out:
        sources = request.files.sources
        content = f"{sources} source distributions" if sources else "no wheels"
        return errors.HostError(
            f"{where} has {content} of {requirement.name}", tip="name another index: --index URL"
        )
    nearest = _find_nearest(out, request.host)
    among = f"of {len(out)} wheels the nearest is " if len(out) > 1 else ""
    tip = _STAGE_TIPS[nearest.stage]
    if nearest.stage is RejectionStage.TAGS and "this is Python" not in nearest.reason:
        tip = "name an index with wheels for this platform: --index URL"
    failure = errors.HostError(f"no wheel of {requirement} in {where} fits this machine", tip=tip)
    failure.__cause__ = errors.HostError(f"{among}{nearest.name}: {nearest.reason}")
    return failure


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
