"""The tree of commands as click has it: one spelling a concept, help, examples, results as JSON."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from commands import find_faults, parse_words

import rocm_wheels
from rocm_wheels.cli import boundary, build, build_options, catalogue, checkout, main
from rocm_wheels.cli.command import ALIASES, Command, Group, Option, split_alias
from rocm_wheels.models import project

# commands without a result that a program would read: what they print is a program's own output, or a script
WITHOUT_JSON = {
    "container run",  # what it prints is the command's
    "help",
    "recipe new",
    "run-step",
    "set key",
    *("test smoke", "test torch"),  # they write results.json
}


def walk_commands(group: Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=" ".join(("rocm-wheels", *words)))
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, Group):
            yield from walk_commands(command, (*words, name))
        elif not command.hidden:
            yield " ".join((*words, name)), command


TREE = dict(walk_commands(main.cli))
every_command = pytest.mark.parametrize("words", TREE)


def list_shown_options(command: click.Command) -> list[Option]:
    return [param for param in command.params if isinstance(param, Option) and not param.hidden]


def test_top_level_is_one_screen_in_headings() -> None:
    names = [name for rows in main.SECTIONS.values() for name in rows]
    assert len(names) == len(set(names)) <= 35
    assert not set(names) & set(main.ALIASES)
    assert {name for names in main.FIRST_SECTIONS.values() for name in names} < set(names)


def test_help_shows_where_to_begin_and_all_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for words in ("--help", "help --all", "help wheel"):
        main.cli.main(words.split(), standalone_mode=False)
        shown[words] = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    names = {name for rows in main.SECTIONS.values() for name in rows}
    first = {name for names in main.FIRST_SECTIONS.values() for name in names}
    assert len(first) == 12 and names & shown["--help"] == first
    assert names <= shown["help --all"]
    assert {"repair", "split"} < shown["help wheel"]


def test_help_of_recipes_has_their_keys(capsys: pytest.CaptureFixture[str]) -> None:
    main.cli.main(["help", "recipe"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert re.match(r"Usage: .* recipe \[OPTIONS\]", shown)
    for key in project.Project.model_fields:
        assert re.search(rf"^{key} +\S.* {{2}}\S", shown, re.MULTILINE), key


def test_build_shows_ten_options_before_all_others(capsys: pytest.CaptureFixture[str]) -> None:
    main.cli.main(["build", "--help"], standalone_mode=False)
    sections = re.split(r"^(\w[\w ]+):\n", capsys.readouterr().out, flags=re.MULTILINE)
    options = {
        heading: re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)
        for heading, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    assert list(options) == ["Options", "More options", "Single projects", "Global options"]
    assert options["Options"] == [*build_options.FIRST, "--dry-run"] and len(options["Options"]) == 10
    assert "--triton-wheel" in options["Single projects"] and "--per-target" in options["More options"]


HELP = """
import contextlib, io, sys
from rocm_wheels.cli import main
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()):
        main.cli.main([*line.split(), "--help"], standalone_mode=False)
    heavy = {"pydantic", "yaml", "email", "requests", "git", "rich", "jinja2", "asyncio"} & {*sys.modules}
    if heavy:
        sys.exit(f"{line.strip()} --help loads {', '.join(sorted(heavy))}")
"""


def test_help_loads_nothing_heavy() -> None:
    """Of 0.12 s of processor time Python and click take half; pydantic alone is as much again."""
    ended = subprocess.run(
        [sys.executable, "-c", HELP], input="\n".join(TREE), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@every_command
def test_command_knows_its_words(words: str) -> None:
    command = TREE[words]
    assert isinstance(command, Command)
    assert " ".join(command.words) == words


@every_command
def test_no_option_has_the_older_spelling(words: str) -> None:
    """An option has one spelling; another one may be read, and is not shown."""
    older = {alias: name for name, aliases in ALIASES.items() for alias in aliases}
    shown = {
        name for option in list_shown_options(TREE[words]) for name in (*option.opts, *option.secondary_opts)
    }
    assert {name: older[name] for name in sorted(shown & older.keys())} == {}


def test_one_spelling_holds_in_all_commands() -> None:
    """The same parameter is not two options: each of the long names of an option is of that option alone."""
    parameters: dict[str, set[str]] = {}
    for command in TREE.values():
        for option in list_shown_options(command):
            for name in option.opts:
                if name.startswith("--"):
                    parameters.setdefault(name, set()).add(option.spelling)
    assert {name: spellings for name, spellings in parameters.items() if len(spellings) > 1} == {}


def test_options_with_other_spellings_are_there() -> None:
    used = {
        name
        for command in TREE.values()
        for option in [*list_shown_options(command), *command.global_options]
        for name in option.opts
    }
    assert sorted(ALIASES.keys() - used) == []
    assert not ALIASES.keys() & {alias for aliases in ALIASES.values() for alias in aliases}


@every_command
def test_option_has_help(words: str) -> None:
    options = [param for param in TREE[words].params if isinstance(param, click.Option)]
    assert [option.opts for option in options if not isinstance(option, Option)] == []
    assert [option.opts for option in options if not option.hidden and not option.help] == []


# Spelled alike, and not the same thing: each command has its own.
HOMONYMS = {
    *("--exclude", "--explain", "--format", "--from"),
    *("--label", "--platform"),
    "--print",
}


def test_option_stands_once() -> None:
    """What two commands take is in the catalogue; what stands at a command is of that one alone."""
    entries = [entry for entry in vars(catalogue).values() if isinstance(entry, catalogue.Entry)]
    in_catalogue = {name.partition("/")[0] for entry in entries for name in entry.names}
    places: dict[str, list[str]] = {}
    for module in Path(main.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if (
                isinstance(call, ast.Call)
                and getattr(call.func, "attr", getattr(call.func, "id", "")) == "option"
            ):
                for word in call.args:
                    if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
                        places.setdefault(str(word.value).partition("/")[0], []).append(
                            f"{module.name}:{call.lineno}"
                        )
    again = {name: lines for name, lines in places.items() if len(lines) > 1 or name in in_catalogue}
    assert {name: lines for name, lines in again.items() if name not in HOMONYMS} == {}
    assert sorted(HOMONYMS - again.keys()) == []


def test_entry_of_the_catalogue_is_of_several_commands() -> None:
    """What one command alone takes stands at that command."""
    text = "".join(module.read_text(encoding="utf-8") for module in Path(main.__file__).parent.glob("*.py"))
    entries = [name for name, entry in vars(catalogue).items() if isinstance(entry, catalogue.Entry)]
    uses = {name: len(re.findall(rf"\b{name}\b", text)) - 1 for name in entries}
    assert {name: count for name, count in uses.items() if count < 2} == {}


# what click's types, and ours, make of a word
VALUE_TYPES = {
    **dict.fromkeys(("text", "choice", "version"), "str"),
    **dict.fromkeys(("path", "file", "directory"), "Path"),
    **dict.fromkeys(("integer", "integer range"), "int"),
    **dict.fromkeys(("float", "float range", "duration"), "float"),
    "boolean": "bool",
}


@every_command
def test_function_takes_what_its_options_give(words: str) -> None:
    """An argument has the type of its option: a tuple where it can be repeated, or None where it may lack."""
    arguments = inspect.signature(inspect.unwrap(TREE[words].callback)).parameters
    wrong = {}
    for option in list_shown_options(TREE[words]):
        if option.name not in arguments or option.callback:
            continue
        expected = VALUE_TYPES[option.type.name]
        if option.multiple:
            expected = f"tuple[{expected}, ...]"
        elif not (option.required or option.is_flag or option.to_info_dict()["default"] is not None):
            expected += " | None"
        stated = arguments[option.name].annotation
        if option.type.name == "choice":  # the words may have a type of their own
            stated = re.sub(r"Literal\[[^]]*\]|\w+\.\w+", "str", stated)
        if stated != expected:
            wrong[option.spelling] = f"{stated}, and the option gives {expected}"
    assert wrong == {}


@every_command
def test_result_can_be_had_as_json(words: str) -> None:
    assert any("--json" in option.opts for option in list_shown_options(TREE[words])) or words in WITHOUT_JSON


@every_command
def test_examples_of_the_help_can_be_parsed(words: str) -> None:
    """The last part of a help is lines as people type them; each is read by the command that it names."""
    text = inspect.cleandoc(TREE[words].help or "")
    assert re.search(r"^Examples?:$", text, re.M), "no example"
    block = re.split(r"^Examples?:$", text, flags=re.M)[1].split("\n\n")[0]
    lines = [line.strip() for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    assert any(line.startswith(f"rocm-wheels {words}") for line in lines), lines
    assert [fault for line in lines for fault in find_faults(line)] == []


OLDER = {alias.partition("/")[0] for aliases in ALIASES.values() for alias in aliases} - {
    name for command in TREE.values() for option in list_shown_options(command) for name in option.opts
}


def list_message_texts(module: Path) -> Iterator[str]:
    """Yield the literals of what a module prints or raises, and of the tips of it."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name.endswith("Error") or name in ("log_note", "log_warning"):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value


def test_messages_and_help_name_options_as_they_are_shown() -> None:
    package = Path(rocm_wheels.__file__).parent
    texts = {words: command.help or "" for words, command in TREE.items()}
    for module in sorted(package.rglob("*.py")):
        texts[str(module.relative_to(package))] = "\n".join(list_message_texts(module))
    older = {
        place: set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) & OLDER for place, text in texts.items()
    }
    assert {place: options for place, options in older.items() if options} == {}


def test_messages_help_and_pages_name_commands_as_they_are_listed() -> None:
    """No other name that is read (``verify``), and none that is not there (``wheel verify``)."""
    package, clone = Path(rocm_wheels.__file__).parent, Path(rocm_wheels.__file__).parents[2]
    texts = {words: command.help or "" for words, command in TREE.items()}
    texts |= {str(module): "\n".join(list_message_texts(module)) for module in sorted(package.rglob("*.py"))}
    pages = [clone / "README.md", *sorted((clone / "docs/pages").rglob("*.md"))]
    about_names = {"changelog.md", "therock.md"}  # these have older ones, too
    texts |= {str(page): page.read_text(encoding="utf-8") for page in pages if page.name not in about_names}
    groups = {words.split()[0] for words in TREE if " " in words}
    faults = set()
    for place, text in texts.items():
        for words in re.findall(r"`(?:uvx |pipx run )?rocm-wheels ([a-z][a-z -]*)", text):
            names = [word for word in words.split() if not word.startswith("-")]
            length = 1 if names[0] not in groups else 3 if names[:2] == ["set", "evidence"] else 2
            listed = {tuple(words.split()[: len(names[:length])]) for words in TREE}
            if names and tuple(names[:length]) not in listed:
                faults.add((Path(place).name, " ".join(names[:length])))
    assert faults == set()


@pytest.mark.parametrize(("old", "new"), main.ALIASES.items())
def test_older_name_is_the_same_command_and_not_shown(old: str, new: str) -> None:
    context = click.Context(main.cli, info_name="rocm-wheels")
    command = main.cli.get_command(context, old)
    assert isinstance(command, Command)
    words, flags = split_alias(new)
    assert list(command.words) == words
    assert old not in main.cli.list_commands(context)
    shown = {name for option in list_shown_options(command) for name in option.opts}
    assert shown.issuperset(flags)


@pytest.mark.parametrize("words", [["verify"], ["wheel", "check"]])
def test_older_name_has_the_help_of_audit(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for name in (words, ["audit"]):
        assert boundary.run_command(main.cli, [*name, "--help"]) == 0
        texts.append(capsys.readouterr().out.partition("\n")[2])
    assert texts[0] == texts[1]


OLDER_WORDS = {
    "build_prod_wheels.py": [
        "build --pytorch-rocm-arch gfx942 --rocm-sdk-version ==7.1 --index-url https://x/ --output-dir d",
        "install-rocm --index-url https://x/",
    ],
    "pytorch_audio_repo.py": [
        "checkout --checkout-dir src --repo-hashtag v2.9.0 --gitrepo-origin https://x/y.git",
        "checkout --torch-dir pytorch",
    ],
}


@pytest.mark.parametrize("script", OLDER_WORDS)
def test_script_reads_the_spellings_of_the_peer(script: str) -> None:
    group = (
        build.production if script == "build_prod_wheels.py" else checkout.make_recipe_group("pytorch_audio")
    )
    for words in OLDER_WORDS[script]:
        assert parse_words(group, words.split(), older_names=True) == []


def test_as_many_jobs_are_taken_as_a_machine_has_cores() -> None:
    option = next(option for option in list_shown_options(TREE["build"]) if option.spelling == "--jobs")
    assert option.type.convert("256", option, None) == 256
