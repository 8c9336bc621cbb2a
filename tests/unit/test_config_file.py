"""The configuration file: which holds, what it sets, what wins over it, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocm_wheels.cli import boundary, main

CONFIG = """\
source-dir = "trees"  # of all commands that have it

[build]
gfx = ["gfx942", "gfx1100"]
install-rocm = true
output-dir = "dist"

[rocm.install]
rocm-index = "https://example.org/whl/"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROCM_WHEELS_CONFIG", raising=False)
    return tmp_path


def show(
    capsys: pytest.CaptureFixture[str], *words: str, before: tuple[str, ...] = ()
) -> dict[str, tuple[str, str]]:
    """Return option: (value, where it is from) of ``settings COMMAND``."""
    assert boundary.run_command(main.cli, ["settings", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["options"]
    return {row["option"]: (row["value"], row["from"]) for row in rows}


@pytest.mark.contract
def test_options_of_a_command_and_of_all(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rocm-wheels.toml").write_text(CONFIG)
    build = show(capsys, "build")
    assert build["--gfx"] == ("gfx942,gfx1100", "rocm-wheels.toml: build.gfx")
    assert build["--install-rocm"] == ("true", "rocm-wheels.toml: build.install-rocm")
    assert build["--output-dir"] == (str(folder / "dist"), "rocm-wheels.toml: build.output-dir")
    assert build["--source-dir"] == (str(folder / "trees"), "rocm-wheels.toml: source-dir")
    assert build["--work-dir"][1] == "default"
    assert show(capsys, "rocm", "install")["--rocm-index"][1] == "rocm-wheels.toml: rocm.install.rocm-index"
    assert boundary.run_command(main.cli, ["settings", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["file"] == str(folder / "rocm-wheels.toml")
    assert len(shown["entries"]) == 5


def test_help_says_where_a_value_is_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rocm-wheels.toml").write_text(CONFIG)
    assert boundary.run_command(main.cli, ["build", "--help"]) == 0
    assert "[rocm-wheels.toml:build.gfx]" in "".join(capsys.readouterr().out.split())


@pytest.mark.contract
def test_it_is_looked_for_upward_and_paths_are_from_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[project]\nname = 'x'\n[tool.rocm-wheels.build]\noutput-dir = 'dist'\n"
    (folder / "pyproject.toml").write_text(text)
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    (folder / "a" / "pyproject.toml").write_text("[project]\nname = 'no table of ours'\n")
    monkeypatch.chdir(below)
    assert show(capsys, "build")["--output-dir"] == (
        str(folder / "dist"),
        f"{folder / 'pyproject.toml'}: build.output-dir",
    )


@pytest.mark.contract
def test_the_command_line_wins_and_another_file_can_be_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rocm-wheels.toml").write_text("[matrix]\nplatform = 'windows'\n")
    (folder / "other.toml").write_text("[matrix]\nplatform = 'linux'\n")
    words = ["matrix", "--line", "2.9", "--family", "gfx94X-dcgpu", "--python", "3.12"]
    assert boundary.run_command(main.cli, [*words, "--platform", "linux", "--json"]) == 0
    named = capsys.readouterr().out
    assert boundary.run_command(main.cli, ["--config", "other.toml", *words, "--json"]) == 0
    assert capsys.readouterr().out == named
    assert show(capsys, "matrix")["--platform"] == ("windows", "rocm-wheels.toml: matrix.platform")
    monkeypatch.setenv("ROCM_WHEELS_PLATFORM", "linux")
    assert show(capsys, "matrix")["--platform"] == ("linux", "variable ROCM_WHEELS_PLATFORM")
    monkeypatch.delenv("ROCM_WHEELS_PLATFORM")
    monkeypatch.setenv("ROCM_WHEELS_CONFIG", "")
    assert show(capsys, "matrix")["--platform"][1] == "default"


@pytest.mark.contract
def test_settings_of_all_commands_are_variables_and_those_win(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rocm-wheels.toml").write_text("retries = 0\njobs = 3\n")
    monkeypatch.setenv("ROCM_WHEELS_JOBS", "5")
    monkeypatch.setenv("ROCM_WHEELS_RETRIES", "")
    env = boundary.read_environment()
    assert (env["ROCM_WHEELS_RETRIES"], env["ROCM_WHEELS_JOBS"]) == ("0", "5")
    assert "ROCM_WHEELS_TIMEOUT" not in env
    rows = show(capsys, "rocm", "show")
    assert rows["retries"] == ("0", "rocm-wheels.toml: retries")
    assert rows["jobs"] == ("5", "variable ROCM_WHEELS_JOBS")
    assert "timeout" not in rows


@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("timeout = 60\n", "default"),  # the silence of a server is no limit of a test
        ("[test.torch]\ntimeout = 60\n", "rocm-wheels.toml: test.torch.timeout"),
    ],
)
def test_a_setting_is_not_an_option_of_that_name(
    text: str, origin: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rocm-wheels.toml").write_text(text)
    assert show(capsys, "test", "torch")["--timeout"][1] == origin


@pytest.mark.contract
@pytest.mark.parametrize("key", ["source-dir", "gfx"])
def test_options_of_several_commands_may_stand_above_all_tables(
    key: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rocm-wheels.toml").write_text(f"{key} = 'gfx942'\n")
    assert show(capsys, "lock", "make")[f"--{key}"][1] == f"rocm-wheels.toml: {key}"


@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ('[tool]\nrocm-wheels = {gfx = "gfx942"}\n', True),
        ('[ tool."rocm-wheels" ]\ngfx = "gfx942"\n', True),
        ("{% template of rocm-wheels %}\n", False),
        ('[project]\nname = "rocm-wheels-plugin"\n', False),
    ],
)
def test_a_pyproject_is_ours_where_it_has_our_table(
    text: str, is_ours: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text(text)
    place = show(capsys, "build")["--gfx"][1]
    assert place == ("pyproject.toml: gfx" if is_ours else "default")


@pytest.mark.contract
def test_a_variable_that_a_command_does_not_use_is_no_fault_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_JOBS", "auto")
    assert boundary.run_command(main.cli, ["compat", "show", "lines"]) == 0


WRONG = [
    ("[biuld]\n", "rocm-wheels.toml: biuld: there is no command biuld", "build"),
    ("[build]\n\ngfxx = 'gfx942'\n", "rocm-wheels.toml: build.gfxx: `build` has no option --gfxx", "gfx"),
    ("[build]\ninstall-rocm = 'yes'\n", "rocm-wheels.toml: build.install-rocm is true or false", ""),
    ("[build]\nwork-dir = ['a', 'b']\n", "rocm-wheels.toml: build.work-dir takes one value, not a list", ""),
    ("[build]\ngfx = {a = 1}\n", "rocm-wheels.toml: build.gfx: ", ""),
    ("[rocm.instal]\npre = true\n", "rocm-wheels.toml: rocm.instal: `rocm` has no command instal", "install"),
    ("[install-rocm]\npre = true\n", "there is no command install-rocm; it is [rocm.install]", ""),
    ("retag = 1\n", "rocm-wheels.toml: retag is no option that several commands share", ""),
    ("pre = false\n", "rocm-wheels.toml: pre is of no build", '[build] rocm = "==7.10.0"'),
    ("retries = 101\n", "rocm-wheels.toml: retries: ROCM_WHEELS_RETRIES='101' is not", "from 0 to 100"),
    ("timeout = true\n", "rocm-wheels.toml: timeout: ROCM_WHEELS_TIMEOUT='True' is not", ""),
    ("[build\n", "rocm-wheels.toml:1:", ""),
]


@pytest.mark.contract
@pytest.mark.parametrize(("text", "error", "near"), WRONG)
def test_wrong_file_is_one_error_with_its_key(
    text: str, error: str, near: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rocm-wheels.toml").write_text(text)
    assert boundary.run_command(main.cli, ["settings"]) != 0
    errors = capsys.readouterr().err
    assert error in errors
    assert near in errors
    assert "Traceback" not in errors


@pytest.mark.contract
def test_wrong_value_names_its_key_when_the_command_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rocm-wheels.toml").write_text("[matrix]\nplatform = 'linx'\n")
    assert boundary.run_command(main.cli, ["matrix"]) == 2
    assert "rocm-wheels.toml: matrix.platform" in capsys.readouterr().err


@pytest.mark.contract
def test_pyproject_with_a_mistake_is_an_error_where_it_has_our_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text("{{ a template for rocm-wheels }}\n")
    assert boundary.run_command(main.cli, ["settings"]) == 0
    (folder / "ours").mkdir()
    (folder / "ours" / "pyproject.toml").write_text("[tool.rocm-wheels.build]\ngfx = \n")
    monkeypatch.chdir(folder / "ours")
    assert boundary.run_command(main.cli, ["settings"]) != 0
    assert "pyproject.toml:2:" in capsys.readouterr().err


@pytest.mark.contract
def test_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run_command(main.cli, ["--config", "none.toml", "matrix"]) == 2
    assert "there is no file none.toml" in capsys.readouterr().err


@pytest.mark.contract
def test_commands_without_source_dir_look_where_those_with_it_work(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rocm-wheels.toml").write_text("source-dir = 'trees'\n")
    (folder / "other.toml").write_text("source-dir = 'elsewhere'\n")
    (folder / "trees" / ".rocm-wheels" / "runs").mkdir(parents=True)
    for words in (["runs", "list"], ["clean", "--dry-run"]):
        assert boundary.run_command(main.cli, words) == 0, words
    for words in (["runs", "show"], ["runs", "report"], ["runs", "why", "build-x"], ["shell"]):
        assert boundary.run_command(main.cli, words) == 2, words
        assert f"{folder / 'trees' / '.rocm-wheels'}" in capsys.readouterr().err, words
    assert boundary.run_command(main.cli, ["--config", "other.toml", "runs", "list"]) == 2
    assert f"no work directory {folder / 'elsewhere' / '.rocm-wheels'}" in capsys.readouterr().err
    for value, wrong in {"true": "takes text", '""': "is empty"}.items():
        (folder / f"{value}.toml").write_text(f"source-dir = {value}\n")
        assert boundary.run_command(main.cli, ["--config", f"{value}.toml", "runs", "list"]) == 2
        assert f"{value}.toml: source-dir {wrong}" in capsys.readouterr().err
