"""Find out how the wheels of a set are built again: from its document, its locks and its statements alone.

A statement (``pipeline/build_statement.py``) says what its build was asked for, and names each file that was
installed for it with its digest; the lock of the set has the sources. Both together are a lock with tools,
and a request: what a person would give to ``checkout --lock`` and ``build --lock``. Wheels that were built
alike, of one lock and for one Python, are built together.

What another machine cannot know is refused at once, not worked around: a statement that says too little, a
tree that somebody had changed, a package that came from no file, and what was done to a wheel by hand after
its build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

from packaging.utils import canonicalize_name
from pydantic import Field, ValidationError, model_validator

from rocm_wheels.compile import variables
from rocm_wheels.core import errors, records, tables
from rocm_wheels.models import project_names
from rocm_wheels.models.lock import Lock, LockedPackage, LockedTools, Sha256Digest
from rocm_wheels.models.project import load_project
from rocm_wheels.release import set_conflicts, set_needs, set_statements, wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores.store import Store
from rocm_wheels.variants import device_names
from rocm_wheels.wheels import statement

# what `build --packaging` does after a build, as `set package` does later; other steps are somebody's own
_PACKAGING_OF_STEP: Mapping[str, project_names.PackagingMode] = {
    "split": "split",
    "fat": "fat",
    "stamp": "variant",
}


_SHOWN_DIGEST = 12  # letters
_PYTHON_URI = re.compile(r"pkg:generic/python@(3\.\d+\.\d+\w*)")


class _Digest(records.Record):
    sha256: Sha256Digest


class BuildParameters(records.Record):
    """What a build was asked for, as its statement has it (``externalParameters``).

    Texts are as options of ``build`` have them; what was not given is "" or None. ``targets`` are those
    compiled for, of a wheel with device code. ``rocm``, ``version-suffix``: what came of it.
    """

    command: str
    project: str
    platform: project_names.Platform
    python: Annotated[str, records.require_pattern(r"cp3\d+t?", "a tag such as cp312 or cp313t")]
    targets: tuple[str, ...] = ()
    rocm: str = ""
    packaging: project_names.PackagingMode
    release_type: str = Field(alias="release-type")
    build_number: str = Field(alias="build-number")
    version_suffix: str = Field(default="", alias="version-suffix")
    asked_suffix: str | None = Field(default=None, alias="asked-suffix")
    unlisted_targets: bool = Field(default=False, alias="unlisted-targets")
    flash_attention: bool | None = Field(default=None, alias="flash-attention")
    installed_rocm: str = Field(default="", alias="installed-rocm")
    recipe: _Digest
    lock: _Digest | None = None
    repair: bool
    platform_tag: str | None = Field(default=None, alias="platform-tag")


class BuildVariables(records.Record):
    """The variables of a build (``internalParameters``): ``shell`` and ``set-env`` are to be set again."""

    environment: Mapping[str, str] = {}
    shell: Mapping[str, str] = {}
    set_env: Mapping[str, str] = Field(default={}, alias="set-env")
    withheld: tuple[str, ...] = ()
    withheld_set: tuple[str, ...] = Field(default=(), alias="withheld-set")

    @model_validator(mode="after")
    def _check_names(self) -> BuildVariables:
        for name, text in (*self.shell.items(), *self.set_env.items()):
            if not variables.is_configuration_variable(name, text) and name not in variables.USER_VARIABLES:
                raise ValueError(f"{name} is no variable that configures builds")
        return self


class DependencyNotes(records.Record):
    """What is noted of a dependency (``annotations``): where a source is, the file a package came from."""

    path: str = ""
    patches: str = Field(default="", alias="patches-sha256")
    changed_tree: str = Field(default="", alias="changed-tree")
    record: str = Field(default="", alias="record-sha256-begins")
    file: str = ""
    installed_with: Literal["", "rocm", "tools"] = Field(default="", alias="installed-with")


@dataclass(frozen=True)
class BuiltWheel:
    """A wheel of a set, and how it was built; ``steps``: what was done to it after that."""

    file: wheel_set.SetFile
    build: statement.ProvenanceStatement
    parameters: BuildParameters
    variables: BuildVariables
    steps: frozenset[str]


@dataclass(frozen=True)
class Rebuild:
    """Wheels that are built together; ``compared`` are those of them that were asked for.

    ``lock`` has the tools of their builds, ``python`` (``3.12``) is whom they are for. ``packaging``: that of
    the set, whenever they were packaged. ``given``: wheels that these are built against, and that are not
    built, by project: of the set, or of another one of its family.
    """

    lock: Lock
    python: str
    packaging: project_names.PackagingMode
    wheels: tuple[BuiltWheel, ...]
    compared: tuple[BuiltWheel, ...]
    given: Mapping[str, wheel_set.SetFile] = field(default_factory=dict)
    targets: tuple[str, ...] = ()

    @property
    def projects(self) -> tuple[str, ...]:
        """What is built, by the names of recipes."""
        return tuple(sorted({wheel.parameters.project for wheel in self.wheels}))

    @property
    def parameters(self) -> BuildParameters:
        """What all were asked for; of torch where it is among them, for it has options of its own."""
        return next((w for w in self.wheels if w.parameters.project == "pytorch"), self.wheels[0]).parameters

    @property
    def python_release(self) -> str:
        """The Python that they were built with, ``3.12.11``: a version, never a program to be run."""
        entries = (entry for wheel in self.wheels for entry in wheel.build.dependencies)
        matches = (_PYTHON_URI.fullmatch(entry.get("uri", "")) for entry in entries)
        return next((match[1] for match in matches if match is not None), self.python)

    @property
    def shell(self) -> dict[str, str]:
        """The variables that were set for all projects."""
        return {name: text for wheel in self.wheels for name, text in wheel.variables.shell.items()}

    @property
    def set_env(self) -> dict[str, Mapping[str, str]]:
        """The variables that were set for single projects."""
        return {wheel.parameters.project: wheel.variables.set_env for wheel in self.wheels}

    @property
    def withheld(self) -> tuple[str, ...]:
        """The names of variables that the user had set, and whose values no statement has."""
        return tuple(sorted({name for wheel in self.wheels for name in wheel.variables.withheld_set}))

    @property
    def images(self) -> set[str]:
        """The images of containers that they were built in: name and digest, ``build@sha256:…``."""
        images = set[str]()
        for wheel in self.wheels:
            for entry in wheel.build.dependencies:
                if str(entry.get("uri", "")).startswith("docker:"):
                    digest = entry.get("digest", {}).get("sha256")
                    name = str(entry["uri"]).removeprefix("docker:")
                    images.add(f"{name}@sha256:{digest}" if digest else name)
        return images


def plan_rebuilds(
    store: Store, document: wheel_set.SetDocument, projects: Sequence[str] = ()
) -> tuple[Rebuild, ...]:
    """Return what is to be built to have the wheels of a set again; only those of ``projects``, if any.

    ``projects`` are names of wheels, or of recipes. Raises UsageError for one that the set has not, and
    ReleaseError that names the first wheel of which too little is known, or that is beyond a build.
    """
    chosen = {_find_wheel_name(document, name) for name in projects}
    paths, built, faults = FamilyPaths(document.family), list[BuiltWheel](), list[str]()
    locks = {item.digest: wheel_set.read_set_lock(store, document, item) for item in document.locks}
    first_lock = document.locks[0].digest
    for file in document.files:
        try:
            origin = set_statements.read_stored_origin(store, paths, file)
            wheel = _read_build(file, origin)
            _require_known_parts(wheel)
        except errors.RocmWheelsError as fault:
            if not chosen or _get_host(file) in chosen:
                faults.append(f"{file.name}: {errors.explain_error(fault)}")
            continue
        built.append(wheel)
    if faults:
        more = f"; and {tables.format_count(len(faults) - 1, 'other wheel')} likewise" if faults[1:] else ""
        raise errors.ReleaseError(
            f"{document.id} cannot be built again: {faults[0]}{more}",
            tip="name those that can: --project NAME; or build the set anew, and stage that",
        )
    groups: dict[tuple[object, ...], list[BuiltWheel]] = {}
    for wheel in built:
        asked = wheel.parameters
        key = (
            wheel.file.lock or first_lock,
            *(asked.python, asked.release_type, asked.asked_suffix, asked.repair),
            *(asked.platform_tag, asked.installed_rocm, asked.unlisted_targets),
        )
        groups.setdefault(key, []).append(wheel)
    rebuilds, needs = (
        [],
        set_needs.list_needs(document, set_conflicts.read_all_requirements(store, paths, document)),
    )
    for (lock_digest, *_), wheels in groups.items():
        compared = [wheel for wheel in wheels if not chosen or _get_host(wheel.file) in chosen]
        if compared:
            packaging = _find_packaging(document, built, wheels)
            lock = locks[str(lock_digest)]
            plan = _plan_group(document, compared, wheels, built, lock=lock, packaging=packaging)
            outside = {
                name: _find_in_other_sets(store, document, plan, load_project(name).normalized_name, needs)
                for project in plan.projects
                for name in load_project(project).build.needs
                if name not in {*plan.projects, *plan.given}
            }
            rebuilds.append(replace(plan, given={**plan.given, **outside}))
    return tuple(rebuilds)


def _find_packaging(
    document: wheel_set.SetDocument, built: Iterable[BuiltWheel], group: Sequence[BuiltWheel]
) -> project_names.PackagingMode:
    """Return how a set is packaged: a wheel without device code in it is as it would be in any other."""
    steps = {step for wheel in built for step in wheel.steps}
    if len(steps) > 1:
        raise errors.ReleaseError(
            f"{document.id} has wheels after {' and '.join(f'`wheel {step}`' for step in sorted(steps))}: one"
            " build makes only one of them",
            tip="stage them as sets of their own",
        )
    return _PACKAGING_OF_STEP[steps.pop()] if steps else group[0].parameters.packaging


def _find_wheel_name(document: wheel_set.SetDocument, name: str) -> str:
    """Return the project of the set that is called so, or whose recipe is. UsageError for none."""
    recipe = name.replace("-", "_")
    named = load_project(recipe).normalized_name if recipe in project_names.find_recipes() else name
    if (wheel_name := canonicalize_name(named)) not in document.projects:
        hosts = sorted({_get_host(file) for file in document.files})
        raise errors.UsageError(
            f"--project: {document.id} has no {name}{tables.suggest_name(name, hosts)}",
            tip=f"it has {', '.join(hosts)}",
        )
    return wheel_name


def _get_host(file: wheel_set.SetFile) -> str:
    """Return the project that a wheel is of; of a device wheel that of its host."""
    return device_names.find_host_project(file.project) or file.project


def _read_build(file: wheel_set.SetFile, origin: statement.WheelOrigin | None) -> BuiltWheel:
    """Return how a wheel was built. Raises DataError for what its statements leave open."""
    if origin is None:
        raise errors.DataError("it has no statement that says how it was built")
    newest = statement.parse_statement(origin.statement, name="its statement")
    every = [newest, *(inner for inner, _ in statement.walk_statements(newest))]
    builds = [item for item in every if item.build_type == statement.BUILD_TYPE]
    if len(builds) != 1:
        raise errors.DataError(f"it was made of {tables.format_count(len(builds), 'build')}, not of one")
    if "recipe" not in builds[0].parameters:
        raise errors.DataError(
            f"its statement, by rocm-wheels {_get_version(builds[0])}, is too old: it does not say all that"
            " its build was given"
        )
    definition = builds[0].predicate["buildDefinition"]
    parameters = _read_part(BuildParameters, definition["externalParameters"], "what was asked for")
    build_variables = _read_part(BuildVariables, definition.get("internalParameters", {}), "variables")
    texts = [str(item.parameters.get("step")) for item in every if item is not builds[0]]
    steps = frozenset(text.partition(" ")[0] for text in texts)  # "split gfx942 gfx1100"
    if beyond := steps - _PACKAGING_OF_STEP.keys():
        raise errors.DataError(
            f"after its build came `wheel {sorted(beyond)[0]}`, which no statement says whole"
        )
    if steps and parameters.packaging == "asan":
        raise errors.DataError(
            f"it has AddressSanitizer, and `wheel {sorted(steps)[0]}` behind it: no build does both"
        )
    return BuiltWheel(file, builds[0], parameters, build_variables, steps)


def _require_known_parts(wheel: BuiltWheel) -> None:
    """Raise DataError for a wheel that was built of something that nobody else can have."""
    if wheel.parameters.lock is None:
        raise errors.DataError("it was built without a lock")
    for entry in wheel.build.dependencies:
        notes = _read_notes(entry)
        if notes.changed_tree:
            raise errors.DataError("somebody had changed the sources that it was built from")
        if notes.record and not notes.file:
            raise errors.DataError(
                f"it was built with a {entry.get('name')} that came from no file with a digest"
            )
        if notes.file:
            _read_package(entry, notes)


RecordT = TypeVar("RecordT", bound=records.Record)


def _read_part(kind: type[RecordT], value: object, about: str) -> RecordT:
    """Return a part of a statement. DataError for one that this version does not write."""
    try:
        return kind.model_validate(value)
    except ValidationError as wrong:
        faults = records.summarize_faults(wrong, kind)
        raise errors.DataError(
            f"its statement is of another version than this tool ({about}): {faults}"
        ) from None


def _read_notes(entry: Mapping[str, Any]) -> DependencyNotes:
    return _read_part(DependencyNotes, entry.get("annotations", {}), str(entry.get("name")))


def _read_package(entry: Mapping[str, Any], notes: DependencyNotes) -> LockedPackage:
    """Return a package as a lock has it: its version is in the URL. DataError without a digest."""
    version = unquote(str(entry.get("uri", "")).rpartition("@")[2])
    files = {notes.file: entry.get("digest", {}).get("sha256", "")}
    return _read_part(LockedPackage, {"version": version, "files": files}, str(entry.get("name")))


def _plan_group(
    document: wheel_set.SetDocument,
    compared: Sequence[BuiltWheel],
    group: Sequence[BuiltWheel],
    every: Iterable[BuiltWheel],
    *,
    lock: Lock,
    packaging: project_names.PackagingMode,
) -> Rebuild:
    """Return the build of some wheels of a group, and of those of it that they are built against.

    A wheel of the set as it was built stands for one that is not asked for; what was packaged since does not.
    """
    tag, wanted = compared[0].parameters.python, {wheel.parameters.project for wheel in compared}
    given: dict[str, wheel_set.SetFile] = {}
    pending = sorted(wanted)
    while pending:
        for name in load_project(pending.pop()).build.after:
            if name in wanted or name in given or name not in lock.projects:
                continue
            made = [
                wheel
                for wheel in every
                if (wheel.parameters.project, wheel.parameters.python) == (name, tag)
                and wheel.file.project == load_project(name).normalized_name
            ]
            plain = next((wheel for wheel in made if not wheel.steps and not wheel.file.label), None)
            if plain is not None:
                given[name] = plain.file
            elif any(wheel.parameters.project == name for wheel in group):
                wanted.add(name)
                pending.append(name)
    python = f"3.{tag.removeprefix('cp3')}"
    if python not in lock.tools:
        lock = lock.replace_tools({**lock.tools, python: _collect_tools(group, wanted)})
    targets = next((wheel.parameters.targets for wheel in group if wheel.parameters.targets), ())
    return Rebuild(
        lock,
        python,
        packaging,
        tuple(wheel for wheel in group if wheel.parameters.project in wanted),
        tuple(compared),
        given,
        () if lock.targets else targets or wheel_set.list_set_targets(document),
    )


def _find_in_other_sets(
    store: Store,
    document: wheel_set.SetDocument,
    planned: Rebuild,
    project: str,
    needs: Iterable[set_needs.Need],
) -> wheel_set.SetFile:
    """Return the wheel that a companion alone is built against: the one of the store that its pin names.

    Raises ReleaseError where no set of the family has it, or sets have it with several bytes.
    """
    own = [need for need in needs if need.project == project]
    files = {
        file.sha256: file
        for other in wheel_set.read_family_sets(store, document.family).documents
        for file in other.files
        if file.project == project
        and planned.python in (wheel_set.list_wheel_pythons(file.name) or {planned.python})
        and own
        and all(need.accepts(file.version) for need in own)
    }
    if len(files) != 1:
        wanted = ", ".join(dict.fromkeys(map(str, own))) or project
        count = tables.format_count(len(files), "wheel")
        raise errors.ReleaseError(
            f"{document.id} was built against {wanted} for Python {planned.python}, and sets of"
            f" {document.family} in {store.url} have {count} of it",
            tip="stage the set that it was built against into this store",
        )
    return next(iter(files.values()))


def _collect_tools(wheels: Iterable[BuiltWheel], projects: Iterable[str]) -> LockedTools:
    """Return all that was installed to build wheels, as a lock has it."""
    rocm: dict[str, LockedPackage] = {}
    tools: dict[str, dict[str, LockedPackage]] = {project: {} for project in projects}
    for wheel in wheels:
        for entry in wheel.build.dependencies:
            notes, name = _read_notes(entry), str(entry.get("name", ""))
            if notes.installed_with == "rocm":
                rocm[name] = _read_package(entry, notes)
            elif notes.installed_with == "tools" and wheel.parameters.project in tools:
                tools[wheel.parameters.project][name] = _read_package(entry, notes)
    return LockedTools(rocm=dict(sorted(rocm.items())), projects=tools)


def list_differences(then: statement.ProvenanceStatement, now: statement.ProvenanceStatement) -> list[str]:
    """Return in what two builds differ that made one wheel: ``cmake 4.0.3, here 4.1.0``; [] in nothing known.

    Names, versions and digests are compared, not times or runs.
    """
    lines = []
    versions = [_get_version(item) for item in (then, now)]
    if versions[0] != versions[1]:
        lines.append(f"rocm-wheels {versions[0]}, here {versions[1]}")
    sides = [_list_parts(each) for each in (then, now)]
    for key in sorted(sides[0].keys() | sides[1].keys()):
        old, new = (side.get(key, "none") for side in sides)
        if old != new:
            lines.append(f"{key[0]} {old}, here {new}")
    return lines


def _list_parts(build: statement.ProvenanceStatement) -> dict[tuple[str, str], str]:
    """Return what a build was given and asked for, its variables too, in words, by name and kind."""
    internal = build.predicate["buildDefinition"].get("internalParameters", {})
    parts = {(name, "variable"): str(text) for name, text in internal.get("environment", {}).items()}
    parts |= {
        (name, ""): str(value.get("sha256", ""))[:_SHOWN_DIGEST] if isinstance(value, Mapping) else str(value)
        for name, value in build.parameters.items()
    }
    for entry in build.dependencies:
        digest, uri = entry.get("digest", {}), str(entry.get("uri", ""))
        strongest = str(digest.get("sha256") or digest.get("gitCommit") or "")[:_SHOWN_DIGEST]
        words = (unquote(uri.rpartition("@")[2]) if "@" in uri else "", f"({strongest})" if strongest else "")
        parts[str(entry.get("name", uri)), uri.partition("/")[0] or "file"] = " ".join(filter(None, words))
    return parts


def _get_version(build: statement.ProvenanceStatement) -> str:
    """Return the version of this tool that built a wheel."""
    versions = build.predicate["runDetails"]["builder"].get("version")
    return str(versions.get("rocm-wheels", "unknown")) if isinstance(versions, Mapping) else "unknown"
