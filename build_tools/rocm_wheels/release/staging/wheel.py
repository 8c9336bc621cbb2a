"""What a set says of a wheel, read in one pass: digest, METADATA, targets of its device code, its lock."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag

from rocm_wheels.errors import ReleaseError
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.release.layout import LOCK_FILE
from rocm_wheels.release.sets import SetFile
from rocm_wheels.wheels.device_code.objects import list_code_targets
from rocm_wheels.wheels.scan import WheelScan, scan_wheel

ROCM_PROJECT_NAMES = re.compile(r"rocm|(rocm|amd|hip)-.+")  # what ROCm's own index has, by its names there
_VARIANT_FILE = "variant.json"


@dataclass(frozen=True)
class StagedWheel:
    """A wheel of this machine, as it will be in a set; ``lock`` is the text of the one inside, if any."""

    path: Path
    file: SetFile
    metadata: bytes
    requires: tuple[Requirement, ...]
    tags: frozenset[Tag]
    lock: str | None
    elsewhere: bool  # device code of its libraries is in archives of other wheels

    def restrict_to_targets(self, targets: Collection[str]) -> StagedWheel:
        """Return it as the set of a family has it: what code it has for others is no matter of this set."""
        family_targets = tuple(target for target in self.file.targets if target in targets)
        return replace(self, file=self.file.model_copy(update={"targets": family_targets}))


def read_staged_wheels(paths: Sequence[Path]) -> list[StagedWheel]:
    """Read wheels, several at a time. Raises ReleaseError that lists everything that is wrong with them."""
    names: dict[str, Path] = {}
    for path in paths:
        if (other := names.setdefault(path.name, path)) != path:
            raise ReleaseError(f"{other} and {path} have one name: a set holds a name once")
    scans = run_in_parallel(_scan_for_set, names.values(), jobs=os.cpu_count() or 1)
    if faults := [fault for scan in scans for fault in (*scan.faults, *scan.repairable)]:
        raise ReleaseError(
            "\n".join(faults), tip="`rocm-wheels wheel verify` and `wheel retag` show and repair wheels"
        )
    return [_make_staged_wheel(scan) for scan in scans]


def _scan_for_set(path: Path) -> WheelScan:
    return scan_wheel(path, keep=(f"*.dist-info/{LOCK_FILE}", f"*.dist-info/{_VARIANT_FILE}"))


def _make_staged_wheel(scan: WheelScan) -> StagedWheel:
    name, metadata = scan.name, scan.metadata
    assert name is not None and metadata is not None  # else there are faults
    content = _find_text(scan, "METADATA")
    assert content is not None
    lock_content, variant = _find_text(scan, LOCK_FILE), _read_variant(scan, name.label)
    targets = list_code_targets(code for codes in scan.device_code.values() for code in codes)
    file = SetFile(
        name=scan.path.name,
        project=name.name,
        version=str(name.version),
        sha256=scan.sha256,
        size=scan.size,
        requires_python=str(metadata.requires_python),
        metadata_sha256=hashlib.sha256(content).hexdigest(),
        targets=tuple(sorted({strip_features(target) for target in targets})),
        label=name.label or "",
        variant=variant,
    )
    requires = tuple(Requirement(requirement) for requirement in metadata.requires_dist)
    lock = None if lock_content is None else lock_content.decode("utf-8", "replace")
    return StagedWheel(scan.path, file, content, requires, name.tags, lock, bool(scan.moved_code))


def _find_text(scan: WheelScan, file: str) -> bytes | None:
    return next((text for name, text in scan.texts.items() if name.partition("/")[2] == file), None)


def _read_variant(scan: WheelScan, label: str | None) -> str:
    if label is None:
        return ""
    from rocm_wheels.variants.metadata import parse_wheel_document

    where = f"{scan.path}: {_VARIANT_FILE}"
    content = _find_text(scan, _VARIANT_FILE)
    if content is None:
        raise ReleaseError(f"{where} is missing, and the file name has the label {label}")
    return parse_wheel_document(content, name=where, label=label).to_json().decode()


def accepts_python(tags: Iterable[Tag], python: str) -> bool:
    """Tell whether a Python (``3.12``, ``3.13t``) takes a wheel with these tags, of whatever platform."""
    minor = int(python.rstrip("t").partition(".")[2])
    return any(_accepts_tag(tag, minor, python.endswith("t")) for tag in tags)


def _accepts_tag(tag: Tag, minor: int, free_threaded: bool) -> bool:
    if tag.abi == "abi3":
        return not free_threaded and tag.interpreter.startswith("cp3") and int(tag.interpreter[3:]) <= minor
    if tag.interpreter in ("py3", f"py3{minor}"):
        return True
    abi = f"cp3{minor}{'t' if free_threaded else ''}"
    return tag.interpreter == f"cp3{minor}" and tag.abi in (abi, "none")


def find_single_python(tags: Iterable[Tag]) -> str | None:
    """Return the one Python that a wheel is for (``3.12``, ``3.13t``), ``None`` when it is for several."""
    abis = {tag.abi for tag in tags}
    abi = next(iter(abis)) if len(abis) == 1 else ""
    return f"3.{abi[3:]}" if abi.startswith("cp3") else None
