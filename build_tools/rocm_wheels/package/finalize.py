"""Give the wheels of a release candidate their final versions: 2.9.1rc1+rocm7.1.0rc1 becomes 2.9.1+rocm7.1.0.

By rule the pre-release part is dropped, and what is not clear is asked. Of a wheel its version, file name,
folders and RECORD are written anew, and the pins on wheels and on ROCm that were renamed, and the versions
that its Python files state; all else is copied as it is. What becomes of all wheels is known before the first
is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, files, log, parallel, tables
from rocm_wheels.models import project as recipes
from rocm_wheels.package import sbom, version_edit, wheel_plan
from rocm_wheels.sources import lock
from rocm_wheels.variants import device_names
from rocm_wheels.wheels import dist_info, rewrite, write_together
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit, get_edited_name

_STEP = "finalize"  # as the bill of materials of a wheel says it
_JOBS = 4
_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True)
class CandidateWheel:
    """A wheel as it is: its project (normalized), version, and the ROCm that it was made for; "": not known.

    That is the one that it pins, else that of the lock inside.
    """

    path: Path
    project: str
    version: Version
    rocm: str
    requires: tuple[str, ...]


@dataclass(frozen=True)
class FinalWheel:
    """A wheel and what becomes of it. One that stays has its own name.

    ``requires`` are the requirements that change (old, new), ``members`` the files outside its dist-info that
    have another content then.
    """

    old: CandidateWheel
    version: str
    name: str
    requires: tuple[tuple[str, str], ...] = ()
    members: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def stays(self) -> bool:
        """Whether it is taken as it is."""
        return self.name == self.old.path.name


@dataclass(frozen=True)
class FinalVersions:
    """What is wanted: whole versions by project, projects that stay, and new names of versions of ROCm.

    Parts (``torch-device-gfx942``) follow their whole.
    """

    to: Mapping[str, str]
    keep: frozenset[str]
    rocm: Mapping[str, str]

    @classmethod
    def parse(
        cls,
        wheels: Sequence[CandidateWheel],
        to: Sequence[str] = (),
        keep: Sequence[str] = (),
        rocm: Sequence[str] = (),
    ) -> FinalVersions:
        """Return what PROJECT=V, PROJECT and [OLD=]NEW mean for these wheels. Raises UsageError."""
        projects = sorted({wheel.project for wheel in wheels})
        rocms = sorted({wheel.rocm for wheel in wheels} - {""})
        versions: dict[str, str] = {}
        for word in to:
            name, equals, version = word.partition("=")
            project = _require_listed(canonicalize_name(name), projects, f"--to {name}: no wheel is of")
            if not equals or project in versions:
                raise errors.UsageError(
                    f"--to {word}: one version for each project", tip=f"such as --to {project}=2.9.0"
                )
            versions[project] = str(_parse_version(version, f"--to {word}"))
        kept = frozenset(
            _require_listed(canonicalize_name(name), projects, f"--keep {name}: no wheel is of")
            for name in keep
        )
        if contradicting := sorted(kept & versions.keys()):
            raise errors.UsageError(f"{', '.join(contradicting)} cannot be kept and get another version")
        renamed = {}
        for word in rocm:
            old, equals, new = word.partition("=")
            if not equals and len(rocms) != 1:
                listed = f"ROCm {' and '.join(rocms)}" if rocms else "a ROCm that none of them names"
                raise errors.UsageError(f"the wheels are for {listed}", tip="name it with --rocm OLD=NEW")
            old, new = (old, new) if equals else (rocms[0], word)
            if rocms:
                _require_listed(old, rocms, "no wheel is for ROCm")
            _require_final_rocm(old, new, f"--rocm {word}")
            renamed[old] = new
        return cls(versions, kept, renamed)

    def find_version(self, wheel: CandidateWheel) -> str:
        """Return the version that a wheel gets, which is its own if it stays.

        Raises ReleaseError that says what is not clear.
        """
        project, old = wheel.project, wheel.version
        names = {project, device_names.find_host_project(project)}
        if names & self.keep:
            return str(old)
        requested = next((self.to[name] for name in self.to if name in names), None)
        if requested is None:
            renamed = (wheel.rocm, self.rocm[wheel.rocm]) if wheel.rocm in self.rocm else None
            try:
                new = make_final_version(old, renamed)
            except errors.ReleaseError as unclear:
                raise errors.ReleaseError(f"{project} {old}: {unclear}: say --to {project}=VERSION") from None
            if Version(new) == old:
                raise errors.ReleaseError(
                    f"{project} {old} is no pre-release: say --keep {project} to take it as it is, or "
                    f"--to {project}=VERSION"
                )
            return new
        new_version = Version(requested)
        fault = ""
        if (new_version.epoch, new_version.release) != (old.epoch, old.release):
            fault = f"{project} {old} cannot become {requested}: that is another release, to be built anew"
        elif new_version.is_prerelease:
            fault = f"{project} is to become {requested}, a pre-release"
        elif new_version.local is None and old.local is not None:
            example = f"--to {project}={new_version.public}+{old.local}"
            fault = f"{project} {old} would lose its label: say all of the version, such as {example}"
        elif new_version == old:
            fault = f"{project} is {old} already: say --keep {project}"
        if fault:
            raise errors.ReleaseError(fault)
        return requested


def make_final_version(version: Version, rocm: tuple[str, str] | None = None) -> str:
    """Return a version without pre-release and dev parts; its label with another ROCm, where there is one.

    Raises ReleaseError that says what is not clear.
    """
    if version.is_prerelease and version.post is not None and version.pre is not None:
        raise errors.ReleaseError(f"{version} is after a pre-release, and not of the final version")
    epoch = f"{version.epoch}!" if version.epoch else ""
    post = f".post{version.post}" if version.post is not None else ""
    public = f"{epoch}{'.'.join(map(str, version.release))}{post}"
    local = version.local
    if local and rocm:
        local = version_edit.rename_rocm_in_label(local, rocm)
        if local is None:
            raise errors.ReleaseError(f"the label +{version.local} does not say ROCm {rocm[0]}")
    return f"{public}+{local}" if local else public


def read_candidates(paths: Sequence[Path]) -> list[CandidateWheel]:
    """Read wheels. Where all that say it are for one ROCm, the others are, too. Raises DataError."""
    wheels = parallel.run_in_parallel(_read_candidate, paths, jobs=_JOBS)
    rocms = {wheel.rocm for wheel in wheels} - {""}
    only = rocms.pop() if len(rocms) == 1 else ""
    return [replace(wheel, rocm=wheel.rocm or only) for wheel in wheels]


def plan_final_wheels(wheels: Sequence[CandidateWheel], versions: FinalVersions) -> list[FinalWheel]:
    """Return what becomes of wheels that belong together.

    Raises ReleaseError that lists each of which it is not clear, or that would not fit the others.
    """
    decided = _collect(wheels, versions.find_version)
    moved: dict[str, dict[Version, Version]] = {}
    for wheel, text in zip(wheels, decided, strict=True):
        new = Version(text)
        pairs = moved.setdefault(wheel.project, {})
        if pairs.setdefault(wheel.version, new) != new:
            raise errors.ReleaseError(
                f"{wheel.project} {wheel.version} would become {pairs[wheel.version]} and {new}",
                tip=f"say one: --to {wheel.project}=VERSION",
            )
        if list(pairs.values()).count(new) > 1:
            raise errors.ReleaseError(f"two versions of {wheel.project} would become {new}")
    for rocm in sorted({versions.rocm.get(wheel.rocm, wheel.rocm) for wheel in wheels} - {""}):
        if Version(rocm).is_prerelease:
            log.log_warning(f"ROCm stays {rocm}, a pre-release; --rocm gives labels and pins its final name")
    final_versions = dict(zip(wheels, decided, strict=True))
    planned = _collect(
        wheels, lambda wheel: _plan_wheel(wheel, final_versions[wheel], moved, versions), named=True
    )
    if all(wheel.stays for wheel in planned):
        raise errors.ReleaseError("all wheels stay as they are: there is nothing to finalize")
    return planned


def write_final_wheels(wheels: Sequence[FinalWheel], folder: Path) -> list[Path]:
    """Write the new wheels, and copies of those that stay, with their statements; all appear together.

    A wheel that has a statement beside it gets one that names this step. DataError where other bytes have the
    name of one; ReleaseError, and nothing is written, where there is no room.
    """
    size, instead = sum(wheel.old.path.stat().st_size for wheel in wheels), "name another --output-dir"
    files.require_room(folder, size, "written", error=errors.ReleaseError, instead=instead)
    targets = [folder / wheel.name for wheel in wheels]
    rewrite.require_distinct_targets(zip([wheel.old.path for wheel in wheels], targets, strict=True))
    try:
        with write_together.write_together() as batch:
            stage = batch.find_stage(folder)

            def write(wheel: FinalWheel) -> None:
                if wheel.stays:
                    rewrite.copy_wheel(wheel.old.path, stage / wheel.name)
                    return
                renamed = dict(wheel.requires)
                edit = WheelEdit(
                    version=wheel.version,
                    requirements=lambda old: [renamed.get(text, text) for text in old],
                    members=wheel.members,
                    step=_STEP,
                )
                rewrite.rewrite_wheel(wheel.old.path, stage, edit)

            parallel.run_in_parallel(write, wheels, jobs=_JOBS)
    except OSError as failure:
        raise errors.ReleaseError(
            f"cannot write to {folder}: {failure.strerror or failure}",
            tip="free some space, or name another --output-dir; then run the same command again",
        ) from failure
    return targets


def _read_candidate(path: Path) -> CandidateWheel:
    name, inside = dist_info.parse_wheel_name(path.name), rewrite.read_dist_info_files(path)
    metadata = dist_info.parse_metadata(inside["METADATA"], name=f"{path}: METADATA")
    pins = set(wheel_plan.list_rocm_pins(metadata.requires_dist).values())
    rocm = ""
    if len(pins) == 1:
        rocm = pins.pop()
    elif (text := inside.get(sbom.LOCK_MEMBER)) is not None:
        rocm = lock.parse_lock(text.decode("utf-8", "replace"), name=f"{path}: {sbom.LOCK_MEMBER}").rocm or ""
    return CandidateWheel(path, name.name, name.version, rocm, metadata.requires_dist)


def _plan_wheel(
    wheel: CandidateWheel,
    version: str,
    moved: version_edit.NewVersions,
    versions: FinalVersions,
) -> FinalWheel:
    rocm = (wheel.rocm, versions.rocm[wheel.rocm]) if wheel.rocm in versions.rocm else None
    rocm_pair = {Version(rocm[0]): Version(rocm[1])} if rocm else {}
    pairs = tuple(
        (text, new)
        for text in wheel.requires
        if (new := version_edit.rewrite_requirement(text, moved, rocm_pair)) != text
    )
    if Version(version) == wheel.version:
        if pairs:
            replaced = ", ".join(old for old, _ in pairs)
            raise errors.ReleaseError(
                f"it stays, and requires {replaced}, which gets another version: "
                f"say --to {wheel.project}=VERSION in the place of --keep"
            )
        return FinalWheel(wheel, version, wheel.path.name)
    recipe = recipes.find_project_of(device_names.find_host_project(wheel.project) or wheel.project)
    if recipe is None:
        raise errors.ReleaseError(f"there is no recipe of {wheel.project}, which says where its version is")
    names = version_edit.list_version_files(recipe)
    with WheelArchive.open(wheel.path) as archive:
        texts = {entry.name: archive.read(entry) for entry in archive.members if entry.name in names}
    members = version_edit.rewrite_version_files(texts, recipe, (str(wheel.version), version), rocm)
    name = get_edited_name(wheel.path.name, WheelEdit(version=version))
    return FinalWheel(wheel, version, name, pairs, members)


def _collect(
    wheels: Sequence[CandidateWheel], work: Callable[[CandidateWheel], _ResultT], *, named: bool = False
) -> list[_ResultT]:
    """Return what ``work`` returns of each wheel. Raises one ReleaseError that says all that is wrong."""
    results, faults = list[_ResultT](), dict[str, None]()
    for wheel in wheels:
        try:
            results.append(work(wheel))
        except errors.ReleaseError as fault:
            faults[f"{wheel.path.name}: {fault}" if named else str(fault)] = None
    if faults:
        raise errors.ReleaseError("\n".join(faults), tip="nothing was written")
    return results


def _require_listed(name: str, names: Sequence[str], fault: str) -> str:
    if name not in names:
        raise errors.UsageError(
            f"{fault} {name}{tables.suggest_name(name, names)}", tip=f"they are: {', '.join(names)}"
        )
    return name


def _require_final_rocm(old: str, new: str, source: str) -> None:
    """Raise UsageError for what is not the final version of a ROCm."""
    before, after = _parse_version(old, source), _parse_version(new, source)
    fault, tip = None, None
    if (before.epoch, before.release) != (after.epoch, after.release):
        fault = f"ROCm {old} cannot become {new}: that is another ROCm, to be built with"
    elif before.local and not after.local:
        fault, tip = f"ROCm {old} would lose its label", f"say all: --rocm {new}+{before.local}"
    elif after == before:
        fault = f"{source}: {new} is the old one"
    elif after.is_prerelease:
        fault = f"{source}: {new} is a pre-release"
    if fault:
        raise errors.UsageError(fault, tip=tip)


def _parse_version(text: str, source: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as cause:
        raise errors.UsageError(f"{source}: {text!r} is not a version (PEP 440)") from cause
