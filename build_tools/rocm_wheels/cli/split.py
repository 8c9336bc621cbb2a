"""``wheel split`` and ``wheel join``: a host wheel with device wheels, and one wheel of them again."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import catalogue, command, options
from rocm_wheels.core import errors, parallel, tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocm_wheels.package import join, split

_FILE = options.RegularFile()
_JOBS_OF_WHEELS = 2  # each uses all cores for its libraries


@command.command("wheel split")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="WHEEL...")
@catalogue.OUTPUT_DIR.but(required=True, help="Folder for the host and device wheels.")
@catalogue.GROUP.but(
    default="target",
    show_default=True,
    help="Make a device wheel for each target, or for each family of targets.",
)
@catalogue.ROCM.but(
    name="rocm_version",
    help="Version of ROCm's own device packages to require; by default that which a wheel requires, if any.",
)
@catalogue.takes(catalogue.DRY_RUN, catalogue.JSON)
def split_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    output_dir: Path,
    group: split.SplitGroup,
    rocm_version: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Split wheels into a host wheel and device wheels, in the layout of ROCm's own packages.

    The host wheel has no device code: it needs a ROCm whose runtime reads .kpack archives, and one device
    wheel for each GPU, which its extras require: torch[device-gfx942]. A GPU's download shrinks, and storage
    grows: archives compress each kernel by itself. With --group family (gfx110x, gfx9_4) there are fewer
    wheels, of about the same size in all, and each download has the code of several targets.

    WHEELs may be anybody's, for Linux or Windows. One without device code, a variant, one that is split
    already, and code that no archive can hold are refused with exit code 13; then no wheel is written. Strip
    libraries before, not afterwards.

    \b
    Examples:
      rocm-wheels wheel split dist/torch-*.whl dist/torchvision-*.whl -o split
      rocm-wheels wheel split bitsandbytes-*.whl -o split --group family --dry-run
    """
    from rocm_wheels.package import split
    from rocm_wheels.wheels import rewrite, write_together

    rewrite.require_distinct_targets((wheel, output_dir / wheel.name) for wheel in wheels)
    with write_together.write_together() as batch, ExitStack() as stack:
        requests = [split.SplitRequest(wheel, rocm_version, group) for wheel in wheels]
        plans = parallel.run_in_parallel(
            partial(split.plan_split, stack=stack), requests, jobs=_JOBS_OF_WHEELS
        )
        written = [
            None if dry_run else split.write_split(plan, batch.find_stage(output_dir)) for plan in plans
        ]
    pairs = [(plan, paths and paths.move_to(output_dir)) for plan, paths in zip(plans, written, strict=True)]
    documents = [{**plan.to_json(), "written": _list_paths(paths)} for plan, paths in pairs]
    lines = [line for plan, paths in pairs for line in _describe_split(plan, paths)]
    options.print_result({"wheels": documents}, lines, as_json=as_json)


def _list_paths(paths: split.SplitWheels | None) -> dict[str, object] | None:
    if paths is None:
        return None
    return {"host": str(paths.host), "devices": {key: str(path) for key, path in paths.devices.items()}}


def _describe_split(plan: split.SplitPlan, paths: split.SplitWheels | None) -> Iterator[str]:
    devices = sum(device.size for device in plan.devices.values())
    libraries = tables.format_count(len(plan.libraries), "library", "libraries")
    yield (
        f"{paths.host if paths else plan.wheel.name}: {libraries} without device code;"
        f" {tables.format_size(plan.before[1])} -> {tables.format_size(plan.after[1])}, and"
        f" {tables.format_count(len(plan.devices), 'device wheel')} of {tables.format_size(devices)} in all"
    )
    for key, device in plan.devices.items():
        archives = tables.format_count(len(device.archives), "archive")
        files = f", {tables.format_count(device.files, 'other file')}" if device.files else ""
        where = paths.devices[key] if paths else device.file_name
        yield f"  {where}: {archives}{files}; {tables.format_size(device.size)}"
    for name in plan.kept:
        yield f"  {name} stays in the host wheel: its code is for several targets, or not linked"


@command.command("wheel join")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="WHEEL...")
@catalogue.OUTPUT_DIR.but(
    required=True, help="Folder for the new wheels, whose names are those of the host wheels."
)
@catalogue.takes(catalogue.DRY_RUN, catalogue.JSON)
def join_command(wheels: tuple[Path, ...], output_dir: Path, dry_run: bool, as_json: bool) -> None:
    """Join host wheels with their device wheels: wheels that have their device code inside.

    WHEELs are host and device wheels, in any order, also those of ROCm's own splitter. The new wheel has the
    code of all device wheels that were named; METADATA loses the extras of devices. A kernel that none of
    them has is refused with exit code 13; then no wheel is written.

    \b
    Examples:
      rocm-wheels wheel join split/torch-*.whl split/amd_torch_device_*.whl -o joined
    """
    from rocm_wheels.audit import split_wheels
    from rocm_wheels.package import join
    from rocm_wheels.wheels import rewrite, write_together

    groups = split_wheels.group_device_wheels(wheels)
    if lonely := [host for host, devices in groups.items() if not devices]:
        raise errors.UsageError(
            f"no device wheel of {lonely[0].name} was named",
            tip=f"name them beside it: {lonely[0].parent / 'amd_*_device_*.whl'}",
        )
    rewrite.require_distinct_targets((host, output_dir / host.name) for host in groups)
    with write_together.write_together() as batch, ExitStack() as stack:
        requests = [join.JoinRequest(host, devices) for host, devices in groups.items()]
        plans = parallel.run_in_parallel(partial(join.plan_join, stack=stack), requests, jobs=_JOBS_OF_WHEELS)
        for plan in () if dry_run else plans:
            join.write_join(plan, batch.find_stage(output_dir))
    pairs = [(plan, None if dry_run else output_dir / plan.host.name) for plan in plans]
    documents = [{**plan.to_json(), "written": path and str(path)} for plan, path in pairs]
    lines = [_describe_join(plan, path) for plan, path in pairs]
    options.print_result({"wheels": documents}, lines, as_json=as_json)


def _describe_join(plan: join.JoinPlan, path: Path | None) -> str:
    return (
        f"{path or plan.host.name}: {' '.join(plan.targets)};"
        f" {tables.format_count(len(plan.libraries), 'library', 'libraries')} with device code,"
        f" {tables.format_count(plan.files, 'other file')} of "
        f"{tables.format_count(len(plan.devices), 'device wheel')}"
    )
