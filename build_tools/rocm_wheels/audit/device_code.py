"""Check the device code: the targets inside against the targets asked for, library by library.

The recipe's rules are tried in their order; the first whose glob matches a member decides.
Targets are compared by processor; a feature (``:xnack+``) counts where it was asked for, and is
shown in messages always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rocm_wheels.audit import audited_wheel, definition
from rocm_wheels.core import errors
from rocm_wheels.models import gfx, project
from rocm_wheels.variants.targets import COMPILER_GENERICS

_FOREIGN_TIP = "the list of targets did not reach the compiler: look for another --offload-arch in the log"
_DEVICE_WHEELS_TIP = "name the device wheels with those archives as well: they are read together"


@definition.check(
    "RW017 device-code (error)",
    why="Kernels are missing for a GPU: hipErrorNoBinaryForGpu at the first launch.",
    fix="Build again with a clean tree, and look in the log for the target that was left out.",
    needs_recipe=True,
)
def check_device_code(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """Each library holds all, some or none of the targets."""
    findings: list[errors.Finding] = []
    for member, rule in _match_rules(wheel):
        findings += _judge_library(wheel, member, rule)
    return findings


@definition.check(
    "RW016 device-libraries (error)",
    why="A part of the project was not built for GPUs.",
    fix="Look in the log for what configure said about HIP.",
    needs_recipe=True,
)
def check_device_libraries(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """The libraries that must hold device code exist."""
    ruled = list(_match_rules(wheel, damaged=True))
    return [
        errors.Finding(
            "error",
            f"no library matches {rule.files}, which must hold device code ({rule.reason})",
            "the ROCm part was not built: look in the log for what configure said about HIP",
        )
        for rule in wheel.project.list_device_code_rules(wheel.expected.platform)
        if rule.required and not any(rule == other for _, other in ruled)
    ]


@definition.check(
    "RW018 device-consistency (error)",
    why="Part of the package runs on a GPU, and part of it does not.",
    fix="Build again with a clean tree.",
    needs_recipe=True,
)
def check_consistency(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """Without stated targets: libraries agree."""
    if wheel.expected.targets is not None:
        return definition.SkippedCheck("the targets were stated, and each library is compared with them")
    groups: dict[tuple[str, ...], list[str]] = {}
    subset_members: list[str] = []
    for member, rule in _match_rules(wheel):
        if rule.expect == "all" and wheel.list_member_targets(member):
            groups.setdefault(audited_wheel.list_base_targets(wheel.list_member_targets(member)), []).append(
                member
            )
        elif rule.expect == "subset":
            subset_members.append(member)
    if len(groups) > 1:
        differences = "; ".join(
            f"{', '.join(names)}: {' '.join(targets)}" for targets, names in groups.items()
        )
        return [errors.Finding("error", f"libraries that must hold the same targets differ: {differences}")]
    common_targets = set(next(iter(groups), ()))
    extra_targets = (
        [
            (m, set(audited_wheel.list_base_targets(wheel.list_member_targets(m))) - common_targets)
            for m in subset_members
        ]
        if common_targets
        else []
    )
    return [
        errors.Finding(
            "error",
            f"holds {' '.join(sorted(extra))}, which {_get_first_member(groups)} does not",
            _FOREIGN_TIP,
            subject=member,
        )
        for member, extra in extra_targets
        if extra
    ]


def _match_rules(
    wheel: audited_wheel.AuditedWheel, *, damaged: bool = False
) -> Iterable[tuple[str, project.DeviceCodeRule]]:
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


@definition.check(
    "RW019 device-coverage (error)",
    why="Nobody has said which targets that library must serve, so nothing checks it.",
    fix="Say in the recipe, under checks.device_code, what the file must hold and why.",
    needs_recipe=True,
)
def check_coverage(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """Device code only where the recipe has a rule."""
    ruled = {member for member, _ in _match_rules(wheel)}
    ruled.update(archive for member in wheel.moved_code for archive in wheel.find_archives(member))
    return [
        errors.Finding(
            "error",
            f"{_describe_held_code(wheel, member)} and no rule of the recipe covers it",
            subject=member,
        )
        for member in sorted({*wheel.device_code, *wheel.moved_code} - ruled)
    ]


def _judge_library(
    wheel: audited_wheel.AuditedWheel, member: str, rule: project.DeviceCodeRule
) -> list[errors.Finding]:
    targets = wheel.list_member_targets(member)
    expected_targets = wheel.expected.targets
    requested = f"; requested: {' '.join(expected_targets)}" if expected_targets else ""
    if rule.expect == "none":
        if not targets and member not in wheel.moved_code:
            return []
        message = f"{_describe_held_code(wheel, member)}; none is expected: {rule.reason}"
        return [
            errors.Finding(
                "error", message, "the build took in a file that does not belong here", subject=member
            )
        ]
    if member in wheel.moved_code and not wheel.find_archives(member):
        message = f"{_describe_held_code(wheel, member)}, so its targets cannot be checked here{requested}"
        return [errors.Finding("warning", message, _DEVICE_WHEELS_TIP, subject=member)]
    if rule.expect == "all" and not targets:
        return [
            errors.Finding(
                "error",
                f"a host-only library: holds no device code at all{requested}",
                subject=member,
            )
        ]
    if expected_targets is None:
        return []
    bases = set(audited_wheel.list_base_targets(expected_targets))
    foreign = sorted(set(audited_wheel.list_base_targets(targets)) - bases)
    if wheel.rocm_folder is not None and member.startswith(wheel.rocm_folder):
        # ROCm's own build has generic code where it has no other: not for us to choose
        foreign = [t for t in foreign if bases.isdisjoint(COMPILER_GENERICS.get(t, ()))]
    missing = [
        requested
        for requested in expected_targets
        if not any(serves_target(target, requested) for target in targets)
    ]
    findings = []
    if foreign:
        surplus = _join_targets(t for t in targets if gfx.strip_features(t) in foreign)
        findings.append(
            errors.Finding(
                "error",
                f"holds {surplus}, not requested ({' '.join(expected_targets)})",
                _FOREIGN_TIP,
                subject=member,
            )
        )
    if missing and rule.expect == "all":
        message = (
            f"lacks {' '.join(missing)}: holds {_join_targets(targets)}, requested "
            f"{' '.join(expected_targets)}"
        )
        findings.append(errors.Finding("error", message, subject=member))
    return findings


def _describe_held_code(wheel: audited_wheel.AuditedWheel, member: str) -> str:
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


def _get_first_member(groups: dict[tuple[str, ...], list[str]]) -> Sequence[str]:
    return next(iter(groups.values()))[0]


_MOST_LACKING = 0.05


@definition.check(
    "RW093 bundle-targets (error)",
    why="Some operations fail on one kind of GPU alone: hipErrorNoBinaryForGpu.",
    fix="Build again with a clean tree: an object was compiled for other targets.",
)
def check_bundles(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """Within a library, every kernel is there for the same targets.

    A few that lack one were compiled otherwise than the rest: an error. Where many do, these are kernels that
    are meant for some GPUs (of fbgemm, of Composable Kernel): worth knowing. What an archive of a split
    wheel lacks is told with its records.
    """
    if not wheel.device_code:
        return definition.SkippedCheck("holds no device code")
    findings = []
    for member, objects in sorted(wheel.scan.device_code.items()):
        bundles: dict[tuple[str, int], set[str]] = {}
        for code in objects:
            if code.kind in ("hip", "hipv4"):
                targets = bundles.setdefault((code.section, code.bundle), set())
                targets |= {code.target.processor} if code.form != "empty" else set()
        every = set().union(*bundles.values())
        lacking = {key: every - targets for key, targets in bundles.items() if every - targets}
        if not lacking:
            continue
        missing = sorted(set().union(*lacking.values()))
        is_fault = len(lacking) <= max(1, _MOST_LACKING * len(bundles)) < len(bundles)
        message = f"{len(lacking)} of its {len(bundles)} bundles of kernels lack code for {' '.join(missing)}"
        findings.append(errors.Finding("error" if is_fault else "info", message, subject=member))
    return findings
