"""``rocm-wheels container``: run a command in a container, as you, with the GPUs; or print how."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.option_lists import in_order
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import EngineError

if TYPE_CHECKING:
    from rocm_wheels.ci.containers.engine import Name
    from rocm_wheels.ci.containers.request import Asked

F = TypeVar("F", bound=Callable[..., Any])
_NOT_MIXED = {"allow_interspersed_args": False}  # what follows the command is its own
_HELP = """Commands in containers, by docker or podman: in the image that wheels are built in, or tested in.

The folder that you are in, the checkout of rocm-wheels and the cache are mounted at the same paths, and files
belong to you. Of your variables, only those of proxies and certificates are passed on, and what --env names.
The exit code is the command's own; 18 when there is no engine, or it does not answer.
"""


@click.group("container", help=_HELP)
def group() -> None:
    """Hold the commands about containers."""


def _engine_option(function: F) -> F:
    return click.option(
        "--engine",
        type=click.Choice(["docker", "podman", "auto"]),
        default="auto",
        show_default=True,
        help="auto takes the first that answers.",
    )(function)


def _unresolved_option(function: F) -> F:
    help_text = "Take an image whose digest is not known: its bytes can be others tomorrow."
    return click.option("--allow-unresolved", is_flag=True, help=help_text)(function)


# what `run` and `print` have in common
_run_options = in_order(
    click.option(
        "--image",
        default="build",
        show_default=True,
        metavar="NAME|IMAGE",
        help="One of `container images`, or any other as name@sha256:….",
    ),
    click.option("--gpu", is_flag=True, help="With the GPUs of this machine."),
    click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="PATH[:INSIDE][:ro]",
        help="One more folder or file; can be repeated.",
    ),
    click.option(
        "--cache",
        type=GivenPath(file_okay=False),
        metavar="DIR",
        help="HOME, ccache, uv, pip of containers.  [default: ~/.cache/rocm-wheels/containers]",
    ),
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="One more variable; can be repeated. A secret by its name alone.",
    ),
    click.option("--shm-size", metavar="SIZE", help="A /dev/shm of this size, as 16g, not the machine's."),
    click.option("--network", metavar="NET", help="Network, as engines name it: none, host, bridge."),
    click.option("-i", "--interactive", is_flag=True, help="Pass standard input on, also of a pipe."),
    _engine_option,
    _unresolved_option,
    click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND..."),
)


@group.command("run", context_settings=_NOT_MIXED)
@_run_options
def run(words: tuple[str, ...], engine: str, **options: Any) -> int:
    """Run COMMAND in a container and leave with its exit code.

    Options go before the command. A signal ends the container, too; KILL, which nothing can catch, does not.
    """
    from rocm_wheels.ci.containers.command import compose, words_of
    from rocm_wheels.ci.containers.engine import assumed_engine, find_engine
    from rocm_wheels.ci.containers.machine import look_at_machine
    from rocm_wheels.ci.containers.request import folders_of, pasteable, request_of
    from rocm_wheels.ci.containers.running import require_image, run_container

    env, asked = environment(), _asked(words, options)
    machine = look_at_machine(env)
    request = request_of(asked, machine, env)
    try:
        found = find_engine(_name(engine), env)
    except EngineError:
        would = words_of(compose(assumed_engine(_name(engine)), machine, request))
        log.note(f"would have been run: {pasteable(would, asked.cache)}")
        raise
    argv = words_of(compose(found, machine, request))
    if request.image.made_here:
        require_image(found, request.image.reference, env, how=_how_made(asked.image))
    for folder in folders_of(asked.cache):
        folder.mkdir(parents=True, exist_ok=True)
    return run_container(found, argv, request.name, env, stdin=request.stdin or request.tty)


@group.command("print", context_settings=_NOT_MIXED)
@_run_options
@click.option("--explain", is_flag=True, help="Print why each option is there, one a line.")
def show(words: tuple[str, ...], engine: str, explain: bool, **options: Any) -> None:
    """Print the line that `run` would run, for a shell; the container's name is another one each time.

    With --gpu also where there is none: the line then asks the machine that it is run on who owns its GPUs.
    """
    from rocm_wheels.ci.containers.command import compose, words_of
    from rocm_wheels.ci.containers.engine import assumed_engine, find_engine
    from rocm_wheels.ci.containers.machine import look_at_machine
    from rocm_wheels.ci.containers.request import asking_there, pasteable, request_of
    from rocm_wheels.shell import shell_line

    env, asked = environment(), replace(_asked(words, options), for_any_machine=True)
    machine = look_at_machine(env)
    request = request_of(asked, machine, env)
    try:
        found = find_engine(_name(engine), env)
    except EngineError as missing:
        found = assumed_engine(_name(engine))
        log.warn(f"{missing.message}\nthe line is what {found.name} would be given")
    parts = compose(found, machine, request)
    if explain:
        for part in parts:
            click.echo(f"{asking_there(shell_line(part.words))}  # {part.why}")
    else:
        click.echo(pasteable(words_of(parts), asked.cache))


@group.command("build")
@click.argument("name", metavar="NAME")
@click.option("--print", "only_print", is_flag=True, help="Print the command, and run nothing.")
@_engine_option
@_unresolved_option
def build(name: str, only_print: bool, engine: str, allow_unresolved: bool) -> None:
    """Make an image of ours from its Dockerfile: NAME is build or test.

    Its tag stands for the Dockerfile and all that it copies: `run` takes none that was made of others.
    """
    from rocm_wheels.ci.containers.building import build_image, build_line, named_recipe
    from rocm_wheels.ci.containers.engine import assumed_engine, find_engine

    env, clone = environment(), _clone()
    recipe = named_recipe(name, clone, allow_unresolved=allow_unresolved)
    try:
        found = find_engine(_name(engine), env)
    except EngineError as missing:
        line = build_line(assumed_engine(_name(engine)), recipe, env)
        if not only_print:
            log.note(f"would have been run: {line}")
            raise
        log.warn(missing.message)
        click.echo(line)
        return
    if only_print:
        click.echo(build_line(found, recipe, env))
        return
    build_image(found, recipe, env)
    click.echo(recipe.reference)


@group.command("images")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def images(as_json: bool) -> None:
    """List the images known by name, their digests, and where those were read."""
    from rocm_wheels.ci.containers.images import recipe_of
    from rocm_wheels.model.containers import container_table

    table, clone = container_table(), _clone()
    said = []
    for name, one in table.images.items():
        made = recipe_of(name, one, clone).reference if one.dockerfile and clone else ""
        source = table.sources[one.source]
        said.append(
            {
                "name": name,
                "about": one.about,
                "image": one.image,
                "digest": one.digest,
                "dockerfile": one.dockerfile,
                "made_as": made,
                "read_from": source.url,
                "read_on": source.retrieved.isoformat(),
                "note": one.note,
            }
        )
    if as_json:
        click.echo(json.dumps(said, indent=1))
        return
    for row in said:
        start = "starts from " if row["dockerfile"] else ""
        click.echo(f"{log.paint(row['name'], 'green')}: {row['about']}")
        click.echo(f"  {start}{row['image']}@{row['digest']}" + (f" ({row['note']})" if row["note"] else ""))
        click.echo(f"  read on {row['read_on']} from {row['read_from']}")
        if row["dockerfile"]:
            click.echo(
                f"  made by `rocm-wheels container build {row['name']}`"
                + (f" as {made}" if (made := row["made_as"]) else "")
            )
    log.note("images with a torch in them: `rocm-wheels compat show images`; their digests are not known")


def _asked(words: tuple[str, ...], options: dict[str, Any]) -> Asked:
    from rocm_wheels.ci.containers.mounts import plain_path
    from rocm_wheels.ci.containers.request import Asked
    from rocm_wheels.hosts.install.cache import cache_folder

    try:
        here = Path.cwd()
    except FileNotFoundError as gone:
        raise click.UsageError(
            "the folder that you are in is not there any more: change to another"
        ) from gone
    cache = options["cache"] or cache_folder(environment(), sys.platform) / "containers"
    return Asked(
        image=options["image"],
        command=words,
        here=here,
        cache=plain_path(str(cache), "--cache"),
        clone=_clone(),
        mounts=options["mounts"],
        variables=options["variables"],
        gpu=options["gpu"],
        shared_memory=options["shm_size"],
        network=options["network"],
        stdin=options["interactive"],
        tty=sys.stdin.isatty() and sys.stdout.isatty(),
        allow_unresolved=options["allow_unresolved"],
    )


def _clone() -> Path | None:
    from rocm_wheels.workspace import home, in_clone

    return home() if in_clone() else None


def _name(engine: str) -> Name | None:
    return "docker" if engine == "docker" else "podman" if engine == "podman" else None


def _how_made(image: str) -> str:
    from rocm_wheels.model.containers import container_table

    ours = image in container_table().images
    return f"make it: rocm-wheels container build {image}" if ours else "load, import or build it first"
