"""Checks of the device code: the targets inside against the targets asked for, library by library.

The recipe's rules are tried in their order; the first whose glob matches a member decides.
Targets are compared by processor; a feature (``:xnack+``) counts where it was asked for, and is
shown in messages always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rocm_wheels.audit.findings import Finding, Skipped
from rocm_wheels.audit.subject import Subject, bases
from rocm_wheels.model.gfx import base_target
from rocm_wheels.model.project import DeviceCode

_REBUILD = "build again with a clean tree and look in the log for the target that was left out"
_FOREIGN = "the list of targets did not reach the compiler: look for another --offload-arch in the log"
_NO_RULE = "say in the recipe, under checks.device_code, what this file must hold and why"
_ELSEWHERE = "name the device wheels with those archives as well: they are read together"


def check_device_code(wheel: Subject) -> list[Finding]:
    """Each library holds all requested targets, a subset or none, as its recipe's rule says."""
    found: list[Finding] = []
    for member, rule in _ruled(wheel):
        found += _judge(wheel, member, rule)
    return found


def check_libraries(wheel: Subject) -> list[Finding]:
    """Each rule about device code that is required has a library to hold for."""
    ruled = list(_ruled(wheel, damaged=True))
    return [
        Finding(
            f"no library matches {rule.files}, which must hold device code ({rule.reason})",
            tip="the ROCm part was not built: look in the log for what configure said about HIP",
        )
        for rule in wheel.expected.project.device_code(wheel.expected.platform)
        if rule.required and not any(rule == other for _, other in ruled)
    ]


def check_consistency(wheel: Subject) -> list[Finding] | Skipped:
    """When no targets were stated: libraries that must hold all of them hold the same ones."""
    if wheel.expected.targets is not None:
        return Skipped("the targets were stated, and each library is compared with them")
    groups: dict[tuple[str, ...], list[str]] = {}
    rest: list[str] = []
    for member, rule in _ruled(wheel):
        if rule.expect == "all" and wheel.held_by(member):
            groups.setdefault(bases(wheel.held_by(member)), []).append(member)
        elif rule.expect == "subset":
            rest.append(member)
    if len(groups) > 1:
        said = "; ".join(f"{', '.join(names)}: {' '.join(targets)}" for targets, names in groups.items())
        return [Finding(f"libraries that must hold the same targets differ: {said}", tip=_REBUILD)]
    full = set(next(iter(groups), ()))
    more = [(m, set(bases(wheel.held_by(m))) - full) for m in rest] if full else []
    return [
        Finding(f"holds {' '.join(sorted(extra))}, which {_first(groups)} does not", member, _FOREIGN)
        for member, extra in more
        if extra
    ]


def check_rocm_build(wheel: Subject) -> list[Finding] | Skipped:
    """The wheel is a ROCm build: it states ``torch.version.hip``, or holds device code or HIP sources."""
    how = wheel.expected.project.checks.rocm
    if how == "none":
        return Skipped("the recipe says that nothing in this project tells a ROCm build from another")
    if how == "torch.version.hip":
        from rocm_wheels.audit.modules import check_version_module

        return check_version_module(wheel)
    if wheel.damaged.intersection(wheel.libraries):
        return Skipped("a library is damaged, so what it held cannot be said")
    wanted = wheel.expected.targets
    good = set(wheel.targets) & set(bases(wanted)) if wanted is not None else set(wheel.targets)
    if good or wheel.elsewhere or wheel.jit_sources:  # only libraries with device code are split
        return []
    asked = f" of {' '.join(wanted)}" if wanted else ""
    jit = wheel.expected.project.checks.jit_sources
    sources = f", and no {jit} to compile where it is used" if jit else ""
    return [
        Finding(
            f"a CPU-only build: no device code{asked} inside{sources}",
            tip="torch in the build environment must be the ROCm build, and no option may turn HIP off",
        )
    ]


def _ruled(wheel: Subject, *, damaged: bool = False) -> Iterable[tuple[str, DeviceCode]]:
    """Yield each member that a rule decides about: libraries, and whatever else holds device code.

    Damaged ones only when asked for: the archive's check has named them.
    """
    rules = wheel.expected.project.device_code(wheel.expected.platform)
    matches = [(rule, wheel.matching(rule.files)) for rule in rules]
    left_out = frozenset() if damaged else wheel.damaged
    for member in sorted({*wheel.libraries, *wheel.device_code, *wheel.elsewhere} - left_out):
        rule = next((rule for rule, names in matches if member in names), None)
        if rule is not None:
            yield member, rule


def check_coverage(wheel: Subject) -> list[Finding]:
    """Device code is only where the recipe has a rule about it."""
    ruled = {member for member, _ in _ruled(wheel)}
    ruled.update(archive for member in wheel.elsewhere for archive in wheel.archives(member))
    return [
        Finding(f"{_held(wheel, member)} and no rule of the recipe covers it", member, _NO_RULE)
        for member in sorted({*wheel.device_code, *wheel.elsewhere} - ruled)
    ]


def _judge(wheel: Subject, member: str, rule: DeviceCode) -> list[Finding]:
    targets = wheel.held_by(member)
    wanted = wheel.expected.targets
    asked = f"; requested: {' '.join(wanted)}" if wanted else ""
    if rule.expect == "none":
        if not targets and member not in wheel.elsewhere:
            return []
        said = f"{_held(wheel, member)}; none is expected: {rule.reason}"
        return [Finding(said, member, "the build took in a file that does not belong here")]
    if member in wheel.elsewhere and not wheel.archives(member):
        said = f"{_held(wheel, member)}, so its targets cannot be checked here{asked}"
        return [Finding(said, member, _ELSEWHERE, "warning")]
    if rule.expect == "all" and not targets:
        return [Finding(f"a host-only library: holds no device code at all{asked}", member, _REBUILD)]
    if wanted is None:
        return []
    foreign = sorted(set(bases(targets)) - set(bases(wanted)))
    missing = [asked for asked in wanted if not any(serves(target, asked) for target in targets)]
    found = []
    if foreign:
        shown = _shown(t for t in targets if base_target(t) in foreign)
        found.append(Finding(f"holds {shown}, not requested ({' '.join(wanted)})", member, _FOREIGN))
    if missing and rule.expect == "all":
        said = f"lacks {' '.join(missing)}: holds {_shown(targets)}, requested {' '.join(wanted)}"
        found.append(Finding(said, member, _REBUILD))
    return found


def _held(wheel: Subject, member: str) -> str:
    """Say what device code a member holds, or where it is."""
    if archives := wheel.elsewhere.get(member):
        return f"its device code is in {', '.join(archives)}"
    return f"holds device code ({_shown(wheel.device_code[member])})"


def serves(found: str, asked: str) -> bool:
    """Tell whether ``found`` (``gfx90a:sramecc+:xnack-``) is what was ``asked`` (``gfx90a:xnack-``)."""
    processor, *features = asked.split(":")
    return base_target(found) == processor and set(features) <= set(found.split(":"))


def _shown(targets: Iterable[str]) -> str:
    return " ".join(sorted(set(targets)))


def _first(groups: dict[tuple[str, ...], list[str]]) -> Sequence[str]:
    return next(iter(groups.values()))[0]
