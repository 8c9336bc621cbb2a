"""One parser of what names GPUs: every command, and every variable, refuses the same with the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.gpus import gpu, pci
from rocm_wheels.models import gfx

COMMANDS = (
    ["choose", "torch", "--gfx"],
    ["install", "--dry-run", "--venv", "{folder}/venv", "--gfx"],
    ["doctor", "--gfx"],
    ["configure", "--gfx"],
    ["compat", "gpu"],
    ["build", "--gfx"],
    ["audit", "--by-recipe", "pyproject.toml", "--gfx"],
    ["set", "list", "{folder}", "--passed"],
    ["set", "evidence", "add", "{folder}", "--set", "2.9.1-93bf", "--from", "{folder}", "--gfx"],
)


@pytest.mark.contract
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:2]))
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("gfx110", "gfx110 is no GPU target; did you mean gfx1100, gfx1101, gfx1102 or gfx1103?"),
        ("gfx1110", "gfx1110 is no GPU target; did you mean gfx1100? (new:gfx1110 states one that is newer"),
        ("gfx943", "gfx943 is no GPU target; did you mean gfx942? (new:gfx943 states one that is newer"),
        ("gfx1399", "gfx1399 is no GPU target (new:gfx1399 states one that is newer than the tables)"),
        ("gfx110X", "gfx110X is no GPU target; did you mean gfx110X-all or gfx110X-dgpu or gfx110X-igpu?"),
        ("gfx11-generic", "gfx11-generic is code for several GPUs, and none of them; say which: gfx1100,"),
        ("RX 7999", "no GPU of the tables is called 'RX 7999'"),
    ],
)
def test_a_target_that_nobody_knows_is_refused_by_all_commands_with_the_same_words(
    command: list[str], word: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "pytorch").mkdir()
    source = ["--source-dir", str(tmp_path)] if command[0] == "build" else []
    words = [text.format(folder=tmp_path) for text in command]
    assert boundary.run_command(main.cli, [*words, word, *source]) == 2
    said = capsys.readouterr().err
    suggestion = message.partition(" (new:")[0]
    takes_new = command[0] not in ("build", "audit", "set")  # which go by tables of what compilers know
    assert (message if takes_new else suggestion) in said
    assert takes_new or " (new:" not in said


def test_one_target_is_read_of_a_card_or_a_family_of_one_and_several_are_refused() -> None:
    for word, target in (("RX 7900 XTX", "gfx1100"), ("gfx94X-dcgpu", "gfx942"), ("gfx90a:xnack+", "gfx90a")):
        assert gfx.parse_single_target(word) == target
    with pytest.raises(errors.UsageError, match=r"--passed gfx110X-all names 4 targets"):
        gfx.parse_single_target("gfx110X-all", input_name="--passed")


@pytest.mark.contract
@pytest.mark.parametrize("command", ["choose torch --index .", "doctor", "configure"])
def test_a_variable_that_states_such_a_gpu_is_no_better(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_AMD_GPU_ARCHITECTURE", "gfx110")
    assert boundary.run_command(main.cli, command.split()) in (2, 17)
    said = capsys.readouterr()
    assert "UV_AMD_GPU_ARCHITECTURE: gfx110 is no GPU target; did you mean gfx1100," in said.out + said.err


def test_every_target_of_a_table_is_known_and_near_itself() -> None:
    cards = {entry.gfx for entry in pci.list_pci_entries() if entry.gfx}
    for name in {*gfx.get_gfx_targets(), *cards}:
        assert gpu.is_known_target(name) and gpu.parse_stated_target(name.upper()) == name
        assert gfx.read_gpu_words(f"{name}:xnack+")[0] == gfx.NamedGpus(f"{name}:xnack+", (name,), ":xnack+")
        assert name in gpu.find_near_targets(name[:-1]) or len(name[:-1]) <= len("gfx11")
    assert gfx.read_gpu_words("new:gfx942")[0].targets == ("gfx942",)  # the tables have caught up
