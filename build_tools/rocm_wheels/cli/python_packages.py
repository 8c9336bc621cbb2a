"""The command that makes ROCm's Python packages from build artifacts."""

from __future__ import annotations

from pathlib import Path

import click

from rocm_wheels.cli.paths import GivenPath


def _split_targets(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.replace(";", ",").split(",") if word.strip())


def _parse_families(_context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    from rocm_wheels.model.gfx import parse_targets

    text = ",".join(word.strip() for word in value.replace(";", ",").split(",") if word.strip())
    return parse_targets(text, input_name=option.opts[0]) if text else ()


@click.command("build-python-packages")
@click.option("--artifact-dir", type=GivenPath(), help="Artifacts of a ROCm build.")
@click.option("--from-prefix", type=GivenPath(), help="Instead: an installed ROCm, such as /opt/rocm.")
@click.option("--dest-dir", type=GivenPath(), required=True, help="The wheels appear in its folder dist.")
@click.option("--version", default="", help="Version of all packages.  [default: as the artifacts say]")
@click.option("--version-suffix", default="", help="Appended to the names of the installed ROCm folders.")
@click.option(
    "--targets",
    default="",
    callback=_split_targets,
    metavar="GFX,…",
    help="Package only these.  [default: all]",
)
@click.option("--platform-tag", default="", help="Tag of wheels with binaries.  [default: this machine's]")
@click.option(
    "--wheel-compression/--no-wheel-compression", default=True, show_default=True, help="Compress the wheels."
)
@click.option(
    "--devel-tarball-compression/--no-devel-tarball-compression",
    default=False,
    show_default=True,
    help="Compress the archive in rocm-sdk-devel with xz: smaller, and much slower to make.",
)
@click.option(
    "--build-packages/--no-build-packages",
    default=True,
    show_default=True,
    help="Pack wheels; else their content is laid out in folders below trees.",
)
@click.option(
    "--linux-amdgpu-families",
    "linux",
    default="",
    callback=_parse_families,
    metavar="FAMILY,…",
    help="Families that a release has packages for on Linux: rocm has the extras of both platforms.",
)
@click.option(
    "--windows-amdgpu-families", "windows", default="", callback=_parse_families, metavar="FAMILY,…",
    help="The same, on Windows.",
)  # fmt: skip
def packages_command(  # noqa: PLR0917 - one parameter an option
    artifact_dir: Path | None,
    from_prefix: Path | None,
    dest_dir: Path,
    version: str,
    version_suffix: str,
    targets: tuple[str, ...],
    platform_tag: str,
    wheel_compression: bool,
    devel_tarball_compression: bool,
    build_packages: bool,
    linux: tuple[str, ...],
    windows: tuple[str, ...],
) -> None:
    """Make the packages rocm, rocm-sdk-core, -libraries, -devel and -device-<gfx>, and rocm-profiler.

    They are made from the artifacts of a ROCm build, or from an installed ROCm.

    The same artifacts give the same bytes. The paths of the wheels are printed.
    """
    from rocm_wheels.cli.boundary import read_environment
    from rocm_wheels.errors import UsageError
    from rocm_wheels.sdk.build_packages import PackageRequest
    from rocm_wheels.sdk.build_packages import build_rocm_packages as make_packages

    source = artifact_dir or from_prefix
    if source is None or (artifact_dir and from_prefix):
        raise UsageError("give one of --artifact-dir DIR and --from-prefix DIR")
    request = PackageRequest(
        source=source.resolve(),
        installed=from_prefix is not None,
        destination=dest_dir.resolve(),
        version=version,
        suffix=version_suffix,
        targets=targets,
        platform_tag=platform_tag,
        compress_wheels=wheel_compression,
        compress_devel=devel_tarball_compression,
        published={name: targets for name, targets in (("linux", linux), ("win32", windows)) if targets},
        packed=build_packages,
    )
    for wheel in make_packages(request, read_environment()):
        click.echo(wheel)
