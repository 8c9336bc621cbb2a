"""ROCm of a build as packages: fetch its artifacts, make packages of them, install them.

The options have the names of TheRock's scripts.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue
from rocm_wheels.cli.command import Option, command, option, widen_command
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocm_wheels.sdk import artifact_sources

PLATFORM = "windows" if sys.platform == "win32" else "linux"
source_option = option(
    "--source",
    metavar="PLACE",
    help="Where the files are instead of TheRock's buckets: s3://bucket/folder, an HTTPS page, a path.",
)


def parse_amdgpu_targets(text: str) -> tuple[str, ...]:
    """Return the targets of ``--gfx``. Raises UsageError."""
    from rocm_wheels.models import gfx

    return gfx.parse_targets(text, input_name="--gfx") if text.strip() else ()


def find_artifact_source(options: Mapping[str, Any], platform: str) -> artifact_sources.ArtifactSource:
    """Return where the artifacts are, with the files there. Raises UsageError and SdkError."""
    from rocm_wheels.models import libraries
    from rocm_wheels.sdk import artifact_sources

    env = boundary.read_environment()
    if (options["run_id"] is None) == (options["source"] is None):
        raise errors.UsageError(
            "name the run with --run-id, or the folder of its artifacts with --source",
            tip="run ids are at https://github.com/ROCm/TheRock/actions",
        )
    if options["source"] is not None:
        return artifact_sources.list_source(options["source"], env)
    repository = env.get("GITHUB_REPOSITORY") or libraries.load_artifact_table().repository
    release_type = env.get("RELEASE_TYPE") or "ci"
    return artifact_sources.list_run(options["run_id"], platform, repository, release_type, env)


@command("rocm fetch")
@click.argument("include", nargs=-1, metavar="[REGEX]…")
@option("--exclude", several="*", metavar="REGEX…", help="Leave out files whose names match one of these.")
@catalogue.RUN_ID
@catalogue.PLATFORM.but(default=PLATFORM, show_default="this one", help="Platform of the build.")
@option(
    "--artifact-group",
    aliases=("--target",),
    metavar="FAMILY",
    help="Family of GPUs, if the build has families.",
)
@catalogue.GFX.but(name="amdgpu_targets", default="", metavar="GFX,…", help="Targets of GPUs [default: all].")
@catalogue.OUTPUT_DIR.but(
    default=Path("build/artifacts"), show_default=True, help="Folder for the artifacts."
)
@catalogue.DRY_RUN.but(negatable=True)
@source_option
@catalogue.JSON
def fetch_command(
    include: tuple[str, ...], exclude: tuple[str, ...], output_dir: Path, as_json: bool, **options: Any
) -> None:
    """Fetch artifacts of a ROCm build: all, or those whose names match one of the regular expressions.

    Each archive is checked against the digest published beside it, and unpacked into a folder of its name. An
    interrupted fetch continues where it stopped; existing files are not fetched again. The paths of the
    artifacts are printed; `rocm packages` takes the folder. The run is of TheRock's repository, or of
    GITHUB_REPOSITORY; RELEASE_TYPE chooses among its builds: ci, dev, nightly or prerelease [default: ci].

    \b
    Example:
      rocm-wheels rocm fetch --run-id 14474448215 --gfx gfx942 --exclude _dbg_ _test_
    """
    from rocm_wheels.sdk import artifact_sources, fetch_artifacts

    choice = artifact_sources.ArtifactChoice(
        parse_amdgpu_targets(options["amdgpu_targets"]),
        options["artifact_group"],
        include=include,
        exclude=exclude,
    )
    artifact_sources.compile_patterns((*include, *exclude))  # before anything is asked of a server
    source = find_artifact_source(options, options["platform"])
    request = fetch_artifacts.FetchRequest(
        source=source,
        archives=artifact_sources.choose_archives(source, choice),
        folder=output_dir.absolute(),
    )
    if options["dry_run"]:
        names = [f"{source.label}/{archive.file}" for archive in request.archives]
        print_result({"archives": names, "size": request.size}, names, as_json=as_json)
        log.log_note(
            f"{tables.format_count(len(names), 'archive')}, {tables.format_size(request.size)}; "
            "nothing was downloaded"
        )
        return
    paths = list(fetch_artifacts.fetch_archives(request))
    print_result({"paths": paths}, paths, as_json=as_json)


def _split_targets(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.replace(";", ",").split(",") if word.strip())


def _parse_families(_context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    from rocm_wheels.models import gfx

    text = ",".join(word.strip() for word in value.replace(";", ",").split(",") if word.strip())
    return gfx.parse_targets(text, input_name=option.opts[0]) if text else ()


@command("rocm packages")
@option("--artifact-dir", type=GivenPath(), help="Artifacts of a ROCm build.")
@option("--from-prefix", type=GivenPath(), help="Instead: an installed ROCm, such as /opt/rocm.")
@catalogue.OUTPUT_DIR.but(name="dest_dir", required=True, help="The wheels appear in its folder dist.")
@option("--version", default="", help="Version of all packages.  [default: as the artifacts say]")
@catalogue.GFX.but(
    default="", callback=_split_targets, metavar="GFX,…", help="Package only these.  [default: all]"
)
@option("--platform-tag", default="", help="Tag of wheels with binaries.  [default: this machine's]")
@catalogue.JSON
def packages_command(  # noqa: PLR0917 - one parameter an option
    artifact_dir: Path | None,
    from_prefix: Path | None,
    dest_dir: Path,
    version: str,
    targets: tuple[str, ...],
    platform_tag: str,
    as_json: bool,
    **published: tuple[str, ...],
) -> None:
    """Make the packages rocm, rocm-sdk-core, -libraries, -devel and -device-<gfx>, and rocm-profiler.

    They are made from the artifacts of a ROCm build, or from an installed ROCm. The same artifacts give the
    same bytes. The paths of the wheels are printed.

    \b
    Examples:
      rocm-wheels rocm packages --artifact-dir artifacts --output-dir packages
      rocm-wheels rocm packages --from-prefix /opt/rocm --output-dir packages --gfx gfx1100
    """
    from rocm_wheels.sdk.build_packages import PackageRequest
    from rocm_wheels.sdk.build_packages import build_rocm_packages as make_packages

    source = artifact_dir or from_prefix
    if source is None or (artifact_dir and from_prefix):
        raise errors.UsageError("give one of --artifact-dir DIR and --from-prefix DIR")
    request = PackageRequest(
        source=source.resolve(),
        installed=from_prefix is not None,
        destination=dest_dir.resolve(),
        version=version,
        targets=targets,
        platform_tag=platform_tag,
        published={platform: families for platform, families in sorted(published.items()) if families},
    )
    wheels = list(make_packages(request, boundary.read_environment()))
    print_result({"wheels": wheels}, wheels, as_json=as_json)


_FAMILIES = "Families that a release has packages for on {}: rocm has the extras of both platforms."
# as TheRock's script has it
packages_script = widen_command(
    packages_command,
    [
        Option(
            [f"--{platform}-amdgpu-families", name],
            default="",
            callback=_parse_families,
            metavar="FAMILY,…",
            help=_FAMILIES.format(platform.capitalize()),
        )
        for platform, name in (("linux", "linux"), ("windows", "win32"))
    ],
)


@command("rocm show")
@catalogue.ROCM_PATH.but(envvar="ROCM_PATH", show_envvar=True, default=Path("/opt/rocm"), show_default=True)
@catalogue.PYTORCH_DIR.but(
    help="Source tree of torch: show what this one looks for [default: all that any torch uses]."
)
@catalogue.JSON
def show_command(rocm_path: Path, pytorch_dir: Path | None, as_json: bool) -> None:
    """Show what an installed ROCm has for a build: versions, compilers, targets of its libraries.

    It names what is missing, and what torch does without it. `build --rocm-path` refuses to start if torch's
    CMake needs a missing part.

    \b
    Examples:
      rocm-wheels rocm show --rocm-path /opt/rocm
      rocm-wheels rocm show --rocm-path /opt/rocm --pytorch-dir repos/pytorch
    """
    from rocm_wheels.models import libraries, torch_features
    from rocm_wheels.sdk import rocm_prefix

    env = boundary.read_environment()
    prefix = rocm_prefix.inspect_prefix(rocm_path.absolute(), env)
    if pytorch_dir is not None:
        packages = torch_features.read_hip_packages(pytorch_dir, prefix.version)
        if not packages:
            raise errors.UsageError(
                f"{pytorch_dir} does not say what it looks for of ROCm: it has no cmake/public/LoadHIP.cmake",
                tip="name a source tree of torch",
            )
    else:
        used = (name for name, library in libraries.get_rocm_libraries().items() if library.use != "beside")
        packages = tuple(
            torch_features.HipPackage(name.lower(), required=False) for name in used if " " not in name
        )
    missing = prefix.find_missing(packages, env)
    clang = rocm_prefix.read_compiler_version(prefix, env)
    lines = tables.align_rows([*prefix.describe(), ("clang", clang)])
    for part in missing:
        need = "required" if part.required else "optional"
        option_text = f"; --set-env pytorch:{part.option}=0 leaves it out" if part.option else ""
        without = f": without it, {part.without}" if part.without else ""
        kind = f" ({need}{option_text})" if pytorch_dir is not None else ""
        lines.append(f"missing: {part.name}{kind}{without}")
    document = {
        "root": prefix.root,
        "version": prefix.version,
        "hip_version": prefix.hip_version,
        "hipcc": prefix.hipcc,
        "clang": prefix.compiler,
        "clang_version": clang,
        "device_libraries": prefix.device_libraries,
        "device_targets": list(prefix.device_targets),
        "kernels": {name: list(targets) for name, targets in prefix.kernels.items()},
        "targets": list(prefix.targets),
        "content": prefix.content,
        "missing": [asdict(part) for part in missing],
    }
    print_result(document, lines, as_json=as_json)


_SOURCE_OPTIONS = ("run_id", "release", "source")
_LATEST = "latest"


@command("rocm from-artifacts")
@catalogue.OUTPUT_DIR.but(default=Path("therock-build"), show_default=True, help="Folder of the tree.")
@catalogue.FAMILY.but(aliases=("--artifact-group",), help="Family of GPUs, or another group of artifacts.")
@catalogue.GFX.but(
    name="amdgpu_targets",
    default="",
    metavar="GFX,…",
    help="Targets to take artifacts of [default: the family's].",
)
@catalogue.RUN_ID
@option(
    "--release",
    metavar="VERSION|latest",
    flags={"--latest-release": _LATEST},
    help="Version of a nightly or dev tarball; latest: of the newest nightly one.",
)
@catalogue.DRY_RUN.but(help="Print what would be installed, and do nothing.")
@option("--tests/--no-tests", default=False, help="Also install tests.")
@option("--base-only", is_flag=True, help="Only what every tree has.")
@catalogue.JSON
@source_option
def install_command(output_dir: Path, as_json: bool, **options: Any) -> None:
    """Install ROCm into a folder, from a run's artifacts, or a nightly or dev tarball.

    The folder is replaced once the new tree is complete; one with other content than ROCm is refused. A run's
    artifacts are all installed, except tests. The run is of TheRock's repository, or of GITHUB_REPOSITORY,
    and of the RELEASE_TYPE (ci, dev, nightly, prerelease) [default: ci].

    \b
    Examples:
      rocm-wheels rocm from-artifacts --run-id 14474448215 --family gfx94X-dcgpu --tests
      rocm-wheels rocm from-artifacts --release latest --family gfx110X-all --output-dir rocm
    """
    from rocm_wheels.models import gfx, libraries
    from rocm_wheels.sdk import artifact_sources, fetch_artifacts

    if not (family := options["family"]):
        raise errors.UsageError("--family is wanted", tip="such as gfx94X-dcgpu")
    tarball = options["release"] is not None
    ways = [
        way
        for way in _SOURCE_OPTIONS
        if options[way] not in (None, False) and not (way == "source" and tarball)
    ]
    if len(ways) != 1:
        raise errors.UsageError(
            "one of --run-id, --release and --source is wanted",
            tip="--source goes with --release, as the folder of its tarballs",
        )
    if tarball:
        if options["tests"] or options["base_only"]:
            raise errors.UsageError("a tarball is taken whole", tip="leave --tests and --base-only out")
        version = None if options["release"] == _LATEST else options["release"]
        place = options["source"] or fetch_artifacts.find_tarball_folder(version)
        source = artifact_sources.list_source(place, boundary.read_environment())
        archives = [fetch_artifacts.choose_tarball(source, PLATFORM, family, version)]
        log.log_note(
            "no digests of tarballs are published, as far as is known: what comes is checked as gzip does"
        )
    else:
        targets, source = (
            parse_amdgpu_targets(options["amdgpu_targets"]),
            find_artifact_source(options, PLATFORM),
        )
        base = libraries.load_artifact_table().base if options["base_only"] else ()
        choice = artifact_sources.ArtifactChoice(
            targets=targets,
            family=family,
            any_of=() if targets else gfx.get_gfx_families().get(family, ()),
            include=base,
            exclude=() if options["tests"] or base else (fetch_artifacts.TEST_PATTERN,),
            optional=base,
        )
        archives = artifact_sources.choose_archives(source, choice)
    request = fetch_artifacts.FetchRequest(source=source, archives=archives, folder=Path())
    lines = [f"{source.label}/{archive.file}" for archive in archives]
    document: dict[str, Any] = {"archives": lines}
    if not options["dry_run"]:
        output = output_dir.absolute()
        fetch_artifacts.install_tree(request, output, tarball=tarball)
        document, lines = {"folder": output}, [str(output)]
    print_result(document, lines, as_json=as_json)
