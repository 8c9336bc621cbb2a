"""The configuration file: ``rocm-wheels.toml``, or ``[tool.rocm-wheels]`` of a ``pyproject.toml``.

Looked for from the current folder upward; ``ROCM_WHEELS_CONFIG`` or ``--config`` names another (empty: none).
A table is a command (``[build]``, ``[rocm.install]``), its keys are options without their dashes. Keys above
the first table are options of all commands that have them, as far as they are a concept of several commands,
and settings of all commands (``SETTINGS``), which are no options.
The command line wins, then variables, then the command's table, then the keys above. Relative paths are
relative to the file's folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli import catalogue, output
from rocm_wheels.cli.command import (
    CONFIG_FILE,
    Command,
    Group,
    Option,
    get_config_origin,
    list_options,
    split_alias,
)
from rocm_wheels.core import environment_numbers, errors, tables, toml_reader

if TYPE_CHECKING:
    from rocm_wheels.models import project_names

CONFIG_NAME = "rocm-wheels.toml"
_VARIABLE = "ROCM_WHEELS_CONFIG"
_RECIPE_KEY = "recipe-dir"
SETTINGS = {
    "jobs": "ROCM_WHEELS_JOBS",
    "retries": "ROCM_WHEELS_RETRIES",
    "timeout": "ROCM_WHEELS_TIMEOUT",
}
"""Keys of settings that all commands have, and the variable that wins over each."""


@dataclass(frozen=True)
class ConfigFile:
    """A file with options: ``table`` as it was read."""

    path: Path
    table: Mapping[str, Any]

    def locate(self, *words: str) -> str:
        """Return ``FILE: KEY`` of a key or a table."""
        here = Path.cwd()
        path = self.path.relative_to(here) if self.path.is_relative_to(here) else self.path
        return f"{path}: {'.'.join(words)}"


def find_config_file(folder: Path, env: Mapping[str, str], named: str | None = None) -> ConfigFile | None:
    """Return the file that holds for a folder, if there is one. Raises UsageError and DataError.

    ``named``: what ``--config`` says; it wins over ``ROCM_WHEELS_CONFIG``; empty text means no file at all.
    """
    name, origin = (named, "--config") if named is not None else (env.get(_VARIABLE), _VARIABLE)
    if name and not Path(name).is_file():
        raise errors.UsageError(
            f"{origin}: there is no file {name}", tip="an empty name means no configuration"
        )
    if name is not None:
        return read_config_file(Path(name).absolute()) if name else None
    for parent in (folder, *folder.parents):
        for file in (parent / CONFIG_NAME, parent / "pyproject.toml"):
            if file.is_file() and (config := read_config_file(file)) is not None:
                return config
    return None


def _find_here(named: str | None = None) -> ConfigFile | None:
    """Return the file that holds in the current folder, by the process's environment."""
    return find_config_file(Path.cwd(), os.environ, named)


@cache
def read_config_file(path: Path) -> ConfigFile | None:
    """Read a file; ``None`` for a ``pyproject.toml`` that has no ``[tool.rocm-wheels]``. Raises DataError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as cause:
        raise errors.DataError(f"cannot read {path}: {cause.strerror}") from cause
    except UnicodeDecodeError:
        raise errors.DataError(f"{path} is not UTF-8 text", tip="save it as UTF-8") from None
    if path.name != "pyproject.toml":
        return ConfigFile(path, toml_reader.parse_toml(text, name=str(path)))
    if "rocm-wheels" not in text:
        return None
    try:
        tools = toml_reader.parse_toml(text, name=str(path)).get("tool")
    except errors.DataError:
        if "[tool.rocm-wheels" in text:
            raise
        return None  # nothing of ours; it may be a template
    ours = tools.get("rocm-wheels") if isinstance(tools, dict) else None
    return ConfigFile(path, ours) if isinstance(ours, dict) else None


def read_command_defaults(command: Command, named: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the file sets for a command: values by parameter, and ``FILE: KEY`` of each.

    Raises DataError for a key that is no option, and for a value of another shape than the option takes.
    """
    config = _find_here(named)
    if config is None:
        return {}, {}
    _check_top_level(config)
    # a file has long names, and no --no-X, which is X = false
    options = {
        name[2:]: option for option in list_options(command) for name in option.opts if name.startswith("--")
    }
    own_table: Any = config.table
    for word in command.words:
        own_table = own_table.get(word) if isinstance(own_table, dict) else None
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    # the keys above all tables, then the command's own, which win
    for words, table in (((), config.table), (command.words, own_table)):
        keys: dict[str, str] = {}
        for key, value in table.items() if isinstance(table, Mapping) else ():
            if isinstance(value, dict):
                continue  # the table of a command below
            if not words and key in SETTINGS:
                continue  # no option, though a command has one of that name
            option = options.get(key)
            place = config.locate(*words, key)
            if option is None and words:
                raise errors.DataError(
                    f"{place}: `{' '.join(words)}` has no option --{key}{tables.suggest_name(key, options)}",
                    tip=f"`rocm-wheels {' '.join(words)} --help` lists its options; what became of those of"
                    " before is in the changelog",
                )
            if option is None:
                continue  # of other commands
            if (other := keys.setdefault(str(option.name), key)) != key:
                raise errors.DataError(
                    f"{place}: {key} and {other} are one option", tip="leave one of them out"
                )
            values[str(option.name)] = _convert_value(option, value, place, config.path.parent)
            origins[str(option.name)] = place
    return values, origins


def list_configured_folders(named: str | None) -> list[project_names.RecipeFolder]:
    """Return the folders of ``recipe-dir`` in the file that holds here. Raises UsageError and DataError."""
    from rocm_wheels.models import project_names

    config = _find_here(named)
    value = config.table.get(_RECIPE_KEY, []) if config else []
    if config is None or not value:
        return []
    place = config.locate(_RECIPE_KEY)
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) and text for text in texts):
        raise errors.DataError(f"{place} takes a folder or a list of them, not {_format_value(value)}")
    return [project_names.RecipeFolder(config.path.parent / Path(text).expanduser(), place) for text in texts]


def read_source_dir() -> Path | None:
    """Return the ``source-dir`` above all tables of the file that holds here.

    It is for commands that look for work directories without an option for source trees: these lie where
    builds have put them. Raises UsageError and DataError.
    """
    config = _find_here(_find_named_file())
    option = catalogue.SOURCE_DIR.make()
    key = option.spelling[2:]
    if config is None or key not in config.table:
        return None
    place = config.locate(key)
    text = _convert_value(option, config.table[key], place, config.path.parent)
    if not text:
        raise errors.DataError(f"{place} is empty", tip="name a folder, or leave it out")
    return Path(text)


def _find_named_file() -> str | None:
    """Return what ``--config`` names, where a command runs."""
    context = click.get_current_context(silent=True)
    return context.meta.get(CONFIG_FILE) if context else None


def read_settings() -> dict[str, tuple[str, str]]:
    """Return the settings of the file that holds here: variable → value and ``FILE: KEY``.

    Raises UsageError and DataError.
    """
    config = _find_here(_find_named_file())
    return _check_settings(config) if config else {}


def _check_settings(config: ConfigFile) -> dict[str, tuple[str, str]]:
    settings = {}
    for key, variable in SETTINGS.items():
        if key in config.table:
            text = str(config.table[key])
            try:
                environment_numbers.read_number({variable: text or "none"}, variable)
            except errors.UsageError as wrong:
                raise errors.DataError(f"{config.locate(key)}: {wrong}", tip=wrong.tip) from None
            settings[variable] = text, config.locate(key)
    return settings


def _check_top_level(config: ConfigFile) -> None:
    """Raise DataError for a key or a table that no command reads."""
    from rocm_wheels.cli import main

    entries = [entry for entry in vars(catalogue).values() if isinstance(entry, catalogue.Entry)]
    shared = [word[2:].partition("/")[0] for entry in entries for word in entry.names if word[:2] == "--"]
    shared += [_RECIPE_KEY, *SETTINGS]
    commands = main.cli.list_commands(click.Context(main.cli, info_name="rocm-wheels"))
    _check_settings(config)
    for key, value in config.table.items():
        if isinstance(value, dict) and key not in commands:
            new, _ = split_alias(main.cli.aliases.get(key, ""))
            hint = f"; it is [{'.'.join(new)}]" if new else tables.suggest_name(key, commands)
            raise errors.DataError(f"{config.locate(key)}: there is no command {key}{hint}")
        if key == "pre" and not isinstance(value, dict):  # `build` and `plan` had it, and would not hear it
            raise errors.DataError(
                f"{config.locate(key)} is of no build: these take pre-releases of ROCm whatever it says",
                tip='for builds name versions, [build] rocm = "==7.10.0"; for installs, [install] pre = true',
            )
        if not isinstance(value, dict) and key not in shared:
            raise errors.DataError(
                f"{config.locate(key)} is no option that several commands "
                f"share{tables.suggest_name(key, shared)}",
                tip="an option of one command stands in the command's table, such as [build]",
            )


def _convert_value(option: Option, value: Any, place: str, folder: Path) -> Any:
    """Return a value as click takes it: text, truth or a list of texts. Raises DataError."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise errors.DataError(f"{place} is true or false, not {_format_value(value)}")
        return value
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, (bool, dict, list)) for item in items):
        raise errors.DataError(f"{place} takes text or a number, not {_format_value(value)}")
    texts = [str(item) for item in items]
    is_path = isinstance(option.type, (click.Path, click.File)) or re.search(
        r"\b(DIR|FILE)\b", option.metavar or ""
    )
    if is_path:  # a relative one is seen from the file's folder
        texts = [
            text if not text or "://" in text else str(folder / Path(text).expanduser()) for text in texts
        ]
    if option.multiple:
        return texts
    if isinstance(value, list) and not option.takes_list:
        raise errors.DataError(f"{place} takes one value, not a list")
    return ",".join(texts)


def _format_value(value: Any) -> str:
    import json

    return json.dumps(value, default=str, ensure_ascii=False)


def check_config_file(config: ConfigFile, root: Group) -> list[tuple[str, str, str]]:
    """Return every entry of a file: command (empty: all), option, value. Raises DataError for a wrong one."""
    _check_top_level(config)
    return _check_table(config, (), config.table, root)


def _check_table(
    config: ConfigFile, words: tuple[str, ...], table: Mapping[str, Any], command: click.Command | None
) -> list[tuple[str, str, str]]:
    rows = []
    context = click.Context(command or Command(None), info_name=words[-1] if words else "rocm-wheels")
    names = command.list_commands(context) if isinstance(command, Group) else []
    for key, value in table.items():
        if isinstance(value, dict) and key in names:
            assert isinstance(command, Group)
            rows += _check_table(config, (*words, key), value, command.get_command(context, key))
        elif isinstance(value, dict) or (names and words):
            raise errors.DataError(
                f"{config.locate(*words, key)}: `{' '.join(words)}` has no command {key}"
                f"{tables.suggest_name(key, names)}"
            )
        else:
            rows.append((" ".join(words), key, _format_value(value)))
    if isinstance(command, Command) and not isinstance(command, Group):
        read_command_defaults(command, str(config.path))
    return rows


@click.command("settings", cls=Command)
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@catalogue.JSON
@click.pass_context
def settings_command(ctx: click.Context, words: tuple[str, ...], as_json: bool) -> None:
    """Check the configuration file and print it; with a COMMAND, every option with its value and its origin.

    \b
    Examples:
      rocm-wheels settings
      rocm-wheels settings build
    """
    root = ctx.find_root().command
    assert isinstance(root, Group)
    config = _find_here(ctx.meta.get(CONFIG_FILE))
    entries = check_config_file(config, root) if config else []
    path = str(config.path) if config else None
    if words:
        rows = _list_values(ctx, root, words)
        keys = ("option", "value", "from")
    else:
        rows = [(command or "(all)", key, value) for command, key, value in entries]
        keys = ("command", "option", "value")
    lines = [path or f"no {CONFIG_NAME} here or above, and no pyproject.toml with [tool.rocm-wheels]"]
    lines += [tables.format_table(keys, rows, width=tables.get_output_width())] if rows else []
    listed = [dict(zip(keys, row, strict=True)) for row in rows]
    output.print_result({"file": path, "options" if words else "entries": listed}, lines, as_json=as_json)


def _list_values(ctx: click.Context, root: Group, words: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return each option of a command with its value, and where that is from. Raises UsageError."""
    command: click.Command | None = root
    for word in words:
        command = command.get_command(ctx, word) if isinstance(command, Group) else None
    if not isinstance(command, Command) or isinstance(command, Group):
        raise errors.UsageError(
            f"there is no command {' '.join(words)}", tip="`rocm-wheels --help` lists them"
        )
    context = command.make_context(words[-1], [], parent=ctx.find_root(), resilient_parsing=True)
    rows = []
    for entry in list_options(command):
        name = str(entry.name)
        source, origin = context.get_parameter_source(name), get_config_origin(context, entry)
        place = "default"
        if source is ParameterSource.ENVIRONMENT:
            place = f"variable {entry.envvar}"
        elif source is ParameterSource.DEFAULT_MAP and origin is not None:
            place = origin
        rows.append((entry.spelling, _describe_value(context.params.get(name)), place))
    settings = read_settings()
    for key, variable in SETTINGS.items():
        if os.environ.get(variable):
            rows.append((key, os.environ[variable], f"variable {variable}"))
        elif variable in settings:
            rows.append((key, *settings[variable]))
    return rows


def _describe_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
