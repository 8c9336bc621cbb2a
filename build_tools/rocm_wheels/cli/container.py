"""``container``: run a command in a container, as you, with the GPUs; or print how."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.command import group, option
from rocm_wheels.cli.options import GivenPath, combine_options, json_option, print_result
from rocm_wheels.core import EngineError, log_note, log_warning, paint_result

if TYPE_CHECKING:
    from rocm_wheels.ci import ContainerOptions, EngineName
    from rocm_wheels.models import Platform

F = TypeVar("F", bound=Callable[..., Any])
_COMMAND_LAST = {"allow_interspersed_args": False}  # what follows the command is its own
_HELP = """Commands in containers, by docker or podman: in the image that wheels are built in, or tested in.

The folder that you are in, the checkout of rocm-wheels and the cache are mounted at the same paths, and files
belong to you. Of your variables, only those of proxies and certificates are passed on, and what --env names.
The exit code is the command's own; 18 when there is no engine, or it does not answer.
"""


@group("container", help=_HELP)
def container_group() -> None:
    """Hold the commands about containers."""


def _engine_option(function: F) -> F:
    return option(
        "--engine",
        type=click.Choice(["docker", "podman", "auto"]),
        default="auto",
        show_default=True,
        help="auto takes the first that answers.",
    )(function)


def _unresolved_option(function: F) -> F:
    help_text = "Take an image without a known digest: its bytes may change."
    return option("--allow-unresolved", is_flag=True, help=help_text)(function)


# what `run` and `print` have in common
_run_options = combine_options(
    option(
        "--image",
        default="build",
        show_default=True,
        metavar="NAME|IMAGE",
        help="One of `container images`, or any other as name@sha256:….",
    ),
    option("--gpu", is_flag=True, help="With the GPUs of this machine."),
    option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="PATH[:INSIDE][:ro]",
        help="One more folder or file; can be repeated.",
    ),
    option(
        "--cache",
        type=GivenPath(file_okay=False),
        metavar="DIR",
        help="HOME, ccache, uv, pip of containers.  [default: ~/.cache/rocm-wheels/containers]",
    ),
    option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="One more variable; can be repeated. A secret by its name alone.",
    ),
    option("--shm-size", metavar="SIZE", help="A /dev/shm of this size, as 16g, not the machine's."),
    option("--network", metavar="NET", help="Network, as engines name it: none, host, bridge."),
    option("-i", "--interactive", is_flag=True, help="Pass standard input on, also of a pipe."),
    _engine_option,
    _unresolved_option,
    click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND..."),
)


@container_group.command("container run", context_settings=_COMMAND_LAST)
@_run_options
def run(words: tuple[str, ...], engine: str, **options: Any) -> int:
    """Run COMMAND in a container and leave with its exit code.

    Options go before the command. A signal ends the container, too; KILL, which nothing can catch, does not.

    \b
    Examples:
      rocm-wheels container run --image build -- rocm-wheels plan --output-dir dist
    """
    from rocm_wheels.ci import (
        assume_engine,
        compose_command,
        find_engine,
        flatten_parts,
        format_pasteable_line,
        inspect_host,
        list_cache_folders,
        make_container_request,
        require_image,
        run_container,
    )

    env, settings = read_environment(), _make_settings(words, options)
    machine = inspect_host(env)
    request = make_container_request(settings, machine, env)
    try:
        chosen_engine = find_engine(_parse_engine(engine), env)
    except EngineError:
        argv_shown = flatten_parts(compose_command(assume_engine(_parse_engine(engine)), machine, request))
        log_note(f"would have been run: {format_pasteable_line(argv_shown, settings.cache)}")
        raise
    argv = flatten_parts(compose_command(chosen_engine, machine, request))
    if request.image.made_here:
        require_image(chosen_engine, request.image.reference, env, how=_choose_image_tip(settings.image))
    for folder in list_cache_folders(settings.cache):
        folder.mkdir(parents=True, exist_ok=True)
    return run_container(chosen_engine, argv, request.name, env, stdin=request.stdin or request.tty)


@container_group.command("container print", context_settings=_COMMAND_LAST)
@_run_options
@option("--explain", is_flag=True, help="Print why each option is there, one a line.")
@json_option
def show(words: tuple[str, ...], engine: str, explain: bool, as_json: bool, **options: Any) -> None:
    """Print the line that `run` would run, for a shell; the container's name is another one each time.

    With --gpu also where there is none: the line then asks the machine that it is run on who owns its GPUs.

    \b
    Examples:
      rocm-wheels container print --image build -- bash
    """
    from rocm_wheels.ci import (
        assume_engine,
        compose_command,
        find_engine,
        flatten_parts,
        format_pasteable_line,
        inspect_host,
        make_container_request,
        resolve_groups_in_shell,
    )
    from rocm_wheels.core import format_command

    env, settings = read_environment(), replace(_make_settings(words, options), for_any_machine=True)
    machine = inspect_host(env)
    request = make_container_request(settings, machine, env)
    try:
        chosen_engine = find_engine(_parse_engine(engine), env)
    except EngineError as missing:
        chosen_engine = assume_engine(_parse_engine(engine))
        log_warning(f"{missing.message}\nthe line is what {chosen_engine.name} would be given")
    parts = compose_command(chosen_engine, machine, request)
    if as_json:
        document = [{"words": list(part.words), "why": part.why} for part in parts]
        print_result({"engine": chosen_engine.name, "parts": document}, (), as_json=True)
    elif explain:
        for part in parts:
            click.echo(f"{resolve_groups_in_shell(format_command(part.words))}  # {part.why}")
    else:
        click.echo(format_pasteable_line(flatten_parts(parts), settings.cache))


@container_group.command("container build")
@click.argument("name", metavar="NAME")
@option("--print", "only_print", is_flag=True, help="Print the command, and run nothing.")
@_engine_option
@_unresolved_option
@json_option
def build(name: str, only_print: bool, engine: str, allow_unresolved: bool, as_json: bool) -> None:
    """Build an image of this project from its Dockerfile: NAME is build or test.

    Its tag stands for the Dockerfile and all that it copies: `run` takes none that was made of others.

    \b
    Examples:
      rocm-wheels container build build
    """
    from rocm_wheels.ci import (
        assume_engine,
        build_image,
        find_engine,
        find_image_recipe,
        format_build_command,
    )

    env, clone = read_environment(), _find_clone()
    recipe = find_image_recipe(name, clone, allow_unresolved=allow_unresolved)
    try:
        chosen_engine = find_engine(_parse_engine(engine), env)
    except EngineError as missing:
        line = format_build_command(assume_engine(_parse_engine(engine)), recipe, env)
        if not only_print:
            log_note(f"would have been run: {line}")
            raise
        log_warning(missing.message)
        print_result({"command": line}, [line], as_json=as_json)
        return
    if only_print:
        line = format_build_command(chosen_engine, recipe, env)
        print_result({"command": line}, [line], as_json=as_json)
        return
    build_image(chosen_engine, recipe, env)
    print_result({"image": recipe.reference}, [recipe.reference], as_json=as_json)


@container_group.command("container images")
@option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def images(as_json: bool) -> None:
    """List the images known by name, their digests, and where those were read.

    \b
    Examples:
      rocm-wheels container images
    """
    from rocm_wheels.ci import make_image_recipe
    from rocm_wheels.models import load_container_table

    table, clone = load_container_table(), _find_clone()
    rows = []
    for name, image in table.images.items():
        reference = make_image_recipe(name, image, clone).reference if image.dockerfile and clone else ""
        source = table.sources[image.source]
        rows.append(
            {
                "name": name,
                "about": image.about,
                "image": image.image,
                "digest": image.digest,
                "dockerfile": image.dockerfile,
                "made_as": reference,
                "read_from": source.url,
                "read_on": source.retrieved.isoformat(),
                "note": image.note,
            }
        )
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        start = "starts from " if row["dockerfile"] else ""
        click.echo(f"{paint_result(row['name'], 'green')}: {row['about']}")
        click.echo(f"  {start}{row['image']}@{row['digest']}" + (f" ({row['note']})" if row["note"] else ""))
        click.echo(f"  read on {row['read_on']} from {row['read_from']}")
        if row["dockerfile"]:
            click.echo(
                f"  made by `rocm-wheels container build {row['name']}`"
                + (f" as {reference}" if (reference := row["made_as"]) else "")
            )
    log_note("images with a torch in them: `rocm-wheels compat show images`; their digests are unknown")


@container_group.command("container resolve")
@click.argument("image", default="", metavar="[IMAGE]")
@option(
    "--platform",
    type=click.Choice(["linux", "windows"]),
    default="linux",
    show_default=True,
    help="What is built for: jobs on Windows run in no image.",
)
@option("--github-output", is_flag=True, help="Set the outputs image and plat of a step of a workflow.")
@json_option
def resolve(image: str, platform: Platform, github_output: bool, as_json: bool) -> None:
    """Print the image that a job builds wheels in, by its digest, and what it tells `build --plat`.

    IMAGE is one of `container images` that is run as it is, any other as name@sha256:…, or none: on the
    machine itself. Without it, or empty: the one that data/containers.yaml names for jobs.

    \b
    Examples:
      rocm-wheels container resolve
    """
    from rocm_wheels.ci import choose_job_image, set_outputs

    job_image = choose_job_image(image, platform)
    document = {"image": job_image.image, "plat": job_image.plat}
    if github_output:
        set_outputs(read_environment(), document)
    lines = [f"{job_image.image or 'the machine itself'}, --plat {job_image.plat}"]
    print_result(document, lines, as_json=as_json)


def _make_settings(words: tuple[str, ...], options: dict[str, Any]) -> ContainerOptions:
    from rocm_wheels.ci import ContainerOptions, expand_path
    from rocm_wheels.core import find_cache_folder

    try:
        here = Path.cwd()
    except FileNotFoundError as missing:
        raise click.UsageError("the current folder no longer exists: change to another") from missing
    cache = options["cache"] or find_cache_folder(read_environment(), sys.platform) / "containers"
    return ContainerOptions(
        image=options["image"],
        command=words,
        here=here,
        cache=expand_path(str(cache), "--cache"),
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
    from rocm_wheels.core import get_project_home, is_clone

    return get_project_home() if is_clone() else None


def _parse_engine(engine: str) -> EngineName | None:
    return "docker" if engine == "docker" else "podman" if engine == "podman" else None


def _choose_image_tip(image: str) -> str:
    from rocm_wheels.models import load_container_table

    ours = image in load_container_table().images
    return f"make it: rocm-wheels container build {image}" if ours else "load, import or build it first"
