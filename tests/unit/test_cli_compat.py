"""``rocm-wheels compat``: what the commands print, and what they say to wrong input."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.compat import TABLES
from rocm_wheels.cli.main import cli
from rocm_wheels.models import get_gfx_targets, load_compat_tables


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run_command(cli, ["compat", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("table", TABLES)
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
    assert [line.split()[0] for line in rows] == list(get_gfx_targets())
    assert max(map(len, rows)) > 160
    assert "target  gfx942\n" in piped
    shown = [line for line in f"{piped}{listed}".splitlines() if "://" not in line]  # addresses stay whole
    assert max(map(len, shown)) <= 80


def test_the_tables_are_listed(capsys: pytest.CaptureFixture[str]):
    code, out, _ = ask(capsys, "show")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:] if not line.startswith(" ")] == list(TABLES)


@pytest.mark.parametrize(
    ("card", "last"),
    [
        ("RX 7900 XTX", "rocm-wheels install --venv .venv --gfx gfx1100"),
        ("RX 6600", "rocm-wheels install --venv .venv --gfx gfx1032"),
        ("gfx906", "windows: rocm-wheels install --venv .venv --channel nightly --gfx gfx906"),
        ("MI300X", "windows: no torch has kernels for it"),
        ("RX 580", "rocm-wheels checkout && rocm-wheels build --gfx gfx803 "),
        ("RTX 4090", "rocm-wheels install --venv .venv"),
    ],
)
def test_a_card_ends_with_the_command_that_installs(capsys: pytest.CaptureFixture[str], card: str, last: str):
    code, out, _ = ask(capsys, "gpu", *card.split())
    assert code == 0 and out.splitlines()[-1].strip().startswith(last)


def test_the_matrix_narrows_down(capsys: pytest.CaptureFixture[str]):
    code, out, _ = ask(capsys, "matrix", "--json")
    every = json.loads(out)["builds"]
    words = ("--gfx", "RX 7900 XTX", "--torch", "2.13", "--platform", "windows", "--python", "3.12")
    _, out, _ = ask(capsys, "matrix", *words, "--json")
    some = json.loads(out)["builds"]
    assert (code, len(every) > 40, [row["rocm"] for row in some]) == (0, True, ["10.1.0", "10.0.0"])
    assert {row["gpu"] for row in some} == {"gfx1100"}
    same_answers = [ask(capsys, "matrix", *words[:-1], name, "--json") for name in ("python3.12", "cp312")]
    assert same_answers == [(0, out, "")] * 2
    running = f"3.{sys.version_info[1]}"
    asked = [ask(capsys, "matrix", "--python", name) for name in (running, sys.executable)]
    assert asked[0] == asked[1]
    _, out, _ = ask(capsys, "matrix", "--gfx", "gfx1031", "--channel", "all", "--json")
    assert {(row["index"], row["kind"]) for row in json.loads(out)["builds"]} >= {
        ("amd-multi-arch", "packaged"),
        ("amd-nightly", "documented"),
    }
    code, out, _ = ask(capsys, "matrix", "--gfx", "gfx906", "--platform", "windows")
    assert (code, out.startswith("no build of the tables fits")) == (0, True)


def test_explain_says_who_says_so(capsys: pytest.CaptureFixture[str]):
    words = ("explain", "--torch", "2.12.0", "--rocm", "7.14.0", "--gfx", "gfx90a")
    code, out, _ = ask(capsys, *words)
    assert (code, out.splitlines()[0]) == (
        0,
        "yes: torch 2.12.0 with ROCm 7.14.0 serves gfx90a on linux: amd-multi-arch",
    )
    assert "packaged, 2026-11-21: https://github.com/ROCm/pytorch/issues/3518" in out
    assert "! kernels: every kernel fails with hipErrorInvalidImage" in out
    assert (
        "from https://repo.amd.com/rocm/whl-multi-arch/ with torchvision 0.27.0; triton is called triton"
        in out
    )
    _, out, _ = ask(capsys, *words, "--json")
    said = json.loads(out)
    assert (said["answer"], said["builds"][0]["index"]) == ("yes", "amd-multi-arch")
    assert {"says", "text", "kind", "source", "retrieved", "note"} == set(said["facts"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "target"], "there is no table 'target'; did you mean targets?"),
        (["show", "pci"], "tip: tables: targets,"),
        (["matrix", "--gfx", "gfx110"], "--gfx: 'gfx110' can mean gfx1100, gfx1101, gfx1102, gfx1103"),
        (
            ["matrix", "--gfx", "gfx9420"],
            "--gfx: 'gfx9420' is no GPU target or product; did you mean gfx942?",
        ),
        (["matrix", "--gfx", "gfx803"], "--gfx: 'gfx803' is no GPU target or product\n"),  # nothing near
        (["gpu", "gfx1199"], "gfx1199 is no GPU target; did you mean gfx11"),
        (["gpu", "gfx942", "gfx1100"], "tip: `rocm-wheels compat show targets` lists them"),
        (["matrix", "--gfx", "RX 7990 XTX"], "did you mean Radeon RX 7900 XTX?"),
        (["matrix", "--gfx", "gfx942:xnack"], "gfx942:xnack has an unknown feature"),
        (["matrix", "--gfx", ""], "--gfx: '' is no GPU target"),
        (["matrix", "--torch", "2.31"], "--torch: no table has 2.31; did you mean 2."),
        (["matrix", "--torch", "two"], "--torch: 'two' is not a version"),
        (["matrix", "--rocm", "7.3"], "--rocm: no table has 7.3"),
        (["matrix", "--python", "pithon"], "--python: 'pithon' is not a Python"),
        (["matrix", "--torch", ""], "--torch: '' is not a version"),
        (["matrix", "--platform", "macos"], "'macos' is not one of 'linux', 'windows'"),
        (["explain", "--torch", "2.13", "--rocm", "7.2"], "Missing option '--gfx'"),
        (
            ["explain", "--torch", "2.13", "--rocm", "rocm7", "--gfx", "gfx942"],
            "--rocm: 'rocm7' is not a version",
        ),
        (["explain", "--torch", "2.13", "--rocm", "7.2", "--gfx", "gfx-942"], "did you mean gfx942?"),
        (["lnt"], "Did you mean 'lint'?"),
    ],
)
def test_wrong_input_is_named(capsys: pytest.CaptureFixture[str], words: list[str], message: str):
    code, out, err = ask(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err


def test_lint_ends_with_14_when_a_table_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert ask(capsys, "lint")[0] == 0
    held = load_compat_tables()
    issue = held.issues.issues[0].model_copy(update={"targets": ("gfx943",)})
    torn = held.issues.model_copy(update={"issues": (issue, *held.issues.issues[1:])})
    monkeypatch.setattr("rocm_wheels.models.lint.load_compat_tables", lambda: replace(held, issues=torn))
    code, out, err = ask(capsys, "lint")
    assert (code, "gfx943 is no GPU target; did you mean gfx942?" in out) == (14, True)
    assert "1 error in the compatibility tables" in err
    code, out, _ = ask(capsys, "lint", "--json")
    assert (code, json.loads(out)["findings"][0]["level"]) == (14, "error")


def test_nothing_is_read_to_explain_the_group(capsys: pytest.CaptureFixture[str]):
    code, out, _ = ask(capsys, "--help")
    assert (code, "explain" in out) == (0, True)
