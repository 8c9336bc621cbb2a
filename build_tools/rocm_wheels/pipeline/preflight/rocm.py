"""Checks of what is asked of ROCm, and of the output folder."""

from __future__ import annotations

from collections.abc import Iterator

from rocm_wheels.model.flash_attention import has_aotriton_kernels
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.pipeline.preflight.subject import PreflightFinding, PreflightSubject


def check_sdk_parts(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """What a build goes without."""
    for lack in subject.sdk_lacks:
        yield PreflightFinding("warning", lack, "install another ROCm, or do without")


def check_sdk_targets(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """ROCm's libraries have kernels for the targets that it was made for, and for no others."""
    if subject.sdk_targets is None:
        return
    served = {strip_features(target) for target in subject.sdk_targets}
    if missing := [target for target in subject.targets if strip_features(target) not in served]:
        yield PreflightFinding(
            "warning",
            f"the installed ROCm serves {', '.join(sorted(served))}: its libraries have no kernels for"
            f" {', '.join(missing)}",
            "install the ROCm packages of these targets (--rocm-extras device-…, or another --index-url)",
        )


def check_attention_targets(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Flash attention is there for the targets that aotriton has kernels for."""
    if not subject.flash_attention or "pytorch" not in subject.projects:
        return
    without = [target for target in subject.targets if not has_aotriton_kernels(target, subject.aotriton)]
    if without:
        release = f"aotriton {subject.aotriton}" if subject.aotriton else "aotriton"
        yield PreflightFinding(
            "warning",
            f"{release} has no kernels for {', '.join(without)}: torch works there without flash attention",
            "leave these targets out, or live with it",
        )


def check_foreign_wheels(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Two builds of one project must not mix in an output folder."""
    for message in subject.foreign:
        tip = "move it away, or choose another --output-dir: two builds must not mix"
        yield PreflightFinding("error", message, tip)
