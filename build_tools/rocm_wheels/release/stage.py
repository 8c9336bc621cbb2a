"""Stage a set: check its wheels, derive its document, write it in an order in which no end does harm.

Each rule of the plan returns what is wrong before anything is sent. What a set should hold follows from its
locks.

Then it is written:

1. the files of the pool, each at the place that its sha256 says; what is there is not sent again
2. a look at all of them in the store
3. its pages
4. ``set.json``: the set is there
5. a look at what was found present: a prune may have taken what no document named

Of a set that is there, what the store has lost since is sent again, and nothing else is touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.audit import contents, metadata
from rocm_wheels.core import errors, log, parallel, records, tables
from rocm_wheels.index.folder import JSON_PAGE, METADATA_SUFFIX
from rocm_wheels.models import ci, gfx
from rocm_wheels.models.lock import Lock
from rocm_wheels.models.project import Project
from rocm_wheels.package import version_edit
from rocm_wheels.release import set_conflicts, set_needs, staged_wheels, wheel_set
from rocm_wheels.release.pages import make_index_pages
from rocm_wheels.release.staged_wheels import SetSource, SetSources, StagedWheel
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores import store as stores
from rocm_wheels.stores.store import Store
from rocm_wheels.variants import device_names
from rocm_wheels.wheels import statement
from rocm_wheels.wheels.python_tags import accepts_python, find_single_python
from rocm_wheels.wheels.scan import WheelScan

_MOST_FAULTS_SHOWN = 30
_MOST_NAMES_SHOWN = 10
_SEND_JOBS = 4  # a large file goes in parts, several at a time
_NOT_STAGED = "1970-01-01T00:00:00Z"  # what a planned document says, until the store has a moment


# ---- what a set should hold


def plan_cells(
    sources: SetSources, family: str, layout: wheel_set.SetLayout, wheels: Sequence[StagedWheel]
) -> tuple[tuple[wheel_set.SetCell, ...], tuple[wheel_set.SetCell, ...]]:
    """Return the cells that the set of some locks should hold, and those of them that no wheel fills.

    What a lock leaves open is as the wheels have it. A target counts where the recipe has a library with code
    for all targets. A wheel whose code was moved out has the targets of its parts (``…-device-…``). Of
    several locks, each wants wheels for its own ROCm; one that serves any ROCm is enough for all. Of a
    companion alone the rest is another set's.
    """
    planned: dict[wheel_set.SetCell, None] = {}
    missing: dict[wheel_set.SetCell, None] = {}
    for source in sources.all:
        lock, rocm = source.lock, (source.rocm or "") if sources.has_several else ""
        usable = [
            wheel
            for wheel in wheels
            if not rocm or wheel.file.for_any_rocm or sources.source_of(wheel).rocm == rocm
        ]
        targets = list_lock_targets(lock, family, layout) or sorted(
            {target for wheel in sources.wheels_of(source, wheels) for target in wheel.file.targets}
        )
        pythons = lock.pythons or {python for wheel in wheels if (python := find_single_python(wheel.tags))}
        for project in (item for item in source.projects if _is_planned(item, source, wheels)):
            rules = project.list_device_code_rules(lock.platform)
            has_code = any(rule.expect == "all" and rule.required for rule in rules)
            for cell in wheel_set.make_planned_cells(
                [(project.distribution, has_code)], sorted(pythons), targets
            ):
                rocm_cell = cell.model_copy(update={"rocm": rocm})
                planned[rocm_cell] = None
                if not _is_filled(cell, project, usable):
                    missing[rocm_cell] = None
    return tuple(planned), tuple(missing)


def _is_planned(project: Project, source: SetSource, wheels: Sequence[StagedWheel]) -> bool:
    """Tell whether a set should have a project of its lock.

    Of a companion alone under the lock of its torch, which its exact pin names, the rest is of other sets.
    """
    brought = {wheel.file.project for wheel in wheels}
    if project.normalized_name in brought or wheel_set.TORCH_PROJECT in brought:
        return True
    pins = {
        canonicalize_name(requirement.name)
        for wheel in wheels
        for requirement in wheel.requires
        if metadata.get_exact_version(requirement)
    }
    return pins.isdisjoint(other.normalized_name for other in source.projects)


def list_lock_targets(lock: Lock, family: str, layout: wheel_set.SetLayout) -> list[str]:
    """Return the targets that a lock wants wheels of a set for; [] where it leaves that open."""
    lock_targets = gfx.parse_targets(",".join(lock.targets)) if lock.targets else ()
    bases = list(dict.fromkeys(gfx.strip_features(target) for target in lock_targets))
    if layout != "per-family":
        return bases
    family_targets = gfx.get_gfx_families()[family]
    return [target for target in bases if target in family_targets] or ([] if bases else list(family_targets))


def _is_filled(cell: wheel_set.SetCell, project: Project, wheels: Sequence[StagedWheel]) -> bool:
    fitting = [wheel for wheel in wheels if accepts_python(wheel.tags, cell.python)]
    for wheel in (wheel for wheel in fitting if wheel.file.project == cell.project):
        parts = [wheel]
        if wheel.elsewhere:
            parts += [part for part in fitting if staged_wheels.find_recipe(part.file.project, [project])]
        if not cell.target or any(cell.target in part.file.targets for part in parts):
            return True
    return False


# ---- what is no set


def find_usual_layout(family: str) -> wheel_set.SetLayout:
    """Return the layout of a family: those that are no GPU family are called by it."""
    return next((layout for layout in wheel_set.SET_LAYOUTS if layout == family), "per-family")


def check_family(family: str, layout: wheel_set.SetLayout) -> None:
    """Raise UsageError for a family and a layout that do not go together."""
    gpu_families = gfx.get_gfx_families()
    if layout == ci.MULTI_ARCH and family in gpu_families:
        raise errors.UsageError(
            f"wheels of {layout} are for all GPU families, and --family says {family}",
            tip=f"--family {ci.MULTI_ARCH}; or without --layout, where they are for {family} alone",
        )
    if layout == "per-family" and family not in gpu_families:
        raise errors.UsageError(
            f"--family {family} is no GPU family{tables.suggest_name(family, gpu_families)}",
            tip=f"families: {', '.join(gpu_families)}; or multi-arch, for wheels of all of them",
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", family):
        raise errors.UsageError(f"--family {family!r} cannot be the name of a folder in a store")


def find_set_version(wheels: Sequence[StagedWheel]) -> str:
    """Return the version of a set: torch's, else the one that all wheels have. ReleaseError for several."""
    torch = {wheel.file.version for wheel in wheels if wheel.file.project == "torch"}
    versions = torch or {wheel.file.version for wheel in wheels}
    if len(versions) > 1:
        has_one = "a set has one torch" if torch else "wheels of a set without torch have one version"
        raise errors.ReleaseError(
            f"{has_one}, these are {', '.join(sorted(versions))}", tip="stage a set for each"
        )
    return versions.pop()


@dataclass(frozen=True)
class StageSubject:
    """All that the rules look at."""

    wheels: Sequence[StagedWheel]
    sources: SetSources
    family: str
    layout: wheel_set.SetLayout


def check_set(subject: StageSubject) -> None:
    """Raise ReleaseError that lists everything that is wrong."""
    ours = set_needs.list_own_projects()
    by_project: dict[str, list[StagedWheel]] = {}
    for wheel in subject.wheels:
        by_project.setdefault(wheel.file.project, []).append(wheel)
    names = [wheel.file.name for wheel in subject.wheels]
    faults = []
    for wheel in subject.wheels:
        source = subject.sources.source_of(wheel)
        project = staged_wheels.find_recipe(wheel.file.project, source.projects)
        if project is None:
            faults.append(f"{wheel.file.name}: nothing in the lock builds {wheel.file.project}")
            continue
        of_wheel = [
            f"{finding.subject}: {finding.message}"
            for finding in contents.find_disallowed_contents(wheel.scan.contents, wheel.file.project, project)
        ]
        of_wheel += _check_targets(wheel, project, subject)
        of_wheel += _check_device_wheels(wheel, by_project)
        of_wheel += staged_wheels.find_lock_faults(wheel, source.lock)
        machine = wheel_set.make_marker_environment(wheel.file.name, names, source.lock.platform)
        for requirement in wheel.requires:
            if requirement.marker is None or requirement.marker.evaluate(machine):
                of_wheel += _check_requirement(requirement, wheel, by_project, subject, ours)
        faults += [f"{wheel.file.name}: {fault}" for fault in of_wheel]
    files = [wheel.file for wheel in subject.wheels]
    faults += [
        f"{fat.name}: it carries its ROCm, and {thin.name} requires ROCm's packages: installers take either"
        for fat, thin in set_conflicts.find_rivals(files, files)
        if fat.carries_rocm and not thin.carries_rocm
    ]
    if mixed := set_conflicts.find_asan_mixture(files):
        faults.append(f"{mixed[0]}: it has AddressSanitizer, and {mixed[1]} has not")
    if faults:
        shown = faults[:_MOST_FAULTS_SHOWN]
        shown += [f"… and {len(faults) - len(shown)} more"] if len(faults) > len(shown) else []
        raise errors.ReleaseError("\n".join(shown), tip="nothing was sent")


def _check_device_wheels(
    wheel: StagedWheel, by_project: Mapping[str, Sequence[StagedWheel]]
) -> Iterator[str]:
    """Tell which device wheels of a host wheel are missing, and of a selector that it is that of an index.

    All of them are visible with their host or none is: an extra that leads nowhere cannot be installed. A
    selector of an index would decide for every index of the store.
    """
    if device_names.is_selector(wheel.file.project) and any(item.extras for item in wheel.requires):
        yield "it is the selector of an index: stage the one that `wheel split` wrote with the host"
    required = {requirement.name: requirement.specifier for requirement in wheel.requires}
    for name, specifier in required.items() if wheel.elsewhere else ():
        project = canonicalize_name(name)
        if device_names.find_host_project(project) == wheel.file.project and not any(
            specifier.contains(part.file.version, prereleases=True) and part.tags & wheel.tags
            for part in by_project.get(project, ())
        ):
            yield f"its device wheel {name} {specifier} is not in the set"


def _check_targets(wheel: StagedWheel, project: Project, subject: StageSubject) -> Iterator[str]:
    """Tell which code is not the family's; where a wheel may serve all of them, which of the family's is not.

    One that was built for another family alone would have none for the GPUs of this one.
    """
    file, lock = wheel.file, subject.sources.source_of(wheel).lock
    if subject.layout == "variants" and not any(
        _is_usable_variant(wheel, other, subject) for other in subject.wheels
    ):
        yield (
            f"it has device code for {', '.join(file.targets)} and no variant label, and no variant here is"
            " the same for installers that know of variants"
        )
    if subject.layout != "per-family":
        return
    family_targets = gfx.get_gfx_families()[subject.family]
    if not (other_targets := [target for target in file.targets if target not in family_targets]):
        return
    fault = f"it has device code for {', '.join(other_targets)}, which {subject.family} has not"
    lock_targets = list_lock_targets(lock, subject.family, "per-family")
    missing = [target for target in lock_targets if target not in file.targets]
    if not project.serves_every_family(lock.platform):
        yield f"{fault} (wheels for several families: --family multi-arch)"
    elif missing:
        yield f"{fault}, and none for {', '.join(missing)}: built for all families, it would have both"


def _is_usable_variant(wheel: StagedWheel, counterpart: StagedWheel, subject: StageSubject) -> bool:
    """Tell whether a wheel has a label, or needs none: no device code, or another is the same with one."""
    if wheel.file.label or not wheel.file.targets:
        return True
    wheel_file, labelled = wheel.file, counterpart.file
    return (
        bool(labelled.label)
        and (labelled.project, labelled.version, labelled.targets)
        == (wheel_file.project, wheel_file.version, wheel_file.targets)
        and counterpart.tags == wheel.tags
        and subject.sources.source_of(counterpart) is subject.sources.source_of(wheel)
    )


def _check_requirement(
    requirement: Requirement,
    wheel: StagedWheel,
    by_project: Mapping[str, Sequence[StagedWheel]],
    subject: StageSubject,
    ours: frozenset[str],
) -> Iterator[str]:
    """Tell why a requirement cannot be met inside the set, from ROCm's index or from PyPI."""
    name = canonicalize_name(requirement.name)
    if requirement.url:
        yield f"it requires {requirement}: a place, which is not in the set"
    elif name in by_project:
        python = find_single_python(wheel.tags)
        fitting = [item for item in by_project[name] if python is None or accepts_python(item.tags, python)]
        versions = sorted({item.file.version for item in fitting})
        if not fitting:
            yield f"it requires {requirement}, and the set has no {name} for Python {python}"
        elif not any(requirement.specifier.contains(version, prereleases=True) for version in versions):
            yield f"it requires {requirement}, the set has {name} {', '.join(versions)}"
    elif version_edit.ROCM_PROJECT_NAMES.fullmatch(name):
        rocm = subject.sources.source_of(wheel).rocm
        if rocm and not requirement.specifier.contains(rocm, prereleases=True):
            yield f"it requires {requirement}, the lock says ROCm {rocm}"
    elif name in ours:
        if wheel_set.TORCH_PROJECT in by_project:  # else it is a companion's, for a torch of another set
            yield f"it requires {requirement}, which is not in the set"
    elif any("+" in item.version for item in requirement.specifier):
        yield f"it requires {requirement}: PyPI has no versions with a local part"


# ---- the set that is to be staged


@dataclass(frozen=True)
class StagePlan:
    """A set that is to be staged; ``when`` is the time at which the store says that it was begun."""

    paths: FamilyPaths
    wheels: Sequence[StagedWheel]
    document: wheel_set.SetDocument  # as it will be, without that time
    locks: Mapping[str, bytes]  # by their sha256

    @property
    def index(self) -> str:
        """The path of the set's index."""
        return f"{self.paths.set_index(self.document.id)}/"

    def list_unlocked(self) -> list[str]:
        """Return the wheels without a lock inside; that of a device wheel is its host's."""
        unlocked = [wheel.file for wheel in self.wheels if wheel.lock is None]
        return [file.name for file in unlocked if device_names.find_host_project(file.project) is None]

    def list_needs(self) -> list[str]:
        """Return what the wheels require of our projects that the set does not bring: ``torch<3,>=2.4``."""
        requires = {wheel.file.name: wheel.requires for wheel in self.wheels}
        return list(dict.fromkeys(map(str, set_needs.list_needs(self.document, requires))))

    def list_files(self) -> Mapping[str, bytes | Path]:
        """Return the files of the pool by their paths: wheels, METADATA (PEP 658), statements and locks."""
        files: dict[str, bytes | Path] = {}
        for wheel in self.wheels:
            path = self.paths.pool_file(wheel.file.sha256, wheel.file.name)
            files[path] = wheel.path
            files[path + METADATA_SUFFIX] = wheel.metadata
            if wheel.origin is not None:
                files[path + statement.STATEMENT_SUFFIX] = wheel.origin.statement
                if wheel.origin.signature is not None:
                    files[path + statement.STATEMENT_SIGNATURE_SUFFIX] = wheel.origin.signature
        return {**files, **{self.paths.lock_file(digest): text for digest, text in self.locks.items()}}

    def make_pages(self, when: str) -> Mapping[str, bytes]:
        """Return the index of the set alone."""
        folder = self.paths.set_index(self.document.id)
        return make_index_pages(folder, self.paths, [self.finish_document(when)])

    def finish_document(self, when: str) -> wheel_set.SetDocument:
        """Return the document as it will be."""
        return self.document.model_copy(update={"created": when})


def plan_stage(
    wheels: Sequence[Path],
    locks: Sequence[Lock],
    *,
    paths: FamilyPaths,
    layout: wheel_set.SetLayout,
) -> StagePlan:
    """Read and check the wheels and say what is to be staged. Raises ReleaseError with all that is wrong.

    ``locks`` are one, or those that variants were built from.
    """
    check_family(paths.family, layout)
    read = staged_wheels.read_staged_wheels(wheels)
    document, sources, set_wheels = _make_document(read, locks, paths.family, layout)
    return StagePlan(paths, set_wheels, document, sources.list_lock_files())


def _make_document(
    wheels: Sequence[StagedWheel], locks: Sequence[Lock], family: str, layout: wheel_set.SetLayout
) -> tuple[wheel_set.SetDocument, SetSources, list[StagedWheel]]:
    """Return the document of wheels, without a time, with their locks and the wheels as they are in it."""
    set_wheels = sorted(wheels, key=lambda wheel: wheel.file.name)
    set_version = find_set_version(set_wheels)
    sources, set_wheels = staged_wheels.find_sources(locks, set_wheels, layout)
    check_set(StageSubject(set_wheels, sources, family, layout))
    if layout == "per-family":
        set_wheels = [wheel.restrict_to_targets(gfx.get_gfx_families()[family]) for wheel in set_wheels]
    planned, missing = plan_cells(sources, family, layout, set_wheels)
    files = tuple(wheel.file for wheel in set_wheels)
    document = wheel_set.SetDocument(
        id=wheel_set.make_set_id(
            set_version, family, ((file.name, file.sha256) for file in files), sources.digest
        ),
        created=_NOT_STAGED,
        version=set_version,
        rocm=None if sources.has_several else sources.all[0].rocm,
        family=family,
        layout=layout,
        files=files,
        locks=sources.list_set_locks(),
        planned=planned,
        missing=missing,
    )
    return document, sources, set_wheels


def find_document_faults(
    document: wheel_set.SetDocument, scans: Sequence[WheelScan], locks: Sequence[Lock]
) -> list[str]:
    """Return in what the document of a set is not what staging makes of its wheels and locks.

    Not compared are when it was staged, and statements, which the gate reads.
    """
    try:
        check_family(document.family, document.layout)
        wheels = staged_wheels.make_staged_wheels(scans)
        expected, _, _ = _make_document(wheels, locks, document.family, document.layout)
    except errors.RocmWheelsError as refusal:
        return refusal.message.splitlines()
    made = {file.name: file for file in expected.files}
    faults = [f"{file.name} was not there to be read" for file in document.files if file.name not in made]
    faults += [f"{name} is not in the document" for name in made.keys() - {f.name for f in document.files}]
    for file in document.files:
        if file.name in made:
            # the first copy of a statement counts, which a store may have had before
            same = made[file.name].model_copy(update={"statement": file.statement})
            faults += [f"{file.name}: {fault}" for fault in _list_differences(same, file, type(file))]
    same_files = expected.model_copy(update={"files": document.files, "created": document.created})
    return faults + _list_differences(same_files, document, type(document))


def _list_differences(made: records.Record, stated: records.Record, model: type[records.Record]) -> list[str]:
    """Return what a record says otherwise than one that was made again, a line each."""

    def show(value: object) -> str:
        return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value or "none")

    return [
        f"{name} is {show(getattr(made, name))}, the document says {show(getattr(stated, name))}"
        for name in model.model_fields
        if getattr(made, name) != getattr(stated, name)
    ]


# ---- staging


@dataclass(frozen=True)
class StagedSet:
    """What became of it: how many files were sent and how many were there, and the bytes that were sent."""

    document: wheel_set.SetDocument
    sent: int
    already_there: int
    sent_bytes: int
    new: bool  # the set was not visible before


def find_missing_files(store: Store, plan: StagePlan) -> dict[str, bytes | Path]:
    """Return the files of the pool that a store has not yet, by their paths.

    The path says which bytes, so the size of what is there is enough until the last look.
    """

    def is_there(item: tuple[str, bytes | Path]) -> bool:
        info = store.head(item[0])
        return info is not None and info.size == stores.size_of_content(item[1])

    files = list(plan.list_files().items())
    presence = parallel.run_in_parallel(is_there, files)
    return {path: content for (path, content), present in zip(files, presence, strict=True) if not present}


def stage_set(store: Store, plan: StagePlan, *, now: str) -> StagedSet:
    """Stage a set: what is there already stays, and the set is visible when this returns.

    Raises ReleaseError; the same call carries on afterwards.
    """
    plan = _adopt_statements(store, plan)
    published = _find_published(store, plan)
    missing = find_missing_files(store, plan)
    sent_bytes = sum(stores.size_of_content(content) for content in missing.values())
    digests = {plan.paths.pool_file(file.sha256, file.name): file.sha256 for file in plan.document.files}

    def send(item: tuple[str, bytes | Path]) -> None:
        path, content = item
        try:
            store.create(path, content, sha256=digests.get(path))
        except stores.AlreadyInStoreError:  # looked at below
            log.log_note(f"{path} was written by another process in the meantime")
        else:
            if isinstance(content, Path):
                log.log_note(f"sent {content.name}")

    parallel.run_in_parallel(send, missing.items(), jobs=_SEND_JOBS)
    _verify_files(store, plan, digests)
    document = published or plan.finish_document(_find_begun(store, plan) or now)
    path = plan.paths.set_document(document.id)
    pages = _write_pages(store, plan, document)
    new = published is None and stores.create_or_read(store, path, document.to_json()) is None
    if published is None and not new:  # whoever was first has said when
        document = _find_published(store, plan) or document
        pages = _write_pages(store, plan, document)
    # a prune that began earlier takes what no document named then, and all of an old set
    paths = [*plan.list_files(), path, *pages]
    lost = [info for info in parallel.run_in_parallel(store.head, paths) if info is None]
    if lost:
        raise errors.ReleaseError(
            f"{document.id} has lost {tables.format_count(len(lost), 'file')} to a prune meanwhile",
            tip=stores.RUN_AGAIN_TIP,
        )
    return StagedSet(document, len(missing), len(plan.list_files()) - len(missing), sent_bytes, new)


def _adopt_statements(store: Store, plan: StagePlan) -> StagePlan:
    """Return a plan with the statements that a store has already: of the same bytes the first one counts."""

    def adopt(wheel: StagedWheel) -> StagedWheel:
        if wheel.origin is None:
            return wheel
        path = plan.paths.pool_file(wheel.file.sha256, wheel.file.name) + statement.STATEMENT_SUFFIX
        present = stores.read_or_none(store, path)
        if present is None or present.content == wheel.origin.statement:
            return wheel
        log.log_note(f"{wheel.file.name} has a statement in {store.url} already, which stays")
        return wheel.with_origin(replace(wheel.origin, statement=present.content, signature=None))

    wheels = parallel.run_in_parallel(adopt, plan.wheels)
    document = plan.document.model_copy(update={"files": tuple(wheel.file for wheel in wheels)})
    return replace(plan, wheels=wheels, document=document)


def _verify_files(store: Store, plan: StagePlan, digests: Mapping[str, str]) -> None:
    """Compare what the store has with what was sent: the sha256 where it keeps it, else the bytes."""

    def differs(item: tuple[str, bytes | Path]) -> bool:
        path, content = item
        info = store.head(path)
        if info is None or info.size != stores.size_of_content(content):
            return True
        if isinstance(content, Path):
            return (info.sha256 or store.digest(path)) != digests[path]
        is_signature = path.endswith(
            statement.STATEMENT_SIGNATURE_SUFFIX
        )  # which of several counts is no matter
        return not is_signature and store.read(path).content != content

    files = list(plan.list_files().items())
    wrong = parallel.run_in_parallel(differs, files)
    wrong_paths = sorted(path for (path, _), is_wrong in zip(files, wrong, strict=True) if is_wrong)
    if wrong_paths:
        raise errors.ReleaseError(
            f"{store.url} has {tables.format_count(len(wrong_paths), 'file')} unlike what was sent: "
            f"{', '.join(wrong_paths[:_MOST_NAMES_SHOWN])}",
            tip=f"remove them from the store, then {stores.RUN_AGAIN_TIP}",
        )


def _write_pages(store: Store, plan: StagePlan, document: wheel_set.SetDocument) -> Mapping[str, bytes]:
    """Write the pages of a set, and return them."""
    pages = plan.make_pages(document.created)

    def write() -> None:
        for path, content in pages.items():
            stores.put_file(store, path, content)

    stores.change_documents(write, description=plan.index)  # of two at a time each means another moment
    return pages


def _find_begun(store: Store, plan: StagePlan) -> str | None:
    """Return when a run that was killed says that it was: its pages stay, for nobody may exchange them."""
    path = f"{plan.index}{plan.document.projects[0]}/{JSON_PAGE}"
    try:
        content = store.read(path).content
        when = str(json.loads(content)["files"][0]["upload-time"])
        records.parse_moment(when)
    except (stores.NotInStoreError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return when if plan.make_pages(when)[path] == content else None  # else it is not ours


def _find_published(store: Store, plan: StagePlan) -> wheel_set.SetDocument | None:
    """Return the document of a set that is staged already. ReleaseError where it says something else."""
    published = wheel_set.read_stored_set(store, plan.paths.family, plan.document.id)
    if published is None:
        return None
    expected = plan.finish_document(published.created)
    differ = [
        name for name in type(expected).model_fields if getattr(published, name) != getattr(expected, name)
    ]
    if differ:
        raise errors.ReleaseError(
            f"{published.id} is staged already, with another {', '.join(differ)}",
            tip=f"a set never changes, and its wheels have these very bytes: go on with {published.id}",
        )
    return published
