"""Features of torch on ROCm, by version of torch and of ROCm.

Owns ``data/torch_features.yaml``, whose header explains its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from packaging.version import Version
from pydantic import model_validator

from rocm_wheels.errors import UsageError
from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.versions import VersionField
from rocm_wheels.model.gfx import base_target, gfx_targets
from rocm_wheels.model.names import data_folder
from rocm_wheels.records import did_you_mean, fault, load, spelled

TABLE = "torch_features.yaml"
_API = r"(torch[a-z]*(\.[A-Za-z_][A-Za-z0-9_]*)*)?"

FeatureState = Literal["supported", "unsupported", "too old", "other targets", "not told"]


class Correction(Fact):
    """What goes before the page: since when a feature is there, or that it is ``never``.

    ``aotriton``: on the targets that aotriton has kernels for.
    """

    since: VersionField | None = None
    rocm: VersionField | None = None
    targets: tuple[str, ...] = ()
    aotriton: bool = False
    never: bool = False

    @model_validator(mode="after")
    def _says_something(self) -> Correction:
        if self.never == (self.since is not None and self.rocm is not None):
            raise ValueError("a correction says since which torch and ROCm, or never")
        return self


class Feature(Fact):
    """A feature as the page has it; without ``rocm``: not on ROCm. See the header of the table."""

    group: str
    project: str = "torch"
    since: VersionField | None = None
    rocm: VersionField | None = None
    api: Annotated[str, spelled(_API, "a name in torch: torch.cuda.CUDAGraph; or empty")] = ""
    targets: tuple[str, ...] = ()
    correction: Correction | None = None


class FeatureTable(FactTable):
    """``data/torch_features.yaml``, whole: every target is one."""

    features: Mapping[str, Feature]

    @model_validator(mode="after")
    def _known_targets(self) -> FeatureTable:
        for name, feature in self.features.items():
            named = (*feature.targets, *(feature.correction.targets if feature.correction else ()))
            for target in named:
                if target not in gfx_targets():
                    said = f"{name}: {target} is no GPU target{did_you_mean(target, gfx_targets())}"
                    raise fault(said, "features", name)
        return self


@dataclass(frozen=True)
class FeatureAnswer:
    """Whether a feature is there, and the fact that says so (the page's or its correction)."""

    name: str
    feature: Feature
    state: FeatureState
    reason: str
    fact: Fact


@lru_cache
def feature_table() -> FeatureTable:
    """Return the whole table."""
    return load(data_folder() / TABLE, FeatureTable)


def features() -> Mapping[str, Feature]:
    """Return all features by name, in the order of the page, then those that came after it."""
    return feature_table().features


def features_of(
    rocm: Version, versions: Mapping[str, Version], *, target: str | None = None
) -> tuple[FeatureAnswer, ...]:
    """Return for every feature whether it is there.

    ``versions``: torch and what there is beside it (``{"torch": Version("2.13"), "torchvision": …}``);
    a feature of a library that is not among them is ``not told``. Raises UsageError for an unknown target.
    """
    if target is not None and base_target(target) not in gfx_targets():
        raise UsageError(
            f"{target} is no GPU target{did_you_mean(target, gfx_targets())}",
            tip=f"targets: {', '.join(gfx_targets())}",
        )
    return tuple(_answer(name, feature, rocm, versions, target) for name, feature in features().items())


def _answer(
    name: str, feature: Feature, rocm: Version, versions: Mapping[str, Version], target: str | None
) -> FeatureAnswer:
    fact: Correction | Feature = feature.correction or feature
    if fact.rocm is None:
        return FeatureAnswer(name, feature, "unsupported", fact.note, fact)
    if feature.project not in versions:
        return FeatureAnswer(name, feature, "not told", f"which {feature.project} there is", fact)
    for what, since, version in (
        (feature.project, fact.since, versions[feature.project]),
        ("ROCm", fact.rocm, rocm),
    ):
        if since is not None and version < since:
            return FeatureAnswer(name, feature, "too old", f"from {what} {since} on", fact)
    places = targets_with(name)
    if target is not None and base_target(target) not in places:
        return FeatureAnswer(name, feature, "other targets", f"on {' '.join(places)}", fact)
    return FeatureAnswer(name, feature, "supported", fact.note, fact)


def targets_with(name: str) -> tuple[str, ...]:
    """Return the targets on which a feature can be there. Raises UsageError for an unknown feature."""
    if name not in features():
        raise UsageError(
            f"no feature {name} is known{did_you_mean(name, features())}",
            tip=f"features: {', '.join(features())}",
        )
    fact = features()[name].correction or features()[name]
    if isinstance(fact, Correction) and fact.aotriton:
        return tuple(target for target, record in gfx_targets().items() if record.aotriton)
    return fact.targets or tuple(gfx_targets())


def show_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the table: a row a feature, with what holds today."""
    header = ("feature", "group", "project", "since", "ROCm", "targets", "note", "kind", "source")
    rows: list[tuple[str, ...]] = []
    for name, feature in features().items():
        fact: Correction | Feature = feature.correction or feature
        places = targets_with(name)
        rows.append(
            (
                name,
                feature.group,
                feature.project,
                str(fact.since or ""),
                str(fact.rocm or "no"),
                "" if len(places) == len(gfx_targets()) else " ".join(places),
                fact.note,
                fact.kind,
                feature_table().sources[fact.source].url,
            )
        )
    return header, rows
