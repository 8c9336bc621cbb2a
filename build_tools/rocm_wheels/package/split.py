"""Split a wheel as ROCm's packages are split: a host wheel without device code, and device wheels.

Every bundle leaves ``.hip_fatbin``; its code objects go into an archive a target,
``torch/.kpack/torch_<target>.kpack``. Kernel databases and code objects of their own move, and keep their
paths. A device wheel is unpacked over the host wheel. Its bytes depend on names, target, code and
Requires-Python alone, so that a rebuilt host has the same device wheels. The host lists the digests of what
they hold (``device_files.json``): an audit tells them from those of another build by it. Targets with
features (``gfx90a:xnack+``) have archives of their own in the wheel of the plain target, as the runtime looks
for them; code of a generic target is in the wheel that is for all of its chips.

Source: ROCm/rocm-systems, ``shared/kpack``: python/rocm_kpack/wheel_splitter.py, runtime/src/loader.cpp.
"""

from __future__ import annotations

import json
import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels import __version__
from rocm_wheels.binaries import elf, elf_pages
from rocm_wheels.core import errors, installation, log, parallel, tables
from rocm_wheels.device_code import code_objects, fat_library, kernel_databases, kpack, spool
from rocm_wheels.device_code.bundles import BundlePlace, locate_bundles
from rocm_wheels.package import device_selector, wheel_plan
from rocm_wheels.variants import device_names
from rocm_wheels.variants.targets import COMPILER_GENERICS
from rocm_wheels.wheels import (
    dist_info,
    metadata_wheel,
    rewrite,
    sbom,
    stored_member,
    write_together,
    zip_format,
)
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit

SplitGroup: TypeAlias = Literal["target", "family"]

NOTICE_MODULE = "_device_wheels.py"
NOTICE_LINES = b"""
# written by `rocm-wheels wheel split`: says which extra, device-gfx..., brings kernels that are missing
from . import _device_wheels as _device_wheels
"""
_NOTICE_TEMPLATE = Path(__file__).with_name("templates") / "device_wheels.py"
_KINDS = ("hip", "hipv4")


@dataclass(frozen=True)
class SplitRequest:
    """What is asked: the wheel, and whether a device wheel is for a target or for a sub-family of targets.

    ``rocm_version`` is the ROCm whose own device packages the device wheels require; None: that which the
    wheel requires, if any.
    """

    wheel: Path
    rocm_version: str | None = None
    group: SplitGroup = "target"


@dataclass(frozen=True)
class DevicePlan:
    """A device wheel of one target or family, or a selector, which has texts alone.

    ``archives`` map the target IDs of each ``.kpack`` archive to its name, ``files`` counts what else moves.
    ``size`` is that of its members, as they are stored.
    """

    name: str
    file: str
    archives: Mapping[str, str]
    files: int
    size: int
    stored: Mapping[str, stored_member.StoredMember] = field(repr=False)
    texts: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SplitPlan(wheel_plan.WheelPlan):
    """What a wheel becomes; the sizes are of the wheel as it is and of the host wheel.

    ``devices`` are the device wheels by target or family, ``targets`` the target IDs with code, ``libraries``
    how many records each library with code has, ``kept`` the other files with code that stay in the host: for
    several targets, or not linked. ``selector`` brings none of the device wheels.
    """

    targets: tuple[str, ...]
    libraries: Mapping[str, int]
    kept: tuple[str, ...]
    devices: Mapping[str, DevicePlan]
    selector: DevicePlan


@dataclass(frozen=True)
class SplitWheels:
    """The wheels that were written: ``devices`` by target or family."""

    host: Path
    devices: Mapping[str, Path]
    selector: Path


def plan_split(request: SplitRequest, stack: ExitStack) -> SplitPlan:
    """Plan host and device wheels; new contents go into files without a name, which ``stack`` closes.

    PackageError for a variant wheel, one without device code, one that is split already, and for code that no
    archive can hold; DataError for damage.
    """
    installation.require_extras("splitting", "build")
    archive = wheel_plan.open_wheel(request.wheel, stack)
    log.log_note(f"splitting {request.wheel.name} ({tables.format_size(archive.size)})")
    return _WheelSplitter(request, archive, stack).make_plan()


def write_split(plan: SplitPlan, folder: Path) -> SplitWheels:
    """Write all wheels of a plan into ``folder``: all of them, or none.

    One that exists with the same bytes is left; DataError when one exists with other bytes.
    """
    with write_together.write_together() as batch, ExitStack() as stack:
        stage = batch.find_stage(folder)
        begun = stack.enter_context(rewrite.begin_rewrite(plan.archive, stage, plan.edit))
        host = begun.stage(plan.edit)
        for device in (*plan.devices.values(), plan.selector):
            target, step = stage / device.file, plan.edit.step
            new = rewrite.stage_new_wheel(
                target, device.stored, device.texts, origins=host.origins, step=step
            )
            stack.enter_context(new).commit()
        host.commit()
    return list_written(plan, folder)


def list_written(plan: SplitPlan, folder: Path) -> SplitWheels:
    """Return where the wheels of a plan are, or will be, in a folder."""
    devices = {key: folder / device.file for key, device in plan.devices.items()}
    return SplitWheels(plan.find_target(folder), devices, folder / plan.selector.file)


@dataclass(frozen=True)
class _SplitMember:
    """What becomes of a member: a host library with its ``frames``, or a file that moves to a package."""

    stored: stored_member.StoredMember
    key: str = ""
    target: code_objects.TargetId | None = None
    frames: tuple[kpack.PackedKernel, ...] = ()
    records: int = 0


class _WheelSplitter:
    """One wheel under way."""

    def __init__(self, request: SplitRequest, archive: WheelArchive, stack: ExitStack) -> None:
        self._request = request
        self._archive = archive
        self._stack = stack
        self._frames = spool.SpoolFile(stack)
        self._kept: set[str] = set()
        self._chips: list[str] = []  # the targets of one chip that there is code for
        self._keys: list[str] = []  # of the device wheels
        self._name = dist_info.split_wheel_name(request.wheel.name)
        self._entries = archive.member_by_name
        self._metadata = wheel_plan.read_metadata(archive)
        self._group = canonicalize_name(self._metadata.name).replace("-", "_")
        self._root = self._find_root()

    def make_plan(self) -> SplitPlan:
        """Return the plan. Raises PackageError."""
        members = self._read_members()
        libraries = {name: member for name, member in members.items() if not member.key}
        moved = {name: member for name, member in members.items() if member.key}
        frames = [frame for name in sorted(libraries) for frame in libraries[name].frames]
        if not frames and not moved:
            rest = f" but in {', '.join(sorted(self._kept))}, which cannot move" if self._kept else ""
            raise errors.PackageError(
                f"{self._request.wheel} has no device code{rest}",
                tip="only a wheel with device code is split; `rocm-wheels targets` lists what is inside",
            )
        kernels = set()
        for frame in frames:
            if (frame.library, frame.target) in kernels:
                raise errors.PackageError(
                    f"{self._request.wheel}: {frame.library} has two code objects for {frame.target}"
                )
            kernels.add((frame.library, frame.target))
        targets = {frame.target for frame in frames} | {m.target for m in moved.values() if m.target}
        chips: set[str] = set()  # those that there is code for, also by that of a generic target
        for target in targets:
            chips.update(COMPILER_GENERICS.get(target.processor, (target.processor,)))
        self._chips = sorted(chips, key=lambda chip: code_objects.TargetId(chip).get_sort_key())
        self._keys = sorted(
            {self._find_key(frame.target) for frame in frames} | {m.key for m in moved.values()}
        )
        devices = parallel.run_in_parallel(
            partial(self._plan_device, frames=frames, moved=moved), self._keys, jobs=os.cpu_count() or 1
        )
        stored = {name: member.stored for name, member in libraries.items()}
        texts = self._add_notice(stored)
        digests = {name: file.digest for device in devices for name, file in sorted(device.stored.items())}
        edit = WheelEdit(
            requirements=lambda old: [*old, *self._list_requirements(old)],
            extras=lambda old: [
                *old,
                *map(device_names.make_device_extra, self._chips),
                device_names.DEVICE_ALL,
            ],
            put={dist_info.DEVICE_FILES: json.dumps(digests, indent=1).encode() + b"\n"},
            members=texts,
            stored=stored,
            drop_members=frozenset(moved),
            step=f"split {' '.join(wheel_plan.format_targets(targets))}",
        )
        before, after = wheel_plan.measure_edit(self._archive, edit)
        return SplitPlan(
            wheel=self._request.wheel,
            before=before,
            after=after,
            archive=self._archive,
            edit=edit,
            targets=wheel_plan.format_targets(targets),
            libraries={name: member.records for name, member in sorted(libraries.items())},
            kept=tuple(sorted(self._kept)),
            devices=dict(zip(self._keys, devices, strict=True)),
            selector=self._plan_selector(),
        )

    def _plan_selector(self) -> DevicePlan:
        selector = device_selector.make_selector(
            self._metadata.name, self._request.wheel.name, str(self._metadata.requires_python)
        )
        name = device_names.make_selector_name(self._metadata.name)
        texts = self._make_texts(name, selector.metadata, ())
        return DevicePlan(name, selector.file, archives={}, files=0, size=0, stored={}, texts=texts)

    def _make_texts(self, distribution: str, metadata: bytes, targets: Iterable[str]) -> dict[str, bytes]:
        """Return the dist-info files of a part; no word of the host in its bill: it may be built anew."""
        version = self._metadata.version
        bill = sbom.format_sbom(
            sbom.WheelParts(__version__, tuple(targets), self._rocm_version), distribution, str(version)
        )
        info = f"{distribution.replace('-', '_')}-{self._name.version}.dist-info"
        return {
            f"{info}/METADATA": metadata,
            f"{info}/WHEEL": metadata_wheel.format_wheel_text(self._name),
            f"{info}/{sbom.SBOM_MEMBER}": sbom.revise_sbom(bill, step="split"),
        }

    def _add_notice(self, stored: dict[str, stored_member.StoredMember]) -> dict[str, bytes]:
        """Add the module that says at import which extra is missing; return the package's text, which has it.

        A package without an ``__init__.py``, or with a module of this name, says nothing.
        """
        start, notice = f"{self._root}/__init__.py", f"{self._root}/{NOTICE_MODULE}"
        if start not in self._entries or notice in self._entries:
            return {}
        devices = {
            device_names.make_device_extra(chip): tuple(
                device_names.make_device_name(self._metadata.name, key)
                for key in device_names.get_package_chain(chip)
                if key in self._keys
            )
            for chip in self._chips
        }
        text = _NOTICE_TEMPLATE.read_text(encoding="utf-8")
        text = text.replace('HOST = ""', f'HOST = "{self._metadata.name}"')
        text = text.replace("]] = {}", f"]] = {devices!r}")
        stored[notice] = stored_member.pack_member(_make_entry(notice), [text.encode()], self._stack)
        return {start: self._archive.read(self._entries[start]) + NOTICE_LINES}

    def _find_root(self) -> str:
        """Return the folder that device wheels are unpacked over: the package of the wheel."""
        folders = {name.partition("/")[0] for name in self._entries if "/" in name}
        packages = sorted(name for name in folders if not name.endswith((".dist-info", ".data", ".libs")))
        if self._group in packages or not packages:
            return self._group
        if len(packages) > 1:
            raise errors.PackageError(
                f"{self._request.wheel} has several packages, and none is called {self._group}:"
                f" {', '.join(packages)}"
            )
        return packages[0]

    def _read_members(self) -> dict[str, _SplitMember]:
        """Return what becomes of the members with device code, each read once."""
        outside = dict.fromkeys(wheel_plan.list_outside_info(self._archive))
        if archives := [name for name in outside if name.endswith(kpack.KPACK_SUFFIX)]:
            raise self._make_split_error(archives[0])

        def choose(name: str, head: bytes) -> Callable[[memoryview], _SplitMember | None] | None:
            if name not in outside:
                return None
            if labels := kernel_databases.list_database_labels(name):
                return partial(self._move_database, name=name, labels=labels)
            return partial(self._split_file, name=name) if code_objects.may_hold_code(name, head) else None

        members = self._archive.read_chosen(choose)
        return {name: member for name, member in members.items() if member is not None}

    def _make_split_error(self, name: str) -> errors.PackageError:
        return errors.PackageError(
            f"{self._request.wheel} is split already: {name}",
            tip="`rocm-wheels wheel join` puts the code of device wheels back in",
        )

    def _move_database(self, data: memoryview, *, name: str, labels: Sequence[str]) -> _SplitMember:
        """Return a file of a kernel database, which is for the target or family that its name has."""
        targets = [kernel_databases.parse_label(label) for label in labels]
        processors = [t.processor if t else label for t, label in zip(targets, labels, strict=True)]
        keys = {device_names.find_package_key(processor) for processor in processors}
        if len(keys) > 1:
            raise errors.PackageError(f"{self._request.wheel}: {name} is labelled with several targets")
        return self._move_file(data, name=name, key=self._widen_key(keys.pop()), target=targets[0])

    def _move_file(
        self, data: memoryview, *, name: str, key: str, target: code_objects.TargetId | None
    ) -> _SplitMember:
        """Return a file that a device wheel has in place of the host: deflated anew, with our own date."""
        self._require_movable(name)
        entry = _make_entry(name, self._entries[name].mode)
        return _SplitMember(stored_member.pack_member(entry, [data], self._stack), key, target)

    def _require_movable(self, name: str) -> None:
        """Raise PackageError for a file that is not unpacked to where it is in the wheel, and for a link."""
        if name.partition("/")[0].endswith(".data"):
            raise errors.PackageError(
                f"{self._request.wheel}: {name} has device code, and is installed elsewhere"
            )
        if stat.S_ISLNK(self._entries[name].mode):
            raise errors.PackageError(
                f"{self._request.wheel}: {name} is a link, which no device wheel can have"
            )

    def _split_file(self, data: memoryview, *, name: str) -> _SplitMember | None:
        place = f"{self._request.wheel}: {name}"
        if code_objects.list_named_archives(data, place):
            raise self._make_split_error(name)
        held = code_objects.find_held_code(data, place)
        if held.is_whole_file:
            targets = set(held.targets)
            for span in held.bundle_spans:
                targets |= {t for bundle in locate_bundles(span) for t, _ in _read_objects(bundle)}
            return self._move_code(data, name, targets) if targets else None
        if not held.bundle_spans:
            if held.targets:  # an object file or static library, which is never loaded
                self._kept.add(name)
            return None
        if len(held.bundle_spans) != 1:
            raise errors.PackageError(
                f"{place}: {tables.format_count(len(held.bundle_spans), 'section')} with device code"
            )
        self._require_movable(name)
        library = fat_library.read_fat_library(data, place)
        frames = self._extract_frames(name, held.bundle_spans[0], library.list_bundle_places())
        marker = kpack.format_reference(self._name_library(name), self._list_paths(name, frames))
        stored = stored_member.pack_member(self._entries[name], library.remove_code(marker), self._stack)
        return _SplitMember(stored, frames=frames, records=len(library.records))

    def _move_code(
        self, data: memoryview, name: str, targets: set[code_objects.TargetId]
    ) -> _SplitMember | None:
        """Return what becomes of a file that is nothing but code: of several targets it stays."""
        if len({self._find_key(target) for target in targets}) > 1:
            self._kept.add(name)
            return None
        first = min(targets, key=code_objects.TargetId.get_sort_key)
        return self._move_file(data, name=name, key=self._find_key(first), target=first)

    def _extract_frames(
        self, name: str, span: elf.BinarySpan, places: Sequence[int]
    ) -> tuple[kpack.PackedKernel, ...]:
        """Compress the code objects of a library; ``places`` are where the bundles of its records begin."""
        bundles = {bundle.begin: bundle for bundle in locate_bundles(span)}
        if unknown := sorted(set(places) - bundles.keys()):
            raise span.make_fault(f"a record refers to {unknown[0]}, where no bundle begins")
        if idle := sorted(bundles.keys() - set(places)):
            raise span.make_fault(f"no record refers to the bundle at {idle[0]}: it would be lost")
        library = self._name_library(name)
        work = partial(self._compress_bundle, library=library)
        numbered = [(number, bundles[begin]) for number, begin in enumerate(places)]
        frames_by_bundle = parallel.run_in_parallel(work, numbered, jobs=os.cpu_count() or 1)
        return tuple(frame for frames in frames_by_bundle for frame in frames)

    def _compress_bundle(
        self, numbered: tuple[int, BundlePlace], *, library: str
    ) -> list[kpack.PackedKernel]:
        number, bundle = numbered
        size = bundle.packed.size if bundle.packed else 0
        frames = []
        with spool.OPEN_BUNDLES.hold(size):
            for target, content in _read_objects(bundle):
                packed = kpack.compress_kernel(content)
                at = self._frames.append(packed)
                kernel = (f"{library}#{number}", number, target, len(content))
                frames.append(kpack.PackedKernel(*kernel, at, len(packed)))
        return frames

    def _name_library(self, name: str) -> str:
        """Return what archives call a library: its path in the package."""
        return name.removeprefix(f"{self._root}/")

    def _list_paths(self, name: str, frames: Iterable[kpack.PackedKernel]) -> list[str]:
        """Return the archives that a library names, relative to itself."""
        folder = posixpath.dirname(name) or "."
        labels = [kpack.ANY_TARGET]
        if self._request.group == "family":
            labels = sorted({self._find_key(frame.target) for frame in frames})
        return [posixpath.relpath(self._name_archive(label), folder) for label in labels]

    def _name_archive(self, label: str) -> str:
        return f"{self._root}/.kpack/{self._group}_{label}{kpack.KPACK_SUFFIX}"

    def _find_key(self, target: code_objects.TargetId) -> str:
        """Return the package that code for a target goes into; PackageError for what has none."""
        try:
            return self._widen_key(device_names.find_package_key(target.processor))
        except ValueError:
            raise errors.PackageError(
                f"{self._request.wheel} has code for {target}, which no device package is for"
            ) from None

    def _widen_key(self, key: str) -> str:
        """Return the sub-family of a target where wheels are for those."""
        if self._request.group == "target":
            return key
        try:
            return device_names.get_package_chain(key)[1]
        except ValueError:  # it is for several targets as it is
            return key

    def _plan_device(
        self, key: str, *, frames: Sequence[kpack.PackedKernel], moved: Mapping[str, _SplitMember]
    ) -> DevicePlan:
        """Return the device wheel of one target or family."""
        is_for_target = self._request.group == "target"
        kernels_by_label: dict[str, list[kpack.PackedKernel]] = {}
        for frame in frames:
            if self._find_key(frame.target) == key:
                kernels_by_label.setdefault(str(frame.target) if is_for_target else key, []).append(frame)
        archives, stored = {}, {}
        for label, kernels in sorted(kernels_by_label.items()):
            name = self._name_archive(label)
            archives[" ".join(wheel_plan.format_targets(frame.target for frame in kernels))] = name
            pieces = self._iterate_archive(label, kernels)
            stored[name] = stored_member.store_member(_make_entry(name), pieces)
        files = {name: member.stored for name, member in moved.items() if member.key == key}
        members = device_names.list_members(key, self._chips)
        distribution = device_names.make_device_name(self._metadata.name, key)
        escaped = distribution.replace("-", "_")
        parents = device_names.get_package_chain(key)[1:] if key in members else ()
        host, version = self._metadata.name, self._metadata.version
        requires = [f"{host} == {version}"]
        if key in members and is_for_target and self._rocm_version:
            requires.append(f"rocm-sdk-device-{key} == {self._rocm_version}")
        requires += [self._require_device(parent) for parent in parents if parent in self._keys]
        summary = f"Device code of {host} for {' '.join(members) or key}"
        python = str(self._metadata.requires_python)
        metadata = metadata_wheel.format_metadata_text(distribution, version, summary, python, requires)
        return DevicePlan(
            name=distribution,
            file=replace(self._name, distribution=escaped).file_name,
            archives=archives,
            files=len(files),
            size=sum(member.entry.compressed for member in [*stored.values(), *files.values()]),
            stored={**stored, **files},
            texts=self._make_texts(distribution, metadata, members),
        )

    def _iterate_archive(
        self, label: str, frames: Sequence[kpack.PackedKernel]
    ) -> Iterator[elf_pages.FilePiece]:
        """Yield an archive piece by piece: kernels in the order of libraries, records and targets."""
        ordered = sorted(
            frames,
            key=lambda f: (
                f.library.rpartition("#")[0],
                f.number,
                code_objects.TargetId.get_sort_key(f.target),
            ),
        )
        targets = wheel_plan.format_targets(frame.target for frame in frames)
        head, lengths, table = kpack.format_archive(self._group, label, targets, ordered)
        content = self._frames.view()
        yield head
        for frame, length in zip(ordered, lengths, strict=True):
            yield length
            yield content[frame.offset : frame.offset + frame.frame_size]
        yield table

    def _list_requirements(self, old: Sequence[str]) -> Iterator[str]:
        """Yield what the host wheel requires anew."""
        if not any(canonicalize_name(Requirement(text).name) == "rocm-bootstrap" for text in old):
            yield "rocm-bootstrap"
        yield f"{device_names.make_selector_name(self._metadata.name)} == {self._metadata.version}"
        for chip in self._chips:
            marker = f'extra == "{device_names.make_device_extra(chip)}"'
            for key in device_names.get_package_chain(chip):
                if key in self._keys:
                    yield f"{self._require_device(key)}; {marker}"
            if self._request.group == "family" and (version := self._rocm_version):
                yield f"rocm-sdk-device-{chip} == {version}; {marker}"
        for key in self._keys:
            yield f'{self._require_device(key)}; extra == "{device_names.DEVICE_ALL}"'

    def _require_device(self, key: str) -> str:
        return f"{device_names.make_device_name(self._metadata.name, key)} == {self._metadata.version}"

    @property
    def _rocm_version(self) -> str | None:
        """The ROCm whose device packages are required: that which was asked for, or that of the wheel."""
        if self._request.rocm_version is not None:
            return self._request.rocm_version
        return next(iter(wheel_plan.list_rocm_pins(self._metadata.requires_dist).values()), None)


def _read_objects(bundle: BundlePlace) -> Iterator[tuple[code_objects.TargetId, elf_pages.FilePiece]]:
    """Yield the code objects of a bundle with their targets; PackageError for what no archive can hold."""
    for name, content in bundle.read_contents():
        try:
            identity = code_objects.BundleEntryId.parse(name)
            if identity.kind == "host":
                continue
            target = code_objects.TargetId.parse(identity.target)
        except ValueError as cause:
            raise bundle.bundle.make_fault(str(cause)) from None
        if identity.kind not in _KINDS or bytes(content[:4]) != elf.ELF_MAGIC:
            raise errors.PackageError(
                f"{bundle.bundle.place}: {name} is no code object of a GPU, and archives hold nothing else"
            )
        yield target, content


def _make_entry(name: str, mode: int = 0) -> zip_format.ZipEntry:
    """Return a new member: executable where the old one was."""
    entry, _ = zip_format.make_zip_entry(name, b"", date=zip_format.FIRST_DAY, time=0)
    return entry._replace(external=(0o100755 if mode & 0o111 else 0o100644) << 16)
