"""Scaled dot product attention: every back end alone, and torch's own choice, against the formula in float64.

A back end says itself that it does not take these tensors here; that is a skip with its words. Torch's own
choice and the back end that goes step by step must take everything, and so must flash attention what has 16
bits, on a GPU that the data name for it: a torch that was built without it says the same words.

torch reads the variable that offers flash attention on all GPUs when it first looks for a back end, and never
again: so it is there before the first of these tests.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from typing import Any

import pytest
from exact import compare, describe
from inspect_torch import Given

pytestmark = pytest.mark.limit(600)
os.environ["TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"] = "1"

_BACK_ENDS = {"chosen": "", "math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
_BACK_ENDS |= {"cudnn": "CUDNN_ATTENTION"}
_REFUSALS = ("no available kernel", "no viable backend", "invalid backend", "not compiled with", "no cudnn")


@pytest.mark.parametrize("mask", ["plain", pytest.param("causal", marks=pytest.mark.quick), "masked"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("back_end", _BACK_ENDS)
def test_attention(  # noqa: PLR0917 - pytest passes them by name
    torch: Any, device: str, back_end: str, dtype: str, mask: str, given: Given, said: Any
) -> None:
    """The result and the gradients of query, key and value."""
    queries, keys = (65, 80) if mask == "masked" else (65, 65)
    allowed = _make_mask(torch, mask, queries, keys)
    options = {"attn_mask": allowed.to(device)} if mask == "masked" else {"is_causal": mask == "causal"}

    def attend(*inputs: Any) -> Any:
        try:
            with _only(torch, _BACK_ENDS[back_end]):
                return torch.nn.functional.scaled_dot_product_attention(*inputs, **options)
        except RuntimeError as failure:
            words = " ".join(str(failure).split())
            if back_end in ("chosen", "math") or not any(sign in words.lower() for sign in _REFUSALS):
                raise
            needed = given.data.get("flash_attention", "") if sys.platform == "linux" else ""
            flash = back_end == "flash" and dtype != "float32" and mask != "masked"
            if device != "cpu" and flash and needed:
                pytest.fail(f"torch has no flash attention here ({words[:120]}), and {needed}")
            pytest.skip(f"this back end does not take it here: {words.partition('. ')[0][:120]}")

    def formula(q: Any, k: Any, v: Any) -> Any:
        """Compute what attention is: softmax(q kᵀ / √d) v."""
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return torch.softmax(scores.masked_fill(~allowed, -math.inf), dim=-1) @ v

    shapes = [(2, 3, length, 64) for length in (queries, keys, keys)]
    names = ("the query", "the key", "the value")
    said(describe(compare(torch, device, attend, *shapes, like=formula, learns=names, dtype=dtype)))


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
