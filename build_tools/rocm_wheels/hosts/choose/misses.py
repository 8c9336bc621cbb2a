"""Nothing fits: the error that says so, with the wheel that came nearest."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import Requirement

from rocm_wheels.errors import HostError
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.hosts.choose.located import Located
from rocm_wheels.hosts.choose.picking import Picked
from rocm_wheels.hosts.choose.ranking import Ranked
from rocm_wheels.hosts.choose.sift import Sifted, Stage
from rocm_wheels.shell import hide_credentials

_TIPS = {
    Stage.VERSION: "ask for another version, or with --pre for pre-releases too",
    Stage.TAGS: "take a Python that there are wheels for, or another index",
    Stage.PYTHON: "take a Python that there are wheels for, or another index",
    Stage.YANKED: "a yanked version is taken when it is asked for exactly: ==",
    Stage.BUILD: "name an index for this machine, or none: then the one for its GPU is taken",
    Stage.PROPERTIES: "nor has the index a wheel for the CPU: name another one, with --index",
}


def nothing_fits(
    requirement: Requirement, located: Located, sifted: Sifted, picked: Picked, host: Host
) -> HostError:
    """Return the error for a requirement that no wheel fits."""
    where = hide_credentials(located.index)
    if not picked.out:
        rest = f"{sifted.sources} source distributions" if sifted.sources else "no wheels"
        return HostError(f"{where} has {rest} of {requirement.name}", tip="name another index: --index URL")
    near = nearest(picked.out, host)
    count = len({one.offer.file for one in picked.out})
    said = f"of {count} wheels the nearest is {near.offer.file}" if count > 1 else near.offer.file
    foreign = near.offer.stage is Stage.TAGS and "this is Python" not in near.reason
    tip = "name an index with wheels for this platform: --index URL" if foreign else _TIPS[near.offer.stage]
    failure = HostError(f"no wheel of {requirement} in {where} fits this machine", tip=tip)
    failure.__cause__ = HostError(f"{said}: {near.reason}")
    return failure


def nearest(out: Sequence[Ranked], host: Host) -> Ranked:
    """Return the wheel that came furthest: of variants the one that is made for the most similar GPU."""
    chips = [gpu.gfx for gpu in host.hardware.usable if gpu.gfx]

    def nearness(one: Ranked) -> tuple[object, ...]:
        targets = one.properties.get("amd", {}).get("gfx_arch", ())
        alike = max((_alike(chip, target) for chip in chips for target in targets), default=0)
        return one.offer.stage, one.offer.version, alike, -one.reason.count(";"), one.offer.file

    return max(out, key=nearness)


def _alike(one: str, other: str) -> int:
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)
