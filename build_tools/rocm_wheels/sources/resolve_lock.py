"""Make a lock or bring one up to date: each ref asked once, every submodule found, all of it side by side.

torch comes first where others read their pins in its commit; no file of a tree is written. A commit that
nobody has checked out is read where it is at hand: in a checkout, in a mirror. Else the commit alone is
fetched into a repository that is thrown away, without the content of its files, and then the few that are
read. A server that cannot leave content out sends all of it; one that gives out branches only is asked for
those.
"""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log, parallel, progress, shell, tables
from rocm_wheels.models import project_names, versions
from rocm_wheels.models.lock import Lock, LockedPatches, LockedProject, LockedSubmodule
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.sources import mirrors, network, pins, trees
from rocm_wheels.sources.git import Git, is_inside_tree
from rocm_wheels.sources.lock import LockFile, read_locked_patches
from rocm_wheels.sources.patches import PatchSet, choose_patch_set
from rocm_wheels.sources.submodules import GITMODULES_FILE, read_gitmodules, resolve_submodule_url

if TYPE_CHECKING:
    from rocm_wheels.models import release_lines

_VERSION_FILE = "version.txt"  # by which torch says its line
_NO_SUCH_FILTER = re.compile(r"filter '[^']*' not supported")  # git's upload-pack.c


@dataclass(frozen=True)
class CommitLocation:
    """Where a commit is: ``source`` is the ref that it was found by, ``checkout`` a folder that may have it.

    ``local``: submodules may come from this machine, as the repository itself does. ``path``: where a
    submodule is in its parent; empty for a project, of which ``project`` is the name.
    """

    project: str
    origin: str
    commit: str
    source: str = ""
    checkout: Path | None = None
    local: bool = False
    path: str = ""


@dataclass(frozen=True)
class CommitFiles:
    """A commit's tree, the files that were asked for (by path), and its submodules."""

    title: str
    tree: str
    contents: Mapping[str, bytes]
    submodules: tuple[CommitLocation, ...]

    def read_text(self, path: str) -> str | None:
        """Return what a file holds, ``None`` when there is none. Raises DataError when it is not UTF-8."""
        content = self.contents.get(path)
        try:
            return None if content is None else content.decode("utf-8-sig")
        except UnicodeDecodeError as cause:
            raise errors.DataError(f"{self.label(path)} is not UTF-8 text") from cause

    def label(self, path: str = "") -> str:
        """Return what a file is called in messages."""
        return f"{self.title}:{path}" if path else self.title


@dataclass(frozen=True)
class CommitReader:
    """Reads commits, wherever they are; ``scratch`` is a folder that lives as long as it is used.

    ``checkouts``: a folder of checkouts that may have the commits.
    """

    scratch: Path
    checkouts: Path | None
    env: Mapping[str, str]
    transport: network.Transport

    def locate(self, name: str, origin: str, commit: str, source: str) -> CommitLocation:
        """Return where the commit of a project is."""
        checkout, local = self.checkouts and self.checkouts / name, network.parse_origin(origin, Path("/"))[1]
        return CommitLocation(name, origin, commit, source, checkout, local)

    def read_commit(self, location: CommitLocation, files: Collection[str] = ()) -> CommitFiles:
        """Read a commit: its tree, the ``files`` that it has of those named, its submodules.

        Raises SourceError when it is nowhere, or its ``.gitmodules`` is none.
        """
        commit, transport = location.commit, self.transport
        if location.checkout is not None and trees.is_populated(location.checkout):
            git = Git(location.checkout, self.env)
            if trees.has_whole_commit(git, commit):
                return _read_files(git, location, files)
        if transport.mirrors is not None:
            mirror = mirrors.locate_mirror(location.origin, transport.mirrors, self.env)
            if (mirror.folder / "HEAD").is_file() and mirrors.mirror_has_commit(mirror, commit):
                return _read_files(mirror.git, location, files)
        # what the user did not name may only come from a server, as for git itself
        trusted = location.local or not location.path or network.is_server(location.origin)
        request = network.CommitRequest(location.origin, commit, location.path, trusted)
        git = self._make_repository(location)

        def fetch(*words: str) -> None:
            network.transfer(git, request, ("--filter=blob:none", *words), transport)

        try:
            fetch("--depth=1", commit)
            return _read_files(git, location, files, fetch)
        except errors.SourceError as refused:
            if not network.BY_NAME_ONLY.search(str(refused)) and not _NO_SUCH_FILTER.search(str(refused)):
                raise
        git, source = self._make_repository(location), location.source
        names = [f"+{source}:refs/found/{source}"] if source and not network.is_commit(source) else []
        network.fetch_all_names(git, request, "refs/found", transport, *names)
        return _read_files(git, location, files)

    def _make_repository(self, location: CommitLocation) -> Git:
        allowed = ("protocol.file.allow=always",) if location.local else ()
        git = Git(Path(tempfile.mkdtemp(dir=self.scratch)), self.env, ("core.fsync=none", *allowed))
        git.text("init", "--quiet", "--bare", "--template=")
        return git


@contextmanager
def open_reader(
    checkouts: Path | None, env: Mapping[str, str], transport: network.Transport
) -> Iterator[CommitReader]:
    """Give a reader of commits, also of those that a folder of ``checkouts`` has."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-lock-") as scratch:
        yield CommitReader(Path(scratch), checkouts, env, transport)
    progress.show_live_line("")


def _read_files(
    git: Git,
    location: CommitLocation,
    files: Collection[str],
    fetch: Callable[..., None] | None = None,
) -> CommitFiles:
    """Read a commit that a repository has, in which contents may be missing that ``fetch`` brings."""
    commit = location.commit
    title = f"{location.path or location.project}@{commit[:12]}"
    entries = trees.list_tree(git, commit)
    # git follows no link for .gitmodules, and we none for any file
    regular = {entry.path: entry.object for entry in entries if entry.mode.startswith("100")}
    wanted = {path: regular[path] for path in {*files, GITMODULES_FILE} if path in regular}
    if fetch is not None:  # a server that cannot leave content out has sent all of it
        listed = git.text("rev-list", "-1", "--objects", "--missing=print", commit).split("\n")
        if missing := set(wanted.values()) & {line[1:] for line in listed if line.startswith("?")}:
            fetch(*sorted(missing))
    contents = trees.read_blobs(git, wanted.values())
    tree = git.text("rev-parse", f"{commit}^{{tree}}")
    submodules = []
    for entry, module in read_gitmodules(git, entries, title):
        if any("\ud800" <= letter <= "\udfff" for letter in entry.path):  # of bytes that are no text
            raise errors.SourceError(f"{title}: the path of a submodule is not UTF-8: {entry.path!a}")
        if module.enabled and module.url is not None:
            origin = resolve_submodule_url(location.origin, module.url)
            checkout = location.checkout and location.checkout / entry.path
            child = replace(location, origin=origin, commit=entry.object, source="", checkout=checkout)
            submodules.append(replace(child, path=entry.path))
    return CommitFiles(title, tree, {path: contents[oid] for path, oid in wanted.items()}, tuple(submodules))


def write_locked_files(
    file: LockFile,
    names: Mapping[str, Collection[str]],
    folder: Path,
    *,
    list_included: Callable[[str], Sequence[str]],
    checkouts: Path | None,
    patches: Path,
    env: Mapping[str, str],
    transport: network.Transport,
) -> None:
    """Write files of locked projects, patched as their checkouts are, below a folder for each project.

    ``names``: the files of each project; one that its commit has not is left out. ``list_included`` returns
    those that a text includes, relative to its folder: they are written as well. ``patches``: folder of the
    patch sets. Raises SourceError, and DataError for a file that is not UTF-8.
    """
    with open_reader(checkouts, env, transport) as reader:
        for name, paths in names.items():
            locked, git = file.project(name), Git(folder / name, env)
            location = reader.locate(name, locked.origin, locked.commit, locked.ref)
            patch_set = read_locked_patches(file, name, patches) if locked.patches is not None else None
            series = [patch_set.get_series(stage) for stage in ("base", "hipified")] if patch_set else []
            pending, seen = list(paths), set(paths)
            while pending:
                with log.prefix_log_lines(name):
                    files = reader.read_commit(location, pending)
                for path in pending:
                    (git.directory / path).parent.mkdir(parents=True, exist_ok=True)
                    if files.read_text(path) is not None:
                        (git.directory / path).write_bytes(files.contents[path])
                for patch in (patch for stage in series for patch in stage.get("", ())):
                    words = [f"--include={path}" for path in pending]
                    git.text("apply", *words, "-", stdin=patch.data, activity=f"applying {patch.name}")
                included = [
                    posixpath.normpath(posixpath.join(posixpath.dirname(path), other))
                    for path in pending
                    if (git.directory / path).is_file()
                    for other in list_included((git.directory / path).read_text("utf-8-sig"))
                ]
                pending = [
                    path for path in dict.fromkeys(included) if is_inside_tree(path) and path not in seen
                ]
                seen.update(pending)


def _resolve_projects(
    reader: CommitReader,
    projects: Sequence[Project],
    torch: Project,
    platform: project_names.Platform,
    *,
    reads_torch: bool,
    choose: Callable[[Project, pins.TreeFiles | None], pins.Pin],
    find_patches: Callable[[Project, str], PatchSet | None],
) -> tuple[dict[str, LockedProject], CommitFiles | None]:
    """Return the commit, tree, version and submodules of every project, and torch's commit if it was read.

    ``choose`` returns a project's pin, from torch's commit where one of them ``reads_torch``;
    ``find_patches`` the patch set for its ref. torch is locked only when it is among the projects. Raises
    SourceError and DataError.
    """
    recipes = [load_project(name) for name in project_names.list_project_names()]
    pin_files = {file for recipe in recipes for file in _list_pin_files(recipe, platform)}
    torch_files: CommitFiles | None = None

    def choose_pin(project: Project) -> tuple[Project, pins.Pin]:
        with log.prefix_log_lines(project.name):
            pin = choose(project, torch_files)
            log.log_note(f"{pin.ref} of {shell.hide_credentials(pin.origin)} ({pin.why})")
            network.check_ref(pin.commit or pin.ref)
        return project, pin

    def read(chosen: tuple[Project, pins.Pin]) -> tuple[pins.Pin, CommitFiles]:
        (project, pin), git = chosen, Git(reader.scratch, reader.env)
        options = name_options(project.name)
        with log.prefix_log_lines(project.name):
            commit, source = network.resolve_ref(
                git,
                pin.origin,
                pin.commit or pin.ref,
                transport=reader.transport,
                options=(options.origin, options.ref),
            )
            location = reader.locate(project.name, pin.origin, commit, source)
            names = {_VERSION_FILE, *_list_version_files(project), *pin_files}
            return replace(pin, commit=commit), reader.read_commit(location, names)

    def read_submodule(location: CommitLocation) -> CommitFiles:
        with log.prefix_log_lines(location.project):
            return reader.read_commit(location)

    resolved = {}
    if reads_torch or torch in projects:
        resolved[torch.name] = read(choose_pin(torch))
        torch_files = resolved[torch.name][1]
    others = [choose_pin(project) for project in projects if project.name != torch.name]
    answers = parallel.run_in_parallel(read, others, jobs=reader.transport.jobs)
    resolved |= zip((project.name for project, _ in others), answers, strict=True)

    # submodules, level by level; a commit that several have is read once
    modules: dict[tuple[str, str], CommitFiles] = {}
    level = [resolved[project.name][1] for project in projects]
    while level:
        children = {(c.origin, c.commit): c for files in level for c in files.submodules}
        new = {key: child for key, child in children.items() if key not in modules}
        level = parallel.run_in_parallel(read_submodule, new.values(), jobs=reader.transport.jobs)
        modules |= zip(new, level, strict=True)

    def list_submodules(files: CommitFiles, above: str = "") -> Iterator[tuple[str, LockedSubmodule]]:
        for child in files.submodules:
            opened, path = modules[child.origin, child.commit], f"{above}{child.path}"
            yield path, LockedSubmodule(origin=child.origin, commit=child.commit, tree=opened.tree)
            yield from list_submodules(opened, f"{path}/")

    locked = {}
    for project in projects:
        pin, files = resolved[project.name]
        with log.prefix_log_lines(project.name):
            patches = find_patches(project, pin.ref)
        named = None
        if patches is not None and patches.digest:
            named = LockedPatches(name=patches.folder.name, digest=patches.digest)
        locked[project.name] = LockedProject(
            origin=pin.origin,
            ref=pin.ref,
            why=pin.why,
            pinned=pin.pinned,
            commit=pin.commit,
            tree=files.tree,
            version=_read_base_version(project, files),
            patches=named,
            submodules=dict(sorted(list_submodules(files))),
        )
    return locked, torch_files


def _list_pin_files(project: Project, platform: project_names.Platform) -> list[str]:
    return pins.list_pin_files(project.source.get_platform_source(platform))


def _list_version_files(project: Project) -> list[str]:
    version = project.version
    return [file for file in (version.file, version.stated and version.stated.file) if file]


def _read_base_version(project: Project, files: CommitFiles) -> str | None:
    """Return the base version in the tree; ``None`` where the recipe names no file of it."""
    for file in _list_version_files(project):
        text, label = files.read_text(file), files.label(file)
        if text is None:
            raise errors.DataError(
                f"cannot read the version of {project.name}: there is no {label}",
                tip="is that commit of this project? its recipe names the file",
            )
        if project.version.stated is not None:
            return versions.read_stated_version(text, project.version.stated.variable, name=label)
        return versions.parse_base_version(text, name=label)
    return None


@dataclass(frozen=True)
class ProjectOptions:
    """What the options say of a project: a ref, a repository (``None``: nothing).

    ``commit`` is what the ref stands for where ``why`` (a manifest) says so; both others are said then, too.
    """

    ref: str | None = None
    origin: str | None = None
    commit: str | None = None
    why: str = ""


@dataclass(frozen=True)
class LockRequest:
    """A lock to make of ``projects``; ``torch`` is the recipe of the one that pins the others.

    ``checkouts``: folder of checkouts that may have the commits. ``patches``: folder of the patch
    sets, ``None`` for a lock without patches. ``options`` are by project.
    """

    projects: tuple[Project, ...]
    torch: Project
    options: Mapping[str, ProjectOptions]
    platform: project_names.Platform
    line: release_lines.TorchLine | None = None
    rocm: str | None = None
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    local_version: str | None = None
    names_torch: bool = False
    checkouts: Path | None = None
    patches: Path | None = None


def name_options(project: str) -> pins.OptionNames:
    """Return what names a project's ref and origin in ``lock make``: options, of most projects variables."""
    ref, origin = (f"ROCM_WHEELS_{project.upper()}_{kind}" for kind in ("REF", "ORIGIN"))
    if project in {"pytorch", "triton"}:
        ref, origin = f"--{project}-ref", f"--{project}-origin"
    return pins.OptionNames(ref, origin, torch="name a torch that pins it (see --pytorch-ref, --line)")


def make_lock(request: LockRequest, *, env: Mapping[str, str], transport: network.Transport) -> Lock:
    """Resolve every ref of a request, once. Raises UsageError, DataError, SourceError."""
    line, torch, projects = request.line, request.torch, request.projects
    if request.names_torch and torch not in projects:
        raise errors.UsageError(
            f"--name-torch: {torch.name} is not among the projects", tip="lock it, too, or leave this out"
        )
    options = {
        project.name: request.options.get(project.name, ProjectOptions()) for project in (*projects, torch)
    }
    unnamed = [p for p in projects if options[p.name].ref is None and options[p.name].commit is None]
    reads_torch = any(_list_pin_files(project, request.platform) for project in unnamed)
    if torch not in projects and torch.name in request.options and not reads_torch:
        raise errors.UsageError(
            f"{name_options(torch.name).ref} would have no effect: {torch.name} is not among "
            "the projects, and none of them needs its pins",
            tip="leave it out",
        )
    pythons = _check_line(request)

    def choose(project: Project, torch_files: pins.TreeFiles | None) -> pins.Pin:
        said = options[project.name]
        if said.commit is not None:
            return pins.Pin(said.origin or "", said.ref or said.commit, said.why, said.commit)
        return pins.choose_pin(
            project,
            platform=request.platform,
            origin=said.origin,
            ref=said.ref,
            torch_dir=torch_files,
            line=None if said.ref is not None and said.origin is not None else line,
            option_names=name_options(project.name),
        )

    def find_patches(project: Project, ref: str) -> PatchSet | None:
        if request.patches is None:
            return None
        return choose_patch_set(project.name, ref, request.patches, line=line.name if line else None)

    with open_reader(request.checkouts, env, transport) as reader:
        locked, _ = _resolve_projects(
            reader, projects, torch, request.platform,
            reads_torch=reads_torch, choose=choose, find_patches=find_patches,
        )  # fmt: skip
    return Lock(
        platform=request.platform,
        line=line.name if line is not None else None,
        rocm=request.rocm,
        targets=request.targets,
        pythons=pythons,
        local_version=request.local_version,
        named_torch=locked[torch.name].version if request.names_torch else None,
        projects=locked,
    )


def _check_line(request: LockRequest) -> tuple[str, ...]:
    """Return the Pythons of a lock; warn of one, or of a ROCm, that its line was not released with.

    Raises UsageError for a version of ROCm that is none.
    """
    line, rocm = request.line, request.rocm
    try:
        Version(rocm or "0")
    except InvalidVersion:
        tip = "for example: 7.10.0a20260501"
        raise errors.UsageError(f"--rocm {rocm!r} is not a version (PEP 440)", tip=tip) from None
    if line is None:
        return request.pythons
    pythons = (*line.pythons.values, *line.free_threaded.values)
    rocms = line.rocm.list_versions()
    for what, asked, released in (
        ("ROCm", (rocm,) if rocm else (), rocms),
        ("Python", request.pythons, pythons),
    ):
        series = {".".join(word.split(".")[:2]) for word in released}  # 7.14 of 7.14.0a1, 3.14t
        if others := [word for word in asked if released and ".".join(word.split(".")[:2]) not in series]:
            log.log_warning(
                f"release line {line.name} was released with {what} {', '.join(released)}, "
                f"not with {', '.join(others)}"
            )
    return request.pythons or pythons


_OTHER_ORIGIN = "; origin: "  # in `why`, where somebody named the repository of a pinned commit


def update_lock(
    lock: Lock,
    names: Sequence[str],
    *,
    torch: str,
    checkouts: Path | None,
    patches: Path,
    env: Mapping[str, str],
    transport: network.Transport,
) -> tuple[Lock, dict[str, pins.Pin]]:
    """Resolve the refs of ``names`` again; ``torch`` is the project that pins others.

    Returns the new lock, and what torch's new commit pins otherwise than it, by project.

    A project that was pinned takes what the lock's torch pins, one that was locked by a ref what that
    ref is now. A patch set is read again from ``patches`` by its name. Raises UsageError for a project
    that is not in the lock, SourceError for a pin that is gone.
    """
    for name in names:
        if name not in lock.projects:
            raise errors.UsageError(
                f"{name} is not in the lock{tables.suggest_name(name, lock.projects)}",
                tip=f"it has: {', '.join(lock.projects)}",
            )
    pinned = [name for name in names if lock.projects[name].pinned]
    if pinned and torch not in lock.projects:
        raise errors.UsageError(
            f"{' and '.join(pinned)}: the lock has no {torch}, whose commit pinned them",
            tip=f"make the lock again, with {name_options(pinned[0]).ref} for a ref of your own",
        )

    def choose(project: Project, torch_files: pins.TreeFiles | None) -> pins.Pin:
        locked, option = lock.projects[project.name], name_options(project.name).ref
        if project.name not in names:  # torch, to read its pins
            return pins.Pin(locked.origin, locked.commit, "as locked")
        if not locked.pinned:
            if network.is_commit(locked.ref):
                log.log_note(f"{project.name} is unchanged: pinned to a commit ({locked.why})")
            return pins.Pin(locked.origin, locked.ref, locked.why)
        source = project.source.get_platform_source(lock.platform)
        pin, missing = pins.find_pin(source, torch_files, option=option)
        if pin is None:
            raise errors.SourceError(
                f"{project.name} is pinned in the lock, but no longer by torch: {missing}",
                tip=f"make the lock again, with {option} for a ref of your own",
            )
        _, separator, suffix = locked.why.rpartition(_OTHER_ORIGIN)
        if separator:
            return replace(pin, origin=locked.origin, why=f"{pin.why}{separator}{suffix}")
        return pin

    def find_patches(project: Project, ref: str) -> PatchSet | None:
        named = lock.projects[project.name].patches
        return None if named is None else choose_patch_set(project.name, ref, patches, name=named.name)

    with open_reader(checkouts, env, transport) as reader:
        projects, torch_files = _resolve_projects(
            reader, [load_project(name) for name in names], load_project(torch), lock.platform,
            reads_torch=bool(pinned), choose=choose, find_patches=find_patches,
        )  # fmt: skip
    new = {**lock.projects, **projects}
    drifts = {}
    if torch in names and new[torch].commit != lock.projects[torch].commit:
        for name in [name for name in lock.projects if name not in names]:
            source = load_project(name).source.get_platform_source(lock.platform)
            drift, _ = pins.find_pin(source, torch_files)
            if drift is not None and drift.ref != lock.projects[name].commit:
                drifts[name] = drift
    named_torch = lock.named_torch
    if named_torch is not None and torch in names:
        named_torch = new[torch].version
    return lock.model_copy(update={"projects": new, "named_torch": named_torch}), drifts
