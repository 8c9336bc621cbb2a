"""The request that the options of building make."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels.cli.boundary import pop_starting_python
from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.names import list_shared_projects, get_option_name, list_project_names
from rocm_wheels.workspace import get_project_home, is_clone

if TYPE_CHECKING:
    from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest

# variables that a build gets from options: set beside them they would say something else than the record
_DECIDED_BY_OPTIONS = {
    "PYTORCH_ROCM_ARCH": "--pytorch-rocm-arch",
    "PYTORCH_BUILD_VERSION": "--version-suffix",
    "BUILD_VERSION": "--version-suffix",
    "PYTORCH_BUILD_NUMBER": "--pytorch-build-number",
    "MAX_JOBS": "MAX_JOBS in the environment",
    "ROCM_HOME": "--rocm-sdk-version",
    "ROCM_PATH": "--rocm-sdk-version",
}


def find_default_root() -> Path:
    """Return where checkouts are looked for: the clone's ``repos/``, else the current folder."""
    return get_project_home() / "repos" if is_clone() else Path.cwd()


def resolve_folders(options: Mapping[str, Any]) -> tuple[Path, Path]:
    """Return the root checkout folder and the work directory."""
    root = (options["root_checkout_dir"] or find_default_root()).absolute()
    work = (options["work_dir"] or root / ".rocm-wheels").absolute()
    return root, work


def make_sdk_request(options: Mapping[str, Any], env: MutableMapping[str, str]) -> SdkRequest:
    """Return which ROCm packages are asked for. Raises UsageError."""
    from rocm_wheels.pipeline.request import SdkRequest

    extras = tuple(extra.strip() for extra in options["rocm_extras"].split(",") if extra.strip())
    links = options["find_links"]
    if links and "://" not in links:
        links = str(Path(links).absolute())
        if not Path(links).is_dir():
            raise UsageError(f"--find-links: there is no folder {links}")
    cache, starting_python = options["pip_cache_dir"], pop_starting_python(env)
    return SdkRequest(
        python=_find_active_python(env)
        if options["current_env"]
        else _find_base_python(starting_python, env),
        rocm_spec=options["rocm_sdk_version"],
        extras=extras,
        index_url=options["index_url"],
        find_links=links,
        cache_dir=cache.absolute() if cache else None,
        pre=options["pre"],
        current_env=options["current_env"],
    )


def make_wheels_request(options: Mapping[str, Any], env: MutableMapping[str, str]) -> WheelsRequest:
    """Return the whole request. Raises UsageError for options that contradict each other."""
    from rocm_wheels.pipeline.request import WheelsRequest

    options = {**options, **_parse_only(options)}
    wheels = _read_given_wheels(options)
    if options["use_ccache"] and options["use_sccache"]:
        raise UsageError("--use-ccache and --use-sccache exclude each other")
    if options["sccache_no_wrap"] and not options["use_sccache"]:
        raise UsageError("--sccache-no-wrap says how --use-sccache works; give both")
    if options["min_cache_hits"] is not None and not (options["use_ccache"] or options["use_sccache"]):
        raise UsageError("--min-cache-hits needs --use-ccache or --use-sccache")
    if options["drop_bad_targets"] and not options["probe"]:
        raise UsageError("--drop-bad-targets goes by the probes that --no-probe leaves out")
    root, work = resolve_folders(options)
    source_dirs = {name: options[f"{name}_dir"] for name in list_project_names() if options[f"{name}_dir"]}
    output = options["output_dir"].absolute()
    _check_output_folder(output)
    pythons = _find_pythons(options, env)
    sdk = make_sdk_request(options, env)
    return WheelsRequest(
        sdk=replace(sdk, python=pythons[0]) if pythons else sdk,
        pythons=pythons,
        install_rocm=options["install_rocm"],
        output=output,
        work=work,
        sources={
            name: source_dirs[name].absolute() if name in source_dirs else root / name
            for name in list_project_names()
        },
        given=frozenset(source_dirs),
        chosen={name: False if name in wheels else options[f"build_{name}"] for name in list_project_names()},
        platform="windows" if sys.platform == "win32" else "linux",
        targets=options["pytorch_rocm_arch"],
        targets_variable=env.get("PYTORCH_ROCM_ARCH"),
        build_number=str(options["pytorch_build_number"]),
        version_suffix=options["version_suffix"],
        release_type=options["release_type"],
        flash_attention=options["flash_attention"],
        cache="ccache" if options["use_ccache"] else "sccache" if options["use_sccache"] else None,
        cache_wraps_device=not options["sccache_no_wrap"],
        cache_floor=options["min_cache_hits"],
        per_target=options["per_target"],
        given_wheels=wheels,
        set_env=_parse_set_env(options["set_env"]),
        probe=options["probe"],
        drop_bad_targets=options["drop_bad_targets"],
        unlisted_targets=options["allow_unlisted_targets"],
        clean=options["clean"],
        offline=options["offline"],
        verify=options["verify"],
        lock=options["lock"],
        packaging=options["packaging"],
    )


def _parse_only(options: Mapping[str, Any]) -> dict[str, bool]:
    """Return what ``--only`` says as ``build_X`` of every project. Raises UsageError."""
    from rocm_wheels.records import suggest_name

    if options["only"] is None:
        return {}
    names = options["only"].replace(",", " ").replace("-", "_").split()
    if not names:
        raise UsageError("--only names no project", tip=f"there are {', '.join(list_project_names())}")
    for name in names:
        if name not in list_project_names():
            raise UsageError(f"--only: there is no project {name}{suggest_name(name, list_project_names())}")
    for name in list_project_names():
        if options[f"build_{name}"] is not None:
            option = f"--{'' if options[f'build_{name}'] else 'no-'}build-{get_option_name(name)}"
            raise UsageError(f"--only and {option} exclude each other", tip="--only says it of every project")
    return {f"build_{name}": name in names for name in list_project_names()}


def _find_project_wheels(name: str, place: Path) -> list[Path]:
    """Return a wheel as it is, or those of a project in a folder. Raises UsageError where it has none."""
    from rocm_wheels.model.project import load_project

    if not place.is_dir():
        return [place]
    wheels = sorted(place.glob(f"{load_project(name).distribution.replace('-', '_')}-*.whl"))
    if not wheels:
        raise UsageError(f"--{get_option_name(name)}-wheel: there is no wheel of {name} in {place}")
    return wheels


def _read_given_wheels(options: Mapping[str, Any]) -> dict[str, tuple[Path, ...]]:
    """Return the wheels that others shall be built against, by project. Raises UsageError."""
    from rocm_wheels.wheels.names import parse_wheel_name

    places_by_project = {name: options[f"{name}_wheel"] for name in list_shared_projects()}
    wheels_by_project = {
        name: [w for place in places for w in _find_project_wheels(name, place)]
        for name, places in places_by_project.items()
        if places
    }
    for name, wheels in wheels_by_project.items():
        option = get_option_name(name)
        if options[f"build_{name}"]:
            raise UsageError(f"--build-{option} and --{option}-wheel exclude each other")
        for wheel in wheels:
            if not wheel.is_file():
                raise UsageError(f"--{option}-wheel: there is no file {wheel}")
            try:
                parse_wheel_name(wheel.name)
            except DataError as wrong:
                raise UsageError(f"--{option}-wheel {wheel}: {wrong.message}") from None
    return {name: tuple(wheel.absolute() for wheel in wheels) for name, wheels in wheels_by_project.items()}


def _find_pythons(options: Mapping[str, Any], env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the interpreters that ``--python`` names; none when it is not given."""
    if not options["python"]:
        return ()
    if options["current_env"]:
        raise UsageError(
            "--python and --current-env exclude each other: the active environment has its Python"
        )
    from rocm_wheels.sdk.interpreters import find_interpreters

    return tuple(interpreter.path for interpreter in find_interpreters(options["python"], env))


def _parse_set_env(words: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read PROJECT:NAME=VALUE. Raises UsageError for what options decide, and for secrets."""
    from rocm_wheels.records import suggest_name
    from rocm_wheels.shell import HIDDEN, hide_variable_value

    variables: dict[str, dict[str, str]] = {}
    for word in words:
        match = re.fullmatch(r"(?P<project>[\w-]+):(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", word, re.DOTALL)
        if match is None:
            raise UsageError(
                f"--set-env {word!r} is not PROJECT:NAME=VALUE", tip="such as pytorch:USE_NCCL=0"
            )
        project, name = match["project"].replace("-", "_"), match["name"]
        if project not in list_project_names():
            raise UsageError(
                f"--set-env {word}: there is no project {project}{suggest_name(project, list_project_names())}"
            )
        if (option := _DECIDED_BY_OPTIONS.get(name)) is not None:
            raise UsageError(f"--set-env {word}: {name} is what {option} decides", tip=f"give {option}")
        if HIDDEN in hide_variable_value(name, match["value"] or "x"):
            by = "name" if HIDDEN in hide_variable_value(name, "x") else "value"
            raise UsageError(
                f"--set-env: {name} is a secret by its {by}, and a plan is no place for one",
                tip=f"export {name} where the build runs: it is passed on, and never shown",
            )
        if name in variables.setdefault(project, {}):
            raise UsageError(f"--set-env gives {name} of {project} twice")
        variables[project][name] = match["value"]
    return variables


def _check_output_folder(output: Path) -> None:
    """Refuse a folder that wheels cannot be written to: found out now, not after hours of building."""
    nearest = next(path for path in (output, *output.parents) if os.path.lexists(path))
    subject = f"--output-dir {output}" + ("" if nearest == output else f": {nearest}")
    if not nearest.is_dir():
        raise UsageError(f"{subject} is not a folder", tip="choose another folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(
            f"{subject} is not writable",
            tip="make it writable, or choose another folder",
        )


def _find_base_python(starting_python: Path, env: Mapping[str, str]) -> Path:
    """Return the interpreter that started the door, or the one below its virtual environment."""
    from rocm_wheels.sdk.interpreter import query_interpreter

    return query_interpreter(starting_python, env).path


def _find_active_python(env: Mapping[str, str]) -> Path:
    """Return the interpreter of the active environment (VIRTUAL_ENV, CONDA_PREFIX)."""
    from rocm_wheels.sdk.interpreter import locate_python

    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if env.get(variable):
            prefix = Path(env[variable])
            python = locate_python(prefix)
            if not python.exists():
                raise UsageError(f"--current-env: {variable} is {prefix}, but there is no {python}")
            return python
    raise UsageError(
        "--current-env: no virtual environment is active (VIRTUAL_ENV and CONDA_PREFIX are not set)",
        tip="activate one, or leave --current-env out for an isolated environment",
    )
