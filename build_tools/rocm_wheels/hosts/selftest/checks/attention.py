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
