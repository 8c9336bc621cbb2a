"""Check which targets the device code of a wheel is for, against itself, whoever built it.

Sources: LLVM, "User Guide for AMDGPU Backend" (code object versions, generic processors); LLVM, "Clang
Offload Bundler" (features in target IDs, entries without code); pytorch, torch/CMakeLists.txt.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from rocm_wheels.audit.audited_wheel import AuditedWheel, list_base_targets
from rocm_wheels.audit.definition import Findings, Skip, check, error, note, warning
from rocm_wheels.core.errors import Finding
from rocm_wheels.device_code import code_objects, kernel_databases
from rocm_wheels.models import gfx
from rocm_wheels.models.project import find_project_of
from rocm_wheels.variants import device_names

_ABI_OF_V4 = 2
_ABI_OF_V6 = 4
_MOST_LACKING = 0.05


@check("RW033 target-list (error)")
def check_target_list(wheel: AuditedWheel) -> Findings:
    """The targets that torch states are those it has code for.

    Why: Programs ask torch.cuda.get_arch_list() and are told of GPUs that it cannot use.
    Fix: Build with a clean tree: the list changed between configuring and compiling.

    An error where it holds code that it does not state; a warning where it states more, as a wheel whose code
    was pruned does. A split library may have the rest in device wheels that are not here.
    """
    if not wheel.scan.target_lists:
        raise Skip("no libtorch_python.so that states targets")
    for member, targets in sorted(wheel.scan.target_lists.items()):
        library = f"{posixpath.dirname(member)}/libtorch_hip.so"
        held = set(list_base_targets(wheel.list_member_targets(library)))
        stated = set(list_base_targets(targets))
        if not held or held == stated or (library in wheel.moved_code and held < stated):
            continue
        message = f"states {' '.join(targets)} (torch.cuda.get_arch_list), and {library} holds"
        yield (warning if held < stated else error)(f"{message} {' '.join(sorted(held))}", member)


@check("RW093 bundle-targets (error)")
def check_bundles(wheel: AuditedWheel) -> Findings:
    """Within a library, every kernel is there for the same targets.

    Why: Some operations fail on one kind of GPU alone: hipErrorNoBinaryForGpu.
    Fix: Build again with a clean tree: an object was compiled for other targets.

    An entry without code for a target that others have code for is a loss. Where a few bundles lack a target,
    they were compiled otherwise than the rest: an error in projects that recipes build, of which libraries
    hold all targets; in anybody's wheel they may be kernels that are meant for some GPUs, and it is a
    warning. Where many do, they are such kernels (of fbgemm, of Composable Kernel): worth knowing. What an
    archive of a split wheel lacks is told with its records.
    """
    for member, objects in _list_code(wheel):
        bundles: dict[tuple[str, int], set[str]] = {}
        emptied: set[str] = set()
        for code in objects:
            if code.kind in ("hip", "hipv4"):
                targets = bundles.setdefault((code.section, code.bundle), set())
                (emptied if code.form == "empty" else targets).add(code.target.processor)
        every = set().union(*bundles.values())
        lacking = {key: every - targets for key, targets in bundles.items() if every - targets}
        if not lacking:
            continue
        missing = sorted(set().union(*lacking.values()))
        message = f"{len(lacking)} of its {len(bundles)} bundles of kernels lack code for {' '.join(missing)}"
        is_few = len(lacking) <= max(1, _MOST_LACKING * len(bundles)) < len(bundles)
        if is_few and (wheel.has_recipe or emptied & every or _is_of_recipe(wheel)):
            yield error(message, member)
        else:
            yield (warning if is_few else note)(message, member)


def _is_of_recipe(wheel: AuditedWheel) -> bool:
    """Tell whether a recipe builds its project, whoever built this wheel."""
    return wheel.scan.name is not None and find_project_of(wheel.scan.name.name) is not None


@check("RW036 code-object-version (warning)")
def check_code_versions(wheel: AuditedWheel) -> Findings:
    """Code objects are of version V4 or newer.

    Why: Loaders drop the older versions, which cannot state xnack and sramecc as IDs do.
    Fix: Compile with -mcode-object-version=4 or newer.
    """
    for member, objects in _list_code(wheel):
        old = {code.abi_version for code in objects if code.abi_version is not None} & set(range(_ABI_OF_V4))
        if old:
            versions = ", ".join(f"V{version + 2}" for version in sorted(filter(None, old)))
            message = f"holds code objects of version {versions or 'V2'}, older than V4"
            yield Finding(wheel.severity, message, subject=member)


@check("RW037 feature-mixtures (warning)")
def check_feature_mixtures(wheel: AuditedWheel) -> Findings:
    """Code states xnack and sramecc everywhere or nowhere.

    Why: In one setting of the GPU a part of the package has no kernels.
    Fix: Build all libraries for one list of targets.
    """
    stating: dict[tuple[str, str], dict[frozenset[str], str]] = {}
    for member, objects in _list_code(wheel):
        if kernel_databases.list_database_labels(member):
            continue  # a database has files for each setting, side by side
        for (processor, feature), signs in _collect_signs(objects).items():
            stating.setdefault((processor, feature), {}).setdefault(signs, member)
            if len(signs) > 1 and "any" in signs:
                message = f"for {processor}, some of its code states {feature} and some is for any setting"
                yield warning(message, member, "state the feature of a target everywhere, or nowhere")
    for (processor, feature), members in sorted(stating.items()):
        on, off = members.get(frozenset("+")), members.get(frozenset("-"))
        if on and off:
            yield error(f"{on} is for {processor}:{feature}+ alone and {off} for {feature}- alone", on)


def _collect_signs(objects: Iterable[code_objects.CodeObject]) -> dict[tuple[str, str], frozenset[str]]:
    """Return by processor and feature the settings that code states: "+", "-" or "any"."""
    targets = {code.target for code in objects if code.form != "empty"}
    return {
        (processor, feature): frozenset(
            dict(target.features).get(feature, "any") for target in targets if target.processor == processor
        )
        for processor, feature in {(t.processor, name) for t in targets for name, _ in t.features}
    }


@check("RW038 generic-targets (error)")
def check_generic_targets(wheel: AuditedWheel) -> Findings:
    """Code for generic processors is of version V6.

    Why: No runtime loads it; older runtimes pass over generic code of any version.
    Fix: Compile with -mcode-object-version=6, or for the processors themselves.
    """
    for member, objects in _list_code(wheel):
        generic = [code for code in objects if code.target.processor.endswith("-generic")]
        targets = " ".join(sorted({code.target.processor for code in generic}))
        if any(code.abi_version is not None and code.abi_version < _ABI_OF_V6 for code in generic):
            yield error(
                f"holds code for {targets} in a version older than V6, which no runtime loads", member
            )
        elif generic:
            message = f"holds code for {targets}: a runtime that knows no generic targets passes over it"
            yield note(message, member)


def _list_code(wheel: AuditedWheel) -> list[tuple[str, tuple[code_objects.CodeObject, ...]]]:
    """Return the code objects of each member; ``Skip`` where there are none."""
    if not wheel.device_code:
        raise Skip("holds no device code")
    return sorted(wheel.scan.device_code.items())


_PACKAGE_TARGET = re.compile(r"^(?:rocm-sdk|amd)-.*?-?(?P<label>gfx[\w-]+)$")


@check("RW039 target-packages (error)")
def check_target_packages(wheel: AuditedWheel) -> Findings:
    """Packages for a GPU that it requires are for one of its targets.

    Why: The libraries of another GPU are installed: nothing runs.
    Fix: Make METADATA and the code from one list of targets.
    """
    if not wheel.targets:
        raise Skip("holds no device code")
    families = {name.lower(): set(targets) for name, targets in gfx.get_gfx_families().items()}
    for requirement in wheel.requirements:
        match = _PACKAGE_TARGET.match(requirement.name.lower().replace("_", "-"))
        if match is None or (wheel.moved_code and device_names.find_device_key(match[0])):
            continue  # where the extras of a split wheel lead has a check of its own
        covered = families.get(match["label"])
        if covered is not None and covered.isdisjoint(wheel.targets):
            message = f"requires {requirement}, and holds code for {' '.join(wheel.targets)} alone"
            yield error(message, wheel.metadata_member)
