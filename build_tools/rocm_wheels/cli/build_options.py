"""The options of building, the work directory that they name, and the request that they make."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocm_wheels.cli import boundary, catalogue, config
from rocm_wheels.cli.command import Option, complete_with, option
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.core import errors
from rocm_wheels.core.workspace import Workspace, get_project_home, is_clone
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from rocm_wheels.pipeline import request, run_record

F = TypeVar("F", bound=Callable[..., Any])
_FOLDER = GivenPath(file_okay=False)
_RUNS_LOOKED_AT = 20  # of the newest runs, for one at work


def find_workspace(options: Mapping[str, Any]) -> Workspace:
    """Return the work directory that is meant. Raises UsageError where there is none."""
    _, work = resolve_folders(options)
    if not work.is_dir():
        raise errors.UsageError(
            f"there is no work directory {work}",
            tip="name the --work-dir that build was given, or .rocm-wheels of its --source-dir",
        )
    return Workspace(work)


def find_run(workspace: Workspace, name: str | None, *, at_work: bool = False) -> run_record.RecordedRun:
    """Read a run by its id, or the newest. Raises UsageError, which names one with nearly that id.

    ``at_work``: rather than the newest, the newest that has not ended: a `run-step` may have come and gone.
    """
    from rocm_wheels.core import tables
    from rocm_wheels.pipeline import run_record

    if name is None and at_work:
        for run in run_record.list_runs(workspace.runs, limit=_RUNS_LOOKED_AT):
            if run.state == "running":
                return run
    if name is None:
        if (latest := run_record.read_newest_run(workspace.runs)) is None:
            raise errors.UsageError(
                f"there are no runs in {workspace.runs}", tip="`rocm-wheels build` begins one"
            )
        return latest
    ids = run_record.list_run_ids(workspace.runs)
    if name not in ids:
        raise errors.UsageError(
            f"there is no run {name} in {workspace.runs}{tables.suggest_name(name, ids)}",
            tip="`rocm-wheels runs` lists them",
        )
    return run_record.read_run(workspace.runs / name)


# which ROCm packages come from where, and where builds keep what they make
packages_options = catalogue.takes(
    catalogue.ROCM_INDEX,
    catalogue.FIND_LINKS,
    catalogue.ROCM.but(
        name="rocm_sdk_version",
        default=project_names.DEFAULT_ROCM,
        show_default=True,
        metavar="SPEC",
        help="Version specifier of the rocm packages, with operator.",
    ),
    catalogue.ROCM_EXTRAS.but(default=""),
    catalogue.WORK_DIR,
)
# and into which environment
sdk_options = catalogue.takes(
    packages_options,
    option(
        "--current-env",
        is_flag=True,
        help="Use the active virtual environment, not an isolated one under the work directory.",
    ),
)


def project_options(function: F) -> F:
    """Add PROJECT, and ``--X-wheel`` for every recipe whose wheel others are built against."""
    for name in reversed(project_names.list_shared_projects()):
        function = option(
            f"--{project_names.get_option_name(name)}-wheel",
            f"{name}_wheel",
            project=name,
            type=GivenPath(),
            multiple=True,
            metavar="FILE|DIR",
            envvar=f"ROCM_WHEELS_{name.upper()}_WHEEL",
            show_envvar=True,
            help=f"Build against this wheel of {name} (or its wheels in a folder) instead of building it; one"
            " for each Python.",
        )(function)
    return click.argument(
        "projects", metavar="[PROJECT]…", nargs=-1, shell_complete=complete_with("list_projects")
    )(function)


rocm_path_option = catalogue.ROCM_PATH.but(
    help="Build on this installed ROCm, without its packages [default: ROCM_PATH, if no packages are asked"
    " for or installed]."
)

# what is built, and where it goes
_output_options = catalogue.takes(
    catalogue.SOURCE_DIR,
    catalogue.INSTALL_ROCM,
    rocm_path_option,
    catalogue.OUTPUT_DIR.but(
        short=False, default="dist", show_default=True, help="Where checked wheels go."
    ),  # -o is the file of `plan`
    catalogue.LOCK.but(help="Build exactly what this lock says, with its ROCm and targets."),
)
# what the wheels are for, and how they are called
_wheel_options = catalogue.takes(
    catalogue.BUILD_GFX,
    catalogue.VERSION_SUFFIX.but(
        help="Local version [default: +rocm<version of the ROCm packages>]; a lock's own version wins."
    ),
    catalogue.PYTHON_WORDS.but(
        multiple=True,
        help="Python to build for: a path, version or tag; may be repeated [default: the one that runs this"
        " script].",
    ),
    option(
        "--per-target",
        is_flag=True,
        help="A set of wheels for each word of --gfx, in its own folder.",
    ),
    catalogue.SET_ENV,
)
# how it is compiled
_compiler_options = catalogue.takes(
    option(
        "--allow-unlisted-targets",
        is_flag=True,
        help="Also build for targets that ROCm does not list, and for which its libraries have no kernels.",
    ),
    option(
        "--compiler-cache",
        type=click.Choice(["none", "ccache", "sccache"]),
        default="none",
        show_default=True,
        flags={"--use-ccache": "ccache", "--use-sccache": "sccache"},
        help="Compile through this cache, if its self-test passes.",
    ),
)
# what is done beside building
_extra_options = catalogue.takes(
    catalogue.PACKAGING.but(
        type=click.Choice(project_names.PACKAGING_MODES),
        default="per-family",
        show_default=True,
        help="per-family: for the index of a family; multi-arch: one set for all targets; split: host wheels"
        " and device wheels; fat: torch carries its ROCm; variant: stamped wheels too, in variants/; asan:"
        " host code with AddressSanitizer, for tests.",
    ),
    catalogue.PLAT.but(
        metavar="auto|none|TAG",
        help="Linux tag to repair wheels for (`wheel repair`), such as manylinux_2_28; auto: the oldest that"
        " their symbols allow; none: keep wheels as built.",
    ),
    option(
        "--test",
        "tests",
        multiple=True,
        metavar="KIND",
        help="Then test the wheels on a GPU: smoke, torch (its own tests), or smoke,torch.",
    ),
    option(
        "--test-on-cpu",
        is_flag=True,
        help="With --test: also without a GPU; tests that need one are skipped.",
    ),
)
APART = [("--python", "--current-env")]  # the active environment has its Python
# what most builds say, in the order of help
FIRST = (
    *("--gfx", "--rocm-index", "--rocm", "--rocm-path", "--install-rocm"),
    *("--lock", "--python", "--packaging", "--output-dir"),
)
# all that says what is built, for what, and how it is checked
build_options = catalogue.takes(_output_options, _wheel_options, _compiler_options, _extra_options)


def make_pre_option() -> click.Parameter:
    """Return ``--pre/--no-pre``, which is read by build_prod_wheels.py alone, as TheRock's script has it."""
    return Option(["--pre/--no-pre"], default=True, show_default=True, help="Allow pre-releases of ROCm.")


# those that TheRock's build_prod_wheels.py has options of: a tree for each, and a switch for all but torch
_THEROCK_PROJECTS = ("apex", "pytorch", "pytorch_audio", "pytorch_vision", "triton")


def make_therock_options() -> list[click.Parameter]:
    """Return what ``build`` takes as build_prod_wheels.py alone, because TheRock's script does."""
    options: list[click.Parameter] = [
        make_pre_option(),
        Option(
            ["--release-type"],
            type=click.Choice(project_names.RELEASE_TYPES),
            default="nightly",
            show_default=True,
            help="dev and dev-bkc put the commit into the version.",
        ),
        Option(
            ["--pytorch-build-number"],
            project="pytorch",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            metavar="N",
            help="Build number of torch.",
        ),
        Option(
            ["--enable-pytorch-flash-attention/--no-enable-pytorch-flash-attention", "flash_attention"],
            project="pytorch",
            default=None,
            help="Flash attention in torch [default: where a target has it].",
        ),
    ]
    for name in _THEROCK_PROJECTS:
        word = project_names.get_option_name(name)
        help_text = f"Source tree of {name} [default: {name} in the root checkout folder]."
        options.append(Option([f"--{word}-dir", f"{name}_dir"], project=name, type=_FOLDER, help=help_text))
        if name != "pytorch":
            switch = f"--build-{word}/--no-build-{word}"
            help_text = f"Build {name} [default: when its tree is there]."
            options.append(Option([switch, f"build_{name}"], project=name, default=None, help=help_text))
    return options


# variables that a build gets from options: set beside them they would say something else than the record
_DECIDED_BY_OPTIONS = {
    "PYTORCH_ROCM_ARCH": "--gfx",
    "PYTORCH_BUILD_VERSION": "--version-suffix",
    "BUILD_VERSION": "--version-suffix",
    "PYTORCH_BUILD_NUMBER": "--pytorch-build-number of build_prod_wheels.py",
    "MAX_JOBS": "MAX_JOBS in the environment",
    "ROCM_HOME": "--rocm-path or --rocm",
    "ROCM_PATH": "--rocm-path or --rocm",
}


def find_default_root() -> Path:
    """Return where checkouts are looked for: the clone's ``repos/``, else the current folder."""
    return get_project_home() / "repos" if is_clone() else Path.cwd()


def resolve_folders(options: Mapping[str, Any]) -> tuple[Path, Path]:
    """Return the root checkout folder and the work directory.

    For a command without --source-dir, the file of options says what it says to those that have it.
    """
    key = "root_checkout_dir"
    named = options[key] if key in options else config.read_source_dir()
    root = (named or find_default_root()).absolute()
    work = (options["work_dir"] or root / ".rocm-wheels").absolute()
    return root, work


def make_sdk_request(options: Mapping[str, Any], env: MutableMapping[str, str]) -> request.SdkRequest:
    """Return which ROCm packages are asked for. Raises UsageError."""
    from rocm_wheels.pipeline import request
    from rocm_wheels.sdk import interpreters

    extras = tuple(extra.strip() for extra in options["rocm_extras"].split(",") if extra.strip())
    links = options["find_links"]
    if links and "://" not in links:
        links = str(Path(links).absolute())
        if not Path(links).is_dir():
            raise errors.UsageError(
                f"--find-links: there is no folder {links}", tip="name a folder of wheels, or a page of links"
            )
    python = boundary.pop_starting_python(env)  # or what is below its virtual environment
    python = (
        _find_active_python(env)
        if options["current_env"]
        else interpreters.query_interpreter(python, env).path
    )
    return request.SdkRequest(
        python=python,
        rocm_spec=options["rocm_sdk_version"],
        extras=extras,
        index_url=options["index_url"],
        find_links=links,
        pre=options.get("pre", True),
        current_env=options["current_env"],
        rocm_path=path.absolute() if (path := options.get("rocm_path")) is not None else None,
    )


def _check_rocm_choice(options: Mapping[str, Any]) -> None:
    """Raise UsageError where both an installed ROCm and packages are asked for.

    Under a lock, ``--find-links`` has its build tools.
    """
    choices = {
        "--install-rocm": options["install_rocm"],
        "--rocm": options["rocm_sdk_version"] != project_names.DEFAULT_ROCM,
        "--rocm-index": options["index_url"],
        "--rocm-extras": options["rocm_extras"],
        "--find-links": options["find_links"] and options["lock"] is None,
    }
    if options["rocm_path"] is not None and (chosen := [name for name, value in choices.items() if value]):
        raise errors.UsageError(
            f"--rocm-path names an installed ROCm, and packages are asked for too: {', '.join(chosen)}",
            tip="leave one of both out; `rocm packages --from-prefix` makes packages of an installed ROCm",
        )


def make_wheels_request(options: Mapping[str, Any], env: MutableMapping[str, str]) -> request.WheelsRequest:
    """Return the whole request. Raises UsageError for options that contradict each other."""
    from rocm_wheels.pipeline import request
    from rocm_wheels.sdk import interpreters

    options = {**options, **_parse_projects(options)}
    _check_rocm_choice(options)
    wheels = _read_given_wheels(options)
    root, work = resolve_folders(options)
    names = project_names.list_project_names()
    source_dirs = {name: path for name in names if (path := options.get(f"{name}_dir"))}
    output = options["output_dir"].absolute()
    _check_output_folder(output)
    pythons = _find_pythons(options, env)
    sdk = make_sdk_request(options, env)
    return request.WheelsRequest(
        sdk=replace(sdk, python=pythons[0]) if pythons else sdk,
        pythons=pythons,
        install_rocm=options["install_rocm"] or (sdk.rocm_path is not None and not sdk.current_env),
        output=output,
        work=work,
        sources={
            name: source_dirs[name].absolute() if name in source_dirs else root / name for name in names
        },
        given=frozenset(source_dirs),
        chosen={name: False if name in wheels else options.get(f"build_{name}") for name in names},
        platform="windows" if sys.platform == "win32" else "linux",
        targets=options["pytorch_rocm_arch"],
        targets_variable=env.get("PYTORCH_ROCM_ARCH"),
        build_number=str(options.get("pytorch_build_number", 1)),
        version_suffix=options["version_suffix"],
        release_type=options.get("release_type", "nightly"),
        flash_attention=options.get("flash_attention"),
        cache=None if options["compiler_cache"] == "none" else options["compiler_cache"],
        per_target=options["per_target"],
        given_wheels=wheels,
        set_env=_parse_set_env(options["set_env"]),
        unlisted_targets=options["allow_unlisted_targets"],
        clean=options.get("clean", False),
        offline=interpreters.is_offline(env),
        lock=options["lock"],
        packaging=options["packaging"],
        repair=options["plat"] != "none",
        platform_tag=_parse_platform_tag(options),
        recipes=project_names.list_foreign_recipes(),
        tests=_parse_tests(options),
        test_on_cpu=options["test_on_cpu"],
    )


def _parse_tests(options: Mapping[str, Any]) -> tuple[request.PlannedTest, ...]:
    """Return which tests are planned. Raises UsageError for others, and for --test-on-cpu alone."""
    from rocm_wheels.core import tables
    from rocm_wheels.pipeline import request

    names = [name for word in options["tests"] for name in word.replace(",", " ").split()]
    if wrong := [name for name in names if name not in request.PLANNED_TESTS]:
        raise errors.UsageError(
            f"--test: there are no tests {wrong[0]}{tables.suggest_name(wrong[0], request.PLANNED_TESTS)}",
            tip=f"there are {', '.join(request.PLANNED_TESTS)}",
        )
    if options["test_on_cpu"] and not names:
        raise errors.UsageError("--test-on-cpu says where --test may run", tip="add --test smoke")
    return tuple(test for test in request.PLANNED_TESTS if test in names)


def _parse_platform_tag(options: Mapping[str, Any]) -> str | None:
    """Return the tag that ``--plat`` asks for, None: by symbols, or wheels are not repaired.

    Raises UsageError, before hours of work, for one that no wheel of this machine could get.
    """
    tag: str = options["plat"]
    if tag in ("auto", "none"):
        return None
    from rocm_wheels.wheels import platform_promises

    if sys.platform == "win32":
        raise errors.UsageError("--plat is about wheels for Linux", tip="leave it out, or --plat auto")
    architecture = platform.machine()
    platform_promises.find_policy(platform_promises.load_policies(architecture), tag, architecture)
    return tag


def _parse_projects(options: Mapping[str, Any]) -> dict[str, bool]:
    """Return what PROJECTs say as ``build_X`` of every project; one word may be a list by commas.

    Raises UsageError.
    """
    from rocm_wheels.cli import checkout

    if not (words := options.get("projects", ())):
        return {}
    projects = project_names.list_project_names()
    chosen = {checkout.find_project_name(name) for word in words for name in word.replace(",", " ").split()}
    if not chosen:
        raise errors.UsageError("PROJECT names no project", tip=f"there are {', '.join(projects)}")
    for name in projects:
        if options.get(f"build_{name}") is not None:
            switch = f"{'' if options[f'build_{name}'] else 'no-'}build-{project_names.get_option_name(name)}"
            raise errors.UsageError(
                f"PROJECT and --{switch} exclude each other", tip="PROJECT says it of every project"
            )
    return {f"build_{name}": name in chosen for name in projects}


def _find_project_wheels(name: str, place: Path) -> list[Path]:
    """Return a wheel as it is, or those of a project in a folder. Raises UsageError where it has none."""
    from rocm_wheels.models.project import load_project

    if not place.is_dir():
        return [place]
    wheels = sorted(place.glob(f"{load_project(name).distribution.replace('-', '_')}-*.whl"))
    if not wheels:
        raise errors.UsageError(
            f"--{project_names.get_option_name(name)}-wheel: there is no wheel of {name} in {place}"
        )
    return wheels


def _read_given_wheels(options: Mapping[str, Any]) -> dict[str, tuple[Path, ...]]:
    """Return the wheels that others shall be built against, by project. Raises UsageError."""
    from rocm_wheels.wheels import dist_info

    places_by_project = {name: options[f"{name}_wheel"] for name in project_names.list_shared_projects()}
    wheels_by_project = {
        name: [w for place in places for w in _find_project_wheels(name, place)]
        for name, places in places_by_project.items()
        if places
    }
    for name, wheels in wheels_by_project.items():
        option = project_names.get_option_name(name)
        if options.get(f"build_{name}"):
            raise errors.UsageError(f"{name} is to be built, and --{option}-wheel says that it is not")
        for wheel in wheels:
            if not wheel.is_file():
                raise errors.UsageError(f"--{option}-wheel: there is no file {wheel}")
            try:
                dist_info.parse_wheel_name(wheel.name)
            except errors.DataError as wrong:
                raise errors.UsageError(f"--{option}-wheel {wheel}: {wrong.message}") from None
    return {name: tuple(wheel.absolute() for wheel in wheels) for name, wheels in wheels_by_project.items()}


def _find_pythons(options: Mapping[str, Any], env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the interpreters that ``--python`` names; none when it is not given."""
    if not options["python"]:
        return ()
    from rocm_wheels.sdk import interpreters

    return tuple(interpreter.path for interpreter in interpreters.find_interpreters(options["python"], env))


def _parse_set_env(words: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read PROJECT:NAME=VALUE. Raises UsageError for what options decide, and for secrets."""
    from rocm_wheels.cli import checkout
    from rocm_wheels.core import shell

    variables: dict[str, dict[str, str]] = {}
    for word in words:
        match = re.fullmatch(r"(?P<project>[\w-]+):(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", word, re.DOTALL)
        if match is None:
            raise errors.UsageError(
                f"--set-env {word!r} is not PROJECT:NAME=VALUE", tip="such as pytorch:USE_NCCL=0"
            )
        try:
            project, name = checkout.find_project_name(match["project"]), match["name"]
        except errors.UsageError as unknown:
            raise errors.UsageError(f"--set-env {word}: {unknown.message}", tip=unknown.tip) from None
        if (option := _DECIDED_BY_OPTIONS.get(name)) is not None:
            raise errors.UsageError(
                f"--set-env {word}: {name} is what {option} decides", tip=f"give {option}"
            )
        if shell.HIDDEN in shell.hide_variable_value(name, match["value"] or "x"):
            by = "name" if shell.HIDDEN in shell.hide_variable_value(name, "x") else "value"
            raise errors.UsageError(
                f"--set-env: {name} is a secret by its {by}, and a plan is no place for one",
                tip=f"export {name} where the build runs: it is passed on, and never shown",
            )
        if name in variables.setdefault(project, {}):
            raise errors.UsageError(f"--set-env gives {name} of {project} twice", tip="give it once")
        variables[project][name] = match["value"]
    return variables


def _check_output_folder(output: Path) -> None:
    """Refuse a folder that wheels cannot be written to: found out now, not after hours of building."""
    nearest = next(path for path in (output, *output.parents) if os.path.lexists(path))
    subject = f"--output-dir {output}" + ("" if nearest == output else f": {nearest}")
    if not nearest.is_dir():
        raise errors.UsageError(f"{subject} is not a folder", tip="choose another folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise errors.UsageError(
            f"{subject} is not writable",
            tip="make it writable, or choose another folder",
        )


def _find_active_python(env: Mapping[str, str]) -> Path:
    """Return the interpreter of the active environment (VIRTUAL_ENV, CONDA_PREFIX)."""
    from rocm_wheels.sdk import interpreters

    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if env.get(variable):
            prefix = Path(env[variable])
            python = interpreters.locate_python(prefix)
            if not python.exists():
                raise errors.UsageError(f"--current-env: {variable} is {prefix}, but there is no {python}")
            return python
    raise errors.UsageError(
        "--current-env: no virtual environment is active (VIRTUAL_ENV and CONDA_PREFIX are not set)",
        tip="activate one, or leave --current-env out for an isolated environment",
    )
