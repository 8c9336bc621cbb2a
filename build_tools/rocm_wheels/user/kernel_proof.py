"""Prove which GPUs a torch has code for before its wheel is fetched, and refuse one that serves none.

Cheapest first: what METADATA requires (``nvidia-cublas-cu12``), the member ``torch/version.py`` and the names
of members, then the device code itself: of a host wheel the archives in its device wheels, else the tables of
the bundles in ``libtorch_hip.so``, as far as it takes. A server gives these out as parts of files; where it
does not, the wheel is looked into after the download, and still before anything is installed.

What is installed is read by ``gpu_support``, as the doctor does.
"""

from __future__ import annotations

import itertools
import posixpath
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, log, shell
from rocm_wheels.device_code import code_objects, kpack
from rocm_wheels.gpus.gpu import Gpu, parse_override_version
from rocm_wheels.index import reader
from rocm_wheels.models.gfx import TargetOverride
from rocm_wheels.user import (
    candidates,
    choose,
    gpu_support,
    index_pages,
    installed_packages,
)
from rocm_wheels.user.host import PosedTarget, TargetHost, find_pose, make_markers
from rocm_wheels.user.install_options import UnservedGpuError, make_unserved_error
from rocm_wheels.wheels import dist_info

PlanT = TypeVar("PlanT")
# requirements by which a torch is one for these GPUs: those of the wheels on PyPI and download.pytorch.org
_KIND_REQUIREMENTS: tuple[tuple[installed_packages.BuildKind, str], ...] = (
    ("cuda", r"nvidia-.+|cuda-(bindings|toolkit)|.+-cu1[0-9]"),
    ("xpu", r"(pytorch-)?triton-xpu|intel-.+|dpcpp-.+|oneccl.*"),
    ("rocm", r"rocm(-sdk-.+)?|(pytorch-)?triton-rocm|amd-torch-device(-.+)?"),
)
_PIECE = 1 << 20
_MOST_BYTES = 384 << 20  # of a library, inflated: what stands before its device code in the largest ones
_ENOUGH_BUNDLES = 16  # a few parts of torch are compiled for some targets only; the first bundles are not all
_QUICK_BYTES = 4 << 20  # of a library: nobody notices that they are read
_LARGEST_TEXT = 1 << 20
_VERSION_FILE = "torch/version.py"


@dataclass(frozen=True)
class KernelProof:
    """What was read of a torch: ``kind`` of build, by ``source``; ``targets``, which are target IDs.

    ``targets`` are None where the code was not read; ``unread`` then says why. ``file`` has the code.
    """

    torch: str
    kind: installed_packages.BuildKind = "unknown"
    source: str = ""
    targets: tuple[str, ...] | None = None
    file: str = ""
    unread: str = ""

    @property
    def is_complete(self) -> bool:
        """Tell whether nothing is left to read: code of a build for other GPUs says nothing more."""
        return self.kind not in ("rocm", "unknown") or self.targets is not None

    def check(self, gfx: str) -> gpu_support.KernelSupport | None:
        """Return how a GPU is served; None where that was not read."""
        if not self.is_complete:
            return None
        return gpu_support.check_kernel_support(self.targets or (), gfx)

    def describe(self, gfx: str) -> str:
        """Return the sentence about one GPU."""
        support = self.check(gfx)
        if support is None:
            return f"{self.torch}: code for {gfx}: not read yet: {self.unread}"
        if self.kind not in ("rocm", "unknown"):
            title = candidates.KIND_TITLES[self.kind] + (" (CUDA)" if self.kind == "cuda" else "")
            return f"{self.torch}: code for {gfx}: no: a build for {title} ({self.source})"
        answer = support.describe_support(gfx)
        if support.kind == "no":
            answer = f"no: it has code for {', '.join(self.targets or ()) or 'no GPU'}"
        return f"{self.torch}: code for {gfx}: {answer} ({self.file or self.source})"


@dataclass(frozen=True)
class GpuDemand:
    """What a torch must serve: one of the AMD GPUs ``targets``, or a GPU of another vendor that is here.

    ``other_kinds`` are what builds for those are called; ``gpus`` the AMD GPUs.
    """

    targets: tuple[str, ...]
    other_kinds: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()

    def list_faults(self, proof: KernelProof) -> list[str]:
        """Return why a torch serves none of the GPUs; () where it serves one, or that was not read."""
        if proof.kind in self.other_kinds:
            return []
        supports = [proof.check(target) for target in self.targets]
        if any(support is None or support.kind != "no" for support in supports):
            return []
        return [proof.describe(target) for target in self.targets]


def make_demand(host: TargetHost, override_line: str | None) -> GpuDemand | None:
    """Return what a machine demands of a torch; None for one without an AMD GPU whose target is known.

    A GPU that is to run the kernels of another one, by an override, is served by those as well.
    """
    gpus = host.hardware.amd
    targets = [*host.hardware.targets]
    if targets and override_line:
        targets.append(parse_override_version(override_line.partition("=")[2]))
    other_kinds = tuple(kind for kind in host.build_kinds if kind != "rocm")
    return GpuDemand(tuple(dict.fromkeys(targets)), other_kinds, tuple(gpus)) if targets else None


def find_proven_pose(proof: KernelProof, gpus: Sequence[Gpu], platform: str) -> PosedTarget | None:
    """Return the GPU that no code of a torch is for, and the override by which it runs what there is.

    Only where nothing is known against it, on Linux: elsewhere the runtime does not read the variable.
    """

    def runs(option: TargetOverride) -> bool:
        support = proof.check(option.target)
        return not option.risky and support is not None and support.runs

    return find_pose([gpu.native for gpu in gpus], runs) if platform == "linux" else None


def require_served(
    proof: KernelProof, demand: GpuDemand, host: TargetHost, choice: candidates.WheelChoice | None
) -> None:
    """Refuse a torch that serves none of the GPUs that are demanded; UnservedGpuError says what does.

    ``choice`` is that of this torch, None for one that was not chosen, but locked or named.
    """
    if demand.list_faults(proof):
        posed = find_proven_pose(proof, demand.gpus, host.platform)
        hint = [f"{posed}: with --gfx {posed.option.target} this torch is taken"] if posed else []
        # a GPU is spoken of once: by what the index lacks, else by what torch has
        notes = [note for note in choice.notes if " has no kernels for " not in note] if choice else []
        lacking = {gfx: f"no kernels for {gfx}: " for gfx in demand.targets}
        told = {gfx: note for gfx, words in lacking.items() for note in notes if note.startswith(words)}
        reasons = [
            f"{proof.torch}: {told[gfx]}" if gfx in told else proof.describe(gfx) for gfx in demand.targets
        ]
        reasons += [*hint, *(note for note in notes if note not in told.values())]
        refusal = make_unserved_error(reasons, demand.targets, host)
        refusal.index = choice.index if choice else ""
        raise refusal


def plan_served(plan: Callable[[Mapping[str, UnservedGpuError]], PlanT], index: str | None) -> PlanT:
    """Return the plan around the first known index whose torch is proven to serve a GPU of the machine.

    ``plan`` makes it without the indexes whose torch it was refused for before, by their URLs, as
    ``choose_wheels`` does, and raises UnservedGpuError for the torch that it came to. Where somebody names an
    ``index``, that one counts.
    """
    refused: dict[str, UnservedGpuError] = {}
    while True:
        try:
            return plan(refused)
        except UnservedGpuError as refusal:
            if index is not None or not refusal.index or refusal.index in refused:
                raise
            refused[refusal.index] = refusal


def choose_proven_wheels(
    requirements: Sequence[str],
    index: str | None,
    host: TargetHost,
    reach: reader.IndexReader,
    *,
    channel: str = "stable",
    allow_cpu: bool = False,
) -> tuple[candidates.WheelChoice, ...]:
    """Choose as ``choose_wheels``, of a torch that is proven to serve a GPU of the machine.

    UnservedGpuError for a torch that serves none, as ``install`` has it: also where tables, labels or extras
    say that it does. With ``allow_cpu`` nothing is read, and nothing refused.
    """

    def plan(refused: Mapping[str, UnservedGpuError]) -> tuple[candidates.WheelChoice, ...]:
        choices = choose.choose_wheels(
            requirements, index, host, reach, channel=channel, allow_cpu=allow_cpu, refused=refused
        )
        return choices if allow_cpu else tuple(_prove_choice(choice, host, reach) for choice in choices)

    return plan_served(plan, index)


def _prove_choice(
    choice: candidates.WheelChoice, host: TargetHost, reach: reader.IndexReader
) -> candidates.WheelChoice:
    """Return a choice with what parts of its torch say of its code, where the index does not say it."""
    demand = make_demand(host, choice.override_line)
    if demand is None or choice.project != "torch":
        return choice
    devices = [wheel for wheel in choice.devices if is_device_project(wheel.wheel.name)]
    proof = prove_wheel(choice.picked, devices, demand, make_markers(host), reach)
    require_served(proof, demand, host, choice)
    if choice.is_served:
        return choice
    lines = [proof.describe(target) for target in demand.targets]
    return replace(choice, notes=(*lines, *choice.notes))


def prove_wheel(
    torch: candidates.ChoiceCandidate,
    devices: Sequence[candidates.ChoiceCandidate],
    demand: GpuDemand,
    environment: Mapping[str, str],
    reach: reader.IndexReader,
) -> KernelProof:
    """Return what METADATA of a torch tells by its requirements, and what it does not parts of its files.

    ``environment`` has the markers of the Python (PEP 508). Reading ends when a GPU of ``demand`` is served.
    PyPI's wheel for Windows requires NVIDIA's packages on Linux alone, and is for the CPU; device wheels are
    required by an extra. HostError and DataError where METADATA cannot be had.
    """
    metadata = index_pages.read_wheel_metadata(torch.link, reach)
    requires = dist_info.parse_metadata(metadata, name=f"METADATA of {torch.name}").requires_dist
    values = {**environment, "extra": ""}
    names = [
        str(canonicalize_name(requirement.name))
        for requirement in map(Requirement, requires)
        if requirement.marker is None
        or requirement.marker.evaluate(values)
        or is_device_project(canonicalize_name(requirement.name))
    ]
    proof = KernelProof(f"torch {torch.version}")
    for kind, pattern in _KIND_REQUIREMENTS:
        if telling := [name for name in names if re.fullmatch(pattern, name)]:
            proof = replace(proof, kind=kind, source=f"requires {telling[0]}")
            break
    if any(map(is_device_project, names)) and not devices:
        return replace(proof, targets=(), file="its kernels are in device wheels, and none of them is for it")
    return proof if proof.is_complete else _read_proof(torch, devices, demand, reach, proof)


def is_device_project(project: str) -> bool:
    """Tell whether a project (normalized name) has torch's kernels for some GPUs."""
    return project.startswith("amd-torch-device-")


def prove_installed(environment: installed_packages.PythonEnvironment) -> KernelProof | None:
    """Return what the installed torch says; None where there is none. DataError for damaged libraries."""
    installed = installed_packages.read_environment_packages(environment)
    torch = installed.torch
    if torch is None:
        return None
    is_other = torch.kind not in ("rocm", "unknown")  # of what says nothing of itself its libraries tell
    targets = () if is_other else gpu_support.list_kernel_targets(installed, "torch")
    return KernelProof(f"torch {torch.version}", torch.kind, torch.build.source, targets)


def _read_proof(
    torch: candidates.ChoiceCandidate,
    devices: Sequence[candidates.ChoiceCandidate],
    demand: GpuDemand,
    reach: reader.IndexReader,
    proof: KernelProof,
) -> KernelProof:
    """Read what torch is built for, then its device code: names of archives, or a library as far as it takes.

    What cannot be read is left to who fetches the wheel, or looks at all of it: that tells more.
    """
    try:
        with reach.open_archive(torch.url, torch.name, torch.size) as archive:
            names = archive.namelist()
            text = ""
            if _VERSION_FILE in names and archive.getinfo(_VERSION_FILE).file_size <= _LARGEST_TEXT:
                text = archive.read(_VERSION_FILE).decode(errors="replace")
            values = installed_packages.parse_version_values(text)
            kind = installed_packages.detect_torch_kind(values, lambda name: f"torch/{name}" in names)
            if kind != "unknown":
                proof = replace(proof, kind=kind, source=_VERSION_FILE if values else "its libraries")
            if proof.is_complete:
                return proof
            if devices:
                return _read_archives(proof, devices, reach)
            mains = {f"torch/lib/{name}" for name in gpu_support.MAIN_LIBRARIES["torch"]}
            library = next((name for name in names if name in mains), None)
            if library is None:
                return replace(proof, targets=(), source=proof.source or "no library with device code in it")
            is_slow = archive.getinfo(library).file_size > _QUICK_BYTES
            if is_slow and reader.path_of_url(torch.url) is None:
                log.log_note(f"reading {library} of {torch.name} as far as its device code begins")
            return _scan_library(archive, library, demand, proof)
    except (reader.UnreachableError, errors.DataError) as cause:
        return replace(proof, unread=shell.hide_credentials(str(cause)))


def _read_archives(
    proof: KernelProof, devices: Sequence[candidates.ChoiceCandidate], reach: reader.IndexReader
) -> KernelProof:
    """Read the targets of the kernel archives in device wheels, which are in their names."""
    targets_by_file: dict[str, str] = {}
    for device in devices:
        with reach.open_archive(device.url, device.name, device.size) as archive:
            for name in map(posixpath.basename, archive.namelist()):
                target = gpu_support.TARGET_NAME.search(name)
                if target and name.endswith(kpack.KPACK_SUFFIX):
                    targets_by_file[name] = target.group()
    if not targets_by_file:
        return replace(proof, unread="the names of the archives in its device wheels tell no target")
    targets = gpu_support.sort_target_ids(targets_by_file.values())
    return replace(proof, targets=targets, file=", ".join(targets_by_file))


def _scan_library(
    archive: zipfile.ZipFile, library: str, demand: GpuDemand, proof: KernelProof
) -> KernelProof:
    """Read a library until a bundle has code for a GPU of ``demand``, or a few have none."""
    targets: set[str] = set()
    name = posixpath.basename(library)
    with archive.open(library) as member:
        pieces = (member.read(_PIECE) for _ in range(_MOST_BYTES // _PIECE))
        bundles = code_objects.scan_library_targets(itertools.takewhile(bool, pieces), name)
        for bundle_targets in itertools.islice(bundles, _ENOUGH_BUNDLES):
            targets.update(bundle_targets)
            if any(gpu_support.check_kernel_support(targets, gfx).kind != "no" for gfx in demand.targets):
                break
    if not targets and archive.getinfo(library).file_size > _MOST_BYTES:
        return replace(proof, unread=f"{name} has no device code in its first {_MOST_BYTES >> 20} MiB")
    return replace(proof, targets=gpu_support.sort_target_ids(targets), file=name)
