"""What is installed: does torch start, is it the build that it says, and does everything belong together."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from exact import assert_close, list_loaded_files, require_installed, uniform
from inspect_torch import Given

_BESIDE = ("torchvision", "torchaudio", "triton", "pytorch-triton-rocm", "apex")


def test_torch_starts(given: Given, said: Any) -> None:
    """torch is imported, by a process that may die of it."""
    assert not given.fault, given.fault
    said(f"torch {given.torch['version']} in {given.torch['file']}")


def test_version_is_that_of_the_installed_distribution(torch: Any) -> None:
    """Nothing on the path hides the wheel that was installed."""
    installed = importlib.metadata.distribution("torch")
    assert torch.__version__ == installed.version
    assert Path(torch.__file__).resolve() == Path(str(installed.locate_file("torch/__init__.py"))).resolve()
    assert re.fullmatch(r"[0-9a-f]{40}", torch.version.git_version), torch.version.git_version


@pytest.mark.quick
def test_build_is_of_the_kind_that_its_version_says(torch: Any, given: Given, said: Any) -> None:
    """``+rocm7.2`` is built with ROCm 7.2, ``+cpu`` and ``+cu…`` with no ROCm."""
    local = torch.__version__.partition("+")[2]
    kind = given.torch["kind"]
    said(f"a build for {kind} {given.torch['of']}".strip())
    claimed = re.match(r"(rocm|cpu|cu|xpu)", local)
    if claimed:
        meant = {"cu": "cuda"}.get(claimed[1], claimed[1])
        assert kind == meant, f"{torch.__version__} is a build for {kind}"
    of_rocm = re.match(r"rocm(?:sdk)?([0-9]+\.[0-9]+)", local)
    if of_rocm and kind == "rocm":
        said_hip = f"HIP {torch.version.hip} in {torch.__version__}"
        assert torch.version.hip.startswith(f"{of_rocm[1]}."), said_hip
    if kind == "rocm":
        assert torch.version.cuda is None


def test_compiled_for_targets(torch: Any, given: Given, said: Any) -> None:
    """A ROCm build says which targets it has kernels for."""
    _require_rocm(given)
    listed = torch._C._cuda_getArchFlags()  # get_arch_list() is empty where there is no GPU
    assert listed, "torch names no target"
    said(listed)


@pytest.mark.quick
@pytest.mark.gpu
def test_compiled_for_this_gpu(torch: Any, given: Given, device: str, said: Any) -> None:
    """Its target is among those, exactly or by a generic one."""
    assert given.gpu is not None
    _require_rocm(given)
    base = given.gpu["arch"].split(":")[0]
    listed = [one.split(":")[0] for one in torch.cuda.get_arch_list()]
    assert not {base, *_generic(base)}.isdisjoint(listed), f"{base} is not among {listed}"
    of = torch.cuda.get_device_properties(device)
    said(f"{of.name}, {of.gcnArchName}, {of.total_memory / 2**30:.1f} GiB")


def _require_rocm(given: Given) -> None:
    if given.torch["kind"] != "rocm":
        pytest.skip(f"torch {given.torch['version']} is a build for {given.torch['kind']}")


def _generic(base: str) -> list[str]:
    """Return the generic targets whose code a target runs (LLVM, "AMDGPU Generic Processors")."""
    major, minor, step = base[3:-2], base[-2], base[-1]
    if major == "9" and minor == "0":
        return [] if step in "8a" else ["gfx9-generic"]
    return [f"gfx{major}-{minor}-generic", *([f"gfx{major}-generic"] if major in ("11", "12") else [])]


def test_linear_algebra_of_the_cpu(torch: Any, said: Any) -> None:
    """LAPACK and a BLAS are linked, and they calculate."""
    shown = torch.__config__.show()
    assert torch._C.has_lapack, "torch was built without LAPACK"
    matrix = uniform(torch, 40, 30)
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    assert_close(torch, u @ torch.diag(s) @ vh, matrix, "U S V of a matrix")
    found = re.search(r"(?:BLAS_INFO|LAPACK_INFO)=(\w+)", shown)
    said(f"BLAS: {found[1]}" if found else "BLAS: not said")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.usefixtures("torch")
def test_runtime_is_loaded_with_torch(given: Given, said: Any) -> None:
    """A ROCm build has loaded HIP and its BLAS after import."""
    _require_rocm(given)
    names = [Path(path).name for path in list_loaded_files()]
    for library in ("libamdhip64.so", "libhipblas.so"):
        assert any(name.startswith(library) for name in names), f"{library} is not loaded"
    said(" ".join(name for name in names if name.startswith(("libamdhip64", "libhipblas"))))


def test_requirements_of_torch_are_met() -> None:
    """Everything that the installed torch requires is installed in such a version."""
    assert not (faults := _unmet("torch")), "; ".join(faults)


@pytest.mark.quick
@pytest.mark.parametrize("name", _BESIDE)
def test_companion_belongs_to_this_torch(name: str, said: Any) -> None:
    """A companion that was compiled for one torch is beside that one."""
    version = require_installed(name)
    assert not (faults := _unmet(name)), "; ".join(faults)
    said(f"{name} {version}")


def _unmet(name: str) -> list[str]:
    """Return the requirements of a distribution that this environment does not meet."""
    from packaging.requirements import Requirement

    faults = []
    for line in importlib.metadata.requires(name) or []:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            there = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            faults.append(f"{name} requires {wanted}, which is not installed")
            continue
        if not wanted.specifier.contains(there, prereleases=True):
            faults.append(f"{name} requires {wanted}, and {there} is installed")
    return faults
