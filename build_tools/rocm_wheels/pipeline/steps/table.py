"""Which code does which kind of step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocm_wheels.pipeline.plan.step import Kind
from rocm_wheels.pipeline.steps.build import build
from rocm_wheels.pipeline.steps.checks import check_cache, probe
from rocm_wheels.pipeline.steps.installs import install_rocm, install_tools
from rocm_wheels.pipeline.steps.turn import Turn
from rocm_wheels.pipeline.steps.variant import stamp_variant

# each returns whether nothing had to be made, where it can tell
STEPS: Mapping[Kind, Callable[[Turn], bool | None]] = {
    "install-rocm": install_rocm,
    "install-tools": install_tools,
    "probe-targets": probe,
    "check-cache": check_cache,
    "build": build,
    "variant": stamp_variant,
}
