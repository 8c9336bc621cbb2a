"""The command that fetches artifacts of a ROCm build, with the options of TheRock's script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from rocm_wheels.cli.artifact_options import (
    PLATFORM,
    find_artifact_files,
    artifact_source_options,
    parse_amdgpu_targets,
)
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import UsageError


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
@click.option("--run-id", metavar="ID", help="Run of a workflow at GitHub whose artifacts are wanted.")
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

    Each archive is checked against the digest that is published beside it. A run that was cut goes on
    where it was; what is there already is not fetched again. build-python-packages takes the folder. The
    paths of the artifacts are printed.

    \b
    Example:
      fetch_artifacts.py --run-id 14474448215 --amdgpu-targets gfx942 --exclude _dbg_ _test_
    """
    from rocm_wheels.sdk.artifact_choice import ArtifactChoice, choose_archives, compile_patterns
    from rocm_wheels.sdk.fetch_artifacts import FetchRequest, fetch_archives
    from rocm_wheels.words import format_size

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
            f"{len(request.archives)} archives, {format_size(request.size)}; nothing was fetched", err=True
        )
        return
    for path in fetch_archives(request).paths:
        click.echo(path)
