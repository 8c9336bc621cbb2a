"""Scaled dot product attention: every back end that torch has, alone, against the formula in float64.

A back end says itself whether it takes these tensors on this device; that is a skip with its words. The one
that computes the formula step by step takes everything, and torch's own choice must always do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

_BACK_ENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
_DTYPES = ("float32", "float16", "bfloat16")
_REFUSALS = ("no available kernel", "no viable backend", "invalid backend", "not compiled with", "no cudnn")


def _formula(torch: Any, q: Any, k: Any, v: Any, kept: Any) -> Any:
    """Compute what attention is: softmax(q kᵀ / √d) v, where ``kept`` says which keys a query may see."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if kept is not None:
        scores = scores.masked_fill(~kept, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


def _attention(torch: Any, device: str, check: Any, *, back_end: str, dtype: str) -> str:
    """Plain, causal and masked: the result and the gradients of query, key and value."""
    if back_end and not hasattr(getattr(torch.nn, "attention", None), "sdpa_kernel"):
        check.skip("torch before 2.3 lets nobody choose a back end")
    done = []
    refused = ""
    for mask in ("plain", "causal", "masked"):
        try:
            _compare(torch, device, check, back_end=back_end, dtype=dtype, mask=mask)
        except RuntimeError as failure:
            said = " ".join(str(failure).split())
            never = back_end in ("", "math") or not any(word in said.lower() for word in _REFUSALS)
            if never:
                raise
            refused = f"{mask}: {said.partition('. ')[0][:100]}"
            continue
        done.append(mask)
    if not done:
        check.skip(f"this back end takes none of it here ({refused})")
    return ", ".join(done)


def _compare(torch: Any, device: str, check: Any, *, back_end: str, dtype: str, mask: str) -> None:
    batch, heads, queries, keys, width = 2, 3, 65, 65 if mask == "causal" else 80, 64
    tensors = [check.values(batch, heads, length, width, dtype=dtype) for length in (queries, keys, keys)]
    for pair in tensors:
        for one in pair:
            one.requires_grad_()
    (q, q64), (k, k64), (v, v64) = tensors
    kept, given = None, None
    if mask == "causal":
        kept = torch.ones(queries, keys, dtype=torch.bool).tril()
    elif mask == "masked":  # each query sees every third key and the first one
        kept = (torch.arange(keys) + torch.arange(queries)[:, None]) % 3 == 0
        kept[:, 0] = True
        given = kept.to(device)
    expected = _formula(torch, q64, k64, v64, kept)
    attend = partial(
        torch.nn.functional.scaled_dot_product_attention, q, k, v, attn_mask=given, is_causal=mask == "causal"
    )
    if back_end:
        attention = torch.nn.attention
        with attention.sdpa_kernel([getattr(attention.SDPBackend, _BACK_ENDS[back_end])]):
            found = attend()
    else:
        found = attend()
    check.close(found, expected, f"{mask} attention")
    weight, weight64 = check.values(*found.shape, dtype=dtype)
    (found * weight).sum().backward()
    (expected * weight64).sum().backward()
    for name, one, one64 in (("query", q, q64), ("key", k, k64), ("value", v, v64)):
        check.close(one.grad, one64.grad, f"{mask} attention's gradient of the {name}")


CASES: dict[str, Callable[..., Any]] = {
    f"attention {back_end or 'chosen by torch'} {dtype}": partial(_attention, back_end=back_end, dtype=dtype)
    for back_end in ("", *_BACK_ENDS)
    for dtype in _DTYPES
}
