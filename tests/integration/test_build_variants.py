"""``build --packaging variant``: the wheels of a run, stamped into variants/."""

from __future__ import annotations

import json

import pytest
from test_demo import Demo, demo

from rocm_wheels.variants.metadata import merge, parse_in_wheel
from rocm_wheels.wheels.archive.rewrite import read_dist_info_files
from rocm_wheels.wheels.names import parse_wheel_name

pytestmark = [pytest.mark.slow, pytest.mark.network]
__all__ = ["demo"]
VARIANT = ("--packaging", "variant")


def test_a_run_leaves_variants_beside_its_wheels(demo: Demo) -> None:
    ended = demo.build(*VARIANT, "--json")
    assert ended.code == 0, ended.err
    rows = {row["project"]: row for row in json.loads(ended.out)}
    variants = sorted((demo.folder / "wheels" / "variants").glob("*.whl"))
    assert len(variants) == len(rows) == 3
    for wheel in variants:
        name = parse_wheel_name(wheel.name)
        assert "rocm" not in (name.version.local or "")
        document = parse_in_wheel(
            read_dist_info_files(wheel)["variant.json"], name=wheel.name, label=name.label or ""
        )
        (properties,) = merge([(wheel.name, document)]).variants.values()
        assert properties["amd"] == {"gfx_arch": ("gfx1100", "gfx942")}, "also where no device code is"
        assert any(f"variant {name.label}" in row["note"] for row in rows.values())
    (triton,) = (wheel for wheel in variants if wheel.name.startswith("triton-"))
    (torch,) = (wheel for wheel in variants if wheel.name.startswith("torch-"))
    pin = f"Requires-Dist: triton=={parse_wheel_name(triton.name).version}"
    assert pin in read_dist_info_files(torch)["METADATA"].decode()
    before = {wheel: wheel.stat().st_mtime_ns for wheel in variants}
    again = demo.build(*VARIANT)
    assert again.code == 0, again.err
    assert {wheel: wheel.stat().st_mtime_ns for wheel in variants} == before


def test_a_target_that_no_variant_can_state_is_refused_before_the_build(demo: Demo) -> None:
    ended = demo.build(*VARIANT, "--pytorch-rocm-arch", "gfx942:xnack+", "--clean")
    assert ended.code == 2
    assert "holds gfx942:xnack+ and no plain code for it" in ended.err
