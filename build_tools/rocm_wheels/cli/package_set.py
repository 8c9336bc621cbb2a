"""``set package``: the wheels of a folder packaged in another way, before they are staged."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import catalogue, command, options
from rocm_wheels.core import errors, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

_BUILD_TAG = "1fat"


@command.command("set package")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
@catalogue.PACKAGING.but(required=True)
@catalogue.takes(catalogue.ROCM_WHEELS, catalogue.ROCM_INDEX)
@catalogue.GFX.but(help="Targets that a fat torch is for.")
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

    For wheels that several machines have built: what each made is thin, for others are built against it. A
    wheel that is packaged so already, and one that there is nothing to do with, stays. Nothing is replaced
    before all new wheels are complete. A fat torch has the build tag 1fat.

    \b
    Examples:
      rocm-wheels set package wheels --packaging split
      rocm-wheels set package wheels --packaging fat --rocm-index URL --gfx gfx942
    """
    from rocm_wheels.wheels import write_together

    if packaging == "fat" and (not targets or (find_links is None) == (index_url is None)):
        raise errors.UsageError(
            "a fat torch needs --gfx, and ROCm's wheels from one of --find-links and --rocm-index"
        )
    if packaging == "split" and (targets or find_links or index_url):
        raise errors.UsageError("--gfx, --find-links and --rocm-index are for --packaging fat")
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise errors.UsageError(f"there is no wheel in {folder}")
    with write_together.write_together(replace=True) as batch:
        scratch = batch.find_stage(folder)
        if packaging == "split":
            replaced = _split_wheels(wheels, scratch)
        else:
            replaced = _make_fat_wheels(wheels, scratch, find_links, index_url, str(targets))
        for wheel in replaced:
            batch.remove(wheel)
        names = sorted(file.name for file in scratch.glob("*.whl"))
    document = {"packaging": packaging, "replaced": [wheel.name for wheel in replaced], "written": names}
    lines = [*names, f"{tables.format_count(len(replaced), 'wheel')} of {len(wheels)} packaged: {packaging}"]
    options.print_result(document, lines, as_json=as_json)


def _split_wheels(wheels: Sequence[Path], scratch: Path) -> list[Path]:
    from rocm_wheels.package import split
    from rocm_wheels.release import wheel_set
    from rocm_wheels.wheels import dist_info, wheel_code

    whole = [
        wheel
        for wheel in wheels
        if wheel_set.find_host_project(dist_info.parse_wheel_name(wheel.name).name) is None
    ]
    chosen = [wheel for wheel in whole if any(wheel_code.read_wheel_code(wheel).values())]
    for wheel in chosen:
        with ExitStack() as stack:
            split.write_split(split.plan_split(split.SplitRequest(wheel), stack), scratch)
    return chosen


def _make_fat_wheels(
    wheels: Sequence[Path], scratch: Path, find_links: Path | None, index_url: str | None, targets: str
) -> list[Path]:
    from rocm_wheels.models import gfx
    from rocm_wheels.package import fat
    from rocm_wheels.wheels.archive import WheelArchive

    chosen = []
    for wheel in wheels:
        with WheelArchive.open(wheel) as archive:
            names = {entry.name for entry in archive.members}
        if fat.INIT_MODULE in names and not any(name.startswith("torch/_rocm/") for name in names):
            chosen.append(wheel)
    for wheel in chosen:
        with ExitStack() as stack:
            request = fat.FatRequest(wheel, (), gfx.parse_targets(targets), _BUILD_TAG)
            if find_links is not None:
                rocm_wheels = tuple(sorted(find_links.glob("rocm*.whl")))
            else:
                downloads = Path(stack.enter_context(TemporaryDirectory(dir=scratch)))
                rocm_wheels = fat.fetch_rocm_wheels(str(index_url), request, downloads)
            filled = fat.FatRequest(wheel, rocm_wheels, request.targets, _BUILD_TAG)
            fat.write_fat_wheel(fat.plan_fat(filled, stack), scratch)
    return chosen
