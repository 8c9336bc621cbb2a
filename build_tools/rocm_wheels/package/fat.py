"""Make a wheel of torch that carries its ROCm: one file to install, no ROCm package needed.

``torch/_rocm/`` is one ROCm tree: the parts of the rocm wheels that torch needs, laid over each other,
because ROCm's libraries find their data relative to themselves. What is taken is computed: the libraries that
torch's own are linked to and those that its ``_rocm_init.py`` loads, closed over what they are linked to
themselves and over ``data/fat_contents.yaml`` (what is opened by name, and files beside libraries). Code
objects and kernel databases are pruned to the targets (``prune``); what does not change is copied as the rocm
wheels have it.

``_rocm_init.py`` is written anew: it loads the libraries by their paths, those first that others are linked
to, so that the loader then finds each by its SONAME, and no library of torch changes. METADATA loses the
requirement of rocm and gains the licences; the version stays, because companions pin it.
"""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.binaries import elf, pe
from rocm_wheels.core import errors, installation, log, records, shell, tables
from rocm_wheels.device_code import code_objects, kernel_databases
from rocm_wheels.index.reader import IndexReader, download_link, file_name_of_link, resolve_index_url
from rocm_wheels.models import gfx, project_names
from rocm_wheels.models.libraries import is_rocm_library
from rocm_wheels.package import prune, wheel_plan
from rocm_wheels.wheels import dist_info, sbom, scan, stored_member
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit

ROCM_FOLDER = "torch/_rocm"
_DEVICE_PREFIX = "rocm-sdk-device-"
INIT_MODULE = "torch/_rocm_init.py"
_ROCM_PACKAGE = re.compile(r"rocm(-sdk(-[a-z0-9-]+)?)?")
_ROCM_TREE = re.compile(r"_rocm_sdk_(?:core|libraries)[^/]*/(?P<path>.+)")
_LIBRARY = re.compile(r"(?:^|/)(?:lib[^/]+\.so(?:\.[0-9.]+)?|[^/]+\.dll)$", re.IGNORECASE)
_STEM = re.compile(r"(?:lib)?(?P<stem>.+?)(?:\.so(?:\.[0-9.]+)?|(?:_?[0-9]+)?\.dll)$", re.IGNORECASE)


class _FatRow(records.Record):
    opens: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    database: str | None = None


class _FatTable(records.Record):
    always: tuple[str, ...]
    licenses: tuple[str, ...]
    libraries: Mapping[str, _FatRow]

    def get_row(self, library: str) -> _FatRow:
        """Return the row of a library by the name of its file."""
        return self.libraries.get(get_stem(library), _FatRow())


@lru_cache
def _load_table() -> _FatTable:
    return records.load_record(project_names.get_data_folder() / "fat_contents.yaml", _FatTable)


def get_stem(library: str) -> str:
    """Return a library's name without prefix, version and suffix: ``libamdhip64.so.7`` → ``amdhip64``."""
    name = PurePosixPath(library).name
    match = _STEM.fullmatch(name)
    return match["stem"] if match else name


@dataclass(frozen=True, kw_only=True)
class FatPlan(wheel_plan.WheelPlan):
    """What a fat wheel becomes: ``files`` are taken, of which ``copied`` stay as they are.

    ``parts`` are the rocm wheels that something is taken from, ``libraries`` those that are loaded, in this
    order, from ``torch/_rocm``; ``from_system`` is what they are linked to that no package has. ``left_out``:
    how many files are for other targets. ``unlicensed``: parts without the text of a licence.
    """

    rocm: str
    targets: tuple[str, ...]
    parts: tuple[str, ...]
    libraries: tuple[str, ...]
    files: int
    copied: int
    left_out: int
    from_system: tuple[str, ...]
    licenses: tuple[str, ...]
    unlicensed: tuple[str, ...]
    part_paths: tuple[Path, ...] = field(repr=False)


@dataclass(frozen=True)
class FatRequest:
    """What is asked: the wheel of torch, targets, the build tag, and where the wheels of ROCm are.

    They lie in the folder ``find_links``, else they are downloaded from ``index_url`` into ``downloads``
    (None: into a folder that goes afterwards).
    """

    wheel: Path
    targets: tuple[str, ...]
    build_tag: str | None = None
    find_links: Path | None = None
    index_url: str | None = None
    downloads: Path | None = None


def plan_fat(request: FatRequest, stack: ExitStack) -> FatPlan:
    """Plan a fat wheel; new contents are compressed into files without a name, which ``stack`` closes.

    PackageError names the library, file or target that is missing, or the wheel of ROCm.
    """
    installation.require_extras("making a fat wheel", "build")
    plan = _FatMaker(request, stack).make_plan()
    for project in plan.unlicensed:
        log.log_warning(f"{project}: its wheel has no text of a licence to take over")
    if plan.from_system:
        log.log_note(f"from the system of the user: {', '.join(plan.from_system)}")
    return plan


def find_rocm_wheels(request: FatRequest, version: Version, stack: ExitStack) -> list[Path]:
    """Return the wheels of ROCm that there are for a torch, those of an index downloaded.

    PackageError when an index lacks one that is needed.
    """
    is_windows = dist_info.split_wheel_name(request.wheel.name).platform.startswith("win")
    if request.index_url is None:
        paths = sorted((request.find_links or request.wheel.parent).glob("rocm*.whl"))
        return [path for path in paths if _fits(path.name, version, is_windows)]
    folder = request.downloads or Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="rocm-wheels-fat-"))
    )
    folder.mkdir(parents=True, exist_ok=True)
    reader, url = IndexReader(), resolve_index_url(request.index_url)
    paths = []
    devices = (f"{_DEVICE_PREFIX}{gfx.strip_features(target)}" for target in request.targets)
    for project in dict.fromkeys(("rocm-sdk-core", "rocm-sdk-libraries", *devices)):
        page = reader.read_page(url, f"{url}{project}/", project=project)
        if page is None and project.startswith(_DEVICE_PREFIX):
            continue  # ROCm that is not split has all kernels in its libraries
        links = [link for link in page or () if _fits(file_name_of_link(link), version, is_windows)]
        if not links:
            raise errors.PackageError(
                f"{shell.hide_credentials(url)} has no wheel of {project} {version} for this platform"
            )
        paths.append(download_link(links[0], folder, error=errors.PackageError))
    return paths


def _fits(file_name: str, version: Version, is_windows: bool) -> bool:
    if not file_name.endswith(".whl"):
        return False
    name = dist_info.parse_wheel_name(file_name)
    is_ours = any(tag.platform == "any" or tag.platform.startswith("win") == is_windows for tag in name.tags)
    return name.version == version and is_ours


@dataclass(frozen=True)
class _Part:
    """A rocm wheel: ``files`` are its members by their path in the ROCm tree, ``record`` digests RECORD."""

    archive: WheelArchive
    project: str
    files: Mapping[str, stored_member.StoredMember]
    record: str

    @property
    def is_device(self) -> bool:
        """Whether it has the kernels for one target."""
        return self.project.startswith(_DEVICE_PREFIX)


class _Linked(NamedTuple):
    """What a library is linked to, and its SONAME; "": it has none."""

    needed: tuple[str, ...]
    soname: str = ""


_NOT_LINKED = _Linked(())
_NO_ROCM_TIP = "a fat wheel is made from a torch that was built against ROCm's Python packages"
_PACKAGES_TIP = "name packages of the ROCm that torch was built against"


class _FatMaker:
    """One fat wheel under way: what was found so far."""

    def __init__(self, request: FatRequest, stack: ExitStack) -> None:
        self._request = request
        self._stack = stack
        self._table = _load_table()
        self._linked: dict[str, _Linked] = {}  # of each library that was read, by its path in the tree
        self._chosen: dict[str, tuple[_Part, prune.PrunedMembers]] = {}
        self._system: set[str] = set()
        self._torch = wheel_plan.open_wheel(request.wheel, stack)
        self._version = self._read_rocm_version()
        self._parts = self._open_parts()
        self._places = self._locate_files()

    def make_plan(self) -> FatPlan:
        """Return the plan. Raises PackageError."""
        torch_linked, pruned_torch = self._read_torch()
        first = [self._find_preload(name) for name in self._read_preloads()]
        for name, linked in torch_linked.items():
            first += self._find_needs(f"{name} in the wheel", linked.needed)
        self._take_all(first)
        self._require_databases()
        libraries = self._order_libraries()
        stored: dict[str, stored_member.StoredMember] = {}
        left_out = copied = 0
        for path in sorted(self._chosen):
            part, pruned = self._chosen[path]
            member = part.files[path]
            if member.entry.name in pruned.dropped:
                left_out += 1
                continue
            copied += member.entry.name not in pruned.stored
            stored[f"{ROCM_FOLDER}/{self._rename(path)}"] = pruned.stored.get(member.entry.name, member)
        used = {part.project: part for part, _ in self._chosen.values()}
        licenses: dict[str, bytes] = {}
        unlicensed = []
        for project, part in sorted(used.items()):
            texts = self._read_licenses(part)
            licenses |= texts
            if not texts and not part.is_device:
                unlicensed.append(project)
        edit = WheelEdit(
            build=self._request.build_tag,
            requirements=_drop_rocm,
            license_files=lambda old: [*old, *(name.partition("/")[2] for name in sorted(licenses))],
            put=dict(sorted(licenses.items())),
            members={INIT_MODULE: render_fat_init(self._version, libraries).encode()},
            stored={**pruned_torch.stored, **stored},
            drop_members=pruned_torch.dropped,
            step=f"fat {' '.join(self._request.targets)}",
            contained=tuple(
                sbom.PackagePart(project, self._version, part.record)
                for project, part in sorted(used.items())
            ),
        )
        before, after = wheel_plan.measure_edit(self._torch, edit)
        paths = tuple(used[project].archive.path for project in sorted(used))
        return FatPlan(
            wheel=self._request.wheel,
            before=before,
            after=after,
            archive=self._torch,
            edit=edit,
            rocm=self._version,
            targets=self._request.targets,
            parts=tuple(path.name for path in paths),
            libraries=libraries,
            files=len(stored),
            copied=copied,
            left_out=left_out,
            from_system=tuple(sorted(self._system)),
            licenses=tuple(sorted(licenses)),
            unlicensed=tuple(unlicensed),
            part_paths=paths,
        )

    def _read_rocm_version(self) -> str:
        """Return the version of ROCm that torch requires; PackageError when it requires none, or several."""
        pins = set(wheel_plan.list_rocm_pins(wheel_plan.read_metadata(self._torch).requires_dist).values())
        if len(pins) != 1:
            raise errors.PackageError(
                f"{self._request.wheel} does not require rocm in one version", tip=_NO_ROCM_TIP
            )
        return pins.pop()

    def _open_parts(self) -> list[_Part]:
        """Open the rocm wheels of this version and platform, all device wheels among them."""
        parts = []
        for path in find_rocm_wheels(self._request, Version(self._version), self._stack):
            project = canonicalize_name(dist_info.split_wheel_name(path.name).distribution)
            if not project.startswith("rocm-sdk-") or project == "rocm-sdk-devel":
                continue
            archive = self._stack.enter_context(WheelArchive.open(path))
            scan.require_whole(archive)
            files = {}
            for name, member in wheel_plan.list_stored_members(archive).items():
                match = _ROCM_TREE.fullmatch(name)
                if match and match["path"] != "__init__.py" and not match["path"].startswith(".devel_links/"):
                    files[match["path"]] = member
            record = hashlib.sha256(archive.read_info("RECORD")).hexdigest()
            parts.append(_Part(archive, project, files, record))
        if all(part.project != "rocm-sdk-core" for part in parts):
            raise errors.PackageError(
                f"there is no wheel of rocm-sdk-core {self._version} for this platform",
                tip="name the folder or index of the ROCm packages that torch was built against",
            )
        order = ("rocm-sdk-core", "rocm-sdk-libraries")  # then device wheels, then all others
        ranks = {project: rank for rank, project in enumerate(order)}
        return sorted(parts, key=lambda p: (ranks.get(p.project, 2 if p.is_device else 3), p.project))

    def _locate_files(self) -> dict[str, _Part]:
        """Return the part that each file of the tree is taken from: the first that has it."""
        devices = {f"{_DEVICE_PREFIX}{gfx.strip_features(target)}" for target in self._request.targets}
        places: dict[str, _Part] = {}
        for part in self._parts:
            if part.is_device and part.project not in devices:
                continue
            for path, member in part.files.items():
                other = places.setdefault(path, part)
                if _LIBRARY.search(path) and other.files[path].digest != member.digest:
                    raise errors.PackageError(
                        f"{other.archive.path.name} and {part.archive.path.name} have different {path}"
                    )
        return places

    def _prune(
        self, archive: WheelArchive, names: Iterable[str], target_filter: prune.TargetFilter
    ) -> tuple[dict[str, _Linked], prune.PrunedMembers]:
        """Return what members are linked to, and what becomes of their device code; each is read once."""
        linked: dict[str, _Linked] = {}

        def inspect(name: str, data: memoryview) -> None:
            loaded = elf.read_loader_info(data, name)
            if loaded is not None:
                linked[name] = _Linked(loaded.needed, loaded.soname or "")
            elif (imports := pe.read_pe_imports(data, name)) is not None:
                linked[name] = _Linked(imports)

        pruned = prune.prune_members(archive, list(names), target_filter, self._stack, inspect=inspect)
        return linked, pruned

    def _read_torch(self) -> tuple[dict[str, _Linked], prune.PrunedMembers]:
        """Return what torch's own libraries are linked to outside, and what becomes of its device code."""
        names = wheel_plan.list_outside_info(self._torch)
        if any(name.startswith(f"{ROCM_FOLDER}/") for name in names):
            raise errors.PackageError(f"{self._request.wheel} carries its ROCm already")
        target_filter = prune.TargetFilter(self._request.targets)
        linked, pruned = self._prune(self._torch, names, target_filter)
        if missing := target_filter.list_missing():
            raise errors.PackageError(
                f"{self._request.wheel} has no code for {', '.join(missing)}",
                tip=f"it has {' '.join(pruned.targets) or 'none'}",
            )
        own = {PurePosixPath(name).name.lower() for name in names}
        outside = {
            name: _Linked(tuple(need for need in library.needed if need.lower() not in own))
            for name, library in linked.items()
        }
        return outside, pruned

    def _read_preloads(self) -> tuple[str, ...]:
        """Return the short names of the libraries that torch loads first, as its own module says."""
        entry = self._torch.member_by_name.get(INIT_MODULE)
        if entry is None:
            raise errors.PackageError(
                f"{self._request.wheel} has no {INIT_MODULE}, which starts ROCm", tip=_NO_ROCM_TIP
            )
        names = find_preload_names(self._torch.read(entry).decode("utf-8", "replace"))
        if names is None:
            raise errors.PackageError(
                f"{self._request.wheel}: {INIT_MODULE} does not say which libraries it loads"
            )
        return names

    def _find_preload(self, short_name: str) -> str:
        stems = {short_name.lower(), f"{short_name.lower()}_backend"}
        for path in self._places:
            if _LIBRARY.search(path) and get_stem(path).lower() in stems:
                return path
        raise errors.PackageError(
            f"the ROCm packages have no library {short_name}, which {INIT_MODULE} loads", tip=_PACKAGES_TIP
        )

    def _find_needs(self, library: str, needed: Iterable[str]) -> list[str]:
        """Return where in the tree needed libraries are; what is not ROCm's may be the system's."""
        paths = []
        for need in needed:
            if (path := self._find_library(need)) is not None:
                paths.append(path)
            elif is_rocm_library(need):
                raise errors.PackageError(
                    f"no ROCm package has {need}, which {library} is linked to", tip=_PACKAGES_TIP
                )
            else:
                self._system.add(need)
        return paths

    def _find_library(self, name: str) -> str | None:
        """Return the path of a library by its SONAME, or by the name of a DLL."""
        named = [path for path in self._places if PurePosixPath(path).name.lower() == name.lower()]
        if not named:  # packages may have the file under its full version only
            named = [path for path in self._places if PurePosixPath(path).name.startswith(f"{name}.")]
        return min(named, key=lambda path: (path.count("/"), path), default=None)

    def _take_all(self, first: Iterable[str]) -> None:
        """Take libraries, what they are linked to, open and look for, until nothing is left."""
        waiting = [*first, *(path for path in self._places if _matches(path, self._table.always))]
        while waiting:
            new = [path for path in dict.fromkeys(waiting) if path not in self._chosen]
            for part in self._parts:
                self._take(part, [path for path in new if self._places[path] is part])
            waiting = []
            for path in new:
                name = PurePosixPath(path).name
                linked = self._linked.get(path, _NOT_LINKED)
                waiting += self._find_needs(f"{name} in the ROCm packages", linked.needed)
                row = self._table.get_row(name)
                waiting += [p for p in self._places if _matches(PurePosixPath(p).name, row.opens)]
                waiting += [p for p in self._places if _matches(p, row.data)]

    def _take(self, part: _Part, paths: Sequence[str]) -> None:
        """Read files of the tree once: what they are linked to, and what is left of their device code.

        PackageError for a library that has code for other targets, and not for one of ours.
        """
        if not paths:
            return
        log.log_note(f"reading {tables.format_count(len(paths), 'file')} of {part.archive.path.name}")
        names = {path: part.files[path].entry.name for path in paths}
        linked, pruned = self._prune(part.archive, names.values(), prune.TargetFilter(self._request.targets))
        for path, name in names.items():
            self._chosen[path] = (part, pruned)
            if name in linked:
                self._linked[path] = linked[name]
            held = pruned.held.get(name, ())
            # of a database that is a library for each target, others have the others
            if not held or not _LIBRARY.search(path) or kernel_databases.list_database_labels(path):
                continue
            for target in self._request.targets:
                target_filter = prune.TargetFilter([target])
                runs = any(target_filter.keeps(code_objects.TargetId.parse(code)) for code in held)
                if not runs and not _is_excluded(target, get_stem(path)):
                    raise errors.PackageError(
                        f"{PurePosixPath(path).name} of the ROCm packages has no code for {target}",
                        tip=f"it has {' '.join(held)}",
                    )

    def _rename(self, path: str) -> str:
        """Return the path that a file gets: a library that of its SONAME."""
        soname = self._linked.get(path, _NOT_LINKED).soname if _LIBRARY.search(path) else ""
        return str(PurePosixPath(path).with_name(soname)) if soname else path

    def _require_databases(self) -> None:
        """Raise PackageError for a target without kernels of a library that has some for others."""
        everything = {path for part in self._parts for path in part.files}
        for library in sorted(path for path in self._chosen if _LIBRARY.search(path)):
            row = self._table.get_row(library)
            if row.database is None:
                continue

            def list_labels(paths: Iterable[str], patterns: Sequence[str]) -> list[str]:
                files = (path for path in paths if _matches(path, patterns))
                return [label for path in files for label in kernel_databases.list_database_labels(path)]

            exist = bool(list_labels(everything, row.data))
            chosen = list_labels(self._chosen, row.data)
            for target in self._request.targets if exist else ():
                target_filter = prune.TargetFilter([target])
                if not any(map(target_filter.keeps_label, chosen)) and not _is_excluded(target, row.database):
                    raise errors.PackageError(
                        f"the ROCm packages have no kernels of {row.database} for {target},"
                        f" which {PurePosixPath(library).name} needs",
                        tip=f"add the wheel of {_DEVICE_PREFIX}{gfx.strip_features(target)} {self._version}",
                    )

    def _order_libraries(self) -> tuple[str, ...]:
        """Return what is loaded at the start, those first that others are linked to; else by their names.

        Plug-ins, which the table has as data of a library, are opened by that library.
        """
        ordered: dict[str, None] = {}

        def add(path: str, above: tuple[str, ...]) -> None:
            if path in ordered or path in above:
                return
            for need in self._linked.get(path, _NOT_LINKED).needed:
                if (library := self._find_library(need)) is not None:
                    add(library, (*above, path))
            ordered[path] = None

        data = [pattern for row in self._table.libraries.values() for pattern in row.data]
        for path in sorted(self._chosen):
            if _LIBRARY.search(path) and "MIOpenCK" not in path and not _matches(path, data):
                add(path, ())
        return tuple(dict.fromkeys(self._rename(path) for path in ordered))

    def _read_licenses(self, part: _Part) -> dict[str, bytes]:
        """Return the texts of licences of a part, by their names in the dist-info folder."""
        entries = {
            f"licenses/rocm/{'/'.join(path.split('/')[2:])}": member.entry
            for path, member in part.files.items()
            if _matches(path, self._table.licenses)
        }
        for entry in part.archive.members:
            if ".dist-info/licenses/" in entry.name:
                entries[f"licenses/rocm/{part.project}/{entry.name.partition('/licenses/')[2]}"] = entry
        return {name: part.archive.read(entry) for name, entry in entries.items()}


def _is_excluded(target: str, library: str) -> bool:
    """Tell whether ROCm has no kernels of a library for a target, and none is missing then."""
    excluded = gfx.get_gfx_targets()[gfx.strip_features(target)].excluded
    return library.lower() in {name.lower() for name in excluded}


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _drop_rocm(requirements: tuple[str, ...]) -> Sequence[str]:
    projects = {text: canonicalize_name(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in requirements}
    return [text for text in requirements if not _ROCM_PACKAGE.fullmatch(projects[text])]


def find_preload_names(text: str) -> tuple[str, ...] | None:
    """Return the ``preload_shortnames`` in a module that starts ROCm; None when it names none."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "preload_shortnames":
            try:
                names = ast.literal_eval(node.value)
            except (ValueError, TypeError):
                return None
            return tuple(map(str, names))
    return None


def render_fat_init(rocm_version: str, libraries: Sequence[str]) -> str:
    """Write the module that loads the libraries of ``torch/_rocm``. The same input gives the same text."""
    names = "".join(f'    "{library}",\n' for library in libraries)
    return f'''"""Load the ROCm that this torch carries. Generated; edits are lost."""

ROCM_VERSION = "{rocm_version}"
LIBRARIES = (  # those first that others are linked to
{names})


def initialize():
    """Load ROCm's libraries from beside this module, so that torch's own find them loaded."""
    import ctypes
    import os

    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_rocm")
    if hasattr(os, "add_dll_directory"):
        os.add_dll_directory(os.path.join(folder, "bin"))
    mode = getattr(ctypes, "RTLD_GLOBAL", 0)
    for name in LIBRARIES:
        ctypes.CDLL(os.path.join(folder, *name.split("/")), mode=mode)
'''
