"""``set package``: the wheels of a folder packaged in another way, before they are staged."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli.command import command, option
from rocm_wheels.cli.options import json_option, print_result
from rocm_wheels.core import UsageError, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

_BUILD_TAG = "1fat"


@command("set package")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
@option(
    "--packaging",
    type=click.Choice(["split", "fat"]),
    required=True,
    help="Host and device wheels of all with device code; or a torch that carries its ROCm.",
)
@option(
    "--find-links",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="ROCm's wheels.",
)
@option("--rocm-index", "index_url", metavar="URL", help="Index with ROCm's wheels.")
@option("--gfx", "targets", metavar="LIST", help="Targets that a fat torch is for.")
@json_option
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
        raise UsageError(
            "a fat torch needs --gfx, and ROCm's wheels from one of --find-links and --rocm-index"
        )
    if packaging == "split" and (targets or find_links or index_url):
        raise UsageError("--gfx, --find-links and --rocm-index are for --packaging fat")
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise UsageError(f"there is no wheel in {folder}")
    with write_together(replace=True) as batch:
        scratch = batch.find_stage(folder)
        if packaging == "split":
            replaced = _split_wheels(wheels, scratch)
        else:
            replaced = _make_fat_wheels(wheels, scratch, find_links, index_url, str(targets))
        for wheel in replaced:
            batch.remove(wheel)
        names = sorted(file.name for file in scratch.glob("*.whl"))
    document = {"packaging": packaging, "replaced": [wheel.name for wheel in replaced], "written": names}
    lines = [*names, f"{format_count(len(replaced), 'wheel')} of {len(wheels)} packaged: {packaging}"]
    print_result(document, lines, as_json=as_json)


def _split_wheels(wheels: Sequence[Path], scratch: Path) -> list[Path]:
    from rocm_wheels.package import SplitRequest, plan_split, write_split
    from rocm_wheels.release import find_host_project
    from rocm_wheels.wheels import parse_wheel_name, read_wheel_code

    whole = [wheel for wheel in wheels if find_host_project(parse_wheel_name(wheel.name).name) is None]
    chosen = [wheel for wheel in whole if any(read_wheel_code(wheel).values())]
    for wheel in chosen:
        with ExitStack() as stack:
            write_split(plan_split(SplitRequest(wheel), stack), scratch)
    return chosen


def _make_fat_wheels(
    wheels: Sequence[Path], scratch: Path, find_links: Path | None, index_url: str | None, targets: str
) -> list[Path]:
    from rocm_wheels.models import parse_targets
    from rocm_wheels.package import INIT_MODULE, FatRequest, fetch_rocm_wheels, plan_fat, write_fat_wheel
    from rocm_wheels.wheels import WheelArchive

    chosen = []
    for wheel in wheels:
        with WheelArchive.open(wheel) as archive:
            names = {entry.name for entry in archive.members}
        if INIT_MODULE in names and not any(name.startswith("torch/_rocm/") for name in names):
            chosen.append(wheel)
    for wheel in chosen:
        with ExitStack() as stack:
            request = FatRequest(wheel, (), parse_targets(targets), _BUILD_TAG)
            if find_links is not None:
                rocm_wheels = tuple(sorted(find_links.glob("rocm*.whl")))
            else:
                downloads = Path(stack.enter_context(TemporaryDirectory(dir=scratch)))
                rocm_wheels = fetch_rocm_wheels(str(index_url), request, downloads)
            filled = FatRequest(wheel, rocm_wheels, request.targets, _BUILD_TAG)
            write_fat_wheel(plan_fat(filled, stack), scratch)
    return chosen
