"""The script that makes facts of the tests that TheRock skips: of lists as TheRock writes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from refresh_known_failures import refresh_known_failures
from rocm_wheels.core import errors, records
from rocm_wheels.models import torch_tests

GENERIC = """
skip_tests = {
    "gfx950": {"cuda": ["test_bf16", "test_fp16"]},
    "common": {
        "cuda": [
            # RuntimeError: not there
            # https://github.com/ROCm/TheRock/issues/7
            "test_a",
            "test_b",
            # Python 3.14: another way
            "test_c",
            # "test_gone",
            # ----------
            # SIGSEGV in it
            "test_d",
        ],
        "inductor": ["test_e"],
    },
    "windows": {
        "nn": [
            "test_Conv",  # Broad pattern
            # large
            "test_large"
            # hangs at times
            "test_hanging",
        ],
    },
}
"""
LATER = """
skip_tests = {"common": {"nn": [
    # launch failure on gfx950
    "test_f",
    # (the prior hang was another fault.) Fails alone
    "(TestNN and test_g)",
]}}
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    folder = tmp_path / "therock" / "external-builds" / "pytorch" / "skip_tests"
    folder.mkdir(parents=True)

    def ask_git(*words: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        argv = ["git", "-C", str(tmp_path / "therock"), *who, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    ask_git("init", "-q")
    first = GENERIC.replace("            # SIGSEGV in it\n", "")
    written = {"2026-04-08": ("generic.py", first), "2026-06-30": ("generic.py", GENERIC)}
    for day, (name, text) in {**written, "2025-12-01": ("pytorch_2.13.py", LATER)}.items():
        (folder / name).write_text(text.replace('"test_d"', '"test_d" ') if text == first else text)
        (folder / "create_skip_tests.py").write_text("raise SystemExit")
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"{day}T12:00:00Z")
        ask_git("add", ".")
        ask_git("commit", "-qm", day)
    return tmp_path / "therock", ask_git("rev-parse", "HEAD")


@pytest.mark.parametrize("remote", [False, True], ids=["clone", "GitHub"])
def test_names_of_therock_become_facts_with_owner_issue_and_day(
    checkout: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    folder, commit = checkout
    output = tmp_path / "known.yaml"
    words = ["--commit", commit, "--retrieved", "2026-11-26", "--output", str(output)]
    words += [] if remote else ["--checkout", str(folder)]
    if remote:  # git is told where GitHub is
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{folder.as_uri()}.insteadOf")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/ROCm/TheRock")
        for key in ("allowFilter", "allowAnySHA1InWant"):
            subprocess.run(["git", "-C", str(folder), "config", f"uploadpack.{key}", "true"], check=True)
    done = CliRunner().invoke(refresh_known_failures, words, catch_exceptions=False)
    assert "11 names of generic.py, pytorch_2.13.py" in done.output
    assert "left out, a pattern: windows/nn test_Conv" in done.output
    table = records.load_record(output, torch_tests.KnownTestTable)
    assert {source.at for source in table.sources.values()} == {commit}
    rows = {test: row for row in table.known for test in row.tests}
    assert set(rows) == {
        *(f"test_cuda.py::test_{name}" for name in ("bf16", "fp16", "a", "b", "c", "d")),
        *(f"test_nn.py::test_{name}" for name in ("large", "hanging", "f")),
        "test_nn.py::TestNN::test_g",
        "inductor/*.py::test_e",
    }
    of_class = rows["test_nn.py::TestNN::test_g"]
    assert (of_class.effect, of_class.reason) == ("fails", "Fails alone"), "the hang is of before"
    assert {test for test, row in rows.items() if row.effect == "crashes"} == {"test_cuda.py::test_d"}
    assert {test for test, row in rows.items() if row.effect == "hangs"} == {"test_nn.py::test_hanging"}
    both = rows["test_cuda.py::test_a"]
    assert both == rows["test_cuda.py::test_b"] and both.issue.endswith("TheRock/issues/7")
    assert "kind: tested" in output.read_text() and output.read_text().count("ROCm/TheRock\n") == 1
    assert (both.owner, str(both.expires), both.torch) == ("ROCm/TheRock", "2027-04-08", "")
    ends = {name: str(rows[f"test_cuda.py::test_{name}"].expires) for name in ("a", "d", "bf16")}
    assert ends == {"a": "2027-04-08", "d": "2027-05-25", "bf16": "2027-01-25"}, (
        "a year after it was written; no later than the last day, and what nobody explains on the first"
    )
    assert str(rows["test_nn.py::test_f"].expires) == "2027-01-25", "no row has ended when it is written down"
    assert rows["test_cuda.py::test_c"].pythons == ("3.14",)
    line = GENERIC.splitlines().index('            "test_d",') + 1
    assert rows["test_cuda.py::test_d"].issue.endswith(
        f"{commit}/external-builds/pytorch/skip_tests/generic.py#L{line}"
    )
    assert rows["test_cuda.py::test_d"].reason == "SIGSEGV in it"
    assert rows["test_cuda.py::test_bf16"].targets == ("gfx950",) == rows["test_nn.py::test_f"].targets
    assert (rows["test_nn.py::test_f"].torch, rows["test_nn.py::test_large"].platforms) == (
        "==2.13.*",
        ("windows",),
    )


def test_what_is_no_list_leaves_the_table_as_it_was(checkout: tuple[Path, str], tmp_path: Path) -> None:
    folder, commit = checkout
    output = tmp_path / "known.yaml"
    output.write_text("as it was")
    here = ["--checkout", str(folder), "--output", str(output)]
    for words, error in (
        (["--commit", "main"], errors.UsageError),
        (["--commit", commit, "--retrieved", "x"], errors.UsageError),
    ):
        with pytest.raises(error):
            CliRunner().invoke(refresh_known_failures, [*here, *words], catch_exceptions=False)
    lists = folder / "external-builds" / "pytorch" / "skip_tests"
    (lists / "generic.py").write_text("skip_tests = [")
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, "commit", "-qam", "x"], check=True)
    head = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    with pytest.raises(errors.DataError, match=r"generic\.py has no table"):
        CliRunner().invoke(
            refresh_known_failures, [*here, "--commit", head.stdout.strip()], catch_exceptions=False
        )
    assert output.read_text() == "as it was"
