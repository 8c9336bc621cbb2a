"""Commands that make wheels out of finished wheels: stamp, prune, fat, split, join, repair, and of a folder.

Each decides for all wheels what becomes of them; then all new ones are there, or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, command, options, output
from rocm_wheels.core import errors, log, parallel, tables

if TYPE_CHECKING:
    from rocm_wheels.package import split, wheel_plan
    from rocm_wheels.wheels.write_together import WheelBatch

_FILE = options.RegularFile()
_SPLIT_AT_ONCE = 2  # each uses all cores for its libraries
_FAT_TAG = "1fat"
_MOST_COPIED = 16

# what a plan may hold, and how it is counted for people
_COUNTED = {
    "parts": ("wheel of ROCm", "wheels of ROCm"),
    "devices": ("device wheel", "device wheels"),
    "libraries": ("library", "libraries"),
    "changes": ("file changed", "files changed"),
    "files": ("other file", "other files"),
}


@contextmanager
def _make_wheels(activity: str, count: int) -> Iterator[tuple[WheelBatch, ExitStack]]:
    """Give the batch of the new wheels, and what closes the files that plans need until they are written."""
    from rocm_wheels.wheels import write_together

    with (
        write_together.write_together() as batch,
        ExitStack() as stack,
        options.show_activity(activity, count),
    ):
        yield batch, stack


def _print_plans(plans: Sequence[wheel_plan.WheelPlan], written: Sequence[Any], *, as_json: bool) -> None:
    """Print plans, each with where its wheels are now (None: nowhere, it is a dry run).

    For people it is a line a wheel, of the same document: its targets, sizes, and how much of what it is made
    of; below it device wheels and selector that are split off, and files that have no code for the targets,
    or keep it.
    """
    lines, documents = [], []
    for plan, where in zip(plans, written, strict=True):
        document = {**output.to_plain(plan), "written": where}
        documents.append(document)
        facts = [" ".join(document["targets"]) or "no device code", plan.describe_sizes()]
        counted = dict(document)
        if "rocm" in document:  # a fat wheel, whose files are all that it takes, its libraries too
            facts.insert(0, f"ROCm {document['rocm']}")
            counted["files"] -= len(document["libraries"])
        for name, nouns in _COUNTED.items():
            if value := counted.get(name):
                facts.append(tables.format_count(value if isinstance(value, int) else len(value), *nouns))
        lines.append(f"{getattr(where, 'host', where) or plan.wheel.name}: {'; '.join(facts)}")
        for key, device in document["devices"].items() if "kept" in document else ():
            path = where.devices[key] if where else device["file"]
            lines.append(f"  {path}: {tables.format_size(device['size'])}")
        if selector := document.get("selector"):
            path = where.selector if where else selector["file"]
            lines.append(f"  {path}: the host requires it; it brings none of these")
        for name in document.get("kept", ()):
            lines.append(f"  {name} stays in the host wheel: its code is for several targets, or not linked")
        for change in document.get("changes", ()):
            if change["action"] == "pruned" and not change["kept"]:
                lines.append(f"  {change['member']}: has no code for these targets")
    output.print_result({"wheels": documents}, lines, as_json=as_json)


@command.command("wheel stamp")
@options.wheels_argument
@catalogue.GFX.but(
    default="from-wheel",
    show_default=True,
    metavar="LIST|none|from-wheel",
    help="GPU targets: gfx942,gfx1100, none, or what the wheel has device code for.",
)
@command.option(
    "--label", metavar="L", help="Label instead of one made from the properties, like rocm7.2_gfx942."
)
@catalogue.ROCM.but(name="rocm_version", help="ROCm that the wheel was made with [default: by its metadata].")
@command.option(
    "--rocm-property",
    type=click.Choice(["bundled", "host"]),
    default="bundled",
    show_default=True,
    help="bundled: the wheel contains or requires its ROCm. host: it needs that version on the machine.",
)
@command.option(
    "--provider",
    type=click.Choice(["rocm-bootstrap", "own", "static"]),
    default="rocm-bootstrap",
    show_default=True,
    help="Who reports the GPUs: AMD's plugin; ours, if nobody else can publish rocm-variant-provider; a list"
    " of the targets of these wheels.",
)
@command.option("--null", is_flag=True, help="Stamp as the variant for every machine, without any property.")
@command.option(
    "--join",
    type=options.wheel_file,
    multiple=True,
    help="A stamped wheel or -variants.json of the release, whose namespaces and providers to use.",
)
@catalogue.NEW_WHEELS
def stamp_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    label: str | None,
    null: bool,
    output_dir: Path | None,
    dry_run: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Make variant wheels (PEP 825) of plain ones.

    Targets are read from the tables of the device code; a wheel without any is for those of --gfx. The WHEELs
    are kept; all new ones are written, or none. +rocm7.2 and +cpu are removed from the version and from pins
    on sibling wheels, because all variants of a release have one version.

    \b
    Examples:
      rocm-wheels wheel stamp dist/torch-*.whl --output-dir variants
    """
    from rocm_wheels.package import variant_stamp
    from rocm_wheels.variants import document, targets
    from rocm_wheels.wheels import wheel_code

    choice = document.ProviderChoice(provider=asked.pop("provider"), rocm_property=asked.pop("rocm_property"))
    joined = [(path.name, variant_stamp.read_joined_document(path)) for path in asked.pop("join")]
    label = document.NULL_LABEL if null and label is None else label
    request = variant_stamp.StampRequest(label=label, null=null, choice=choice, joined=joined, **asked)
    # the first ones, for each holds files open, are copied and read while stamps are decided
    copied = () if dry_run else wheels[:_MOST_COPIED]
    with (
        _make_wheels("stamping", len(wheels)) as (batch, _),
        wheel_code.begin_copies(copied, output_dir, batch) as copies,
    ):

        def read_targets(wheel: Path) -> targets.WheelTargets:
            if wheel not in copies:
                return targets.read_wheel_targets(wheel)
            code = copies[wheel].result().code
            return targets.collect_wheel_targets(code.code, code.moved_code)

        stamps = variant_stamp.plan_stamps(wheels, request, read_targets=read_targets)
        if dry_run:
            done = [stamp.describe(output_dir) for stamp in stamps]
        else:
            begun = {wheel: copy.result().rewrite for wheel, copy in copies.items()}
            done = variant_stamp.write_stamps(stamps, output_dir, batch=batch, begun=begun)
    lines = (f"{wheel.path}  {document.describe_properties(wheel.properties)}" for wheel in done)
    output.print_result(done, lines, as_json=as_json)


@command.command("wheel prune")
@options.wheels_argument
@catalogue.GFX.but(required=True, help="Targets that stay: gfx942,gfx1100.")
@catalogue.OUTPUT_DIR.but(required=True, help="Folder for the new wheels, which keep their names.")
@catalogue.takes(catalogue.DRY_RUN, catalogue.JSON)
def prune_command(
    wheels: tuple[Path, ...], targets: str, output_dir: Path, dry_run: bool, as_json: bool
) -> None:
    """Make thin wheels of fat ones: keep the device code of some targets only.

    WHEELs may be anybody's. It keeps what runs on a target of the list: code objects in libraries (Linux and
    Windows), single code objects, and kernel databases (rocBLAS, hipBLASLt, hipSPARSELt, MIOpen, aotriton).
    The name, METADATA and everything else stay; RECORD follows. If a wheel has no code for a target, or PyPI
    would refuse the result, the exit code is 13 and no wheel is written.

    Libraries of Linux lose their empty pages: strip them before, not afterwards. In DLLs these become zeros.

    \b
    Examples:
      rocm-wheels wheel prune bitsandbytes-*.whl --gfx gfx942,gfx1100 -o thin
      rocm-wheels wheel prune torch-*.whl --gfx gfx90a -o thin --dry-run
    """
    import os

    from rocm_wheels.models import gfx
    from rocm_wheels.package import prune
    from rocm_wheels.wheels import rewrite

    chosen = gfx.parse_targets(targets)
    rewrite.require_distinct_targets((wheel, output_dir / wheel.name) for wheel in wheels)
    with _make_wheels("pruning", len(wheels)) as (batch, stack):
        plans = prune.plan_prune(wheels, chosen, stack)
        if not dry_run:
            stage = batch.find_stage(output_dir)
            parallel.run_in_parallel(lambda plan: plan.write(stage), plans, jobs=os.cpu_count() or 1)
    written = [None if dry_run else plan.find_target(output_dir) for plan in plans]
    _print_plans(plans, written, as_json=as_json)


@command.command("wheel fat")
@options.wheels_argument
@catalogue.ROCM_WHEELS.but(required=True)
@catalogue.GFX.but(required=True, help="Targets of the new wheel: gfx942,gfx1100.")
@catalogue.BUILD_TAG.but(help="Build tag in its name, such as 1fat, to tell it from the thin one.")
@catalogue.NEW_WHEELS
def fat_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    find_links: Path,
    targets: str,
    build_tag: str | None,
    output_dir: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make WHEELs of torch that carry their ROCm: one file, which needs no ROCm package.

    The parts of ROCm's wheels that torch's libraries need, with kernels for the targets only, are loaded from
    inside torch. The version stays, because companions pin it, so a fat and a thin wheel must not share an
    index; --build-tag lets them share a folder. If a library is missing, or has no kernels for a target, the
    exit code is 13 and no wheel is written.

    \b
    Examples:
      rocm-wheels wheel fat dist/torch-2.9.whl --find-links rocm/dist --gfx gfx942 -o fat
      rocm-wheels wheel fat dist/torch-2.9.whl --find-links rocm/dist --gfx gfx90a -o fat --dry-run
    """
    from rocm_wheels.models import gfx
    from rocm_wheels.package import fat
    from rocm_wheels.wheels import rewrite

    if output_dir is None and build_tag is None:
        raise errors.UsageError(
            "a fat wheel has the name of the thin one", tip="say --output-dir DIR, or --build-tag 1fat"
        )
    chosen = gfx.parse_targets(targets)
    with _make_wheels("making fat", len(wheels)) as (batch, stack):
        plans = []
        for wheel in wheels:  # one by one: each is on all cores
            request = fat.FatRequest(wheel, chosen, build_tag, find_links)
            plans.append(fat.plan_fat(request, stack))
        paths = [plan.find_target(output_dir) for plan in plans]
        rewrite.require_distinct_targets(zip(wheels, paths, strict=True))
        for plan, path in zip(plans, paths, strict=True):
            if not dry_run:
                plan.write(batch.find_stage(path.parent))
    written = [None if dry_run else path for path in paths]
    _print_plans(plans, written, as_json=as_json)


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

    if not list(rocm_path.glob("rocm*.whl")):
        raise errors.UsageError(
            f"{rocm_path} has no wheels of ROCm",
            tip="make them of a ROCm tree: rocm-wheels rocm packages --from-prefix",
        )
    build_tag = _FAT_TAG if output_path is None else dist_info.split_wheel_name(output_path.name).build
    name = dataclasses.replace(dist_info.split_wheel_name(wheel.name), build=build_tag)
    if output_path and output_path.name != name.file_name:
        fat_name = dataclasses.replace(name, build=_FAT_TAG).file_name
        raise errors.UsageError(
            f"{output_path.name} is not the name of this wheel: its version stays, for others pin it",
            tip=f"only the build tag may be another: {fat_name}",
        )
    if targets is None:
        code = [item for objects in wheel_code.read_device_code(wheel).code.values() for item in objects]
        targets = ",".join(dict.fromkeys(t.partition(":")[0] for t in code_objects.list_code_targets(code)))
    with ExitStack() as stack:
        request = fat.FatRequest(wheel, gfx.parse_targets(targets), build_tag or None, rocm_path)
        plan = fat.plan_fat(request, stack)
        path = plan.write((output_path or wheel).parent)
    _print_plans([plan], [path], as_json=as_json)


@command.command("wheel split")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="WHEEL...")
@catalogue.OUTPUT_DIR.but(required=True, help="Folder for the host and device wheels.")
@command.option(
    "--group",
    type=click.Choice(["target", "family"]),
    default="target",
    show_default=True,
    help="Make a device wheel for each target, or for each family of targets.",
)
@catalogue.takes(catalogue.DRY_RUN, catalogue.JSON)
def split_command(
    wheels: tuple[Path, ...], output_dir: Path, group: split.SplitGroup, dry_run: bool, as_json: bool
) -> None:
    """Split wheels into a host wheel and device wheels, in the layout of ROCm's own packages.

    The host wheel has no device code. It needs a ROCm whose runtime reads .kpack archives, and a device wheel
    for each GPU, which its extras require: torch[device-gfx942]. The download for one GPU shrinks, but
    storage grows, because archives compress each kernel by itself. With --group family (gfx110x, gfx9_4)
    there are fewer wheels, of about the same total size, and each download has the code of several targets.

    WHEELs may be anybody's, for Linux or Windows. A wheel without device code, a variant, an already split
    wheel, and code that no archive can hold are exit code 13, a damaged wheel 2; then no wheel is written.
    Strip libraries before, not afterwards.

    \b
    Examples:
      rocm-wheels wheel split dist/torch-*.whl dist/torchvision-*.whl -o split
      rocm-wheels wheel split bitsandbytes-*.whl -o split --group family --dry-run
    """
    from rocm_wheels.package import split
    from rocm_wheels.wheels import rewrite

    rewrite.require_distinct_targets((wheel, output_dir / wheel.name) for wheel in wheels)
    with _make_wheels("splitting", len(wheels)) as (batch, stack):
        requests = [split.SplitRequest(wheel, group=group) for wheel in wheels]
        plans = parallel.run_in_parallel(
            partial(split.plan_split, stack=stack), requests, jobs=_SPLIT_AT_ONCE
        )
        for plan in () if dry_run else plans:
            split.write_split(plan, batch.find_stage(output_dir))
    written = [None if dry_run else split.list_written(plan, output_dir) for plan in plans]
    _print_plans(plans, written, as_json=as_json)


@command.command("wheel join")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="WHEEL...")
@catalogue.OUTPUT_DIR.but(
    required=True, help="Folder for the new wheels, whose names are those of the host wheels."
)
@catalogue.takes(catalogue.DRY_RUN, catalogue.JSON)
def join_command(wheels: tuple[Path, ...], output_dir: Path, dry_run: bool, as_json: bool) -> None:
    """Join host wheels with their device wheels: the new wheels have their device code inside.

    WHEELs are host and device wheels, in any order, also those of ROCm's own splitter. The new wheel has the
    code of all device wheels that you name, and no extras of devices. If a kernel is in none of them, the
    exit code is 13 and no wheel is written.

    \b
    Examples:
      rocm-wheels wheel join split/torch-*.whl split/amd_torch_device_*.whl -o joined
    """
    from rocm_wheels.audit import split_wheels
    from rocm_wheels.package import join
    from rocm_wheels.wheels import rewrite

    groups = split_wheels.group_device_wheels(wheels)
    if lonely := [host for host, devices in groups.items() if not devices]:
        raise errors.UsageError(
            f"no device wheel of {lonely[0].name} was named",
            tip=f"name them beside it: {lonely[0].parent / 'amd_*_device_*.whl'}",
        )
    rewrite.require_distinct_targets((host, output_dir / host.name) for host in groups)
    with _make_wheels("joining", len(groups)) as (batch, stack):
        plans = parallel.run_in_parallel(
            lambda host: join.plan_join(host, groups[host], stack), groups, jobs=_SPLIT_AT_ONCE
        )
        for plan in () if dry_run else plans:
            join.write_join(plan, batch.find_stage(output_dir))
    written = [None if dry_run else plan.find_target(output_dir) for plan in plans]
    _print_plans(plans, written, as_json=as_json)


@command.command("wheel repair")
@options.wheels_argument
@catalogue.PLAT
@catalogue.LOCAL_LINKS.but(
    help="Wheels that METADATA requires; their libraries stay outside. May be given several times."
)
@catalogue.PYTHON.but(help="Python whose installed packages count like those of --find-links.")
@command.option(
    "--library-dir",
    multiple=True,
    metavar="DIR",
    type=options.GivenPath(file_okay=False),
    help="Folder with libraries that may be grafted. May be given several times.",
)
@command.option(
    "--exclude",
    multiple=True,
    metavar="NAME",
    help="Library that users must have themselves: libnuma.so.1. May be given several times.",
)
@catalogue.NEW_WHEELS
def repair_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    find_links: tuple[Path, ...],
    python: Path | None,
    output_dir: Path | None,
    dry_run: bool,
    as_json: bool,
    plat: str,
    exclude: tuple[str, ...],
    library_dir: tuple[Path, ...],
) -> None:
    """Repair WHEELs: platform tag, libraries from outside, run paths.

    The tag is computed from symbol versions by auditwheel's tables. Libraries of required packages stay
    outside; other missing ones are grafted from --library-dir, by auditwheel or delvewheel, or are an error.
    Paths of the builder's machine are removed from run paths. The WHEELs count as --find-links too. They are
    kept; all new ones are written, or none. A wheel that cannot be repaired is exit code 13. Repair before
    `wheel stamp`.

    \b
    Examples:
      rocm-wheels wheel repair dist/torch-*.whl --find-links rocm-packages --output-dir repaired
      rocm-wheels wheel repair dist/*.whl --python .venv/bin/python --dry-run
    """
    from rocm_wheels.core import installation
    from rocm_wheels.package import repair
    from rocm_wheels.wheels import required_packages

    installation.require_extras("a repair", "build")
    env = boundary.read_environment()
    request = repair.RepairRequest(
        platform=None if plat == "auto" else plat,
        excludes=dict.fromkeys(exclude, "--exclude"),
        library_dirs=library_dir,
    )
    with options.show_activity("repair: reading", len(wheels)):
        offers = required_packages.PackagePool.collect(
            wheels, find_links, python.absolute() if python else None, env
        )
        plans = repair.plan_repairs(wheels, offers, request)
    if dry_run:
        lines = [line for plan in plans for line in plan.describe()]
        output.print_result({"wheels": plans}, lines, as_json=as_json)
        repair.require_repairable(plans)
        return
    with options.show_activity("repair: writing", len(wheels)):
        repaired = repair.write_repairs(plans, output_dir, env)
    for plan in plans:
        for line in plan.describe():
            log.log_note(line)
    documents = [{**output.to_plain(plan), "path": path} for plan, path in zip(plans, repaired, strict=True)]
    output.print_result({"wheels": documents}, repaired, as_json=as_json)


@command.command("set package")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
@catalogue.PACKAGING.but(required=True)
@catalogue.takes(catalogue.ROCM_WHEELS, catalogue.ROCM_INDEX)
@catalogue.GFX.but(help="Targets of a fat torch.")
@catalogue.JSON
def package_command(  # noqa: PLR0917 - click passes them by name
    folder: Path,
    packaging: str,
    find_links: Path | None,
    index_url: str | None,
    targets: str | None,
    as_json: bool,
) -> None:
    """Package the wheels in DIR, in place, as `build --packaging` does when it builds.

    Use it for wheels that several machines have built, which are thin because others are built against them.
    Wheels that are already packaged, or need no packaging, stay. A wheel that was built again replaces its
    earlier packages, once all new wheels are complete. A fat torch has the build tag 1fat.

    \b
    Examples:
      rocm-wheels set package wheels --packaging split
      rocm-wheels set package wheels --packaging fat --rocm-index URL --gfx gfx942
    """
    from rocm_wheels.models import gfx
    from rocm_wheels.package import fat, split

    if packaging == "fat" and (not targets or (find_links is None) == (index_url is None)):
        raise errors.UsageError(
            "a fat torch needs --gfx, and ROCm's wheels from one of --find-links and --rocm-index"
        )
    if packaging == "split" and (targets or find_links or index_url):
        raise errors.UsageError("--gfx, --find-links and --rocm-index are for --packaging fat")
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise errors.UsageError(f"there is no wheel in {folder}")
    with _make_wheels("packaging", len(wheels)) as (batch, _):
        stage = batch.find_stage(folder)
        replaced = [
            wheel for wheel in wheels if (_is_unsplit if packaging == "split" else _is_thin_torch)(wheel)
        ]
        for wheel in replaced:
            with ExitStack() as stack:
                if packaging == "split":
                    split.write_split(split.plan_split(split.SplitRequest(wheel), stack), stage)
                else:
                    chosen = gfx.parse_targets(str(targets))
                    request = fat.FatRequest(wheel, chosen, _FAT_TAG, find_links, index_url)
                    fat.plan_fat(request, stack).write(stage)
            batch.remove(wheel)
        names = sorted(file.name for file in stage.glob("*.whl"))
        for name in names:  # of the last packaging, where its host was built again
            if (folder / name).exists():
                batch.remove(folder / name)
    document = {"packaging": packaging, "replaced": [wheel.name for wheel in replaced], "written": names}
    lines = [*names, f"{tables.format_count(len(replaced), 'wheel')} of {len(wheels)} packaged: {packaging}"]
    output.print_result(document, lines, as_json=as_json)


def _is_unsplit(wheel: Path) -> bool:
    from rocm_wheels.package import wheel_plan
    from rocm_wheels.variants import device_names
    from rocm_wheels.wheels import dist_info, wheel_code

    name = dist_info.parse_wheel_name(wheel.name).name
    if wheel_plan.is_rocm_package(name) or device_names.find_host_project(name) is not None:
        return False  # ROCm's packages lie beside wheels that need them
    return any(wheel_code.read_device_code(wheel).code.values())


def _is_thin_torch(wheel: Path) -> bool:
    from rocm_wheels.package import fat
    from rocm_wheels.wheels.archive import WheelArchive

    with WheelArchive.open(wheel) as archive:
        names = {entry.name for entry in archive.members}
    return fat.INIT_MODULE in names and not any(name.startswith(f"{fat.ROCM_FOLDER}/") for name in names)
