"""A small set of real wheels in which nothing is wrong: two Pythons, ROCm's packages, a split torchaudio."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

from audit_wheels import Draft, library, torch_draft
from binary_writer import code_object, kpack, kpack_reference

from rocm_wheels.audit import audited_set, audited_wheel, verify

ROCM = "7.1.0"
TORCH = f"2.9.0+rocm{ROCM}"
TARGETS = ("gfx942", "gfx1100")
PYTHONS = ("311", "312")


def set_drafts() -> dict[str, Draft]:
    """Return the wheels of a set, by a short name: ``torch-311``, ``rocm``, ``rocm-sdk-device-gfx942``."""
    drafts = {
        f"{draft.distribution.replace('_', '-')}-{python}": draft
        for python in PYTHONS
        for draft in _draft_projects(python)
    }
    for draft in _draft_rocm():
        drafts[draft.distribution.replace("_", "-")] = draft
    return drafts


def _draft_projects(python: str) -> Iterable[Draft]:
    tag = f"cp{python}-cp{python}-linux_x86_64"
    torch = torch_draft()
    torch.tag = tag
    torch.members["torch/lib/libaotriton_v2.so.0.11.0"] = library(*TARGETS)
    yield torch
    triton = {"triton/__init__.py": b"", "triton/_C/libtriton.so": library()}
    yield Draft("triton", "3.5.0", tag, members=triton)
    vision = {"torchvision/__init__.py": b"", "torchvision/_C.so": library(*TARGETS)}
    yield Draft("torchvision", f"0.24.0+rocm{ROCM}", tag, members=vision, requires=[f"torch=={TORCH}"])
    yield from split_audio(tag)


def split_audio(tag: str) -> list[Draft]:
    """Return a torchaudio whose device code is in device wheels, as ROCm's splitter writes them."""
    version = f"2.9.0+rocm{ROCM}"
    reference = kpack_reference("../.kpack/torchaudio_@GFXARCH@.kpack", kernel_name="lib/_audio.so")
    host = Draft("torchaudio", version, tag, requires=[f"torch=={TORCH}"])
    host.members = {
        "torchaudio/__init__.py": b"# import says: install torchaudio[device-gfx942]\n",
        "torchaudio/lib/_audio.so": library(marker=reference),
    }
    parts = []
    for target in TARGETS:
        host.fields.append(f"Provides-Extra: device-{target}")
        host.requires.append(f'amd-torchaudio-device-{target}=={version}; extra == "device-{target}"')
        code = {("lib/_audio.so#0", target): code_object(target)}
        members = {f"torchaudio/.kpack/torchaudio_{target}.kpack": kpack(code)}
        requires = [f"torchaudio=={version}", f"rocm-sdk-device-{target}=={ROCM}"]
        parts.append(
            Draft(f"amd_torchaudio_device_{target}", version, tag, members=members, requires=requires)
        )
    return [host, *parts]


def _draft_rocm() -> Iterable[Draft]:
    platform = "py3-none-linux_x86_64"
    rocm = Draft("rocm", ROCM, "py3-none-any", members={"rocm_sdk/__init__.py": b""})
    extras = {"libraries": "rocm-sdk-libraries", **{f"device-{t}": f"rocm-sdk-device-{t}" for t in TARGETS}}
    rocm.fields = [f"Provides-Extra: {extra}" for extra in extras]
    rocm.requires = [f"rocm-sdk-core=={ROCM}"]
    rocm.requires += [f'{package}=={ROCM}; extra == "{extra}"' for extra, package in extras.items()]
    yield rocm
    yield Draft("rocm_sdk_core", ROCM, platform, members={"core.txt": b""})
    yield Draft("rocm_sdk_libraries", ROCM, platform, members={"libraries.txt": b""})
    for target in TARGETS:
        requires = [f"rocm-sdk-libraries=={ROCM}"]
        members = {f"{target}.txt": b""}
        yield Draft(f"rocm_sdk_device_{target}", ROCM, platform, members=members, requires=requires)


def write_set(drafts: dict[str, Draft], folder: Path) -> list[Path]:
    """Write wheels into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [draft.write(folder) for draft in drafts.values()]


def audit_set(drafts: dict[str, Draft], folder: Path, **facts: object) -> audited_set.SetReport:
    """Return what the checks of sets say; ``facts`` are those of ``SetFiles``."""
    wheels = tuple(write_set(copy.deepcopy(drafts), folder))
    files = audited_set.SetFiles(str(folder), "folder", wheels, **facts)  # type: ignore[arg-type]
    expected = {
        wheel: audited_wheel.WheelExpectation(None, "windows" if "-win" in wheel.name else "linux")
        for wheel in wheels
    }
    return verify.check_set(audited_set.AuditedSet(files, verify.read_wheels(expected, together=True).wheels))
