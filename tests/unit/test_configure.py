"""What is set for which cards and which torch, and what is left to the user. The machines are constructed."""

from __future__ import annotations

import json
import os
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest
from machines import CPU, gpu, programs
from machines import machine as machine_files
from pythons import install_torch

from rocm_wheels.cli import boundary, output
from rocm_wheels.cli.machine import configure_command
from rocm_wheels.core import installation
from rocm_wheels.gpus import variables
from rocm_wheels.gpus.gpu import Gpu, Hardware, RocmInstallation, find_generic_target
from rocm_wheels.models import gfx
from rocm_wheels.user.settings import (
    detect_shell,
    list_possible_overrides,
    make_configuration,
    make_settings,
    sort_by_hip_index,
)

OVERRIDE, HIP, ROCR = "HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
ONE, TWO = f"{OVERRIDE}_1", f"{OVERRIDE}_2"
RDNA2 = ("gfx1030", "gfx1100", "gfx90a", "gfx942")
APUS = {"gfx90c", "gfx1033", "gfx1035", "gfx1036", "gfx1103", "gfx1150", "gfx1151"}


def machine(
    text: str, env: dict[str, str] | None = None, rocm: str = "7.2.0", *, windows: bool = False
) -> Hardware:
    """``gfx1100 gfx1036``: cards in the runtime's order; targets of processors are integrated."""
    gpus = [
        Gpu("amd", gfx=one, native=one, index=i, integrated=one in APUS, uuid=f"GPU-{i}bcdef")
        for i, one in enumerate(text.split())
    ]
    marked, _ = variables.mark_visible_gpus(gpus, env or {}, windows=windows)
    return Hardware(tuple(marked), rocm=(RocmInstallation(rocm, "pip", "/site-packages"),) if rocm else ())


# cards, kernels in torch, the user's variables, nodes → what is set, and words of the notes
CASES = [
    ("gfx942", "gfx942", {}, (1,), {}, ""),
    ("gfx942", "gfx942:sramecc+:xnack-", {}, (1,), {}, ""),
    ("gfx1201", "gfx1201", {}, (1,), {}, ""),  # not 12.0.0
    ("gfx1036", "gfx10-3-generic", {}, (1,), {}, ""),
    ("gfx1031", "gfx1030 gfx1100", {}, (1,), {OVERRIDE: "10.3.0"}, ""),
    ("gfx1035", "gfx1030", {}, (1,), {OVERRIDE: "10.3.0"}, ""),
    ("gfx90c", "gfx900", {}, (1,), {OVERRIDE: "9.0.0"}, ""),
    ("gfx1031", "gfx1100", {}, (1,), {}, "no kernels for it; amd-multi-arch has a torch with"),
    ("gfx1010", "gfx1030", {}, (1,), {}, "no kernels"),  # 10.3.0 crashes it
    ("gfx1103", "gfx1100 gfx1102", {}, (1,), {OVERRIDE: "11.0.2"}, "nobody is known"),
    ("gfx1103", "gfx1100", {}, (1,), {}, "HSA_OVERRIDE_GFX_VERSION=11.0.0 might do, but is reported to hang"),
    ("gfx1102", "gfx1100", {}, (1,), {OVERRIDE: "11.0.0"}, "fewer vector registers"),
    # two cards
    ("gfx1031 gfx1032", "gfx1030", {}, (1, 2), {OVERRIDE: "10.3.0"}, ""),
    ("gfx1030 gfx1032", "gfx1030", {}, (1, 2), {OVERRIDE: "10.3.0"}, ""),
    ("gfx1100 gfx1032", "gfx1100 gfx1030", {}, (1, 2), {TWO: "10.3.0"}, "ROCm 6.2 and later"),
    ("gfx1101 gfx1032", "gfx1100 gfx1030", {}, (1, 2), {ONE: "11.0.0", TWO: "10.3.0"}, ""),
    ("gfx1100 gfx1032", "gfx1100 gfx1030", {}, (), {HIP: "0"}, "breaks the other cards"),
    ("gfx1032 gfx1100", "gfx1100", {}, (1, 2), {HIP: "1"}, "gfx1032: torch has no kernels"),
    ("gfx900 gfx942 gfx942", "gfx942", {}, (1, 2, 3), {HIP: "1,2"}, "gfx900"),
    # an integrated GPU beside a discrete one
    ("gfx1036 gfx1100", "gfx1100", {}, (1, 2), {HIP: "1"}, "gfx1036"),
    ("gfx1100 gfx1036", "gfx1100 gfx1030", {}, (1, 2), {HIP: "0"}, ""),
    ("gfx1100 gfx1036", "gfx1100 gfx1036", {}, (1, 2), {}, ""),
    ("gfx1032 gfx1036", "gfx1030", {}, (1, 2), {OVERRIDE: "10.3.0", HIP: "0"}, ""),
    # what is not in use must not break the runtime: another major version would
    ("gfx1032 gfx90c", "gfx1030", {}, (1, 2), {ONE: "10.3.0", HIP: "0"}, ""),
    ("gfx1036 gfx1151", "gfx1030", {}, (), {}, "exclude each other"),
    # the user's own values
    ("gfx1036 gfx1100", "gfx1100", {HIP: "0"}, (1, 2), {}, "no kernels"),
    ("gfx1036 gfx1100 gfx1100", "gfx1100", {HIP: "0,1"}, (1, 2, 3), {}, f"{HIP}=0,1 is your own and stays"),
    ("gfx1036 gfx1100", "gfx1100", {"CUDA_VISIBLE_DEVICES": "1"}, (1, 2), {}, ""),
    ("gfx1031", "gfx1030", {OVERRIDE: "10.3.0"}, (1,), {}, "is your own and stays"),
    ("gfx1031", "gfx1030", {OVERRIDE: ""}, (1,), {}, "set and empty"),
    ("gfx1036 gfx1100 gfx1100", "gfx1100", {ROCR: "2,0"}, (1, 2, 3), {HIP: "0"}, ""),
    ("gfx1036 gfx1100 gfx1100", "gfx1100", {ROCR: "GPU-0bcdef,GPU-1bcdef"}, (1, 2, 3), {HIP: "1"}, ""),
    ("gfx1036 gfx1100", "gfx1100", {ROCR: "1"}, (1, 2), {}, ""),
    # nothing to do
    ("", "gfx942", {}, (), {}, "no AMD GPU that the ROCm runtime numbers"),
    ("gfx942", "", {}, (1,), {}, "no kernels for AMD GPUs"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_only_what_a_card_needs(
    case: tuple[str, str, dict[str, str], tuple[int, ...], dict[str, str], str],
) -> None:
    cards, kernels, env, nodes, wanted, said = case
    hardware = machine(cards, env)
    if env.get(OVERRIDE):
        hardware = replace(hardware, gpus=tuple(replace(gpu, gfx="gfx1030") for gpu in hardware.gpus))
    settings, notes = make_settings(hardware, kernels.split(), env, "linux", nodes=nodes)
    assert {one.name: one.value for one in settings} == wanted
    assert said in "\n".join(notes)
    assert all(one.why and one.source.startswith("https://") for one in settings)
    assert not set(env) & {one.name for one in settings}


def test_what_the_platform_does_not_read_is_not_set() -> None:
    settings, notes = make_settings(machine("gfx1031"), RDNA2, {}, "win32", nodes=(1,))
    assert settings == () and "Windows does not read" in notes[0]
    env = {ROCR: "0"}
    cards = machine("gfx1036 gfx1100", env, windows=True)
    settings, _ = make_settings(cards, ["gfx1100"], env, "win32")
    assert [(one.name, one.value) for one in settings] == [(HIP, "1")]
    settings, _ = make_settings(Hardware(), None, {}, "darwin")
    assert [(one.name, one.value) for one in settings] == [("PYTORCH_ENABLE_MPS_FALLBACK", "1")]
    assert make_settings(Hardware(), None, {"PYTORCH_ENABLE_MPS_FALLBACK": "0"}, "darwin")[0] == ()


def test_old_runtimes_override_all_cards_or_none() -> None:
    hardware = machine("gfx1100 gfx1032", rocm="6.1.3")
    own, _ = make_settings(hardware, ["gfx1100", "gfx1030"], {}, "linux", nodes=(1, 2), rocm="7.2")
    assert [(one.name, one.value) for one in own] == [(TWO, "10.3.0")], "it is torch's runtime that counts"
    newer = machine("gfx1100 gfx1032", rocm="7.2.0")
    old, _ = make_settings(newer, ["gfx1100", "gfx1030"], {}, "linux", nodes=(1, 2), rocm="6.1.40093")
    assert [(one.name, one.value) for one in old] == [(HIP, "0")]
    settings, _ = make_settings(hardware, RDNA2, {}, "linux", nodes=(1, 2))
    assert {one.name: one.value for one in settings} == {HIP: "0"}


def test_unknown_things_are_left_alone() -> None:
    nothing = "unknown which kernels torch has: nothing is set"
    assert make_settings(machine("gfx1031"), None, {}, "linux") == ((), (nothing,))
    unknown = Gpu("amd", index=1, name="AMD Radeon 99", confidence="unknown")
    hardware = replace(machine("gfx1100"), gpus=(*machine("gfx1100").gpus, unknown))
    settings, notes = make_settings(hardware, ["gfx1100"], {}, "linux")
    assert settings == () and "AMD Radeon 99 (unknown target): nothing tells its target" in notes[0]
    other = Hardware((Gpu("nvidia", name="RTX 4090"), Gpu("intel", integrated=True)))
    assert make_settings(other, ["gfx1100"], {}, "linux")[0] == ()


def test_an_intel_gpu_does_not_shift_the_numbers() -> None:
    intel = Gpu("intel", integrated=True)
    hardware = replace(machine("gfx1100"), gpus=(intel, *machine("gfx1100").gpus))
    assert make_settings(hardware, ["gfx1100"], {}, "linux") == ((), ())
    assert [gpu.gfx for gpu in sort_by_hip_index(hardware.gpus)] == ["gfx1100"]


def test_the_table_of_overrides_is_sound() -> None:
    table = gfx.load_overrides()
    for card, options in {**table.cards, **table.refused}.items():
        for option in options:
            assert option.note or option.care or option.kind == "documented", (card, option)
    for card, options in table.cards.items():
        for option in options:  # they share a generic target
            assert find_generic_target(card) == find_generic_target(option.target)
            assert not option.risky or option.care
        refused = {option.target for option in table.refused.get(card, ())}
        assert not refused & {option.target for option in options}
    possible = list_possible_overrides("gfx1103", {"gfx1100", "gfx1102"})
    assert [option.target for option in possible] == ["gfx1102", "gfx1100"]


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch with kernels for gfx1100 alone, and no variable of this machine's user."""
    for name in [name for name in os.environ if name.startswith(("HSA_", "HIP_", "ROCR_", "CUDA_", "ROCM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("SHELL", "/bin/bash")
    install_torch(tmp_path, "gfx1100")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


@pytest.mark.contract
@pytest.mark.skipif(sys.platform != "linux", reason="overrides are read on Linux")
@pytest.mark.usefixtures("torch")
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run_command(configure_command, ["--gfx", "gfx1102", "--print"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "export HSA_OVERRIDE_GFX_VERSION=11.0.0\n", "nothing else: it is for eval"
    assert "fewer vector registers" in printed.err
    assert boundary.run_command(configure_command, ["--gfx", "gfx1102", "--print", "zsh"]) == 0
    assert capsys.readouterr().out == printed.out
    assert boundary.run_command(configure_command, ["--print", "github", "--gfx", "gfx1100,gfx1036"]) == 0
    assert capsys.readouterr().out == "HIP_VISIBLE_DEVICES=0\n"
    assert boundary.run_command(configure_command, ["--gfx", "gfx1100", "--print"]) == 0
    assert capsys.readouterr().out == ""
    assert boundary.run_command(configure_command, ["--gfx", "gfx1102", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["settings"][0]["source"].startswith("https://") and said["targets"] == ["gfx1100"]
    assert boundary.run_command(configure_command, ["--gfx", "gfx1100"]) == 0
    assert "no variable is needed" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="overrides are read on Linux")
@pytest.mark.usefixtures("torch")
def test_commands_are_told_as_the_user_started_us(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_find_own_command", lambda *_: "uvx rocm-wheels")
    assert boundary.run_command(configure_command, ["--gfx", "gfx1100,gfx1201"]) == 0
    told = capsys.readouterr().err
    assert (
        'eval "$(uvx rocm-wheels configure --print --gfx gfx1100,gfx1201)"' in told
        and "see `uvx rocm-wheels doctor --gfx gfx1100,gfx1201`" in told
    )


@pytest.mark.contract
@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("words", [[], ["--print"], ["--json"]])
def test_a_torch_that_no_variable_helps_is_an_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundary.run_command(configure_command, ["--gfx", "gfx1201,gfx942", *words]) == 17
    printed = capsys.readouterr()
    tip = "`rocm-wheels doctor --gfx gfx1201,gfx942` names the torch that has them"
    assert f"has no kernels for gfx1201, gfx942\ntip: {tip}" in printed.err
    assert "no variable is needed" not in printed.out and (words == ["--json"]) == bool(printed.out)
    assert boundary.run_command(configure_command, ["--gfx", "gfx1201,gfx1100", *words]) == 0
    capsys.readouterr()
    assert boundary.run_command(configure_command, ["--gfx", "gfx803", *words]) == 17
    assert "has no kernels for gfx803\ntip: others have: torch" in capsys.readouterr().err


@pytest.mark.contract
@pytest.mark.skipif(sys.platform != "linux", reason="overrides are read on Linux")
def test_a_stated_card_needs_no_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then it is about the torch that would be installed: stable ones have none for gfx90c itself."""
    python = tmp_path / "venv"
    venv.create(python, symlinks=True)

    def ask(card: str) -> tuple[int, str, str]:
        code = boundary.run_command(configure_command, ["--print", "--python", str(python), "--gfx", card])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    assert ask("gfx90c")[:2] == (0, "export HSA_OVERRIDE_GFX_VERSION=9.0.0\n")
    assert ask("RX 7900 XTX")[:2] == (0, "")
    code, out, err = ask("RX 580")
    assert (code, out) == (17, "") and "no ROCm of today compiles for it" in err


@pytest.mark.skipif(sys.platform != "linux", reason="overrides are read on Linux")
def test_a_whole_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An override for the one card that needs it, by the runtime's number, which counts processors."""
    install_torch(tmp_path / "site", "gfx1100", "gfx1201")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    nodes = [CPU, CPU, gpu(120001, 0x7550, 3), gpu(110002, 0x7480, 7), gpu(100306, 0x164E, 9, 4)]
    root = machine_files(tmp_path / "root", *nodes)

    def configured(**env: str) -> dict[str, str]:
        return make_configuration(env, platform="linux", root=root, run=programs()).variables

    assert configured() == {f"{OVERRIDE}_3": "11.0.0", HIP: "0,1"}
    (root / "dev/dri/renderD130").unlink()  # a container without the first card
    assert configured() == {TWO: "11.0.0", HIP: "0"}
    (root / "dev/kfd").unlink(missing_ok=True)
    (root / "dev/dxg").touch()  # WSL
    named = "HSA_ENABLE_DXG_DETECTION"
    assert configured()[named] == "1"
    assert named not in configured(**{named: "0"})
    (root / "dev/dxg").unlink()
    # what a variable states has no place among the nodes that are here
    assert configured(ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH="gfx1201,gfx1102") == {HIP: "0"}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--print", "--json"], 2, "--print and --json exclude each other"),
        (["--print", "csh"], 2, "'csh' is not one of"),
        (["--python", ""], 2, "the path is empty; is a variable not set?"),
        (["--gfx", "RX 7990 XTX"], 2, "no GPU of the tables is called 'RX 7990 XTX'"),
        (["--gfx", "gfx11"], 2, "gfx11 is no GPU target"),
        (["--gfx", "gfx1110"], 2, "gfx1110 is no GPU target; did you mean gfx1100? (new:gfx1110 states"),
        (["--gfx", "gfx11-generic"], 2, "is code for several GPUs"),
        (["--gfx", ","], 2, "--gfx names no GPU"),
        (["--python", "/nowhere/python"], 2, "there is no Python /nowhere/python"),
    ],
)
@pytest.mark.usefixtures("torch")
def test_wrong_words(words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run_command(configure_command, words) == code
    printed = capsys.readouterr()
    assert said in printed.err and printed.out == ""


def test_lines_are_what_each_shell_reads() -> None:
    lines = {
        "sh": ["export A=0,1", "export B='it'\"'\"'s'"],
        "fish": ["set -gx A '0,1'", "set -gx B 'it\\'s'"],
        "powershell": ["$Env:A = '0,1'", "$Env:B = 'it''s'"],
        "cmd": ['set "A=0,1"', 'set "B=it\'s"'],
        "github": ["A=0,1", "B=it's"],
    }
    for name, expected in lines.items():
        values = {"A": "0,1", "B": "it's"}
        assert [
            output.format_variable(variable, value, name) for variable, value in values.items()
        ] == expected
    assert detect_shell({"SHELL": "/usr/bin/fish"}, "linux") == "fish"
    assert (detect_shell({}, "linux"), detect_shell({}, "win32")) == ("sh", "powershell")
