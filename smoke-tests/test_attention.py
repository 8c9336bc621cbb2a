"""Scaled dot product attention: every back end alone, and torch's own choice, against the formula in float64.

A back end says itself that it does not take these tensors here; that is a skip with its words. Torch's own
choice and the back end that goes step by step must take everything, and so must flash attention what has 16
bits, on a GPU that the data name for it: a torch that was built without it says the same words.
"""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any

import pytest
from exact import assert_close, both
from looking import Given

pytestmark = pytest.mark.limit(600)

_BACK_ENDS = {"chosen": "", "math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
_BACK_ENDS |= {"cudnn": "CUDNN_ATTENTION"}
_REFUSALS = ("no available kernel", "no viable backend", "invalid backend", "not compiled with", "no cudnn")


@pytest.mark.parametrize("mask", ["plain", pytest.param("causal", marks=pytest.mark.quick), "masked"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("back_end", _BACK_ENDS)
def test_attention(  # noqa: PLR0917 - pytest passes them by name
    torch: Any,
    device: str,
    back_end: str,
    dtype: str,
    mask: str,
    given: Given,
    said: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result and the gradients of query, key and value."""
    if back_end != "chosen":  # without it, torch offers flash attention on some GPUs alone
        monkeypatch.setenv("TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "1")
    lengths = (65, 80, 80) if mask == "masked" else (65, 65, 65)
    pairs = [both(torch, device, 2, 3, length, 64, dtype=dtype, seed=n) for n, length in enumerate(lengths)]
    inputs, exact = zip(*pairs, strict=True)
    for one in (*inputs, *exact):
        one.requires_grad_()
    allowed = _make_mask(torch, mask, *lengths[:2])
    options = {"attn_mask": allowed.to(device)} if mask == "masked" else {"is_causal": mask == "causal"}
    try:
        with _only(torch, _BACK_ENDS[back_end]):
            found = torch.nn.functional.scaled_dot_product_attention(*inputs, **options)
    except RuntimeError as failure:
        words = " ".join(str(failure).split())
        if back_end in ("chosen", "math") or not any(one in words.lower() for one in _REFUSALS):
            raise
        needed = given.data.get("flash_attention", "") if sys.platform == "linux" else ""
        flash = back_end == "flash" and dtype != "float32" and mask != "masked"
        if device != "cpu" and flash and needed:
            pytest.fail(f"torch has no flash attention here ({words[:120]}), and {needed}")
        pytest.skip(f"this back end does not take it here: {words.partition('. ')[0][:120]}")
    expected = _formula(torch, *exact, allowed)
    worst = assert_close(torch, found, expected, "attention")
    weight, weight64 = both(torch, device, *found.shape, dtype=dtype, seed=9)
    (found * weight).sum().backward()
    (expected * weight64).sum().backward()
    for name, one, one64 in zip(("query", "key", "value"), inputs, exact, strict=True):
        worst = max(worst, assert_close(torch, one.grad, one64.grad, f"the gradient of the {name}"))
    said(f"off by {worst:.1e} of the largest value")


def _only(torch: Any, name: str) -> Any:
    if not name:
        return contextlib.nullcontext()
    if not hasattr(torch.nn, "attention"):
        pytest.skip("torch before 2.3 lets nobody choose a back end")
    return torch.nn.attention.sdpa_kernel([getattr(torch.nn.attention.SDPBackend, name)])


def _make_mask(torch: Any, mask: str, queries: int, keys: int) -> Any:
    """Return which keys a query sees: all, those before it, or every third and the first."""
    every = torch.ones(queries, keys, dtype=torch.bool)
    if mask == "masked":
        every = (torch.arange(keys) + torch.arange(queries)[:, None]) % 3 == 0
        every[:, 0] = True
    return every.tril() if mask == "causal" else every


def _formula(torch: Any, q: Any, k: Any, v: Any, allowed: Any) -> Any:
    """Compute what attention is: softmax(q kᵀ / √d) v."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~allowed, -math.inf)
    return torch.softmax(scores, dim=-1) @ v
