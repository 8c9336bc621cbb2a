"""The tables of PCI ids: every row of them, and how GPUs are found in them."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest

from refresh_pci_ids import read_pci_table
from rocm_wheels.gpus import pci
from rocm_wheels.models import gfx

FOLDER = Path(pci.__file__).parent
AMD = [entry for entry in pci.list_pci_entries() if entry.vendor == "amd"]

# processors of LLVM's "User Guide for AMDGPU Backend" that some card has
LLVM = """
gfx600 gfx601 gfx602 gfx700 gfx701 gfx703 gfx704 gfx801 gfx802 gfx803 gfx810
gfx900 gfx902 gfx904 gfx906 gfx908 gfx90a gfx90c gfx942 gfx950
gfx1010 gfx1011 gfx1012 gfx1013 gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036
gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 gfx1200 gfx1201
"""
PROCESSORS = set(LLVM.split())
# codename in the name: the one target of that chip, and whether it is part of a processor
CHIPS = {
    "Tahiti": ("gfx600", False),
    "Pitcairn|Curacao|Wimbledon|Neptune": ("gfx601", False),
    "Cape Verde|Venus|Chelsea|Heathrow": ("gfx601", False),
    "Oland|Mars|Opal|Litho": ("gfx602", False),
    "Hainan|Sun|Jet|Exo": ("gfx602", False),
    "Bonaire|Saturn|Tobago|Strato|Emerald": ("gfx704", False),
    "Hawaii|Vesuvius|Grenada": ("gfx701", False),
    "Kaveri": ("gfx700", True),
    "Kabini|Temash|Mullins": ("gfx703", True),
    "Carrizo|Wani": ("gfx801", True),
    "Stoney": ("gfx810", True),
    "Topaz|Meso|Weston": ("gfx802", False),
    "Tonga|Amethyst": ("gfx802", False),
    "Fiji|Ellesmere|Baffin|Lexa|Polaris ?[12][0-9]": ("gfx803", False),
    "Vega 10": ("gfx900", False),
    "Vega 12": ("gfx904", False),
    "(?<!Pro )Vega 20": ("gfx906", False),
    "Raven Ridge|Picasso": ("gfx902", True),
    "Renoir|Lucienne|Cezanne|Barcelo": ("gfx90c", True),
    "Arcturus": ("gfx908", False),
    "Aldebaran": ("gfx90a", False),
    "MI300[AX]|MI308X|MI325X": ("gfx942", False),
    "MI350[XP]|MI355X|MI358": ("gfx950", False),
    "Navi 10": ("gfx1010", False),
    "Navi 12": ("gfx1011", False),
    "Navi 14": ("gfx1012", False),
    "Cyan Skillfish": ("gfx1013", True),
    "Navi 21": ("gfx1030", False),
    "Navi 22": ("gfx1031", False),
    "Navi 23": ("gfx1032", False),
    "VanGogh|Sephiroth": ("gfx1033", True),
    "Navi 24": ("gfx1034", False),
    "Rembrandt": ("gfx1035", True),
    "Raphael|Granite Ridge|Mendocino": ("gfx1036", True),
    "Navi 31": ("gfx1100", False),
    "Navi 32": ("gfx1101", False),
    "Navi 33": ("gfx1102", False),
    "Phoenix|HawkPoint": ("gfx1103", True),
    "Strix(?! Halo)": ("gfx1150", True),
    "Strix Halo": ("gfx1151", True),
    "Krackan(?!2)": ("gfx1152", True),
    "Krackan2": ("gfx1153", True),
    "Navi 44": ("gfx1200", False),
    "Navi 48": ("gfx1201", False),
}
NAMED_OTHERWISE = {"1002:13f9", "1002:13e9"}  # Oberon/Navi12Lite, Ariel/Navi10Lite: of game consoles
# capabilities as torchruntime reads them from names of chips (it rounds: 6.1 is 6.0 there)
CAPABILITIES = {
    "GK(104|106|107)": "3.0",
    "GK(110|180|208)": "3.5",
    "GK210": "3.7",
    "GM10": "5.0",
    "GM20": "5.2",
    "GP100": "6.0",
    "GP10[24678]": "6.1",
    "GV100": "7.0",
    "TU1": "7.5",
    "GA100": "8.0",
    "GA10[2-7]": "8.6",
    "AD10": "8.9",
    "GH100": "9.0",
    "GB10[02]": "10.0",
    "GB110": "10.3",
    "GB10B": "11.0",
    "GB20[2-7]": "12.0",
    "GB20B": "12.1",
}


@pytest.mark.parametrize("vendor", pci.PCI_TABLES)
def test_every_row_is_of_the_form(vendor: str) -> None:
    path = FOLDER / pci.PCI_TABLES[vendor]
    table = read_pci_table(path, vendor)
    assert table.format_text() == path.read_text(encoding="utf-8")
    assert [pci.find_pci_entry(pci_id) for pci_id in table.rows] == [
        e for e in pci.list_pci_entries() if e.vendor == vendor
    ]


def test_every_target_is_one_that_compilers_know_and_every_target_has_a_card() -> None:
    assert {entry.gfx for entry in AMD} - {None} == PROCESSORS
    assert set(gfx.get_gfx_targets()) - PROCESSORS == {"gfx1250"}  # no card with it has an id yet


def test_every_target_and_kind_of_card_is_that_of_the_chip_in_the_name() -> None:
    wrong, seen = [], Counter[str]()
    for entry in AMD:
        for chip, (target, integrated) in CHIPS.items():
            if re.search(rf"\b({chip})", entry.name) and entry.id not in NAMED_OTHERWISE:
                seen[chip] += 1
                if (entry.gfx, entry.integrated) != (target, integrated):
                    wrong.append((entry, target))
    assert wrong == []
    assert set(seen) == set(CHIPS)


def test_every_target_without_a_chip_in_the_name_is_said_by_a_table_of_targets() -> None:
    unnamed = [e for e in AMD if e.gfx and not any(re.search(rf"\b({chip})", e.name) for chip in CHIPS)]
    assert {source for entry in unnamed for source in entry.sources[:1]} <= {
        *("libhsakmt", "rocminfo", "rocprofiler", "device-info", "kernel", "kernel-new")
    }


def test_families_agree_with_the_kind_of_card() -> None:
    processors = set(gfx.get_gfx_families()["igpu-all"])
    wrong = [e for e in AMD if e.gfx in gfx.get_gfx_targets() and e.integrated != (e.gfx in processors)]
    assert wrong == []


def test_a_target_that_nobody_states_is_not_guessed() -> None:
    unsure = [entry for entry in AMD if entry.kind == "believed"]
    assert all(entry.note for entry in unsure)
    assert [entry.id for entry in unsure if entry.gfx and entry.source == "pci.ids"] == [
        *("1002:1435", "1002:6609", "1002:664d", "1002:67d4", "1002:67d7"),
        *("1002:693b", "1002:698f", "1002:749f"),
    ]
    assert all(entry.kind == "believed" and entry.integrated is not False for entry in AMD if not entry.gfx)


def test_every_source_is_named_with_its_state_and_place() -> None:
    for vendor in pci.PCI_TABLES:
        used = {key for entry in pci.list_pci_entries() if entry.vendor == vendor for key in entry.sources}
        named = pci.list_pci_sources(vendor)
        assert used <= set(named)
        assert all(source.where.startswith("https://") for source in named.values())
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", named["pci.ids"].date)


def test_every_nvidia_capability_is_that_of_the_chip() -> None:
    nvidia = [entry for entry in pci.list_pci_entries() if entry.vendor == "nvidia"]
    for entry in nvidia:
        stated = next((c for chip, c in CAPABILITIES.items() if re.match(chip, entry.name)), None)
        assert entry.capability == stated, entry
    assert {entry.capability for entry in nvidia} == {*CAPABILITIES.values(), None}
    assert {e.name[:5] for e in nvidia if e.integrated} == {"GB10B", "GB20B"}


def test_every_intel_card_is_what_its_family_is() -> None:
    intel = [entry for entry in pci.list_pci_entries() if entry.vendor == "intel"]
    families = r"(DG1|DG2|ACMP|ATS-M|Ponte Vecchio|Battlemage)\b"
    assert [e for e in intel if e.integrated != (not re.match(families, e.name))] == []
    arcs = {entry.integrated for entry in pci.search_pci_entries("Arc")}
    assert arcs == {True, False}  # the name alone says nothing
    older = {entry.id: entry.capability for entry in intel}
    # Skylake, Coffee Lake, Ice Lake; Tiger Lake, Alder Lake, an Arc A770
    assert {older[f"8086:{device}"] for device in ("1912", "3e9b", "8a52")} == {"before-xe"}
    assert {older[f"8086:{device}"] for device in ("9a49", "46a6", "56a0")} == {None}


@pytest.mark.parametrize(
    ("text", "pci_id"),
    [
        ("1002:74a1", "1002:74a1"),
        ("0x1002:0x74A1", "1002:74a1"),
        ("74a1", "1002:74a1"),
        ("0x74A1", "1002:74a1"),
        (" 1002-74a1 ", "1002:74a1"),
        ("10DE:2684", "10de:2684"),
        ("gfx942", None),
        ("74a", None),
        ("1002:", None),
        ("1002:74a1:00", None),
        ("", None),
        ("1002:74a١", None),
    ],
)
def test_ids_are_read_as_people_and_tools_write_them(text: str, pci_id: str | None) -> None:
    assert pci.normalize_pci_id(text) == pci_id
    entry = pci.find_pci_entry(text)
    assert (entry.id if entry else None) == pci_id


@pytest.mark.parametrize("text", ["1002:ffff", "1af4:1050", "ffff:ffff", "id", "#source", "\n1002:74a1"[:3]])
def test_what_the_tables_do_not_have_is_no_error(text: str) -> None:
    assert pci.find_pci_entry(text) is None


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("RX 7900 XTX", ["1002:744c"]),
        ("rx7900xtx", ["1002:744c"]),
        ("AMD Radeon RX 7900 XTX", ["1002:744c"]),
        ("mi325x", ["1002:74a5", "1002:74b9"]),
        ("MI350", ["1002:75a0", "1002:75a8", "1002:75b0"]),
        ("AMD Radeon 780M Graphics", ["1002:15bf", "1002:1900"]),
        ("780M", ["1002:15bf", "1002:1900", "10de:119e", "10de:119f"]),  # GeForce GTX 780M
        ("strix halo", ["1002:1586"]),
        ("Van Gogh iGPU", ["1002:163f"]),
        ("RX 6750 XT", ["1002:73df"]),  # and not the RX 6600 XT, which shares its id with an RX 6750 GRE
        ("RX 6750 GRE 10GB", ["1002:73ff"]),
        ("NVIDIA GeForce RTX 4090 D", ["10de:2685"]),
        ("Intel(R) Arc(TM) B580 Graphics", ["8086:e20b"]),
        ("no such card", []),
        ("", []),
        ("!?", []),
    ],
)
def test_names_are_found_as_people_write_them(text: str, ids: list[str]) -> None:
    assert [entry.id for entry in pci.search_pci_entries(text)] == ids


def test_a_look_takes_less_than_five_milliseconds_with_reading_the_table() -> None:
    times = []
    for _ in range(5):
        pci._read_table.cache_clear()
        start = time.process_time()
        assert pci.find_pci_entry("1002:75a3")
        times.append(time.process_time() - start)
    assert min(times) < 0.005
