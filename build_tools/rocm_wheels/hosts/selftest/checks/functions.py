"""Layers of neural networks, forward and backward, against the same layer in float64 on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

# name → how the layer is made, the shape of its input
_LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "linear": (lambda nn: nn.Linear(96, 40), (17, 96)),
    "conv1d": (lambda nn: nn.Conv1d(6, 12, 5, padding=2), (3, 6, 50)),
    "conv2d": (lambda nn: nn.Conv2d(8, 16, 3, padding=1), (4, 8, 28, 28)),
    "conv2d grouped": (lambda nn: nn.Conv2d(8, 16, 3, stride=2, dilation=2, groups=4), (2, 8, 29, 31)),
    "conv2d 1x1": (lambda nn: nn.Conv2d(8, 16, 1), (2, 8, 14, 14)),
    "conv3d": (lambda nn: nn.Conv3d(3, 4, 3), (2, 3, 8, 9, 10)),
    "transposed conv2d": (lambda nn: nn.ConvTranspose2d(6, 3, 4, stride=2, padding=1), (2, 6, 9, 9)),
    "batch norm": (lambda nn: nn.BatchNorm2d(5), (4, 5, 12, 12)),
    "layer norm": (lambda nn: nn.LayerNorm(65), (9, 65)),
    "group norm": (lambda nn: nn.GroupNorm(3, 12), (4, 12, 7, 7)),
    "max pool": (lambda nn: nn.MaxPool2d(3, 2, 1), (2, 3, 21, 21)),
    "average pool": (lambda nn: nn.AdaptiveAvgPool2d(5), (2, 3, 20, 20)),
    "upsample": (lambda nn: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 9, 9)),
    "multi-head attention": (
        lambda nn: _SelfAttention(nn.MultiheadAttention(32, 4, batch_first=True)),
        (3, 11, 32),
    ),
    "transformer layer": (
        lambda nn: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True),
        (3, 11, 32),
    ),
    "lstm": (lambda nn: _FirstResult(nn.LSTM(10, 16, 2, batch_first=True)), (3, 12, 10)),
    "gru": (lambda nn: _FirstResult(nn.GRU(10, 16, batch_first=True)), (3, 12, 10)),
}
_ACTIVATIONS = ("relu", "gelu", "silu", "elu", "softplus", "sigmoid", "tanh", "log_softmax", "softmax")


class _FirstResult:
    """A module of which the first of several results counts."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, x: Any) -> Any:
        return self.module(x)[0]

    def to(self, place: Any) -> Any:
        return type(self)(copy.deepcopy(self.module).to(place))

    def parameters(self) -> Any:
        return self.module.parameters()


class _SelfAttention(_FirstResult):
    """An attention whose query, key and value are the same."""

    def __call__(self, x: Any) -> Any:
        return self.module(x, x, x, need_weights=False)[0]


def _check_layer(torch: Any, device: str, check: Any, *, name: str, dtype: str) -> str:
    """Compare the result, the gradient of the input and those of all weights."""
    make, shape = _LAYERS[name]
    torch.manual_seed(3)
    rounded = make(torch.nn).to(getattr(torch, dtype))  # its weights are what both sides begin with
    exact = copy.deepcopy(rounded).to(torch.float64)
    layer = copy.deepcopy(rounded).to(device)
    x, x64 = check.values(*shape, dtype=dtype)
    x.requires_grad_()
    x64.requires_grad_()
    y, y64 = layer(x), exact(x64)
    check.close(y, y64, "the result")
    weight, weight64 = check.values(*y.shape, dtype=dtype)
    (y * weight).sum().backward()
    (y64 * weight64).sum().backward()
    check.close(x.grad, x64.grad, "the gradient of the input")
    for number, (parameter, parameter64) in enumerate(
        zip(layer.parameters(), exact.parameters(), strict=True)
    ):
        check.close(parameter.grad, parameter64.grad, f"the gradient of parameter {number}")
    return ""


def _check_activations(torch: Any, device: str, check: Any) -> str:
    for name in _ACTIVATIONS:
        function = getattr(torch.nn.functional, name)
        options = {"dim": -1} if "softmax" in name else {}
        x, x64 = check.values(13, 101)
        x.requires_grad_()
        x64.requires_grad_()
        y, y64 = function(x, **options), function(x64, **options)
        check.close(y, y64, name)
        (y * y).sum().backward()
        (y64 * y64).sum().backward()
        check.close(x.grad, x64.grad, f"the gradient of {name}")
    return f"{len(_ACTIVATIONS)} functions"


def _check_losses(torch: Any, device: str, check: Any) -> str:
    functional = torch.nn.functional
    (x, x64), (y, y64) = check.values(50, 20), check.values(50, 20)
    classes = torch.arange(50) % 20
    check.close(
        functional.cross_entropy(x, classes.to(device)),
        functional.cross_entropy(x64, classes),
        "cross entropy",
    )
    check.close(functional.mse_loss(x, y), functional.mse_loss(x64, y64), "mean square")
    check.close(
        functional.binary_cross_entropy_with_logits(x, (y > 0).float()),
        functional.binary_cross_entropy_with_logits(x64, (y64 > 0).double()),
        "binary cross entropy",
    )
    return ""


def _check_embedding(torch: Any, device: str, check: Any) -> str:
    table, table64 = check.values(97, 16)
    table.requires_grad_()
    table64.requires_grad_()
    chosen = (torch.arange(500) * 31) % 97
    result, result64 = table[chosen.to(device)], torch.nn.functional.embedding(chosen, table64)
    check.close(torch.nn.functional.embedding(chosen.to(device), table), result64)
    (result**2).sum().backward()
    (result64**2).sum().backward()
    check.close(table.grad, table64.grad, "the gradient of the table")
    return ""


def _check_dropout(torch: Any, device: str, check: Any) -> str:
    torch.manual_seed(5)
    ones = torch.ones(1_000_000, device=device)
    dropped = torch.nn.functional.dropout(ones, 0.3)
    share = float((dropped == 0).float().mean())
    check.that(abs(share - 0.3) < 0.01, f"a dropout of 0.3 drops {share:.3f}")
    scaled = dropped[dropped != 0]
    check.that(float((scaled - 1 / 0.7).abs().max()) < 1e-5, "what is kept is not scaled by 1 / 0.7")
    return f"drops {share:.4f} of 0.3"


def _check_training(torch: Any, device: str, check: Any) -> str:
    """A network learns the sine: optimiser, autograd and reuse of memory over 200 steps."""
    torch.manual_seed(11)
    net = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    x = torch.linspace(-3, 3, 256).unsqueeze(1).to(device)
    y = torch.sin(x)
    losses = []
    for _ in range(200):
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    check.that(losses[-1] < 0.05 * losses[0], f"the loss goes from {losses[0]:.3g} to {losses[-1]:.3g} only")
    return f"loss {losses[0]:.2g} → {losses[-1]:.2g}"


def _check_autocast(torch: Any, device: str, check: Any) -> str:
    kind = device.partition(":")[0]
    a, a64 = check.values(64, 64)
    with torch.autocast(kind, dtype=torch.bfloat16):
        product = a @ a
    check.that(product.dtype == torch.bfloat16, f"autocast computes in {product.dtype}")
    check.close(product, a64 @ a64, "a product")
    return ""


_HALF_LAYERS = ("linear", "conv2d", "layer norm", "transformer layer")
LAYER_CASES: dict[str, Callable[..., Any]] = {
    **{name: partial(_check_layer, name=name, dtype="float32") for name in _LAYERS},
    **{
        f"{name} {dtype}": partial(_check_layer, name=name, dtype=dtype)
        for name in _HALF_LAYERS
        for dtype in ("float16", "bfloat16")
    },
    "activations": _check_activations,
    "losses": _check_losses,
    "embedding": _check_embedding,
    "dropout": _check_dropout,
    "training": _check_training,
    "autocast": _check_autocast,
}
