"""Are there kernels for this machine's GPUs in the installed files: read, not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.hosts.choose.served import visible_line
from rocm_wheels.hosts.doctor.subject import Finding, Subject, several
from rocm_wheels.hosts.installed.kernels import (
    InstalledCode,
    code_of,
    library_files,
    library_roots,
    sorted_targets,
)
from rocm_wheels.hosts.installed.look import Package
from rocm_wheels.hosts.installed.serving import Served, serve
from rocm_wheels.model.compat.overrides import VARIABLE, overrides

_WITH_CODE = (
    "torchvision",
    "torchaudio",
    "torchao",
    "apex",
    "flash-attn",
    "xformers",
    "bitsandbytes",
    "vllm",
)
_UPGRADE = (
    "nothing, unless you need it (aotriton: flash attention, rccl: several GPUs); newer releases serve more"
)
_NEEDED = {  # what happens without files of a library
    "rocBLAS": ("warning", "matrix products fail with 'Cannot read TensileLibrary'"),
    "hipBLASLt": ("info", "torch then uses rocBLAS, which is slower for some shapes"),
    "MIOpen": ("info", "convolutions are tuned and compiled when they are first used, which takes minutes"),
}


@dataclass(frozen=True)
class Verdict:
    """Whether a project's installed files serve a GPU: ``gfx`` is what the runtime takes it for."""

    project: str
    gfx: str
    served: Served
    files: tuple[Path, ...]


def verdicts(subject: Subject) -> list[Verdict]:
    """Return a verdict for torch, and every companion with device code, for each kind of GPU."""
    found = []
    for name in ("torch", *_WITH_CODE):
        package = subject.installed.get(name)
        codes = _readable(package) if package and package.kind in {"rocm", "unknown"} else []
        if package is None or not (codes or name == "torch"):
            continue
        targets = sorted_targets(target for code in codes for target in code.targets)
        for gfx in _kinds(subject):
            served = serve(targets, gfx, xnack=subject.xnack)
            found.append(Verdict(name, gfx, served, tuple(code.path for code in codes)))
    return found


def torch_code(subject: Subject) -> Iterator[Finding]:
    """Say yes or no for each kind of GPU: does torch have kernels for it?"""
    torch = subject.installed.torch
    if torch is None:
        return
    if torch.kind != "rocm":
        for gfx in _kinds(subject):
            text = f"kernels of torch for {gfx}: no: torch {torch.version} is not built for ROCm"
            yield Finding("error", text, subject.replace_torch())
        return
    codes = code_of(torch)
    for code in codes:
        if code.fault:
            yield Finding("error", f"damaged: {code.fault}", subject.again(torch.name))
    whole = [code for code in codes if not code.fault]
    if not codes:
        yield Finding(
            "error",
            f"{torch.folder or torch.distribution.info}: torch says that it is for ROCm, "
            "and no library of it holds device code",
            subject.again(torch.name),
        )
    elif whole:
        yield from _torch_verdicts(subject, torch, whole)


def torch_libraries(subject: Subject) -> Iterator[Finding]:
    """Name the libraries inside torch that have kernels, and none for a GPU that torch itself serves."""
    torch = subject.installed.torch
    if torch is None or torch.kind != "rocm":
        return
    served = [one.gfx for one in verdicts(subject) if one.project == "torch" and one.served.yes]
    others = code_of(torch, everything=True)[1:] if served else ()
    for gfx in served:
        without = [one.path.name for one in others if one.targets and not serve(one.targets, gfx).yes]
        if without:
            text = f"torch serves {gfx}, these of its libraries do not: {several(sorted(without))}"
            yield Finding("info", f"{text}; what they are for is slower or missing", _UPGRADE)


def companions(subject: Subject) -> Iterator[Finding]:
    """Say the same of the packages beside torch: their own kernels."""
    found = verdicts(subject)
    served = {one.gfx for one in found if one.project == "torch" and one.served.yes}
    for verdict in found:
        if verdict.project == "torch" or verdict.gfx not in served:
            continue
        said = f"kernels of {verdict.project} for {verdict.gfx}: {verdict.served.said(verdict.gfx)}"
        files = several([one.name for one in verdict.files], 2)
        if verdict.served.yes:
            yield Finding("ok", f"{said} ({files})")
        else:
            yield Finding("warning", f"{said} ({files})", subject.install(verdict.project))
    for name in _WITH_CODE:
        package = subject.installed.get(name)
        for code in code_of(package) if package else ():
            if code.fault:
                yield Finding("error", f"damaged: {code.fault}", subject.install(name))


def libraries(subject: Subject) -> Iterator[Finding]:
    """See that ROCm's libraries have files for each kind of GPU; they are loaded by name."""
    torch = subject.installed.torch
    if torch is None or torch.kind != "rocm":
        return
    files = library_files(library_roots(subject.installed))
    for library in dict.fromkeys(one.library for one in files):
        those = [one for one in files if one.library == library]
        targets = sorted_targets(target for one in those for target in one.targets)
        for gfx in _kinds(subject):
            if serve(targets, gfx).yes:
                yield Finding("ok", f"{library} has files for {gfx} ({those[0].folder})")
                continue
            severity, consequence = _NEEDED[library]
            text = f"{library} has no files for {gfx} in {those[0].folder}: {consequence}"
            yield Finding(
                "warning" if severity == "warning" else "info", text, _device_libraries(subject, gfx)
            )


def _torch_verdicts(subject: Subject, torch: Package, codes: list[InstalledCode]) -> Iterator[Finding]:
    targets = sorted_targets(target for code in codes for target in code.targets)
    has = several(list(targets), 12) or "nothing"
    if not targets and codes[0].missing:
        has = f"{codes[0].missing[0]}, which no installed package brought"
    if not _kinds(subject):
        yield Finding("ok", f"torch {torch.version} has kernels for {has} ({codes[0].path})")
    served = {gfx: serve(targets, gfx, xnack=subject.xnack) for gfx in _kinds(subject)}
    line = visible_line(tuple((gpu, gpu.gfx is not None and served[gpu.gfx].yes) for gpu in subject.amd))
    for gfx, how in served.items():
        text, file = f"kernels of torch for {gfx}: {how.said(gfx)}", _file_for(gfx, codes)
        if how.yes:
            yield Finding("ok", f"{text} ({file})")
            continue
        fix = _setting(how.by, subject) if how.how == "setting" else _fix(subject, torch, codes, gfx, targets)
        said = f"{text} ({file})" if how.how == "setting" else f"{text}: {file} has {has}"
        if not line:
            yield Finding("error", said, fix)
        else:
            inside = all(gpu.integrated for gpu in subject.amd if gpu.gfx == gfx)
            text = f"{said}; programs must leave that GPU alone"
            yield Finding("info" if inside else "warning", text, f"export {line}   # or: {fix}")


def _file_for(gfx: str, codes: list[InstalledCode]) -> Path:
    """Return the archive for a GPU where there is one, else the library."""
    archives = [one for code in codes for one in code.archives]
    return next((one for one in archives if gfx in one.name), codes[0].path)


def _fix(
    subject: Subject, torch: Package, codes: list[InstalledCode], gfx: str, targets: tuple[str, ...]
) -> str:
    if any(code.missing or code.archives for code in codes):
        return subject.rocm_pip(f"torch[device-{gfx}]=={torch.version}", torch.version)
    known = [one for one in overrides().cards.get(gfx, ()) if not one.risky]
    near = next((one for one in known if serve(targets, one.target).yes), None)
    posing = f"   # or, untested: export {VARIABLE}={near.version}" if near else ""
    return subject.install("torch", "torchvision", "torchaudio") + posing


def _setting(target: str, subject: Subject) -> str:
    if "xnack+" in target:
        return "export HSA_XNACK=1"
    if "xnack-" in target and subject.xnack:
        return "unset HSA_XNACK"
    return "install a torch whose code leaves this setting open: " + subject.install("torch")


def _device_libraries(subject: Subject, gfx: str) -> str:
    version = subject.installed.rocm_version
    if version:
        return subject.rocm_pip(f"rocm-sdk-device-{gfx}=={version}", version)
    return subject.install("torch")


def _readable(package: Package) -> list[InstalledCode]:
    return [code for code in code_of(package) if not code.fault]


def _kinds(subject: Subject) -> list[str]:
    return list(dict.fromkeys(gpu.gfx for gpu in subject.amd if gpu.gfx))
