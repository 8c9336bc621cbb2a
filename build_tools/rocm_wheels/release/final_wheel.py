"""A wheel with its final version: which version and names it has, and writing it.

Nothing is run. Pins on what is renamed follow, all else stays as it is written. In Python files, where
the recipe says: ``__version__`` of the package, and the ROCm that ``_rocm_init.py`` asks for. What torch
says of HIP (``torch.version.hip``) stays: it is what was compiled with.

By rule the pre-release part is dropped, and what is not clear is asked. Parts that hold the kernels of
one target (``torch-device-gfx942``, with ``gfx11`` or ``gfx115x`` that of several) and variants are left
out whole; a wheel that holds the code of several targets inside stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import ReleaseError, UsageError, log_warning, suggest_name
from rocm_wheels.models import Project, get_local_part, make_version_suffix, parse_targets, strip_features
from rocm_wheels.release.staged_wheels import ROCM_PROJECT_NAMES
from rocm_wheels.release.wheel_set import SetDocument, SetFile


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
        names = [project, project.partition("-device-")[0]]
        version = next((self.to[name] for name in names if name in self.to), None)
        return version, (self.same_versions and version is None) or not self.keep.isdisjoint(names)


def parse_finalize_request(
    document: SetDocument, to: Sequence[str], keep: Sequence[str], rocm: Sequence[str], build: str = ""
) -> FinalizeRequest:
    """Return what the words of a command mean for a set. Raises UsageError."""
    versions: dict[str, str] = {}
    for word in to:
        name, equals, version = word.partition("=")
        project = _require_project(document, name, "--to")
        if not equals or project in versions:
            raise UsageError(
                f"--to {word}: one version for each project", tip=f"such as --to {project}=2.9.0"
            )
        versions[project] = str(_parse_version(version, f"--to {word}"))
    kept_projects = frozenset(_require_project(document, name, "--keep") for name in keep)
    if contradicting := sorted(kept_projects & versions.keys()):
        raise UsageError(f"{', '.join(contradicting)} cannot be kept and get another version")
    return FinalizeRequest(
        versions, kept_projects, dict(_parse_rocm_rename(document, word) for word in rocm), build
    )


def decide_final_versions(document: SetDocument, request: FinalizeRequest) -> Mapping[str, str]:
    """Return the version that each wheel gets, by its file name; those of wheels that stay are theirs.

    Raises ReleaseError that lists each wheel of which it is not clear, and what to say.
    """
    versions: dict[str, str] = {}
    faults: dict[str, None] = {}
    for file in document.files:
        try:
            versions[file.name] = _decide_version(file, document, request)
        except ReleaseError as fault:
            faults[str(fault)] = None
    if faults:
        raise ReleaseError("\n".join(faults), tip="nothing was written")
    return versions


def make_final_version(version: Version, rocm: tuple[str, str] | None = None) -> str:
    """Return a version without pre-release and dev parts; its label with another ROCm, where there is one.

    Raises ReleaseError that says what is not clear.
    """
    if version.is_prerelease and version.post is not None and version.pre is not None:
        raise ReleaseError(f"{version} is after a pre-release, and not of the final version")
    epoch = f"{version.epoch}!" if version.epoch else ""
    post = f".post{version.post}" if version.post is not None else ""
    public = f"{epoch}{'.'.join(map(str, version.release))}{post}"
    local = version.local
    if local and rocm:
        local = rename_rocm_in_label(local, rocm)
        if local is None:
            raise ReleaseError(f"the label +{version.local} does not say ROCm {rocm[0]}")
    return f"{public}+{local}" if local else public


def rename_rocm_in_label(local: str, rocm: tuple[str, str]) -> str | None:
    """Return the local part of a version with the new ROCm at its end; ``None`` when the old is not there."""
    old, new = (get_local_part(make_version_suffix(version_text)) for version_text in rocm)
    return local[: len(local) - len(old)] + new if f".{local}".endswith(f".{old}") else None


def _decide_version(file: SetFile, document: SetDocument, request: FinalizeRequest) -> str:
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
    except ReleaseError as unclear:
        raise ReleaseError(f"{file.project} {old}: {unclear}: say --to {file.project}=VERSION") from None
    if Version(new) == old:
        raise ReleaseError(
            f"{file.project} {old} is no pre-release: say --keep {file.project} to have it in the new set as "
            f"it is, or --to {file.project}=VERSION"
        )
    return new


def _check_requested_version(project: str, old: Version, new: Version) -> str:
    if (new.epoch, new.release) != (old.epoch, old.release):
        raise ReleaseError(
            f"{project} {old} cannot become {new}: that is another release, which needs a new build"
        )
    if new.is_prerelease:
        raise ReleaseError(f"{project} is to become {new}, a pre-release")
    if new.local is None and old.local is not None:
        example = f"--to {project}={new.public}+{old.local}"
        raise ReleaseError(f"{project} {old} would lose its label: say all of the version, such as {example}")
    if new == old:
        raise ReleaseError(f"{project} is {old} already: say --keep {project}")
    return str(new)


def _parse_rocm_rename(document: SetDocument, word: str) -> tuple[str, str]:
    old, equals, new = word.partition("=")
    rocms = document.rocms
    if not equals:
        if len(rocms) != 1:
            listed = ", ".join(rocms) or "of no version that its lock names"
            raise UsageError(f"the set is for ROCm {listed}", tip="name it with --rocm OLD=NEW")
        old, new = rocms[0], word
    if old not in rocms:
        raise UsageError(
            f"the set has no ROCm {old}{suggest_name(old, rocms)}", tip=f"it has {', '.join(rocms)}"
        )
    before, after = _parse_version(old, "the ROCm of the set"), _parse_version(new, f"--rocm {word}")
    if (before.epoch, before.release) != (after.epoch, after.release):
        raise UsageError(f"ROCm {old} cannot become {new}: that is another ROCm, to be built with")
    if before.local and not after.local:
        raise UsageError(f"ROCm {old} would lose its label", tip=f"say all: --rocm {new}+{before.local}")
    if after.is_prerelease or after == before:
        raise UsageError(f"--rocm {word}: {new} is {'a pre-release' if after != before else 'the old one'}")
    return old, new


def _require_project(document: SetDocument, name: str, option: str) -> str:
    project = canonicalize_name(name)
    if project not in document.projects:
        listed = ", ".join(document.projects)
        raise UsageError(
            f"{option} {name}: the set has no {name}{suggest_name(project, document.projects)}",
            tip=f"it has {listed}",
        )
    return project


def _parse_version(text: str, source: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as cause:
        raise UsageError(f"{source}: {text!r} is not a version (PEP 440)") from cause


def map_versions(
    document: SetDocument, versions: Mapping[str, str]
) -> Mapping[str, Mapping[Version, Version]]:
    """Return the new versions of each project by the old ones. Raises ReleaseError where one becomes two."""
    moved: dict[str, dict[Version, Version]] = {}
    for file in document.files:
        old, new = Version(file.version), Version(versions[file.name])
        if moved.setdefault(file.project, {}).setdefault(old, new) != new:
            version_pair = f"{moved[file.project][old]} and {new}"
            raise ReleaseError(
                f"{file.project} {old} would become {version_pair}",
                tip=f"say one: --to {file.project}=VERSION",
            )
    for project, pairs in moved.items():
        if duplicate := _find_duplicate(pairs.values()):
            raise ReleaseError(f"two versions of {project} would become {duplicate}")
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


def read_keep_list(text: str, document: SetDocument) -> tuple[str, ...]:
    """Return the targets of ``--keep-gfx``, families expanded. Raises UsageError for one without code."""
    targets = tuple(
        dict.fromkeys(
            strip_features(target) for target in parse_targets(text, input_name=KEEP_TARGETS_OPTION)
        )
    )
    if missing := [target for target in targets if target not in document.targets]:
        raise UsageError(
            f"{KEEP_TARGETS_OPTION}: {document.id} has no code for {', '.join(missing)}",
            tip=f"it has code for {', '.join(document.targets)}",
        )
    return targets


def select_files(document: SetDocument, targets: Sequence[str]) -> tuple[SetFile, ...]:
    """Return the wheels of a set for some targets: all without targets. Raises ReleaseError if those are all.

    Of wheels that stay with code for other targets inside, a warning tells.
    """
    if not targets:
        return document.files
    selected = tuple(file for file in document.files if _is_kept(file, targets))
    if len(selected) == len(document.files):
        raise ReleaseError(
            f"no wheel of {document.id} is for other targets than {', '.join(targets)} alone",
            tip="code for several targets in one wheel stays together: build and stage it for fewer",
        )
    for file in selected:
        if other_targets := [target for target in file.targets if strip_features(target) not in targets]:
            log_warning(f"{file.name} stays, and holds code for {', '.join(other_targets)}, too")
    return selected


def select_requirements(requires: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the requirements without those on parts of other targets, and without those of their extras."""
    return [text for text in requires if not targets or _is_kept_requirement(text, targets)]


def select_extras(extras: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the extras without those of other targets (``device-gfx90a``)."""
    return [extra for extra in extras if not targets or _serves_targets(canonicalize_name(extra), targets)]


def _is_kept(file: SetFile, targets: Sequence[str]) -> bool:
    if _DEVICE_PROJECT.fullmatch(file.project):
        return _serves_targets(file.project, targets)
    if file.label and file.targets:
        return any(strip_features(target) in targets for target in file.targets)
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


_EXACT_PIN = re.compile(r"(?P<pin>===?\s*)(?P<version>[^\s,;()]+)")
NewVersions = Mapping[str, Mapping[Version, Version]]  # by project: new versions by old ones


def rewrite_requirement(text: str, new_versions: NewVersions, rocm: Mapping[Version, Version]) -> str:
    """Return a requirement (the value of Requires-Dist) with the pins of the new set.

    ``rocm`` maps versions of ROCm's packages, where they are renamed. Name, extras and marker stay.
    Raises ReleaseError for one that admitted the old version and not the new one.
    """
    requirement = Requirement(text)
    name = canonicalize_name(requirement.name)
    pairs = new_versions.get(name) or (rocm if ROCM_PROJECT_NAMES.fullmatch(name) else {})
    if requirement.url or not pairs:
        return text
    head, semicolon, marker = text.partition(";")  # no name, extra or version has one

    def follow(match: re.Match[str]) -> str:
        return match["pin"] + _follow_pin(match["version"], pairs)

    new = _EXACT_PIN.sub(follow, head) + semicolon + marker
    rewritten = Requirement(new)
    if (rewritten.name, rewritten.extras, str(rewritten.marker)) != (
        requirement.name,
        requirement.extras,
        str(requirement.marker),
    ):
        raise ReleaseError(f"{text!r} cannot be rewritten: it would become {new!r}")
    for old, version in pairs.items():
        was = requirement.specifier.contains(old, prereleases=True)
        if was and not rewritten.specifier.contains(version, prereleases=True):
            raise ReleaseError(f"it requires {text}, which {version} is not")
    return new


def _follow_pin(pinned: str, pairs: Mapping[Version, Version]) -> str:
    try:
        version = Version(pinned)
    except InvalidVersion:
        return pinned  # 2.9.*
    for old, new in pairs.items():
        if version == old:
            return pinned if new == old else str(new)
        if version.local is None and version.public == old.public:
            return pinned if new.public == old.public else new.public
    return pinned


_VERSION_MODULES = ("version.py", "_version.py", "__init__.py")


def list_version_files(project: Project) -> tuple[str, ...]:
    """Return the members of a project's wheels in which a version may be."""
    module_paths = tuple(f"{project.checks.import_name}/{name}" for name in _VERSION_MODULES)
    return (*module_paths, project.checks.rocm_init) if project.checks.rocm_init else module_paths


def rewrite_version_files(
    texts: Mapping[str, bytes],
    project: Project,
    versions: tuple[str, str],
    rocm: tuple[str, str] | None,
) -> dict[str, bytes]:
    """Return those of the files that change. ``versions`` and ``rocm`` are old and new.

    Raises ReleaseError for a file that is no Python, or that asks for a ROCm that is not the old one.
    """
    changed: dict[str, bytes] = {}
    for name, content in texts.items():
        tree = _parse_python(content, name)
        if name == project.checks.rocm_init:
            new = content if rocm is None else _rewrite_rocm_version(content, tree, name, rocm)
        else:
            new = _rewrite_version(content, tree, name, versions, rocm)
        if new != content:
            _parse_python(new, name)
            changed[name] = new
    return changed


def _parse_python(content: bytes, name: str) -> ast.Module:
    try:
        return ast.parse(content, filename=name)
    except (SyntaxError, ValueError) as wrong:
        raise ReleaseError(f"{name} is not Python, and may hold a version: {wrong}") from wrong


def _rewrite_version(
    content: bytes, tree: ast.Module, name: str, versions: tuple[str, str], rocm: tuple[str, str] | None
) -> bytes:
    old, new = map(Version, versions)
    for value in _find_version_strings(tree):
        try:
            stated = Version(str(value.value))
        except InvalidVersion:
            stated = None
        if stated is not None and stated.public == old.public:
            text = _make_stated_version(stated, old, new, rocm)
            content = _replace_string(content, value, text, name) if Version(text) != stated else content
        elif stated is None or stated.public != new.public:
            log_warning(
                f"{name} says {value.value!r}, which is not the version of its wheel, {old}: it stays"
            )
    return content


def _make_stated_version(stated: Version, old: Version, new: Version, rocm: tuple[str, str] | None) -> str:
    """Return what a file says of the new version. Files of variants have the label that their wheel lost."""
    if stated.local == old.local:
        return str(new)
    if stated.local is None:
        return new.public
    label = rename_rocm_in_label(stated.local, rocm) if rocm else None
    return f"{new.public}+{label or stated.local}"


def _find_version_strings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__version__" for target in targets):
            value = node.value  # type: ignore[attr-defined]
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def _rewrite_rocm_version(content: bytes, tree: ast.Module, name: str, rocm: tuple[str, str]) -> bytes:
    stated_values = [
        keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "check_version"
    ]
    if (
        len(stated_values) != 1
        or not isinstance(stated_values[0], ast.Constant)
        or stated_values[0].value != rocm[0]
    ):
        raise ReleaseError(f"{name} does not ask for ROCm {rocm[0]} in the way that can be rewritten")
    return _replace_string(content, stated_values[0], rocm[1], name)


def _replace_string(content: bytes, value: ast.Constant, text: str, name: str) -> bytes:
    """Return a file with another text in the place of a string; its quotes stay."""
    lines = content.splitlines(keepends=True)
    line = lines[value.lineno - 1]
    old = line[value.col_offset : value.end_col_offset]
    if value.end_lineno != value.lineno or old[1:-1] != str(value.value).encode() or old[:1] not in b"'\"":
        raise ReleaseError(f"{name}:{value.lineno}: {old.decode(errors='replace')} cannot be rewritten")
    new = old[:1] + text.encode() + old[:1]
    lines[value.lineno - 1] = line[: value.col_offset] + new + line[value.end_col_offset :]
    return b"".join(lines)
