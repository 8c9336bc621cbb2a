"""``compat gpu``: cards by name, target and PCI id, what is said of them, and what is no card."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rocm_wheels.cli import compat
from rocm_wheels.core import errors
from rocm_wheels.gpus import pci
from rocm_wheels.models import gpu_cards
from rocm_wheels.models.gfx import get_gfx_targets


@pytest.mark.parametrize(
    ("query", "asked_by", "cards", "targets"),
    [
        ("1002:74a1", "id", ["1002:74a1"], ["gfx942"]),
        ("0x74a1", "id", ["1002:74a1"], ["gfx942"]),
        ("10de:2684", "id", ["10de:2684"], ["8.9"]),
        ("2684", "id", ["10de:2684"], ["8.9"]),
        ("gfx1152", "target", ["1002:1114"], ["gfx1152"]),
        ("GFX90A:sramecc+:xnack-", "target", ["1002:7408", "1002:740c", "1002:740f", "1002:7410"],
         ["gfx90a"]),
        ("gfx1250", "target", [], ["gfx1250"]),
        ("RX  7900 XTX", "name", ["1002:744c"], ["gfx1100"]),
        ("6800", "id", ["1002:6800", "1002:73bf"], ["gfx601", "gfx1030"]),  # an id, and in a name
        ("7600 xt", "name", ["1002:7480"], ["gfx1102"]),
        ("Arc B580", "name", ["8086:e20b"], [None]),
        ("Ryzen AI 9 HX 370", "product", ["1002:150e"], ["gfx1150"]),
        ("MI450", "product", [], ["gfx1250"]),
        ("Ariel", "name", ["1002:13e9"], []),
    ],
)  # fmt: skip
def test_cards_are_found(query: str, asked_by: str, cards: list[str], targets: list[str | None]) -> None:
    found = gpu_cards.find_gpu_cards(query)
    assert found.query_kind == asked_by
    assert [entry.id for entry in found.cards] == cards
    assert [facts.target for facts in found.targets] == targets


@pytest.mark.parametrize(
    ("query", "message", "tip"),
    [
        ("gfx943", "gfx943 is no GPU target; did you mean gfx942?", "show targets` lists them"),
        ("gfx942:sram+", "gfx942:sram+ has an unknown feature", ":xnack-"),
        ("gfx942:", "gfx942: has an unknown feature", ":xnack-"),
        ("gfx", "gfx is no GPU target", "show targets` lists them"),
        ("1002:ffff", "the tables have no GPU with PCI id 1002:ffff", "doctor"),
        ("gfx803x", "gfx803x is no GPU target", "show targets` lists them"),
        ("0xffff", "the tables have no GPU with PCI id 1002:ffff", "doctor"),
        ("ffff", "the tables have no GPU with PCI id 1002:ffff", "doctor"),
        ("1af4:1050", "1af4 is no vendor of the tables", "10de nvidia"),
        ("RX 7950 XTX", "no GPU of the tables is called 'RX 7950 XTX'", "Navi 31 [Radeon RX 7900 XT"),
        ("mi301x", "no GPU of the tables is called 'mi301x'", "MI300X"),
        ("qqqq", "no GPU of the tables is called 'qqqq'", "name a card"),
        ("", "no GPU of the tables is called ''", "name a card"),
        ("!", "no GPU of the tables is called '!'", "name a card"),
    ],
)
def test_what_is_no_card_is_said_with_near_names(query: str, message: str, tip: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        gpu_cards.find_gpu_cards(query)
    assert message in caught.value.message
    assert tip in str(caught.value.tip)


def test_every_target_and_every_id_can_be_asked_for() -> None:
    for target in get_gfx_targets():
        assert {entry.gfx for entry in gpu_cards.find_gpu_cards(target).cards} <= {target}
    for entry in pci.list_pci_entries()[::40]:
        assert gpu_cards.find_gpu_cards(entry.id).cards == (entry,)


def test_products_of_the_table_of_targets_are_cards_with_that_target() -> None:
    found = {
        (name, product): {entry.gfx for entry in pci.search_pci_entries(product) if entry.vendor == "amd"}
        for name, target in get_gfx_targets().items()
        for product in target.products
    }
    assert {key: gfx for key, gfx in found.items() if gfx and gfx != {key[0]}} == {}
    lacking = {name for (name, product), gfx in found.items() if not gfx and not product.startswith("Ryzen")}
    assert lacking <= {"gfx1250", "gfx1201"}  # no card yet with an id: MI450, R9700S


def test_people_read_target_cards_and_sources() -> None:
    result = CliRunner().invoke(compat.gpu, ["rx", "6750", "gre", "10gb"])
    assert result.exception is None
    lines = result.output.splitlines()
    assert lines[0].startswith("gfx1032  ")
    assert any(line.startswith("  families ") and "gfx103X-dgpu" in line for line in lines)
    assert "1002:73ff  gfx1032  discrete  documented  Navi 23 [Radeon RX 6600/6600 XT/6600M]" in lines
    assert any("revision df (RX 6750 GRE 10GB) is gfx1031" in line for line in lines)
    assert any(line.split()[:1] == ["libhsakmt"] and "topology.c" in line for line in lines)
    many = CliRunner().invoke(compat.gpu, ["radeon"]).output
    assert "more words find fewer" in many


@pytest.mark.contract
@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("RX7900GRE", "gfx1100  Radeon RX 7900 GRE"),
        ("rx 7900 xt", "gfx1100  Radeon RX 7900 XT"),
        ("7900", "gfx1100  Radeon RX 7900 XTX, Radeon RX 7900 XT, Radeon RX 7900 GRE, …"),  # none of 2012
        ("1002:7448", "gfx1100  Navi 31 [Radeon Pro W7900]"),
        ("gfx1100", "gfx1100  AMD RX 7900 XTX"),
        ("Steam Deck", "gfx1033  Steam Deck OLED, Steam Deck"),
        ("Ryzen Z2 Extreme", "gfx1150  Ryzen Z2 Extreme"),
        ("Ryzen Z1 Extreme", "gfx1103  Ryzen Z1 Extreme"),
    ],
)
def test_a_card_is_titled_as_it_was_asked_for(query: str, title: str) -> None:
    lines = CliRunner().invoke(compat.gpu, query.split()).output.splitlines()
    assert lines[0].startswith(title)
    assert not any("rocm-wheels build" in line for line in lines), "no ROCm compiles for a card of 2012"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("Z2 Extreme", "gfx1150"),
        ("Ryzen Z2", "gfx1103"),
        ("Ryzen Z2 Go", "gfx1035"),
        ("steam deck", "gfx1033"),
    ],
)
def test_a_handheld_is_a_gpu_that_can_be_named(name: str, target: str) -> None:
    assert gpu_cards.find_product_target(name, "--gfx") == target


def test_programs_read_every_fact_with_its_source() -> None:
    found = json.loads(CliRunner().invoke(compat.gpu, ["mi300a", "--json"]).output)
    assert set(found) == {"query", "asked_by", "cards", "targets"}
    card = found["cards"][0]
    assert (card["id"], card["gfx"], card["card"], card["kind"]) == (
        *("1002:74a0", "gfx942", "discrete", "documented"),
    )
    assert all(source["where"].startswith("https://") for source in card["sources"])
    (target,) = found["targets"]
    assert {fact["what"] for fact in target["facts"]} >= {"families", "wave", "fp8", "aotriton"}
    assert all(fact["source"]["url"].startswith("https://") and fact["kind"] for fact in target["facts"])
    assert {index["platform"] for index in target["indexes"]} >= {"linux"}
