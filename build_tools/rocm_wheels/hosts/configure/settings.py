"""The variables that a machine needs for the torch that is installed on it: a pure function.

Rules: nothing for a card that has kernels of its own. An override only to kernels that are there and that
the card is known to run. Never one that changes another card that is in use: then one for the card alone, or
the card is hidden. An integrated GPU without kernels is hidden when a discrete card has some. What the user
has set stays, and is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.gpus.visible import CUDA, HIP
from rocm_wheels.hosts.configure.cards import (
    Card,
    choices,
    harmless,
    hip_order,
    judge,
    overriding_variables,
    own_target,
    served,
)
from rocm_wheels.hosts.configure.setting import Setting
from rocm_wheels.model.compat.overrides import VARIABLE, overrides

_HIDING = (HIP, CUDA)  # GPU_DEVICE_ORDINAL is for OpenCL
_FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
_FALLBACK_SOURCE = "https://docs.pytorch.org/docs/stable/mps_environment_variables.html"
_ISOLATION_SOURCE = "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html"


@dataclass(frozen=True)
class _Plan:
    """What is done about the cards: which stay in sight, and by what name each override is set."""

    kept: tuple[Card, ...]
    overridden: tuple[tuple[str, tuple[Card, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def settings_for(
    hardware: Hardware,
    targets: Sequence[str] | None,
    env: Mapping[str, str],
    platform: str,
    *,
    nodes: Sequence[int] = (),
    rocm: str = "",
    risky: bool = False,
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return the variables to set, and notes for people.

    ``targets`` are those of the kernels in the installed torch: None when that is not known, empty for a
    build without any. ``platform`` is as ``sys.platform`` spells it. ``nodes`` are the runtime's numbers of
    the cards, by their index (``gpus.kfd``); without them no card can be overridden alone. ``rocm`` is the
    version that torch was built with, and brings or requires; "" where it does not say.
    """
    if platform == "darwin":
        return _for_macos(env)
    order = hip_order(gpu for gpu in hardware.gpus if gpu.vendor == "amd")
    if not order:
        return (), ("no AMD GPU that the ROCm runtime numbers: nothing to set",)
    if targets is None:
        return (), ("which kernels torch has is not known: nothing is set",)
    if not targets:
        return (), ("the installed torch has no kernels for AMD GPUs: no variable changes that",)
    own = overriding_variables(env)
    cards = judge(order, targets, env, platform=platform, risky=risky)
    notes = [*_about_own(cards, own, targets, env), *_about_cards(cards, targets, platform)]
    if not any(card.usable for card in cards):
        return (), tuple(notes)
    alone = nodes if _reads_nodes(hardware, rocm) else ()
    plan = _plan(cards, hardware, alone)
    settings = [
        Setting(name, (group[0].override and group[0].override.version) or "", _why(group), _source(group))
        for name, group in plan.overridden
    ]
    hiding, said = _hide(cards, plan.kept, env)
    return (*settings, *hiding), (*notes, *plan.notes, *said, *_cares(plan))


def _for_macos(env: Mapping[str, str]) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    if _FALLBACK in env:
        return (), (f"{_FALLBACK}={env[_FALLBACK]} is your own and stays",)
    why = "operations that the mps back end lacks then run on the CPU, not at all otherwise"
    return (Setting(_FALLBACK, "1", why, _FALLBACK_SOURCE),), ()


def _plan(cards: Sequence[Card], hardware: Hardware, nodes: Sequence[int]) -> _Plan:
    """Decide which cards stay and how those that need an override get theirs."""
    discrete = any(card.usable and not card.gpu.integrated for card in cards)
    kept = tuple(
        card
        for card in cards
        if card.native or not card.known or (card.override and not (discrete and card.gpu.integrated))
    )
    needy = tuple(card for card in kept if card.override)
    if not needy:
        return _Plan(kept)
    groups: dict[str, list[Card]] = {}
    for card in needy:
        groups.setdefault(card.override.version if card.override else "", []).append(card)
    first = next(iter(groups))
    if len(groups) == 1 and _all_bear(first, needy, kept, hardware):
        return _Plan(kept, ((VARIABLE, needy),))
    if all((card.gpu.index or 0) < len(nodes) for card in needy):
        alone = [(f"{VARIABLE}_{nodes[card.gpu.index or 0]}", (card,)) for card in needy]
        since = overrides().per_node.since
        return _Plan(kept, tuple(alone), (f"{VARIABLE}_<node> is read by ROCm {since} and later",))
    native = tuple(card for card in kept if not card.override)
    if native:
        out = ", ".join(map(str, needy))
        return _Plan(native, (), (f"{out}: would need an override that breaks the other cards; hidden",))
    group = tuple(groups[first])
    if _all_bear(first, group, group, hardware):
        return _Plan(
            group, ((VARIABLE, group),), ("the cards need different overrides: only one kind is used",)
        )
    return _Plan((), (), ("the cards need overrides that exclude each other: nothing is set",))


def _all_bear(version: str, needy: Sequence[Card], kept: Sequence[Card], hardware: Hardware) -> bool:
    """Whether an override of all cards, which the runtime applies to hidden ones too, does no harm."""
    theirs = {card.gpu.index for card in needy}
    used = {card.gpu.index for card in kept}
    others = [
        gpu
        for gpu in hardware.gpus
        if gpu.vendor == "amd" and gpu.index is not None and gpu.index not in theirs
    ]
    return all(harmless(gpu, version, used=gpu.index in used) for gpu in others)


def _reads_nodes(hardware: Hardware, rocm: str) -> bool:
    """Whether torch's runtime reads overrides of one card: believed where no ROCm says its version."""
    known = [_numbers(version) for version in ((rocm,) if rocm else (one.version for one in hardware.rocm))]
    return not known or max(known) >= _numbers(overrides().per_node.since)


def _numbers(version: str) -> tuple[int, ...]:
    """Return ``(7, 2, 0)`` of ``7.2.0-43`` or ``7.2.0rc1``."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _hide(
    cards: Sequence[Card], kept: Sequence[Card], env: Mapping[str, str]
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    hidden = [card for card in cards if card not in kept]
    if not hidden or not kept:
        return (), ()
    value = ",".join(str(card.number) for card in kept)
    names = ", ".join(map(str, hidden))
    if own := [name for name in _HIDING if name in env]:
        said = f"{own[0]}={env[own[0]]} is your own and stays, though torch cannot use {names}"
        return (), (f"{said}: {HIP}={value} would hide it",)
    source = overrides().hidden_integrated.source
    integrated = all(card.gpu.integrated for card in hidden)
    url = overrides().sources[source].url if integrated else _ISOLATION_SOURCE
    return (Setting(HIP, value, f"hides {names}: torch has no kernels that it can run", url),), ()


def _why(group: Sequence[Card]) -> str:
    card = group[0]
    assert card.override is not None
    names = ", ".join(dict.fromkeys(own_target(one.gpu) or "" for one in group))
    return f"torch has no kernels for {names}, which runs those for {card.override.target}"


def _source(group: Sequence[Card]) -> str:
    assert group[0].override is not None
    return overrides().sources[group[0].override.source].url


def _cares(plan: _Plan) -> list[str]:
    found = [card.override for _, group in plan.overridden for card in group if card.override]
    return list(dict.fromkeys(f"{VARIABLE}={one.version}: {one.care}" for one in found if one.care))


def _about_cards(cards: Sequence[Card], targets: Sequence[str], platform: str) -> list[str]:
    """Say what cannot be helped, and what only the user may decide."""
    notes = []
    for card in cards:
        target = own_target(card.gpu)
        if card.usable:
            continue
        if not card.known or target is None:
            notes.append(f"{card}: nothing tells its target; it is left as it is")
            continue
        possible = choices(target, targets)
        said = f"{card}: torch has no kernels for it"
        if possible and platform == "win32":
            said += f", and {overrides().windows.note}"
        elif possible and possible[0].risky:
            said += f"; {VARIABLE}={possible[0].version} might do, but is {possible[0].care}"
        notes.append(f"{said}; install a torch that has {target}")
    return notes


def _about_own(
    cards: Sequence[Card], own: Sequence[str], targets: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Say which of the user's variables stay, and where they do harm."""
    if not own:
        return []
    notes = [f"{name}={env[name]} is your own and stays" for name in own]
    notes += [
        f"{name} is set and empty, and then ROCm of before mid-2026 uses no GPU: unset it"
        for name in own
        if not env[name]
    ]
    for card in cards:
        target = own_target(card.gpu) or ""
        if served(targets, target, env) and card.gpu.gfx != card.gpu.native:
            notes.append(f"{card} has kernels of its own and now passes for {card.gpu.gfx}: unset {own[0]}")
    return notes
