"""``rocm-wheels compat``: what the commands print, and what they say to wrong input."""

from __future__ import annotations

import json

import pytest

from rocm_wheels.cli import boundary, compat, main
from rocm_wheels.models import ci, gfx

pytestmark = pytest.mark.contract


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = boundary.run_command(main.cli, ["compat", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("table", [name for name in compat.TABLES if name != "lines"])
def test_every_table_is_shown_with_its_sources(capsys: pytest.CaptureFixture[str], table: str):
    code, out, _ = ask(capsys, "show", table, "--json")
    rows = json.loads(out)[table]
    assert (code, len(rows) > 5) == (0, True)
    assert all(row["source"] for row in rows)
    if "kind" in rows[0]:
        assert {row["kind"] for row in rows} <= {"documented", "packaged", "tested", "believed"}
    code, out, _ = ask(capsys, "show", table)
    assert code == 0
    assert "[1] " in out


def test_tables_fit_a_pipe_and_what_columns_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("COLUMNS")
    _, piped, _ = ask(capsys, "show", "targets")
    _, listed, _ = ask(capsys, "show")
    monkeypatch.setenv("COLUMNS", "400")
    _, wide, _ = ask(capsys, "show", "targets")
    rows = [line for line in wide.splitlines() if line.startswith("gfx")]
    assert [line.split()[0] for line in rows] == list(gfx.get_gfx_targets())
    assert max(map(len, rows)) > 160
    assert "target  gfx942\n" in piped
    shown = [line for line in f"{piped}{listed}".splitlines() if "://" not in line]  # addresses stay whole
    assert max(map(len, shown)) <= 80


def test_a_row_is_shown_by_its_name(capsys: pytest.CaptureFixture[str]):
    code, out, _ = ask(capsys, "show", "indexes", "amd-stable", "--json")
    assert (code, [row["channel"] for row in json.loads(out)["indexes"]]) == (0, ["stable"])
    assert len(json.loads(ask(capsys, "show", "images", "test", "--json")[1])["images"]) == 1


def test_images_of_containers_are_listed_by_name_with_their_digests(capsys: pytest.CaptureFixture[str]):
    rows = json.loads(ask(capsys, "show", "images", "--json")[1])["images"]
    named = {row["name"]: row for row in rows if row["name"]}
    assert named.keys() == ci.load_container_table().images.keys() and len(rows) > len(named) > 7
    assert all("@sha256:" in row["image"] and "github.com" in row["source"] for row in named.values())
    assert "made by dockerfiles/test_ubuntu24_04.Dockerfile" in named["test"]["use"]


def test_the_tables_are_listed(capsys: pytest.CaptureFixture[str]):
    code, out, _ = ask(capsys, "show")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:] if not line.startswith(" ")] == list(
        compat.TABLES
    )


@pytest.mark.parametrize(
    ("card", "last"),
    [
        ("RX 7900 XTX", "rocm-wheels install --venv .venv --gfx gfx1100"),
        ("RX 6600", "rocm-wheels install --venv .venv --gfx gfx1032"),
        ("gfx906", "windows: rocm-wheels install --venv .venv --channel nightly --gfx gfx906"),
        ("MI300X", "windows: no torch has kernels for it"),
        (
            "RX 580",
            "others have: torch 2.5.1 with ROCm 6.3.0 (https://github.com/robertrosenbusch/gfx803_rocm)",
        ),
        ("RTX 4090", "rocm-wheels install --venv .venv"),
    ],
)
def test_a_card_ends_with_the_command_that_installs(capsys: pytest.CaptureFixture[str], card: str, last: str):
    code, out, _ = ask(capsys, "gpu", *card.split())
    assert code == 0 and out.splitlines()[-1].strip().startswith(last)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "target"], "there is no table 'target'; did you mean targets?"),
        (["show", "pci"], "tip: tables: lines, targets,"),
        (["show", "targets", "gfx94"], "there is no target 'gfx94' in the table; did you mean gfx942?"),
        (["gpu", "gfx1199"], "gfx1199 is no GPU target (new:gfx1199 states"),
        (
            ["gpu", "gfx110"],
            "gfx110 is no GPU target; did you mean gfx1100, gfx1101, gfx1102 or gfx1103?\ntip: "
            "`rocm-wheels compat show targets` lists them",
        ),
        (["shw"], "Did you mean 'show'?"),
    ],
)
def test_wrong_input_is_named(capsys: pytest.CaptureFixture[str], words: list[str], message: str):
    code, out, err = ask(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err


def test_nothing_is_read_to_explain_the_group(capsys: pytest.CaptureFixture[str]):
    code, out, _ = ask(capsys, "--help")
    assert (code, "show" in out) == (0, True)
