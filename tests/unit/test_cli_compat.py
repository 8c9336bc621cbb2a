"""``rocm-wheels compat``: what the commands print, and what they say to wrong input."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.cli import boundary, main
from rocm_wheels.models import ci, fact_tables, gfx, project_names

pytestmark = pytest.mark.contract


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = boundary.run_command(main.cli, ["compat", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


TABLES = fact_tables.list_tables()


def list_rows(printed: str) -> list[dict[str, Any]]:
    """Every row that --json prints of a table."""
    sections = fact_tables.list_sections(json.loads(printed))
    return [row for _, content in sections for _, row in fact_tables.list_rows(content)]


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_shown_with_its_sources(capsys: pytest.CaptureFixture[str], table: str):
    code, out, _ = ask(capsys, "show", table, "--json")
    document = json.loads(out)
    assert (code, document["table"]["name"], len(list_rows(out)) > 5) == (0, table, True)
    code, out, _ = ask(capsys, "show", table)
    assert code == 0
    if table not in ("lines", "artifacts", "estimates"):  # whose rows name their places themselves
        assert "[1] https://" in out and "read by" in out and "ends" in out
        assert max(map(int, re.findall(r"^\[([0-9]+)\] ", out, re.MULTILINE))) <= len(document["sources"])


def test_tables_fit_a_pipe_and_what_columns_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("COLUMNS")
    _, piped, _ = ask(capsys, "show", "targets")
    _, listed, _ = ask(capsys, "show")
    monkeypatch.setenv("COLUMNS", "900")
    _, wide, _ = ask(capsys, "show", "targets")
    rows = [line for line in wide.splitlines() if line.startswith("gfx")]
    assert [line.split()[0] for line in rows] == list(gfx.get_gfx_targets())
    assert max(map(len, rows)) > 160
    assert "targets  gfx942\n" in piped
    shown = [line for line in f"{piped}{listed}".splitlines() if "://" not in line]  # addresses stay whole
    assert [line for line in shown if len(line) > 80 and not line.startswith("read by")] == [
        TABLES["targets"][0].about
    ]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("indexes amd-stable", {"amd-stable"}),
        ("images test", None),
        ("dtypes half", None),
        ("issues gfx1151", None),
        ("features AOT\u0020Autograd", None),
    ],
)
def test_rows_are_shown_by_their_name_or_a_value(
    capsys: pytest.CaptureFixture[str], words: str, names: set[str] | None
):
    table, word = words.split(" ", 1)
    code, out, _ = ask(capsys, "show", table, word, "--json")
    rows = list_rows(out)
    assert (code, 0 < len(rows) < len(list_rows(ask(capsys, "show", table, "--json")[1]))) == (0, True)
    assert names is None or {row["name"] for row in rows} == names


def test_an_alias_of_a_dtype_brings_all_that_is_said_of_it(capsys: pytest.CaptureFixture[str]):
    for word in ("half", "torch.half", "float16", "HALF"):
        document = json.loads(ask(capsys, "show", "dtypes", word, "--json")[1])
        sections = dict(fact_tables.list_sections(document))
        assert {name: list(rows) for name, rows in sections.items()} == {
            "dtypes": ["float16"],
            "tolerances": ["float16"],
            "support": ["float16"],
        }
    assert "not natively supported" in ask(capsys, "show", "dtypes", "uint16")[1]
    assert "only official releases" in ask(capsys, "show", "domains", "torchrl")[1]


def test_images_of_containers_are_listed_by_name_with_their_digests(capsys: pytest.CaptureFixture[str]):
    named = json.loads(ask(capsys, "show", "images", "--json")[1])["images"]
    assert named.keys() == ci.load_container_table().images.keys() and len(named) > 6
    assert all(row["digest"].startswith("sha256:") for row in named.values())
    assert named["test"]["dockerfile"] == "test_ubuntu24_04.Dockerfile"


def test_the_tables_are_listed(capsys: pytest.CaptureFixture[str]):
    code, out, _ = ask(capsys, "show")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:] if not line.startswith(" ")] == list(TABLES)
    heads = json.loads(ask(capsys, "show", "--json")[1])["tables"]
    assert all(head["about"] and head["read_by"] and head["ends"] for head in heads)
    with_sources = [
        path
        for path in project_names.get_data_folder().glob("*.yaml")
        if "\nsources:" in path.read_text(encoding="utf-8")
    ]
    untold = {path.stem for path in with_sources} - {path.stem for _, path in TABLES.values()}
    assert untold == {"therock_known_tests"}, "a script writes it, for the table of tests"


@pytest.mark.parametrize(
    ("card", "last"),
    [
        ("RX 7900 XTX", "rocm-wheels install --venv my-torch --gfx gfx1100"),
        ("RX 6600", "rocm-wheels install --venv my-torch --gfx gfx1032"),
        ("gfx906", "windows: rocm-wheels install --venv my-torch --channel nightly --gfx gfx906"),
        ("MI300X", "windows: no torch has kernels for it"),
        (
            "RX 580",
            "others have: torch 2.5.1 with ROCm 6.3.0 (https://github.com/robertrosenbusch/gfx803_rocm)",
        ),
        ("RTX 4090", "rocm-wheels install --venv my-torch"),
    ],
)
def test_a_card_ends_with_the_command_that_installs(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    card: str,
    last: str,
):
    monkeypatch.chdir(tmp_path)
    code, out, _ = ask(capsys, "gpu", *card.split())
    assert code == 0 and out.splitlines()[-1].strip().startswith(last)


def test_the_command_for_a_card_is_one_that_can_be_pasted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """In the form in which this was started, and never into the environment of this program."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(sys, "argv", ["/clone/.venv/bin/rocm-wheels", "compat"])
    _, out, _ = ask(capsys, "gpu", "gfx1100")
    last = "/clone/.venv/bin/rocm-wheels install --venv my-torch --gfx gfx1100"
    assert out.splitlines()[-1].strip() == last
    _, out, _ = ask(capsys, "gpu", "gfx1100", "--json")
    assert json.loads(out)["targets"][0]["install"] == {"linux": last, "windows": last}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "target"], "there is no table 'target'; did you mean targets?"),
        (["show", "pci"], "tip: tables: artifacts, builds, ci,"),
        (
            ["show", "targets", "gfx94"],
            "no row of the table targets has the name or value 'gfx94'; did you mean gfx942 or gfx94X-all",
        ),
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
