"""``rocm-wheels verify``: check finished wheels by hand, as a build does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.evidence import describe_origin
from rocm_wheels.errors import AuditError, DataError, UsageError, explain_error

if TYPE_CHECKING:
    from rocm_wheels.audit.imports import ImportEnvironment
    from rocm_wheels.audit.subject import WheelExpectation
    from rocm_wheels.model.project import Platform, Project

_GIVEN_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(name="verify")
@click.argument("wheels", nargs=-1, type=_GIVEN_FILE, metavar="WHEEL...")
@click.option(
    "--pytorch-rocm-arch", metavar="LIST", help="Targets that the wheels were built for: gfx942,gfx1100."
)
@click.option(
    "--rocm-version", metavar="V", help="Version of the ROCm packages that the wheels were built with."
)
@click.option(
    "--project", metavar="NAME", help="Recipe to check against; by default the wheel's own name tells."
)
@click.option(
    "--python", type=_GIVEN_FILE, help="Import each wheel too, with this interpreter and its packages."
)
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
@click.option("--list-checks", is_flag=True, help="List the checks and leave.")
def verify_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    pytorch_rocm_arch: str | None,
    rocm_version: str | None,
    project: str | None,
    python: Path | None,
    as_json: bool,
    list_checks: bool,
) -> None:
    """Check finished wheels without a GPU.

    A wheel must be whole, and the build that was asked for: its recipe says what that is. `rocm-wheels wheel
    verify` looks at the file alone, and takes any wheel.

    Device wheels (amd_torch_device_gfx942-….whl) are read with the wheel that they were split off from.

    Without --pytorch-rocm-arch the libraries of a wheel are compared with each other. The exit code
    is 14 when a wheel fails; what was not checked is listed with the reason.
    """
    from rocm_wheels.audit.parts import group_device_wheels
    from rocm_wheels.model.gfx import parse_targets

    if list_checks:
        _print_checks()
        return
    if not wheels:
        raise UsageError("no wheels were named", tip="for example: rocm-wheels verify dist/*.whl")
    targets = parse_targets(pytorch_rocm_arch) if pytorch_rocm_arch is not None else None
    place = _make_import_place(python)
    # what is asked is settled first: nobody waits for a wheel and is told then that another has no name
    groups = group_device_wheels(wheels)
    expected = {wheel: _make_expectation(wheel, project, targets, rocm_version) for wheel in groups}
    begun = describe_origin("verify")
    reports = [
        _verify_one_wheel(wheel, groups[wheel], expected[wheel], place, quiet=as_json) for wheel in groups
    ]
    if as_json:
        click.echo(json.dumps([{**report, **begun} for report in reports], indent=1))
    failed = sum(not report["passed"] for report in reports)
    if failed:
        raise AuditError(
            f"{failed} of {len(reports)} wheels failed" if len(reports) > 1 else "the wheel failed"
        )


def _verify_one_wheel(
    wheel: Path,
    parts: tuple[Path, ...],
    expected: WheelExpectation,
    place: ImportEnvironment | None,
    *,
    quiet: bool,
) -> dict[str, object]:
    from rocm_wheels.audit.report import format_report, verify_wheel

    try:
        report = verify_wheel(wheel, expected, environment=place, parts=parts)
    except DataError as unreadable:  # the other wheels are still worth a look
        log.log_error(explain_error(unreadable))
        return {"wheel": wheel.name, "passed": False, "unreadable": explain_error(unreadable)}
    if not quiet:
        click.echo("\n".join(format_report(report)))
    return report.to_json()


def _make_expectation(
    wheel: Path, project: str | None, targets: tuple[str, ...] | None, rocm_version: str | None
) -> WheelExpectation:
    from rocm_wheels.audit.subject import WheelExpectation
    from rocm_wheels.model.project import load_project
    from rocm_wheels.wheels.names import parse_wheel_name

    name = parse_wheel_name(wheel.name)
    recipe = load_project(project) if project else _guess_recipe(wheel, name.name)
    windows = any(tag.platform.startswith("win") for tag in name.tags)
    platform: Platform = "windows" if windows else "linux"
    return WheelExpectation(recipe, platform, targets=targets, rocm_version=rocm_version)


def _guess_recipe(wheel: Path, distribution: str) -> Project:
    from rocm_wheels.audit.subject import is_same_name
    from rocm_wheels.model.names import list_project_names
    from rocm_wheels.model.project import load_project

    recipes = [load_project(name) for name in list_project_names()]
    for recipe in recipes:
        if is_same_name(recipe.distribution, distribution):
            return recipe
    names = ", ".join(f"{recipe.distribution} ({recipe.name})" for recipe in recipes)
    raise UsageError(
        f"{wheel.name}: no recipe builds {distribution}", tip=f"name one with --project; there are: {names}"
    )


def _make_import_place(python: Path | None) -> ImportEnvironment | None:
    from rocm_wheels.audit.imports import ImportEnvironment

    # not resolved: a virtual environment is found through the link that its interpreter is
    return ImportEnvironment(python.absolute(), read_environment()) if python is not None else None


def _print_checks() -> None:
    from rocm_wheels.audit.table import CHECKS, IMPORT_CHECK, IMPORT_SUMMARY

    for name, description in [
        *((check.name, check.summary) for check in CHECKS),
        (IMPORT_CHECK, IMPORT_SUMMARY),
    ]:
        click.echo(f"{name:20} {description}")
