"""torchvision, torchaudio, apex, and the libraries of the PyTorch family that are installed."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
from exact import assert_close, both, compare, require_installed


def _module(name: str, project: str = "") -> Any:
    """Import a module; skip where its project is not installed, fail where it is and does not load."""
    require_installed(project or name.partition(".")[0])
    return importlib.import_module(name)


@pytest.mark.quick
def test_torchvision_nms(torch: Any, device: str) -> None:
    """Its own compiled operator keeps the right boxes."""
    torchvision = _module("torchvision")
    boxes = [[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0], [0.0, 0.0, 2.0, 2.0]]
    scores = torch.tensor([0.9, 0.8, 0.7, 0.95], device=device)
    kept = torchvision.ops.nms(torch.tensor(boxes, device=device), scores, 0.5)
    assert kept.tolist() == [3, 0, 2]


@pytest.mark.quick
def test_numpy_and_back(torch: Any, said: Any) -> None:
    """Numbers do not change on the way through numpy."""
    numpy = _module("numpy")
    numbers = numpy.arange(6).reshape(2, 3)
    assert bool((torch.from_numpy(numbers).numpy() == numbers).all())
    said(f"numpy {numpy.__version__}")


def test_torchvision_roi_align(torch: Any, device: str) -> None:
    """Another operator of its own, forward and backward."""
    torchvision = _module("torchvision")
    boxes = torch.tensor([[0.0, 2.0, 3.0, 11.0, 12.0]])

    def align(picture: Any) -> Any:
        return torchvision.ops.roi_align(picture, boxes.to(picture), 4)

    compare(torch, device, align, (1, 2, 16, 16), learns=["the picture"])


def test_torchvision_decode_jpeg(torch: Any) -> None:
    """A picture survives JPEG on the CPU; on GPUs that is rocJPEG's, in test_libraries.py."""
    assert decode_jpeg(torch, "cpu").device.type == "cpu"


def decode_jpeg(torch: Any, device: str) -> Any:
    """Have torchvision decode on a device what it has encoded, and return that; it may lose a little."""
    io = _module("torchvision.io", "torchvision")
    picture = (torch.arange(64 * 96) % 96).reshape(1, 64, 96).repeat(3, 1, 1).to(torch.uint8)
    decoded = io.decode_jpeg(io.encode_jpeg(picture, quality=95), device=device)
    assert tuple(decoded.shape) == (3, 64, 96)
    assert int((decoded.cpu().int() - picture.int()).abs().max()) < 16, "the picture is another one"
    return decoded


def test_torchaudio_spectrogram(torch: Any, device: str) -> None:
    """A tone is where it belongs."""
    transforms = _module("torchaudio.transforms", "torchaudio")
    rate, tone = 16_000, 2_000
    wave = torch.sin(torch.arange(rate) * (2 * math.pi * tone / rate)).to(device)
    power = transforms.Spectrogram(n_fft=512).to(device)(wave)
    assert int(power.mean(-1).argmax()) == tone * 512 // rate


def test_torchaudio_resample(torch: Any, device: str) -> None:
    """Half the rate of a slow tone is that tone."""
    functional = _module("torchaudio.functional", "torchaudio")
    wave = torch.sin(torch.arange(16_000) * (2 * math.pi * 100 / 16_000)).to(device)
    half = functional.resample(wave, 16_000, 8_000).cpu()[100:-100]
    assert float((half - wave.cpu()[::2][100:-100]).abs().max()) < 0.01


@pytest.mark.gpu
def test_apex_fused_layer_norm(torch: Any, device: str) -> None:
    """A kernel of apex against torch's own on the CPU, forward and backward."""
    normalization = _module("apex.normalization", "apex")
    layer = normalization.FusedLayerNorm(64).to(device)

    def like(values: Any) -> Any:
        return torch.nn.functional.layer_norm(values, (64,))

    compare(torch, device, layer, (32, 64), like=like, learns=["the input"])


@pytest.mark.gpu
def test_apex_fused_adam(torch: Any, device: str) -> None:
    """A step of apex's optimizer, a kernel over many tensors at once, against torch's own on the CPU."""
    optimizers = _module("apex.optimizers", "apex")
    (values, exact), (gradient, gradient64) = both(torch, device, 257), both(torch, device, 257, seed=1)
    for one, slope, make in (
        (values, gradient, lambda it: optimizers.FusedAdam(it, lr=0.1, weight_decay=0.0)),
        (exact, gradient64, lambda it: torch.optim.Adam(it, lr=0.1)),
    ):
        one.requires_grad_()
        one.grad = slope
        make([one]).step()
    assert_close(torch, values, exact, "the weights after a step")


@pytest.mark.quick
@pytest.mark.limit(300)
def test_domain_library(domain_row: dict[str, Any], said: Any) -> None:
    """A library of the PyTorch family imports beside this torch, and has what it is used by."""
    project = domain_row["id"]
    version = require_installed(project)
    module, _, name = domain_row["probe"].rpartition(".")
    assert hasattr(importlib.import_module(module), name), f"{project} {version} has no {domain_row['probe']}"
    said("; ".join([f"{project} {version} ({domain_row['state']})", *domain_row["obstacles"]]))
