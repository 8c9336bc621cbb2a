"""``install-rocm`` and ``build``, with the options that people's scripts already use."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import UsageError, explain
from rocm_wheels.model.names import RELEASE_TYPES, option_name, project_names
from rocm_wheels.workspace import home, in_clone

if TYPE_CHECKING:
    from rocm_wheels.pipeline.request import SdkRequest
    from rocm_wheels.pipeline.wheels import Summary

F = TypeVar("F", bound=Callable[..., Any])
_FOLDER = GivenPath(file_okay=False)


def default_root() -> Path:
    """Return where checkouts are looked for: the clone's ``repos/``, else the current folder."""
    return home() / "repos" if in_clone() else Path.cwd()


def sdk_options(function: F) -> F:
    """Add the options that say which ROCm packages come from where into which environment."""
    for option in reversed(
        [
            click.option("--index-url", metavar="URL", help="Package index of the ROCm packages."),
            click.option("--find-links", metavar="DIR|URL", help="Folder or page with ROCm packages."),
            click.option("--pip-cache-dir", type=_FOLDER, help="Cache folder of the installer."),
            click.option(
                "--rocm-sdk-version",
                default=">1.0",
                show_default=True,
                metavar="SPEC",
                help="Version specifier of the rocm packages, operator included.",
            ),
            click.option(
                "--pre/--no-pre", default=True, show_default=True, help="Allow pre-releases of ROCm."
            ),
            click.option(
                "--rocm-extras",
                default="",
                metavar="LIST",
                help="More extras of rocm, such as device-gfx942,device-gfx1100.",
            ),
            click.option(
                "--current-env",
                is_flag=True,
                help="Use the active virtual environment, not an isolated one under the work directory.",
            ),
            click.option(
                "--root-checkout-dir",
                type=_FOLDER,
                help="Folder of the source trees [default: repos/ in a clone, else the current folder].",
            ),
            click.option(
                "--work-dir",
                type=_FOLDER,
                help="Environments, build trees, logs [default: .rocm-wheels in the root checkout folder].",
            ),
        ]
    ):
        function = option(function)
    return function


def project_options(function: F) -> F:
    """Add ``--X-dir`` and ``--build-X/--no-build-X`` for every recipe there is."""
    for name in reversed(project_names()):
        option = option_name(name)
        function = click.option(
            f"--build-{option}/--no-build-{option}",
            f"build_{name}",
            default=None,
            help=f"Build {name} [default: when its tree is there].",
        )(function)
        function = click.option(
            f"--{option}-dir",
            f"{name}_dir",
            type=_FOLDER,
            help=f"Source tree of {name} [default: {name} in the root checkout folder].",
        )(function)
    return function


@click.group()
@click.option("--index-url", metavar="URL", help="Package index of the ROCm packages, for both commands.")
@click.pass_context
def production(ctx: click.Context, index_url: str | None) -> None:
    """Install the ROCm packages and build the wheels of PyTorch and its companions.

    \b
    Example:
      build_prod_wheels.py build --install-rocm --index-url URL \\
          --pytorch-rocm-arch gfx942,gfx1100 --output-dir dist
    """
    ctx.default_map = {name: {"index_url": index_url} for name in ("install-rocm", "build")}


@click.command("install-rocm")
@sdk_options
def install_rocm(**options: Any) -> None:
    """Install the ROCm packages into a build environment, and print what they are.

    The environment is made under the work directory, one a (Python, ROCm request); `build`
    finds it there. An unpinned version is resolved anew each time.
    """
    from rocm_wheels.pipeline.environment import install_rocm as install
    from rocm_wheels.workspace import WAIT, Workspace, exclusive

    env = environment()
    _, work = _folders(options)
    with exclusive(work, what="install-rocm", tip=f"{WAIT}, or give this run another --work-dir"):
        ready = install(_sdk_request(options, env), Workspace(work), env, renew=True)
    click.echo(f"python   {ready.environment.python}")
    click.echo(f"version  {ready.sdk.version}")
    click.echo(f"root     {ready.sdk.root}")
    click.echo(f"targets  {', '.join(ready.sdk.targets)}")


@click.command("build")
@sdk_options
@project_options
@click.option(
    "--install-rocm/--no-install-rocm", default=False, show_default=True, help="Run install-rocm first."
)
@click.option("--output-dir", type=_FOLDER, required=True, help="Where checked wheels go.")
@click.option(
    "--lock",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Build what this lock says, or nothing; ROCm and targets come from it.",
)
@click.option("--pytorch-rocm-arch", metavar="LIST", help="gfx targets or families, by commas.")
@click.option(
    "--pytorch-build-number",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Build number of torch.",
)
@click.option("--version-suffix", help="Local version [default: +rocm<version of the ROCm packages>].")
@click.option(
    "--release-type",
    type=click.Choice(RELEASE_TYPES),
    default="nightly",
    show_default=True,
    help="dev and dev-bkc put the commit into the version.",
)
@click.option(
    "--enable-pytorch-flash-attention/--no-enable-pytorch-flash-attention",
    "flash_attention",
    default=None,
    help="Flash attention in torch [default: where a target has it].",
)
@click.option("--use-ccache", is_flag=True, help="Compile through ccache.")
@click.option("--use-sccache", is_flag=True, help="Compile through sccache.")
@click.option("--sccache-no-wrap", is_flag=True, help="With --use-sccache: leave device compiles alone.")
@click.option(
    "--packaging",
    type=click.Choice(["per-family", "variant"]),
    default="per-family",
    show_default=True,
    help="variant: also stamp the wheels as variants, into variants/ of the output folder.",
)
@click.option("--clean", is_flag=True, help="Throw the build tree of this configuration away first.")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Check every wheel before it counts."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on stdout.")
def build(**options: Any) -> None:
    """Build, check and collect the wheels of every source tree that is there.

    Run again, it does what is missing: a wheel whose inputs did not change is not built
    again, and a build that was killed goes on in its build tree.
    """
    from rocm_wheels.pipeline.wheels import build_wheels

    env = environment()
    request = _wheels_request(options, env)
    summary = build_wheels(request, env)
    _show(summary, env, as_json=options["as_json"])
    if summary.failure is not None:
        raise summary.failure


production.add_command(install_rocm)
production.add_command(build)


def _folders(options: Mapping[str, Any]) -> tuple[Path, Path]:
    root = (options["root_checkout_dir"] or default_root()).absolute()
    work = (options["work_dir"] or root / ".rocm-wheels").absolute()
    return root, work


def _sdk_request(options: Mapping[str, Any], env: Mapping[str, str]) -> SdkRequest:
    from rocm_wheels.pipeline.request import SdkRequest

    extras = tuple(extra.strip() for extra in options["rocm_extras"].split(",") if extra.strip())
    links = options["find_links"]
    if links and "://" not in links:
        links = str(Path(links).absolute())
        if not Path(links).is_dir():
            raise UsageError(f"--find-links: there is no folder {links}")
    cache = options["pip_cache_dir"]
    return SdkRequest(
        python=_active_python(env) if options["current_env"] else _base_python(),
        rocm_spec=options["rocm_sdk_version"],
        extras=extras,
        index_url=options["index_url"],
        find_links=links,
        cache_dir=cache.absolute() if cache else None,
        pre=options["pre"],
        current_env=options["current_env"],
    )


def _wheels_request(options: Mapping[str, Any], env: Mapping[str, str]) -> Any:
    from rocm_wheels.pipeline.request import WheelsRequest

    if options["use_ccache"] and options["use_sccache"]:
        raise UsageError("--use-ccache and --use-sccache exclude each other")
    if options["sccache_no_wrap"] and not options["use_sccache"]:
        raise UsageError("--sccache-no-wrap says how --use-sccache works; give both")
    root, work = _folders(options)
    given = {name: options[f"{name}_dir"] for name in project_names() if options[f"{name}_dir"]}
    output = options["output_dir"].absolute()
    _check_output(output)
    return WheelsRequest(
        sdk=_sdk_request(options, env),
        install_rocm=options["install_rocm"],
        output=output,
        work=work,
        sources={name: given[name].absolute() if name in given else root / name for name in project_names()},
        given=frozenset(given),
        chosen={name: options[f"build_{name}"] for name in project_names()},
        platform="windows" if sys.platform == "win32" else "linux",
        targets=options["pytorch_rocm_arch"],
        targets_variable=env.get("PYTORCH_ROCM_ARCH"),
        build_number=str(options["pytorch_build_number"]),
        version_suffix=options["version_suffix"],
        release_type=options["release_type"],
        flash_attention=options["flash_attention"],
        cache="ccache" if options["use_ccache"] else "sccache" if options["use_sccache"] else None,
        cache_wraps_device=not options["sccache_no_wrap"],
        clean=options["clean"],
        verify=options["verify"],
        lock=options["lock"],
        packaging=options["packaging"],
    )


def _check_output(output: Path) -> None:
    """Refuse a folder that wheels cannot be written to: found out now, not after hours of building."""
    nearest = next(path for path in (output, *output.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise UsageError(f"--output-dir {output}: {nearest} is not a folder", tip="choose another folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(
            f"--output-dir {output}: {nearest} is not writable",
            tip="make it writable, or choose another folder",
        )


def _base_python() -> Path:
    """Return the interpreter below our own virtual environment: wheels are built for it."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable).absolute()


def _active_python(env: Mapping[str, str]) -> Path:
    """Return the interpreter of the active environment (VIRTUAL_ENV, CONDA_PREFIX)."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if env.get(variable):
            prefix = Path(env[variable])
            python = prefix / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
            if not python.exists():
                raise UsageError(f"--current-env: {variable} is {prefix}, but there is no {python}")
            return python
    raise UsageError(
        "--current-env: no virtual environment is active (VIRTUAL_ENV and CONDA_PREFIX are not set)",
        tip="activate one, or leave --current-env out for an isolated environment",
    )


def _show(summary: Summary, env: Mapping[str, str], *, as_json: bool) -> None:
    """Print the table (or JSON) and append it to GitHub's step summary."""
    from rocm_wheels.pipeline.summary import human_time, json_summary, markdown_table, text_table

    if as_json:
        click.echo(json_summary(summary.rows))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo(text_table(summary.rows, width=width))
    if all(row.outcome == "up to date" for row in summary.rows):
        log.note(f"nothing to do: every wheel is up to date ({human_time(summary.seconds)})")
    sys.stdout.flush()
    if page := env.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write(markdown_table(summary.rows))
                if summary.failure is not None:
                    file.write(f"\n```\n{explain(summary.failure)}\n```\n")
        except OSError as failure:  # the wheels are made, or have failed, all the same
            log.warn(f"the step summary cannot be written: {failure.strerror} ({page})")
