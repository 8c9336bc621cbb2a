"""``wheel prune`` and ``wheel fat``: thin wheels out of fat ones, and a torch that carries its ROCm."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import catalogue, command, options
from rocm_wheels.core import errors, log, parallel, tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocm_wheels.package import fat, prune


@command.command("wheel prune")
@options.wheels_argument
@catalogue.GFX.but(required=True, help="Targets that stay: gfx942,gfx1100.")
@command.option(
    "--keep-pages",
    is_flag=True,
    help="Fill what becomes empty in libraries with zeros; by default the files become shorter.",
)
@catalogue.NEW_WHEELS
def prune_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    targets: str,
    keep_pages: bool,
    output_dir: Path | None,
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make thin wheels out of fat ones: keep the device code of some targets only.

    WHEELs may be anybody's. Code objects in libraries (Linux and Windows), on their own, and kernel databases
    (rocBLAS, hipBLASLt, hipSPARSELt, MIOpen, aotriton) are kept where they run on a target of the list;
    METADATA and all else stays, the name too, and RECORD follows. A target that a wheel has no code for is
    refused with exit code 13, and so is what PyPI would refuse; then no wheel is written.

    Libraries of Linux lose their empty pages: strip them before, not afterwards. DLLs keep zeros in them.

    \b
    Examples:
      rocm-wheels wheel prune bitsandbytes-*.whl --gfx gfx942,gfx1100 -o thin
      rocm-wheels wheel prune torch-*.whl --gfx gfx90a -o thin --dry-run
    """
    import os

    from rocm_wheels.models import gfx
    from rocm_wheels.package import prune
    from rocm_wheels.wheels import rewrite, write_together

    parsed = gfx.parse_targets(targets)
    if output_dir is None and not replace:
        raise errors.UsageError(
            "a pruned wheel has the name of the old one", tip="say --output-dir DIR, or --replace"
        )
    targets_by_wheel = [(wheel, (output_dir or wheel.parent) / wheel.name) for wheel in wheels]
    rewrite.require_distinct_targets(targets_by_wheel)
    jobs = os.cpu_count() or 1

    def write(plan: prune.PrunePlan) -> Path:
        folder = output_dir or plan.wheel.parent
        return folder / prune.write_pruned_wheel(plan, batch.find_stage(folder)).path.name

    with (
        write_together.write_together(replace=replace) as batch,
        ExitStack() as stack,
        options.show_activity("pruning", len(wheels)),
    ):
        plans = prune.plan_prune(wheels, parsed, stack, give_back=not keep_pages, jobs=jobs)
        paths = [None] * len(plans) if dry_run else parallel.run_in_parallel(write, plans, jobs=jobs)
    documents = [
        {**plan.to_json(), "written": path and str(path)} for plan, path in zip(plans, paths, strict=True)
    ]
    lines = [line for plan, path in zip(plans, paths, strict=True) for line in _describe_plan(plan, path)]
    options.print_result({"wheels": documents}, lines, as_json=as_json)


def _describe_plan(plan: prune.PrunePlan, path: Path | None) -> Iterator[str]:
    pruned = sum(change.action == "pruned" for change in plan.changes)
    dropped = len(plan.changes) - pruned
    if not plan.targets:
        yield f"{path or plan.wheel.name}: no device code, copied as it is"
        return
    yield (
        f"{path or plan.wheel.name}: {' '.join(plan.targets)}; {tables.format_size(plan.before[1])} ->"
        f" {tables.format_size(plan.after[1])} (unpacked {tables.format_size(plan.before[0])} ->"
        f" {tables.format_size(plan.after[0])});"
        f" {tables.format_count(pruned, 'file')} pruned, {dropped} left out"
    )
    for change in plan.changes:
        if change.action == "pruned" and not change.kept:
            yield f"  {change.name}: has no code for these targets"


@command.command("wheel fat")
@options.wheels_argument
@catalogue.takes(catalogue.ROCM_WHEELS, catalogue.ROCM_INDEX)
@catalogue.GFX.but(required=True, help="Targets that it is for: gfx942,gfx1100.")
@catalogue.BUILD_TAG.but(help="Build tag of its name: 1fat beside the thin one in a store.")
@catalogue.NEW_WHEELS
def fat_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    find_links: Path | None,
    index_url: str | None,
    targets: str,
    build_tag: str | None,
    output_dir: Path | None,
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make WHEELs of torch that carry their ROCm: one file, which needs no ROCm package.

    What torch's libraries need of ROCm's wheels is taken from them, with kernels for the targets only, and
    loaded from inside torch. The version stays, because companions pin it: so a fat and a thin wheel must
    not share an index; --build-tag lets them share a folder. A missing library, or a target without kernels
    of a library, is refused with exit code 13; then no wheel is written.

    \b
    Examples:
      rocm-wheels wheel fat dist/torch-2.9.whl --find-links rocm/dist --gfx gfx942 -o fat
      rocm-wheels wheel fat dist/torch-2.9.whl --rocm-index https://example.org/ --gfx gfx90a -o fat --dry-run
    """
    from tempfile import TemporaryDirectory

    from rocm_wheels.models import gfx
    from rocm_wheels.package import fat
    from rocm_wheels.wheels import rewrite, write_together

    if (find_links is None) == (index_url is None):
        raise errors.UsageError("name ROCm's wheels with one of --find-links and --rocm-index")
    if output_dir is None and not replace and build_tag is None:
        raise errors.UsageError(
            "a fat wheel has the name of the thin one",
            tip="say --output-dir DIR, --build-tag 1fat or --replace",
        )
    parsed = gfx.parse_targets(targets)
    with (
        write_together.write_together(replace=replace) as batch,
        ExitStack() as stack,
        options.show_activity("making fat", len(wheels)),
    ):
        plans = []
        for wheel in wheels:  # one by one: each is on all cores
            request = fat.FatRequest(wheel, (), parsed, build_tag)
            if find_links is not None:
                rocm_wheels = tuple(sorted(find_links.glob("rocm*.whl")))
            else:
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="rocm-wheels-fat-")))
                rocm_wheels = fat.fetch_rocm_wheels(str(index_url), request, folder)
            plans.append(fat.plan_fat(dataclasses.replace(request, rocm_wheels=rocm_wheels), stack))
        paths = [plan.find_target(output_dir) for plan in plans]
        rewrite.require_distinct_targets(zip(wheels, paths, strict=True))
        for plan, path in zip(plans, paths, strict=True):
            if not dry_run:
                fat.write_fat_wheel(plan, batch.find_stage(path.parent))
    _print_fat_plans(
        [(plan, None if dry_run else path) for plan, path in zip(plans, paths, strict=True)], as_json=as_json
    )


@command.command("patch-fat-wheel")
@click.argument("wheel", type=options.wheel_file, metavar="WHEEL")
@click.argument("rocm_path", type=options.GivenPath(file_okay=False), metavar="ROCM")
@command.option(
    "--output-path", type=options.GivenPath(), help="File to write [default: beside WHEEL, with a build tag]."
)
@catalogue.GFX.but(help="Targets that it is for; by default all of WHEEL.")
@catalogue.JSON
def patch_command(
    wheel: Path, rocm_path: Path, output_path: Path | None, targets: str | None, as_json: bool
) -> None:
    """Put ROCm into a wheel of torch, as `rocm-wheels wheel fat` does; ROCM is a folder with ROCm's wheels.

    \b
    Examples:
      rocm-wheels wheel fat dist/torch-2.9.whl --find-links rocm/dist --gfx gfx942 -o fat
    """
    from rocm_wheels.device_code import code_objects
    from rocm_wheels.models import gfx
    from rocm_wheels.package import fat
    from rocm_wheels.wheels import dist_info, wheel_code

    rocm_wheels = tuple(sorted(rocm_path.glob("rocm*.whl")))
    if not rocm_wheels:
        raise errors.UsageError(
            f"{rocm_path} has no wheels of ROCm",
            tip="make them of a ROCm tree: rocm-wheels rocm packages --from-prefix",
        )
    build_tag = dist_info.split_wheel_name((output_path or wheel).name).build or (
        None if output_path else "1fat"
    )
    name = dist_info.split_wheel_name(wheel.name)
    if output_path and dist_info.split_wheel_name(output_path.name) != dataclasses.replace(
        name, build=build_tag or ""
    ):
        raise errors.UsageError(
            f"{output_path.name} is not the name of this wheel: its version stays, for others pin it",
            tip=f"only the build tag may be another: {dataclasses.replace(name, build='1fat').file_name}",
        )
    code = [item for objects in wheel_code.read_wheel_code(wheel).values() for item in objects]
    chosen = gfx.parse_targets(
        targets or ",".join(dict.fromkeys(t.partition(":")[0] for t in code_objects.list_code_targets(code)))
    )
    with ExitStack() as stack:
        plan = fat.plan_fat(fat.FatRequest(wheel, rocm_wheels, chosen, build_tag), stack)
        path = fat.write_fat_wheel(plan, (output_path or wheel).parent).path
    _print_fat_plans([(plan, path)], as_json=as_json)


def _print_fat_plans(plans: Sequence[tuple[fat.FatPlan, Path | None]], *, as_json: bool) -> None:
    for plan, _ in plans:
        for project in plan.unlicensed:
            log.log_warning(f"{project}: its wheel has no text of a licence to take over")
        if plan.from_system:
            log.log_note(f"from the system of the user: {', '.join(plan.from_system)}")
    documents = [{**plan.to_json(), "written": path and str(path)} for plan, path in plans]
    lines = [_describe_fat_plan(plan, path) for plan, path in plans]
    options.print_result({"wheels": documents}, lines, as_json=as_json)


def _describe_fat_plan(plan: fat.FatPlan, path: Path | None) -> str:
    return (
        f"{path or plan.wheel.name}: ROCm {plan.rocm_version} for {' '.join(plan.targets)};"
        f" {tables.format_count(len(plan.libraries), 'library', 'libraries')} and"
        f" {tables.format_count(plan.files - len(plan.libraries), 'other file')} from"
        f" {tables.format_count(len(plan.parts), 'wheel')};"
        f" {tables.format_size(plan.before[1])} -> {tables.format_size(plan.after[1])}"
        f" (unpacked {tables.format_size(plan.before[0])} -> {tables.format_size(plan.after[0])})"
    )
