"""``fetch-artifacts`` and ``build-python-packages``: ROCm from the artifacts of its builds.

The options have the names of TheRock's scripts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.options import combine_options
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.core import UsageError, format_count

if TYPE_CHECKING:
    from rocm_wheels.sdk import ArtifactSource, FileSizes, WorkflowRun

PLATFORM = "windows" if sys.platform == "win32" else "linux"

artifact_source_options = combine_options(
    click.option(
        "--run-github-repo",
        metavar="OWNER/REPO",
        envvar="GITHUB_REPOSITORY",
        show_envvar=True,
        help="Repository of --run-id [default: ROCm/TheRock].",
    ),
    click.option(
        "--release-type",
        metavar="TYPE",
        envvar="RELEASE_TYPE",
        show_envvar=True,
        help="Kind of build, which has its bucket: ci, dev, nightly, prerelease [default: ci].",
    ),
    click.option(
        "--source",
        metavar="PLACE",
        help="Where the files are instead of TheRock's buckets: s3://bucket/folder, an HTTPS page, a path.",
    ),
    click.option("--no-sign-request", is_flag=True, help="Ask S3 without credentials, as everybody may."),
    click.option(
        "--allow-missing-sha256sum",
        is_flag=True,
        help="Take archives without a published digest as they come.",
    ),
    click.option(
        "--download-concurrency",
        type=click.IntRange(min=1),
        default=10,
        show_default=True,
        help="Downloads at a time.",
    ),
    click.option(
        "--extract-concurrency", type=click.IntRange(min=1), help="Unpackings at a time [default: cores]."
    ),
)


def parse_amdgpu_targets(text: str) -> tuple[str, ...]:
    """Return the targets of ``--amdgpu-targets``. Raises UsageError."""
    from rocm_wheels.models import parse_targets

    return parse_targets(text, input_name="--amdgpu-targets") if text.strip() else ()


def make_workflow_run(options: Mapping[str, Any], platform: str) -> WorkflowRun:
    """Return the run that the options name."""
    from rocm_wheels.models import load_artifact_table
    from rocm_wheels.sdk import WorkflowRun

    repository = options["run_github_repo"] or load_artifact_table().repository
    return WorkflowRun(options["run_id"], platform, repository, options["release_type"] or "ci")


def find_artifact_files(options: Mapping[str, Any], platform: str) -> tuple[ArtifactSource, FileSizes]:
    """Return where the artifacts are, and the files there. Raises UsageError and SdkError."""
    from rocm_wheels.sdk import find_run_files, open_artifact_source

    sign = not options["no_sign_request"]
    if (options["run_id"] is None) == (options["source"] is None):
        raise UsageError(
            "name the run with --run-id, or the folder of its artifacts with --source",
            tip="run ids are at https://github.com/ROCm/TheRock/actions",
        )
    if options["source"] is None:
        return find_run_files(make_workflow_run(options, platform), read_environment(), sign=sign)
    source = open_artifact_source(options["source"], read_environment(), sign=sign)
    return source, source.list_files()


class _ManyExcludes(click.Command):
    """Takes several words after one ``--exclude``, as TheRock's script does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its words."""
        words: list[str] = []
        excluding = ended = False
        for word in args:
            if ended or not excluding or word.startswith("-"):
                words.append(word)
                ended = ended or word == "--"
                excluding = word == "--exclude"
                if excluding:
                    words.pop()
            else:
                words += ["--exclude", word]
        return super().parse_args(ctx, words)


@click.command("fetch-artifacts", cls=_ManyExcludes)
@click.argument("include", nargs=-1, metavar="[REGEX]…")
@click.option("--exclude", multiple=True, metavar="REGEX…", help="Leave out files with a name like these.")
@click.option("--run-id", metavar="ID", help="Run of a workflow at GitHub with the artifacts.")
@click.option(
    "--platform", type=click.Choice(["linux", "windows"]), default=PLATFORM, show_default="this one",
    help="Platform of the build.",
)  # fmt: skip
@click.option("--artifact-group", metavar="FAMILY", help="Family of GPUs, where a build names those.")
@click.option("--amdgpu-targets", default="", metavar="GFX,…", help="Targets of GPUs [default: all].")
@click.option(
    "--output-dir", type=GivenPath(), default=Path("build/artifacts"), show_default=True,
    help="Folder for what is fetched.",
)  # fmt: skip
@click.option("--dry-run/--no-dry-run", default=False, help="Print what would be fetched, and fetch nothing.")
@click.option("--extract", is_flag=True, help="Unpack each artifact into a folder of its name (the default).")
@click.option("--no-extract", is_flag=True, help="Unpack nothing.")
@click.option("--flatten", is_flag=True, help="Unpack all artifacts over each other, as one ROCm tree.")
@click.option(
    "--delete-after-extract/--no-delete-after-extract", default=True, show_default=True,
    help="Delete archives once they are unpacked.",
)  # fmt: skip
@artifact_source_options
def fetch_command(
    include: tuple[str, ...], exclude: tuple[str, ...], output_dir: Path, **options: Any
) -> None:
    """Fetch artifacts of a ROCm build: all, or those whose names one of the regular expressions is found in.

    Each archive is checked against the digest that is published beside it. An interrupted run continues
    where it stopped; what is there already is not fetched again. build-python-packages takes the folder. The
    paths of the artifacts are printed.

    \b
    Example:
      fetch_artifacts.py --run-id 14474448215 --amdgpu-targets gfx942 --exclude _dbg_ _test_
    """
    from rocm_wheels.core import format_size
    from rocm_wheels.sdk import (
        ArtifactChoice,
        FetchRequest,
        choose_archives,
        compile_patterns,
        fetch_archives,
    )

    if sum((options["extract"], options["no_extract"], options["flatten"])) > 1:
        raise UsageError("--extract, --no-extract and --flatten exclude each other", tip="give one of them")
    choice = ArtifactChoice(
        parse_amdgpu_targets(options["amdgpu_targets"]),
        options["artifact_group"],
        include=include,
        exclude=exclude,
    )
    compile_patterns((*include, *exclude))  # before anything is asked of a server
    source, files = find_artifact_files(options, options["platform"])
    request = FetchRequest(
        source=source,
        files=files,
        archives=choose_archives(files, choice, where=source.label),
        folder=output_dir.absolute(),
        unpacking="flatten" if options["flatten"] else "keep" if options["no_extract"] else "extract",
        keep_archives=not options["delete_after_extract"],
        unchecked=options["allow_missing_sha256sum"],
        downloads=options["download_concurrency"],
        unpackings=options["extract_concurrency"] or os.cpu_count() or 1,
    )
    if options["dry_run"]:
        for archive in request.archives:
            click.echo(f"{source.label}/{archive.file}")
        click.echo(
            f"{format_count(len(request.archives), 'archive')}, {format_size(request.size)}; "
            "nothing was downloaded",
            err=True,
        )
        return
    for path in fetch_archives(request).paths:
        click.echo(path)


def _split_targets(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.replace(";", ",").split(",") if word.strip())


def _parse_families(_context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    from rocm_wheels.models import parse_targets

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
    from rocm_wheels.core import UsageError
    from rocm_wheels.sdk import PackageRequest
    from rocm_wheels.sdk import build_rocm_packages as make_packages

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
