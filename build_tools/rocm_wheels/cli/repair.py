"""``wheel repair``: finished wheels made fit for machines other than the builder's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rocm_wheels.cli import boundary, catalogue, command, options
from rocm_wheels.core import log


@command.command("wheel repair")
@options.wheels_argument
@catalogue.PLAT
@catalogue.LOCAL_LINKS.but(
    help="Wheels that METADATA requires: what they have stays outside. May be given several times."
)
@catalogue.PYTHON.but(help="Interpreter whose installed packages count as those of --find-links do.")
@catalogue.takes(catalogue.LIBRARY_DIR, catalogue.EXCLUDE_LIBRARY, catalogue.CLEAR_EXEC_STACK)
@command.option(
    "--rocm-run-paths",
    is_flag=True,
    help="Add the folders of required packages to run paths: $ORIGIN/../../_rocm_sdk_core/lib.",
)
@catalogue.STRIP
@command.option(
    "--vc-runtime",
    type=click.Choice(["exclude", "graft"]),
    default="exclude",
    show_default=True,
    help="On Windows: users have msvcp140.dll and its like, or they are grafted from --library-dir.",
)
@catalogue.NEW_WHEELS
def repair(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    find_links: tuple[Path, ...],
    python: Path | None,
    output_dir: Path | None,
    replace: bool,
    dry_run: bool,
    as_json: bool,
    **request: Any,
) -> None:
    """Repair WHEELs: platform tag, libraries from outside, run paths, stacks, debug sections.

    The tag is computed from symbol versions by auditwheel's tables. What required packages have stays
    outside; what nothing has is grafted from --library-dir, by auditwheel or delvewheel, or is an error.
    Entries of builders' machines leave run paths. The WHEELs count as --find-links too; they stay, and all
    are written or none. Exit code 13 for a wheel that cannot be repaired. Repair before `wheel stamp`.

    \b
    Examples:
      rocm-wheels wheel repair dist/torch-*.whl --find-links rocm-packages --output-dir repaired
      rocm-wheels wheel repair dist/*.whl --python .venv/bin/python --dry-run
    """
    from rocm_wheels.core import extras
    from rocm_wheels.package.repair import RepairRequest, plan_repairs, require_repairable, write_repairs
    from rocm_wheels.wheels import required_packages

    extras.require_extras("a repair", "build")
    env = boundary.read_environment()
    platform = request.pop("plat")
    repair_request = RepairRequest(
        platform=None if platform == "auto" else platform,
        excludes=dict.fromkeys(request.pop("exclude"), "--exclude"),
        library_dirs=request.pop("library_dir"),
        **request,
    )
    with options.show_activity("repair: reading", len(wheels)):
        offers = required_packages.PackagePool.collect(
            wheels, find_links, python.absolute() if python else None, env
        )
        plans = plan_repairs(wheels, offers, repair_request)
    if dry_run:
        lines = [line for plan in plans for line in plan.describe()]
        options.print_result({"wheels": [plan.to_json() for plan in plans]}, lines, as_json=as_json)
        require_repairable(plans)
        return
    with options.show_activity("repair: writing", len(wheels)):
        repaired = write_repairs(plans, output_dir, env, replace_files=replace)
    for wheel in repaired:
        for line in wheel.plan.describe():
            log.log_note(line)
    documents = [wheel.to_json() for wheel in repaired]
    options.print_result({"wheels": documents}, (wheel.path for wheel in repaired), as_json=as_json)
