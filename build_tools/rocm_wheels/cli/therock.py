"""TheRock's scripts for manifests, finished wheels and reports: its options, on commands of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, checkout, checkout_options, command
from rocm_wheels.cli.lock import (
    check_output_path,
    read_manifest,
)
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.core import errors, log

if TYPE_CHECKING:
    from rocm_wheels.sources.lock import ManifestEntry


def _split_words(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(re.split(r"[;\s]+", value.strip("; \t\n"))) if value and value.strip("; \t\n") else ()


_projects_option = command.option(
    "--projects", default="", callback=_split_words, metavar="A;B", help="These projects only."
)


@command.command("checkout_from_manifest.py")
@command.option(
    "--checkout-root", "repo", type=GivenPath(), required=True, help="Folder of the source trees."
)
@_projects_option
@catalogue.MANIFEST.but(aliases=("--manifest-url",), required=True)
@command.option(
    "--expected-pytorch-git-ref",
    "torch_ref",
    metavar="REF",
    help="Branch of torch that the manifest must name.",
)
def checkout_script(manifest: str, torch_ref: str | None, **options: Any) -> None:
    """Check out what a manifest names, as `rocm-wheels checkout --lock` does.

    \b
    Example:
      checkout_from_manifest.py --manifest manifest.json --checkout-root src --projects "pytorch;triton"
    """
    from rocm_wheels.sources.lock import LockFile

    lock = read_manifest(manifest, options["projects"], torch_ref=torch_ref)
    if lock.platform != (here := checkout_options.detect_platform()):
        raise errors.UsageError(
            f"the manifest is for {lock.platform}, and this is {here}", tip="name another one"
        )
    file = LockFile(Path(manifest), lock)
    rest = {"everything": False, "origin": None, "as_json": False}
    settings = {**options, **rest, "projects": (), "lock": file.path}
    env = boundary.read_environment()
    checkout.run_tasks(checkout.make_locked_tasks(file, settings, env), settings, env)


checkout_script.params += [entry.make() for entry in checkout_options.TREE_OPTIONS]

_MANIFEST_PROJECTS = {
    "linux": (checkout_options.TORCH, "pytorch_audio", "pytorch_vision", "triton", "apex"),
    "windows": (checkout_options.TORCH, "pytorch_audio", "pytorch_vision"),
}
_MANIFEST_REFS = ("release/2.12", "release/2.13", "release/2.14", "nightly")
_NIGHTLY = "nightly"  # of upstream's repository; other branches are of the fork
_FORK = "https://github.com/ROCm/pytorch"
_THEROCK = "https://github.com/ROCm/TheRock"


@command.command("generate_pytorch_source_manifest.py")
@command.option(
    "--rocm-version", required=True, metavar="V", help="Version of the ROCm packages: 7.13.0a20260501."
)
@catalogue.VERSION_SUFFIX.but(help="Suffix of versions [default: +rocm and that version].")
@catalogue.PLATFORM.but(
    default=checkout_options.detect_platform(), show_default="this one", help="Platform that is built on."
)
@catalogue.OUTPUT.but(help="File for the manifest of one ref.")
@command.option("--manifest-dir", type=GivenPath(file_okay=False), help="Folder for a manifest of each ref.")
@_projects_option
@command.option(
    "--pytorch-git-refs",
    "refs",
    default="",
    callback=_split_words,
    metavar="A;B",
    help=f"Branches of torch: {_NIGHTLY} of upstream, any other of {_FORK}"
    f"  [default: {' '.join(_MANIFEST_REFS)}].",
)
@command.option("--therock-commit", metavar="SHA", help="Commit of TheRock that the ROCm packages are of.")
@command.option("--therock-repo", metavar="URL", help=f"Its repository [default: {_THEROCK}].")
@command.option("--therock-branch", metavar="NAME", help="Its branch.")
def manifest_script(  # noqa: PLR0917 - one parameter an option
    rocm_version: str,
    version_suffix: str | None,
    platform: str,
    output: Path | None,
    manifest_dir: Path | None,
    projects: tuple[str, ...],
    refs: tuple[str, ...],
    **options: Any,
) -> None:
    """Resolve branches of torch, and what belongs to each, and write what came of it as manifests.

    All refs are resolved before the first file is written. Which commit of TheRock the ROCm packages are of
    is in them where --therock-commit says it.

    \b
    Example:
      generate_pytorch_source_manifest.py --rocm-version 7.13.0 --output m.json --pytorch-git-refs nightly
    """
    from rocm_wheels.sources.lock import format_manifest, write_if_changed

    refs = refs or _MANIFEST_REFS
    if (output is None) == (manifest_dir is None):
        raise errors.UsageError(
            "one of --output and --manifest-dir is needed", tip="--output m.json, for one ref"
        )
    if output is not None and len(refs) != 1:
        raise errors.UsageError(
            f"--output is the file of one ref, not of {', '.join(refs)}", tip="use --manifest-dir"
        )
    names = [checkout.find_project_name(name) for name in projects] or _MANIFEST_PROJECTS[platform]
    if checkout_options.TORCH not in names:
        raise errors.UsageError(
            f"--projects lacks {checkout_options.TORCH}, whose tree names the others",
            tip=f"add {checkout_options.TORCH}",
        )
    therock = _make_manifest_entry({key: options[key] for key in options if key.startswith("therock_")})
    files = {
        output
        or Path(manifest_dir or ".", f"therock-manifest_torch_{platform}_{ref.replace('/', '-')}.json"): ref
        for ref in refs
    }
    for file in files:
        check_output_path(file, "--output" if output else "--manifest-dir")
    texts = {
        file: format_manifest(
            _lock_branch(ref, names, platform, rocm_version, options), therock, suffix=version_suffix
        )
        for file, ref in files.items()
    }
    for file, text in texts.items():
        write_if_changed(file, text)
        click.echo(file)


def _make_manifest_entry(therock: Mapping[str, str | None]) -> ManifestEntry | None:
    """Return what the options say of TheRock, None for nothing. Raises UsageError."""
    from rocm_wheels.sources import network
    from rocm_wheels.sources.lock import ManifestEntry

    commit, repo, branch = (therock[f"therock_{name}"] for name in ("commit", "repo", "branch"))
    if commit is None:
        for name, value in (("repo", repo), ("branch", branch)):
            if value is not None:
                raise errors.UsageError(
                    f"--therock-{name} says nothing without --therock-commit", tip="give both"
                )
        return None
    if not network.is_commit(commit):
        raise errors.UsageError(f"--therock-commit {commit!r} is not a commit", tip="give all 40 digits")
    if branch is not None:
        network.check_ref(branch)
    return ManifestEntry(
        repo=network.parse_origin(repo or _THEROCK, Path.cwd())[0], commit=commit, branch=branch
    )


def _lock_branch(ref: str, names: Sequence[str], platform: Any, rocm: str, options: Mapping[str, Any]) -> Any:
    """Return the lock of a branch of torch and its companions. Raises SourceError for one without a pin."""
    from rocm_wheels.models.project import load_project
    from rocm_wheels.sources import network, resolve_lock

    network.check_ref(ref)
    projects = tuple(load_project(name) for name in dict.fromkeys(names))
    wishes = {checkout_options.TORCH: resolve_lock.ProjectOptions(ref, None if ref == _NIGHTLY else _FORK)}
    if ref == _NIGHTLY:
        wishes |= {
            project.name: resolve_lock.ProjectOptions(project.source.ref)
            for project in projects
            if project.name != checkout_options.TORCH and project.source.ref is not None
        }
    request = resolve_lock.LockRequest(
        projects, load_project(checkout_options.TORCH), wishes, platform, rocm=rocm
    )
    lock = resolve_lock.make_lock(
        request, env=boundary.read_environment(), transport=checkout_options.make_transport(options)
    )
    for name, locked in lock.projects.items():
        if name not in wishes and not locked.pinned and platform == "linux":
            raise errors.SourceError(
                f"torch's branch {ref} pins no {name}", tip=f"leave it out: --projects without {name}"
            )
    return lock


@command.command("sanity_check_wheel.py")
@click.argument("folder", type=GivenPath(file_okay=False), metavar="WHEEL-DIR")
@catalogue.PYTHON.but(help="Import each wheel too, with this Python and its packages.")
@click.pass_context
def sanity_script(context: click.Context, /, folder: Path, python: Path | None) -> None:
    """Check the wheels that were built, as `rocm-wheels audit --by-recipe` does; and name those of others.

    \b
    Example:
      sanity_check_wheel.py dist
    """
    from packaging.utils import canonicalize_name

    from rocm_wheels.cli.audit import audit_command
    from rocm_wheels.models import project_names
    from rocm_wheels.models.project import load_project
    from rocm_wheels.variants import device_names
    from rocm_wheels.wheels import dist_info

    if not folder.is_dir():
        raise errors.UsageError(f"there is no folder {folder}", tip="name the --output-dir of the build")
    projects = {
        canonicalize_name(load_project(name).distribution) for name in project_names.list_project_names()
    }
    wheels, others = list[Path](), list[Path]()
    for wheel in sorted(folder.glob("*.whl")):
        name = canonicalize_name(dist_info.split_wheel_name(wheel.name).distribution)
        of_project = name in projects or device_names.find_host_project(name) in projects
        (wheels if of_project else others).append(wheel)
    if others:
        log.log_note(f"not checked, of no recipe: {', '.join(wheel.name for wheel in others)}")
    if not wheels:
        raise errors.UsageError(f"{folder} has no wheel to check", tip="name the --output-dir of the build")
    context.invoke(audit_command, wheels=tuple(wheels), by_recipe=True, python=python)


def _variable_option(name: str, variable: str, default: str, help_text: str) -> Callable[[Any], Any]:
    return command.option(name, envvar=variable, show_envvar=True, default=default, help=help_text)


@command.command("summarize_test_results.py")
@command.option(
    "--reports-dir",
    type=GivenPath(file_okay=False),
    default=Path("torch-test-results"),
    show_default=True,
    help="Folder with the reports of a run.",
)
@command.option(
    "--combined-dir",
    type=GivenPath(file_okay=False),
    help="Instead: a folder with test-reports-CONFIG-SHARD-SHARDS for each shard.",
)
@_variable_option("--test-config", "TEST_CONFIG", "", "Suite that was run.")
@_variable_option("--amdgpu-family", "AMDGPU_FAMILY", "", "GPUs that it ran on.")
@_variable_option("--torch-version", "TORCH_VERSION", "", "Torch that was tested.")
@_variable_option("--python-version", "PYTHON_VERSION", "", "Python that it is for.")
@_variable_option("--package-index-url", "PACKAGE_INDEX_URL", "", "Index that it is from.")
@_variable_option("--pytorch-git-ref", "PYTORCH_GIT_REF", "", "Branch of torch that the tests are of.")
def summary_script(reports_dir: Path, combined_dir: Path | None, **options: str) -> None:
    """Print which tests failed, from JUnit XML or our results, and append that to GitHub's step summary.

    Failed tests are no failure here, because their own run has failed. Exit code 16 if a report, or a test in
    one, is missing, or a report is incomplete.

    \b
    Examples:
      summarize_test_results.py --reports-dir test/test-reports
      summarize_test_results.py --combined-dir artifacts --amdgpu-family gfx94X-dcgpu
    """
    from rocm_wheels.testing import summary

    env, folder = boundary.read_environment(), combined_dir or reports_dir
    if not folder.is_dir():
        raise errors.UsageError(
            f"there is no folder {folder}", tip="name the folder of the reports: --reports-dir"
        )
    if combined_dir is not None:
        rows, others = summary.read_shards(combined_dir)
        if others:
            log.log_warning(f"folders of no shard, which are not read: {', '.join(others)}")
        heading = options["amdgpu_family"]
    else:
        rows = summary.read_reports(reports_dir)
        shard = "/".join(filter(None, map(env.get, ("SHARD_NUMBER", "NUM_TEST_SHARDS"))))
        parts = (options["test_config"], shard and f"shard {shard}", options["amdgpu_family"])
        heading = " | ".join(filter(None, parts))
    facts = {
        "torch": options["torch_version"],
        "Python": options["python_version"],
        "index": options["package_index_url"],
        "sources": options["pytorch_git_ref"],
    }
    head = "".join(f"* {name}: `{value}`\n" for name, value in facts.items() if value)
    text = summary.format_summary_markdown(rows, heading, combined=combined_dir is not None)
    text = f"{head}\n{text}" if head else text
    boundary.append_step_summary(env, text)
    click.echo(text)
    if bad := [row for row in rows if not row.test or row.outcome == "missing"]:
        tip = "look at the job that was to write it"
        first = " ".join(filter(None, (bad[0].config, bad[0].shard, bad[0].where)))
        raise errors.ChecksError(f"{first}: {bad[0].reason}", tip=tip)
