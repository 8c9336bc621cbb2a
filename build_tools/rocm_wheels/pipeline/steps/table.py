"""Which code does which kind of step. A process imports what its own kind needs, and no more."""

from __future__ import annotations

from collections.abc import Callable

from rocm_wheels.pipeline.plan.step import StepKind
from rocm_wheels.pipeline.steps.turn import StepRun


def load_step_code(kind: StepKind) -> Callable[[StepRun], bool | None]:
    """Return what does steps of a kind; it returns whether nothing had to be made, where it can tell."""
    match kind:
        case "install-rocm":
            from rocm_wheels.pipeline.steps.installs import install_rocm

            return install_rocm
        case "install-tools":
            from rocm_wheels.pipeline.steps.installs import install_tools

            return install_tools
        case "probe-targets":
            from rocm_wheels.pipeline.steps.checks import run_probe

            return run_probe
        case "check-cache":
            from rocm_wheels.pipeline.steps.checks import run_cache_check

            return run_cache_check
        case "configure":
            from rocm_wheels.pipeline.steps.configure import run_configure

            return run_configure
        case "build":
            from rocm_wheels.pipeline.steps.build import run_build

            return run_build
        case "variant":
            from rocm_wheels.pipeline.steps.variant import stamp_variant

            return stamp_variant
