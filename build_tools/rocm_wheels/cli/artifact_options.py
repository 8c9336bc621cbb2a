"""Options of the commands that fetch artifacts of ROCm builds; their names are those of TheRock's scripts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.option_lists import combine_options
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from rocm_wheels.sdk.artifact_sources import ArtifactSource, FileSizes, WorkflowRun

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
    from rocm_wheels.model.gfx import parse_targets

    return parse_targets(text, input_name="--amdgpu-targets") if text.strip() else ()


def make_workflow_run(options: Mapping[str, Any], platform: str) -> WorkflowRun:
    """Return the run that the options name."""
    from rocm_wheels.model.rocm_artifacts import load_artifact_table
    from rocm_wheels.sdk.artifact_sources import WorkflowRun

    repository = options["run_github_repo"] or load_artifact_table().repository
    return WorkflowRun(options["run_id"], platform, repository, options["release_type"] or "ci")


def find_artifact_files(options: Mapping[str, Any], platform: str) -> tuple[ArtifactSource, FileSizes]:
    """Return where the artifacts are, and the files there. Raises UsageError and SdkError."""
    from rocm_wheels.sdk.artifact_sources import find_run_files, open_artifact_source

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
