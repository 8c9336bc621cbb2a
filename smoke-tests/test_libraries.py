"""One test a ROCm library of the compatibility data: the API that its ``probe`` names, as its setting says.

On the CPU the same call is calculated by what the CPU has: that proves the test, not the library. What a
target is built without is skipped with the data's reason, and so is what torch does not call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exact import both, compare, describe, list_loaded_files
from ranks import check_one_rank
from test_companions import decode_jpeg
from test_math import compare_fft, compare_sparse_product
from test_math import test_random as check_random


@pytest.fixture
def own_choice(torch: Any, device: str) -> Iterator[None]:
    """Give torch its own choice of libraries back after a test."""
    cuda = torch.backends.cuda
    before = None if device == "cpu" else (cuda.preferred_blas_library(), cuda.preferred_linalg_library())
    yield
    if before is not None:
        cuda.preferred_blas_library(before[0])
        cuda.preferred_linalg_library(before[1])


@pytest.mark.limit(600)
@pytest.mark.usefixtures("own_choice")
def test_probe(torch: Any, device: str, library_row: dict[str, Any], said: Any) -> None:
    """Call a library by torch, and compare."""
    name = library_row["id"]
    if not library_row["api"]:
        pytest.skip(f"{name} ({library_row['use']}): torch does not call it, so no API of torch can test it")
    if device != "cpu" and library_row["not_here"]:
        pytest.skip(library_row["not_here"])
    probe = PROBES.get(name)
    assert probe is not None, f"no test is written for {name}: {library_row['api']}"
    off = probe(torch, device)
    words = [library_row["api"], library_row["setting"] if device != "cpu" else ""]
    words.append(describe(off) if off else "exact")
    said("; ".join(filter(None, [*words, _loaded(library_row["file"])])))


def _loaded(file: str) -> str:
    """Say which file of the library this process has loaded (Linux)."""
    files = list_loaded_files()
    if not file or not files:
        return ""
    loaded = [path for path in files if Path(path).name.startswith(file)]
    return f"loaded {' '.join(loaded)}" if loaded else f"{file} is not loaded"


def _needs_gpu(device: str, why: str) -> None:
    if device == "cpu":
        pytest.skip(why)


def _blas(torch: Any, device: str, name: str) -> None:
    """Have torch call a library for products, and skip where it does not: another one would be tested."""
    if device == "cpu":
        return
    try:
        torch.backends.cuda.preferred_blas_library(name)
    except RuntimeError as refused:
        words = str(refused).partition("\n")[0]
        if name != "ck" or "Cannot set preferred" not in words:
            raise  # a build without hipBLASLt
        pytest.skip(words)  # for a few targets, and seldom compiled in
    taken = torch.backends.cuda.preferred_blas_library()
    if str(taken).rpartition(".")[2].lower() != name:
        pytest.skip(f"torch does not call it on this GPU: it takes {taken} instead of {name}")


def _composable_kernel(torch: Any, device: str) -> float:
    _blas(torch, device, "ck")  # it has no bmm of other types
    return compare(torch, device, torch.bmm, (3, 64, 128), (3, 128, 96), dtype="bfloat16", what="bmm")


def _hipblas(torch: Any, device: str) -> float:
    _blas(torch, device, "cublas")
    return compare(torch, device, torch.mv, (129, 257), (257,), what="mv")


def _hipblaslt(torch: Any, device: str) -> float:
    _blas(torch, device, "cublaslt")
    shapes = (64,), (128, 256), (256, 64)
    return compare(torch, device, torch.addmm, *shapes, dtype="bfloat16", what="addmm")


def _hipcub(torch: Any, device: str) -> float:
    values, exact = both(torch, device, 2, 10_007)
    got, wanted = torch.sort(values), torch.sort(exact)
    assert torch.equal(got.values.cpu().double(), wanted.values), "sort is wrong"
    assert torch.equal(values.gather(1, got.indices), got.values), "the indices of sort are wrong"
    return 0.0


def _hiprand(torch: Any, device: str) -> float:
    check_random(torch, device)
    return 0.0


def _hipsolver(torch: Any, device: str) -> float:
    if device != "cpu":
        torch.backends.cuda.preferred_linalg_library("cusolver")

    def multiply(values: Any) -> Any:
        u, s, vh = torch.linalg.svd(values, full_matrices=False)
        return u @ torch.diag(s) @ vh

    def find_singular(values: Any) -> Any:
        return torch.linalg.svd(values, full_matrices=False).S

    off = compare(torch, device, find_singular, (40, 30), like=torch.linalg.svdvals, what="singular values")
    return max(off, compare(torch, device, multiply, (40, 30), like=lambda values: values, what="U S V"))


def _hipsparselt(torch: Any, device: str) -> float:
    _needs_gpu(device, "torch has 2:4 sparsity for GPUs alone")
    if not torch.backends.cusparselt.is_available():
        pytest.skip("this torch is built without hipSPARSELt; it is with it by default since ROCm 7.12")
    kept = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64).repeat(64)

    def multiply(values: Any, right: Any) -> Any:
        return torch._cslt_sparse_mm(torch._cslt_compress(values * kept.to(values)), right)

    def like(values: Any, right: Any) -> Any:
        return (values * kept) @ right

    return compare(torch, device, multiply, (128, 256), (256, 128), like=like, dtype="float16")


def _miopen(torch: Any, device: str) -> float:
    assert torch.backends.cudnn.enabled
    convolve = functools.partial(torch.nn.functional.conv2d, padding=1)
    return compare(torch, device, convolve, (4, 8, 28, 28), (16, 8, 3, 3), what="conv2d")


def _rccl(torch: Any, device: str) -> float:
    """One rank, on the GPU that is there; two of them: test_distributed.py."""
    _needs_gpu(device, "RCCL is for GPUs; ranks with gloo: test_distributed.py")
    check_one_rank(torch, device)
    return 0.0


def _rocjpeg(torch: Any, device: str) -> float:
    _needs_gpu(device, "JPEGs by the CPU: test_companions.py")
    try:
        assert decode_jpeg(torch, device).device.type == "cuda"
    except RuntimeError as refused:
        if "not compiled with" not in str(refused):
            raise
        pytest.skip(f"torchvision decodes on the CPU alone: {str(refused).partition(chr(10))[0]}")
    return 0.0


def _rocthrust(torch: Any, device: str) -> float:
    values = (torch.arange(10_000) // 7 % 5).to(device)
    got, counts = torch.unique_consecutive(values, return_counts=True)
    wanted, wanted_counts = torch.unique_consecutive(values.cpu(), return_counts=True)
    assert torch.equal(got.cpu(), wanted), "the runs are wrong"
    assert torch.equal(counts.cpu(), wanted_counts), "the lengths of runs are wrong"
    return 0.0


PROBES: dict[str, Callable[[Any, str], float]] = {
    "Composable Kernel": _composable_kernel,
    "hipBLAS": _hipblas,
    "hipBLASLt": _hipblaslt,
    "hipCUB": _hipcub,
    "hipFFT": lambda torch, device: compare_fft(torch, device, 1000),
    "hipRAND": _hiprand,
    "hipSOLVER": _hipsolver,
    "hipSPARSE": lambda torch, device: compare_sparse_product(torch, device, "to_sparse_csr"),
    "hipSPARSELt": _hipsparselt,
    "MIOpen": _miopen,
    "RCCL": _rccl,
    "rocJPEG": _rocjpeg,
    "rocThrust": _rocthrust,
}
