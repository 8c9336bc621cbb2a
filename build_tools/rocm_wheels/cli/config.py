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
from collections.abc import Iterator, Mapping, Sequence
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
    if name is not None:
        if not name:
            return None
        if not Path(name).is_file():
            raise errors.UsageError(
                f"{origin}: there is no file {name}", tip="an empty name means no configuration"
            )
        return read_config_file(Path(name).absolute())
    for parent in (folder, *folder.parents):
        if (parent / CONFIG_NAME).is_file():
            return read_config_file(parent / CONFIG_NAME)
        if (parent / "pyproject.toml").is_file():
            config = read_config_file(parent / "pyproject.toml")
            if config is not None:
                return config
    return None


@cache
def read_config_file(path: Path) -> ConfigFile | None:
    """Read a file; ``None`` for a ``pyproject.toml`` that has no ``[tool.rocm-wheels]``. Raises DataError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as cause:
        raise errors.DataError(f"cannot read {path}: {cause.strerror}") from cause
    except UnicodeDecodeError:
        raise errors.DataError(f"{path} is not UTF-8 text", tip="save it as UTF-8") from None
    if path.name == "pyproject.toml" and "rocm-wheels" not in text:
        return None
    try:
        table = toml_reader.parse_toml(text, name=str(path))
    except errors.DataError:
        if path.name == "pyproject.toml" and "[tool.rocm-wheels" not in text:
            return None  # nothing of ours; it may be a template
        raise
    if path.name == "pyproject.toml":
        tools = table.get("tool")
        ours = tools.get("rocm-wheels") if isinstance(tools, dict) else None
        if not isinstance(ours, dict):
            return None
        table = ours
    return ConfigFile(path, table)


def read_command_defaults(command: Command, named: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the file sets for a command: values by parameter, and ``FILE: KEY`` of each.

    Raises DataError for a key that is no option, and for a value of another shape than the option takes.
    """
    config = find_config_file(Path.cwd(), os.environ, named)
    if config is None:
        return {}, {}
    _check_top_level(config)
    options = {name.lstrip("-"): option for option in list_options(command) for name in _list_names(option)}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for words, table in _list_tables(config, command.words):
        keys: dict[str, str] = {}
        for key, value in table.items():
            if isinstance(value, dict):
                continue  # the table of a command below
            option = options.get(key)
            if option is None:
                if not words:
                    continue  # of other commands
                raise errors.DataError(
                    f"{config.locate(*words, key)}: `{' '.join(words)}` has no option --{key}"
                    f"{tables.suggest_name(key, options)}",
                    tip=f"`rocm-wheels {' '.join(words)} --help` lists its options",
                )
            place = config.locate(*words, key)
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

    config = find_config_file(Path.cwd(), os.environ, named)
    value = config.table.get(_RECIPE_KEY, []) if config else []
    if config is None or not value:
        return []
    place = config.locate(_RECIPE_KEY)
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) and text for text in texts):
        raise errors.DataError(f"{place} takes a folder or a list of them, not {_format_value(value)}")
    return [project_names.RecipeFolder(config.path.parent / Path(text).expanduser(), place) for text in texts]


def read_settings() -> dict[str, str]:
    """Return the settings of the file that holds here, as variables. Raises UsageError and DataError."""
    context = click.get_current_context(silent=True)
    config = find_config_file(Path.cwd(), os.environ, context.meta.get(CONFIG_FILE) if context else None)
    if config is None:
        return {}
    return {SETTINGS[key]: _read_setting(config, key) for key in SETTINGS if key in config.table}


def _read_setting(config: ConfigFile, key: str) -> str:
    text = str(config.table[key])
    try:
        environment_numbers.read_number({SETTINGS[key]: text or "none"}, SETTINGS[key])
    except errors.UsageError as wrong:
        raise errors.DataError(f"{config.locate(key)}: {wrong}", tip=wrong.tip) from None
    return text


def _list_names(option: Option) -> list[str]:
    """Return the long names of an option that a file may have: no ``--no-X``, which is ``X = false``."""
    return [name for name in option.opts if name.startswith("--")]


def _list_tables(
    config: ConfigFile, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the keys above all tables, then the command's table; a later one wins."""
    yield (), config.table
    table: Any = config.table
    for word in words:
        table = table.get(word) if isinstance(table, dict) else None
    if isinstance(table, dict):
        yield words, table


def _check_top_level(config: ConfigFile) -> None:
    """Raise DataError for a key or a table that no command reads."""
    from rocm_wheels.cli import main

    entries = [entry for entry in vars(catalogue).values() if isinstance(entry, catalogue.Entry)]
    shared = [word[2:].partition("/")[0] for entry in entries for word in entry.names if word[:2] == "--"]
    shared.append(_RECIPE_KEY)
    context = click.Context(main.cli, info_name="rocm-wheels")
    commands = main.cli.list_commands(context)
    for key, value in config.table.items():
        if isinstance(value, dict):
            if key not in commands:
                new, _ = split_alias(main.cli.list_aliases().get(key, ""))
                raise errors.DataError(
                    f"{config.locate(key)}: there is no command {key}"
                    + (f"; it is [{'.'.join(new)}]" if new else tables.suggest_name(key, commands))
                )
        elif key in SETTINGS:
            _read_setting(config, key)
        elif key not in shared:
            raise errors.DataError(
                f"{config.locate(key)} is no option that several commands "
                f"share{tables.suggest_name(key, [*shared, *SETTINGS])}",
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
    texts = [_resolve_path(option, str(item), folder) for item in items]
    if option.multiple:
        return texts
    if isinstance(value, list) and not option.takes_list:
        raise errors.DataError(f"{place} takes one value, not a list")
    return ",".join(texts)


def _resolve_path(option: Option, text: str, folder: Path) -> str:
    """Return a relative path as it is seen from the file's folder; other values as they are."""
    places = re.split(r"[|…\[\]]", option.metavar or "")
    is_path = isinstance(option.type, (click.Path, click.File)) or {"DIR", "FILE"} & set(places)
    if not is_path or not text or "://" in text:
        return text
    return str(folder / Path(text).expanduser())


def _format_value(value: Any) -> str:
    import json

    return json.dumps(value, default=str, ensure_ascii=False)


def check_config_file(config: ConfigFile, root: Group) -> list[tuple[str, str, str]]:
    """Return every entry of a file: command (empty: all), option, value. Raises DataError for a wrong one."""
    _check_top_level(config)
    rows = [
        ("", key, _format_value(value)) for key, value in config.table.items() if not isinstance(value, dict)
    ]
    context = click.Context(root, info_name="rocm-wheels")
    for key, table in config.table.items():
        if isinstance(table, dict):
            rows += _check_table(config, (key,), table, root.get_command(context, key))
    return rows


def _check_table(
    config: ConfigFile, words: tuple[str, ...], table: Mapping[str, Any], command: click.Command | None
) -> list[tuple[str, str, str]]:
    if isinstance(command, Group):
        context = click.Context(command, info_name=words[-1])
        rows = []
        for key, value in table.items():
            names = command.list_commands(context)
            if not isinstance(value, dict) or key not in names:
                raise errors.DataError(
                    f"{config.locate(*words, key)}: `{' '.join(words)}` has no command {key}"
                    f"{tables.suggest_name(key, names)}"
                )
            rows += _check_table(config, (*words, key), value, command.get_command(context, key))
        return rows
    assert isinstance(command, Command)
    for key, value in table.items():
        if isinstance(value, dict):
            raise errors.DataError(f"{config.locate(*words, key)}: `{' '.join(words)}` has no command {key}")
    read_command_defaults(command, str(config.path))
    return [(" ".join(words), key, _format_value(value)) for key, value in table.items()]


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
    config = find_config_file(Path.cwd(), os.environ, ctx.meta.get(CONFIG_FILE))
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
    settings, config = read_settings(), find_config_file(Path.cwd(), os.environ, ctx.meta.get(CONFIG_FILE))
    for key, variable in SETTINGS.items():
        if os.environ.get(variable):
            rows.append((key, os.environ[variable], f"variable {variable}"))
        elif config is not None and variable in settings:
            rows.append((key, settings[variable], config.locate(key)))
    return rows


def _describe_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
