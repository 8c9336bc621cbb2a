"""``install-rocm-from-artifacts``: make a ROCm tree of what a build published.

The options have the names of TheRock's script.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.artifacts import (
    PLATFORM,
    artifact_source_options,
    find_artifact_files,
    parse_amdgpu_targets,
)
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.core import UsageError, log_note
from rocm_wheels.models import load_artifact_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocm_wheels.sdk import ArchiveName, ArtifactSource, FetchRequest, FileSizes

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
