"""Layers of neural networks, forward and backward, against the same layer in float64 on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from exact import as_far_as_the_cpu_can, assert_close, both

pytestmark = pytest.mark.limit(600)  # MIOpen looks for its fastest kernels when it first sees a shape

_LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "linear": (lambda nn: nn.Linear(96, 40), (17, 96)),
    "conv1d": (lambda nn: nn.Conv1d(6, 12, 5, padding=2), (3, 6, 50)),
    "conv2d": (lambda nn: nn.Conv2d(8, 16, 3, padding=1), (4, 8, 28, 28)),
    "conv2d-1x1": (lambda nn: nn.Conv2d(8, 16, 1), (2, 8, 14, 14)),
    "conv2d-grouped": (lambda nn: nn.Conv2d(8, 16, 3, stride=2, dilation=2, groups=4), (2, 8, 29, 31)),
    "conv3d": (lambda nn: nn.Conv3d(3, 4, 3), (2, 3, 8, 9, 10)),
    "conv_transpose2d": (lambda nn: nn.ConvTranspose2d(6, 3, 4, stride=2, padding=1), (2, 6, 9, 9)),
    "batch_norm": (lambda nn: nn.BatchNorm2d(5), (4, 5, 12, 12)),
    "layer_norm": (lambda nn: nn.LayerNorm(65), (9, 65)),
    "max_pool": (lambda nn: nn.MaxPool2d(3, 2, 1), (2, 3, 21, 21)),
    "lstm": (lambda nn: nn.LSTM(10, 16, 2, batch_first=True), (3, 12, 10)),
    "gru": (lambda nn: nn.GRU(10, 16, batch_first=True), (3, 12, 10)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layer", _LAYERS)
def test_layer(torch: Any, device: str, layer: str, dtype: str, said: Any) -> None:
    """The result, the gradient of the input and those of all weights."""
    make, shape = _LAYERS[layer]
    torch.manual_seed(3)
    rounded = make(torch.nn).to(getattr(torch, dtype))
    exact = copy.deepcopy(rounded).double()
    x, x64 = both(torch, device, *shape, dtype=dtype)
    with as_far_as_the_cpu_can(device):
        off = _compare(torch, (rounded.to(device), x), (exact, x64))
    said(f"off by {off:.1e} of the largest value")


@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_channels_last(
    torch: Any, device: str, dtype: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convolution on NHWC data gives the same, and stays NHWC.

    On ROCm only when a variable asks for it (ATen/native/ConvUtils.h); else torch may turn it into NCHW.
    """
    monkeypatch.delenv("PYTORCH_MIOPEN_SUGGEST_NHWC", raising=False)
    if asked:
        monkeypatch.setenv("PYTORCH_MIOPEN_SUGGEST_NHWC", "1")
    torch.manual_seed(3)
    rounded = torch.nn.Conv2d(8, 16, 3, padding=1).to(getattr(torch, dtype))
    exact = copy.deepcopy(rounded).double()
    layer = rounded.to(device).to(memory_format=torch.channels_last)
    x, x64 = both(torch, device, 4, 8, 28, 28, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last)
    if asked or device == "cpu":
        assert layer(x).is_contiguous(memory_format=torch.channels_last)
    _compare(torch, (layer, x), (exact, x64))


def test_autograd_by_finite_differences(torch: Any, device: str) -> None:
    """Gradients are those of the function that is calculated."""

    def function(x: Any, w: Any) -> Any:
        return torch.tanh(x @ w).pow(2).sum(-1) * torch.sigmoid(x.sum(-1))

    x, _ = both(torch, device, 4, 5, dtype="float64")
    w, _ = both(torch, device, 5, 3, dtype="float64", seed=1)
    # sums may be added in another order the next time: 1e-10 is far below what is compared
    assert torch.autograd.gradcheck(function, (x.requires_grad_(), w.requires_grad_()), nondet_tol=1e-10)
    assert torch.autograd.gradgradcheck(function, (x, w), nondet_tol=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision_learns(torch: Any, device: str, dtype: str, said: Any) -> None:
    """Autocast with a gradient scaler: a small network fits a line, in weights that stay float32."""
    kind = device.partition(":")[0]
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(kind, enabled=dtype == "float16")
    x, x64 = both(torch, device, 256, 16)
    wanted = x.sum(-1, keepdim=True) / 4
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=getattr(torch, dtype)):
            found = network(x)
            assert found.dtype == getattr(torch, dtype)
            loss = torch.nn.functional.mse_loss(found.float(), wanted)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss))
    assert all(one.dtype == torch.float32 for one in network.parameters())
    assert losses[-1] < losses[0] / 4, f"the loss went from {losses[0]:.3g} to {losses[-1]:.3g}"
    with torch.autocast(kind, dtype=getattr(torch, dtype)):
        found = network(x)
    assert_close(torch, found, copy.deepcopy(network).cpu().double()(x64), "what it learned")
    said(f"loss {losses[0]:.3g} to {losses[-1]:.3g}")


def _compare(torch: Any, given: tuple[Any, Any], wanted: tuple[Any, Any]) -> float:
    (layer, x), (exact, x64) = given, wanted
    results = []
    for module, values in (given, wanted):
        values.requires_grad_()
        result = module(values)
        results.append(result[0] if isinstance(result, tuple) else result)
    got, expected = results
    worst = assert_close(torch, got, expected, "the result")
    weight, weight64 = both(torch, str(x.device), *got.shape, dtype=str(got.dtype)[6:], seed=9)
    (got * weight).sum().backward()
    (expected * weight64).sum().backward()
    # sums of thousands of rounded products: gradients of weights may be off by twice as much
    for name, one, one64 in _gradients(layer, x, exact, x64):
        allowed = 2 * {"float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}[str(one.dtype)[6:]]
        worst = max(worst, assert_close(torch, one, one64, f"the gradient of {name}", allowed=allowed))
    return worst


def _gradients(layer: Any, x: Any, exact: Any, x64: Any) -> list[tuple[str, Any, Any]]:
    named = zip(layer.named_parameters(), exact.parameters(), strict=True)
    return [("the input", x.grad, x64.grad), *((name, one.grad, one64.grad) for (name, one), one64 in named)]
