"""Figures of a benchmark for people."""

from __future__ import annotations

from collections.abc import Sequence

from rocm_wheels.hosts.benchmark.benchmark import Figure, Measured

_HEADER = ("workload", "dtype", "device", "size", "median", "spread", "TFLOP/s", "times CPU")


def lines(measured: Measured) -> list[str]:
    """Return what was measured on, then one line a figure, in columns."""
    listed = measured.torch.get("devices")
    gpus = {str(one["device"]): str(one["name"]) for one in listed} if isinstance(listed, list) else {}
    about = [f"torch {measured.torch.get('version')} in {measured.python}"]
    about += [f"{device}: {gpus[device]}" for device in measured.devices if device in gpus]
    return [*about, *_columns([_HEADER, *map(_row, measured.figures)])]


def _row(figure: Figure) -> tuple[str, ...]:
    start = (figure.workload, figure.dtype, figure.device)
    if figure.tflops is None or figure.median_seconds is None:
        return (*start, f"{figure.state}: {figure.fault.splitlines()[0] if figure.fault else ''}")
    return (
        *start,
        figure.size,
        _time(figure.median_seconds),
        f"{(figure.spread or 0.0) * 100:.0f} %",
        f"{figure.tflops:.3g}",
        f"{figure.times_cpu:.3g}" if figure.times_cpu is not None else "",
    )


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    whole = [row for row in rows if len(row) == len(_HEADER)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(_HEADER))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
