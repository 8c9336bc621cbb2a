"""Which torch each card gets, on each system and Python: the grid of ``tests/data/install_grid.txt``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocm_wheels.models import package_indexes
from rocm_wheels.models.gfx import get_gfx_targets
from rocm_wheels.user import install_options

GRID = Path(__file__).resolve().parents[1] / "data" / "install_grid.txt"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OTHERS = ("gfx700", "gfx803", "gfx90c", "gfx902", "gfx1013", "gfx1399")


def describe_cell(gfx: str, platform: str, python: str) -> str:
    options = install_options.list_install_options(gfx, platform=platform)
    option = install_options.pick_option(options, python)
    if option is None:
        return "none"
    words = option.format_install(python, gfx=gfx).removeprefix("rocm-wheels install ")
    return f"{words}   ({option.index.name}{f', as {option.override}' if option.override else ''})"


def make_grid() -> str:
    """A line for each card and system; where Pythons differ, for each run of them."""
    lines = []
    for gfx in dict.fromkeys((*get_gfx_targets(), *OTHERS)):
        for platform in ("linux", "windows"):
            cells = [(python, describe_cell(gfx, platform, python)) for python in PYTHONS]
            for _, text in dict.fromkeys((0, text) for _, text in cells):
                pythons = [python for python, other in cells if other == text]
                span = pythons[0] if len(pythons) == 1 else f"{pythons[0]}-{pythons[-1]}"
                lines.append(f"{gfx:8} {platform:8} {span:10} {text}")
    return "\n".join(lines) + "\n"


def test_the_grid_is_as_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ROCM_WHEELS_WRITE_MESSAGES=1`` writes it anew: a change of a table shows what users get by it."""
    monkeypatch.chdir(tmp_path)  # where no environment of this program is
    grid = make_grid()
    if os.environ.get("ROCM_WHEELS_WRITE_MESSAGES"):
        GRID.write_text(grid, encoding="utf-8")
    assert grid == GRID.read_text(encoding="utf-8")


@pytest.mark.parametrize("platform", ["linux", "windows"])
@pytest.mark.parametrize("gfx", [*get_gfx_targets(), *OTHERS])
def test_a_command_is_printed_only_where_an_index_has_it(gfx: str, platform: str) -> None:
    """What a row says, the tables of indexes say as well: for that target, channel and Python."""
    options = install_options.list_install_options(gfx, platform=platform)
    for option in options:
        assert option.override == "" or (platform == "linux" and option.target != gfx)
        for python in [python for python in PYTHONS if option.fits(python)]:
            served = package_indexes.find_indexes(
                option.target, platform=platform, channel=option.index.channel, python=python
            )
            assert option.index.name in [index.name for index in served]
    best = install_options.pick_option(options, "3.12")
    if best is not None and best.is_default and best.fits("3.12"):  # then `install` takes that index first
        assert package_indexes.find_indexes(gfx, platform=platform, python="3.12")[0].name == best.index.name
    assert bool(options) == (best is not None)
    assert gfx in " ".join(install_options.explain_no_torch(gfx))
