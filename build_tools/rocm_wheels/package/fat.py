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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.binaries import elf, loader
from rocm_wheels.core import errors, extras, log, records, shell, tables
from rocm_wheels.device_code import code_objects, kernel_databases
from rocm_wheels.index.reader import IndexReader, download_link, file_name_of_link, resolve_index_url
from rocm_wheels.models import gfx, project_names
from rocm_wheels.models.libraries import is_rocm_library
from rocm_wheels.package import prune
from rocm_wheels.wheels import dist_info, rewrite, sbom, stored_member, zip_format, zip_layout
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit, correct_record_digest, get_edited_name

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


@dataclass(frozen=True)
class FatPlan:
    """What a fat wheel becomes; sizes are (content, archive) before and after.

    ``parts`` are the rocm wheels that something is taken from, ``libraries`` those that are loaded, in this
    order, from ``torch/_rocm``; ``from_system`` is what they are linked to that no package has. ``removed``:
    how many files for other targets were left out. ``unlicensed``: parts without the text of a licence.
    """

    wheel: Path
    rocm_version: str
    targets: tuple[str, ...]
    parts: tuple[str, ...]
    libraries: tuple[str, ...]
    files: int
    copied: int
    removed: int
    from_system: tuple[str, ...]
    licenses: tuple[str, ...]
    unlicensed: tuple[str, ...]
    before: tuple[int, int]
    after: tuple[int, int]
    edit: WheelEdit = field(repr=False, default_factory=WheelEdit)

    def find_target(self, folder: Path | None) -> Path:
        """Return the path of the fat wheel in ``folder`` (None: beside the thin one)."""
        return (folder or self.wheel.parent) / get_edited_name(self.wheel.name, self.edit)

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain JSON values."""
        return {
            "wheel": str(self.wheel),
            "rocm": self.rocm_version,
            "targets": list(self.targets),
            "parts": list(self.parts),
            "libraries": list(self.libraries),
            "files": {"taken": self.files, "copied": self.copied, "left_out": self.removed},
            "from_system": list(self.from_system),
            "licenses": list(self.licenses),
            "unlicensed": list(self.unlicensed),
            **prune.sizes_as_json(self.before, self.after),
        }


@dataclass(frozen=True)
class FatRequest:
    """What is asked: the wheel of torch, the wheels of ROCm that there are, targets, and the build tag."""

    wheel: Path
    rocm_wheels: tuple[Path, ...]
    targets: tuple[str, ...]
    build_tag: str | None = None


def read_rocm_version(wheel: Path) -> str:
    """Return the version of ROCm that a wheel requires; PackageError when it requires none, or several."""
    with WheelArchive.open(wheel) as archive:
        metadata = _read_dist_info(archive, "METADATA")
    for text in dist_info.parse_metadata(metadata, name=f"{wheel}: METADATA").requires_dist:
        requirement = Requirement(text)
        specifiers = list(requirement.specifier)
        if canonicalize_name(requirement.name) != "rocm" or len(specifiers) != 1:
            continue
        if specifiers[0].operator == "==" and "*" not in specifiers[0].version:
            return specifiers[0].version
    raise errors.PackageError(
        f"{wheel} does not require rocm in one version",
        tip="a fat wheel is made from a torch that was built against ROCm's Python packages",
    )


def fetch_rocm_wheels(index_url: str, request: FatRequest, folder: Path) -> tuple[Path, ...]:
    """Download the wheels of ROCm that a fat wheel is made from; those of an index on the disk stay there.

    PackageError when the index lacks one that is needed.
    """
    version = Version(read_rocm_version(request.wheel))
    is_windows = dist_info.split_wheel_name(request.wheel.name).platform.startswith("win")
    reader, url = IndexReader(), resolve_index_url(index_url)
    paths = []
    for project in list_part_names(request.targets):
        page = reader.read_page(url, f"{url}{project}/", project=project)
        if page is None and project.startswith(_DEVICE_PREFIX):
            continue  # ROCm that is not split has all kernels in its libraries
        links = [link for link in page or () if _fits(file_name_of_link(link), version, is_windows)]
        if not links:
            raise errors.PackageError(
                f"{shell.hide_credentials(url)} has no wheel of {project} {version} for this platform"
            )
        paths.append(download_link(links[0], folder, error=errors.PackageError))
    return tuple(paths)


def _fits(file_name: str, version: Version, is_windows: bool) -> bool:
    if not file_name.endswith(".whl"):
        return False
    name = dist_info.parse_wheel_name(file_name)
    is_ours = any(tag.platform == "any" or tag.platform.startswith("win") == is_windows for tag in name.tags)
    return name.version == version and is_ours


def list_part_names(targets: Iterable[str]) -> tuple[str, ...]:
    """Return the projects whose wheels a fat wheel is made from; those of targets may not exist."""
    devices = dict.fromkeys(f"{_DEVICE_PREFIX}{gfx.strip_features(target)}" for target in targets)
    return ("rocm-sdk-core", "rocm-sdk-libraries", *devices)


def plan_fat(request: FatRequest, stack: ExitStack) -> FatPlan:
    """Plan a fat wheel; new contents are compressed into files without a name, which ``stack`` closes.

    PackageError names the library, file or target that is missing.
    """
    extras.require_extras("making a fat wheel", "build")
    prune.require_plain_wheel(request.wheel)
    return _FatMaker(request, stack).make_plan()


def write_fat_wheel(plan: FatPlan, folder: Path) -> rewrite.RewrittenWheel:
    """Write a fat wheel into ``folder``; it is there whole or not at all. Raises as ``rewrite_wheel``."""
    return rewrite.rewrite_wheel(plan.wheel, folder, plan.edit)


@dataclass(frozen=True)
class _Part:
    """A rocm wheel: ``names`` are its members by their path in the ROCm tree, ``record`` digests RECORD."""

    archive: WheelArchive
    project: str
    names: Mapping[str, str]
    digests: Mapping[str, str]
    entries: Mapping[str, zip_format.ZipEntry]
    record: str


class _FatMaker:
    """One fat wheel under way: what was found so far."""

    def __init__(self, request: FatRequest, stack: ExitStack) -> None:
        self._request = request
        self._stack = stack
        self._table = _load_table()
        self._needs: dict[str, tuple[str, ...]] = {}  # of each library that was read, by its path in the tree
        self._chosen: dict[str, tuple[_Part, prune.PrunedMembers]] = {}
        self._sonames: dict[str, str] = {}
        self._system: set[str] = set()
        self._version = read_rocm_version(request.wheel)
        self._torch = stack.enter_context(WheelArchive.open(request.wheel))
        self._is_windows = dist_info.split_wheel_name(request.wheel.name).platform.startswith("win")
        self._parts = self._open_parts()
        self._places = self._locate_files()

    def make_plan(self) -> FatPlan:
        """Return the plan. Raises PackageError."""
        torch_needs, pruned_torch = self._read_torch()
        first = [self._find_preload(name) for name in self._read_preloads()]
        first += self._find_needs("the wheel", torch_needs)
        self._close(dict.fromkeys(first))
        self._require_databases()
        libraries = self._order_libraries()
        stored, removed, copied = self._collect_files()
        licenses, unlicensed = self._collect_licenses()
        init = render_fat_init(self._version, libraries)
        edit = WheelEdit(
            build=self._request.build_tag,
            requirements=_drop_rocm,
            license_files=lambda old: [*old, *(name.partition("/")[2] for name in licenses)],
            put=licenses,
            members={INIT_MODULE: init.encode()},
            stored={**pruned_torch.stored, **stored},
            drop_members=pruned_torch.dropped,
            step=f"fat {' '.join(self._request.targets)}",
            contained=self._list_packages(),
        )
        before = (sum(entry.size for entry in self._torch.members), self._torch.size)
        after = self._measure(edit, before)
        if zip_layout.exceeds_ratio(*after):
            raise errors.PackageError(
                f"the content ({after[0]} bytes) would be more than 50 times the archive ({after[1]} bytes),"
                " which PyPI refuses"
            )
        used = {part.project: part.archive.path.name for part, _ in self._chosen.values()}
        return FatPlan(
            wheel=self._request.wheel,
            rocm_version=self._version,
            targets=self._request.targets,
            parts=tuple(used[project] for project in sorted(used)),
            libraries=libraries,
            files=len(stored),
            copied=copied,
            removed=removed,
            from_system=tuple(sorted(self._system)),
            licenses=tuple(sorted(licenses)),
            unlicensed=unlicensed,
            before=before,
            after=after,
            edit=edit,
        )

    def _open_parts(self) -> list[_Part]:
        """Open the rocm wheels of this version and platform, all device wheels among them."""
        parts = []
        for path in sorted(self._request.rocm_wheels):
            name = dist_info.parse_wheel_name(path.name)
            project = canonicalize_name(name.name)
            if not project.startswith("rocm-sdk-") or project == "rocm-sdk-devel":
                continue
            if not _fits(path.name, Version(self._version), self._is_windows):
                continue
            archive = self._stack.enter_context(WheelArchive.open(path))
            archive.require_whole()
            parts.append(_read_part(archive, project))
        projects = {part.project for part in parts}
        if "rocm-sdk-core" not in projects:
            raise errors.PackageError(
                f"there is no wheel of rocm-sdk-core {self._version} for this platform",
                tip="name the folder or index of the ROCm packages that torch was built against",
            )
        return sorted(parts, key=lambda part: _rank_project(part.project))

    def _locate_files(self) -> dict[str, _Part]:
        """Return the part that each file of the tree is taken from: the first that has it."""
        devices = {f"{_DEVICE_PREFIX}{gfx.strip_features(target)}" for target in self._request.targets}
        places: dict[str, _Part] = {}
        for part in self._parts:
            if part.project.startswith(_DEVICE_PREFIX) and part.project not in devices:
                continue
            for path, name in part.names.items():
                other = places.setdefault(path, part)
                if other is part or not _LIBRARY.search(path):
                    continue
                if other.digests[other.names[path]] != part.digests[name]:
                    raise errors.PackageError(
                        f"{other.archive.path.name} and {part.archive.path.name} have different {path}"
                    )
        return places

    def _read_torch(self) -> tuple[dict[str, tuple[str, ...]], prune.PrunedMembers]:
        """Return what torch's own libraries are linked to, and what becomes of its device code."""
        target_filter = prune.TargetFilter(self._request.targets)
        needs: dict[str, tuple[str, ...]] = {}
        folders = tuple(
            f"{name}/"
            for name in dist_info.list_dist_info_folders(entry.name for entry in self._torch.members)
        )
        names = [entry.name for entry in self._torch.members if not entry.name.startswith(folders)]
        if any(name.startswith(f"{ROCM_FOLDER}/") for name in names):
            raise errors.PackageError(f"{self._request.wheel} carries its ROCm already")
        pruned = prune.prune_members(
            self._torch, names, target_filter, self._stack, inspect=_make_inspector(needs, {})
        )
        if missing := target_filter.list_missing():
            raise errors.PackageError(
                f"{self._request.wheel} has no code for {', '.join(missing)}",
                tip=f"it has {' '.join(pruned.targets) or 'none'}",
            )
        provided = {PurePosixPath(name).name.lower() for name in names}
        return {
            name: tuple(need for need in listed if need.lower() not in provided)
            for name, listed in needs.items()
        }, pruned

    def _read_preloads(self) -> tuple[str, ...]:
        """Return the short names of the libraries that torch loads first, as its own module says."""
        entry = next((entry for entry in self._torch.members if entry.name == INIT_MODULE), None)
        if entry is None:
            raise errors.PackageError(
                f"{self._request.wheel} has no {INIT_MODULE}, which starts ROCm",
                tip="a fat wheel is made from a torch that was built against ROCm's Python packages",
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
            f"the ROCm packages have no library {short_name}, which {INIT_MODULE} loads",
            tip="name packages of the ROCm that torch was built against",
        )

    def _find_needs(self, what: str, needs: Mapping[str, Sequence[str]]) -> list[str]:
        """Return where in the tree needed libraries are; what is not ROCm's may be the system's."""
        paths = []
        for library, listed in needs.items():
            for need in listed:
                path = self._find_library(need)
                if path is not None:
                    paths.append(path)
                elif is_rocm_library(need):
                    raise errors.PackageError(
                        f"no ROCm package has {need}, which {library} in {what} is linked to",
                        tip="name packages of the ROCm that torch was built against",
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

    def _close(self, first: Iterable[str]) -> None:
        """Take libraries, what they are linked to, open and look for, until nothing is left."""
        waiting = list(first)
        waiting += [path for path in self._places if _matches(path, self._table.always)]
        while waiting:
            new = [path for path in dict.fromkeys(waiting) if path not in self._chosen]
            self._take(new)
            waiting = []
            for path in new:
                label = PurePosixPath(path).name
                waiting += self._find_needs("the ROCm packages", {label: self._needs.get(path, ())})
                row = self._table.get_row(label)
                waiting += [p for p in self._places if _matches(PurePosixPath(p).name, row.opens)]
                waiting += [p for p in self._places if _matches(p, row.data)]

    def _take(self, paths: Sequence[str]) -> None:
        """Read files of the tree once: what they need, and what is left of their device code."""
        for part in self._parts:
            mine = [path for path in paths if self._places[path] is part]
            names = {part.names[path] for path in mine}
            if not names:
                continue
            log.log_note(f"reading {tables.format_count(len(names), 'file')} of {part.archive.path.name}")
            needs: dict[str, tuple[str, ...]] = {}
            sonames: dict[str, str] = {}
            target_filter = prune.TargetFilter(self._request.targets)
            pruned = prune.prune_members(
                part.archive, names, target_filter, self._stack, inspect=_make_inspector(needs, sonames)
            )
            for path in mine:
                name = part.names[path]
                self._chosen[path] = (part, pruned)
                self._needs[path] = needs.get(name, ())
                if _LIBRARY.search(path) and name in sonames:
                    self._sonames[path] = sonames[name]
                self._require_code(path, pruned.held.get(name, ()))

    def _require_code(self, path: str, held: Sequence[str]) -> None:
        """Raise PackageError for a library that has code for other targets, and not for one of ours."""
        stem = get_stem(path).lower()
        is_database = bool(
            kernel_databases.list_database_labels(path)
        )  # a library a target: others have others
        for target in self._request.targets if _LIBRARY.search(path) and held and not is_database else ():
            target_filter = prune.TargetFilter([target])
            excluded = {name.lower() for name in gfx.get_gfx_targets()[gfx.strip_features(target)].excluded}
            if stem not in excluded and not any(
                target_filter.keeps(code_objects.TargetId.parse(name)) for name in held
            ):
                raise errors.PackageError(
                    f"{PurePosixPath(path).name} of the ROCm packages has no code for {target}",
                    tip=f"it has {' '.join(held)}",
                )

    def _rename(self, path: str) -> str:
        """Return the path that a file gets: a library that of its SONAME."""
        soname = self._sonames.get(path)
        return str(PurePosixPath(path).with_name(soname)) if soname else path

    def _require_databases(self) -> None:
        """Raise PackageError for a target without kernels of a library that has some for others."""
        for library in sorted(path for path in self._chosen if _LIBRARY.search(path)):
            row = self._table.get_row(library)
            if row.database is None:
                continue
            labels = {
                label
                for part in self._parts
                for path in part.names
                if _matches(path, row.data)
                for label in kernel_databases.list_database_labels(path)
            }
            for target in self._request.targets:
                excluded = gfx.get_gfx_targets()[gfx.strip_features(target)].excluded
                target_filter = prune.TargetFilter([target])
                held = any(
                    target_filter.keeps_label(label)
                    for path in self._chosen
                    if _matches(path, row.data)
                    for label in kernel_databases.list_database_labels(path)
                )
                if labels and not held and row.database not in excluded:
                    raise errors.PackageError(
                        f"the ROCm packages have no kernels of {row.database} for {target},"
                        f" which {PurePosixPath(library).name} needs",
                        tip=f"add the wheel of rocm-sdk-device-{gfx.strip_features(target)} {self._version}",
                    )

    def _order_libraries(self) -> tuple[str, ...]:
        """Return the libraries, those first that others are linked to; otherwise in the order of names."""
        ordered: dict[str, None] = {}

        def add(path: str, above: tuple[str, ...]) -> None:
            if path in ordered or path in above:
                return
            for need in self._needs.get(path, ()):
                library = self._find_library(need)
                if library is not None:
                    add(library, (*above, path))
            ordered[path] = None

        for path in sorted(path for path in self._chosen if self._is_loaded(path)):
            add(path, ())
        return tuple(dict.fromkeys(self._rename(path) for path in ordered))

    def _is_loaded(self, path: str) -> bool:
        """Tell whether a library is loaded at the start: plug-ins of a library are opened by it."""
        return bool(_LIBRARY.search(path)) and "MIOpenCK" not in path and not self._is_data(path)

    def _is_data(self, path: str) -> bool:
        return any(_matches(path, row.data) for row in self._table.libraries.values())

    def _collect_files(self) -> tuple[dict[str, stored_member.StoredMember], int, int]:
        """Return the files of the tree by their new names; how many are left out, how many only copied."""
        stored: dict[str, stored_member.StoredMember] = {}
        removed = copied = 0
        for path in sorted(self._chosen):
            part, pruned = self._chosen[path]
            name = part.names[path]
            if name in pruned.dropped:
                removed += 1
                continue
            target = f"{ROCM_FOLDER}/{self._rename(path)}"
            if name in pruned.stored:
                stored[target] = pruned.stored[name]
                continue
            entry = part.entries[name]
            stored[target] = stored_member.StoredMember(
                entry, part.digests[name], part.archive.descriptor, entry.data
            )
            copied += 1
        return stored, removed, copied

    def _collect_licenses(self) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """Return the texts of licences by their names in the dist-info folder, and the parts without one."""
        texts: dict[str, bytes] = {}
        unlicensed = []
        used = {id(part): part for part, _ in self._chosen.values()}
        for part in sorted(used.values(), key=lambda part: part.project):
            own = {
                f"licenses/rocm/{'/'.join(path.split('/')[2:])}": name
                for path, name in part.names.items()
                if _matches(path, self._table.licenses)
            }
            own |= {
                f"licenses/rocm/{part.project}/{name.partition('/licenses/')[2]}": name
                for name in part.entries
                if ".dist-info/licenses/" in name
            }
            texts |= {target: part.archive.read(part.entries[name]) for target, name in own.items()}
            if not own and not part.project.startswith(_DEVICE_PREFIX):
                unlicensed.append(part.project)
        return dict(sorted(texts.items())), tuple(unlicensed)

    def _list_packages(self) -> tuple[sbom.PackagePart, ...]:
        """Return the rocm packages that files are taken from, for the bill of materials."""
        projects = {part.project: part for part, _ in self._chosen.values()}
        return tuple(
            sbom.PackagePart(project, self._version, projects[project].record) for project in sorted(projects)
        )

    def _measure(self, edit: WheelEdit, before: tuple[int, int]) -> tuple[int, int]:
        content, packed = before
        old = {entry.name: entry for entry in self._torch.members}
        for name, member in edit.stored.items():
            content += member.entry.size - (old[name].size if name in old else 0)
            packed += member.entry.compressed - (old[name].compressed if name in old else 0)
        for name in edit.drop_members:
            content -= old[name].size
            packed -= old[name].compressed
        return content, packed


def _make_inspector(
    needs: dict[str, tuple[str, ...]], sonames: dict[str, str]
) -> Callable[[str, memoryview], None]:
    """Return what notes the libraries that a member is linked to, and its own SONAME."""

    def inspect(name: str, data: memoryview) -> None:
        loaded = elf.read_loader_info(data, name)
        if loaded is not None:
            needs[name] = loaded.needed
            if loaded.soname:
                sonames[name] = loaded.soname
        elif (imports := loader.read_pe_imports(data, name)) is not None:
            needs[name] = imports

    return inspect


def _rank_project(project: str) -> tuple[int, str]:
    order = ("rocm-sdk-core", "rocm-sdk-libraries", _DEVICE_PREFIX)
    return next((i for i, name in enumerate(order) if project.startswith(name)), len(order)), project


def _read_part(archive: WheelArchive, project: str) -> _Part:
    names: dict[str, str] = {}
    for entry in archive.members:
        match = _ROCM_TREE.fullmatch(entry.name)
        if match and match["path"] != "__init__.py" and not match["path"].startswith(".devel_links/"):
            names[match["path"]] = entry.name
    content = _read_dist_info(archive, "RECORD")
    record = dist_info.parse_wheel_record(content, name=f"{archive.path}: RECORD", files=len(archive.members))
    digests = {entry.path: correct_record_digest(entry.digest) for entry in record}
    if bare := sorted(name for name in names.values() if not digests.get(name)):
        raise errors.DataError(f"{archive.path}: RECORD has no sha256 digest of {', '.join(bare[:3])}")
    spelled = {name: digest or "" for name, digest in digests.items()}
    entries = {entry.name: entry for entry in archive.members}
    return _Part(archive, project, names, spelled, entries, hashlib.sha256(content).hexdigest())


def _read_dist_info(archive: WheelArchive, name: str) -> bytes:
    entry = next(
        (e for e in archive.members if e.name.endswith(f".dist-info/{name}") and e.name.count("/") == 1), None
    )
    if entry is None:
        raise errors.DataError(f"{archive.path} has no {name}")
    return archive.read(entry)


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
