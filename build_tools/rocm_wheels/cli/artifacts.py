"""ROCm of a build as packages: fetch its artifacts, make packages of them, install them.

The options have the names of TheRock's scripts.

The options have the names of TheRock's script.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.options import GivenPath, combine_options
from rocm_wheels.core import UsageError, format_count, log_note
from rocm_wheels.models import load_artifact_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocm_wheels.sdk import ArchiveName, ArtifactSource, FetchRequest, FileSizes, WorkflowRun

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


_HELP = """Install ROCm into a folder: of a run's artifacts, a nightly or dev tarball, or another folder.

The folder is replaced once the new tree is whole; one that holds something else than ROCm is refused. Of a
run all artifacts but tests are taken, or those of the parts that are named and what every tree has.

\b
Examples:
  install_rocm_from_artifacts.py --run-id 14474448215 --amdgpu-family gfx94X-dcgpu --blas --tests
  install_rocm_from_artifacts.py --latest-release --amdgpu-family gfx110X-all --output-dir rocm
"""
_SOURCE_OPTIONS = ("run_id", "release", "latest_release", "input_dir", "source")


def _make_command() -> click.Command:
    command = click.Command(
        "install-rocm-from-artifacts",
        params=[
            click.Option(
                ["--output-dir"], type=GivenPath(), default=Path("therock-build"), show_default=True,
                help="Folder of the tree.",
            ),
            click.Option(["--artifact-group"], metavar="GROUP", help="Family of GPUs, or another group."),
            click.Option(["--amdgpu-family"], metavar="FAMILY", help="The same."),
            click.Option(
                ["--amdgpu-targets"], default="", metavar="GFX,…",
                help="Targets to take artifacts of [default: the family's].",
            ),
            click.Option(["--run-id"], metavar="ID", help="Run of a workflow at GitHub."),
            click.Option(["--release"], metavar="VERSION", help="Version of a nightly or dev tarball."),
            click.Option(["--latest-release"], is_flag=True, help="The newest nightly tarball."),
            click.Option(["--input-dir"], type=GivenPath(), help="A ROCm tree to copy."),
            click.Option(["--dry-run"], is_flag=True, help="Print what would be taken, and do nothing."),
            *(
                click.Option([f"--{part}/--no-{part}"], default=False, help=f"Artifacts of {part}.")
                for part in load_artifact_table().parts
            ),
            click.Option(["--tests/--no-tests"], default=False, help="Tests, too."),
            click.Option(["--base-only"], is_flag=True, help="Only what every tree has."),
        ],
        callback=_install_tree,
        help=_HELP,
    )  # fmt: skip
    return artifact_source_options(command)


def _install_tree(output_dir: Path, **options: Any) -> None:
    from rocm_wheels.sdk import install_folder, install_from_artifacts, install_tarball

    group = _choose_group(options)
    tarball = options["release"] is not None or options["latest_release"]
    ways = [
        way
        for way in _SOURCE_OPTIONS
        if options[way] not in (None, False) and not (way == "source" and tarball)
    ]
    if len(ways) != 1:
        raise UsageError(
            "one of --run-id, --release, --latest-release, --input-dir and --source is wanted",
            tip="--source goes with --release and --latest-release, as the folder of their tarballs",
        )
    output, parts = output_dir.absolute(), _choose_parts(options)
    if (tarball or options["input_dir"]) and (parts or options["tests"] or options["base_only"]):
        raise UsageError("parts can be chosen of the artifacts of a run only", tip="leave them out")
    if options["input_dir"] is not None:
        if options["dry_run"]:
            click.echo(options["input_dir"])
            return
        install_folder(options["input_dir"].absolute(), output)
        click.echo(output)
        return
    if tarball:
        request = _make_tarball_request(options, group)
    else:
        request = _make_run_request(options, group, parts)
    if options["dry_run"]:
        for archive in request.archives:
            click.echo(f"{request.source.label}/{archive.file}")
        return
    (install_tarball if tarball else install_from_artifacts)(request, output)
    click.echo(output)


def _choose_group(options: Mapping[str, Any]) -> str:
    groups = [options[name] for name in ("artifact_group", "amdgpu_family") if options[name]]
    if len(groups) != 1:
        raise UsageError("one of --artifact-group and --amdgpu-family is wanted", tip="such as gfx94X-dcgpu")
    return str(groups[0])


def _choose_parts(options: Mapping[str, Any]) -> list[str]:
    return [part for part in load_artifact_table().parts if options[part.replace("-", "_")]]


def _make_run_request(options: Mapping[str, Any], group: str, parts: Sequence[str]) -> FetchRequest:
    from rocm_wheels.models import get_gfx_families
    from rocm_wheels.sdk import TEST_PATTERN, ArtifactChoice, choose_archives, list_part_patterns

    targets = parse_amdgpu_targets(options["amdgpu_targets"])
    if parts and options["base_only"]:
        raise UsageError("--base-only and parts exclude each other", tip="leave one of them out")
    source, files = find_artifact_files(options, PLATFORM)
    include: tuple[str, ...] = ()
    if parts or options["base_only"]:
        include = list_part_patterns(parts, files, tests=options["tests"], where=source.label)
    choice = ArtifactChoice(
        targets=targets,
        family=group,
        any_of=() if targets else get_gfx_families().get(group, ()),
        include=include,
        exclude=() if options["tests"] or include else (TEST_PATTERN,),
        optional=include,
    )
    return _make_fetch_request(options, source, files, choose_archives(files, choice, where=source.label))


def _make_tarball_request(options: Mapping[str, Any], group: str) -> FetchRequest:
    from rocm_wheels.sdk import choose_tarball, find_tarball_folder, open_artifact_source

    release = options["release"]
    published = (
        find_tarball_folder(release) if release is not None else load_artifact_table().tarballs["nightly"]
    )
    source = open_artifact_source(
        options["source"] or published, read_environment(), sign=not options["no_sign_request"]
    )
    files = source.list_files()
    archive = choose_tarball(files, PLATFORM, group, release, where=source.label)
    if not options["allow_missing_sha256sum"]:
        log_note(
            "no digests of tarballs are published, as far as is known: what comes is checked as gzip does"
        )
    return _make_fetch_request({**options, "allow_missing_sha256sum": True}, source, files, [archive])


def _make_fetch_request(
    options: Mapping[str, Any], source: ArtifactSource, files: FileSizes, archives: Sequence[ArchiveName]
) -> FetchRequest:
    from rocm_wheels.sdk import FetchRequest

    return FetchRequest(
        source=source,
        files=files,
        archives=archives,
        folder=Path(),
        unchecked=options["allow_missing_sha256sum"],
        downloads=options["download_concurrency"],
        unpackings=options["extract_concurrency"] or os.cpu_count() or 1,
    )


command = _make_command()
