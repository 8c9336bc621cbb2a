"""Find what a wheel requires, all the way down, among wheels at hand or in an environment: its libraries.

METADATA says what will be installed beside a wheel, with extras and markers; the libraries of those packages
are found at run time, and belong into no other wheel. They are read from the files themselves: SONAMEs of
ELF libraries, names of DLLs. What a wheel requires only with an extra of its own may be absent: it does not
count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import PathDistribution, distributions
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.binaries import elf, limits, loader
from rocm_wheels.core import errors, process
from rocm_wheels.wheels import dist_info
from rocm_wheels.wheels.archive import WheelArchive

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocm_wheels.wheels.scan import WheelScan

_SITE_QUERY = "import json, sysconfig as s; print(json.dumps([s.get_path('purelib'), s.get_path('platlib')]))"
_ANY_PYTHON = {"py3", "py2.py3"}
SYSTEM_MARKERS = {
    "linux": {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux"},
    "windows": {"os_name": "nt", "sys_platform": "win32", "platform_system": "Windows"},
}
_WINDOWS_MACHINES = {"win_amd64": "AMD64", "win_arm64": "ARM64"}


@dataclass(frozen=True)
class WheelPlatform:
    """Where a wheel is for: ``linux`` or ``windows``, its architecture, and the tags of its name."""

    system: str
    architecture: str
    fields: dist_info.WheelNameFields

    @property
    def markers(self) -> dict[str, str]:
        """The environment that requirements are read for, as far as a wheel's name says."""
        machine = _WINDOWS_MACHINES.get(f"win_{self.architecture}", self.architecture)
        markers = {**SYSTEM_MARKERS[self.system], "platform_machine": machine}
        python = self.fields.python.split(".")[0]
        if python.startswith("cp3") and python[3:].isdigit():
            markers["python_version"] = f"3.{python[3:]}"
            markers["python_full_version"] = f"3.{python[3:]}.0"
        return markers

    def accepts(self, other: dist_info.WheelNameFields) -> bool:
        """Tell whether a wheel can be installed beside this one: same system, same Python."""
        platforms = other.platform.split(".")
        prefix = "win" if self.system == "windows" else ("linux", "manylinux")
        here = any(tag.startswith(prefix) and tag.endswith(self.architecture) for tag in platforms)
        return (here or platforms == ["any"]) and self._accepts_python(other)

    def _accepts_python(self, other: dist_info.WheelNameFields) -> bool:
        if other.python in _ANY_PYTHON or self.fields.python in _ANY_PYTHON or other.abi == "abi3":
            return True
        same_threads = other.abi == "none" or other.abi.endswith("t") == self.fields.abi.endswith("t")
        return same_threads and bool({*other.python.split(".")} & {*self.fields.python.split(".")})


def read_wheel_platform(wheel: Path) -> WheelPlatform | None:
    """Return where a wheel is for; None when it is for any machine. DataError for other systems."""
    fields = dist_info.split_wheel_name(wheel.name)
    tags = fields.platform.split(".")
    if tags == ["any"]:
        return None
    for tag in tags:
        if tag.startswith("win_"):
            return WheelPlatform("windows", tag.removeprefix("win_"), fields)
        if tag.startswith(("linux_", "manylinux")):
            for architecture in ("x86_64", "aarch64"):
                if tag.endswith(f"_{architecture}"):
                    return WheelPlatform("linux", architecture, fields)
    raise errors.DataError(
        f"{wheel} is for {fields.platform}", tip="wheels for linux and win_amd64 can be repaired"
    )


@dataclass(frozen=True)
class OfferedLibrary:
    """A library of a package: its path in site-packages, and what was read of it (None for a DLL)."""

    place: str
    binary: loader.HostBinary | None = None


@dataclass(frozen=True)
class OfferedPackage:
    """A package at hand: a wheel, or installed. ``origin`` names it to people.

    A wheel that was scanned is not opened again.
    """

    name: str
    version: Version
    origin: str
    wheel: Path | None = None
    installed: PathDistribution | None = None
    scan: WheelScan | None = None

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """Requires-Dist; DataError when METADATA cannot be read, none of a damaged scan."""
        if self.scan is not None:
            return self.scan.metadata.requires_dist if self.scan.metadata is not None else ()
        if self.wheel is not None:
            with WheelArchive.open(self.wheel) as archive:
                content = archive.read_info("METADATA")
            return dist_info.parse_metadata(content, name=f"{self.wheel}: METADATA").requires_dist
        assert self.installed is not None
        return tuple(self.installed.requires or ())

    def read_libraries(self, system: str, *, symbols: bool = False) -> dict[str, OfferedLibrary]:
        """Return its libraries, by the names that others need them by; their ``symbols`` where asked for."""
        if system == "windows":  # where names are compared without case
            named = {path.rpartition("/")[2].lower(): path for path in self._list_files()}
            return {n: OfferedLibrary(path) for n, path in named.items() if n.endswith((".dll", ".pyd"))}
        binaries: dict[str, loader.HostBinary | None] = {}
        if self.scan is not None:
            binaries |= self.scan.binaries
        elif self.wheel is not None:
            binaries |= read_host_binaries(self.wheel, symbols=symbols)
        elif self.installed is not None:
            for file in self._list_files():
                if ".so" not in file.rpartition("/")[2]:  # asked first: most of ten thousands are headers
                    continue
                path = Path(str(self.installed.locate_file(file)))
                if path.is_file():
                    binaries[file] = loader.read_host_binary_file(path, symbols=symbols)
        libraries: dict[str, OfferedLibrary] = {}
        for file, binary in binaries.items():
            if binary is not None and not binary.loader.program:
                name = binary.loader.soname or file.rpartition("/")[2]
                libraries.setdefault(name, OfferedLibrary(file, binary))
        return libraries

    def _list_files(self) -> list[str]:
        """Return the paths of its files; of RECORD as they are written: ROCm has too many for ``Path``."""
        if self.scan is not None:
            return [member.name for member in self.scan.members]
        if self.wheel is not None:
            with WheelArchive.open(self.wheel) as archive:
                return [entry.name for entry in archive.members]
        assert self.installed is not None
        record = self.installed.read_text("RECORD")
        if record is None:  # an egg, whose files are named elsewhere
            return list(map(str, self.installed.files or ()))
        name = f"RECORD of {self.installed.metadata['Name']}"
        return [entry.path for entry in dist_info.parse_wheel_record(record.encode(), name=name)]


@dataclass(frozen=True)
class RequiredPackages:
    """What a wheel requires, as far as it is at hand, and the libraries of that.

    ``libraries``: by the name that is needed, where it is in site-packages; ``owners``: which package has it;
    ``missing``: requirements that nothing at hand meets; ``binaries``: what was read of ELF libraries.
    """

    packages: tuple[OfferedPackage, ...]
    libraries: Mapping[str, str]
    owners: Mapping[str, str]
    missing: tuple[str, ...]
    binaries: Mapping[str, loader.HostBinary]


class PackagePool:
    """All packages at hand, each read once, however many wheels require it; with ``symbols``, those too."""

    def __init__(self, packages: Iterable[OfferedPackage], *, symbols: bool = False) -> None:
        self._packages = list(packages)
        self._symbols = symbols
        self._lock = Lock()
        self._libraries: dict[tuple[str, str], dict[str, OfferedLibrary]] = {}

    @classmethod
    def collect(
        cls,
        wheels: Sequence[Path],
        places: Sequence[Path],
        python: Path | None,
        env: Mapping[str, str],
        *,
        site_packages: Path | None = None,
        scans: Sequence[WheelScan] = (),
        symbols: bool = False,
    ) -> PackagePool:
        """Collect wheels, those in ``places`` (files or folders), and what is installed.

        That is what ``python`` says, and what is in ``site_packages``. ``scans`` are wheels that were read.
        """
        files = list(wheels)
        for place in places:
            if place.is_dir():
                files += sorted(place.glob("*.whl"))
            elif place.suffix == ".whl" and place.is_file():
                files.append(place)
            else:
                raise errors.UsageError(
                    f"--find-links: {place} is neither a folder nor a wheel", tip="download it first"
                )
        packages = []
        scans_by_file = {scan.path.resolve(): scan for scan in scans if scan.name is not None}
        for file in dict.fromkeys([*scans_by_file, *(path.resolve() for path in files)]):
            packages.append(_offer_wheel(file, scans_by_file.get(file)))
        if python is not None:
            packages += _list_installed(_ask_site_folders(python, env), python)
        if site_packages is not None:
            packages += _list_installed([str(site_packages)], site_packages)
        return cls(packages, symbols=symbols)

    def find_required(self, wheel: Path, platform: WheelPlatform) -> RequiredPackages:
        """Follow the requirements of a wheel; DataError when a METADATA cannot be read."""
        place = wheel.resolve()
        own = next((package for package in self._packages if package.wheel == place), None)
        waiting = [(text, "") for text in (own or _offer_wheel(wheel)).requirements]
        reached: dict[tuple[str, str], OfferedPackage] = {}
        missing: list[str] = []
        while waiting:
            text, extra = waiting.pop(0)
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({**platform.markers, "extra": extra}):
                continue
            package = self._choose(requirement, platform)
            if package is None:
                missing.append(text)
                continue
            for own_extra in ("", *sorted(requirement.extras)):
                if (package.name, own_extra) not in reached:
                    reached[package.name, own_extra] = package
                    waiting += [(line, own_extra) for line in package.requirements]
        packages = tuple({package.name: package for package in reached.values()}.values())
        libraries: dict[str, OfferedLibrary] = {}
        owners: dict[str, str] = {}
        for package in packages:
            for name, library in self.get_libraries(package, platform.system).items():
                libraries.setdefault(name, library)
                owners.setdefault(name, package.origin)
        places = {name: library.place for name, library in libraries.items()}
        binaries = {name: library.binary for name, library in libraries.items() if library.binary is not None}
        return RequiredPackages(packages, places, owners, tuple(dict.fromkeys(missing)), binaries)

    def find_owner(self, library: str, platform: WheelPlatform) -> str | None:
        """Return the package at hand that has a library, required or not."""
        for package in self._packages:
            fits = package.wheel is None or platform.accepts(dist_info.split_wheel_name(package.wheel.name))
            if fits and library in self.get_libraries(package, platform.system):
                return package.origin
        return None

    def get_libraries(self, package: OfferedPackage, system: str) -> dict[str, OfferedLibrary]:
        """Return the libraries of a package; read once."""
        key = package.origin, system
        with self._lock:  # reading uses all cores already
            if key not in self._libraries:
                self._libraries[key] = package.read_libraries(system, symbols=self._symbols)
            return self._libraries[key]

    def _choose(self, requirement: Requirement, platform: WheelPlatform) -> OfferedPackage | None:
        """Return the newest package that meets a requirement beside a wheel."""
        name = canonicalize_name(requirement.name)
        fitting = [
            package
            for package in self._packages
            if package.name == name
            and requirement.specifier.contains(package.version, prereleases=True)
            and (package.wheel is None or platform.accepts(dist_info.split_wheel_name(package.wheel.name)))
        ]
        return max(fitting, key=lambda package: package.version, default=None)


def _offer_wheel(file: Path, scan: WheelScan | None = None) -> OfferedPackage:
    name = dist_info.parse_wheel_name(file.name)
    return OfferedPackage(name.name, name.version, file.name, wheel=file, scan=scan)


def read_host_binaries(
    wheel: Path, *, for_changes: bool = False, symbols: bool = False
) -> dict[str, loader.HostBinary]:
    """Read the programs and libraries for the host in a wheel, by member; as ``read_host_binary``.

    DataError when a member is damaged.
    """

    def read(data: memoryview, *, name: str) -> loader.HostBinary | None:
        try:
            return loader.read_host_binary(data, name, for_changes=for_changes, symbols=symbols)
        except limits.LimitError:  # other tools would read it
            raise
        except errors.DataError:  # says that it is ELF and breaks off: data, the loader will not take it
            return None

    def choose(name: str, head: bytes) -> Callable[[memoryview], loader.HostBinary | None] | None:
        return partial(read, name=f"{wheel}: {name}") if head.startswith(elf.ELF_MAGIC) else None

    with WheelArchive.open(wheel) as archive:
        read_members = archive.read_chosen(choose, digest=False)
    return {name: binary for name, binary in read_members.items() if binary is not None}


def _ask_site_folders(python: Path, env: Mapping[str, str]) -> list[str]:
    answer = process.capture_output(
        [python, "-c", _SITE_QUERY],
        env=env,
        check=errors.UsageError,
        description=f"asking {python} for its packages",
    )
    return list(dict.fromkeys(json.loads(answer)))


def _list_installed(folders: Sequence[str], place: Path) -> Iterator[OfferedPackage]:
    for distribution in distributions(path=list(folders)):
        if isinstance(distribution, PathDistribution) and distribution.metadata["Name"]:
            name, version = canonicalize_name(distribution.metadata["Name"]), distribution.version
            origin = f"{name} {version} of {place}"
            yield OfferedPackage(name, Version(version), origin, installed=distribution)
