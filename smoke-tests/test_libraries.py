"""One test a ROCm library of the compatibility data: the API that its ``probe`` names, as its setting says.

On the CPU the same call is calculated by what the CPU has: that proves the test, not the library. What a
target is built without is skipped with the data's reason, and so is what torch does not call.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exact import assert_close, both
from ranks import check_collectives


@pytest.mark.limit(600)
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
    words.append(f"off by {off:.1e} of the largest value" if off else "exact")
    said("; ".join(one for one in (*words, _loaded(library_row["file"])) if one))


def _loaded(file: str) -> str:
    """Say which file of the library this process has loaded (Linux)."""
    if not file or sys.platform != "linux":
        return ""
    mapped = {line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()}
    found = sorted(one for one in mapped if one.rpartition("/")[2].startswith(file))
    return f"loaded {' '.join(found)}" if found else f"{file} is not loaded"


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
    _blas(torch, device, "ck")
    (a, a64), (b, b64) = (
        both(torch, device, 3, *shape, dtype="bfloat16", seed=seed)  # it has no bmm of other types
        for seed, shape in enumerate(((64, 128), (128, 96)))
    )
    return assert_close(torch, torch.bmm(a, b), torch.bmm(a64, b64), "bmm")


def _hipblas(torch: Any, device: str) -> float:
    _blas(torch, device, "cublas")
    (m, m64), (v, v64) = both(torch, device, 129, 257), both(torch, device, 257, seed=1)
    return assert_close(torch, torch.mv(m, v), torch.mv(m64, v64), "mv")


def _hipblaslt(torch: Any, device: str) -> float:
    _blas(torch, device, "cublaslt")
    (a, a64), (b, b64) = (
        both(torch, device, 128, 256, dtype="bfloat16"),
        both(torch, device, 256, 64, dtype="bfloat16", seed=1),
    )
    bias, bias64 = both(torch, device, 64, dtype="bfloat16", seed=2)
    return assert_close(torch, torch.addmm(bias, a, b), torch.addmm(bias64, a64, b64), "addmm")


def _hipcub(torch: Any, device: str) -> float:
    values, exact = both(torch, device, 2, 10_007)
    got, wanted = torch.sort(values), torch.sort(exact)
    assert torch.equal(got.values.cpu().double(), wanted.values), "sort is wrong"
    assert torch.equal(values.gather(1, got.indices), got.values), "the indices of sort are wrong"
    return 0.0


def _hipfft(torch: Any, device: str) -> float:
    values, exact = both(torch, device, 3, 1000)
    off = assert_close(torch, torch.fft.rfft(values), torch.fft.rfft(exact), "rfft")
    return max(off, assert_close(torch, torch.fft.irfft(torch.fft.rfft(values)), exact, "irfft of rfft"))


def _hiprand(torch: Any, device: str) -> float:
    drawn = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        drawn.append(torch.randn(100_000, device=device))
    assert torch.equal(drawn[0], drawn[1]), "the same seed gives other numbers"
    assert not torch.equal(drawn[0], drawn[2]), "another seed gives the same numbers"
    mean, spread = float(drawn[0].mean()), float(drawn[0].std())
    assert abs(mean) < 0.02, f"the mean is {mean}"  # six times what chance gives
    assert abs(spread - 1) < 0.015, f"the standard deviation is {spread}"
    return 0.0


def _hipsolver(torch: Any, device: str) -> float:
    if device != "cpu":
        torch.backends.cuda.preferred_linalg_library("cusolver")
    values, exact = both(torch, device, 40, 30)
    u, s, vh = torch.linalg.svd(values, full_matrices=False)
    off = assert_close(torch, s, torch.linalg.svdvals(exact), "singular values")
    return max(off, assert_close(torch, u @ torch.diag(s) @ vh, exact, "U S V"))


def _hipsparse(torch: Any, device: str) -> float:
    dense, exact = both(torch, device, 64, 80)
    dense, exact = (one.where(one > 0.5, torch.zeros_like(one)) for one in (dense, exact))
    right, right64 = both(torch, device, 80, 24, seed=1)
    return assert_close(torch, torch.sparse.mm(dense.to_sparse_csr(), right), exact @ right64, "sparse.mm")


def _hipsparselt(torch: Any, device: str) -> float:
    _needs_gpu(device, "torch has 2:4 sparsity for GPUs alone")
    if not torch.backends.cusparselt.is_available():
        pytest.skip("this torch is built without hipSPARSELt; it is with it by default since ROCm 7.12")
    values, exact = both(torch, device, 128, 256, dtype="float16")
    kept = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64).repeat(64)
    right, right64 = both(torch, device, 256, 128, dtype="float16", seed=1)
    compressed = torch._cslt_compress(values * kept.to(values))
    return assert_close(
        torch, torch._cslt_sparse_mm(compressed, right), (exact * kept) @ right64, "2:4 sparse product"
    )


def _miopen(torch: Any, device: str) -> float:
    assert torch.backends.cudnn.enabled
    values, exact = both(torch, device, 4, 8, 28, 28)
    weights, weights64 = both(torch, device, 16, 8, 3, 3, seed=1)
    convolve = torch.nn.functional.conv2d
    return assert_close(
        torch, convolve(values, weights, padding=1), convolve(exact, weights64, padding=1), "conv2d"
    )


def _rccl(torch: Any, device: str) -> float:
    """One rank, on the GPU that is there; two of them: test_distributed.py."""
    _needs_gpu(device, "RCCL is for GPUs; ranks with gloo: test_distributed.py")
    if sys.platform == "win32":
        pytest.skip("RCCL is for Linux alone")
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    assert distributed.is_nccl_available(), "torch was built without RCCL"
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        check_collectives(torch, device, 0, 1)
    finally:
        distributed.destroy_process_group()
    return 0.0


def _rocjpeg(torch: Any, device: str) -> float:
    _needs_gpu(device, "JPEGs by the CPU: test_companions.py")
    try:
        importlib.metadata.version("torchvision")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("torchvision is not installed")
    io = importlib.import_module("torchvision.io")
    picture = (torch.arange(64 * 96) % 96).reshape(1, 64, 96).repeat(3, 1, 1).to(torch.uint8)
    encoded = io.encode_jpeg(picture, quality=95)
    try:
        got = io.decode_jpeg(encoded, device=device)
    except RuntimeError as refused:
        if "not compiled with" not in str(refused):
            raise
        pytest.skip(f"torchvision decodes on the CPU alone: {str(refused).partition(chr(10))[0]}")
    assert got.device.type == "cuda"
    assert int((got.cpu().int() - picture.int()).abs().max()) < 16, "the picture is another one"
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
    "hipFFT": _hipfft,
    "hipRAND": _hiprand,
    "hipSOLVER": _hipsolver,
    "hipSPARSE": _hipsparse,
    "hipSPARSELt": _hipsparselt,
    "MIOpen": _miopen,
    "RCCL": _rccl,
    "rocJPEG": _rocjpeg,
    "rocThrust": _rocthrust,
}
