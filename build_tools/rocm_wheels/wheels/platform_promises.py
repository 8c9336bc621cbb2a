"""What the systems that a platform tag names are sure to have, by the tables of auditwheel and delvewheel.

A manylinux tag promises symbol versions and libraries; a tag of Windows the DLLs of Windows and Python. Both
tables come with the extra ``build``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from rocm_wheels.binaries import loader
from rocm_wheels.core import errors
from rocm_wheels.wheels import required_packages

if TYPE_CHECKING:
    from auditwheel.architecture import Architecture  # type: ignore[import-untyped]
    from auditwheel.policy import Policy, WheelPolicies  # type: ignore[import-untyped]

_DYNAMIC_LINKER = "ld-linux"


def is_dynamic_linker(library: str) -> bool:
    """Tell whether a library that is needed is the dynamic linker, which every system of glibc has."""
    return library.startswith(_DYNAMIC_LINKER)


def load_policies(architecture: str) -> WheelPolicies:
    """Return auditwheel's table of what each manylinux tag promises. ImportError where auditwheel is not."""
    from auditwheel.architecture import Architecture

    return _read_policies(Architecture(architecture))


@lru_cache
def _read_policies(architecture: Architecture) -> WheelPolicies:
    from auditwheel.libc import Libc  # type: ignore[import-untyped]
    from auditwheel.policy import WheelPolicies

    return WheelPolicies(libc=Libc.GLIBC, arch=architecture)


def find_policy(policies: WheelPolicies, name: str, architecture: str) -> Policy:
    """Return what a manylinux tag stands for, with its architecture or without. Raises UsageError."""
    for candidate in (name, f"{name}_{architecture}"):
        try:
            policy = policies.get_policy_by_name(candidate)
        except LookupError:
            continue
        if policy.name != policies.linux.name:
            return policy
    names = ", ".join(policy.name for policy in policies if policy.name != policies.linux.name)
    raise errors.UsageError(f"--plat: {name} is no tag of auditwheel for {architecture}", tip=names)


def compute_policy(policies: WheelPolicies, binaries: Iterable[loader.HostBinary]) -> Policy:
    """Return the oldest policy that allows the symbol versions that libraries need."""
    versions: dict[str, set[str]] = {}
    for binary in binaries:
        for library, names in binary.versions.items():
            if not is_dynamic_linker(library):
                versions.setdefault(library, set()).update(names)
    return policies.versioned_symbols_policy(versions)


def explain_policy(
    policies: WheelPolicies, policy: Policy, binaries: Mapping[str, loader.HostBinary]
) -> list[str]:
    """Return the symbol versions that the next older policy does not have, and who needs them."""
    older = [other for other in policies if other.priority > policy.priority]
    if not older:
        return []
    allowed = min(older, key=lambda other: other.priority).symbol_versions
    deciding: dict[str, str] = {}
    for member, binary in sorted(binaries.items()):
        for library, names in binary.versions.items():
            for name in sorted(names) if not is_dynamic_linker(library) else ():
                kind, _, version = name.partition("_")
                if kind in allowed and version not in allowed[kind]:
                    deciding.setdefault(name, member)
    return [f"{name} in {member}" for name, member in sorted(deciding.items())]


def make_system_test(platform: required_packages.WheelPlatform) -> Callable[[str], bool]:
    """Return what tells whether delvewheel takes a DLL for part of Windows, or of Python itself."""
    from delvewheel import _dll_list  # type: ignore[import-untyped]

    tag = f"win_{platform.architecture}"
    kind = _dll_list.MachineType.platform_tag_to_type(tag)
    if kind is None:
        raise errors.DataError(f"delvewheel knows nothing of {tag}")
    fields = platform.fields
    by_tags = (
        _dll_list.ignore_abi3.items() if "abi3" in fields.abi else _dll_list.ignore_by_abi_platform.items()
    )
    python_tag = f"{fields.python if 'abi3' in fields.abi else fields.abi}-{tag}"
    of_python = {name for pattern, names in by_tags if re.fullmatch(pattern, python_tag) for name in names}
    names = {*_dll_list.ignore_names[kind], *of_python}
    return lambda name: name in names or any(p.fullmatch(name) for p in _dll_list.ignore_regexes)


def is_vc_runtime(library: str) -> bool:
    """Tell whether a DLL is of the VC runtime, which users install beside Python."""
    from delvewheel import _dll_list

    return re.fullmatch(_dll_list.vc_redist, library.lower()) is not None
