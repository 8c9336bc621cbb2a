"""Kernels in triton's language, imported where triton is there. It reads their source: they need a file."""

import triton
import triton.language as tl


@triton.jit
def multiply(  # noqa: PLR0917 - a kernel's arguments have places
    left,
    right,
    product,
    rows,
    columns,
    terms,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TERMS: tl.constexpr,
):
    """Write a tile of the product of two matrices that lie row by row, summed up in float32."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for begin in range(0, terms, TERMS):
        term = begin + tl.arange(0, TERMS)
        in_left = (row[:, None] < rows) & (term[None, :] < terms)
        in_right = (term[:, None] < terms) & (column[None, :] < columns)
        a = tl.load(left + row[:, None] * terms + term[None, :], mask=in_left, other=0.0)
        b = tl.load(right + term[:, None] * columns + column[None, :], mask=in_right, other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tl.store(product + row[:, None] * columns + column[None, :], total, mask=inside)
