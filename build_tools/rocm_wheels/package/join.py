"""Join a host wheel with its device wheels: one wheel that has its device code in its libraries.

The way back from ``split``, for wheels of ROCm's own splitter too. Bundles are built from the kernels of the
archives, one for each record of a library, and are compressed as ROCm 6.2 and newer can read them; they lie
behind all else of the library, whose records get their magic and their addresses back. Other files of device
wheels go to the paths that they have, and METADATA loses the extras of devices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.binaries import elf
from rocm_wheels.core import errors, log, parallel, tables
from rocm_wheels.core.installation import require_extras
from rocm_wheels.device_code import code_objects, fat_library, kpack, repack, spool
from rocm_wheels.package import split, wheel_plan
from rocm_wheels.variants import device_names
from rocm_wheels.wheels import dist_info, rewrite, scan, stored_member
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit

_DEVICE_EXTRA = re.compile(r"device-(?:gfx[\w-]+|all)")


@dataclass(frozen=True, kw_only=True)
class JoinPlan(wheel_plan.WheelPlan):
    """What a host wheel becomes: ``targets`` are those that it has code for, ``files`` what else it gets.

    ``libraries`` says how many records each library has that gets its code back.
    """

    devices: tuple[Path, ...]
    targets: tuple[str, ...]
    libraries: Mapping[str, int]
    files: int


def plan_join(host: Path, devices: tuple[Path, ...], stack: ExitStack) -> JoinPlan:
    """Plan a wheel with its device code: of a host wheel, and the device wheels that were split off from it.

    New contents go into files without a name, which ``stack`` closes.
    PackageError for a wheel that is not split, device wheels of another one, and a kernel that none has;
    DataError for damage.
    """
    require_extras("joining", "build")
    archive = wheel_plan.open_wheel(host, stack)
    log.log_note(f"joining {host.name} with {tables.format_count(len(devices), 'device wheel')}")
    return _WheelJoiner(archive, devices, stack).make_plan()


def write_join(plan: JoinPlan, folder: Path) -> Path:
    """Write the wheel into ``folder``; it is there whole or not at all. Raises as ``rewrite_wheel``."""
    return rewrite.rewrite_wheel(plan.archive, folder, plan.edit, others=plan.devices)


@dataclass(frozen=True)
class _JoinedLibrary:
    """A library with its code: what is stored, its targets, and the number of its records."""

    stored: stored_member.StoredMember
    targets: frozenset[code_objects.TargetId]
    records: int


class _WheelJoiner:
    """One wheel under way."""

    def __init__(self, host: WheelArchive, devices: tuple[Path, ...], stack: ExitStack) -> None:
        self._devices = devices
        self._stack = stack
        self._bundles = spool.SpoolFile(stack)
        self._host = host
        self._entries = host.member_by_name
        self._metadata = wheel_plan.read_metadata(host)
        self._kernels: dict[str, list[kpack.KpackKernel]] = {}  # by the name of their archive
        self._files: dict[str, stored_member.StoredMember] = {}  # of device wheels, as they lie in them

    def make_plan(self) -> JoinPlan:
        """Return the plan. Raises PackageError, and DataError for damaged files."""
        host_archives = frozenset(name for name in self._entries if name.endswith(kpack.KPACK_SUFFIX))
        if host_archives:
            self._read_kernels(self._host)
        for device in self._devices:
            self._read_device(device)
        joined = self._host.read_chosen(self._choose_reader)
        libraries = {name: library for name, library in joined.items() if library is not None}
        if not libraries:
            raise errors.PackageError(
                f"{self._host.path} is not split: no library of it has its device code elsewhere"
            )
        if existing := sorted(self._files.keys() & self._entries.keys()):
            raise errors.PackageError(f"{self._host.path} and a device wheel both have {existing[0]}")
        names = wheel_plan.format_targets(t for library in libraries.values() for t in library.targets)
        notices, texts = self._take_notices_out()
        edit = WheelEdit(
            requirements=self._drop_device_requirements,
            extras=lambda old: [extra for extra in old if not _is_device_extra(extra)],
            drop=frozenset({dist_info.DEVICE_FILES}),
            members=texts,
            stored={**self._files, **{name: library.stored for name, library in libraries.items()}},
            drop_members=host_archives | notices,
            step=f"join {' '.join(names)}",
        )
        before, after = wheel_plan.measure_edit(self._host, edit)
        return JoinPlan(
            wheel=self._host.path,
            before=before,
            after=after,
            archive=self._host,
            edit=edit,
            devices=self._devices,
            targets=names,
            libraries={name: library.records for name, library in sorted(libraries.items())},
            files=len(self._files),
        )

    def _drop_device_requirements(self, requirements: Sequence[str]) -> list[str]:
        """Return requirements without those of device extras, and without those that splitting adds."""
        selector = f"{device_names.make_selector_name(self._metadata.name)} == {self._metadata.version}"
        return [
            text
            for text in requirements
            if text not in {"rocm-bootstrap", selector} and not _is_of_device(text)
        ]

    def _take_notices_out(self) -> tuple[frozenset[str], dict[str, bytes]]:
        """Return the modules that splitting added, and the texts of packages as they were before that."""
        texts = {}
        for name in (name for name in self._entries if name.endswith(f"/{split.NOTICE_MODULE}")):
            start = f"{name.removesuffix(split.NOTICE_MODULE)}__init__.py"
            text = self._host.read(self._entries[start]) if start in self._entries else b""
            if text.endswith(split.NOTICE_LINES):
                texts[name] = (start, text.removesuffix(split.NOTICE_LINES))
        return frozenset(texts), dict(texts.values())

    def _read_device(self, wheel: Path) -> None:
        """Note kernels and files of a device wheel; PackageError when it is not of this host wheel."""
        archive = self._stack.enter_context(WheelArchive.open(wheel))
        host, version = canonicalize_name(self._metadata.name), self._metadata.version
        requirements = map(Requirement, wheel_plan.read_metadata(archive).requires_dist)
        pins = [str(r.specifier) for r in requirements if canonicalize_name(r.name) == host]
        if pins != [f"=={version}"]:
            raise errors.PackageError(
                f"{wheel} is no device wheel of {host} {version}: it requires {', '.join(pins) or 'none'}",
                tip="host and device wheels come out of one split",
            )
        self._read_kernels(archive)
        scan.require_whole(archive)
        members = wheel_plan.list_stored_members(archive)
        self._files |= {n: member for n, member in members.items() if not n.endswith(kpack.KPACK_SUFFIX)}

    def _read_kernels(self, archive: WheelArchive) -> None:
        def choose(name: str, head: bytes) -> Callable[[memoryview], list[kpack.KpackKernel]] | None:
            place = f"{archive.path}: {name}"
            if not name.endswith(kpack.KPACK_SUFFIX):
                return None
            return lambda data: list(kpack.read_kpack_kernels(elf.BinarySpan(data, place)))

        for name, kernels in archive.read_chosen(choose).items():
            if name in self._kernels:
                raise errors.PackageError(f"{archive.path}: another device wheel has {name}, too")
            self._kernels[name] = kernels

    def _choose_reader(self, name: str, head: bytes) -> Callable[[memoryview], _JoinedLibrary | None] | None:
        if name.endswith(kpack.KPACK_SUFFIX) or not code_objects.may_hold_code(name, head):
            return None
        return partial(self._join_library, name=name)

    def _join_library(self, data: memoryview, *, name: str) -> _JoinedLibrary | None:
        """Return a library with its code; None for one that is not split."""
        place = f"{self._host.path}: {name}"
        paths = code_objects.list_named_archives(data, place)
        if not paths:
            return None
        library = fat_library.read_fat_library(data, place)
        kernels: dict[str, dict[code_objects.TargetId, kpack.KpackKernel]] = {}
        for archive in kpack.find_kpack_archives(name, paths, sorted(self._kernels)):
            for kernel in self._kernels[archive]:
                target = code_objects.TargetId.parse(kernel.target)
                other = kernels.setdefault(kernel.library, {}).setdefault(target, kernel)
                if other is not kernel and other.read_content() != kernel.read_content():
                    raise errors.PackageError(f"two archives have different {kernel.library} for {target}")
        library_name = library.read_kernel_name()
        kernel_names = {record.number: f"{library_name}#{record.number}" for record in library.records}
        if missing := sorted(kernel for kernel in kernel_names.values() if kernel not in kernels):
            raise errors.PackageError(
                f"no device wheel has {missing[0]}, which {name} needs",
                tip="name all device wheels of this host wheel",
            )
        work = partial(self._build_bundle, host_id=library.host_id)
        numbers = sorted(kernel_names)
        bundles = parallel.run_in_parallel(
            work, [kernels[kernel_names[number]] for number in numbers], jobs=os.cpu_count() or 1
        )
        content = self._bundles.view()
        views = {n: content[at : at + size] for n, (at, size) in zip(numbers, bundles, strict=True)}
        pieces = library.insert_code(views)
        targets = {target for kernel in kernel_names.values() for target in kernels[kernel]}
        stored = stored_member.pack_member(self._entries[name], pieces, self._stack)
        return _JoinedLibrary(stored, frozenset(targets), len(library.records))

    def _build_bundle(
        self, kernels: Mapping[code_objects.TargetId, kpack.KpackKernel], *, host_id: str
    ) -> tuple[int, int]:
        """Write the bundle of a record aside; return where, and its size."""
        size = sum(kernel.size for kernel in kernels.values())
        with spool.OPEN_BUNDLES.hold(size):
            entries: list[tuple[str, bytes]] = [(host_id, b"")]
            for target in sorted(kernels, key=code_objects.TargetId.get_sort_key):
                entries.append((f"hipv4-amdgcn-amd-amdhsa--{target}", kernels[target].read_content()))
            bundle = repack.build_bundle(entries)
        return self._bundles.append(bundle), len(bundle)


def _is_device_extra(extra: str) -> bool:
    return bool(_DEVICE_EXTRA.fullmatch(canonicalize_name(extra)))


def _is_of_device(text: str) -> bool:
    marker = Requirement(text).marker
    extras: Iterable[str] = re.findall(r'extra == "([^"]+)"', str(marker)) if marker else ()
    return any(map(_is_device_extra, extras))
