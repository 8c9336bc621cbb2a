"""From pins to locked projects: each ref asked once, every submodule found, all of it side by side.

torch comes first where others read their pins in its commit; no file of a tree is written.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import DataError
from rocm_wheels.model.lock import LockedPatches, LockedProject, LockedSubmodule
from rocm_wheels.model.names import get_option_name, list_project_names
from rocm_wheels.model.project import Platform, Project, load_project
from rocm_wheels.model.versions import parse_base_version, read_stated_version
from rocm_wheels.parallel import run_growing_work
from rocm_wheels.shell import hide_credentials
from rocm_wheels.sources.lock.look import SubmoduleCommit, CommitFiles, CommitReader, CommitLocation
from rocm_wheels.sources.network.remote import parse_origin
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.patches.sets import PatchSet
from rocm_wheels.sources.pins.choose import Pin, list_pin_files
from rocm_wheels.sources.pins.files import TreeFiles

_VERSION_FILE = "version.txt"  # by which torch says its line

_Job = Callable[[], list["_Job"]]


@dataclass(frozen=True)
class ProjectToLock:
    """A project to lock: ``choose`` returns its pin, from torch's commit where it ``may_read_torch``.

    ``patches`` returns the patch set for a ref.
    """

    project: Project
    choose: Callable[[TreeFiles | None], Pin]
    reads_torch: bool
    patches: Callable[[str], PatchSet | None]


@dataclass(frozen=True)
class ResolvedProjects:
    """The locked projects by name, and torch's commit when it was read."""

    projects: Mapping[str, LockedProject]
    torch: CommitFiles | None


def may_read_torch(project: Project, platform: Platform) -> bool:
    """Tell whether torch's tree may pin a project."""
    return bool(list_pin_files(project.source.get_platform_source(platform)))


def resolve_projects(
    items: Sequence[ProjectToLock],
    torch: ProjectToLock,
    *,
    platform: Platform,
    checkouts: Path | None,
    env: Mapping[str, str],
    transport: Transport,
) -> ResolvedProjects:
    """Find the commit, tree, version and submodules of every project.

    ``torch`` is read where one needs it, and locked only when it is among ``items``. ``checkouts``: a
    folder in which existing checkouts save the network. Raises SourceError and DataError.
    """
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-lock-") as scratch:
        run = _LockRun(items, CommitReader(Path(scratch), env=env, transport=transport), checkouts, platform)
        run_growing_work(lambda job: (None, job()), run.list_first_jobs(torch), jobs=transport.jobs)
    log.show_live_line("")
    opened = run.resolved.get(torch.project.name)
    return ResolvedProjects(
        {item.project.name: run.make_locked_project(item) for item in items}, opened and opened[1]
    )


class _LockRun:
    def __init__(
        self,
        items: Sequence[ProjectToLock],
        library: CommitReader,
        checkouts: Path | None,
        platform: Platform,
    ) -> None:
        self.resolved: dict[str, tuple[Pin, CommitFiles]] = {}
        self._items, self._library, self._checkouts = items, library, checkouts
        self._modules: dict[tuple[str, str], CommitFiles | None] = {}
        self._gate = threading.Lock()
        recipes = map(load_project, list_project_names())
        self._pins = {
            file for recipe in recipes for file in list_pin_files(recipe.source.get_platform_source(platform))
        }

    def list_first_jobs(self, torch: ProjectToLock) -> list[_Job]:
        """Return the first jobs; each returns those that it makes possible."""
        readers = [item for item in self._items if item.reads_torch]
        others = [item for item in self._items if not item.reads_torch and item is not torch]
        jobs: list[_Job] = [partial(self._resolve_project, item, None) for item in others]
        if readers or torch in self._items:
            jobs.insert(0, partial(self._resolve_project, torch, None, readers))
        return jobs

    def _resolve_project(
        self, item: ProjectToLock, torch: CommitFiles | None, readers: Sequence[ProjectToLock] = ()
    ) -> list[_Job]:
        name = item.project.name
        with log.prefix_log_lines(name):
            pin = item.choose(torch)
            log.log_note(f"{pin.ref} of {hide_credentials(pin.origin)} ({pin.why})")
            option = get_option_name(name)
            options = f"--{option}-origin", f"--{option}-ref"
            commit, source = self._library.resolve_ref(pin.origin, pin.commit or pin.ref, options=options)
            checkout = None if self._checkouts is None else self._checkouts / name
            local = parse_origin(pin.origin, Path("/"))[1]
            location = CommitLocation(pin.origin, commit, source, checkout, local)
            file_names = {_VERSION_FILE, *_list_version_files(item.project), *self._pins}
            files = self._library.read_commit(location, title=f"{name}@{commit[:12]}", files=file_names)
        self.resolved[name] = replace(pin, commit=commit), files
        jobs: list[_Job] = [partial(self._resolve_project, reader, files) for reader in readers]
        return jobs + (self._list_submodule_jobs(name, files, location) if item in self._items else [])

    def _list_submodule_jobs(self, name: str, files: CommitFiles, location: CommitLocation) -> list[_Job]:
        """Return the jobs of the submodules that nobody has looked at."""
        jobs: list[_Job] = []
        for child in files.submodules:
            with self._gate:
                is_known = (child.origin, child.commit) in self._modules
                self._modules.setdefault((child.origin, child.commit), None)
            if not is_known:
                jobs.append(partial(self._resolve_submodule, name, child, location))
        return jobs

    def _resolve_submodule(self, name: str, child: SubmoduleCommit, parent: CommitLocation) -> list[_Job]:
        checkout = None if parent.checkout is None else parent.checkout / child.path
        location = CommitLocation(child.origin, child.commit, "", checkout, parent.local, child.path)
        with log.prefix_log_lines(name):
            files = self._library.read_commit(location, title=f"{child.path}@{child.commit[:12]}")
        self._modules[child.origin, child.commit] = files
        return self._list_submodule_jobs(name, files, location)

    def make_locked_project(self, item: ProjectToLock) -> LockedProject:
        """Return what was found of a project, as a lock holds it."""
        project = item.project
        pin, files = self.resolved[project.name]
        with log.prefix_log_lines(project.name):
            patches = item.patches(pin.ref)
        return LockedProject(
            origin=pin.origin,
            ref=pin.ref,
            why=pin.why,
            pinned=pin.pinned,
            commit=pin.commit,
            tree=files.tree,
            version=_read_base_version(project, files),
            patches=LockedPatches(name=patches.folder.name, digest=patches.digest)
            if patches is not None and patches.digest
            else None,
            submodules=dict(sorted(self._list_locked_submodules("", files))),
        )

    def _list_locked_submodules(
        self, above: str, files: CommitFiles
    ) -> Iterator[tuple[str, LockedSubmodule]]:
        for child in files.submodules:
            opened = self._modules[child.origin, child.commit]
            assert opened is not None
            path = f"{above}{child.path}"
            yield path, LockedSubmodule(origin=child.origin, commit=child.commit, tree=opened.tree)
            yield from self._list_locked_submodules(f"{path}/", opened)


def _list_version_files(project: Project) -> Collection[str]:
    version = project.version
    return [file for file in (version.file, version.stated and version.stated.file) if file]


def _read_base_version(project: Project, files: CommitFiles) -> str | None:
    """Return the base version in the tree; ``None`` where the recipe names no file of it."""
    for file in _list_version_files(project):
        text = files.read_text(file)
        if text is None:
            raise DataError(
                f"cannot read the version of {project.name}: there is no {files.label(file)}",
                tip="is that commit of this project? its recipe names the file",
            )
        if project.version.stated is not None:
            return read_stated_version(text, project.version.stated.variable, name=files.label(file))
        return parse_base_version(text, name=files.label(file))
    return None
