"""Which cards are to be hidden is said by ``choose`` before torch is there, by ``configure`` afterwards."""

from __future__ import annotations

import pytest

from rocm_wheels.gpus import gpu, variables
from rocm_wheels.user import gpu_support
from rocm_wheels.user.settings import make_settings

# targets of the cards in the runtime's order (? is not known, - is not numbered), of torch, the variables
CASES = [
    ("gfx942 gfx1201 gfx942", "gfx942", {}, "0,2"),
    ("gfx942 gfx1201 gfx942", "gfx942", {"ROCR_VISIBLE_DEVICES": "1,2"}, "1"),
    ("gfx942 gfx1201 gfx942", "gfx942", {"ROCR_VISIBLE_DEVICES": "2,1,0"}, "0,2"),
    ("gfx942 gfx942", "gfx942", {}, None),
    ("gfx1201 gfx1201", "gfx942", {}, None),
    ("gfx942 ?", "gfx942", {}, None),
    ("? gfx942 gfx1201", "gfx942", {}, "0,1"),
    ("gfx942 -", "gfx942", {}, None),
    ("gfx1201 gfx942", "gfx12-generic", {}, "0"),
]


@pytest.mark.parametrize(("cards", "targets", "env", "left"), CASES)
def test_the_same_cards_are_hidden(cards: str, targets: str, env: dict[str, str], left: str | None) -> None:
    gpus = [
        gpu.Gpu("amd", gfx=None if one in "?-" else one, native=None if one in "?-" else one, index=number)
        if one != "-"
        else gpu.Gpu("amd", name="a card without a driver")
        for number, one in enumerate(cards.split())
    ]
    hardware = gpu.Hardware(tuple(variables.mark_visible_gpus(gpus, env)[0]))
    settings, _ = make_settings(hardware, targets.split(), env, "linux")
    configured = {one.name: one.value for one in settings}.get("HIP_VISIBLE_DEVICES")
    chosen = gpu_support.make_visible_line(gpu_support.find_served_gpus(targets.split(), hardware))
    assert (chosen, configured) == (left and f"HIP_VISIBLE_DEVICES={left}", left)
