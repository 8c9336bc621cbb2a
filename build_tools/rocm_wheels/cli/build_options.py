"""The options of building, for ``build`` and ``plan`` alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rocm_wheels.cli.option_lists import combine_options
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.work import root_option
from rocm_wheels.model.names import RELEASE_TYPES, list_shared_projects, get_option_name, list_project_names

F = TypeVar("F", bound=Callable[..., Any])
_FOLDER = GivenPath(file_okay=False)

# which ROCm packages come from where into which environment
sdk_options = combine_options(
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
    click.option("--pre/--no-pre", default=True, show_default=True, help="Allow pre-releases of ROCm."),
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
    root_option,
    click.option(
        "--work-dir",
        type=_FOLDER,
        help="Environments, runs, what was done [default: .rocm-wheels in the root checkout folder].",
    ),
)


def project_options(function: F) -> F:
    """Add ``--X-dir`` and ``--build-X/--no-build-X`` for every recipe, and ``--X-wheel`` where one serves."""
    for name in reversed(list_shared_projects()):
        function = click.option(
            f"--{get_option_name(name)}-wheel",
            f"{name}_wheel",
            type=GivenPath(),
            multiple=True,
            metavar="FILE|DIR",
            envvar=f"ROCM_WHEELS_{name.upper()}_WHEEL",
            show_envvar=True,
            help=f"Build against this wheel of {name} (or those of it in a folder), and build none; one for"
            " each Python.",
        )(function)
    for name in reversed(list_project_names()):
        option = get_option_name(name)
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


# what is built, and where it goes
_output_options = combine_options(
    click.option(
        "--only",
        metavar="LIST",
        help="Build these projects and no other: --build-X of each, --no-build-X of all others.",
    ),
    click.option(
        "--install-rocm/--no-install-rocm",
        default=False,
        show_default=True,
        help="Run install-rocm first.",
    ),
    click.option("--output-dir", type=_FOLDER, required=True, help="Where checked wheels go."),
    click.option(
        "--lock",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Build what this lock says, or nothing; ROCm and targets come from it.",
    ),
)
# what the wheels are for, and how they are called
_wheel_options = combine_options(
    click.option("--pytorch-rocm-arch", metavar="LIST", help="gfx targets or families, by commas."),
    click.option(
        "--pytorch-build-number",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Build number of torch.",
    ),
    click.option(
        "--version-suffix",
        help="Local version [default: +rocm<version of the ROCm packages>]; what a lock says goes before it.",
    ),
    click.option(
        "--release-type",
        type=click.Choice(RELEASE_TYPES),
        default="nightly",
        show_default=True,
        help="dev and dev-bkc put the commit into the version.",
    ),
    click.option(
        "--python",
        multiple=True,
        metavar="PYTHON",
        help="Build for this path, version or tag; may be repeated [default: the one that runs this script].",
    ),
    click.option(
        "--per-target",
        is_flag=True,
        help="A set of wheels for each word of --pytorch-rocm-arch, in a folder of its own.",
    ),
    click.option(
        "--set-env",
        multiple=True,
        metavar="PROJECT:NAME=VALUE",
        help="A variable for the build of one project, over all others; may be repeated.",
    ),
)
# what keeps a long build from being in vain
_guard_options = combine_options(
    click.option(
        "--probe/--no-probe",
        default=True,
        show_default=True,
        help="Try a small kernel for each target, and CMake's configure step of torch, before anything long.",
    ),
    click.option(
        "--drop-bad-targets",
        is_flag=True,
        help="Leave out targets whose probe does not compile, and say so.",
    ),
    click.option(
        "--allow-unlisted-targets",
        is_flag=True,
        help="Build also for targets that ROCm does not list: its libraries have no kernels for them.",
    ),
    click.option(
        "--min-cache-hits",
        type=click.FloatRange(0, 100),
        metavar="PERCENT",
        help="Fail a build that its compiler cache answered less of; the wheel counts.",
    ),
)
# how it is compiled
_compiler_options = combine_options(
    click.option(
        "--enable-pytorch-flash-attention/--no-enable-pytorch-flash-attention",
        "flash_attention",
        default=None,
        help="Flash attention in torch [default: where a target has it].",
    ),
    click.option("--use-ccache", is_flag=True, help="Compile through ccache."),
    click.option("--use-sccache", is_flag=True, help="Compile through sccache."),
    click.option("--sccache-no-wrap", is_flag=True, help="With --use-sccache: leave device compiles alone."),
)
# what is done beside building
_extra_options = combine_options(
    click.option(
        "--packaging",
        type=click.Choice(["per-family", "variant"]),
        default="per-family",
        show_default=True,
        help="variant: also stamp the wheels as variants, into variants/ of the output folder.",
    ),
    click.option(
        "--clean/--no-clean",
        default=False,
        show_default=True,
        help="Throw the build tree of this configuration away first.",
    ),
    click.option(
        "--offline",
        is_flag=True,
        help="Download nothing: packages come from --find-links and uv's cache, the rest from folders.",
    ),
    click.option(
        "--verify/--no-verify",
        default=True,
        show_default=True,
        help="Check every wheel before it counts.",
    ),
)
# all that says what is built, for what, and how it is checked
build_options = combine_options(
    _output_options, _wheel_options, _guard_options, _compiler_options, _extra_options
)
