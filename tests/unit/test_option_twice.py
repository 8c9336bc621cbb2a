"""An option given twice: lists are joined, anything else is refused; nothing is lost without a word."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from rocm_wheels.cli import boundary, build, checkout, main
from rocm_wheels.cli.command import Command, Group, Option

BUILD_TOOLS = Path(__file__).resolve().parents[2] / "build_tools"
SCRIPTS = ("check_repository", "demo", "refresh_known_failures", "refresh_pci_ids")
# two values of each list, and what both give
LISTS = {
    "--family": ("gfx94X-dcgpu", "gfx110X-all"),
    "--line": ("2.9", "2.10"),
    "--project": ("pytorch", "triton"),
    "--python": ("3.11", "3.12"),
    "--suite": ("smoke", "default"),
    "--rocm-extras": ("libraries", "devel"),
}
TARGETS = ("gfx942", "gfx1100")  # of all other lists
ONE_TARGET = {"set evidence add"}  # their --gfx is no list


def walk(group: Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    yield " ".join(words), group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, Group):
            yield from walk(command, (*words, name))
        else:
            assert isinstance(command, Command), name
            yield " ".join((*words, name)), command


COMMANDS = [
    *walk(main.cli),
    *walk(build.production, ("build_prod_wheels",)),
    *walk(checkout.make_recipe_group("triton", "release"), ("pytorch_triton_repo",)),
    *((name, getattr(import_module(name), name)) for name in SCRIPTS),
]


def parse(command: Command, *words: str, lenient: bool = True) -> click.Context:
    return command.make_context(command.name, list(words), resilient_parsing=lenient)


def test_each_script_with_options_of_click_is_looked_at() -> None:
    scripts = {path.stem for path in BUILD_TOOLS.glob("*.py") if "import click\n" in path.read_text()}
    assert scripts == set(SCRIPTS)


@pytest.mark.parametrize(("words", "command"), COMMANDS)
def test_options_given_twice_are_joined_or_refused(words: str, command: Command) -> None:
    options = [p for p in (*command.global_options, *command.params) if isinstance(p, click.Option)]
    owners: dict[str, Option] = {}  # of each spelling
    for option in options:
        assert isinstance(option, Option)
        for name in {*option.opts, *option.secondary_opts}:
            owners[name] = option
    for option in list(owners.values()):
        for name in option.aliases:
            owners.setdefault(name, option)  # the first that has it
    required = [word for option in options if option.required for word in (option.opts[0], "gfx942")]
    for name, option in owners.items():
        if option.multiple or option.count:
            continue
        if option.takes_list:
            one, other = LISTS.get(option.spelling, TARGETS)
            joined = parse(command, option.spelling, f"{other},{one}", name, one)
            single = parse(command, option.spelling, f"{other},{one}")
            assert joined.params[str(option.name)] == single.params[str(option.name)]
            assert joined.params[str(option.name)]  # it was taken
        else:
            value = [] if option.is_flag else ["x"]
            first = required if option.opts[0] not in required else []
            with pytest.raises(click.BadOptionUsage) as refusal:
                parse(command, option.spelling, *value, name, *value, *first, lenient=False)
            assert refusal.value.option_name == option.spelling


def test_every_option_that_is_a_list_somewhere_is_one_everywhere() -> None:
    """A list by commas that does not say so in its metavar would refuse to be joined."""
    single = {
        words
        for words, command in COMMANDS
        for option in command.params
        if isinstance(option, Option) and option.spelling == "--gfx"
        if not (option.takes_list or option.multiple)
    }
    assert single == ONE_TARGET


@pytest.mark.contract
@pytest.mark.parametrize(
    "line",
    [
        "--exclude --dry-run",
        "--dry-run --exclude",
        "--dry-run --exclude -- base",
        "--exclude --json --dry-run",
    ],
)
def test_an_option_of_any_number_of_words_takes_no_other_for_one(line: str) -> None:
    """Of a fetch that was to be a dry run nothing may be fetched."""
    params = parse(dict(COMMANDS)["rocm fetch"], *line.split(), lenient=False).params
    assert params["exclude"] == () and params["dry_run"]
    assert params["include"] == (("base",) if "base" in line else ())


@pytest.mark.contract
@pytest.mark.parametrize("line", ["--include --dry-run", "--include test_nn --exclude -- -k x", "--exclude"])
def test_an_option_of_one_word_at_least_is_refused_without(line: str) -> None:
    with pytest.raises(click.BadOptionUsage, match="requires an argument"):
        parse(dict(COMMANDS)["test torch"], *line.split(), lenient=False)


@pytest.mark.contract
def test_command_and_scripts_end_with_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert boundary.run_command(main.cli, ["plan", "--rocm", "==7.1", "--rocm-version", "==7.1"]) == 2
    both = ["--allow-version-mismatch", "--no-allow-version-mismatch"]
    assert boundary.run_command(main.cli, ["tests", "torch", *both]) == 2
    for words in (
        ["quickstart.py", "setup", "--tests", "--tests"],
        ["quickstart.py", "demo", "--output-dir", "one", "--output-dir=two"],
        ["validate_published.py", "none", "--image", "a", "--output-dir", "b", "--image", "a"],
    ):
        program = [sys.executable, str(BUILD_TOOLS / words[0]), *words[1:]]
        refused = subprocess.run(program, capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        assert "given more than once" in refused.stderr


@pytest.mark.contract
def test_file_gives_an_option_once_and_the_command_line_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROCM_WHEELS_CONFIG", raising=False)
    (tmp_path / "rocm-wheels.toml").write_text('[matrix]\nfamily = "gfx94X-dcgpu"\n')
    matrix = dict(COMMANDS)["matrix"]
    assert parse(matrix).params["families"] == "gfx94X-dcgpu"
    assert parse(matrix, "--family", "gfx110X-all").params["families"] == "gfx110X-all"
    twice = tmp_path / "twice.toml"
    twice.write_text('[matrix]\nsuite = "smoke"\ntest-config = "full"\n')
    assert boundary.run_command(main.cli, ["--config", str(twice), "matrix"]) == 2
