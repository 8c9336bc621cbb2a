"""Which code does which kind of step. A process imports what its own kind needs, and no more."""

from __future__ import annotations

from collections.abc import Callable

from rocm_wheels.pipeline.plan.step import Kind
from rocm_wheels.pipeline.steps.turn import Turn


def code_of(kind: Kind) -> Callable[[Turn], bool | None]:
    """Return what does steps of a kind; it returns whether nothing had to be made, where it can tell."""
    match kind:
        case "install-rocm":
            from rocm_wheels.pipeline.steps.installs import install_rocm

            return install_rocm
        case "install-tools":
            from rocm_wheels.pipeline.steps.installs import install_tools

            return install_tools
        case "probe-targets":
            from rocm_wheels.pipeline.steps.checks import probe

            return probe
        case "check-cache":
            from rocm_wheels.pipeline.steps.checks import check_cache

            return check_cache
        case "configure":
            from rocm_wheels.pipeline.steps.configure import configure

            return configure
        case "build":
            from rocm_wheels.pipeline.steps.build import build

            return build
        case "variant":
            from rocm_wheels.pipeline.steps.variant import stamp_variant

            return stamp_variant
