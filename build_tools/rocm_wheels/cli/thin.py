"""``wheel prune``: thin wheels out of fat ones."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli.command import command, option
from rocm_wheels.cli.options import GivenPath, print_result
from rocm_wheels.core import format_count, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocm_wheels.package import PrunePlan

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@command("wheel prune")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="WHEEL...")
@option("--gfx", "targets", required=True, metavar="LIST", help="Targets that stay: gfx942,gfx1100.")
@option(
    "-o",
    "--output-dir",
    type=GivenPath(file_okay=False),
    required=True,
    help="Folder for the new wheels, whose names are the old ones.",
)
@option(
    "--keep-pages",
    is_flag=True,
    help="Fill what becomes empty in libraries with zeros; by default the files become shorter.",
)
@option("--dry-run", is_flag=True, help="Tell what would become of the wheels, and write none.")
@option("--json", "as_json", is_flag=True, help="Print the result as JSON, every changed file on its own.")
def prune_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...], targets: str, output_dir: Path, keep_pages: bool, dry_run: bool, as_json: bool
) -> None:
    """Make thin wheels out of fat ones: keep the device code of some targets only.

    WHEELs may be anybody's. Code objects in libraries (Linux and Windows), on their own, and kernel databases
    (rocBLAS, hipBLASLt, hipSPARSELt, MIOpen, aotriton) are kept where they run on a target of the list;
    METADATA and all else stays, and RECORD follows. A target that a wheel has no code for is refused with
    exit code 13, and so is what PyPI would refuse; then no wheel is written.

    Libraries lose their empty pages: strip them before, not afterwards.

    \b
    Examples:
      rocm-wheels wheel prune bitsandbytes-*.whl --gfx gfx942,gfx1100 -o thin
      rocm-wheels wheel prune torch-*.whl --gfx gfx90a -o thin --dry-run
    """
    import os

    from rocm_wheels.models import parse_targets
    from rocm_wheels.package import plan_prune, write_pruned_wheel
    from rocm_wheels.wheels import require_distinct_targets

    parsed = parse_targets(targets)
    require_distinct_targets((wheel, output_dir / wheel.name) for wheel in wheels)
    with ExitStack() as stack:
        plans = plan_prune(wheels, parsed, stack, give_back=not keep_pages, jobs=os.cpu_count() or 1)
        paths = [None if dry_run else write_pruned_wheel(plan, output_dir).path for plan in plans]
    documents = [
        {**plan.to_json(), "written": path and str(path)} for plan, path in zip(plans, paths, strict=True)
    ]
    lines = [line for plan, path in zip(plans, paths, strict=True) for line in _describe_plan(plan, path)]
    print_result({"wheels": documents}, lines, as_json=as_json)


def _describe_plan(plan: PrunePlan, path: Path | None) -> Iterator[str]:
    pruned = sum(change.action == "pruned" for change in plan.changes)
    dropped = len(plan.changes) - pruned
    yield (
        f"{path or plan.wheel.name}: {' '.join(plan.targets)}; {format_size(plan.before[1])} ->"
        f" {format_size(plan.after[1])} (unpacked {format_size(plan.before[0])} ->"
        f" {format_size(plan.after[0])});"
        f" {format_count(pruned, 'file')} pruned, {dropped} left out"
    )
    for change in plan.changes:
        if change.action == "pruned" and not change.kept:
            yield f"  {change.name}: has no code for these targets"
