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
from rocm_wheels.model.names import option_name, project_names
from rocm_wheels.model.project import Platform, Project, load_project
from rocm_wheels.model.versions import parse_base_version, stated_version
from rocm_wheels.parallel import spread
from rocm_wheels.shell import hide_credentials
from rocm_wheels.sources.lock.look import Child, CommitFiles, Library, Place
from rocm_wheels.sources.network.remote import origin_of
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.patches.sets import PatchSet
from rocm_wheels.sources.pins.choose import Pin, pin_files
from rocm_wheels.sources.pins.files import TreeFiles

_VERSION_FILE = "version.txt"  # by which torch says its line

_Job = Callable[[], list["_Job"]]


@dataclass(frozen=True)
class Wanted:
    """A project to lock: ``choose`` returns its pin, from torch's commit where it ``reads_torch``.

    ``patches`` returns the patch set for a ref.
    """

    project: Project
    choose: Callable[[TreeFiles | None], Pin]
    reads_torch: bool
    patches: Callable[[str], PatchSet | None]


@dataclass(frozen=True)
class Resolved:
    """The locked projects by name, and torch's commit when it was read."""

    projects: Mapping[str, LockedProject]
    torch: CommitFiles | None


def reads_torch(project: Project, platform: Platform) -> bool:
    """Tell whether torch's tree may pin a project."""
    return bool(pin_files(project.source.on(platform)))


def resolve(
    wanted: Sequence[Wanted],
    torch: Wanted,
    *,
    platform: Platform,
    checkouts: Path | None,
    env: Mapping[str, str],
    transport: Transport,
) -> Resolved:
    """Find the commit, tree, version and submodules of every project.

    ``torch`` is read where one needs it, and locked only when it is among ``wanted``. ``checkouts``: a
    folder in which existing checkouts save the network. Raises SourceError and DataError.
    """
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-lock-") as scratch:
        run = _Run(wanted, Library(Path(scratch), env=env, transport=transport), checkouts, platform)
        spread(lambda job: (None, job()), run.begin(torch), jobs=transport.jobs)
    log.live("")
    opened = run.found.get(torch.project.name)
    return Resolved({one.project.name: run.locked(one) for one in wanted}, opened and opened[1])


class _Run:
    def __init__(
        self, wanted: Sequence[Wanted], library: Library, checkouts: Path | None, platform: Platform
    ) -> None:
        self.found: dict[str, tuple[Pin, CommitFiles]] = {}
        self._wanted, self._library, self._checkouts = wanted, library, checkouts
        self._modules: dict[tuple[str, str], CommitFiles | None] = {}
        self._gate = threading.Lock()
        recipes = map(load_project, project_names())
        self._pins = {file for recipe in recipes for file in pin_files(recipe.source.on(platform))}

    def begin(self, torch: Wanted) -> list[_Job]:
        """Return the first jobs; each returns those that it makes possible."""
        readers = [one for one in self._wanted if one.reads_torch]
        others = [one for one in self._wanted if not one.reads_torch and one is not torch]
        jobs: list[_Job] = [partial(self._project, one, None) for one in others]
        if readers or torch in self._wanted:
            jobs.insert(0, partial(self._project, torch, None, readers))
        return jobs

    def _project(
        self, wanted: Wanted, torch: CommitFiles | None, readers: Sequence[Wanted] = ()
    ) -> list[_Job]:
        name = wanted.project.name
        with log.prefixed(name):
            pin = wanted.choose(torch)
            log.note(f"{pin.ref} of {hide_credentials(pin.origin)} ({pin.why})")
            option = option_name(name)
            options = f"--{option}-origin", f"--{option}-ref"
            commit, source = self._library.resolve(pin.origin, pin.commit or pin.ref, options=options)
            beside = None if self._checkouts is None else self._checkouts / name
            local = origin_of(pin.origin, Path("/"))[1]
            place = Place(pin.origin, commit, source, beside, local)
            wished = {_VERSION_FILE, *_version_files(wanted.project), *self._pins}
            files = self._library.open(place, title=f"{name}@{commit[:12]}", files=wished)
        self.found[name] = replace(pin, commit=commit), files
        jobs: list[_Job] = [partial(self._project, one, files) for one in readers]
        return jobs + (self._below(name, files, place) if wanted in self._wanted else [])

    def _below(self, name: str, files: CommitFiles, place: Place) -> list[_Job]:
        """Return the jobs of the submodules that nobody has looked at."""
        jobs: list[_Job] = []
        for child in files.submodules:
            with self._gate:
                known = (child.origin, child.commit) in self._modules
                self._modules.setdefault((child.origin, child.commit), None)
            if not known:
                jobs.append(partial(self._submodule, name, child, place))
        return jobs

    def _submodule(self, name: str, child: Child, parent: Place) -> list[_Job]:
        beside = None if parent.beside is None else parent.beside / child.path
        place = Place(child.origin, child.commit, "", beside, parent.local, child.path)
        with log.prefixed(name):
            files = self._library.open(place, title=f"{child.path}@{child.commit[:12]}")
        self._modules[child.origin, child.commit] = files
        return self._below(name, files, place)

    def locked(self, wanted: Wanted) -> LockedProject:
        """Return what was found of a project, as a lock holds it."""
        project = wanted.project
        pin, files = self.found[project.name]
        with log.prefixed(project.name):
            patches = wanted.patches(pin.ref)
        return LockedProject(
            origin=pin.origin,
            ref=pin.ref,
            why=pin.why,
            pinned=pin.pinned,
            commit=pin.commit,
            tree=files.tree,
            version=_base_version(project, files),
            patches=LockedPatches(name=patches.folder.name, digest=patches.digest)
            if patches is not None and patches.digest
            else None,
            submodules=dict(sorted(self._all_below("", files))),
        )

    def _all_below(self, above: str, files: CommitFiles) -> Iterator[tuple[str, LockedSubmodule]]:
        for child in files.submodules:
            opened = self._modules[child.origin, child.commit]
            assert opened is not None
            path = f"{above}{child.path}"
            yield path, LockedSubmodule(origin=child.origin, commit=child.commit, tree=opened.tree)
            yield from self._all_below(f"{path}/", opened)


def _version_files(project: Project) -> Collection[str]:
    version = project.version
    return [file for file in (version.file, version.stated and version.stated.file) if file]


def _base_version(project: Project, files: CommitFiles) -> str | None:
    """Return the base version in the tree; ``None`` where the recipe names no file of it."""
    for file in _version_files(project):
        text = files.text(file)
        if text is None:
            raise DataError(
                f"cannot read the version of {project.name}: there is no {files.name(file)}",
                tip="is that commit of this project? its recipe names the file",
            )
        if project.version.stated is not None:
            return stated_version(text, project.version.stated.variable, name=files.name(file))
        return parse_base_version(text, name=files.name(file))
    return None
