"""What the smoke tests make of a torch that lacks something, or takes another library than it was told."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SMOKE_TESTS = Path(__file__).resolve().parents[2] / "smoke-tests"
CK = "Cannot set preferred blas backend to CK since following conditions are not true: built with CK: 0"


@pytest.fixture(autouse=True, scope="module")
def _marks(request: pytest.FixtureRequest) -> None:
    for line in (
        "gpu: of the smoke tests",
        "quick: likewise",
        "dynamo: likewise",
        "limit(seconds): likewise",
    ):
        request.config.addinivalue_line("markers", line)


def module(name: str) -> Any:
    """A file of the smoke tests; none of them imports torch by itself."""
    sys.path.insert(0, str(SMOKE_TESTS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SMOKE_TESTS))


@pytest.mark.parametrize(
    ("target", "generic"),
    [
        ("gfx942", ["gfx9-4-generic"]),
        ("gfx906", ["gfx9-generic"]),
        ("gfx90a", []),
        ("gfx1030", ["gfx10-3-generic"]),
        ("gfx1100", ["gfx11-0-generic", "gfx11-generic"]),
    ],
)
def test_generic_targets_are_those_of_the_gpu(target: str, generic: list[str]) -> None:
    assert module("test_versions")._generic(target) == generic


def torch_with(taken: str = "", refuses: str = "") -> Any:
    """A torch that is told a library for products, and takes another one or refuses."""

    def preferred(name: str | None = None) -> str:
        if name is not None and refuses:
            raise RuntimeError(refuses)
        return f"_BlasBackend.{taken}"

    return SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace(preferred_blas_library=preferred)))


def test_gpus_are_listed_of_whatever_torch_is_there() -> None:
    list_gpus = module("probe").list_gpus
    assert list_gpus(SimpleNamespace()) == []
    properties = SimpleNamespace(name="Arc", total_memory=1)
    xpu = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, get_device_properties=lambda _: properties
    )
    listed = list_gpus(SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False), xpu=xpu))
    assert [(gpu["device"], gpu["arch"], gpu["memory"]) for gpu in listed] == [
        ("xpu:0", "", 1),
        ("xpu:1", "", 1),
    ]


def test_no_library_is_tested_in_the_place_of_another() -> None:
    blas = module("test_libraries")._blas
    with pytest.raises(pytest.skip.Exception, match=r"it takes _BlasBackend\.Cublas instead of cublaslt"):
        blas(torch_with("Cublas"), "cuda:0", "cublaslt")
    with pytest.raises(pytest.skip.Exception, match="conditions are not true"):
        blas(torch_with(refuses=CK), "cuda:0", "ck")
    with pytest.raises(RuntimeError, match="has not been compiled with cuBLASLt"):
        blas(torch_with(refuses="PyTorch has not been compiled with cuBLASLt"), "cuda:0", "cublaslt")
    blas(torch_with("Cublaslt"), "cuda:0", "cublaslt")
    blas(None, "cpu", "ck")


def test_a_torch_without_rccl_fails() -> None:
    here = SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: False)
    with pytest.raises(AssertionError, match="built without RCCL"):
        module("test_libraries")._rccl(SimpleNamespace(distributed=here), "cuda:0")
    given = SimpleNamespace(data={"libraries": [{"id": "RCCL", "not_here": "RCCL is not built for gfx1103"}]})
    built_in = module("test_distributed").test_rccl_is_built_in
    with pytest.raises(pytest.skip.Exception, match="not built for gfx1103"):
        built_in(SimpleNamespace(distributed=here), "cuda:0", given, print)
    with pytest.raises(AssertionError, match="built without RCCL"):
        built_in(SimpleNamespace(distributed=here), "cuda:0", SimpleNamespace(data={}), print)


def test_what_only_runs_torch_is_no_rocm_to_compile_with(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = module("test_compile")
    versions: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in versions:
            raise tests.importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(tests.importlib.metadata, "version", version)
    for home in (None, "/env/site-packages/_rocm_sdk_core"):
        with pytest.raises(pytest.skip.Exception, match="no ROCm with a compiler"):
            tests._require_rocm(SimpleNamespace(ROCM_HOME=home))
    tests._require_rocm(SimpleNamespace(ROCM_HOME="/opt/rocm"))
    versions["rocm-sdk-devel"] = "7.1"
    tests._require_rocm(SimpleNamespace(ROCM_HOME="/env/site-packages/_rocm_sdk_core"))
    with pytest.raises(AssertionError, match=r"rocm-sdk-devel 7\.1 is installed, and torch finds no ROCm"):
        tests._require_rocm(SimpleNamespace(ROCM_HOME=None))


@pytest.mark.parametrize(
    ("printed", "code", "fault"),
    [
        ('WARNING: not in the group render\n[{"gpu": 0, "bdf": "0000:C1:00.0"}]', 0, ""),
        ('{"gpu_data": [{"gpu": 0, "bdf": "0000:c1:00.0"}]}', 0, ""),
        ('[{"gpu": 0, "bdf": "0000:05:00.0"}]', 0, "is none of"),
        ("[]", 0, "torch sees 1"),
        ("no driver", 1, "amd-smi list: no driver"),
    ],
)
def test_amd_smi_must_see_the_gpu_that_torch_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, code: int, fault: str
) -> None:
    program = tmp_path / "amd-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\nexit {code}\n")
    program.chmod(0o755)
    tests = module("test_sdk")
    monkeypatch.setattr(tests.sys, "executable", str(tmp_path / "python"))
    bus = SimpleNamespace(pci_domain_id=0, pci_bus_id=0xC1, pci_device_id=0)
    cuda = SimpleNamespace(device_count=lambda: 1, get_device_properties=lambda _: bus)
    torch = SimpleNamespace(version=SimpleNamespace(hip="7.2"), cuda=cuda)
    said: list[str] = []
    if not fault:
        tests.test_amd_smi(torch, "cuda:0", said.append)
        assert said == ["1 on the bus"]
        return
    with pytest.raises(AssertionError, match=fault):
        tests.test_amd_smi(torch, "cuda:0", said.append)
