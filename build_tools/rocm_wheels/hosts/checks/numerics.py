"""Check arithmetic, layers and attention: exact where they are exact, else against float64 on the CPU.

Layers are run forward and backward. Attention is run by every back end that torch has, alone; a back end
says itself whether it takes these tensors on this device, and that is a skip with its words. The one that
computes the formula step by step takes everything, and torch's own choice must always do.
Standard library and torch only: this file is loaded by its path under the Python that is tested.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any


def _check_integers(torch: Any, device: str, check: Any) -> str:
    added = (torch.arange(3, device=device) + 10).tolist()
    check.that(added == [10, 11, 12], f"0, 1, 2 and 10 each make {added}")
    return "exact"


def _check_ordering(torch: Any, device: str, check: Any) -> str:
    """Sort, select, count, index: all exact."""
    values, exact = check.values(5000)
    host = exact.to(torch.float32)
    check.that(bool(torch.equal(values.sort().values.cpu(), host.sort().values)), "sort is wrong")
    best = values.topk(10).values.cpu()
    check.that(bool(torch.equal(best, host.topk(10).values)), "topk is wrong")
    chosen = values[values > 0].cpu()
    check.that(bool(torch.equal(chosen, host[host > 0])), "a mask selects the wrong values")
    small = (torch.arange(4000, device=device) * 7919) % 97
    check.that(small.unique().cpu().tolist() == list(range(97)), "unique is wrong")
    counts = torch.bincount(small.cpu(), minlength=97)
    added = torch.zeros(97, dtype=torch.int64, device=device)
    added.scatter_add_(0, small, torch.ones_like(small))
    check.that(bool(torch.equal(added.cpu(), counts)), "scatter_add_ loses some")
    return "exact"


def _check_reductions(torch: Any, device: str, check: Any, *, dtype: str) -> str:
    values, exact = check.values(37, 1031, dtype=dtype)
    check.close(values.sum(dim=0), exact.sum(dim=0), "sum")
    check.close(values.mean(dim=1), exact.mean(dim=1), "mean")
    check.close(values.amax(dim=0), exact.amax(dim=0), "amax")
    if dtype in {"float32", "float64"}:
        check.close(values.cumsum(dim=1), exact.cumsum(dim=1), "cumsum")
        check.close(values.var(), exact.var(), "var")
    return ""


def _check_norms(torch: Any, device: str, check: Any) -> str:
    """Ten norms of 48 MB, a single one and by rows: one wrong wave in many thousands shows.

    The single one may be off by 0.002: the CPU itself adds 12 million squares in float32, off by 0.0005.
    """
    values, exact = check.values(4, 1024, 1024, 3)
    expected = torch.linalg.vector_norm(exact)
    norms = [torch.linalg.vector_norm(values) for _ in range(10)]
    for norm in norms:
        check.close(norm, expected, "the norm", allowed=2e-3)
    rows = torch.linalg.vector_norm(values, dim=2)
    check.close(rows, torch.linalg.vector_norm(exact, dim=2), "the norms of the rows")
    different = {float(norm) for norm in norms}
    check.that(len(different) == 1, f"the same norm comes out as {sorted(different)}")
    return ""


def _check_pointwise(torch: Any, device: str, check: Any, *, dtype: str) -> str:
    values, exact = check.values(3, 10007, dtype=dtype)
    for name in ("exp", "sin", "cos", "tanh", "erf", "sigmoid"):
        # of values that are not large: exp of a rounded 10 is rounded 10 times as much
        check.close(getattr(torch, name)(values.clamp(-4, 4)), getattr(torch, name)(exact.clamp(-4, 4)), name)
    check.close(torch.log1p(values.abs()), torch.log1p(exact.abs()), "log1p")
    check.close(torch.rsqrt(values.abs() + 1), torch.rsqrt(exact.abs() + 1), "rsqrt")
    return ""


def _check_matmul(torch: Any, device: str, check: Any, *, dtype: str) -> str:
    """Square, odd and very narrow matrices; transposed ones; a batch: each takes another kernel."""
    for rows, inner, columns in ((256, 256, 256), (33, 129, 7), (1, 1000, 513), (512, 64, 1)):
        (a, a64), (b, b64) = check.values(rows, inner, dtype=dtype), check.values(inner, columns, dtype=dtype)
        check.close(a @ b, a64 @ b64, f"{rows}x{inner} @ {inner}x{columns}")
    (a, a64), (b, b64) = check.values(96, 160, dtype=dtype), check.values(96, 48, dtype=dtype)
    check.close(a.T @ b, a64.T @ b64, "a transposed matrix")
    (a, a64), (b, b64) = check.values(5, 31, 64, dtype=dtype), check.values(5, 64, 17, dtype=dtype)
    check.close(torch.bmm(a, b), torch.bmm(a64, b64), "a batch")
    bias, bias64 = check.values(17, dtype=dtype)
    check.close(torch.addmm(bias, a[0], b[0]), torch.addmm(bias64, a64[0], b64[0]), "addmm")
    return ""


def _check_complex(torch: Any, device: str, check: Any) -> str:
    (re, re64), (im, im64) = check.values(40, 40), check.values(40, 40)
    number, exact = torch.complex(re, im), torch.complex(re64, im64)
    check.close(number @ number, exact @ exact, "a product")
    check.close(number.abs(), exact.abs(), "abs")
    return ""


def _check_fft(torch: Any, device: str, check: Any) -> str:
    """Lengths that are powers of 2, have other small factors, and are prime."""
    for length in (1024, 360, 509):
        values, exact = check.values(4, length)
        check.close(torch.fft.rfft(values), torch.fft.rfft(exact), f"rfft of {length}")
        check.close(torch.fft.irfft(torch.fft.rfft(values), n=length), exact, f"and back, of {length}")
    values, exact = check.values(3, 30, 32)
    check.close(torch.fft.fft2(values), torch.fft.fft2(exact), "fft2")
    return ""


def _check_linear_algebra(torch: Any, device: str, check: Any, *, name: str) -> str:
    """Decompositions are not unique: what they multiply to is compared."""
    half, half64 = check.values(24, 24)
    a = half @ half.T + 24 * torch.eye(24, device=device)
    a64 = half64 @ half64.T + 24 * torch.eye(24, dtype=torch.float64)
    b, b64 = check.values(24, 3)
    if name == "solve":
        check.close(torch.linalg.solve(a, b), torch.linalg.solve(a64, b64))
    elif name == "cholesky":
        lower = torch.linalg.cholesky(a)
        check.close(lower @ lower.T, a64)
    elif name == "qr":
        q, r = torch.linalg.qr(half)
        check.close(q @ r, half64)
    elif name == "svd":
        u, s, v = torch.linalg.svd(half)
        check.close((u * s) @ v, half64)
    else:
        check.close(torch.linalg.eigvalsh(a), torch.linalg.eigvalsh(a64))
    return ""


def _check_sparse(torch: Any, device: str, check: Any) -> str:
    (dense, dense64), (b, b64) = check.values(64, 64), check.values(64, 9)
    thin = torch.where(dense > 1, dense, torch.zeros_like(dense)).to_sparse()
    thin64 = torch.where(dense64 > 1, dense64, torch.zeros_like(dense64))
    check.close(torch.sparse.mm(thin, b), thin64 @ b64, "a sparse product")
    return ""


def _check_random(torch: Any, device: str, check: Any) -> str:
    """A million values: mean and spread, no value twice as often as it may be, the same again by its seed."""
    torch.manual_seed(7)
    first = torch.randn(1_000_000, device=device)
    torch.manual_seed(7)
    check.that(bool(torch.equal(first, torch.randn(1_000_000, device=device))), "a seed does not repeat")
    mean, spread = float(first.mean()), float(first.std())
    check.that(
        abs(mean) < 0.01 and abs(spread - 1) < 0.01, f"randn has mean {mean:.3g}, deviation {spread:.3g}"
    )
    even = torch.rand(1_000_000, device=device)
    lowest, highest = float(even.min()), float(even.max())
    check.that(lowest >= 0 and highest < 1, f"rand gives {lowest} to {highest}")
    thrown = torch.randint(0, 6, (600_000,), device=device).cpu().bincount(minlength=6)
    check.that(bool(((thrown - 100_000).abs() < 2_000).all()), f"randint throws {thrown.tolist()}")
    return ""


MATH_CASES: dict[str, Callable[..., Any]] = {
    "integers": _check_integers,
    "ordering": _check_ordering,
    **{
        f"reductions {case}": partial(_check_reductions, dtype=case)
        for case in ("float64", "float32", "float16")
    },
    "norms": _check_norms,
    **{
        f"pointwise {case}": partial(_check_pointwise, dtype=case)
        for case in ("float32", "float16", "bfloat16")
    },
    **{
        f"matmul {case}": partial(_check_matmul, dtype=case)
        for case in ("float64", "float32", "float16", "bfloat16")
    },
    "complex": _check_complex,
    "fft": _check_fft,
    **{
        case: partial(_check_linear_algebra, name=case)
        for case in ("solve", "cholesky", "qr", "svd", "eigenvalues")
    },
    "sparse": _check_sparse,
    "random": _check_random,
}


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


_BACK_ENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
_ATTENTION_DTYPES = ("float32", "float16", "bfloat16")
_REFUSALS = ("no available kernel", "no viable backend", "invalid backend", "not compiled with", "no cudnn")


def _compute_attention(torch: Any, q: Any, k: Any, v: Any, allowed: Any) -> Any:
    """Compute what attention is: softmax(q kᵀ / √d) v, where ``allowed`` says which keys a query may see."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


def _check_attention(torch: Any, device: str, check: Any, *, back_end: str, dtype: str) -> str:
    """Plain, causal and masked: the result and the gradients of query, key and value."""
    if back_end and not hasattr(getattr(torch.nn, "attention", None), "sdpa_kernel"):
        check.skip("torch before 2.3 lets nobody choose a back end")
    done = []
    refused = ""
    for mask in ("plain", "causal", "masked"):
        try:
            _compare_attention(torch, device, check, back_end=back_end, dtype=dtype, mask=mask)
        except RuntimeError as failure:
            message = " ".join(str(failure).split())
            never = back_end in ("", "math") or not any(word in message.lower() for word in _REFUSALS)
            if never:
                raise
            refused = f"{mask}: {message.partition('. ')[0][:100]}"
            continue
        done.append(mask)
    if not done:
        check.skip(f"this back end takes none of it here ({refused})")
    return ", ".join(done)


def _compare_attention(torch: Any, device: str, check: Any, *, back_end: str, dtype: str, mask: str) -> None:
    batch, heads, queries, keys, width = 2, 3, 65, 65 if mask == "causal" else 80, 64
    tensors = [check.values(batch, heads, length, width, dtype=dtype) for length in (queries, keys, keys)]
    for pair in tensors:
        for tensor in pair:
            tensor.requires_grad_()
    (q, q64), (k, k64), (v, v64) = tensors
    allowed, device_mask = None, None
    if mask == "causal":
        allowed = torch.ones(queries, keys, dtype=torch.bool).tril()
    elif mask == "masked":  # each query sees every third key and the first one
        allowed = (torch.arange(keys) + torch.arange(queries)[:, None]) % 3 == 0
        allowed[:, 0] = True
        device_mask = allowed.to(device)
    expected = _compute_attention(torch, q64, k64, v64, allowed)
    attend = partial(
        torch.nn.functional.scaled_dot_product_attention,
        q,
        k,
        v,
        attn_mask=device_mask,
        is_causal=mask == "causal",
    )
    if back_end:
        attention = torch.nn.attention
        with attention.sdpa_kernel([getattr(attention.SDPBackend, _BACK_ENDS[back_end])]):
            result = attend()
    else:
        result = attend()
    check.close(result, expected, f"{mask} attention")
    weight, weight64 = check.values(*result.shape, dtype=dtype)
    (result * weight).sum().backward()
    (expected * weight64).sum().backward()
    for name, tensor, tensor64 in (("query", q, q64), ("key", k, k64), ("value", v, v64)):
        check.close(tensor.grad, tensor64.grad, f"{mask} attention's gradient of the {name}")


ATTENTION_CASES: dict[str, Callable[..., Any]] = {
    f"attention {back_end or 'chosen by torch'} {dtype}": partial(
        _check_attention, back_end=back_end, dtype=dtype
    )
    for back_end in ("", *_BACK_ENDS)
    for dtype in _ATTENTION_DTYPES
}
