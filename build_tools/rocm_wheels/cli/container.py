"""``container``: run a command in a container, as you, with the GPUs; or print how."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, command
from rocm_wheels.cli.options import GivenPath, print_result
from rocm_wheels.core import errors, log

if TYPE_CHECKING:
    from rocm_wheels.ci import container_command, container_engine
    from rocm_wheels.models import project_names

_COMMAND_LAST = {"allow_interspersed_args": False}  # what follows the command is its own
_HELP = """Commands in containers, by docker or podman: in the image that wheels are built in, or tested in.

The folder that you are in, the checkout of rocm-wheels and the cache are mounted at the same paths, and files
belong to you. Of your variables, only those of proxies and certificates are passed on, and what --env names.
The exit code is the command's own; 18 when there is no engine, or it does not answer, or has no such image:
the message has the line that makes one of ours.
"""


@command.group("container", help=_HELP)
def container_group() -> None:
    """Hold the commands about containers."""


_run_options = catalogue.takes(
    command.option(
        "--image",
        default="build",
        show_default=True,
        metavar="NAME|IMAGE",
        help="A name of `compat show images`, or any other as name@sha256:….",
    ),
    command.option("--gpu", is_flag=True, help="With the GPUs of this machine."),
    command.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="PATH[:INSIDE][:ro]",
        help="One more folder or file; can be repeated.",
    ),
    command.option(
        "--cache",
        type=GivenPath(file_okay=False),
        metavar="DIR",
        help="HOME, ccache, uv, pip of containers.  [default: ~/.cache/rocm-wheels/containers]",
    ),
    command.option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="One more variable; can be repeated. A secret by its name alone.",
    ),
    command.option("--shm-size", metavar="SIZE", help="A /dev/shm of this size, as 16g, not the machine's."),
    command.option("--network", metavar="NET", help="Network, as engines name it: none, host, bridge."),
    command.option("-i", "--interactive", is_flag=True, help="Pass standard input on, also of a pipe."),
    command.option(
        "--engine",
        type=click.Choice(["docker", "podman", "auto"]),
        default="auto",
        show_default=True,
        help="auto takes the first that answers.",
    ),
    command.option(
        "--allow-unresolved",
        is_flag=True,
        help="Take an image without a known digest: its bytes may change.",
    ),
    click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND..."),
)


@container_group.command("container run", context_settings=_COMMAND_LAST)
@_run_options
@command.option("--print", "only_print", is_flag=True, help="Print the line for a shell, and run nothing.")
@command.option("--explain", is_flag=True, help="With --print: why each option is there, one a line.")
@catalogue.JSON.but(help="With --print: as JSON, each part with its reason.")
def run(
    words: tuple[str, ...], engine: str, only_print: bool, explain: bool, as_json: bool, **options: Any
) -> int:
    """Run COMMAND in a container and leave with its exit code.

    Options go before the command. A signal ends the container, too; KILL, which nothing can catch, does not.
    With --print and --gpu also where there is none: the line then asks the machine that it is run on who owns
    its GPUs; the container's name is another one each time.

    \b
    Examples:
      rocm-wheels container run --image build -- rocm-wheels plan --output-dir dist
      rocm-wheels container run --print --image build -- bash
    """
    from rocm_wheels.ci import container_command, container_engine, container_host

    if (explain or as_json) and not only_print:
        raise click.UsageError("--explain and --json are about the line of --print: give that too")
    env, settings = boundary.read_environment(), _make_settings(words, options)
    if only_print:
        _print_run(settings, engine, as_json=as_json, explain=explain)
        return 0
    machine = container_host.inspect_host(env)
    request = container_command.make_container_request(settings, machine, env)
    try:
        chosen_engine = container_engine.find_engine(_parse_engine(engine), env)
    except errors.EngineError:
        argv_shown = container_command.flatten_parts(
            container_command.compose_command(
                container_engine.assume_engine(_parse_engine(engine)), machine, request
            )
        )
        log.log_note(
            f"would have been run: {container_command.format_pasteable_line(argv_shown, settings.cache)}"
        )
        raise
    argv = container_command.flatten_parts(container_command.compose_command(chosen_engine, machine, request))
    if request.image.made_here:
        how = _say_how_to_make(settings.image, chosen_engine, env)
        container_command.require_image(chosen_engine, request.image.reference, env, how=how)
    for folder in container_command.list_cache_folders(settings.cache):
        folder.mkdir(parents=True, exist_ok=True)
    return container_command.run_container(
        chosen_engine, argv, request.name, env, stdin=request.stdin or request.tty
    )


def _print_run(
    settings: container_command.ContainerOptions, engine: str, *, as_json: bool, explain: bool
) -> None:
    """Print the line that would be run, for any machine; the container's name is another one each time."""
    from rocm_wheels.ci import container_command, container_engine, container_host
    from rocm_wheels.core import shell

    env = boundary.read_environment()
    machine = container_host.inspect_host(env)
    request = container_command.make_container_request(replace(settings, for_any_machine=True), machine, env)
    try:
        chosen_engine = container_engine.find_engine(_parse_engine(engine), env)
    except errors.EngineError as missing:
        chosen_engine = container_engine.assume_engine(_parse_engine(engine))
        log.log_warning(f"{missing.message}\nthe line is what {chosen_engine.name} would be given")
    parts = container_command.compose_command(chosen_engine, machine, request)
    if as_json:
        document = [{"words": list(part.words), "why": part.why} for part in parts]
        print_result({"engine": chosen_engine.name, "parts": document}, (), as_json=True)
    elif explain:
        for part in parts:
            click.echo(
                f"{container_command.resolve_groups_in_shell(shell.format_command(part.words))}  # {part.why}"
            )
    else:
        click.echo(
            container_command.format_pasteable_line(container_command.flatten_parts(parts), settings.cache)
        )


@container_group.command("container resolve")
@click.argument("image", default="", metavar="[IMAGE]")
@catalogue.PLATFORM.but(
    default="linux", show_default=True, help="What is built for: jobs on Windows run in no image."
)
@command.option(
    "--github-output", is_flag=True, help="Set the outputs image and plat of a step of a workflow."
)
@catalogue.JSON
def resolve(image: str, platform: project_names.Platform, github_output: bool, as_json: bool) -> None:
    """Print the image that a job builds wheels in, by its digest, and what it tells `build --plat`.

    IMAGE is a name of `compat show images` that is run as it is, any other as name@sha256:…, or none: on the
    machine itself. Without it, or empty: the one that data/containers.yaml names for jobs.

    \b
    Examples:
      rocm-wheels container resolve
    """
    from rocm_wheels.ci import container_engine, matrix_report

    job_image = container_engine.choose_job_image(image, platform)
    document = {"image": job_image.image, "plat": job_image.plat}
    if github_output:
        matrix_report.set_outputs(boundary.read_environment(), document)
    lines = [f"{job_image.image or 'the machine itself'}, --plat {job_image.plat}"]
    print_result(document, lines, as_json=as_json)


def _make_settings(words: tuple[str, ...], options: dict[str, Any]) -> container_command.ContainerOptions:
    from rocm_wheels.ci import container_command, container_host
    from rocm_wheels.core import user_folders

    try:
        here = Path.cwd()
    except FileNotFoundError as missing:
        raise click.UsageError("the current folder no longer exists: change to another") from missing
    cache = (
        options["cache"]
        or user_folders.find_cache_folder(boundary.read_environment(), sys.platform) / "containers"
    )
    return container_command.ContainerOptions(
        image=options["image"],
        command=words,
        here=here,
        cache=container_host.expand_path(str(cache), "--cache"),
        clone=_find_clone(),
        mounts=options["mounts"],
        variables=options["variables"],
        gpu=options["gpu"],
        shared_memory=options["shm_size"],
        network=options["network"],
        stdin=options["interactive"],
        tty=sys.stdin.isatty() and sys.stdout.isatty(),
        allow_unresolved=options["allow_unresolved"],
    )


def _find_clone() -> Path | None:
    from rocm_wheels.core import workspace

    return workspace.get_project_home() if workspace.is_clone() else None


def _parse_engine(engine: str) -> container_engine.EngineName | None:
    return "docker" if engine == "docker" else "podman" if engine == "podman" else None


def _say_how_to_make(image: str, engine: container_engine.Engine, env: Mapping[str, str]) -> str:
    from rocm_wheels.ci import container_engine
    from rocm_wheels.models import ci

    known_image = ci.load_container_table().images.get(image)
    if known_image is None:
        return "load, import or build it first"
    recipe = container_engine.make_image_recipe(image, known_image, _find_clone())
    return f"make it: {container_engine.format_build_command(engine, recipe, env)}"
