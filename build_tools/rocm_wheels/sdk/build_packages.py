"""Make the ROCm packages from an artifacts tree: read, check, plan, write, publish."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SdkError, UsageError
from rocm_wheels.sdk import tables
from rocm_wheels.sdk.artifacts import Artifact, merge_artifacts, read_artifacts, sort_targets, list_targets
from rocm_wheels.sdk.plans import PackageSet, plan_wheels
from rocm_wheels.sdk.prefix import read_installed_rocm, read_rocm_version, refuse_unknown_targets
from rocm_wheels.sdk.wheel_writer import (
    DEFAULT_EPOCH,
    WheelPlan,
    publish_wheels,
    refuse_foreign_files,
    write_wheel_folder,
    write_wheel,
)
from rocm_wheels.workspace import lock_folder

BUILD_MANIFEST = "share/therock/therock_manifest.json"
DIST_INFO_FILE = "share/therock/dist_info.json"
_SUFFIX = re.compile(r"[A-Za-z0-9_]*")
_PLATFORM_TAG = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class PackageRequest:
    """What to make. Empty ``version``, ``targets``, ``platform_tag``: what artifacts and machine say.

    ``source`` is a folder of artifacts, or with ``installed`` that of an installed ROCm. ``published`` are
    the targets that packages are made for on each platform (``linux``, ``win32``), in this run or another
    one: of this platform all must be there, and the extras of ``rocm`` are those of both. Without
    ``packed`` the content of every wheel is laid out as a folder.
    """

    source: Path
    destination: Path
    version: str = ""
    suffix: str = ""
    targets: tuple[str, ...] = ()
    platform_tag: str = ""
    compress_wheels: bool = True
    compress_devel: bool = False
    installed: bool = False
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    packed: bool = True


def build_rocm_packages(request: PackageRequest, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the wheels of all ROCm packages into ``<destination>/dist`` and return them, sorted.

    They appear together or not at all; the same artifacts give the same bytes (dates come from
    ``SOURCE_DATE_EPOCH``). SdkError: artifacts that are missing, incomplete or contradict
    each other; UsageError: an option that cannot be used.
    """
    package_set = read_package_set(request)
    if not request.packed:
        return _write_folders(package_set, request.destination, env)
    destination = request.destination
    with _remove_on_failure(destination), lock_folder(destination, purpose="making ROCm packages"):
        for leftover in destination.glob(".packages-*"):
            shutil.rmtree(leftover)  # of a run that was killed; we are alone here
        with tempfile.TemporaryDirectory(prefix=".packages-", dir=destination) as name:
            work, fresh = Path(name) / "work", Path(name) / "dist"
            work.mkdir()
            fresh.mkdir()
            epoch, dist = package_set.read_epoch(env), destination / "dist"
            plans = plan_wheels(package_set, work, env)
            refuse_foreign_files(
                dist, {plan.file_name for plan in plans}
            )  # before the long work, not after it
            _write_wheels(plans, fresh, epoch, compress=request.compress_wheels)
            names = sorted(path.name for path in fresh.iterdir())
            changed = publish_wheels(fresh, dist)
    remark = "" if changed else ", as before"
    log.log_note(f"{len(names)} packages of ROCm {package_set.version} in {dist}{remark}")
    return tuple(dist / name for name in names)


def _write_folders(package_set: PackageSet, destination: Path, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the content of all packages as folders below ``<destination>/trees``; they appear together."""
    trees = destination / "trees"
    with _remove_on_failure(destination), lock_folder(destination, purpose="making ROCm packages"):
        for leftover in destination.glob(".packages-*"):
            shutil.rmtree(leftover)
        with tempfile.TemporaryDirectory(prefix=".packages-", dir=destination) as name:
            work, fresh, old = (Path(name) / part for part in ("work", "trees", "old"))
            work.mkdir()
            plans = plan_wheels(package_set, work, env)
            for plan in plans:
                write_wheel_folder(plan, fresh / plan.distribution)
            if trees.exists():
                trees.rename(old)
            fresh.rename(trees)
    log.log_note(f"{len(plans)} packages of ROCm {package_set.version} in {trees}, not packed")
    return tuple(sorted(trees / plan.distribution for plan in plans))


@contextlib.contextmanager
def _remove_on_failure(destination: Path) -> Iterator[None]:
    """Remove a destination that was not there before, when what is done in it fails."""
    existed = destination.exists()
    try:
        yield
    except BaseException:
        if not existed:
            shutil.rmtree(destination, ignore_errors=True)
        raise


def read_package_set(request: PackageRequest) -> PackageSet:
    """Read the artifacts or the installed ROCm; settle version, targets and platform. Nothing is written."""
    if request.installed:
        artifacts = read_installed_rocm(request.source)
        build: dict[str, object] = {
            "rocm_package_version": request.version or read_rocm_version(request.source)
        }
        log.log_note(
            f"code inside the libraries of {request.source} goes to rocm-sdk-libraries, for all targets"
        )
    else:
        artifacts = read_artifacts(request.source)
        build = _read_build_manifest(artifacts, request.source)
    _require_packages(artifacts, request.source)
    if not _SUFFIX.fullmatch(request.suffix):
        raise UsageError(
            f"--version-suffix {request.suffix!r} becomes part of Python names: letters, digits and _"
        )
    platform_tag = _choose_platform_tag(request.platform_tag)
    wanted = _read_requested_targets(request, platform_tag)
    if request.installed:
        refuse_unknown_targets(artifacts, request.source, wanted)
    package_set = PackageSet(
        artifacts=artifacts,
        version=_choose_version(request.version, build),
        suffix=request.suffix,
        targets=_choose_targets(artifacts, wanted),
        platform_tag=platform_tag,
        published=request.published,
        compress_devel=request.compress_devel,
        default_epoch=DEFAULT_EPOCH,
    )
    if request.published:
        available = list_targets(
            a for a in artifacts if a.name in tables.LIBRARY_ARTIFACTS and a.component == "lib"
        )
        if unpackaged := [target for target in available if target not in package_set.targets]:
            log.log_warning(
                f"no packages for {', '.join(unpackaged)}, which are of none of the families of this platform"
            )
    for artifact in artifacts:
        if not tables.is_known_artifact(artifact) and artifact.component in ("lib", "run"):
            log.log_warning(f"{artifact.folder.name} is of no runtime package; it is in rocm-sdk-devel only")
    return package_set


def _write_wheels(plans: Sequence[WheelPlan], fresh: Path, epoch: int, *, compress: bool) -> None:
    # zlib and hashlib work outside the interpreter lock, so that threads do.
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        waiting = [pool.submit(write_wheel, plan, fresh, epoch=epoch, compress=compress) for plan in plans]
        for task in waiting:
            task.result()


def _read_build_manifest(artifacts: Sequence[Artifact], folder: Path) -> dict[str, object]:
    for artifact in artifacts:
        if (artifact.name, artifact.component, artifact.generic) != ("base", "lib", True):
            continue
        for base in artifact.bases:
            path = base / BUILD_MANIFEST
            if path.is_file():
                return _load_build_manifest(path)
    raise SdkError(
        f"{folder} has no base_lib_generic with {BUILD_MANIFEST}",
        tip="the artifacts are incomplete; fetch base_lib_generic of the same build",
    )


def _load_build_manifest(path: Path) -> dict[str, object]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as cause:
        raise SdkError(f"{path} is not JSON") from cause
    if not isinstance(manifest, dict):
        raise SdkError(f"{path} is not a JSON object")
    flags = manifest.get("flags")
    if isinstance(flags, dict) and flags.get("KPACK_SPLIT_ARTIFACTS") is False:
        raise SdkError(
            f"{path}: the build did not split device code (KPACK_SPLIT_ARTIFACTS is off)",
            tip="packages a gfx target are made from split artifacts only",
        )
    return manifest


def _require_packages(artifacts: Sequence[Artifact], folder: Path) -> None:
    required = {
        "rocm-sdk-core": (
            any(tables.in_core(a) and a.name != "base" and a.component != "dev" for a in artifacts),
            "core-hip_lib_generic",
        ),
        "rocm-sdk-libraries": (any(tables.in_libraries(a) for a in artifacts), "blas_lib_generic"),
        "rocm-sdk-devel": (
            any(a.component == "dev" and a.generic for a in artifacts),
            "core-hip_dev_generic",
        ),
    }
    for package, (present, example) in required.items():
        if not present:
            raise SdkError(
                f"{folder} has nothing for {package}",
                tip=f"the artifacts are incomplete; it wants some like {example}",
            )


def _choose_version(requested: str, build: dict[str, object]) -> str:
    from packaging.version import InvalidVersion, Version

    text = requested or build.get("rocm_package_version")
    if not text:
        raise SdkError(
            f"{BUILD_MANIFEST} says no rocm_package_version",
            tip="give the version with --version, such as 7.1.0",
        )
    try:
        return str(Version(str(text)))
    except InvalidVersion as cause:
        raise SdkError(
            f"{text!r} is not a version (PEP 440)", tip="such as 7.1.0, 7.2.0rc1 or 7.1.0+local"
        ) from cause


def _choose_targets(artifacts: Sequence[Artifact], requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return the gfx targets to package: those wanted, or all that the build says it has."""
    available = list_targets(
        a for a in artifacts if a.name in tables.LIBRARY_ARTIFACTS and a.component == "lib"
    )
    promised = sort_targets(requested) or _read_promised_targets(artifacts) or available
    if missing := [target for target in promised if target not in available]:
        raise SdkError(
            f"no artifacts for {', '.join(missing)}; there are some for {', '.join(available) or 'no target'}",
            tip="fetch them, or package fewer targets with --targets",
        )
    if not promised:
        raise SdkError("no artifact holds device code", tip="fetch some like blas_lib_gfx942")
    if not requested and (extra := [target for target in available if target not in promised]):
        raise SdkError(
            f"there are artifacts for {', '.join(extra)}, of which {DIST_INFO_FILE} says nothing",
            tip="the artifacts are of different builds; or choose with --targets",
        )
    return promised


def _read_requested_targets(request: PackageRequest, platform_tag: str) -> tuple[str, ...]:
    """Return the targets that packages are wanted for; none: all that there are. Raises UsageError."""
    published = request.published.get("win32" if platform_tag.startswith("win") else "linux", ())
    if published and request.targets:
        raise UsageError(
            "--targets and the families of this platform say two things", tip="leave one of them out"
        )
    return request.targets or published


def _read_promised_targets(artifacts: Sequence[Artifact]) -> tuple[str, ...]:
    entry = merge_artifacts(a for a in artifacts if tables.in_core(a)).get(DIST_INFO_FILE)
    if entry is None:
        return ()
    try:
        text = json.loads(entry.path.read_text(encoding="utf-8"))["dist_amdgpu_targets"]
    except (ValueError, KeyError, TypeError) as cause:
        raise SdkError(f"{entry.path} does not name its dist_amdgpu_targets") from cause
    return sort_targets(word.split(":")[0] for word in re.split(r"[;,\s]+", str(text)) if word)


def _choose_platform_tag(requested: str) -> str:
    import sysconfig

    tag = requested or re.sub(r"[-.]", "_", sysconfig.get_platform())
    if not _PLATFORM_TAG.fullmatch(tag):
        raise UsageError(
            f"--platform-tag {tag!r} is no platform tag", tip="such as linux_x86_64 or win_amd64"
        )
    return tag
