"""The kinds of steps, a file each: what a step of it depends on (``settle``) and what it does (``run``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rocm_wheels.pipeline import planner, step, step_run
from rocm_wheels.pipeline.step_kinds import (
    build,
    check_cache,
    develop,
    fat,
    install_rocm,
    install_tools,
    probe_targets,
    repair,
    run_tests,
    split,
    stamp_variant,
)


@dataclass(frozen=True)
class StepKindCode:
    """A kind of step.

    ``settle`` is pure: it returns the step with its inputs, command and verdict. It puts inputs into the
    given dictionary, those first that are known anyway, and raises ``NotYet`` at one that is known later.
    ``run`` does the work and records success.
    """

    settle: Callable[[planner.Planner, step.Step, dict[str, str]], step.Step]
    run: Callable[[step_run.StepRun], None]


STEP_KINDS: Mapping[step.StepKind, StepKindCode] = {
    "install-rocm": StepKindCode(install_rocm.settle_install_rocm, install_rocm.run_install_rocm),
    "install-tools": StepKindCode(install_tools.settle_install_tools, install_tools.run_install_tools),
    "probe-targets": StepKindCode(probe_targets.settle_probe, probe_targets.run_probe),
    "check-cache": StepKindCode(check_cache.settle_check_cache, check_cache.run_cache_check),
    "configure": StepKindCode(build.settle_configure, build.run_configure),
    "build": StepKindCode(build.settle_build, build.run_build),
    "develop": StepKindCode(develop.settle_develop, develop.run_develop),
    "repair": StepKindCode(repair.settle_repair, repair.run_repair),
    "fat": StepKindCode(fat.settle_fat, fat.run_fat),
    "split": StepKindCode(split.settle_split, split.run_split),
    "variant": StepKindCode(stamp_variant.settle_stamp_variant, stamp_variant.run_stamp_variant),
    "test-smoke": StepKindCode(run_tests.settle_test, run_tests.run_test),
    "test-torch": StepKindCode(run_tests.settle_test, run_tests.run_test),
}
