"""Which GPUs device code runs on, and for which targets installed libraries have code.

Whether code runs on a GPU is told by the rules of the HIP runtime; GPUs without are hidden. Source: LLVM,
"User Guide for AMDGPU Backend": target IDs (a feature that is left out runs in either setting), generic
processors.

A library holds its code itself, or names ``.kpack`` archives that lie beside it; those come from device
packages (``amd-torch-device-gfx942``), which put them into the folder of the library. What counts are the
archives that are there.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.gpus import variables
from rocm_wheels.gpus.gpu import Gpu, Hardware, find_generic_target
from rocm_wheels.user import installed_packages
from rocm_wheels.variants.targets import COMPILER_GENERICS

SupportKind = Literal["native", "generic", "portable", "setting", "no"]
_PORTABLE_PROCESSORS = ("amdgcnspirv", "spirv")
_XNACK_ALWAYS_ON = ("gfx125",)


@dataclass(frozen=True)
class KernelSupport:
    """How a GPU is served: ``native`` (code for it), ``generic`` (code for a generic target that it is one
    of), ``portable`` (SPIR-V, compiled at first use), ``setting`` (only with another XNACK or ECC setting
    than this process has), ``no``. ``by`` is the target ID of the code."""

    kind: SupportKind
    by: str = ""

    @property
    def runs(self) -> bool:
        """Tell whether kernels run as things are."""
        return self.kind in ("native", "generic", "portable")

    def describe_support(self, gfx: str) -> str:
        """Say it to people."""
        return {
            "native": f"yes, code for {self.by}",
            "generic": f"yes, by code for the generic target {self.by}",
            "portable": f"yes, by SPIR-V ({self.by}), which is compiled for {gfx} when it is first used",
            "setting": f"only code for {self.by}, which this process's setting does not load",
            "no": "no",
        }[self.kind]


def check_kernel_support(targets: Iterable[str], gfx: str, *, xnack: bool = False) -> KernelSupport:
    """Say how code for ``targets`` (target IDs) serves a GPU; ``xnack`` is the setting of the process.

    Only the very processor counts: code for gfx1100 does not run on gfx1101.
    """
    chip, *features = gfx.replace("_", "-").split(":")
    on = xnack or "xnack+" in features or chip.startswith(_XNACK_ALWAYS_ON)
    target_ids = [code_objects.TargetId.parse(target) for target in targets]
    kinds: tuple[tuple[SupportKind, list[code_objects.TargetId]], ...] = (
        ("native", [target for target in target_ids if target.processor == chip]),
        ("generic", [target for target in target_ids if chip in COMPILER_GENERICS.get(target.processor, ())]),
        ("portable", [target for target in target_ids if target.processor in _PORTABLE_PROCESSORS]),
    )
    for kind, codes in kinds:
        if fitting := next((target for target in codes if _can_load(target, on)), None):
            return KernelSupport(kind, str(fitting))
    blocked = next((target for _, codes in kinds for target in codes), None)
    return KernelSupport("setting", str(blocked)) if blocked else KernelSupport("no")


def _can_load(code: code_objects.TargetId, xnack: bool) -> bool:
    """ECC is on where a GPU has it, unless somebody turned it off; XNACK is off unless HSA_XNACK=1."""
    return all(
        sign == ("+" if xnack else "-") if name == "xnack" else sign == "+" for name, sign in code.features
    )


ServedGpus = tuple[tuple[Gpu, bool], ...]


def find_served_gpus(targets: Sequence[str], hardware: Hardware) -> ServedGpus:
    """Tell of each GPU whether code for ``targets`` runs on it: for itself, or for its generic target."""
    spelled = {target.replace("-", "_") for target in targets}
    return tuple(
        (gpu, gpu.gfx is not None and not spelled.isdisjoint({gpu.gfx, find_generic_target(gpu.gfx)}))
        for gpu in hardware.amd
    )


def make_visible_line(served: ServedGpus) -> str | None:
    """Return ``HIP_VISIBLE_DEVICES=0,2`` that hides the GPUs without kernels; None when it hides nothing.

    HIP counts the devices that ``ROCR_VISIBLE_DEVICES`` leaves, in the order of that list. Stated GPUs are
    counted as they are stated. One whose target nobody knows is not hidden: it may well be served.
    """
    numbers = {gpu: gpu.index if gpu.hip_index is None else gpu.hip_index for gpu, _ in served}
    served_gpus = [gpu for gpu, is_served in served if is_served]
    visible_gpus = [gpu for gpu, is_served in served if is_served or gpu.gfx is None]
    hidden = [gpu for gpu, _ in served if gpu not in visible_gpus and numbers[gpu] is not None]
    if not served_gpus or not hidden or any(numbers[gpu] is None for gpu in served_gpus):
        return None
    indices = sorted(number for gpu in visible_gpus if (number := numbers[gpu]) is not None)
    return f"{variables.HIP_VISIBLE_DEVICES}={','.join(map(str, indices))}"


_CODE_FILE = re.compile(r"\.so(\.[0-9.]+)?$|\.(dll|pyd)$")
_ANY_TARGET = "@GFXARCH@"
# the library that every kernel of a project's operators is in; others are extras for some targets
MAIN_LIBRARIES = {"torch": ("libtorch_hip.so", "torch_hip.dll")}
# MIOpen writes the number of compute units right behind the target (gfx942130.db.txt): known names only
TARGET_NAME = re.compile("|".join(sorted(code_objects.ELF_MACHINES.values(), key=len, reverse=True)))
# where rocBLAS, hipBLASLt and MIOpen keep kernels and tuned parameters, below a ROCm root or torch/
_LIBRARY_FOLDERS = {
    "rocBLAS": "lib/rocblas/library",
    "hipBLASLt": "lib/hipblaslt/library",
    "MIOpen": "share/miopen/db",
}


@dataclass(frozen=True)
class InstalledCode:
    """The device code of one library: ``targets`` are IDs (``gfx90a:xnack+``), sorted as people do.

    ``archives`` are the ``.kpack`` files that were found for it, ``missing`` those that it names where
    none is. ``fault`` says why it could not be read.
    """

    path: Path
    targets: tuple[str, ...] = ()
    archives: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()
    fault: str = ""


def list_kernel_targets(installed: installed_packages.InstalledSet, project: str) -> tuple[str, ...]:
    """Return the target IDs that a project's installed files hold device code for; () when none.

    Of torch that is its library of HIP operators; of others all their libraries together.
    DataError when that library is damaged.
    """
    package = installed.get(project)
    if package is None:
        return ()
    libraries = read_installed_code(package)
    for library in libraries:
        if library.fault:
            raise errors.DataError(library.fault)
    return sort_target_ids(target for library in libraries for target in library.targets)


def read_installed_code(
    package: installed_packages.InstalledDistribution, *, everything: bool = False
) -> tuple[InstalledCode, ...]:
    """Return the libraries of an installed package that hold or name device code, the main one first.

    Where the project has a main library, only that is read unless ``everything`` is asked for.
    """
    mains = MAIN_LIBRARIES.get(package.name, ())
    files = _list_libraries(package)
    chosen = [entry for entry in files if entry.name in mains]
    if everything or not mains:
        chosen += [entry for entry in files if entry.name not in mains]
    codes = [_read_code(path) for path in chosen]
    return tuple(entry for entry in codes if entry.targets or entry.archives or entry.missing or entry.fault)


def list_library_files(
    installed: installed_packages.InstalledSet,
) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """Return where rocBLAS, hipBLASLt and MIOpen of an environment have files, and for which targets.

    They load kernels by the target in a file's name, below ``_rocm_sdk_libraries…``, as below ``/opt/rocm``,
    and below ``torch``. Of several folders the first is returned, with the targets of all.
    """
    roots = [
        root for path in installed.environment.path for root in sorted(path.glob("_rocm_sdk_libraries*"))
    ]
    if installed.torch and installed.torch.folder:
        roots.append(installed.torch.folder)
    libraries: dict[str, tuple[Path, tuple[str, ...]]] = {}
    for library, subfolder in _LIBRARY_FOLDERS.items():
        for folder in (root / subfolder for root in roots if (root / subfolder).is_dir()):
            # of newer releases a folder for each target
            names = filter(None, (TARGET_NAME.search(path.name) for path in folder.iterdir()))
            first, targets = libraries.get(library, (folder, ()))
            libraries[library] = first, sort_target_ids([*targets, *(name.group() for name in names)])
    return libraries


def sort_target_ids(targets: Iterable[str]) -> tuple[str, ...]:
    """Return target IDs once each, sorted as people do."""
    return tuple(sorted(set(targets), key=lambda target: code_objects.TargetId.parse(target).get_sort_key()))


def _list_libraries(package: installed_packages.InstalledDistribution) -> list[Path]:
    """Return a package's libraries, those that its RECORD lists, or all below its folder."""
    record = package.info / "RECORD"
    if package.editable or not record.is_file():
        below = package.folder.rglob("*") if package.folder else ()
        return sorted(path for path in below if _CODE_FILE.search(path.name) and path.is_file())
    with record.open(encoding="utf-8", newline="", errors="replace") as file:
        lines = [line for line in file if ".so" in line or ".dll" in line or ".pyd" in line]
    paths = [row[0] for row in csv.reader(lines) if row and _CODE_FILE.search(row[0])]
    files = (package.site_folder / path for path in paths)
    return sorted(path for path in files if path.is_file())


def _read_code(path: Path) -> InstalledCode:
    """Read a library and the archives that it names and that are there."""
    archives: list[Path] = []
    missing = []
    try:
        library = code_objects.read_library_targets(path)
        for name in library.archives:
            place = path.parent / name
            matching = sorted(place.parent.glob(place.name.replace(_ANY_TARGET, "*")))
            archives += matching
            missing += [] if matching else [name]
        tables = [library, *map(code_objects.read_library_targets, archives)]
    except errors.DataError as fault:
        return InstalledCode(path, fault=errors.explain_error(fault))
    targets = sort_target_ids(target for entry in tables for target in entry.targets)
    return InstalledCode(path, targets, tuple(archives), tuple(missing))
