"""Nothing fits: the error that says so, with the wheel that came nearest."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import Requirement

from rocm_wheels.errors import HostError
from rocm_wheels.hosts.choose.host import TargetHost
from rocm_wheels.hosts.choose.located import LocatedProject
from rocm_wheels.hosts.choose.picking import PickedVersion
from rocm_wheels.hosts.choose.ranking import RankedWheel
from rocm_wheels.hosts.choose.sift import SiftedFiles, RejectionStage
from rocm_wheels.shell import hide_credentials

_STAGE_TIPS = {
    RejectionStage.VERSION: "ask for another version, or with --pre for pre-releases too",
    RejectionStage.TAGS: "take a Python that there are wheels for, or another index",
    RejectionStage.PYTHON: "take a Python that there are wheels for, or another index",
    RejectionStage.YANKED: "a yanked version is taken when it is asked for exactly: ==",
    RejectionStage.BUILD: "name an index for this machine, or none: then the one for its GPU is taken",
    RejectionStage.PROPERTIES: "nor has the index a wheel for the CPU: name another one, with --index",
}


def make_no_match_error(
    requirement: Requirement,
    located: LocatedProject,
    sifted: SiftedFiles,
    picked: PickedVersion,
    host: TargetHost,
) -> HostError:
    """Return the error for a requirement that no wheel fits."""
    where = hide_credentials(located.index)
    if not picked.rejected:
        content = f"{sifted.sources} source distributions" if sifted.sources else "no wheels"
        return HostError(
            f"{where} has {content} of {requirement.name}", tip="name another index: --index URL"
        )
    nearest_wheel = find_nearest(picked.rejected, host)
    count = len({wheel.offer.file for wheel in picked.rejected})
    nearest_text = (
        f"of {count} wheels the nearest is {nearest_wheel.offer.file}"
        if count > 1
        else nearest_wheel.offer.file
    )
    foreign = (
        nearest_wheel.offer.stage is RejectionStage.TAGS and "this is Python" not in nearest_wheel.reason
    )
    tip = (
        "name an index with wheels for this platform: --index URL"
        if foreign
        else _STAGE_TIPS[nearest_wheel.offer.stage]
    )
    failure = HostError(f"no wheel of {requirement} in {where} fits this machine", tip=tip)
    failure.__cause__ = HostError(f"{nearest_text}: {nearest_wheel.reason}")
    return failure


def find_nearest(rejected: Sequence[RankedWheel], host: TargetHost) -> RankedWheel:
    """Return the wheel that came furthest: of variants the one that is made for the most similar GPU."""
    chips = [gpu.gfx for gpu in host.hardware.usable if gpu.gfx]

    def rate_wheel(wheel: RankedWheel) -> tuple[object, ...]:
        targets = wheel.properties.get("amd", {}).get("gfx_arch", ())
        alike = max((_count_common(chip, target) for chip in chips for target in targets), default=0)
        return wheel.offer.stage, wheel.offer.version, alike, -wheel.reason.count(";"), wheel.offer.file

    return max(rejected, key=rate_wheel)


def _count_common(first: str, second: str) -> int:
    matches = [a == b for a, b in zip(first, second, strict=False)]
    return matches.index(False) if False in matches else len(matches)
