"""Check the device code: the targets inside against the targets asked for, library by library.

The recipe's rules are tried in their order; the first whose glob matches a member decides.
Targets are compared by processor; a feature (``:xnack+``) counts where it was asked for, and is
shown in messages always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocm_wheels.audit.audited_wheel import AuditedWheel, list_base_targets
from rocm_wheels.audit.definition import Findings, Skip, check, error, warning
from rocm_wheels.models import gfx
from rocm_wheels.models.project import DeviceCodeRule
from rocm_wheels.variants.targets import COMPILER_GENERICS

_FOREIGN_TIP = "the list of targets did not reach the compiler: look for another --offload-arch in the log"
_DEVICE_WHEELS_TIP = "name the device wheels with those archives as well: they are read together"


@check("RW017 device-code (error)", needs_recipe=True)
def check_device_code(wheel: AuditedWheel) -> Findings:
    """Each library holds all, some or none of the targets.

    Why: Kernels are missing for a GPU: hipErrorNoBinaryForGpu at the first launch.
    Fix: Build again with a clean tree, and look in the log for the target that was left out.
    """
    for member, rule in _match_rules(wheel):
        yield from _judge_library(wheel, member, rule)


def _judge_library(wheel: AuditedWheel, member: str, rule: DeviceCodeRule) -> Findings:
    targets, asked = wheel.list_member_targets(member), wheel.expected.targets
    requested = f"; requested: {' '.join(asked)}" if asked else ""
    if rule.expect == "none":
        if targets or member in wheel.moved_code:
            message = f"{_describe_held_code(wheel, member)}; none is expected: {rule.reason}"
            yield error(message, member, "the build took in a file that does not belong here")
        return
    if member in wheel.moved_code and not wheel.find_archives(member):
        if wheel.parts:
            return  # told as code that no device wheel has
        message = f"{_describe_held_code(wheel, member)}, so its targets cannot be checked here{requested}"
        yield warning(message, member, _DEVICE_WHEELS_TIP)
        return
    if rule.expect == "all" and not targets:
        yield error(f"a host-only library: holds no device code at all{requested}", member)
        return
    if asked is None:
        return
    bases = set(list_base_targets(asked))
    foreign = sorted(set(list_base_targets(targets)) - bases)
    if wheel.rocm_folder is not None and member.startswith(wheel.rocm_folder):
        # ROCm's own build has generic code where it has no other: not for us to choose
        foreign = [target for target in foreign if bases.isdisjoint(COMPILER_GENERICS.get(target, ()))]
    missing = [name for name in asked if not any(serves_target(target, name) for target in targets)]
    if foreign:
        surplus = _join_targets(target for target in targets if gfx.strip_features(target) in foreign)
        yield error(f"holds {surplus}, not requested ({' '.join(asked)})", member, _FOREIGN_TIP)
    if missing and rule.expect == "all":
        message = f"lacks {' '.join(missing)}: holds {_join_targets(targets)}, requested {' '.join(asked)}"
        yield error(message, member)


@check("RW016 device-libraries (error)", needs_recipe=True)
def check_device_libraries(wheel: AuditedWheel) -> Findings:
    """The libraries that must hold device code exist.

    Why: A part of the project was not built for GPUs.
    Fix: Look in the log for what configure said about HIP.
    """
    ruled = [rule for _, rule in _match_rules(wheel, damaged=True)]
    for rule in wheel.project.list_device_code_rules(wheel.expected.platform):
        if rule.required and rule not in ruled:
            yield error(f"no library matches {rule.files}, which must hold device code ({rule.reason})")


@check("RW018 device-consistency (error)", needs_recipe=True)
def check_consistency(wheel: AuditedWheel) -> Findings:
    """Without stated targets: libraries agree.

    Why: Part of the package runs on a GPU, and part of it does not.
    Fix: Build again with a clean tree.
    """
    if wheel.expected.targets is not None:
        raise Skip("the targets were stated, and each library is compared with them")
    groups: dict[tuple[str, ...], list[str]] = {}
    parts: dict[str, set[str]] = {}
    for member, rule in _match_rules(wheel):
        held = list_base_targets(wheel.list_member_targets(member))
        if rule.expect == "all" and held:
            groups.setdefault(held, []).append(member)
        elif rule.expect == "subset":
            parts[member] = set(held)
    if len(groups) > 1:
        sides = "; ".join(f"{', '.join(names)}: {' '.join(targets)}" for targets, names in groups.items())
        yield error(f"libraries that must hold the same targets differ: {sides}")
    elif groups:
        [(common, [first, *_])] = groups.items()
        for member, held_in_part in parts.items():
            if extra := sorted(held_in_part.difference(common)):
                yield error(f"holds {' '.join(extra)}, which {first} does not", member, _FOREIGN_TIP)


@check("RW019 device-coverage (error)", needs_recipe=True)
def check_coverage(wheel: AuditedWheel) -> Findings:
    """Device code only where the recipe has a rule.

    Why: Nobody has said which targets that library must serve, so nothing checks it.
    Fix: Say in the recipe, under checks.device_code, what the file must hold and why.
    """
    ruled = {member for member, _ in _match_rules(wheel)}
    ruled.update(archive for member in wheel.moved_code for archive in wheel.find_archives(member))
    for member in sorted({*wheel.device_code, *wheel.moved_code} - ruled):
        yield error(f"{_describe_held_code(wheel, member)} and no rule of the recipe covers it", member)


def _match_rules(wheel: AuditedWheel, *, damaged: bool = False) -> Iterator[tuple[str, DeviceCodeRule]]:
    """Yield each member that a rule decides about: libraries, and whatever else holds device code.

    Damaged ones only when asked for: the archive's check has named them.
    """
    rules = wheel.project.list_device_code_rules(wheel.expected.platform)
    matches = [(rule, wheel.find_members(rule.files)) for rule in rules]
    left_out = frozenset() if damaged else wheel.damaged_members
    for member in sorted({*wheel.libraries, *wheel.device_code, *wheel.moved_code} - left_out):
        rule = next((rule for rule, names in matches if member in names), None)
        if rule is not None:
            yield member, rule


def _describe_held_code(wheel: AuditedWheel, member: str) -> str:
    """Say what device code a member holds, or where it is."""
    if archives := wheel.moved_code.get(member):
        return f"its device code is in {', '.join(archives)}"
    return f"holds device code ({_join_targets(wheel.device_code[member])})"


def serves_target(target: str, requested: str) -> bool:
    """Tell whether ``target`` (``gfx90a:sramecc+:xnack-``) is what was ``requested`` (``gfx90a:xnack-``)."""
    processor, *features = requested.split(":")
    return gfx.strip_features(target) == processor and set(features) <= set(target.split(":"))


def _join_targets(targets: Iterable[str]) -> str:
    return " ".join(sorted(set(targets)))
