"""Check the kernels for this machine's GPUs, read from the installed files, and the known issues of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors
from rocm_wheels.models import torch_builds
from rocm_wheels.models.gfx import load_overrides
from rocm_wheels.models.project import list_projects
from rocm_wheels.user import gpu_support, host, installed_packages, machine

_OTHERS_WITH_CODE = ("torchao", "flash-attn", "xformers", "bitsandbytes", "vllm")  # without a recipe of ours
_ARCHIVE_RUNTIME = "*/*rocm_kpack*"  # lib/librocm_kpack.so.0, bin/rocm_kpack.dll
_UPGRADE_FIX = (
    "nothing, unless you need it (aotriton: flash attention, rccl: several GPUs); newer releases serve more"
)
_LIBRARY_CONSEQUENCES = {  # what happens without files of a library
    "rocBLAS": ("warning", "matrix products fail with 'Cannot read TensileLibrary'"),
    "hipBLASLt": ("info", "torch then uses rocBLAS, which is slower for some shapes"),
    "MIOpen": ("info", "convolutions are tuned and compiled when they are first used, which takes minutes"),
}


@dataclass(frozen=True)
class KernelVerdict:
    """Whether a project's installed files serve a GPU: ``gfx`` is what the runtime takes it for."""

    project: str
    gfx: str
    support: gpu_support.KernelSupport
    files: tuple[Path, ...]


def _list_companions_with_code() -> list[str]:
    """Return what may have device code beside torch: by recipes, and others that are known."""
    built = [project.normalized_name for project in list_projects() if project.has_device_code]
    return [name for name in dict.fromkeys([*built, *_OTHERS_WITH_CODE]) if name != "torch"]


def judge_kernels(subject: machine.DoctorSubject) -> list[KernelVerdict]:
    """Return a verdict for torch, and every companion with device code, for each kind of GPU."""
    verdicts = []
    for name in ("torch", *_list_companions_with_code()):
        package = subject.installed.get(name)
        codes = _read_sound_code(package) if package and package.kind in {"rocm", "unknown"} else []
        if package is None or not (codes or name == "torch"):
            continue
        targets = gpu_support.sort_target_ids(target for code in codes for target in code.targets)
        for gfx in subject.hardware.targets:
            support = gpu_support.check_kernel_support(targets, gfx, xnack=subject.uses_xnack)
            verdicts.append(KernelVerdict(name, gfx, support, tuple(code.path for code in codes)))
    return verdicts


def check_torch_kernels(subject: machine.DoctorSubject) -> Iterator[errors.Finding]:
    """Say yes or no for each kind of GPU: does torch have kernels for it?"""
    torch = subject.installed.torch
    if torch is None:
        return
    if torch.kind != "rocm":
        for gfx in subject.hardware.targets:
            text = f"kernels of torch for {gfx}: no: torch {torch.version} is not built for ROCm"
            yield errors.Finding("error", text, subject.make_replace_torch_line())
        return
    codes = gpu_support.read_installed_code(torch)
    for code in codes:
        if code.fault:
            yield errors.Finding("error", f"damaged: {code.fault}", subject.make_reinstall_line(torch.name))
    sound_codes = [code for code in codes if not code.fault]
    if not codes:
        yield errors.Finding(
            "error",
            f"{torch.folder or torch.distribution.info}: torch says that it is for ROCm, "
            "and no library of it holds device code",
            subject.make_reinstall_line(torch.name),
        )
    elif sound_codes:
        yield from _judge_torch(subject, torch, sound_codes)


def check_torch_libraries(subject: machine.DoctorSubject) -> Iterator[errors.Finding]:
    """Name the libraries inside torch that have kernels, and none for a GPU that torch itself serves."""
    torch = subject.installed.torch
    if torch is None or torch.kind != "rocm":
        return
    served = [
        entry.gfx for entry in judge_kernels(subject) if entry.project == "torch" and entry.support.runs
    ]
    other_codes = gpu_support.read_installed_code(torch, everything=True)[1:] if served else ()
    for gfx in served:
        without = [
            entry.path.name
            for entry in other_codes
            if entry.targets and not gpu_support.check_kernel_support(entry.targets, gfx).runs
        ]
        if without:
            text = f"torch serves {gfx}, these of its libraries do not: {machine.join_some(sorted(without))}"
            yield errors.Finding("info", f"{text}; what they are for is slower or missing", _UPGRADE_FIX)


def check_companion_kernels(subject: machine.DoctorSubject) -> Iterator[errors.Finding]:
    """Say the same of the packages beside torch: their own kernels."""
    kernel_verdicts = judge_kernels(subject)
    served = {entry.gfx for entry in kernel_verdicts if entry.project == "torch" and entry.support.runs}
    for verdict in kernel_verdicts:
        if verdict.project == "torch" or verdict.gfx not in served:
            continue
        message = (
            f"kernels of {verdict.project} for {verdict.gfx}: {verdict.support.describe_support(verdict.gfx)}"
        )
        files = machine.join_some([entry.name for entry in verdict.files], 2)
        if verdict.support.runs:
            yield errors.Finding("ok", f"{message} ({files})")
        else:
            yield errors.Finding("warning", f"{message} ({files})", _suggest_companion(subject, verdict))
    for name in _list_companions_with_code():
        package = subject.installed.get(name)
        for code in gpu_support.read_installed_code(package) if package else ():
            if code.fault:
                yield errors.Finding("error", f"damaged: {code.fault}", subject.make_install_line(name))


def _suggest_companion(subject: machine.DoctorSubject, verdict: KernelVerdict) -> str:
    """Return the line that brings kernels: the device wheel of a package that has its code in archives."""
    package = subject.installed.get(verdict.project)
    if package and any(code.missing or code.archives for code in gpu_support.read_installed_code(package)):
        requirement = f"{package.name}[device-{verdict.gfx}]=={package.version}"
        return subject.make_rocm_pip_line(requirement, package.version)
    return subject.make_install_line(verdict.project)


def check_archive_runtime(subject: machine.DoctorSubject) -> Iterator[errors.Finding]:
    """See that ROCm reads archives where a package has its kernels in them: HIP up to 7.2 does not say."""
    roots = [
        folder
        for path in subject.installed.environment.path
        for folder in [*sorted(path.glob("_rocm_sdk_core*")), path / "torch" / "_rocm"]
        if folder.is_dir()
    ]
    if not roots or any(library for root in roots for library in root.glob(_ARCHIVE_RUNTIME)):
        return
    for name in ("torch", *_list_companions_with_code()):
        package = subject.installed.get(name)
        codes = gpu_support.read_installed_code(package) if package else ()
        if package and any(code.missing or code.archives for code in codes):
            yield errors.Finding(
                "error",
                f"{name} {package.version} has its kernels in archives, and {roots[0].name} has no"
                " librocm_kpack to read them: every kernel fails",
                subject.make_install_line("torch"),
            )


def check_library_kernels(subject: machine.DoctorSubject) -> Iterator[errors.Finding]:
    """See that ROCm's libraries have files for each kind of GPU; they are loaded by name."""
    torch = subject.installed.torch
    if torch is None or torch.kind != "rocm":
        return
    files = gpu_support.list_library_files(gpu_support.list_library_roots(subject.installed))
    for library in dict.fromkeys(library_files.library for library_files in files):
        matching = [library_files for library_files in files if library_files.library == library]
        targets = gpu_support.sort_target_ids(
            target for library_files in matching for target in library_files.targets
        )
        for gfx in subject.hardware.targets:
            if gpu_support.check_kernel_support(targets, gfx).runs:
                yield errors.Finding("ok", f"{library} has files for {gfx} ({matching[0].folder})")
                continue
            severity, consequence = _LIBRARY_CONSEQUENCES[library]
            text = f"{library} has no files for {gfx} in {matching[0].folder}: {consequence}"
            yield errors.Finding(
                "warning" if severity == "warning" else "info", text, _suggest_device_libraries(subject, gfx)
            )


def _judge_torch(
    subject: machine.DoctorSubject,
    torch: installed_packages.InstalledPackage,
    codes: list[gpu_support.InstalledCode],
) -> Iterator[errors.Finding]:
    targets = gpu_support.sort_target_ids(target for code in codes for target in code.targets)
    content = machine.join_some(list(targets), 12) or "nothing"
    if not targets and codes[0].missing:
        content = f"{codes[0].missing[0]}, which no installed package brought"
    if not subject.hardware.targets:
        yield errors.Finding("ok", f"torch {torch.version} has kernels for {content} ({codes[0].path})")
    served = {
        gfx: gpu_support.check_kernel_support(targets, gfx, xnack=subject.uses_xnack)
        for gfx in subject.hardware.targets
    }
    line = gpu_support.make_visible_line(
        tuple((gpu, gpu.gfx is not None and served[gpu.gfx].runs) for gpu in subject.hardware.amd)
    )
    is_split = any(code.missing or code.archives for code in codes)
    for gfx, support in served.items():
        text, file = (
            f"kernels of torch for {gfx}: {support.describe_support(gfx)}",
            _find_code_file(gfx, codes),
        )
        if support.runs:
            yield errors.Finding("ok", f"{text} ({file})")
            continue
        fix = (
            _suggest_setting(support.by, subject)
            if support.kind == "setting"
            else _suggest_fix(subject, torch, codes, gfx, targets)
        )
        message = f"{text} ({file})" if support.kind == "setting" else f"{text}: {file} has {content}"
        if subject.has_no_torch:
            message += f"; {subject.describe_no_torch()}"
        if is_split and support.kind == "no":
            message += f"; the device wheel amd-torch-device-{gfx} is missing"
        if not line:
            yield errors.Finding("error", message, fix)
        else:
            inside = all(gpu.integrated for gpu in subject.hardware.amd if gpu.gfx == gfx)
            text = f"{message}; programs must leave that GPU alone"
            yield errors.Finding("info" if inside else "warning", text, f"export {line}   # or: {fix}")


def _find_code_file(gfx: str, codes: list[gpu_support.InstalledCode]) -> Path:
    """Return the archive for a GPU where there is one, else the library."""
    archives = [archive for code in codes for archive in code.archives]
    return next((archive for archive in archives if gfx in archive.name), codes[0].path)


def _suggest_fix(
    subject: machine.DoctorSubject,
    torch: installed_packages.InstalledPackage,
    codes: list[gpu_support.InstalledCode],
    gfx: str,
    targets: tuple[str, ...],
) -> str:
    if any(code.missing or code.archives for code in codes):
        return subject.make_rocm_pip_line(f"torch[device-{gfx}]=={torch.version}", torch.version)
    options = [option for option in load_overrides().cards.get(gfx, ()) if not option.risky]
    nearest_option = next(
        (option for option in options if gpu_support.check_kernel_support(targets, option.target).runs), None
    )
    posed = host.PosedTarget(gfx, nearest_option) if nearest_option else None
    posing = f"   # or, as {posed.ability}: export {posed.line}" if posed else ""
    return subject.make_torch_line() + posing


def _suggest_setting(target: str, subject: machine.DoctorSubject) -> str:
    if "xnack+" in target:
        return "export HSA_XNACK=1"
    if "xnack-" in target and subject.uses_xnack:
        return "unset HSA_XNACK"
    return "install a torch whose code leaves this setting open: " + subject.make_torch_line("torch")


def _suggest_device_libraries(subject: machine.DoctorSubject, gfx: str) -> str:
    version = subject.installed.rocm_version
    if version:
        return subject.make_rocm_pip_line(f"rocm-sdk-device-{gfx}=={version}", version)
    return subject.make_install_line("torch")


def _read_sound_code(package: installed_packages.InstalledPackage) -> list[gpu_support.InstalledCode]:
    return [code for code in gpu_support.read_installed_code(package) if not code.fault]


_SERIOUS_EFFECTS = ("wrong", "crash", "hang", "kernels", "import")
_CHECKED_EFFECTS = ("kernels", "install", "documentation")  # other checks look, instead of knowing by hearsay
_PLATFORM_NAMES = {"linux": "linux", "win32": "windows"}


def check_known_issues(subject: machine.DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of issues that somebody has met with this torch, this ROCm and a GPU of this machine."""
    torch = subject.installed.torch
    if torch is None or torch.kind != "rocm":
        return
    version, rocm = parse_optional_version(torch.version), find_rocm_release(subject)
    platform = _PLATFORM_NAMES.get(subject.machine.platform)
    gpus: dict[torch_builds.KnownIssue, list[str]] = {}
    served = [
        verdict.gfx
        for verdict in judge_kernels(subject)
        if verdict.project == "torch" and verdict.support.runs
    ]
    for gfx in served if version and rocm else ():
        for issue in torch_builds.find_issues(version, rocm, gfx, platform):
            if issue.without_device and subject.machine.kfd.refused is not None:
                continue  # it is there, whoever may open it
            if issue.effect not in _CHECKED_EFFECTS or issue.targets:
                gpus.setdefault(issue, []).append(gfx)
    for issue, targets in gpus.items():
        where = f" on {machine.join_some(targets)}" if issue.targets else ""
        state = f"; fixed: {issue.fixed}" if issue.fixed else ""
        message = f"torch {torch.version} with ROCm {rocm}{where}: {issue.title}"
        yield errors.Finding(
            "warning" if issue.effect in _SERIOUS_EFFECTS else "info",
            f"{message} ({issue.effect}, {issue.kind}{state})",
            issue.workaround or f"read {torch_builds.get_issue_url(issue)}",
            source=torch_builds.get_issue_url(issue),
        )


def find_rocm_release(subject: machine.DoctorSubject) -> Version | None:
    """Return the release of ROCm that torch was built with, else that of pip's packages, else HIP's."""
    torch = subject.installed.torch
    if torch is None:
        return None
    version = torch.build.version
    if not version or version == torch.build.version_values.get("hip"):
        hip = ".".join(version.split(".")[:2])  # the third part of HIP's version is no release of ROCm
        return parse_optional_version(subject.installed.rocm_version or hip)
    return parse_optional_version(version)


def parse_optional_version(text: str) -> Version | None:
    """Return a version, None for what is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None
