"""Decide which final versions the wheels of a set get, and which wheels the new set has.

By rule the pre-release part is dropped, and what is not clear is asked. Parts that hold the kernels of
one target (``torch-device-gfx942``, with ``gfx11`` or ``gfx115x`` that of several) and variants are left
out whole; a wheel that holds the code of several targets inside stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log, tables
from rocm_wheels.models import gfx
from rocm_wheels.package import version_edit
from rocm_wheels.release import wheel_set


@dataclass(frozen=True)
class FinalizeRequest:
    """What is wanted: versions by project, projects that stay as they are, new names of ROCm versions.

    ``build`` is the build tag of all wheels that are written anew; "": that of the old ones. ``targets`` are
    those that the new set is for; (): all of the old one. With ``same_versions`` every version stays.
    """

    to: Mapping[str, str] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    rocm: Mapping[str, str] = field(default_factory=dict)
    build: str = ""
    targets: tuple[str, ...] = ()
    same_versions: bool = False

    def find_requested_version(self, project: str) -> tuple[str | None, bool]:
        """Return the version that was asked for, and whether a project stays; parts follow their whole."""
        names = [project, wheel_set.find_host_project(project) or project]
        version = next((self.to[name] for name in names if name in self.to), None)
        return version, (self.same_versions and version is None) or not self.keep.isdisjoint(names)


def parse_finalize_request(
    document: wheel_set.SetDocument,
    to: Sequence[str],
    keep: Sequence[str],
    rocm: Sequence[str],
    build: str = "",
) -> FinalizeRequest:
    """Return what the words of a command mean for a set. Raises UsageError."""
    versions: dict[str, str] = {}
    for word in to:
        name, equals, version = word.partition("=")
        project = _require_project(document, name, "--to")
        if not equals or project in versions:
            raise errors.UsageError(
                f"--to {word}: one version for each project", tip=f"such as --to {project}=2.9.0"
            )
        versions[project] = str(_parse_version(version, f"--to {word}"))
    kept_projects = frozenset(_require_project(document, name, "--keep") for name in keep)
    if contradicting := sorted(kept_projects & versions.keys()):
        raise errors.UsageError(f"{', '.join(contradicting)} cannot be kept and get another version")
    return FinalizeRequest(
        versions, kept_projects, dict(_parse_rocm_rename(document, word) for word in rocm), build
    )


def decide_final_versions(document: wheel_set.SetDocument, request: FinalizeRequest) -> Mapping[str, str]:
    """Return the version that each wheel gets, by its file name; those of wheels that stay are theirs.

    Raises ReleaseError that lists each wheel of which it is not clear, and what to say.
    """
    versions: dict[str, str] = {}
    faults: dict[str, None] = {}
    for file in document.files:
        try:
            versions[file.name] = _decide_version(file, document, request)
        except errors.ReleaseError as fault:
            faults[str(fault)] = None
    if faults:
        raise errors.ReleaseError("\n".join(faults), tip="nothing was written")
    return versions


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


def _decide_version(
    file: wheel_set.SetFile, document: wheel_set.SetDocument, request: FinalizeRequest
) -> str:
    requested, stays = request.find_requested_version(file.project)
    if stays:
        return file.version
    old = Version(file.version)
    if requested is not None:
        return _check_requested_version(file.project, old, Version(requested))
    built = document.rocm_of(file) or ""
    rocm = (built, request.rocm[built]) if built in request.rocm else None
    try:
        new = make_final_version(old, rocm)
    except errors.ReleaseError as unclear:
        raise errors.ReleaseError(
            f"{file.project} {old}: {unclear}: say --to {file.project}=VERSION"
        ) from None
    if Version(new) == old:
        raise errors.ReleaseError(
            f"{file.project} {old} is no pre-release: say --keep {file.project} to have it in the new set as "
            f"it is, or --to {file.project}=VERSION"
        )
    return new


def _check_requested_version(project: str, old: Version, new: Version) -> str:
    if (new.epoch, new.release) != (old.epoch, old.release):
        raise errors.ReleaseError(
            f"{project} {old} cannot become {new}: that is another release, which needs a new build"
        )
    if new.is_prerelease:
        raise errors.ReleaseError(f"{project} is to become {new}, a pre-release")
    if new.local is None and old.local is not None:
        example = f"--to {project}={new.public}+{old.local}"
        raise errors.ReleaseError(
            f"{project} {old} would lose its label: say all of the version, such as {example}"
        )
    if new == old:
        raise errors.ReleaseError(f"{project} is {old} already: say --keep {project}")
    return str(new)


def _parse_rocm_rename(document: wheel_set.SetDocument, word: str) -> tuple[str, str]:
    old, equals, new = word.partition("=")
    rocms = document.rocms
    if not equals:
        if len(rocms) != 1:
            listed = ", ".join(rocms) or "of no version that its lock names"
            raise errors.UsageError(f"the set is for ROCm {listed}", tip="name it with --rocm OLD=NEW")
        old, new = rocms[0], word
    if old not in rocms:
        raise errors.UsageError(
            f"the set has no ROCm {old}{tables.suggest_name(old, rocms)}", tip=f"it has {', '.join(rocms)}"
        )
    before, after = _parse_version(old, "the ROCm of the set"), _parse_version(new, f"--rocm {word}")
    if (before.epoch, before.release) != (after.epoch, after.release):
        raise errors.UsageError(f"ROCm {old} cannot become {new}: that is another ROCm, to be built with")
    if before.local and not after.local:
        raise errors.UsageError(
            f"ROCm {old} would lose its label", tip=f"say all: --rocm {new}+{before.local}"
        )
    if after.is_prerelease or after == before:
        raise errors.UsageError(
            f"--rocm {word}: {new} is {'a pre-release' if after != before else 'the old one'}"
        )
    return old, new


def _require_project(document: wheel_set.SetDocument, name: str, option: str) -> str:
    project = canonicalize_name(name)
    if project not in document.projects:
        listed = ", ".join(document.projects)
        raise errors.UsageError(
            f"{option} {name}: the set has no {name}{tables.suggest_name(project, document.projects)}",
            tip=f"it has {listed}",
        )
    return project


def _parse_version(text: str, source: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as cause:
        raise errors.UsageError(f"{source}: {text!r} is not a version (PEP 440)") from cause


def map_versions(
    document: wheel_set.SetDocument, versions: Mapping[str, str]
) -> Mapping[str, Mapping[Version, Version]]:
    """Return the new versions of each project by the old ones. Raises ReleaseError where one becomes two."""
    moved: dict[str, dict[Version, Version]] = {}
    for file in document.files:
        old, new = Version(file.version), Version(versions[file.name])
        if moved.setdefault(file.project, {}).setdefault(old, new) != new:
            version_pair = f"{moved[file.project][old]} and {new}"
            raise errors.ReleaseError(
                f"{file.project} {old} would become {version_pair}",
                tip=f"say one: --to {file.project}=VERSION",
            )
    for project, pairs in moved.items():
        if duplicate := _find_duplicate(pairs.values()):
            raise errors.ReleaseError(f"two versions of {project} would become {duplicate}")
    return moved


def _find_duplicate(versions: Iterable[Version]) -> Version | None:
    earlier: set[Version] = set()
    for version in versions:
        if version in earlier:
            return version
        earlier.add(version)
    return None


KEEP_TARGETS_OPTION = "--keep-gfx"
_DEVICE_PROJECT = re.compile(r"(?:.*-)?device-(?P<gfx>gfx[0-9a-f]+x?)")
_EXTRA_IN_MARKER = re.compile(r"""extra\s*==\s*["'](?P<extra>[^"']+)["']""")


def read_keep_list(text: str, document: wheel_set.SetDocument) -> tuple[str, ...]:
    """Return the targets of ``--keep-gfx``, families expanded. Raises UsageError for one without code."""
    targets = tuple(
        dict.fromkeys(
            gfx.strip_features(target) for target in gfx.parse_targets(text, input_name=KEEP_TARGETS_OPTION)
        )
    )
    if missing := [target for target in targets if target not in document.targets]:
        raise errors.UsageError(
            f"{KEEP_TARGETS_OPTION}: {document.id} has no code for {', '.join(missing)}",
            tip=f"it has code for {', '.join(document.targets)}",
        )
    return targets


def select_files(document: wheel_set.SetDocument, targets: Sequence[str]) -> tuple[wheel_set.SetFile, ...]:
    """Return the wheels of a set for some targets: all without targets. Raises ReleaseError if those are all.

    Of wheels that stay with code for other targets inside, a warning tells.
    """
    if not targets:
        return document.files
    selected = tuple(file for file in document.files if _is_kept(file, targets))
    if len(selected) == len(document.files):
        raise errors.ReleaseError(
            f"no wheel of {document.id} is for other targets than {', '.join(targets)} alone",
            tip="code for several targets in one wheel stays together: build and stage it for fewer",
        )
    for file in selected:
        if other_targets := [target for target in file.targets if gfx.strip_features(target) not in targets]:
            log.log_warning(f"{file.name} stays, and holds code for {', '.join(other_targets)}, too")
    return selected


def select_requirements(requires: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the requirements without those on parts of other targets, and without those of their extras."""
    return [text for text in requires if not targets or _is_kept_requirement(text, targets)]


def select_extras(extras: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the extras without those of other targets (``device-gfx90a``)."""
    return [extra for extra in extras if not targets or _serves_targets(canonicalize_name(extra), targets)]


def _is_kept(file: wheel_set.SetFile, targets: Sequence[str]) -> bool:
    if _DEVICE_PROJECT.fullmatch(file.project):
        return _serves_targets(file.project, targets)
    if file.label and file.targets:
        return any(gfx.strip_features(target) in targets for target in file.targets)
    return True


def _is_kept_requirement(text: str, targets: Sequence[str]) -> bool:
    requirement = Requirement(text)
    extra = _EXTRA_IN_MARKER.search(str(requirement.marker or ""))
    return _serves_targets(canonicalize_name(requirement.name), targets) and (
        extra is None or _serves_targets(canonicalize_name(extra["extra"]), targets)
    )


def _serves_targets(name: str, targets: Sequence[str]) -> bool:
    """Tell whether a package or extra is for one of the targets, or for no target in particular."""
    match = _DEVICE_PROJECT.fullmatch(name)
    return match is None or any(target.startswith(match["gfx"].rstrip("x")) for target in targets)
