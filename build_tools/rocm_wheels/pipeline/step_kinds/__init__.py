"""The kinds of steps, a file each: what a step of it depends on (``settle``) and what it does (``run``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.step import Step, StepKind
from rocm_wheels.pipeline.step_kinds.build import run_build, run_configure, settle_build, settle_configure
from rocm_wheels.pipeline.step_kinds.check_cache import run_cache_check, settle_check_cache
from rocm_wheels.pipeline.step_kinds.develop import run_develop, settle_develop
from rocm_wheels.pipeline.step_kinds.fat import run_fat, settle_fat
from rocm_wheels.pipeline.step_kinds.install_rocm import run_install_rocm, settle_install_rocm
from rocm_wheels.pipeline.step_kinds.install_tools import run_install_tools, settle_install_tools
from rocm_wheels.pipeline.step_kinds.probe_targets import run_probe, settle_probe
from rocm_wheels.pipeline.step_kinds.repair import run_repair, settle_repair
from rocm_wheels.pipeline.step_kinds.run_tests import run_test, settle_test
from rocm_wheels.pipeline.step_kinds.split import run_split, settle_split
from rocm_wheels.pipeline.step_kinds.stamp_variant import run_stamp_variant, settle_stamp_variant
from rocm_wheels.pipeline.step_run import StepRun


@dataclass(frozen=True)
class StepKindCode:
    """A kind of step.

    ``settle`` is pure: it returns the step with its inputs, command and verdict, as far as they are known.
    ``run`` does the work and records success; it returns whether nothing had to be made, where it can tell.
    """

    settle: Callable[[Planner, Step], Step]
    run: Callable[[StepRun], bool | None]


STEP_KINDS: Mapping[StepKind, StepKindCode] = {
    "install-rocm": StepKindCode(settle_install_rocm, run_install_rocm),
    "install-tools": StepKindCode(settle_install_tools, run_install_tools),
    "probe-targets": StepKindCode(settle_probe, run_probe),
    "check-cache": StepKindCode(settle_check_cache, run_cache_check),
    "configure": StepKindCode(settle_configure, run_configure),
    "build": StepKindCode(settle_build, run_build),
    "develop": StepKindCode(settle_develop, run_develop),
    "repair": StepKindCode(settle_repair, run_repair),
    "fat": StepKindCode(settle_fat, run_fat),
    "split": StepKindCode(settle_split, run_split),
    "variant": StepKindCode(settle_stamp_variant, run_stamp_variant),
    "test-smoke": StepKindCode(settle_test, run_test),
    "test-torch": StepKindCode(settle_test, run_test),
}
