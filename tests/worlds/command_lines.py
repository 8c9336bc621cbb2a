"""Command lines of ours in pages, help and workflows, parsed by the commands themselves, which do not run.

Names, options, values and what is missing are judged as in a call. The disk is not looked at: a path is any
text, and a value with ``$`` or ``…`` in it is one that only whoever runs the line knows.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import dropwhile
from pathlib import Path

import click
import pytest
from click.core import ParameterSource

from rocm_wheels.cli import main
from rocm_wheels.cli.command import Group, Option
from rocm_wheels.core import errors

CLONE = Path(__file__).resolve().parents[2]
_STARTS = re.compile(r'_script\.run\("([\w.]+):(\w+)"((?:, "\w+")*)\)')
_STARTERS = ("python3", "uvx")
_INNER = re.compile(r"\$\(([^()]*)\)")


def find_faults(line: str, *, names: bool = False) -> list[str]:
    """Return what our commands in a line of a shell would refuse before they begin.

    ``names``: the line may be no more than the name of a command, as in a sentence.
    """
    return [fault for words in split_line(line) for fault in _find_command_faults(words, names)]


def split_line(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, of those inside ``$(…)`` too, without redirections."""
    line = line.partition(" #")[0]
    for inner in _INNER.findall(line):
        yield from split_line(inner)
    lexer = shlex.shlex(_INNER.sub("$X", line), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for word in lexer:
        if not re.fullmatch("[|&;<>]+", word):
            words.append(word)
        elif "<" in word or ">" in word:
            next(lexer)
        else:
            yield words
            words = []
    yield words


def _find_command_faults(words: Sequence[str], names: bool) -> list[str]:
    started = list(dropwhile(lambda word: "=" in word, words))
    place = next((n for n, word in enumerate(started) if load_program(word)), None)
    asks_completion = any(word.startswith("_ROCM_WHEELS_COMPLETE=") for word in words)  # click answers that
    if place is None or asks_completion or (place and started[0] not in _STARTERS):
        return []
    word, rest = started[place], [other for other in started[place + 1 :] if other != "…"]
    behind = rest[rest.index("--") + 1 :] if "--" in rest else []  # a command in a container, say
    program = load_program(word)
    assert program is not None
    faults = [] if names and _is_name(program, rest) else parse_words(program, rest, word)
    return [*faults, *_find_command_faults(behind, names)]


def _is_name(program: click.Command | None, words: Sequence[str]) -> bool:
    """Tell whether words are the name of a command or group, and nothing else."""
    for word in words:
        if not isinstance(program, click.Group):
            return False
        aliases = program.list_aliases() if isinstance(program, Group) else {}
        program = None if word in aliases else program.get_command(click.Context(program), word)
    return program is not None and not program.hidden


@cache
def load_program(word: str) -> click.Command | None:
    """Return the click command behind ``rocm-wheels`` or a script of the clone; ``None`` for others."""
    if word == "rocm-wheels" or word.endswith("/rocm-wheels"):
        return main.cli
    script = CLONE / word
    if not re.fullmatch(r"(build_tools|repos)/\w+\.py", word):
        return None
    assert script.is_file(), f"there is no {word}"
    starts = _STARTS.search(script.read_text(encoding="utf-8"))
    if starts is None:
        return None
    attribute = getattr(import_module(starts[1]), starts[2])
    if isinstance(attribute, click.Command):
        return attribute
    made = attribute(*re.findall(r'"(\w+)"', starts[3]))
    assert isinstance(made, click.Command)
    return made


def parse_words(
    program: click.Command, words: Sequence[str], name: str = "", *, older_names: bool = False
) -> list[str]:
    """Parse the words of a call, without one; return why it is refused, in one text, or nothing.

    Names that are read and not shown are refused as well, unless ``older_names``.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        patch.setattr(click.Command, "invoke", _take_all if older_names else _refuse_older_names)
        if not older_names:
            patch.setattr(Option, "add_to_parser", click.Option.add_to_parser)
        cast = click.Parameter.type_cast_value
        patch.setattr(
            click.Parameter,
            "type_cast_value",
            lambda param, ctx, value: value if re.search("[$…]", str(value)) else cast(param, ctx, value),
        )
        for kind in _list_path_types(click.Path):
            patch.setattr(kind, "convert", lambda path, value, *_: path.coerce_path_result(value))
        try:
            program.main([*words], prog_name=name or program.name, standalone_mode=False)
        except click.UsageError as refused:
            path = refused.ctx.command_path if refused.ctx else name
            return [f"{path}: {refused.format_message()}"]
        except errors.RocmWheelsError as refused:
            return [f"{name}: {refused}"]
    return []


def _list_path_types(kind: type[click.Path]) -> Iterator[type[click.Path]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _list_path_types(below)


def _take_all(command: click.Command, ctx: click.Context) -> None:
    """Do nothing, in the place of a command."""


def _refuse_older_names(command: click.Command, ctx: click.Context) -> None:
    parent = ctx.parent.command if ctx.parent else None
    if command.hidden or (isinstance(parent, Group) and str(ctx.info_name) in parent.list_aliases()):
        ctx.fail(f"{ctx.info_name} is an older name")
    for param in command.get_params(ctx):
        hidden = isinstance(param, click.Option) and param.hidden
        if hidden and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
            ctx.fail(f"{param.opts[0]} is not shown")
