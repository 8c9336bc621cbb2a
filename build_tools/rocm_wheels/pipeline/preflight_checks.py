"""The checks before a run: what can be known to go wrong before anything starts, each with a tip.

Checks are pure functions of a ``PreflightSubject`` in one table. An error is a failure that is certain;
what is probable, or expected by an estimate, is a warning. To add one: a function, and a line in
``PREFLIGHT_CHECKS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rocm_wheels.core import shell, tables
from rocm_wheels.core.errors import Finding, UsageError, find_errors, format_finding
from rocm_wheels.core.machine import MachineResources
from rocm_wheels.models import gfx, project_names
from rocm_wheels.models.project import BuildDownload, Project
from rocm_wheels.pipeline import estimates, outputs

FolderRole = Literal["work", "output", "source", "temporary"]


@dataclass(frozen=True)
class PreflightFolder:
    """A folder of a run, as it is or, where it is not there yet, as the nearest one above it is.

    ``device`` is the number of its file system, ``free`` its bytes.
    """

    role: FolderRole
    description: str  # in words
    path: Path
    device: int
    free: int
    exists: bool = True
    writable: bool = True


@dataclass(frozen=True)
class BuildProgram:
    """A program that a build starts. ``fault``: why it cannot be used, in the words of who said it."""

    name: str
    path: Path | None
    fault: str = ""


@dataclass(frozen=True)
class StepCost:
    """A step that will run: its id, its project (where it has one), what it is expected to take."""

    step: str
    project: str | None
    estimate: estimates.Estimate


@dataclass(frozen=True)
class PythonHeaders:
    """An interpreter in words, and the folder of its Python.h (``None``: it has none).

    ``fault``: what is wrong with it, in words.
    """

    python: str
    folder: Path | None
    fault: str = ""


@dataclass(frozen=True)
class BuildFetch:
    """What the build of a project downloads, and the folder that its variable names instead.

    ``folder``: ``None`` where the variable is not set; ``lacks``: what is not in it.
    """

    project: str
    download: BuildDownload
    folder: Path | None = None
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreflightSubject:
    """Everything that checks look at: what a plan says, then what ``complete_subject`` finds on the machine.

    ``sdk_targets`` is ``None`` while it is not known; ``rocm_findings`` are those about an installed ROCm;
    ``unreleased``, ``foreign``: sentences. ``missing``: submodules that nobody fetched, by tree.
    """

    platform: project_names.Platform
    machine: MachineResources
    projects: tuple[str, ...]
    costs: tuple[StepCost, ...] = ()  # of the steps that will run
    pythons: tuple[PythonHeaders, ...] = ()
    targets: tuple[str, ...] = ()
    sdk_targets: tuple[str, ...] | None = None
    unreleased: tuple[str, ...] = ()
    jobs: int | None = None  # that the user asked for
    folders: tuple[PreflightFolder, ...] = ()
    programs: tuple[BuildProgram, ...] = ()
    rocm_findings: tuple[Finding, ...] = ()
    fetches: tuple[BuildFetch, ...] = ()
    offline: bool = False
    foreign: tuple[str, ...] = ()
    missing: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)


def list_fetches(
    project: Project, source: Path, env: Mapping[str, str], *, flash_attention: bool
) -> Iterator[BuildFetch]:
    """Yield what the build of a tree downloads; ``env`` is the environment of the build."""
    for download in project.build.downloads:
        if not (source / download.named_in).is_file() or (download.flash_attention and not flash_attention):
            continue
        if env.get(download.switch or "") in ("0", "OFF"):
            continue
        folder_text = env.get(download.variable or "")
        folder = Path(folder_text) if folder_text else None
        lacks = tuple(name for name in download.contains if folder and not (folder / name).exists())
        yield BuildFetch(project.name, download, folder, lacks)


def check_downloads(subject: PreflightSubject) -> Iterator[Finding]:
    """Say what is downloaded from where, and with --offline what must lie where instead."""
    for fetch in subject.fetches:
        download, variable = fetch.download, fetch.download.variable
        content = f" (a folder with {', '.join(download.contains)})" if download.contains else ""
        leave_out = f"; {download.switch}=0 leaves it out" if download.switch else ""
        fetched = f"the build of {fetch.project} downloads {download.what} from {download.origin}"
        if fetch.lacks:
            text = f"{variable} is {fetch.folder}, which lacks {', '.join(fetch.lacks)}"
            yield Finding("error", text, f"unpack {download.what} there: {download.origin}")
        elif fetch.folder is not None:
            continue
        elif not subject.offline:
            tip = f"{variable}=DIR{content} is used instead" if variable else "--offline does without"
            yield Finding("warning", fetched, f"{tip}{leave_out}")
        elif variable is not None:
            tip = f"unpack it on this machine, and set {variable}=DIR{content}{leave_out}"
            yield Finding("error", f"--offline, but {fetched}", tip)


_FULL_DISK_BYTES = 64 << 20  # not even a log and a configure step


def check_disk_space(subject: PreflightSubject) -> Iterator[Finding]:
    """What a run is expected to add must fit, summed where folders share a file system."""
    needs: dict[int, dict[str, int]] = {}
    folders_by_name = {folder.description: folder for folder in subject.folders}
    of_project = {
        f.description.removeprefix("source tree of "): f for f in subject.folders if f.role == "source"
    }
    for cost in subject.costs:
        wheel = cost.estimate.wheel
        shares = [
            (of_project.get(cost.project or "", folders_by_name.get("work directory")), cost.estimate.disk)
        ]
        shares += [
            (folders_by_name.get("output folder"), wheel),
            (folders_by_name.get("work directory"), wheel),
        ]
        for folder, size in shares:
            if folder is not None and size:
                steps = needs.setdefault(folder.device, {})
                steps[cost.step] = steps.get(cost.step, 0) + size
    for device, folders in _group_by_device(subject).items():
        free, folder_names = min(folder.free for folder in folders), _name_folders(folders)
        if free < _FULL_DISK_BYTES:
            yield Finding(
                "error",
                f"{folder_names}: the disk is full ({tables.format_size(free)} free)",
                _disk_space_tip(),
            )
        elif (need := sum(needs.get(device, {}).values())) > free:
            largest = sorted(needs[device].items(), key=lambda item: (-item[1], item[0]))[:3]
            largest_text = ", ".join(f"{step} {tables.format_size(size)}" for step, size in largest)
            more = f" and {len(needs[device]) - 3} more" if len(needs[device]) > 3 else ""
            yield Finding(
                "warning",
                f"{folder_names}: {tables.format_size(free)} free, and this run may add "
                f"{tables.format_size(need)} "
                f"({largest_text}{more})",
                _disk_space_tip(),
            )


def check_access(subject: PreflightSubject) -> Iterator[Finding]:
    """All folders are written to; compilers write to that of temporary files."""
    for folder in subject.folders:
        if folder.role == "temporary" and not folder.exists:
            text = f"temporary files go to {folder.path}, which is not a folder"
            yield Finding("error", text, "make it, or let TMPDIR name another one")
        elif not folder.writable:
            tip = "make it writable, or choose another folder"
            yield Finding("error", f"the {folder.description} {folder.path} cannot be written to", tip)


def _group_by_device(subject: PreflightSubject) -> dict[int, list[PreflightFolder]]:
    folders_by_device: dict[int, list[PreflightFolder]] = {}
    for folder in subject.folders:
        folders_by_device.setdefault(folder.device, []).append(folder)
    return folders_by_device


def _name_folders(folders: list[PreflightFolder]) -> str:
    """Name the folders of one file system, not more than three."""
    paths: list[Path] = list(dict.fromkeys(folder.path for folder in folders))
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(str(path) for path in paths[:3]) + more


def _disk_space_tip() -> str:
    return "`rocm-wheels clean --dry-run` shows what can go from a work directory; or choose another disk"


_INSTALL_TIPS = {
    "git": "install git",
    "C compiler": "install one (gcc, clang), or let CC name it",
    "C++ compiler": "install one (g++, clang++), or let CXX name it",
}


def check_programs(subject: PreflightSubject) -> Iterator[Finding]:
    """Programs that every build starts must be there and run."""
    for program in subject.programs:
        tip = _INSTALL_TIPS.get(program.name, f"install {program.name} again")
        if program.path is None:
            yield Finding("error", f"there is no {program.name} on the PATH", tip)
        elif program.fault:
            yield Finding("error", f"{program.path} does not work: {program.fault}", tip)


def check_released_pythons(subject: PreflightSubject) -> Iterator[Finding]:
    """A torch is built with the Pythons that its release line was released for."""
    for message in subject.unreleased:
        yield Finding("warning", message, "`rocm-wheels compat show lines` has the Pythons of each line")


def check_python_headers(subject: PreflightSubject) -> Iterator[Finding]:
    """Extension modules are compiled against Python.h."""
    for python in subject.pythons:
        if python.fault:
            yield Finding("warning", python.fault, "take another Python")
        elif python.folder is None:
            yield Finding(
                "error",
                f"{python.python} has no Python.h",
                "install its headers (python3-dev, python3-devel), or take another Python",
            )


def check_installed_rocm(subject: PreflightSubject) -> Iterator[Finding]:
    """An installed ROCm must have what torch's CMake looks for, and nothing may lead to another one."""
    yield from subject.rocm_findings


def check_sdk_targets(subject: PreflightSubject) -> Iterator[Finding]:
    """ROCm's libraries have kernels for the targets that it was made for, and for no others."""
    if subject.sdk_targets is None:
        return
    served = {gfx.strip_features(target) for target in subject.sdk_targets}
    if missing := [target for target in subject.targets if gfx.strip_features(target) not in served]:
        yield Finding(
            "warning",
            f"the installed ROCm serves {', '.join(sorted(served))}: its libraries have no kernels for"
            f" {', '.join(missing)}",
            "install the ROCm packages of these targets (--rocm-extras device-…, or another --rocm-index)",
        )


def check_foreign_wheels(subject: PreflightSubject) -> Iterator[Finding]:
    """Two builds of one project must not mix in an output folder."""
    for message in subject.foreign:
        yield Finding("error", message, outputs.FOREIGN_WHEEL_TIP)


def check_submodules(subject: PreflightSubject) -> Iterator[Finding]:
    """Without its submodules a tree does not compile, or its own build fetches them, not hipified."""
    for tree, names in subject.missing.items():
        listing = ", ".join(names[:_MOST_SUBMODULES]) + (", …" if len(names) > _MOST_SUBMODULES else "")
        yield Finding(
            "error",
            f"{tree} lacks {tables.format_count(len(names), 'submodule')}: {listing}",
            f"`{shell.format_command(['git', '-C', tree, 'submodule', 'update', '--init', '--recursive'])}`",
        )


_MOST_SUBMODULES = 5


def check_memory(subject: PreflightSubject) -> Iterator[Finding]:
    """One compiler at least must fit; so must as many as were asked for."""
    heavy = max(subject.costs, key=lambda cost: cost.estimate.memory_per_job, default=None)
    if heavy is None or not (each := heavy.estimate.memory_per_job):
        return
    machine, source = subject.machine, heavy.estimate.source
    prefix = f"{heavy.step}: one compiler may take {tables.format_size(each)}"
    limits = f" ({', '.join(machine.limits)})" if machine.limits else ""
    if machine.memory < each:
        text = f"{prefix}, and there are {tables.format_size(machine.memory)} of memory{limits}"
        yield Finding("warning", text, f"add memory or swap (the figure is from: {source})")
    elif machine.free_memory < each:
        text = f"{prefix}, and {tables.format_size(machine.free_memory)} of memory are free{limits}"
        yield Finding("warning", text, "end other programs, or wait for them")
    elif subject.jobs and subject.jobs * each > machine.free_memory:
        text = (
            f"{prefix}: {subject.jobs} at a time {tables.format_size(subject.jobs * each)}, and"
            f" {tables.format_size(machine.free_memory)} are free{limits}"
        )
        fits = machine.free_memory // each
        yield Finding("warning", text, f"{fits} at a time fit, and are taken when no number is given")


PreflightCheck = Callable[[PreflightSubject], Iterator[Finding]]

PREFLIGHT_CHECKS: Mapping[str, PreflightCheck] = {
    "programs": check_programs,
    "python-headers": check_python_headers,
    "released-pythons": check_released_pythons,
    "access": check_access,
    "disk": check_disk_space,
    "memory": check_memory,
    "installed-rocm": check_installed_rocm,
    "sdk-targets": check_sdk_targets,
    "downloads": check_downloads,
    "foreign-wheels": check_foreign_wheels,
    "submodules": check_submodules,
}


def run_preflight_checks(subject: PreflightSubject) -> tuple[Finding, ...]:
    """Run all checks; return what they found, errors first, else in the order of the table."""
    findings = [
        replace(finding, check=name) for name, check in PREFLIGHT_CHECKS.items() for finding in check(subject)
    ]
    return tuple(sorted(findings, key=lambda finding: finding.severity != "error"))


def format_findings(findings: Iterable[Finding]) -> list[str]:
    """Return findings as lines for people, each followed by its tip."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity}: {format_finding(finding)}")
        lines.append(f"  tip: {finding.tip}")
    return lines


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Raise UsageError that lists every error among ``findings``, with its tip."""
    errors = find_errors(findings)
    if not errors:
        return
    if len(errors) == 1:
        raise UsageError(errors[0].message, tip=errors[0].tip)
    listed = "\n".join(f"  {finding.message}\n    tip: {finding.tip}" for finding in errors)
    raise UsageError(f"this run cannot succeed, for {len(errors)} reasons:\n{listed}")
