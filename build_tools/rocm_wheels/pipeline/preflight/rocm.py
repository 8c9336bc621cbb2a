"""Checks of what is asked of ROCm, and of the output folder."""

from __future__ import annotations

from collections.abc import Iterator

from rocm_wheels.model.flash_attention import supported
from rocm_wheels.model.gfx import base_target
from rocm_wheels.pipeline.preflight.subject import PreflightFinding, Subject


def sdk_parts(subject: Subject) -> Iterator[PreflightFinding]:
    """What a build goes without."""
    for lack in subject.sdk_lacks:
        yield PreflightFinding("warning", lack, "install another ROCm, or do without")


def sdk_targets(subject: Subject) -> Iterator[PreflightFinding]:
    """ROCm's libraries have kernels for the targets that it was made for, and for no others."""
    if subject.sdk_targets is None:
        return
    known = {base_target(target) for target in subject.sdk_targets}
    if missing := [target for target in subject.targets if base_target(target) not in known]:
        yield PreflightFinding(
            "warning",
            f"the installed ROCm serves {', '.join(sorted(known))}: its libraries have no kernels for"
            f" {', '.join(missing)}",
            "install the ROCm packages of these targets (--rocm-extras device-…, or another --index-url)",
        )


def attention_targets(subject: Subject) -> Iterator[PreflightFinding]:
    """Flash attention is there for the targets that aotriton has kernels for."""
    if not subject.flash_attention or "pytorch" not in subject.projects:
        return
    without = [target for target in subject.targets if not supported(target, subject.aotriton)]
    if without:
        release = f"aotriton {subject.aotriton}" if subject.aotriton else "aotriton"
        yield PreflightFinding(
            "warning",
            f"{release} has no kernels for {', '.join(without)}: torch works there without flash attention",
            "leave these targets out, or live with it",
        )


def foreign_wheels(subject: Subject) -> Iterator[PreflightFinding]:
    """Two builds of one project must not mix in an output folder."""
    for said in subject.foreign:
        tip = "move it away, or choose another --output-dir: two builds must not mix"
        yield PreflightFinding("error", said, tip)
