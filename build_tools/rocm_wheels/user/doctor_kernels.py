"""Check the kernels for this machine's GPUs, read from the installed files, and the known issues of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core.errors import Finding
from rocm_wheels.models import torch_builds
from rocm_wheels.user import gpu_support, host
from rocm_wheels.user.doctor_subject import DoctorSubject, error, info, join_some, ok, warning
from rocm_wheels.user.installed_packages import parse_optional_version

_ARCHIVE_RUNTIME = "*/*rocm_kpack*"  # lib/librocm_kpack.so.0, bin/rocm_kpack.dll
_UPGRADE_FIX = (
    "nothing, unless you need it (aotriton: flash attention, rccl: several GPUs); newer releases serve more"
)
_LIBRARY_CONSEQUENCES = {  # what happens without files of a library
    "rocBLAS": (warning, "matrix products fail with 'Cannot read TensileLibrary'"),
    "hipBLASLt": (info, "torch then uses rocBLAS, which is slower for some shapes"),
    "MIOpen": (info, "convolutions are tuned and compiled when they are first used, which takes minutes"),
}
_SERIOUS_EFFECTS = ("wrong", "crash", "hang", "kernels", "import")
_CHECKED_EFFECTS = ("kernels", "install", "documentation")  # other checks look, instead of knowing by hearsay
_PLATFORM_NAMES = {"linux": "linux", "win32": "windows"}


@dataclass(frozen=True)
class KernelVerdict:
    """Whether a project's installed files serve a GPU: ``gfx`` is what the runtime takes it for."""

    project: str
    gfx: str
    support: gpu_support.KernelSupport
    files: tuple[Path, ...]


def judge_kernels(subject: DoctorSubject) -> list[KernelVerdict]:
    """Return a verdict for torch, and every companion with device code, for each kind of GPU."""
    verdicts = []
    for name, codes in subject.codes.items():
        package = subject.installed.get(name)
        is_for_rocm = package is not None and package.kind in {"rocm", "unknown"}
        sound = [code for code in codes if not code.fault and is_for_rocm]
        targets = gpu_support.sort_target_ids(target for code in sound for target in code.targets)
        for gfx in subject.hardware.targets if sound or name == "torch" else ():
            support = gpu_support.check_kernel_support(targets, gfx, xnack=subject.uses_xnack)
            verdicts.append(KernelVerdict(name, gfx, support, tuple(code.path for code in sound)))
    return verdicts


def _list_served(subject: DoctorSubject) -> list[str]:
    """Return the GPUs that torch itself serves: of the others, nothing else matters."""
    verdicts = judge_kernels(subject)
    return [verdict.gfx for verdict in verdicts if verdict.project == "torch" and verdict.support.runs]


def check_torch_kernels(subject: DoctorSubject) -> Iterator[Finding]:
    """Say yes or no for each kind of GPU: does torch have kernels for it?"""
    torch = subject.installed.torch
    if torch is None:
        return
    if torch.kind != "rocm":
        for gfx in subject.hardware.targets:
            text = f"kernels of torch for {gfx}: no: torch {torch.version} is not built for ROCm"
            yield error(text, subject.format_other_torch(gfx))
        return
    for code in subject.codes["torch"]:
        if code.fault:
            yield error(f"damaged: {code.fault}", subject.format_reinstallation("torch"))
    if not subject.codes["torch"]:
        text = f"{torch.folder or torch.info}: torch says that it is for ROCm, "
        yield error(f"{text}and no library of it holds device code", subject.format_reinstallation("torch"))
    codes = [code for code in subject.codes["torch"] if not code.fault]
    if not codes:
        return

    targets = gpu_support.sort_target_ids(target for code in codes for target in code.targets)
    content = join_some(list(targets), 12) or "nothing"
    if not targets and codes[0].missing:
        content = f"{codes[0].missing[0]}, which no installed package brought"
    if not subject.hardware.targets:
        yield ok(f"torch {torch.version} has kernels for {content} ({codes[0].path})")
    served = {entry.gfx: entry.support for entry in judge_kernels(subject) if entry.project == "torch"}
    hiding = gpu_support.make_visible_line(
        tuple((gpu, gpu.gfx is not None and served[gpu.gfx].runs) for gpu in subject.hardware.amd)
    )
    for gfx, support in served.items():
        archives = [archive for code in codes for archive in code.archives if gfx in archive.name]
        file = archives[0] if archives else codes[0].path
        text = f"kernels of torch for {gfx}: {support.describe_support(gfx)}"
        if support.runs:
            yield ok(f"{text} ({file})")
            continue
        text += f" ({file})" if support.kind == "setting" else f": {file} has {content}"
        text += "".join(f"; {lack}" for lack in [subject.find_lack(gfx)] if lack)
        fix = subject.format_torch(gfx=gfx)
        if support.kind == "setting" and "xnack+" in support.by:
            fix = "export HSA_XNACK=1"
        elif support.kind == "setting" and "xnack-" in support.by and subject.uses_xnack:
            fix = "unset HSA_XNACK"
        elif support.kind == "setting":
            fix = f"install a torch whose code leaves this setting open: {subject.format_torch('torch')}"
        elif _is_split(subject, "torch"):
            text += f"; the device wheel amd-torch-device-{gfx} is missing"
            fix = subject.format_rocm_pip(f"torch[device-{gfx}]=={torch.version}", torch.version)
        elif posed := host.find_pose(
            [gfx],
            lambda option: not option.risky and gpu_support.check_kernel_support(targets, option.target).runs,
        ):
            fix += f"   # or, as {posed.ability}: export {posed.line}"
        if hiding:
            inside = all(gpu.integrated for gpu in subject.hardware.amd if gpu.gfx == gfx)
            tell = info if inside else warning
            yield tell(f"{text}; programs must leave that GPU alone", f"export {hiding}   # or: {fix}")
        else:
            yield error(text, fix)


def check_torch_libraries(subject: DoctorSubject) -> Iterator[Finding]:
    """Name the libraries inside torch that have kernels, and none for a GPU that torch itself serves."""
    torch, served = subject.installed.torch, _list_served(subject)
    other_codes = gpu_support.read_installed_code(torch, everything=True)[1:] if torch and served else ()
    for gfx in served:
        without = sorted(
            code.path.name
            for code in other_codes
            if code.targets and not gpu_support.check_kernel_support(code.targets, gfx).runs
        )
        if without:
            text = f"torch serves {gfx}, these of its libraries do not: {join_some(without)}"
            yield info(f"{text}; what they are for is slower or missing", _UPGRADE_FIX)


def check_companion_kernels(subject: DoctorSubject) -> Iterator[Finding]:
    """Say the same of the packages beside torch: their own kernels."""
    served = _list_served(subject)
    for verdict in judge_kernels(subject):
        name, gfx, package = verdict.project, verdict.gfx, subject.installed.get(verdict.project)
        if name == "torch" or gfx not in served or package is None:
            continue
        files = join_some([path.name for path in verdict.files], 2)
        text = f"kernels of {name} for {gfx}: {verdict.support.describe_support(gfx)} ({files})"
        if verdict.support.runs:
            yield ok(text)
        elif _is_split(subject, name):  # the device wheel has its code
            requirement = f"{name}[device-{gfx}]=={package.version}"
            yield warning(text, subject.format_rocm_pip(requirement, package.version))
        else:
            yield warning(text, subject.format_install(name))
    for name, codes in subject.codes.items():
        for code in codes:
            if code.fault and name != "torch":
                yield error(f"damaged: {code.fault}", subject.format_install(name))


def _is_split(subject: DoctorSubject, project: str) -> bool:
    """Tell whether a project has its kernels in archives, which device wheels bring."""
    return any(code.missing or code.archives for code in subject.codes[project])


def check_archive_runtime(subject: DoctorSubject) -> Iterator[Finding]:
    """See that ROCm reads archives where a package has its kernels in them: HIP up to 7.2 does not say."""
    roots = [
        folder
        for path in subject.installed.environment.path
        for folder in [*sorted(path.glob("_rocm_sdk_core*")), path / "torch" / "_rocm"]
        if folder.is_dir()
    ]
    if not roots or any(library for root in roots for library in root.glob(_ARCHIVE_RUNTIME)):
        return
    for name in subject.codes:
        package = subject.installed.get(name)
        if package and _is_split(subject, name):
            text = f"{name} {package.version} has its kernels in archives, and {roots[0].name} has no "
            yield error(
                f"{text}librocm_kpack to read them: every kernel fails", subject.format_install("torch")
            )


def check_library_kernels(subject: DoctorSubject) -> Iterator[Finding]:
    """See that ROCm's libraries have files for each kind of GPU; they are loaded by name."""
    torch, version = subject.installed.torch, subject.installed.rocm_version
    if torch is None or torch.kind != "rocm":
        return
    for library, (folder, targets) in gpu_support.list_library_files(subject.installed).items():
        for gfx in subject.hardware.targets:
            if gpu_support.check_kernel_support(targets, gfx).runs:
                yield ok(f"{library} has files for {gfx} ({folder})")
                continue
            tell, consequence = _LIBRARY_CONSEQUENCES[library]
            fix = subject.format_install("torch")
            if version:
                fix = subject.format_rocm_pip(f"rocm-sdk-device-{gfx}=={version}", version)
            yield tell(f"{library} has no files for {gfx} in {folder}: {consequence}", fix)


def check_known_issues(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of issues that somebody has met with this torch, this ROCm and a GPU of this machine."""
    torch, served = subject.installed.torch, _list_served(subject)
    if torch is None or not served:
        return
    # the release of ROCm that torch was built with, else that of pip's packages, else HIP's: the third part
    # of HIP's version is no release of ROCm
    built_with = torch.build.version
    if not built_with or built_with == torch.build.version_values.get("hip"):
        built_with = subject.installed.rocm_version or ".".join(built_with.split(".")[:2])
    version, rocm = parse_optional_version(torch.version), parse_optional_version(built_with)
    if version is None or rocm is None:
        return
    platform = _PLATFORM_NAMES.get(subject.machine.platform)
    gpus: dict[torch_builds.KnownIssue, list[str]] = {}
    for gfx in served:
        for issue in torch_builds.find_issues(version, rocm, gfx, platform):
            if issue.effect not in _CHECKED_EFFECTS or issue.targets:
                gpus.setdefault(issue, []).append(gfx)
    for issue, targets in gpus.items():
        where = f" on {join_some(targets)}" if issue.targets else ""
        text = f"torch {torch.version} with ROCm {rocm}{where}: {issue.title} "
        url = torch_builds.get_issue_url(issue)
        tell = warning if issue.effect in _SERIOUS_EFFECTS else info
        yield tell(f"{text}({issue.effect}, {issue.kind})", issue.workaround or f"read {url}", url)


CHECKS = (
    check_torch_kernels,
    check_torch_libraries,
    check_companion_kernels,
    check_archive_runtime,
    check_library_kernels,
    check_known_issues,
)
