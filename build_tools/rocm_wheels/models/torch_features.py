"""What a torch tree can have on ROCm: flash attention by aotriton, and the packages that its CMake looks for.

aotriton's own build leaves out the targets that it has no kernels for, and stops when none is
left (ROCm/aotriton#169): one supported target is enough. At run time torch falls back to
other kernels on a GPU that aotriton does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.models import gfx, project_names

_HIP_PACKAGES = "cmake/public/LoadHIP.cmake"
_CMAKE_IF = re.compile(r"\s*if\s*\((?P<condition>.*)\)\s*(#.*)?$", re.IGNORECASE)
_CMAKE_ELSE = re.compile(r"\s*else(?P<elseif>if)?\s*\(", re.IGNORECASE)
_CMAKE_ENDIF = re.compile(r"\s*endif\s*\(", re.IGNORECASE)
_CMAKE_FIND = re.compile(
    r"\s*find_package_and_print_version\(\s*(?P<name>[A-Za-z][\w-]*)\s*(?P<words>[^)]*)\)", re.IGNORECASE
)


_AOTRITON_PIN = Path("cmake/External/aotriton.cmake")
_OPTION = "--enable-pytorch-flash-attention"


@dataclass(frozen=True)
class FlashAttention:
    """The decision, and the reason in words."""

    on: bool
    reason: str


def decide_flash_attention(
    option: bool | None,
    *,
    platform: project_names.Platform,
    with_triton: bool,
    targets: Iterable[str],
    aotriton: str | None = None,
    why_not: str = "triton is not built",
) -> FlashAttention:
    """Decide: the option first; off on Linux without triton; else on if aotriton has a target.

    ``aotriton`` is the release that the sources use, or ``None`` when they do not say: then every
    release counts. ``why_not`` says why torch is without triton. Raises UsageError when flash attention is
    asked for on Linux without triton.
    """
    if option and platform == "linux" and not with_triton:
        raise errors.UsageError(
            f"{_OPTION} needs triton on Linux, and {why_not}",
            tip="have triton built, too (PROJECTs name what is), or give --triton-wheel FILE",
        )
    if option is not None:
        return FlashAttention(option, f"{_OPTION if option else '--no-' + _OPTION[2:]} was given")
    if platform == "linux" and not with_triton:
        return FlashAttention(False, why_not)
    served = [target for target in targets if has_aotriton_kernels(target, aotriton)]
    release = f"aotriton {aotriton}" if aotriton else "aotriton"
    if served:
        return FlashAttention(True, f"{release} has kernels for {', '.join(served)}")
    return FlashAttention(False, f"{release} has no kernels for any of the targets")


def has_aotriton_kernels(target: str, aotriton: str | None = None) -> bool:
    """Tell whether a release of aotriton (``None``: any) has kernels for a target."""
    record = gfx.get_gfx_targets().get(gfx.strip_features(target))
    if record is None or record.aotriton is None:
        return False
    return aotriton is None or _parse_release(record.aotriton) <= _parse_release(aotriton)


def read_aotriton_release(torch_source: Path) -> str | None:
    """Return the release of aotriton that a torch tree uses, or ``None`` when the tree does not say."""
    path = torch_source / _AOTRITON_PIN
    if not path.is_file():
        return None
    match = re.search(r'set\(__AOTRITON_VER\s+"([0-9][^"]*)"', path.read_text(encoding="utf-8"))
    return match.group(1) if match else None


@dataclass(frozen=True)
class HipPackage:
    """A package of ROCm that torch's CMake looks for, in small letters; ``required``: it ends without it."""

    name: str
    required: bool


def read_hip_packages(torch_source: Path, rocm_version: str) -> tuple[HipPackage, ...]:
    """Return the packages of ROCm that a torch tree looks for on Linux, in its order; none: it does not say.

    Conditions other than on the platform and the version of ROCm count as met.
    """
    path = torch_source / _HIP_PACKAGES
    if not path.is_file():
        return ()
    packages: dict[str, HipPackage] = {}
    branches: list[bool | None] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if (match := _CMAKE_IF.match(line)) is not None:
            branches.append(_judge_condition(match["condition"], rocm_version))
        elif branches and (match := _CMAKE_ELSE.match(line)) is not None:
            branches[-1] = None if branches[-1] is None or match["elseif"] else not branches[-1]
        elif branches and _CMAKE_ENDIF.match(line):
            branches.pop()
        elif False not in branches and (match := _CMAKE_FIND.match(line)) is not None:
            name, words = match["name"].lower(), match["words"].split()
            if "MODULE" not in words:
                required = "REQUIRED" in words or (name in packages and packages[name].required)
                packages[name] = HipPackage(name, required)
    return tuple(packages.values())


def _judge_condition(condition: str, rocm_version: str) -> bool | None:
    """Tell whether a condition of CMake is met; ``None``: that is not known."""
    words = condition.replace('"', "").split()
    if words in (["UNIX"], ["NOT", "WIN32"], ["WIN32"], ["NOT", "UNIX"]):
        return words in (["UNIX"], ["NOT", "WIN32"])
    if len(words) == 3 and words[:2] == ["ROCM_VERSION_DEV", "VERSION_GREATER_EQUAL"]:
        return Version(rocm_version) >= Version(words[2])
    return None


def _parse_release(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])
