"""The policy: what each channel needs of a set before people get it. A YAML file, read strictly.

Owns ``data/release_policy.yaml``, which is used where no other is given.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rocm_wheels.core import errors, records, ssh_signature, tables
from rocm_wheels.models import ci, project_names, torch_tests
from rocm_wheels.models.gfx import get_card_kinds, get_gfx_families, get_gfx_targets
from rocm_wheels.release import sigstore_bundle
from rocm_wheels.release.evidence.evidence import PrintableName
from rocm_wheels.release.verdict import RULE_NAMES

ChannelName = Literal["nightly", "prerelease", "stable"]
CHANNEL_NAMES: tuple[ChannelName, ...] = get_args(ChannelName)
# what is not whole is not released, whoever says so; nor what a channel could not show
INTEGRITY_RULES = ("signers", "hashes", "audit", "channel")
_GPU_RULES = ("smoke", "speed", "tests")
LONGEST_WAIVER = timedelta(
    days=366
)  # of a waiver: what nobody looks at again in a year is a rule that is not needed


def _make_policy_error(message: str) -> PydanticCustomError:
    return PydanticCustomError("policy", "{said}", {"said": message})


def _require_known_name(noun: str, value: str, names: Iterable[str]) -> str:
    if value not in names:
        raise _make_policy_error(f"there is no {noun} {value}{tables.suggest_name(value, names)}")
    return value


def _check_family(value: str) -> str:
    if value in get_card_kinds():
        raise _make_policy_error(f"{value} is a kind of card, not a family: ten years of GPUs would be meant")
    return _require_known_name("GPU family", value, (*get_gfx_families(), ci.MULTI_ARCH))


def _check_waivable(value: str) -> str:
    if _require_known_name("rule", value, RULE_NAMES) in INTEGRITY_RULES:
        raise _make_policy_error(f"nobody can waive {value}: what is not whole is not released")
    return value


def _sort_targets(targets: tuple[str, ...]) -> tuple[str, ...]:
    """Return a list of targets as each way to write it means it."""
    if not targets:
        raise _make_policy_error("it must name a GPU target")
    return tuple(sorted(set(targets)))


def _check_public_key(value: str) -> str:
    if not ssh_signature.is_public_key(value):
        raise _make_policy_error("it must be a public Ed25519 key: ssh-ed25519 AAAA…")
    return value


def check_public_url(url: str) -> str:
    """Return the URL of a folder, with ``/`` at its end. UsageError for one that installers cannot use."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) or parts.scheme == "file"
    except ValueError:
        has_host = False
    has_odd_character = any(
        character.isspace() or ord(character) < 32 or character in "\"'<>\\{}" for character in url
    )
    if has_odd_character or not has_host or parts.scheme not in {"https", "http", "file"}:
        raise errors.UsageError(
            f"{url!r} is no URL of a folder", tip="for example: https://wheels.example.org/"
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise errors.UsageError(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}… has more than a place in it",
            tip="everybody reads it: no user, password, ? or #",
        )
    return url if url.endswith("/") else f"{url}/"


def _check_address(value: str) -> str:
    try:
        return check_public_url(value)
    except errors.UsageError as fault:
        raise _make_policy_error(fault.message) from None


ChannelKey = Annotated[
    str, AfterValidator(lambda value: _require_known_name("channel", value, CHANNEL_NAMES))
]
PolicyFamily = Annotated[
    str, AfterValidator(_check_family)
]  # what a set is of: also all of them, `multi-arch`
PolicyTarget = Annotated[
    str, AfterValidator(lambda value: _require_known_name("GPU target", value, get_gfx_targets()))
]
WaivableRule = Annotated[str, AfterValidator(_check_waivable)]
ListName = Annotated[  # of a folder: some file systems do not tell large letters from small ones
    str,
    records.require_pattern(
        r"(?!gfx)[a-z][a-z0-9_-]*",
        "a name such as datacenter: small letters, digits, - and _; with gfx begin those of targets",
    ),
]
TargetList = Annotated[tuple[PolicyTarget, ...], AfterValidator(_sort_targets)]
PublicKey = Annotated[str, AfterValidator(_check_public_key)]
PolicySigner = Annotated[
    Annotated[PublicKey, Tag("key")] | Annotated[sigstore_bundle.WorkflowIdentity, Tag("workflow")],
    Discriminator(lambda value: "key" if isinstance(value, str) else "workflow"),  # a fault is of one of them
]


class CompleteRule(records.Record):
    """``complete``: every planned wheel is there. Nothing to say of it."""


class ProvenanceRule(records.Record):
    """``provenance``: every wheel has a statement that says how it was made, and is about that wheel.

    ``signed_by``: one of these ``signers`` of the policy has signed it; none: whoever wrote it.
    """

    signed_by: tuple[PrintableName, ...] = ()


class FreshRule(records.Record):
    """A rule about the files. ``fresh``: how old its evidence may be."""

    fresh: records.Age


class ReproducedRule(FreshRule):
    """``reproduced``: one of ``by`` built every wheel again, from what the set says, and got its bytes.

    ``by`` are ``signers`` of the policy: a pass counts that one of them signed, also where a channel takes
    unsigned results. Who signed the statement of a wheel does not count for it: that is who built it.
    ``projects`` (normalized names): only the wheels of these, device wheels included; none: all of the set.
    """

    by: tuple[PrintableName, ...] = Field(min_length=1)
    projects: tuple[PrintableName, ...] = ()


class GpuRule(records.Record):
    """A rule about GPUs: on ``every`` target of the set or on ``one``, with ``every`` Python or with ``one``.

    ``projects`` (normalized names) must have been there; none: all that the set has. Where fewer than
    ``at_least`` tests passed, or somebody ran a selection of them, that is none, unless ``selections`` count.
    A test that failed and passed when it was tried again is flaky: a run with more than ``flaky`` is none.
    """

    fresh: records.Age
    targets: Literal["every", "one"] = "every"
    pythons: Literal["every", "one"] = "every"
    projects: tuple[PrintableName, ...] = ()
    at_least: int = Field(default=1, ge=1)
    selections: Literal["refused", "count"] = "refused"
    flaky: int = Field(default=0, ge=0)


class TestsRule(GpuRule):
    """The rule about torch's own tests: every one of ``suites`` passed, each by itself as a GpuRule says."""

    __test__ = False  # pytest takes classes of this name for tests

    suites: tuple[torch_tests.SuiteName, ...] = Field(default=("default",), min_length=1)

    @field_validator("suites")
    @classmethod
    def _check_each_once(cls, value: tuple[torch_tests.SuiteName, ...]) -> tuple[torch_tests.SuiteName, ...]:
        if len(set(value)) != len(value):
            raise _make_policy_error("a suite is named twice")
        return value


class SpeedRule(records.Record):
    """The rule about speed: ``at_least`` this part of what the last set of the channel had, in each number.

    Smoke tests measure, and numbers are compared on the same kind of machine: on ``every`` target where one
    is there to compare with, or on ``one``.
    """

    at_least: float = Field(gt=0, le=1)
    targets: Literal["every", "one"] = "every"


class ChannelRules(records.Record):
    """What is needed. ``hashes`` (the set is what its id says) always is, and cannot be set."""

    audit: FreshRule
    complete: CompleteRule | None = None
    provenance: ProvenanceRule | None = None
    reproduced: ReproducedRule | None = None
    resolver: FreshRule | None = None
    smoke: GpuRule | None = None
    speed: SpeedRule | None = None
    tests: TestsRule | None = None


class ChangedRules(records.Record):
    """What a family needs otherwise; ``not_needed`` are rules that do not hold for it."""

    audit: FreshRule | None = None
    complete: CompleteRule | None = None
    provenance: ProvenanceRule | None = None
    reproduced: ReproducedRule | None = None
    resolver: FreshRule | None = None
    smoke: GpuRule | None = None
    speed: SpeedRule | None = None
    tests: TestsRule | None = None
    not_needed: tuple[WaivableRule, ...] = ()


class ChannelPolicy(records.Record):
    """A channel. After a failure so many passes in a row are needed on the same kind of machine; evidence
    must be ``signed`` by one of the signers, unless a policy says that it need not be: then a report by
    anybody counts too, and nobody calls that tested; ``bypasses`` count named
    exceptions, or those alone that this policy names itself (``own``), or none."""

    rules: ChannelRules
    passes_after_failure: int = Field(default=1, ge=1, le=10)
    signed: bool = True
    bypasses: Literal["count", "own", "refused"] = "count"


class FamilyPolicy(records.Record):
    """What is said of a family here: in place of the data of families (``data/ci.yaml``).

    ``bypass_tests_for_releases`` needs its ``reason``, and an ``owner``. Of ``multi-arch``, sets for all
    families, there are ``channels`` alone.
    """

    bypass_tests_for_releases: bool | None = None
    reason: PrintableName | None = None
    owner: PrintableName | None = None
    runners: Mapping[project_names.Platform, ci.RunnerLabel] = {}
    channels: Mapping[ChannelKey, ChangedRules] = {}

    @model_validator(mode="after")
    def _check_reason(self) -> FamilyPolicy:
        if self.bypass_tests_for_releases and not (self.reason and self.owner):
            raise _make_policy_error("bypass_tests_for_releases needs a reason and an owner")
        if (self.reason or self.owner) and self.bypass_tests_for_releases is None:
            raise _make_policy_error(
                "reason and owner are those of bypass_tests_for_releases, which is not there"
            )
        return self


class Waiver(records.Record):
    """Somebody answers for a rule that does not pass, up to the end of a day (UTC).

    ``suite``: of torch's own tests, for that suite alone; else for all of them.
    """

    rule: WaivableRule
    channels: tuple[ChannelKey, ...] = Field(min_length=1)
    family: PolicyFamily | None = None
    gfx: PolicyTarget | None = None
    set: PrintableName | None = None
    suite: torch_tests.SuiteName | None = None
    owner: PrintableName
    reason: PrintableName
    expires: date

    @model_validator(mode="after")
    def _check_scope(self) -> Waiver:
        if not (self.family or self.gfx or self.set):
            raise _make_policy_error("a waiver names a family, a gfx or a set")
        if self.gfx and self.rule not in _GPU_RULES:
            raise _make_policy_error(f"{self.rule} is about no GPU: name a family or a set, no gfx")
        if self.rule == "reproduced" and not self.set:
            raise _make_policy_error("reproduced is waived for one set alone: name it")
        if self.suite and self.rule != "tests":
            raise _make_policy_error(f"{self.rule} has no suites: suite is for waivers of tests")
        return self


class RetentionPolicy(records.Record):
    """Which staged sets ``store prune`` keeps that nothing needs.

    The newest ``keep`` of each torch line and platform of a family; those younger than ``keep_for``; those
    whose tests passed, while they are younger than ``keep_passed_for``. A set that was begun less than
    ``unfinished_for`` ago may still be being staged.
    """

    keep: int = Field(default=7, ge=1)
    keep_for: records.Age = timedelta(days=14)
    keep_passed_for: records.Age = timedelta(days=60)
    unfinished_for: records.Age = timedelta(days=2)

    def describe(self) -> str:
        """Return it in a line."""
        return (
            f"keep the newest {self.keep}, for {records.format_age(self.keep_for)},"
            f" passed for {records.format_age(self.keep_passed_for)}"
        )


class Policy(records.Record):
    """A whole policy.

    ``signed_for``: how long the signature of what a channel shows holds; half of it later `set refresh` signs
    anew. ``other_indexes``: where wheels find what is not in their set (ROCm), for ``support.json``.
    ``views``: lists of targets that have a view of their own, beside those of each target.
    """

    channels: Mapping[ChannelKey, ChannelPolicy] = Field(min_length=1)
    families: Mapping[PolicyFamily, FamilyPolicy] = {}
    signers: Mapping[PrintableName, PolicySigner] = {}
    waivers: tuple[Waiver, ...] = ()
    retention: RetentionPolicy = RetentionPolicy()
    signed_for: records.Age = timedelta(days=14)
    other_indexes: tuple[Annotated[str, AfterValidator(_check_address)], ...] = ()
    views: Mapping[ListName, TargetList] = {}

    @model_validator(mode="after")
    def _check_consistency(self) -> Policy:
        for rules, rules_location in self._list_rules():
            self._check_reproducers(rules, rules_location)
            for signer in rules.provenance.signed_by if rules.provenance is not None else ():
                if signer not in self.signer_keys:
                    message = f"there is no signer {signer}{tables.suggest_name(signer, self.signer_keys)}"
                    if signer in self.signers:
                        message = f"{signer} is a workflow, and statements are signed by keys"
                    raise records.make_record_error(message, *rules_location, "provenance", "signed_by")
        for channel_name, location in self._list_named_channels():
            if channel_name not in self.channels:
                raise records.make_record_error(f"{channel_name} is no channel of this policy", *location)
        multi_arch = self.families.get(ci.MULTI_ARCH)
        if multi_arch is not None and multi_arch.model_copy(update={"channels": {}}) != FamilyPolicy():
            message = f"{ci.MULTI_ARCH} may have `channels` alone: GPUs are tested and excused by families"
            raise records.make_record_error(message, "families", ci.MULTI_ARCH)
        keys: dict[str, str] = {}
        for name, key in self.signer_keys.items():
            if (other := keys.setdefault(" ".join(key.split()[:2]), name)) != name:
                raise records.make_record_error(
                    f"{other} and {name} have one key: who signs is one person", "signers", name
                )
        return self

    def _check_reproducers(self, rules: ChannelRules, location: tuple[str, ...]) -> None:
        """Raise for who reproduces and is no signer, or is one of those who sign what they built."""
        builders = rules.provenance.signed_by if rules.provenance is not None else ()
        for name in rules.reproduced.by if rules.reproduced is not None else ():
            message = f"there is no signer {name}{tables.suggest_name(name, self.signers)}"
            if name in builders:
                message = f"{name} signs what it built (provenance), and cannot say that others get the same"
            if name in builders or name not in self.signers:
                raise records.make_record_error(message, *location, "reproduced", "by")

    def _list_rules(self) -> Iterator[tuple[ChannelRules, tuple[str, ...]]]:
        """Yield all rules, of a family those that come of its changes, and where each of them stands."""
        for name, channel in self.channels.items():
            yield channel.rules, ("channels", name, "rules")
        for family, family_policy in self.families.items():
            for name in filter(self.channels.__contains__, family_policy.channels):
                yield self.rules_for(name, family), ("families", family, "channels", name)

    def _list_named_channels(self) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        """Yield the channels that families and waivers are of, and where each is named."""
        for family, family_policy in self.families.items():
            yield from (
                (channel, ("families", family, "channels", channel)) for channel in family_policy.channels
            )
        for number, waiver in enumerate(self.waivers):
            for position, channel in enumerate(waiver.channels):
                yield channel, ("waivers", number, "channels", position)

    def rules_for(self, channel: str, family: str) -> ChannelRules:
        """Return what a family needs for a channel. Raises KeyError for a channel that is not in it."""
        rules = self.channels[channel].rules
        changed_rules = self.families[family].channels.get(channel) if family in self.families else None
        if changed_rules is None:
            return rules
        changed = {
            name: rule
            for name in ChannelRules.model_fields
            if (rule := getattr(changed_rules, name)) is not None
        }
        return rules.model_copy(update={**changed, **dict.fromkeys(changed_rules.not_needed)})

    @property
    def digest(self) -> str:
        """What a policy is told from others by: 16 hex digits of the sha256 of all that it says."""
        return hashlib.sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:16]

    def judges_after(self, digest: str) -> bool:
        """Tell whether sets that came to a channel by the policy with this digest may be judged by this one.

        A policy that somebody names is theirs to change.
        """
        return True

    @property
    def signer_keys(self) -> dict[str, str]:
        """The signers that have a key, by name; others are workflows."""
        return {name: signer for name, signer in self.signers.items() if isinstance(signer, str)}

    def takes_reports(self, channel: str) -> bool:
        """Tell whether a pass that nobody known has signed counts for a channel, too."""
        channel_policy = self.channels.get(channel)
        return channel_policy is None or not channel_policy.signed

    def find_test_place(
        self, families: Sequence[str], platform: project_names.Platform
    ) -> tuple[str, ci.FamilyPlatform]:
        """Return where the first of these families is tested of which anything is said, and its name.

        What is said here goes before what the data of families says. ("", nothing) when none is known.
        """
        for family in families:
            table_row, family_policy = ci.load_ci_table().families.get(family), self.families.get(family)
            place = (
                table_row.get_platform(platform) if table_row is not None else None
            ) or ci.FamilyPlatform()
            changed: dict[str, object] = {}
            if family_policy is not None and family_policy.bypass_tests_for_releases is not None:
                changed["bypass_tests_for_releases"] = family_policy.bypass_tests_for_releases
            if family_policy is not None and platform in family_policy.runners:
                changed.update(runners=(ci.CiRunner(label=family_policy.runners[platform]),), targets=())
            if table_row is not None or changed:
                return family, place.model_copy(update=changed)
        return "", ci.FamilyPlatform()


_SHIPPED_PREFIX = "shipped-"


class ShippedPolicy(Policy):
    """The policy that ships with this tool, of whichever version. It is used where none is named."""

    @property
    def digest(self) -> str:
        """The same, marked as one that ships."""
        return f"{_SHIPPED_PREFIX}{super().digest}"

    def judges_after(self, digest: str) -> bool:
        """Tell whether the sets came by a policy that ships: where one was named, it has to be named again.

        "" is the digest of none: of sets that nobody judged.
        """
        return not digest or digest.startswith(_SHIPPED_PREFIX)


def load_policy(path: Path | None = None) -> Policy:
    """Read a policy, by default our own (a ``ShippedPolicy``).

    Raises DataError with file, line and column of a mistake.
    """
    default_path = project_names.get_data_folder() / "release_policy.yaml"
    try:
        if path is None:
            return records.load_record(default_path, ShippedPolicy)
        return records.load_record(path, Policy)
    except errors.DataError as wrong:
        if re.search(r"\bverify\b", wrong.message):
            wrong.tip = "the rule `verify` is called `audit`, and `rocm-wheels set check` adds what it needs"
        # a part of one, as of the comments in ours
        if re.search(r":\d+: (channels: Field required|it is empty)", wrong.message):
            wrong.tip = f"a policy says all: begin with a copy of {default_path}, and change that"
        raise


def read_policy_text(path: Path | None = None) -> str:
    """Return the text of a policy, by default of our own."""
    return records.read_text_file(path or project_names.get_data_folder() / "release_policy.yaml")


def add_signer(text: str, name: str, public_key: str, *, where: str) -> str:
    """Return the text of a policy that names a signer besides; all else stays as it is, comments included.

    Raises DataError for a policy whose ``signers`` are not a line each, as in braces.
    """
    before = records.parse_record(text, Policy, name=where)
    wanted = before.model_copy(update={"signers": {**before.signers, name: public_key}})
    item = f"{name if re.fullmatch(r'[A-Za-z][A-Za-z0-9_.-]*', name) else json.dumps(name)}: {public_key}"
    newline = "\r\n" if "\r\n" in text else "\n"
    root: Any = yaml.compose(text, Loader=yaml.BaseLoader)
    key, signers = next(((key, value) for key, value in root.value if key.value == "signers"), (root, root))
    if signers is root:  # at the end, in line with the other keys
        indent = " " * root.value[0][0].start_mark.column
        gap = "" if text[: key.end_mark.index].endswith("\n") else newline
        place = key.end_mark.index
        added = f"{gap}{newline}{indent}signers:{newline}{indent}  {item}{newline}"
    else:  # below its line, above comments of the first signer
        line_end = re.compile(r"\r?$", re.MULTILINE).search(text, key.end_mark.index)
        place = line_end.start() if line_end is not None else len(text)
        indent = " " * signers.value[0][0].start_mark.column if signers.value else "  "
        added = f"{newline}{indent}{item}"
    changed = f"{text[:place]}{added}{text[place:]}"
    with contextlib.suppress(errors.DataError):
        if records.parse_record(changed, Policy, name=where) == wanted:
            return changed
    raise errors.DataError(
        f"{where} cannot be added to: its `signers` are written in a form that is not known here",
        tip=(
            "write `signers:` without braces (nor any around the policy), each signer on a line of its own"
            " below it, `  NAME: KEY`; then call this again"
        ),
    )
