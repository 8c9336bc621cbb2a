"""``container``: run a command in a container, as you, with the GPUs; or print how."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from rocm_wheels.cli import boundary, catalogue, command
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, log

if TYPE_CHECKING:
    from rocm_wheels.models import project_names

_COMMAND_LAST = {"allow_interspersed_args": False}  # what follows the command is its own
_HELP = """Run commands in a container, by docker or podman, in the image that builds or tests wheels.

The current folder, the checkout of rocm-wheels and the cache are mounted at the same paths, and files belong
to you. Of your variables, only those of proxies and certificates are passed on, and those of --env. The exit
code is the command's own; 18 if there is no engine, it does not answer, or lacks the image (the message has
the command that makes one of ours).
"""


@command.group("container", help=_HELP)
def container_group() -> None:
    """Hold the commands about containers."""


@container_group.command("container run", context_settings=_COMMAND_LAST)
@command.option(
    "--image",
    default="build",
    show_default=True,
    metavar="NAME|IMAGE",
    help="A name of `compat show images`, or another image as name@sha256:….",
)
@command.option("--gpu", is_flag=True, help="With the GPUs of this machine.")
@command.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="PATH[:INSIDE][:ro]",
    help="Also mount this folder or file; can be repeated.",
)
@command.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Also pass this variable; can be repeated. Pass a secret by NAME alone.",
)
@command.option(
    "--engine",
    type=click.Choice(["docker", "podman", "auto"]),
    default="auto",
    show_default=True,
    help="auto takes the first that answers.",
)
@command.option("--print", "only_print", is_flag=True, help="Print the command line, and run nothing.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def run(
    words: tuple[str, ...],
    image: str,
    engine: Literal["docker", "podman", "auto"],
    only_print: bool,
    **options: Any,
) -> int:
    """Run COMMAND in a container and exit with its exit code.

    Options go before the command. Signals end the container too, except KILL. With --print, add the engine's
    other options to the printed line; with --gpu it also works on a machine without GPUs, because the line
    asks the machine that runs it. The container's name is new each time.

    \b
    Examples:
      rocm-wheels container run --image build -- rocm-wheels plan --output-dir dist
      rocm-wheels container run --print --image build -- bash
    """
    from rocm_wheels.ci import container
    from rocm_wheels.core import user_folders, workspace
    from rocm_wheels.models import ci

    env = boundary.read_environment()
    try:
        here = Path.cwd()
    except FileNotFoundError as missing:
        raise click.UsageError("the current folder no longer exists: change to another") from missing
    cache = user_folders.find_cache_folder(env, sys.platform) / "containers"  # HOME, ccache, uv, pip there
    cache = container.expand_path(str(cache), "XDG_CACHE_HOME")
    clone = workspace.get_project_home() if workspace.is_clone() else None
    images = ci.load_container_table().images
    box = container.Container(
        command=words,
        here=here,
        cache=cache,
        clone=clone,
        image=container.choose_image(image, images, clone),
        tty=sys.stdin.isatty() and sys.stdout.isatty(),
        shown_only=only_print,
        **options,
    )
    preferred = None if engine == "auto" else engine
    # what is wrong with the words themselves is said before any engine is asked
    chosen = container.Engine(preferred or "docker", preferred or "docker")
    argv = container.compose_command(chosen, box, env)
    try:
        chosen = container.find_engine(preferred, env)
    except errors.EngineError as missing:
        if not only_print:
            log.log_note(f"would have been run: {container.format_pasteable_line(argv, cache)}")
            raise
        log.log_warning(f"{missing.message}\nthe line is what {chosen.name} would be given")
    argv = container.compose_command(chosen, box, env)
    if only_print:
        line = container.format_pasteable_line(argv, cache)
        click.echo(line)
        return 0
    if box.image.made_here:
        container.require_image(chosen, box.image, env)
    for folder in container.list_cache_folders(cache):
        folder.mkdir(parents=True, exist_ok=True)
    return container.run_container(chosen, argv, env, stdin=box.tty)


@container_group.command("container resolve")
@click.argument("image", default="", metavar="[IMAGE]")
@catalogue.PLATFORM.but(
    default="linux", show_default=True, help="Platform of the wheels; jobs on Windows run in no image."
)
@catalogue.JSON
def resolve(image: str, platform: project_names.Platform, as_json: bool) -> None:
    """Print the image in which a job builds wheels, by digest, and its tag for `build --plat`.

    IMAGE is a name of `compat show images`, another image as name@sha256:…, or none: on the machine itself.
    Without it, or empty: the one that data/containers.yaml names for jobs. In a workflow it also sets the
    outputs `image` and `plat`.

    \b
    Examples:
      rocm-wheels container resolve
    """
    from rocm_wheels.ci import container, matrix_report

    reference, plat = container.choose_job_image(image, platform)
    document = {"image": reference, "plat": plat}
    matrix_report.set_outputs(boundary.read_environment(), document)
    print_result(document, [f"{reference or 'the machine itself'}, --plat {plat}"], as_json=as_json)
