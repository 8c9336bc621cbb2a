"""From the device code of a wheel to values of ``amd :: gfx_arch``, and what a stamp may say about it.

A value cannot hold ``:``, ``+`` or ``-`` (PEP 825): features are left off, a generic target is spelled
with ``_`` (``gfx11-generic`` → ``gfx11_generic``). The plain machine that a value without features
stands for runs with ECC on and XNACK off; code that needs anything else is not what the value says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.gpus import names
from rocm_wheels.model.gfx import base_target, parse_targets
from rocm_wheels.variants.reading import VALUE
from rocm_wheels.wheels.device_code.objects import CodeObject, read_any, targets_of
from rocm_wheels.wheels.device_code.target_id import TargetId

OPTION = "--targets"
FROM_WHEEL = "from-wheel"
NO_TARGETS = "none"

# as compilers spell them: a value of a property cannot hold the dashes
GENERICS = {name.replace("_", "-"): chips for name, chips in names.GENERICS.items()}
_PORTABLE = ("amdgcnspirv", "spirv")
_PLAIN = {("sramecc", "+"), ("xnack", "-")}
_XNACK_ALWAYS_ON = ("gfx125",)
_ANY_TARGET = "@GFXARCH@"


@dataclass(frozen=True)
class HeldTargets:
    """What a wheel has device code for: ``targets`` (generic ones too), sorted as people do.

    ``special`` are target IDs whose code a plain machine cannot run, where there is no other code for
    the target; ``portable`` means SPIR-V, which is compiled on any machine; ``outside`` are ``.kpack``
    archives that libraries of the wheel name and that are not in it.
    """

    targets: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    portable: bool = False
    outside: tuple[str, ...] = ()


def read_held(wheel: Path) -> HeldTargets:
    """Read the device code of a wheel. DataError when it is damaged."""
    found = read_any(wheel)
    return held_of(found.code, found.elsewhere)


def held_of(code: Mapping[str, Iterable[CodeObject]], elsewhere: Mapping[str, Iterable[str]]) -> HeldTargets:
    """Return what device code stands for: the code objects of each member, and archives that are named."""
    targets = held_ids(targets_of(one for objects in code.values() for one in objects))
    inside = [member for member in code if member.endswith(".kpack")]
    named = {one for archives in elsewhere.values() for one in archives}
    return replace(targets, outside=tuple(sorted(one for one in named if not _is_inside(one, inside))))


def held_ids(targets: Iterable[str]) -> HeldTargets:
    """Return what code for target IDs (``gfx90a:xnack+``) stands for."""
    found = [TargetId.parse(one) for one in targets]
    chips = [one for one in found if one.processor not in _PORTABLE]
    processors = dict.fromkeys(one.processor for one in chips)
    plain = {one.processor for one in chips if _runs_on_plain_machine(one)}
    return HeldTargets(
        targets=tuple(processors),
        special=tuple(str(one) for one in chips if one.processor not in plain),
        portable=len(chips) != len(found),
    )


def choose_targets(
    wheel: str,
    held: HeldTargets,
    wanted: str = FROM_WHEEL,
    *,
    generics: bool = True,
    allow_claim: bool = False,
    allow_hide: bool = False,
) -> tuple[str, ...]:
    """Return the values of ``gfx_arch`` that a stamp states, () for none.

    ``wanted`` is ``from-wheel``, ``none`` or a list of targets and families; ``generics`` says whether the
    provider reports generic targets: if not, one stands for the processors it covers. DataError
    when the stamp would claim code that the wheel does not hold (``allow_claim`` lets it), or hide some
    that it does hold (``allow_hide``), or when the wheel does not say what it holds.
    """
    if held.special and wanted != NO_TARGETS and not allow_claim:
        raise DataError(
            f"{wheel} holds {', '.join(held.special)} and no plain code for it; a variant cannot say so much",
            tip="machines without that setting would take the wheel and fail; --allow-claim says it anyway",
        )
    if wanted == FROM_WHEEL:
        _require_own_word(wheel, held)
        return _values(held.targets, generics=generics)
    chosen = () if wanted == NO_TARGETS else _listed(wanted, held.targets)
    serves, said = chips_of(held.targets), chips_of(chosen)
    has = ", ".join(held.targets) or ("SPIR-V" if held.portable else "no device code")
    if said - serves and not held.portable and not allow_claim:
        raise DataError(
            f"{wheel}: {OPTION} claims {_shown(said - serves)}, and the wheel holds {has}",
            tip="build for them, or say --allow-claim when the code comes from another package",
        )
    if serves - said and not allow_hide:
        raise DataError(
            f"{wheel}: {OPTION} leaves out {_shown(serves - said)}, and the wheel holds {has}",
            tip="machines that it could serve would never get it; --allow-hide says that this is meant",
        )
    return _values(chosen, generics=generics)


def parse_values(text: str, *, what: str) -> tuple[str, ...]:
    """Read a list of targets, families and generic targets as values, in its order."""
    return tuple(one.replace("-", "_") for one in _listed(text, (), what))


def chips_of(targets: Iterable[str]) -> frozenset[str]:
    """Return the processors that code for targets runs on: a generic one covers several."""
    return frozenset(chip for one in targets for chip in GENERICS.get(_dashed(one), (one,)))


def _require_own_word(wheel: str, held: HeldTargets) -> None:
    if held.outside:
        raise DataError(
            f"{wheel}: its device code is in {', '.join(held.outside)}, outside of it",
            tip=f"name the targets of those packages: {OPTION} gfx942,gfx1100 --allow-claim",
        )
    if not held.targets:
        said = "only SPIR-V" if held.portable else "no device code"
        raise DataError(
            f"{wheel} holds {said}, so it does not tell its targets",
            tip=f"say {OPTION} {NO_TARGETS} (for any machine: the ROCm version alone), --null, or, when the "
            f"code comes from another package, {OPTION} LIST --allow-claim",
        )


def _listed(text: str, held: Iterable[str], what: str = OPTION) -> tuple[str, ...]:
    """Read a list of targets, families and generic targets; what the wheel holds is always one of them."""
    known = {*GENERICS, *held}
    found: dict[str, None] = {}
    for word in re.split(r"[,;\s]+", text):
        if word and _dashed(word) in known:
            found[_dashed(word)] = None
        elif word:
            found.update(dict.fromkeys(base_target(one) for one in parse_targets(word, what=what)))
    if not found:
        raise UsageError(f"{what} names no GPU target", tip=f"for example: {what} gfx942,gfx1100")
    return tuple(found)


def _values(targets: Iterable[str], *, generics: bool) -> tuple[str, ...]:
    """Return targets as values: sorted as people do, a generic one as itself or as what it covers."""
    found = {_dashed(one) for one in targets} if generics else chips_of(targets)
    values = [one.replace("-", "_") for one in _sorted(found)]
    for value in values:
        if not VALUE.fullmatch(value):
            raise DataError(f"{value!r} cannot be a value of a variant property (PEP 825)")
    return tuple(values)


def _sorted(targets: Iterable[str]) -> list[str]:
    return sorted(targets, key=lambda one: TargetId(one).order())


def _shown(targets: Iterable[str]) -> str:
    return ", ".join(_sorted(targets))


def _dashed(target: str) -> str:
    return target.replace("_", "-")


def _runs_on_plain_machine(target: TargetId) -> bool:
    if target.processor.startswith(_XNACK_ALWAYS_ON):
        return ("xnack", "-") not in target.features
    return set(target.features) <= _PLAIN


def _is_inside(archive: str, members: Iterable[str]) -> bool:
    name = re.escape(PurePosixPath(archive).name).replace(re.escape(_ANY_TARGET), ".+")
    return any(re.fullmatch(name, PurePosixPath(member).name) for member in members)
