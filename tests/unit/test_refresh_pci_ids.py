"""Keeping the tables of PCI ids up with pci.ids: what differs, what is written, and what is refused.

Each pci.ids here is constructed, in the form of the real one of 2026-10-24 (head, vendors, classes).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from refresh_pci_ids import read_pci_ids, read_pci_table, refresh_pci_ids
from rocm_wheels.core import errors
from rocm_wheels.gpus import pci

FOLDER = Path(pci.__file__).parent


def pci_ids(
    amd: dict[str, str] | None = None, *, version: str = "2027.01.02", nvidia: dict[str, str] | None = None
) -> str:
    """Return a pci.ids with the GPUs of the tables, ``amd`` and ``nvidia`` changed ("" takes one away)."""
    head = (
        f"#\n#\tList of PCI IDs\n#\n#\tVersion: {version}\n#\tDate:    {version.replace('.', '-')} 03:15:02"
    )
    lines = [head, "#", "", "0001  SafeNet (wrong ID)"]
    changes = {"amd": amd or {}, "nvidia": nvidia or {}, "intel": {}}
    for vendor, name in pci.PCI_VENDORS.items():
        table = read_pci_table(FOLDER / pci.PCI_TABLES[name], name)
        rows = {key[5:]: row["name"] for key, row in table.rows.items() if row["named"] == "pci.ids"}
        devices = rows | changes[name]
        lines.append(f"{vendor}  Vendor of {name}")
        for device, called in sorted(devices.items()):
            lines += [f"\t{device}  {called}", f"\t\t1043 05d0  Subsystem of {called}"] if called else []
        if name == "amd":
            lines += [
                "\t1478  Navi 10 XL Upstream Port of PCI Express Switch",
                "\taaf0  Ellesmere HDMI Audio",
            ]
            lines += ["\t5e4b  RV410 [Radeon X700 PRO]", "\t7446  Navi 31 USB"]
    lines += ["ffff  Illegal Vendor ID", "", "C 03  Display controller", "\t00  VGA compatible controller"]
    lines += ["\t\t00  VGA controller", "C ff  Unassigned class", ""]
    return "\n".join(lines)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for name in pci.PCI_TABLES.values():
        shutil.copy(FOLDER / name, tmp_path)
    return tmp_path


@pytest.fixture
def run(tables: Path) -> Callable[..., Result]:
    """Refresh the copied tables from a text, with more words."""

    def refresh(text: str, *words: str) -> Result:
        source = tables / "given.ids"
        source.write_text(text, encoding="utf-8")
        given = ["--pci-ids", str(source), "--tables", str(tables), *words]
        return CliRunner().invoke(refresh_pci_ids, given)

    return refresh


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.tsv"))}


def test_new_renamed_and_gone_are_told_and_check_fails(run: Callable[..., Result], tables: Path) -> None:
    before = contents(tables)
    text = pci_ids({"7600": "Navi 60 [Radeon RX 10090]", "74a1": "Aqua Vanjaram [MI300X]", "744a": ""})
    result = run(text, "--check")
    assert isinstance(result.exception, errors.HostError)
    assert result.exception.exit_code == 17
    assert "1 gone, 1 renamed, 1 new" in str(result.exception)
    lines = [line.split(maxsplit=2) for line in result.output.splitlines() if "1002:" in line]
    told = ("gone 1002:744a", "renamed 1002:74a1", "new 1002:7600")
    assert [line[:2] for line in lines] == [row.split() for row in told]
    assert contents(tables) == before


def test_what_is_made_by_hand_survives_a_refresh(run: Callable[..., Result], tables: Path) -> None:
    table = tables / "pci_ids.tsv"
    mine = table.read_text(encoding="utf-8").replace("\n1002:74a1", "\n# looked at twice\n1002:74a1")
    table.write_text(mine, encoding="utf-8")
    changes = {"7600": "Navi 60", "74a1": "MI300X, new", "744a": "", "67c1": "Ellesmere [FirePro]"}
    assert run(pci_ids(changes), "--write").exception is None
    after = table.read_text(encoding="utf-8")
    assert "\n# looked at twice\n1002:74a1\tgfx942\tdiscrete\tdocumented\trocminfo," in after
    assert "\tpci.ids\tMI300X, new\t" in after
    assert "1002:7600\t-\t-\tbelieved\tpci.ids\tpci.ids\tNavi 60\t-\tnew, nobody has looked\n" in after
    assert ",kernel\tpci.ids\tEllesmere [FirePro]\t" in after  # had its name from the kernel
    assert "1002:744a\tgfx1100\tdiscrete" in after  # a card does not vanish with its line
    assert "#source\tpci.ids\t2027.01.02\t2027-01-02\thttps://pci-ids.ucw.cz/\n" in after
    assert len(set(mine.splitlines()) - set(after.splitlines())) == 4  # three rows, and the source's state
    again = contents(tables)
    assert run(pci_ids(changes), "--write").exception is None
    assert contents(tables) == again
    checked = run(pci_ids(changes), "--check")
    assert (checked.exit_code, "nothing differs" in checked.output) == (0, True)


def test_a_new_nvidia_gpu_has_the_capability_of_its_chip_and_a_new_chip_has_none(
    run: Callable[..., Result], tables: Path
) -> None:
    new = {"26ff": "AD102GL [Something]", "3fff": "GX100 [Something]"}
    new["3ffe"] = "GB202 High Definition Audio Controller"
    assert run(pci_ids(nvidia=new), "--write").exception is None
    rows = read_pci_table(tables / "pci_ids_nvidia.tsv", "nvidia").rows
    assert (rows["10de:26ff"]["target"], rows["10de:26ff"]["card"]) == ("8.9", "discrete")
    assert (rows["10de:3fff"]["target"], rows["10de:3fff"]["kind"]) == ("-", "believed")
    assert "10de:3ffe" not in rows


@pytest.mark.parametrize("words", [("--write",), ("--check",), ()])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: "", "no pci.ids: its head names no version"),
        (lambda text: "<html>404</html>", "no pci.ids: its head names no version"),
        (lambda text: text.replace("Version", "Versoin"), "no pci.ids: its head names no version"),
        (lambda text: text.replace("10de  Vendor", "10dd  Vendor"), "is not whole"),
        (lambda text: text.replace("\t7446  ", "\t7446 "), "no line of a pci.ids: '\\t7446 Navi 31 USB'"),
        (lambda text: text.replace("2027", "2020"), "pci.ids 2020.01.02 is older than the 2026.10.24"),
    ],
)
def test_wrong_input_leaves_the_tables(
    run: Callable[..., Result],
    tables: Path,
    words: tuple[str, ...],
    spoil: Callable[[str], str],
    message: str,
) -> None:
    before = contents(tables)
    result = run(spoil(pci_ids({"7600": "Navi 60"})), *words)
    assert isinstance(result.exception, errors.DataError)
    assert message in str(result.exception)
    assert contents(tables) == before


@settings(max_examples=25, deadline=None)
@given(st.floats(min_value=0, max_value=0.999))
def test_no_part_of_a_file_passes_for_the_whole(part: float) -> None:
    text = WHOLE[: int(len(WHOLE) * part)].rstrip()
    if not text.endswith("class"):
        with pytest.raises(errors.DataError):
            read_pci_ids(text, "there")


WHOLE = pci_ids()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1002:74a1\t", "1002:74A1\t", "1002:74A1 is no id"),
        ("1002:74a1\t", "10de:74a1\t", "10de:74a1 is no id"),
        ("1002:74a1\tgfx942", "1002:74a1\tgfx94", "gfx94 is no target"),
        ("1002:74a1\tgfx942\tdiscrete", "1002:74a1\tgfx942\tcard", "card is no card"),
        ("\tdocumented\trocminfo,rocprofiler,", "\tsaid\trocminfo,rocprofiler,", "said is no kind"),
        ("\trocminfo,rocprofiler,device-info", "\trocminfo,hearsay", "hearsay is no source"),
        ("as every other Oland", "-", "- is no note"),
        ("1002:74a1\tgfx942\t", "1002:74a1\t", "a row has 9 cells"),
        ("1002:74a1\tgfx942\t", "1002:74a1\t\t", "a row has 9 cells"),
        ("1002:74a2\t", "1002:74a1\t", "1002:74a1 is not after 1002:74a1"),
        ("#columns\tid", "#columns\tname", "no table of PCI ids"),
    ],
)
def test_a_table_that_somebody_broke_is_refused_with_the_line(
    run: Callable[..., Result], tables: Path, old: str, new: str, message: str
) -> None:
    table = tables / "pci_ids.tsv"
    text = table.read_text(encoding="utf-8")
    assert old in text
    table.write_text(text.replace(old, new, 1), encoding="utf-8")
    before = contents(tables)
    result = run(pci_ids({"7600": "Navi 60"}), "--write")
    assert isinstance(result.exception, errors.DataError)
    assert message in str(result.exception)
    assert contents(tables) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--write", "--check"], "--write and --check exclude each other"),
        (["--pci-ids", "no-such.ids"], "no-such.ids"),
        (["--pci-ids", "a", "--url", "https://example.invalid/"], "--pci-ids and --url exclude each other"),
        (["--url", "pci.ids"], "pci.ids is no http or https URL"),
        (["--tables", "nowhere", "--url", "http://127.0.0.1:9/"], "nowhere"),
    ],
)
def test_options_that_cannot_be(words: list[str], message: str) -> None:
    result = CliRunner().invoke(refresh_pci_ids, words)
    assert result.exit_code != 0
    assert message in (str(result.exception) + result.output)
    assert isinstance(result.exception, (errors.UsageError, errors.DataError, SystemExit))
