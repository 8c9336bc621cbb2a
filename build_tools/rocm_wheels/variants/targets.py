"""Convert the device code of a wheel to values of ``amd :: gfx_arch``, and check what a stamp may say of it.

A value cannot hold ``:``, ``+`` or ``-`` (PEP 825): features are left off, a generic target is spelled
with ``_`` (``gfx11-generic`` → ``gfx11_generic``). The plain machine that a value without features
stands for runs with ECC on and XNACK off; code that needs anything else is not what the value says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.gpus import gpu
from rocm_wheels.models import gfx
from rocm_wheels.variants import document

FROM_WHEEL = "from-wheel"
NO_TARGETS = "none"

# as compilers spell them: a value of a property cannot hold the dashes
COMPILER_GENERICS = {name.replace("_", "-"): chips for name, chips in gpu.GENERIC_TARGETS.items()}
_PORTABLE_PROCESSORS = ("amdgcnspirv", "spirv")
_PLAIN_FEATURES = {("sramecc", "+"), ("xnack", "-")}
_XNACK_ALWAYS_ON = ("gfx125",)
_ROCM_LIBRARY = re.compile(r"_rocm([0-9]{2,4})\.(?:so|dll)$")  # as bitsandbytes names its libraries
_ANY_TARGET = "@GFXARCH@"


@dataclass(frozen=True)
class WheelTargets:
    """What a wheel has device code for: ``targets`` (generic ones too), sorted as people do.

    ``special`` are target IDs whose code a plain machine cannot run, where there is no other code for
    the target; ``portable`` means SPIR-V, which is compiled on any machine; ``outside`` are ``.kpack``
    archives that libraries of the wheel name and that are not in it. ``by_rocm``: what a machine with one
    ROCm gets of a wheel with a library for each (``lib…_rocm72.so``), by the digits of its version (``72``).
    """

    targets: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    portable: bool = False
    outside: tuple[str, ...] = ()
    by_rocm: Mapping[str, WheelTargets] = field(default_factory=dict)


def read_wheel_targets(wheel: Path) -> WheelTargets:
    """Read what the tables of a wheel's device code say. DataError when it is damaged."""
    from rocm_wheels.wheels import wheel_code  # slow to import; installers only ask what targets stand for

    device_code = wheel_code.read_device_code(wheel, whole=False)
    return collect_wheel_targets(device_code.code, device_code.moved_code)


def collect_wheel_targets(
    code: Mapping[str, Iterable[code_objects.CodeObject]], elsewhere: Mapping[str, Iterable[str]]
) -> WheelTargets:
    """Return what device code stands for: the code objects of each member, and archives that are named."""
    targets = parse_target_ids(
        code_objects.list_code_targets(entry for objects in code.values() for entry in objects)
    )
    archives = {entry for archives in elsewhere.values() for entry in archives}
    inside = [PurePosixPath(member).name for member in code if member.endswith(".kpack")]
    outside = []
    for archive in sorted(archives):  # one may be named for all targets: demo_@GFXARCH@.kpack
        name = re.escape(PurePosixPath(archive).name).replace(re.escape(_ANY_TARGET), ".+")
        if not any(re.fullmatch(name, member) for member in inside):
            outside.append(archive)
    # for each ROCm that a library of the wheel is for: what that library has, and those for any
    matches = {member: _ROCM_LIBRARY.search(member) for member in code}
    digits = {member: match[1] if match else "" for member, match in matches.items()}
    by_rocm = {}
    for version in sorted(set(digits.values()) - {""}):
        objects = [entry for member in code if digits[member] in ("", version) for entry in code[member]]
        served = parse_target_ids(code_objects.list_code_targets(objects))
        by_rocm[version] = replace(served, outside=tuple(outside))
    return replace(targets, outside=tuple(outside), by_rocm=by_rocm)


def select_rocm_targets(wheel: str, wheel_targets: WheelTargets, rocm: str) -> WheelTargets:
    """Return what a machine with a ROCm (``7.2``) gets of a wheel: of its libraries for one, those for this.

    DataError for a ROCm that no library is for.
    """
    selected = wheel_targets.by_rocm.get(rocm.replace(".", ""))
    if selected is not None or not wheel_targets.by_rocm:
        return selected or wheel_targets
    raise errors.DataError(
        f"{wheel} has libraries for one ROCm each, and none for ROCm {rocm}: there are rocm"
        f"{', rocm'.join(wheel_targets.by_rocm)}",
        tip="name the ROCm of one of them: --rocm 7.2",
    )


def parse_target_ids(targets: Iterable[str]) -> WheelTargets:
    """Return what code for target IDs (``gfx90a:xnack+``) stands for."""
    target_ids = [code_objects.TargetId.parse(target) for target in targets]
    chips = [target for target in target_ids if target.processor not in _PORTABLE_PROCESSORS]
    plain = set()
    for target in chips:
        always_on = target.processor.startswith(_XNACK_ALWAYS_ON)
        if ("xnack", "-") not in target.features if always_on else set(target.features) <= _PLAIN_FEATURES:
            plain.add(target.processor)
    return WheelTargets(
        targets=tuple(dict.fromkeys(target.processor for target in chips)),
        special=tuple(str(target) for target in chips if target.processor not in plain),
        portable=len(chips) != len(target_ids),
    )


def choose_targets(
    wheel: str,
    wheel_targets: WheelTargets,
    requested: str = FROM_WHEEL,
    *,
    generics: bool = True,
) -> tuple[str, ...]:
    """Return the values of ``gfx_arch`` that a stamp states, () for none.

    ``requested`` is ``from-wheel``, ``none`` or a list of targets and families; ``generics`` says whether the
    provider reports generic targets: if not, one stands for the processors it covers. DataError
    when the stamp would claim code that the wheel does not hold, or hide some that it does hold, or when the
    wheel does not say what it holds. Of a wheel without code a list is taken at its word: its code comes from
    another package.
    """
    special = ", ".join(wheel_targets.special)
    if special and requested != NO_TARGETS:
        raise errors.DataError(
            f"{wheel} holds {special} and no plain code for it; a variant cannot say so much",
            tip="machines without that setting would take the wheel and fail: publish it as a plain wheel",
        )
    content = ", ".join(wheel_targets.targets) or ("SPIR-V" if wheel_targets.portable else "no device code")
    if requested == FROM_WHEEL:
        if wheel_targets.outside:
            raise errors.DataError(
                f"{wheel}: its device code is in {', '.join(wheel_targets.outside)}, outside of it",
                tip=f"name the targets of those packages: {gfx.TARGETS_OPTION} gfx942,gfx1100",
            )
        if not wheel_targets.targets:
            only = "only " if wheel_targets.portable else ""
            raise errors.DataError(
                f"{wheel} holds {only}{content}, so it does not tell its targets",
                tip=f"say {gfx.TARGETS_OPTION} {NO_TARGETS} (for any machine: the ROCm version alone), "
                "--null, or, when the code comes from another package, "
                f"{gfx.TARGETS_OPTION} LIST",
            )
    chosen: tuple[str, ...] = ()
    if requested == FROM_WHEEL:
        chosen = wheel_targets.targets
    elif requested != NO_TARGETS:
        chosen = _parse_target_list(requested, wheel_targets.targets)
    serves, claimed = expand_generics(wheel_targets.targets), expand_generics(chosen)
    if claimed - serves and wheel_targets.targets and not wheel_targets.portable:
        more = ", ".join(_sort_targets(claimed - serves))
        raise errors.DataError(
            f"{wheel}: {gfx.TARGETS_OPTION} claims {more}, and the wheel holds {content}",
            tip="build for them, or leave them out of the list",
        )
    if serves - claimed:
        missing = ", ".join(_sort_targets(serves - claimed))
        raise errors.DataError(
            f"{wheel}: {gfx.TARGETS_OPTION} leaves out {missing}, and the wheel holds {content}",
            tip="machines that it could serve would never get it; `rocm-wheels wheel prune` takes code out",
        )
    # sorted as people do, a generic one as itself or as what it covers
    spelled = {target.replace("_", "-") for target in chosen} if generics else claimed
    values = tuple(target.replace("-", "_") for target in _sort_targets(spelled))
    for value in values:
        if not document.VALUE_PATTERN.fullmatch(value):
            raise errors.DataError(f"{value!r} cannot be a value of a variant property (PEP 825)")
    return values


def expand_generics(targets: Iterable[str]) -> frozenset[str]:
    """Return the processors that code for targets runs on: a generic one covers several."""
    return frozenset(
        chip for target in targets for chip in COMPILER_GENERICS.get(target.replace("_", "-"), (target,))
    )


def _parse_target_list(text: str, available: Iterable[str]) -> tuple[str, ...]:
    """Read a list of targets, families and generic targets; what the wheel holds is always one of them."""
    input_name = gfx.TARGETS_OPTION
    targets: dict[str, None] = {}
    for word in gfx.split_target_words(text):
        spelled = word.replace("_", "-")
        if spelled in COMPILER_GENERICS or spelled in available:
            targets[spelled] = None
        else:
            parsed = gfx.parse_targets(word, input_name=input_name)
            targets |= dict.fromkeys(map(gfx.strip_features, parsed))
    if not targets:
        raise errors.UsageError(
            f"{input_name} names no GPU target", tip=f"for example: {input_name} gfx942,gfx1100"
        )
    return tuple(targets)


def _sort_targets(targets: Iterable[str]) -> list[str]:
    return sorted(targets, key=lambda target: code_objects.TargetId(target).get_sort_key())
