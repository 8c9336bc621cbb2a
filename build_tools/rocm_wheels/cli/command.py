"""Commands, groups and options as all of rocm-wheels has them.

An option has one spelling in all commands; those of TheRock's scripts (``ALIASES``) are read as well and not
shown. A command knows its words (``rocm install``), under which a configuration file has its options. A group
imports a command only to run or to explain it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from rocm_wheels.core import errors

if TYPE_CHECKING:
    from rocm_wheels.models import project_names

C = TypeVar("C", bound=click.Command)
RECIPE_OPTION, RECIPE_VARIABLE = "--recipe-dir", "ROCM_WHEELS_RECIPE_DIR"


# other spellings of options that are read and not shown: those of TheRock's scripts
ALIASES: Mapping[str, tuple[str, ...]] = {
    "--family": ("--amdgpu-family",),
    "--gfx": ("--pytorch-rocm-arch", "--amdgpu-targets"),
    "--index": ("--index-url",),
    "--origin": ("--gitrepo-origin",),
    "--output-dir": ("--dest-dir",),
    "--pytorch-dir": ("--torch-dir",),
    "--ref": ("--repo-hashtag",),
    "--rocm": ("--rocm-sdk-version",),
    "--rocm-index": ("--index-url",),
    "--source-dir": ("--root-checkout-dir",),
}
# options whose values a shell can list: a function of ``rocm_wheels.cli.completion``
_COMPLETERS = {
    "--family": "list_families",
    "--gfx": "list_targets",
    "--line": "list_lines",
    "--project": "list_projects",
}


class Option(click.Option):
    """An option that also reads the other spellings of its name, and names the file a value came from.

    Given twice, under whatever spelling, a list by commas is joined; anything else is refused, since one of
    two values would be lost. ``multiple`` and ``count`` are as click has them.
    """

    def __init__(
        self,
        *args: Any,
        aliases: Sequence[str] = (),
        flags: Mapping[str, str] | None = None,
        project: str = "",
        several: Literal["*", "+"] | None = None,
        **kwargs: Any,
    ) -> None:
        if several:
            kwargs["multiple"] = True
        super().__init__(*args, **kwargs)
        self.several = several  # takes all words up to the next option: any number, or one at least
        self.flags = dict(flags or {})  # TheRock's, each for a value of this option; not shown
        self.project = project  # whose option it is; "": of no project's
        self.aliases = (*aliases, *(alias for name in self.opts for alias in ALIASES.get(name, ())))

    @property
    def takes_list(self) -> bool:
        """Tell whether one value is a list, by commas."""
        return any(word in (self.metavar or "") for word in ("LIST", ",…"))

    @property
    def spelling(self) -> str:
        """The long name that people and configuration files use, with its dashes."""
        return next((name for name in self.opts if name.startswith("--")), self.opts[0])

    def list_flags(self) -> Iterable[str]:
        """Return what is read of this option and takes no value, under whatever spelling."""
        if not (self.is_flag or self.count):
            return self.flags
        others = [word for alias in self.aliases for word in alias.split("/")]
        return (*self.opts, *self.secondary_opts, *others, *self.flags)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Have the other spellings parsed too, where no other option of the command has that name.

        The parser keeps every value (``handle_parse_result`` makes one of them); click's own keeps the last.
        """
        opts, secondary, multiple = self.opts, self.secondary_opts, self.multiple
        taken = {name for param in ctx.command.params for name in (*param.opts, *param.secondary_opts)}
        options = [param for param in ctx.command.params if isinstance(param, Option)]
        for earlier in options[: options.index(self)] if self in options else ():
            taken.update(earlier.aliases)  # the first that has a spelling has it
        for alias in self.aliases:
            positive, _, negative = alias.partition("/")
            if positive not in taken:
                self.opts = [*self.opts, positive]
                self.secondary_opts = [*self.secondary_opts, *([negative] if negative else [])]
        self.multiple = not self.count
        try:
            super().add_to_parser(parser, ctx)
            for flag, value in self.flags.items():
                parser.add_option(self, [flag], self.name, "append_const", const=value)
        finally:
            self.opts, self.secondary_opts, self.multiple = opts, secondary, multiple

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Make one value of all on the command line. Raises click's BadOptionUsage where one is too many."""
        values = opts.get(str(self.name))
        if isinstance(values, list) and not self.multiple:
            value = values[-1]
            if len(values) > 1 and self.takes_list:
                words = (word for text in values for word in re.split(r"[,;\s]+", text) if word)
                value = ",".join(dict.fromkeys(words))
            elif len(values) > 1 and not ctx.resilient_parsing:
                spellings = dict.fromkeys((*self.opts, *self.secondary_opts, *self.aliases, *self.flags))
                same = [name for name in spellings if name.startswith("--") and name != self.spelling]
                also = f" ({', '.join(same)}: the same option)" if same else ""
                raise click.BadOptionUsage(
                    self.spelling, f"{self.spelling} is given more than once{also}; give it once.", ctx
                )
            opts = {**opts, str(self.name): value}
        return super().handle_parse_result(ctx, opts, args)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the line of help, with the key of a configuration file where one sets it."""
        record = super().get_help_record(ctx)
        origin = get_config_origin(ctx, self)
        if record is None or origin is None:
            return record
        return record[0], f"{record[1]}  [{origin}]"

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the value; an error names the variable or the place in the file that the value is from."""
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter as wrong:
            source = ctx.get_parameter_source(str(self.name))
            origin = get_config_origin(ctx, self) if source is ParameterSource.DEFAULT_MAP else None
            if source is ParameterSource.ENVIRONMENT:
                origin = f"variable {self.envvar}"
            if origin:
                raise click.BadParameter(f"{wrong.message} ({origin})", ctx, self) from None
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """List the values that begin so; of a list by commas, the last."""
        if (completer := _COMPLETERS.get(self.spelling)) is None:
            return super().shell_complete(ctx, incomplete)
        return _complete_values(completer, incomplete)


def _complete_values(completer: str, incomplete: str) -> list[CompletionItem]:
    """Return what a function of ``completion`` lists, as far as it begins with the last word by commas."""
    done, comma, start = incomplete.rpartition(",")
    values = getattr(import_module("rocm_wheels.cli.completion"), completer)()
    return [CompletionItem(f"{done}{comma}{value}") for value in values if value.startswith(start)]


def complete_with(completer: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the ``shell_complete`` of an argument: what a function of ``completion`` lists."""
    return lambda ctx, param, incomplete: _complete_values(completer, incomplete)


def get_config_origin(ctx: click.Context, param: click.Parameter) -> str | None:
    """Return ``FILE: KEY`` of an option that a configuration file sets for this command."""
    origins: Mapping[str, str] = ctx.meta.get(_ORIGINS, {}).get(id(ctx.command), {})
    return origins.get(str(param.name))


_ORIGINS = "rocm_wheels.config_origins"
CONFIG_FILE = "rocm_wheels.config_file"  # in a context's meta: what --config names


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: int | bool) -> None:
    if value and not ctx.resilient_parsing:
        from rocm_wheels.core import log

        log.set_log_level("quiet" if param.name == "quiet" else "detail")


def _make_global_options() -> list[click.Parameter]:
    talk: dict[str, Any] = {"is_flag": True, "expose_value": False, "callback": _set_verbosity}
    folder = click.Path(exists=True, file_okay=False)
    return [
        Option(["-v", "--verbose"], help="Also show every command that is run.", **talk),
        Option(["-q", "--quiet"], help="Show warnings, errors and results only.", **talk),
        Option(
            [RECIPE_OPTION],
            multiple=True,
            metavar="DIR",
            type=folder,
            expose_value=False,
            help="Folder with recipes of more projects. May be given several times.",
        ),
    ]


class Command(click.Command):
    """A command by all its words (``rocm install``): the last is its name, all are its section in a file.

    Options are named by their long names: ``first`` are those that help shows before all others, where there
    are many; of each of ``apart`` one is given at most, and of each of ``together`` all or none; the first of
    each of ``needs`` is nothing without the second.
    """

    def __init__(
        self,
        name: str | None,
        *args: Any,
        first: Sequence[str] = (),
        apart: Sequence[Sequence[str]] = (),
        together: Sequence[Sequence[str]] = (),
        needs: Sequence[tuple[str, str]] = (),
        **kwargs: Any,
    ) -> None:
        words = (name or "").split()
        super().__init__(words[-1] if words else None, *args, **kwargs)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        self.words = tuple(words)
        self.first, self.apart, self.together, self.needs = tuple(first), apart, together, needs
        self.global_options = _make_global_options()
        foreign = [p.opts for p in self.params if isinstance(p, click.Option) and not isinstance(p, Option)]
        assert not foreign, f"{name}: {foreign} are click's options; use rocm_wheels.cli.command.option"

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, then those that every command has."""
        return [*self.global_options, *super().get_params(ctx)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's options, those of single projects apart, then those of every command."""
        help_option = self.get_help_option(ctx)
        by_name = {name: param for param in self.params for name in param.opts}
        first = [by_name[name] for name in self.first]
        single = [param for param in self.params if getattr(param, "project", "")]
        others = [param for param in self.params if param not in first and param not in single]
        sections: dict[str, list[click.Parameter]] = {
            "Options": first or others,
            "More options": others if first else [],
            "Single projects": single,
            "Global options": [*self.global_options, *([help_option] if help_option else [])],
        }
        for heading, params in sections.items():
            if records := [row for param in params if (row := param.get_help_record(ctx)) is not None]:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Begin with what a configuration file says of this command. Raises DataError."""
        if self.words and not isinstance(self, click.Group):
            from rocm_wheels.cli import config

            named = parent.meta.get(CONFIG_FILE) if parent else None
            values, origins = config.read_command_defaults(self, named)
            presets = (parent.default_map or {}).get(info_name or "") if parent else None
            extra["default_map"] = {**values, **(presets or {})}
            self._origins = {key: origin for key, origin in origins.items() if key not in (presets or {})}
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Do what the command does, with the numbers that it begins with kept for what asks servers.

        Raises UsageError for options that exclude each other, or are not all there.
        """
        values = {param.spelling: ctx.params.get(str(param.name)) for param in list_options(self)}
        given = [name for name, value in values.items() if value not in (None, (), False)]
        for names in self.apart:
            if len(named := [name for name in names if name in given]) > 1:
                raise errors.UsageError(
                    f"{' and '.join(named)} exclude each other", tip="leave one of them out"
                )
        for names in self.together:
            if 0 < len(named := [name for name in names if name in given]) < len(names):
                raise errors.UsageError(
                    f"{' and '.join(names)} go together", tip=f"there is {named[0]} alone"
                )
        for name, other in self.needs:
            if name in given and other not in given:
                raise errors.UsageError(f"{name} goes with {other}", tip=f"give {other}, too")
        if self.words and not isinstance(self, click.Group):
            from rocm_wheels.cli import config
            from rocm_wheels.core import environment_numbers

            settings = {variable: text for variable, (text, _) in config.read_settings().items()}
            environment_numbers.keep_for_process({**settings, **os.environ})
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note where values come from, and of the first command where recipes are; then parse.

        Options of commands come of recipes: where those are must be known before a command is imported.
        """
        ctx.meta.setdefault(_ORIGINS, {})[id(self)] = getattr(self, "_origins", {})
        args = self._spread_words(ctx, args)
        if ctx.parent is not None:
            return super().parse_args(ctx, args)
        from rocm_wheels.models import project_names

        words = list(args)
        project_names.set_recipe_search(lambda: _list_recipe_folders(ctx, words))
        forget_search = partial(
            project_names.set_recipe_search, tuple
        )  # who calls us from Python may go on elsewhere
        ctx.call_on_close(forget_search)
        try:
            return super().parse_args(ctx, args)
        except BaseException:
            forget_search()
            raise

    def _spread_words(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put an option of several words before each: ``--exclude _dbg_ _test_`` is how people have it.

        Where none follows, the option says nothing, or is refused (click's BadOptionUsage): click would take
        the next option for its word.
        """
        options = {
            name: param
            for param in self.params
            if isinstance(param, Option) and param.several
            for name in param.opts
        }
        end = args.index("--") if "--" in args else len(args)
        spread: list[str] = []
        option = ""
        for word, following in pairwise([*args[:end], "--"]):
            if word in options:
                option = word
                empty = following.startswith("-") and options[word].several == "+"
                if empty and not ctx.resilient_parsing:  # which completion has: the word is being typed
                    raise click.BadOptionUsage(word, f"Option {word!r} requires an argument.", ctx)
                continue
            option = "" if word.startswith("-") else option
            spread += [option, word] if option else [word]
        return [*spread, *args[end:]]


def widen_command(narrow: C, options: Sequence[click.Parameter]) -> C:
    """Return a command with the options that only a script of TheRock's name has, as TheRock's has them."""
    wide = copy(narrow)
    wide.params = [*narrow.params, *options]
    return wide


def _list_recipe_folders(ctx: click.Context, words: Sequence[str]) -> list[project_names.RecipeFolder]:
    """Return the folders with recipes: those named by the words of a command line, else by the variable, else
    by the configuration file, and ``recipes/`` of the current folder.
    """
    from rocm_wheels.cli import config
    from rocm_wheels.models import project_names

    words = words[: words.index("--")] if "--" in words else words
    texts = [value for word, value in pairwise(words) if word == RECIPE_OPTION]
    texts += [word.partition("=")[2] for word in words if word.startswith(f"{RECIPE_OPTION}=")]
    variable = [text for text in os.environ.get(RECIPE_VARIABLE, "").split(os.pathsep) if text]
    if texts or variable:
        origin = RECIPE_OPTION if texts else RECIPE_VARIABLE
        named = [project_names.RecipeFolder(Path(text).absolute(), origin) for text in texts or variable]
    else:
        named = config.list_configured_folders(ctx.params.get("config"))
    for folder in named:
        if not any(folder.path.glob("*.yaml")):
            missing = "has no recipes (*.yaml)" if folder.path.is_dir() else "is not there"
            raise errors.UsageError(
                f"{folder.origin}: the folder {folder.path} {missing}", tip="name another folder"
            )
    return [*named, project_names.RecipeFolder(Path.cwd() / "recipes", "recipes/ here")]


# name: (module:attribute under rocm_wheels.cli, one line for --help)
Commands = Mapping[str, tuple[str, str]]


class Group(Command, click.Group):
    """A group that may know its commands by name only, and imports one to run or to explain it.

    ``lazy`` is the table of them; ``sections`` are headings of the help with names; ``aliases`` are other
    names, which are read and not listed: the words below this group, or ``module:attribute`` of a command
    elsewhere, then options that the name stands for. ``default``: what is meant by options
    without a name of a command (the group was once a command), and ``default_when_bare`` by nothing at all.
    """

    command_class = Command

    def __init__(
        self,
        *args: Any,
        lazy: Commands | None = None,
        sections: Mapping[str, Sequence[str]] | None = None,
        aliases: Mapping[str, str] | None = None,
        default: str | None = None,
        default_when_bare: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})
        self._sections = sections
        self.aliases = dict(aliases or {})
        self._default = default
        self._default_when_bare = default_when_bare

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the work."""
        return [*self._lazy, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or ``None`` when there is none of that name."""
        if cmd_name in self.aliases:
            words, _ = split_alias(self.aliases[cmd_name])
            if ":" in words[0]:
                return _load_command(words[0])
            command: click.Command | None = self
            for word in words:
                command = command.get_command(ctx, word) if isinstance(command, Group) else None
            return command
        if cmd_name not in self._lazy:
            return self.commands.get(cmd_name)
        return _load_command(self._lazy[cmd_name][0])

    def write_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter, sections: Mapping[str, Iterable[str]]
    ) -> None:
        """Write names of commands, each with its line, under headings; none is imported for that."""
        about = {name: known.get_short_help_str(120) for name, known in self.commands.items()}
        about |= {name: line for name, (_, line) in self._lazy.items()}
        width = max(map(len, about), default=0)
        for heading, names in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), about[name]) for name in names])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.write_commands(ctx, formatter, self._sections or {"Commands": self.list_commands(ctx)})
        Command.format_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command where options stand without one."""
        names = {name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
        options_first = bool(args) and args[0].startswith("-") and args[0].partition("=")[0] not in names
        if self._default and (options_first or (not args and self._default_when_bare)):
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a name that is nearly one is named in the error."""
        names = [*self.list_commands(ctx), *self.aliases]
        if args and args[0] not in names and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], names, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        name, command, rest = super().resolve_command(ctx, args)
        _, flags = split_alias(self.aliases.get(args[0], ""))
        return name, command, [*(flag for flag in flags if flag not in rest), *rest]


def split_alias(text: str) -> tuple[list[str], list[str]]:
    """Return the words of what an alias stands for, and the flags behind them."""
    words = text.split()
    flags = [word for word in words if word.startswith("-")]
    return words[: len(words) - len(flags)], flags


def _load_command(place: str) -> click.Command:
    """Import a command by ``module:attribute`` under ``rocm_wheels.cli``."""
    module, _, attribute = place.partition(":")
    loaded: click.Command = getattr(import_module(f"rocm_wheels.cli.{module}"), attribute)
    return loaded


Group.group_class = Group

F = TypeVar("F", bound=Callable[..., Any])


def option(*param_decls: str, **attrs: Any) -> Callable[[F], F]:
    """Return what adds an ``Option`` to a command."""
    return click.option(*param_decls, cls=Option, **attrs)


def command(words: str, *, cls: type[Command] = Command, **attrs: Any) -> Callable[[Any], Command]:
    """Return what makes a ``Command`` of a function; ``words`` are all that people type before options."""
    return click.command(words, cls=cls, **attrs)


def group(words: str, **attrs: Any) -> Callable[[Any], Group]:
    """Return what makes a ``Group`` of a function."""
    return click.group(words, cls=Group, **attrs)


def list_options(command: click.Command) -> Iterable[Option]:
    """Return the options that people can give to a command, hidden ones left out."""
    return [param for param in command.params if isinstance(param, Option) and not param.hidden]
