"""GPU targets, families, and which of them a build gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.core import errors
from rocm_wheels.models import gfx

NAMES = sorted(gfx.get_gfx_targets())


def test_the_table_is_the_one_of_the_sdk() -> None:
    assert len(NAMES) >= 28
    families = gfx.get_gfx_families()
    assert families["gfx110X-all"] == ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
    assert families["gfx94X-dcgpu"] == ("gfx942",)
    assert families["gfx1100"] == ("gfx1100",)
    assert sum(len(families[kind]) for kind in ("dgpu-all", "igpu-all", "dcgpu-all")) == len(NAMES)


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("gfx942,gfx1100", ("gfx942", "gfx1100")),
        ("gfx1100;gfx942", ("gfx1100", "gfx942")),
        (" gfx942 ; ,gfx942\n", ("gfx942",)),
        ("gfx120X-all,gfx1200", ("gfx1200", "gfx1201")),
        ("gfx942:xnack+,gfx942:xnack-", ("gfx942:xnack+", "gfx942:xnack-")),
        ("gfx90a:sramecc+:xnack-", ("gfx90a:sramecc+:xnack-",)),
        ("GFX942:XNACK+", ("gfx942:xnack+",)),
        ("gfx120x-ALL", ("gfx1200", "gfx1201")),
    ],
)
def test_lists_are_read(text: str, targets: tuple[str, ...]) -> None:
    assert gfx.parse_targets(text) == targets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no GPU target"),
        (" ;, ", "names no GPU target"),
        ("gfx94", "gfx94 is no GPU target; did you mean gfx942?"),
        ("gfx94x", "gfx94x is no GPU target; did you mean gfx94X-all or gfx94X-dcgpu?"),
        ("gfx803", "--gfx gfx803: gfx803 is no target of ROCm"),
        ("RX 580", "--gfx RX 580: gfx803 is no target of ROCm"),
        ("new:gfx1399", "--gfx new:gfx1399: gfx1399 is no target of ROCm"),
        ("gfx11-generic", "gfx11-generic is code for several GPUs"),
        ("gfx942:xnack", "gfx942:xnack has an unknown feature"),
        ("gfx942:sram+", "gfx942:sram+ has an unknown feature"),
        ("gfx110X-all:xnack+", "is no GPU target; did you mean gfx110X-all?"),
        ("gfx942,gfx942:xnack+", "gfx942 and gfx942:xnack+ cannot be compiled together"),
        ("gfx942:xnack+:xnack-", "gives a feature twice"),
        ("gfx942\0gfx1100", "is no GPU target"),
    ],
)
def test_wrong_lists_are_refused(text: str, message: str) -> None:
    with pytest.raises(errors.UsageError) as fault:
        gfx.parse_targets(text)
    assert message in str(fault.value)
    assert "--gfx" in str(fault.value)


@given(st.lists(st.sampled_from(NAMES), min_size=1), st.sampled_from([",", ";", " ", ", ", ";;"]))
def test_any_list_of_targets_is_kept_in_order_once_each(names: list[str], separator: str) -> None:
    targets = gfx.parse_targets(separator.join(names))
    assert targets == tuple(dict.fromkeys(names))
    assert gfx.parse_targets(";".join(targets)) == targets


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    try:
        targets = gfx.parse_targets(text)
    except errors.UsageError as fault:
        assert fault.tip
    else:
        assert all(gfx.strip_features(target) in gfx.get_gfx_targets() for target in targets)


def test_families_hold_every_target() -> None:
    assert gfx.find_families(["gfx1100", "gfx1103"]) == ("gfx110X-all",)
    assert gfx.find_families(["gfx1100", "gfx1101"]) == ("gfx110X-dgpu", "gfx110X-all")
    assert gfx.find_families(["gfx942:xnack+"])[0] == "gfx942"
    assert gfx.find_families(["gfx942", "gfx950"]) == ()  # both dcgpu-all, which is a kind and no family
    assert gfx.find_families([]) == ()


def test_targets_of_an_sdk_are_those_of_one_family() -> None:
    members = ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
    assert gfx.choose_sdk_targets(members) == members
    assert gfx.choose_sdk_targets(["gfx1201"]) == ("gfx1201",)


@pytest.mark.parametrize(
    ("sdk", "message"),
    [
        (["gfx942", "gfx1100"], "serves several GPU families: gfx942, gfx1100"),
        ([], "no GPU target is named"),
        (["gfx0000"], "the ROCm SDK: gfx0000 is no GPU target"),
    ],
)
def test_nothing_is_guessed(sdk: list[str], message: str) -> None:
    with pytest.raises(errors.UsageError) as fault:
        gfx.choose_sdk_targets(sdk)
    assert message in str(fault.value)
    assert "--gfx" in f"{fault.value} {fault.value.tip}" or "show targets" in str(fault.value.tip)


@pytest.mark.parametrize("text", ["", " ,"])
def test_no_target_is_an_error(text: str) -> None:
    for parse in (gfx.parse_targets, gfx.parse_single_target):
        with pytest.raises(errors.UsageError, match="--gfx names no GPU target"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("RX 7900 XTX", ("gfx1100",)),
        ("rx7900xtx, gfx942", ("gfx1100", "gfx942")),
        ("gfx1100;Radeon RX 7900 XTX", ("gfx1100",)),
        ("gfx942 gfx1100", ("gfx942", "gfx1100")),
    ],
)
def test_a_card_stands_for_its_target(text: str, targets: tuple[str, ...]) -> None:
    assert gfx.parse_targets(text) == targets


@pytest.mark.parametrize("text", ["RTX 4090", "RX 9999 XYZ", "gfx942,Radeon Graphics", "gfx942 RX 7900 XTX"])
def test_a_card_of_another_vendor_of_none_or_of_several_targets_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError):
        gfx.parse_targets(text)
