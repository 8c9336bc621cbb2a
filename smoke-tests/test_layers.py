"""Layers of neural networks, forward and backward, against the same layer in float64 on the CPU."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
from exact import as_far_as_torch_can, assert_close, both, compare, compare_gradients, describe

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
    "group_norm": (lambda nn: nn.GroupNorm(3, 12), (4, 12, 7, 7)),
    "max_pool": (lambda nn: nn.MaxPool2d(3, 2, 1), (2, 3, 21, 21)),
    "average_pool": (lambda nn: nn.AdaptiveAvgPool2d(5), (2, 3, 20, 20)),
    "upsample": (lambda nn: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 9, 9)),
    "transformer": (  # its gradients jump with relu, where a rounded value changes its sign
        lambda nn: nn.TransformerEncoderLayer(32, 4, 64, 0.0, activation="gelu", batch_first=True),
        (3, 11, 32),
    ),
    "lstm": (lambda nn: nn.LSTM(10, 16, 2, batch_first=True), (3, 12, 10)),
    "gru": (lambda nn: nn.GRU(10, 16, batch_first=True), (3, 12, 10)),
}
_QUICK_HALVES = ("linear", "conv2d", "layer_norm", "transformer")
_ACTIVATIONS = ("relu", "gelu", "silu", "elu", "softplus", "sigmoid", "tanh", "log_softmax", "softmax")


def _list_layers() -> list[Any]:
    """Return each layer with each dtype; the quick part has those of float32, and some of 16 bits."""
    layers = []
    for layer in _LAYERS:
        for dtype in ("float32", "float16", "bfloat16"):
            quick = [pytest.mark.quick] if dtype == "float32" or layer in _QUICK_HALVES else []
            layers.append(pytest.param(layer, dtype, marks=quick, id=f"{layer}-{dtype}"))
    return layers


@pytest.mark.parametrize(("layer", "dtype"), _list_layers())
def test_layer(torch: Any, device: str, layer: str, dtype: str, said: Any) -> None:
    """The result, the gradient of the input and those of all weights."""
    make, shape = _LAYERS[layer]
    torch.manual_seed(3)
    rounded = make(torch.nn).to(getattr(torch, dtype))
    exact = copy.deepcopy(rounded).double()
    x, x64 = both(torch, device, *shape, dtype=dtype)
    with as_far_as_torch_can(device):
        off = _compare(torch, device, (rounded.to(device), x), (exact, x64))
    said(describe(off))


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
    _compare(torch, device, (layer, x), (exact, x64))


def test_autograd_by_finite_differences(torch: Any, device: str) -> None:
    """Gradients are those of the function that is calculated."""

    def function(x: Any, w: Any) -> Any:
        return torch.tanh(x @ w).pow(2).sum(-1) * torch.sigmoid(x.sum(-1))

    x, _ = both(torch, device, 4, 5, dtype="float64")
    w, _ = both(torch, device, 5, 3, dtype="float64", seed=1)
    # sums may be added in another order the next time: 1e-10 is far below what is compared
    assert torch.autograd.gradcheck(function, (x.requires_grad_(), w.requires_grad_()), nondet_tol=1e-10)
    assert torch.autograd.gradgradcheck(function, (x, w), nondet_tol=1e-10)


@pytest.mark.quick
def test_activations(torch: Any, device: str) -> None:
    """Every common one, and its gradient."""
    for seed, name in enumerate(_ACTIVATIONS):
        function = getattr(torch.nn.functional, name)
        if "softmax" in name:
            function = functools.partial(function, dim=-1)
        compare(torch, device, function, (13, 101), learns=[name], seed=seed, what=name)


@pytest.mark.quick
def test_losses(torch: Any, device: str) -> None:
    """Cross entropy by classes, mean square, and binary cross entropy."""
    functional, shape = torch.nn.functional, (50, 20)
    classes = torch.arange(50) % 20

    def cross_entropy(x: Any) -> Any:
        return functional.cross_entropy(x, classes.to(x.device))

    def binary_cross_entropy(x: Any, y: Any) -> Any:
        return functional.binary_cross_entropy_with_logits(x, (y > 0).to(x.dtype))

    compare(torch, device, cross_entropy, shape, what="cross entropy")
    compare(torch, device, functional.mse_loss, shape, shape, what="mean square")
    compare(torch, device, binary_cross_entropy, shape, shape, what="binary cross entropy")


@pytest.mark.quick
def test_embedding(torch: Any, device: str) -> None:
    """Rows of a table, some several times, and the gradient of the table."""
    rows = (torch.arange(500) * 31) % 97

    def embed(table: Any) -> Any:
        return torch.nn.functional.embedding(rows.to(table.device), table)

    compare(torch, device, embed, (97, 16), learns=["the table"], what="the rows")


@pytest.mark.quick
def test_dropout(torch: Any, device: str, said: Any) -> None:
    """It drops the share that it is told, and scales what is left."""
    torch.manual_seed(5)
    dropped = torch.nn.functional.dropout(torch.ones(1_000_000, device=device), 0.3)
    share = float((dropped == 0).float().mean())
    assert abs(share - 0.3) < 0.01, f"a dropout of 0.3 drops {share:.3f}"
    assert float((dropped[dropped != 0] - 1 / 0.7).abs().max()) < 1e-5, (
        "what is kept is not scaled by 1 / 0.7"
    )
    said(f"drops {share:.4f} of 0.3")


@pytest.mark.quick
def test_network_learns(torch: Any, device: str, said: Any) -> None:
    """A network learns the sine: optimizer, autograd and reuse of memory over 200 steps."""
    torch.manual_seed(11)
    nn = torch.nn
    network = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    x = torch.linspace(-3, 3, 256).unsqueeze(1).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(network(x), torch.sin(x))
        loss.backward()
        optimizer.step()
        return float(loss)

    said(_learn(step, 200, to=0.05))
    exact = copy.deepcopy(network).cpu().double()(x.cpu().double())
    assert_close(torch, network(x), exact, "what it learned")


@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.quick), "bfloat16"])
def test_mixed_precision_learns(torch: Any, device: str, dtype: str, said: Any) -> None:
    """Autocast with a gradient scaler: a small network fits a line, in weights that stay float32."""
    kind = device.partition(":")[0]
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(kind, enabled=dtype == "float16")
    x, x64 = both(torch, device, 256, 16)

    def calculate() -> Any:
        with torch.autocast(kind, dtype=getattr(torch, dtype)):
            return network(x)

    def step() -> float:
        optimizer.zero_grad()
        result = calculate()
        assert result.dtype == getattr(torch, dtype)
        loss = torch.nn.functional.mse_loss(result.float(), x.sum(-1, keepdim=True) / 4)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return float(loss)

    said(_learn(step, 60, to=0.25))
    assert all(values.dtype == torch.float32 for values in network.parameters())
    assert_close(torch, calculate(), copy.deepcopy(network).cpu().double()(x64), "what it learned")


def _learn(step: Callable[[], float], steps: int, *, to: float) -> str:
    """Take steps, each of which returns its loss; fail unless the last is at most this part of the first."""
    losses = [step() for _ in range(steps)]
    words = f"{losses[0]:.3g} to {losses[-1]:.3g}"
    assert losses[-1] < to * losses[0], f"the loss went from {words}"
    return f"loss {words}"


def _compare(torch: Any, device: str, rounded: tuple[Any, Any], exact: tuple[Any, Any]) -> float:
    """Compare two modules, each with its input: their results, and the gradients of inputs and weights."""
    results = []
    for module, values in (rounded, exact):
        values.requires_grad_()
        result = module(values)
        results.append(result[0] if isinstance(result, tuple) else result)
    off = assert_close(torch, *results, "the result")
    (layer, x), (layer64, x64) = rounded, exact
    weights = zip(layer.named_parameters(), layer64.parameters(), strict=True)
    named = [("the input", x, x64), *((name, values, values64) for (name, values), values64 in weights)]
    # sums of thousands of rounded products: gradients of weights may be off by twice as much
    return max(off, compare_gradients(torch, device, *results, named, times=2))
