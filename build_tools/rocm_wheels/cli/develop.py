"""``dev`` and ``shell``: compile a project in its tree as often as somebody edits it, and work with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli import boundary, build_options, catalogue, command
from rocm_wheels.cli.output import format_variable, print_result
from rocm_wheels.core import errors, log, progress
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from rocm_wheels.pipeline.request import WheelsRequest

_project_argument = click.argument(
    "project", default="pytorch", metavar="[PROJECT]", shell_complete=command.complete_with("list_projects")
)


# what a run is given anew each time: where it works, and how
_OF_ONE_RUN = {"root_checkout_dir", "work_dir"}


@command.command("dev")
@_project_argument
@build_options.packages_options
@catalogue.SOURCE_DIR
@catalogue.INSTALL_ROCM
@build_options.rocm_path_option
@catalogue.BUILD_GFX
@catalogue.VENV.but(
    help="Build and install in this virtual environment, which must have ROCm [default: one below"
    " --work-dir]."
)
@catalogue.SET_ENV
@catalogue.JSON
@click.pass_context
def develop_command(ctx: click.Context, /, project: str, as_json: bool, **options: Any) -> None:
    """Compile PROJECT in its source tree and install it as editable: after each edit, run it again.

    The first run installs what is missing and runs the project's front end, as `pip install -e .
    --no-build-isolation` does, in the environment and the build tree of `build`. Later runs hipify what
    changed and run ninja; they run the front end again only if setup.py, the environment, targets or
    variables changed. PROJECT is pytorch by default. Without options, those of the last run are used.

    \b
    Example:
      rocm-wheels dev pytorch --install-rocm --rocm-index URL --gfx gfx1100
      rocm-wheels dev pytorch --rocm-path /opt/rocm --gfx gfx1100
      rocm-wheels dev               # after an edit
      rocm-wheels shell pytorch     # and there: python -m pytest test/test_nn.py
    """
    from rocm_wheels.pipeline import edit_loop

    project, env = _find_project(project), boundary.read_build_environment()
    _, work = build_options.resolve_folders(options)
    note, command_line = edit_loop.locate_loop_note(work, project), None
    edit_loop.end_killed_run(work)
    stated = {name for name in options if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
    if stated <= _OF_ONE_RUN and (last := edit_loop.find_loop_options(note)) is not None:
        remembered, command_line = last
        of_this_run = {name: options[name] for name in _OF_ONE_RUN}
        options = {**options, **_restore_paths({**options, **remembered}), **of_this_run}
        log.log_note(f"as the last time: {command_line}")
    if options["venv"] is not None:
        env["VIRTUAL_ENV"] = str(options["venv"].absolute())
    parameters = {**options, "work_dir": work}
    spellings = {str(option.name): option.spelling for option in command.list_options(ctx.command)}
    result = edit_loop.repeat_loop(note, parameters, spellings, env, progress.show_live_line)
    if isinstance(result, str):
        request = _make_request(project, options, env)
        # it takes longer than the next ones
        log.log_note(f"{project}: running its front end ({result}); later edits only recompile")
        command_line = command_line or boundary.format_command_line()
        with boundary.serve_forks() as server:
            result = edit_loop.begin_loop(request, project, parameters, env, command_line, server=server)
    hipified = f", {result.hipified} hipified" if result.hipified else ""
    line = f"{project} {result.version}: {result.action}{hipified} ({result.seconds:.1f} s)"
    places = f"  source {result.source}\n  python {result.python}"
    print_result(result.as_json(), [line, places], as_json=as_json)


def _find_project(text: str) -> str:
    """Return the project of that name; the names of wheels count. Raises UsageError."""
    if (name := text.replace("-", "_")) in project_names.list_project_names():
        return name
    from rocm_wheels.cli import checkout

    return checkout.find_project_name(text)


def _make_request(project: str, options: Mapping[str, Any], env: dict[str, str]) -> WheelsRequest:
    """Return what `build` would be asked for, but that the project is developed. Raises UsageError."""
    from dataclasses import replace

    from rocm_wheels.cli import build
    from rocm_wheels.core import installation
    from rocm_wheels.sdk import interpreters

    installation.require_extras("a build", "build")
    _, work = build_options.resolve_folders(options)
    # what `build` has besides, with its defaults: not those of a configuration file
    defaults = click.Command.make_context(
        build.build, "build", ["--output-dir", str(work / "develop")]
    ).params
    changes: dict[str, Any] = {"projects": (project,)}
    if options["venv"] is not None:
        python = interpreters.locate_python(options["venv"])
        if not python.exists():
            raise errors.UsageError(
                f"--venv {options['venv']} is no virtual environment: there is no {python}",
                tip="make one first, with `uv venv` or `python -m venv`",
            )
        changes["current_env"] = True
        env["VIRTUAL_ENV"] = str(options["venv"].absolute())
    request = build_options.make_wheels_request({**defaults, **options, **changes}, env)
    return replace(request, develop=True)


_SHELLS = ("sh", "fish", "powershell")


class _ShellCommand(command.Command):
    """PROJECT may be left out in front of ``--``: what stands behind it is the command, and no project."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what stands behind ``--`` for itself."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[_COMMAND_KEY], args = args[place + 1 :], args[:place]
        return super().parse_args(ctx, args)


_COMMAND_KEY = "rocm_wheels.shell.command"


@command.command("shell", cls=_ShellCommand)
@_project_argument
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@catalogue.WORK_DIR
@command.option(
    "--print",
    "printed",
    type=click.Choice(_SHELLS),
    metavar="SHELL",
    help="Print the variables as lines for this shell to evaluate: sh, fish or powershell.",
)
@catalogue.JSON
@click.pass_context
def shell_command(
    ctx: click.Context,
    /,
    project: str,
    words: tuple[str, ...],
    *,
    printed: str | None,
    as_json: bool,
    **options: Any,
) -> int | None:
    """Open a shell in which PROJECT can be imported, tested and built by hand, as `dev` builds it.

    With a COMMAND after --, run it there instead, and exit with its exit code.

    Its variables are those of the build step of the last `dev`: PATH, ROCM_PATH, PYTORCH_ROCM_ARCH,
    CMAKE_PREFIX_PATH, … PROJECT is pytorch by default. pip and `uv pip` install there into the environment of
    `dev`; rocm-wheels' uv is last on PATH.

    \b
    Examples:
      rocm-wheels shell pytorch
      rocm-wheels shell pytorch -- python -m pytest test/test_nn.py
      eval "$(rocm-wheels shell pytorch --print sh)"
    """
    from rocm_wheels.core import installation, process
    from rocm_wheels.core.shell import compare_environments
    from rocm_wheels.pipeline import edit_loop

    words = (*words, *ctx.meta.get(_COMMAND_KEY, ()))
    if words and (printed or as_json):
        raise click.UsageError("--print and --json print variables, and a COMMAND is to be run: not both")
    project, env = _find_project(project), boundary.read_build_environment()
    _, work = build_options.resolve_folders(options)
    parameters = _restore_paths(edit_loop.read_loop_options(work, project))
    variables = edit_loop.compose_shell_environment(_make_request(project, parameters, env), project, env)
    # last of all: a uv for the environment, which has no pip, where none is on PATH
    variables["PATH"] = f"{variables['PATH']}{os.pathsep}{installation.find_uv().parent}"
    if os.name == "posix":
        _add_pip(variables, work)
    outer = boundary.read_build_environment()
    variables = boundary.enter_shell(outer, variables)
    changes = compare_environments(boundary.read_environment(), variables)
    if as_json or printed:
        lines = [format_variable(name, value, printed or "sh") for name, value in sorted(changes.items())]
        print_result(changes, lines, as_json=as_json)
        return None
    argv = [*words] or [env.get("SHELL") or env.get("COMSPEC") or "/bin/sh"]
    sys.stdout.flush()
    return process.run_on_terminal(argv, env=variables, stdin=True, error=errors.UsageError)


def _add_pip(variables: dict[str, str], work: Path) -> None:
    """Put a pip behind the environment's own: one that we made has none, and the system's is not its."""
    from rocm_wheels.core.files import write_atomically

    program = work.absolute() / "shell-programs" / "pip"
    program.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(program, '#!/bin/sh\n# the pip of `rocm-wheels shell`\nexec uv pip "$@"\n')
    program.chmod(0o755)
    first, _, rest = variables["PATH"].partition(os.pathsep)
    variables["PATH"] = os.pathsep.join([first, str(program.parent), rest])


def _restore_paths(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return options as they were given: paths come as text out of a note."""
    names = ("root_checkout_dir", "work_dir", "rocm_path", "venv")
    paths = {name: Path(parameters[name]) for name in names if parameters[name] is not None}
    return {**parameters, **paths}
