"""The policy: what each channel needs of a set before people get it. A YAML file, read strictly.

Owns ``data/release_policy.yaml``, which is used where no other is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from rocm_wheels.errors import DataError
from rocm_wheels.model.ci import MULTI_ARCH, FamilyOn, Runner, RunnerLabel, ci_table
from rocm_wheels.model.gfx import gfx_families, gfx_targets, kinds_of_card
from rocm_wheels.model.names import data_folder
from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record, did_you_mean, fault, load
from rocm_wheels.release.evidence import Name
from rocm_wheels.release.signing import is_public_key

Channel = Literal["nightly", "prerelease", "stable"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
RuleName = Literal["hashes", "evidence", "verify", "complete", "resolver", "smoke", "tests"]
RULES: tuple[RuleName, ...] = get_args(RuleName)
INTEGRITY = ("hashes", "evidence", "verify")  # what is not whole is not released, whoever says so
_OF_GPUS = ("smoke", "tests")
LONGEST = timedelta(
    days=366
)  # of a waiver: what nobody looks at again in a year is a rule that is not needed
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def _age(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"([1-9][0-9]{0,3})([hdw])", str(value).strip())
    if match is None:
        raise _refused("it must be a number of hours, days or weeks: 36h, 14d, 2w")
    return int(match[1]) * _UNITS[match[2]]


def _refused(said: str) -> PydanticCustomError:
    return PydanticCustomError("policy", "{said}", {"said": said})


def _named(what: str, value: str, known: Iterable[str]) -> str:
    if value not in known:
        raise _refused(f"there is no {what} {value}{did_you_mean(value, known)}")
    return value


def _family(value: str) -> str:
    if value in kinds_of_card():
        raise _refused(f"{value} is a kind of card, not a family: ten years of GPUs would be meant")
    return _named("GPU family", value, (*gfx_families(), MULTI_ARCH))


def _waivable(value: str) -> str:
    if _named("rule", value, RULES) in INTEGRITY:
        raise _refused(f"nobody can waive {value}: what is not whole is not released")
    return value


def _public_key(value: str) -> str:
    if not is_public_key(value):
        raise _refused("it must be a public Ed25519 key: ssh-ed25519 AAAA…")
    return value


Age = Annotated[timedelta, BeforeValidator(_age)]
ChannelKey = Annotated[str, AfterValidator(lambda value: _named("channel", value, CHANNELS))]
Family = Annotated[str, AfterValidator(_family)]  # what a set is of: also all of them, `multi-arch`
Target = Annotated[str, AfterValidator(lambda value: _named("GPU target", value, gfx_targets()))]
Waivable = Annotated[str, AfterValidator(_waivable)]
PublicKey = Annotated[str, AfterValidator(_public_key)]


class Whole(Record):
    """``complete``: every planned wheel is there. Nothing to say of it."""


class Fresh(Record):
    """A rule about the files. ``fresh``: how old its evidence may be."""

    fresh: Age


class OnGpus(Record):
    """A rule about GPUs: on ``every`` target of the set or on ``one``, with ``every`` Python or with ``one``.

    ``projects`` (normalized names) must have been there; none: all that the set has. Where fewer than
    ``at_least`` tests passed, or somebody ran a selection of them, that is none, unless ``selections`` count.
    """

    fresh: Age
    targets: Literal["every", "one"] = "every"
    pythons: Literal["every", "one"] = "every"
    projects: tuple[Name, ...] = ()
    at_least: int = Field(default=1, ge=1)
    selections: Literal["refused", "count"] = "refused"


class Rules(Record):
    """What is needed. ``hashes`` (the set is what its id says) always is, and cannot be set."""

    verify: Fresh
    complete: Whole | None = None
    resolver: Fresh | None = None
    smoke: OnGpus | None = None
    tests: OnGpus | None = None


class ChangedRules(Record):
    """What a family needs otherwise; ``not_needed`` are rules that do not hold for it."""

    verify: Fresh | None = None
    complete: Whole | None = None
    resolver: Fresh | None = None
    smoke: OnGpus | None = None
    tests: OnGpus | None = None
    not_needed: tuple[Waivable, ...] = ()


class ChannelPolicy(Record):
    """A channel. After a failure so many passes in a row are needed on the same kind of machine; evidence
    must be ``signed`` by one of the signers or need not; ``bypasses`` count named exceptions, or those alone
    that this policy names itself (``own``), or none."""

    rules: Rules
    passes_after_failure: int = Field(default=1, ge=1, le=10)
    signed: Literal["required", "optional"] = "optional"
    bypasses: Literal["count", "own", "refused"] = "count"


class FamilyPolicy(Record):
    """What is said of a family here: in place of the data of families (``data/ci.yaml``).

    ``bypass_tests_for_releases`` needs its ``reason``, and an ``owner``. Of ``multi-arch``, sets for all
    families, there are ``channels`` alone.
    """

    bypass_tests_for_releases: bool | None = None
    reason: Name | None = None
    owner: Name | None = None
    runners: Mapping[Platform, RunnerLabel] = {}
    channels: Mapping[ChannelKey, ChangedRules] = {}

    @model_validator(mode="after")
    def _named(self) -> FamilyPolicy:
        if self.bypass_tests_for_releases and not (self.reason and self.owner):
            raise _refused("bypass_tests_for_releases needs a reason and an owner")
        if (self.reason or self.owner) and self.bypass_tests_for_releases is None:
            raise _refused("reason and owner are those of bypass_tests_for_releases, which is not there")
        return self


class Waiver(Record):
    """Somebody answers for a rule that does not pass, up to the end of a day (UTC)."""

    rule: Waivable
    channels: tuple[ChannelKey, ...] = Field(min_length=1)
    family: Family | None = None
    gfx: Target | None = None
    set: Name | None = None
    owner: Name
    reason: Name
    expires: date

    @model_validator(mode="after")
    def _of_something(self) -> Waiver:
        if not (self.family or self.gfx or self.set):
            raise _refused("a waiver names a family, a gfx or a set")
        if self.gfx and self.rule not in _OF_GPUS:
            raise _refused(f"{self.rule} is about no GPU: name a family or a set, no gfx")
        return self

    def __str__(self) -> str:
        """Return who waives it, how long, and why."""
        return f"{self.owner} answers for it until {self.expires}: {self.reason}"


class Policy(Record):
    """A whole policy."""

    channels: Mapping[ChannelKey, ChannelPolicy] = Field(min_length=1)
    families: Mapping[Family, FamilyPolicy] = {}
    signers: Mapping[Name, PublicKey] = {}
    waivers: tuple[Waiver, ...] = ()

    @model_validator(mode="after")
    def _can_be_met(self) -> Policy:
        for name, channel in self.channels.items():
            if channel.signed == "required" and not self.signers:
                said = f"{name} needs signed evidence, and `signers` names nobody"
                raise fault(said, "channels", name, "signed")
        for named, place in self._channels_named():
            if named not in self.channels:
                raise fault(f"{named} is no channel of this policy", *place)
        together = self.families.get(MULTI_ARCH)
        if together is not None and together.model_copy(update={"channels": {}}) != FamilyPolicy():
            said = f"{MULTI_ARCH} may have `channels` alone: GPUs are tested and excused by families"
            raise fault(said, "families", MULTI_ARCH)
        keys: dict[str, str] = {}
        for name, key in self.signers.items():
            if (other := keys.setdefault(" ".join(key.split()[:2]), name)) != name:
                raise fault(f"{other} and {name} have one key: who signs is one person", "signers", name)
        return self

    def _channels_named(self) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        """Yield the channels that families and waivers are of, and where each is named."""
        for family, own in self.families.items():
            yield from ((channel, ("families", family, "channels", channel)) for channel in own.channels)
        for number, waiver in enumerate(self.waivers):
            for at, channel in enumerate(waiver.channels):
                yield channel, ("waivers", number, "channels", at)

    def rules(self, channel: str, family: str) -> Rules:
        """Return what a family needs for a channel. Raises KeyError for a channel that is not in it."""
        rules = self.channels[channel].rules
        own = self.families[family].channels.get(channel) if family in self.families else None
        if own is None:
            return rules
        changed = {name: rule for name in Rules.model_fields if (rule := getattr(own, name)) is not None}
        return rules.model_copy(update={**changed, **dict.fromkeys(own.not_needed)})

    def tested(self, families: Sequence[str], platform: Platform) -> tuple[str, FamilyOn]:
        """Return where the first of these families is tested of which anything is said, and its name.

        What is said here goes before what the data of families says. ("", nothing) when none is known.
        """
        for family in families:
            known, own = ci_table().families.get(family), self.families.get(family)
            found = (known.on(platform) if known is not None else None) or FamilyOn()
            changed: dict[str, object] = {}
            if own is not None and own.bypass_tests_for_releases is not None:
                changed["bypass_tests_for_releases"] = own.bypass_tests_for_releases
            if own is not None and platform in own.runners:
                changed.update(runners=(Runner(label=own.runners[platform]),), targets=())
            if known is not None or changed:
                return family, found.model_copy(update=changed)
        return "", FamilyOn()

    def exception(self, family: str) -> str:
        """Return who names a family as an exception here, and why; "" where that is the data of families."""
        own = self.families.get(family)
        return f"{own.owner}: {own.reason}" if own is not None and own.bypass_tests_for_releases else ""


def load_policy(path: Path | None = None) -> Policy:
    """Read a policy, by default our own. Raises DataError with file, line and column of a mistake."""
    own = data_folder() / "release_policy.yaml"
    try:
        return load(path or own, Policy)
    except DataError as wrong:
        # a part of one, as of the comments in ours
        if re.search(r":\d+: (channels is missing|it is empty)", wrong.message):
            wrong.tip = f"a policy says all: begin with a copy of {own}, and change that"
        raise
