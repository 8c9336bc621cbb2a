"""A channel: which sets it shows, the one change that is being made, and the status of each set.

The channel's document is replaced by tag alone, so that of two who begin a change one is told
(``index.DocumentJournal``). Its pages follow from it.

The status of a set is found by today's evidence, and kept in ``by-gfx/<channel>.json``. A gate asks how old
evidence is; once a set is out, its users are told what was found, and when. So age does not matter here.
Waivers and named exceptions are told as they are today: those that ended are not.

The document of statuses can be made again from sets and evidence at any time, but for ``was``: the sets
that pages of a view may still show while they are being exchanged. It is replaced by tag alone, and whoever
writes it has read it before he looked at evidence: what is in it never goes back to less knowledge.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from rocm_wheels import __version__
from rocm_wheels.core import errors, records
from rocm_wheels.core.log import log_warning
from rocm_wheels.models import ci, lock, project_names
from rocm_wheels.models.gfx import get_gfx_families, strip_features
from rocm_wheels.release import gate, layout, set_conflicts, set_log, wheel_set
from rocm_wheels.release.evidence.evidence import CLOCK_SKEW
from rocm_wheels.release.evidence.store import StoredEvidence as Result
from rocm_wheels.release.policy import REPORTED, Policy, TargetTestState, Verdict, make_shown_state
from rocm_wheels.stores.store import NotInStoreError, Store
from rocm_wheels.wheels import dist_info

ChannelAction = Literal["promote", "demote", "abandon", "refresh"]
ShownTestState = Literal[
    "tested", "partly tested", "reported, unsigned", "untested", "tests failed", "checks failed"
]
_DONE_WORDS = {
    "promote": "promoted",
    "demote": "demoted",
    "abandon": "put back",
    "refresh": "updated entry of",
}


class ChannelSet(records.Record):
    """A set on a channel: since when, by whom, and what was known of tests when it was last looked at.

    That is a word, and plain lines. ``log`` is the head of its log when it was promoted; None: it had none.
    """

    set: wheel_set.SetId
    when: str
    by: str
    state: ShownTestState
    told: tuple[str, ...] = ()
    log: set_log.LogHead | None = None


class PendingChange(records.Record):
    """A change that was begun. ``goal`` is what the channel shows when it is done, oldest first.

    ``adds`` says whether ``sets`` come or go: that decides which pages change first. ``policy`` is what the
    channel keeps then; None: as before.
    """

    action: ChannelAction
    sets: tuple[wheel_set.SetId, ...] = Field(min_length=1)
    by: str
    began: str
    goal: tuple[ChannelSet, ...]
    adds: bool
    policy: Mapping[str, JsonValue] | None = None

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.action} of {', '.join(self.sets)} by {self.by}, begun {self.began}"


class ChannelEvent(records.Record):
    """A change that was made. ``policy`` is the digest of the policy that the channel keeps since then."""

    action: ChannelAction
    sets: tuple[wheel_set.SetId, ...]
    by: str
    when: str
    revision: int
    policy: str = ""

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.action} of {', '.join(self.sets)} by {self.by}, {self.when}"


class Channel(records.Record):
    """A channel of a family. ``sets`` are those that it shows, in the order in which they came.

    ``policy`` is what it keeps of the policy that it is judged by (``kept_policy``); None: nobody
    has changed it yet.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    family: str
    channel: str
    revision: int = 0
    current: wheel_set.SetId | None = None
    sets: tuple[ChannelSet, ...] = ()
    pending: PendingChange | None = None
    history: tuple[ChannelEvent, ...] = ()
    policy: Mapping[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> Channel:
        for channel_sets in (self.sets, self.pending.goal if self.pending else ()):
            if len({channel_set.set for channel_set in channel_sets}) < len(channel_sets):
                raise ValueError("a set is there twice")
        if self.current != (self.sets[-1].set if self.sets else None):
            raise ValueError("current is not the last of sets")
        return self

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids of the sets that it shows."""
        return tuple(channel_set.set for channel_set in self.sets)

    @property
    def demoted(self) -> frozenset[str]:
        """The ids of the sets that it showed once."""
        demoted_ids = {set_id for event in self.history if event.action == "demote" for set_id in event.sets}
        return frozenset(demoted_ids - set(self.shown))

    def find_history_fault(self) -> str:
        """Return why what it shows is not what the changes of its history leave, "" where it is.

        Promotions add sets and demotions take them away; what was abandoned or retold moves none.
        """
        shown: dict[str, ChannelEvent] = {}
        revision = 0
        for event in self.history:
            if event.revision <= revision:
                return f"revision {event.revision} comes after {revision}"
            revision = event.revision
            if event.action == "promote":
                shown.update(dict.fromkeys(event.sets, event))
            left = event.sets if event.action == "demote" else ()
            if missing := [set_id for set_id in left if shown.pop(set_id, None) is None]:
                return f"{', '.join(missing)} left at revision {revision}, and had not come"
        if self.shown != tuple(shown):
            return (
                f"it leaves {', '.join(shown) or 'no sets'}, and {', '.join(self.shown) or 'none'} are shown"
            )
        for entry in self.sets:
            event = shown[entry.set]
            if (entry.when, entry.by) != (event.when, event.by):
                return f"{entry.set} came {event.when} by {event.by}, and its entry says otherwise"
        if self.revision < revision or (self.pending is None and self.revision != revision):
            return f"its last change is revision {revision}, and the document is at {self.revision}"
        return ""

    def find_pending_fault(self) -> str:
        """Return why a pending change cannot be one of what it shows, "" where it may be or none is."""
        change = self.pending
        if change is None:
            return ""
        before, goal = self.sets, change.goal
        if change.action == "promote":
            fits = goal[:-1] == before and tuple(item.set for item in goal[-1:]) == change.sets
        elif change.action == "refresh":
            untold = {"state": "untested", "told": ()}
            old, new = ([item.model_copy(update=untold) for item in items] for items in (before, goal))
            fits = old == new
        elif change.action == "demote":
            fits = goal == tuple(item for item in before if item.set not in change.sets)
        else:
            fits = goal == before
        return "" if fits else f"{change.action} of {', '.join(change.sets)} does not lead to its goal"

    def with_pending(self, pending: PendingChange) -> Channel:
        """Return it as it is while a change is being made."""
        return self.model_copy(update={"pending": pending, "revision": self.revision + 1})

    def finish_pending(self) -> Channel:
        """Return it as it is when the pending change is made."""
        change, revision = self.pending, self.revision + 1
        assert change is not None
        event = ChannelEvent(
            action=change.action,
            sets=change.sets,
            by=change.by,
            when=change.began,
            revision=revision,
            policy=_digest_policy(change.policy) if change.policy is not None else "",
        )
        return self.model_copy(
            update={
                "revision": revision,
                "current": change.goal[-1].set if change.goal else None,
                "sets": change.goal,
                "pending": None,
                "history": (*self.history, event),
                "policy": change.policy if change.policy is not None else self.policy,
            }
        )

    def to_json(self) -> bytes:
        """Return its file."""
        return (json.dumps(self.model_dump(mode="json", by_alias=True), indent=1) + "\n").encode()


def _digest_policy(policy: Mapping[str, JsonValue]) -> str:
    return hashlib.sha256(json.dumps(policy, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ChannelRecord:
    """A channel as it was read or written, with the tag of its document (``None``: there is none yet).

    ``content`` is that document.
    """

    channel: Channel
    tag: str | None
    content: bytes = b""


def read_channel(store: Store, paths: layout.FamilyPaths, name: str) -> ChannelRecord:
    """Return a channel; one that nothing was promoted to is empty. DataError for a damaged document."""
    path = paths.channel_document(name)
    try:
        stored = store.read(path)
    except NotInStoreError:
        return ChannelRecord(Channel(family=paths.family, channel=name), None)
    try:
        channel = Channel.model_validate_json(stored.content)
    except ValidationError as cause:
        tip = "put it back from a copy of the store: it says what people get"
        message = (
            f"{store.url_of(path)} is not the document of a channel: "
            f"{records.summarize_faults(cause, Channel)}"
        )
        raise errors.DataError(message, tip=tip) from None
    if (channel.family, channel.channel) != (paths.family, name):
        raise errors.DataError(f"{store.url_of(path)} is of {channel.channel} of {channel.family}")
    return ChannelRecord(channel, stored.tag, stored.content)


def describe_action(action: ChannelAction) -> str:
    """Return what became of sets: ``promoted``."""
    return _DONE_WORDS[action]


WHOLENESS_RULES = frozenset({"verify", "hashes", "log", "evidence"})  # rules without which no pass counts


class TargetStatus(records.Record):
    """What is known of a set on a GPU target, as the gate says it. ``when`` is "2026-11-21", or ""."""

    gfx: str
    state: TargetTestState
    by: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    when: str = ""


class WheelStatus(records.Record):
    """A wheel of torch. No ``pythons``: it is for every one. ``gfx`` are the targets that it is for.

    ``rocm`` is its own, also where the set has variants for several.
    """

    file: str
    sha256: lock.Sha256Digest
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    gfx: tuple[str, ...]
    label: str = ""
    rocm: str | None = None


class PublishedSet(records.Record):
    """A set on a channel, as people may read it. ``wheels`` are those of ``project``: torch, where it is."""

    set: wheel_set.SetId
    created: str
    promoted: str
    project: str
    version: str
    rocm: str | None
    os: project_names.Platform
    kind: wheel_set.SetLayout
    origin: wheel_set.SetId | None
    state: ShownTestState
    told: tuple[str, ...]
    targets: tuple[TargetStatus, ...]
    wheels: tuple[WheelStatus, ...]


class SetStatus(PublishedSet):
    """A set on a channel, with what a refresh goes by.

    ``failed_checks`` are rules about files that failed since (``verify``, ``resolver``), or say that what is
    known cannot be believed (``hashes``, ``log``, ``evidence``: the document was changed, results are gone).
    ``of`` is the digest of all that this was found from, "" when it must be looked at again. ``log`` is the
    head of the log that it was found by; None: there is none. ``takes_reports``: the channel takes a pass
    that nobody known has signed.
    """

    failed_checks: tuple[str, ...]
    of: str
    log: set_log.LogHead | None = None
    takes_reports: bool = True

    @property
    def is_failing(self) -> bool:
        """Whether something failed since it was released."""
        return self.state in {"tests failed", "checks failed"}

    def rank_for(self, channel: str, gfx: str = "") -> wheel_set.SetRank:
        """Return what the newest set of a channel is found by; on a target tested ones of a version lead."""
        tested = self._find_test_state(gfx) == "tested"
        return wheel_set.rank_set(
            (self.project,), self.version, self.created, self.set, channel=channel, tested=tested
        )

    def passed_on(self, gfx: str) -> bool:
        """Tell whether it passed on a target, its files are whole, and no result is gone."""
        state = self._find_test_state(gfx)
        passed = state == "tested" or (state == REPORTED and self.takes_reports)
        return passed and not WHOLENESS_RULES.intersection(self.failed_checks)

    def _find_test_state(self, gfx: str) -> TargetTestState:
        return next((target.state for target in self.targets if target.gfx == gfx), "untested")


class ChannelView(records.Record):
    """The view of a target. ``set`` is what it shows, or is about to; while it is not ``settled``, pages may
    show the sets that it ``was`` at, too. ``None``: there is to be no view.

    Where it shows a set of each of several platforms, ``sets`` are all of them, and ``set`` is the first."""

    gfx: str
    set: wheel_set.SetId | None
    sets: tuple[wheel_set.SetId, ...] = ()
    was: tuple[wheel_set.SetId, ...] = ()
    settled: bool = True

    @classmethod
    def make(
        cls, gfx: str, set_ids: Sequence[str], was: Sequence[str] = (), *, settled: bool = True
    ) -> ChannelView:
        """Return the view that shows these sets; of none there is to be no view."""
        several = tuple(set_ids) if len(set_ids) > 1 else ()
        return cls(gfx=gfx, set=next(iter(set_ids), None), sets=several, was=tuple(was), settled=settled)

    @property
    def shown(self) -> tuple[str, ...]:
        """All sets that it shows, or is about to: one of each platform."""
        return self.sets or ((self.set,) if self.set is not None else ())


class ChannelStatus(records.Record):
    """The document. ``policy`` is the digest of the policy by which it was found."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    family: str
    channel: str
    policy: str = ""
    sets: tuple[SetStatus, ...] = ()
    views: tuple[ChannelView, ...] = ()

    def settle_views(self) -> ChannelStatus:
        """Return it as it is when the pages of all views are what it says."""
        views = tuple(ChannelView.make(view.gfx, view.shown) for view in self.views if view.shown)
        return self.model_copy(update={"views": views})

    def to_json(self) -> bytes:
        """Return its file: the same knowledge is the same bytes."""
        return (self.model_dump_json(by_alias=True, indent=1) + "\n").encode()


@dataclass(frozen=True)
class StoredStatus:
    """The document as it was read, with its tag (``None``: there is none), and its content."""

    document: ChannelStatus
    tag: str | None
    content: bytes = b""


def read_channel_status(store: Store, paths: layout.FamilyPaths, channel: str) -> StoredStatus:
    """Return the document of a channel; one that is not there, or damaged, is made again from nothing."""
    path, empty = paths.channel_status(channel), ChannelStatus(family=paths.family, channel=channel)
    try:
        stored = store.read(path)
    except NotInStoreError:
        return StoredStatus(empty, None)
    try:
        document = ChannelStatus.model_validate_json(stored.content)
    except ValidationError:
        log_warning(f"{store.url_of(path)} is damaged, and is made again")
        return StoredStatus(empty, stored.tag)
    if (document.family, document.channel) != (paths.family, channel):
        log_warning(f"{store.url_of(path)} is of {document.channel} of {document.family}, and is made again")
        return StoredStatus(empty, stored.tag)
    return StoredStatus(document, stored.tag, stored.content)


_RULES_WITH_AGE = ("verify", "resolver", "smoke", "tests")  # those with an age
_ANY_STATUS_AGE = timedelta(days=36500)
_DIGEST_FORM = 5  # of what is told: another one is another digest


def drop_age_limits(policy: Policy) -> Policy:
    """Return a policy for which evidence of any age is fresh.

    Statements of a released set were looked at when it was promoted; no result changes them.
    """

    def of(rules: object) -> dict[str, object]:
        named_rules = ((name, getattr(rules, name)) for name in _RULES_WITH_AGE)
        changed: dict[str, object] = {
            name: rule.model_copy(update={"fresh": _ANY_STATUS_AGE})
            for name, rule in named_rules
            if rule is not None
        }
        return {**changed, "provenance": None}

    channels = {
        name: policy_part.model_copy(
            update={"rules": policy_part.rules.model_copy(update=of(policy_part.rules))}
        )
        for name, policy_part in policy.channels.items()
    }
    families = {
        name: policy_part.model_copy(
            update={
                "channels": {
                    key: rules.model_copy(update=of(rules)) for key, rules in policy_part.channels.items()
                }
            }
        )
        for name, policy_part in policy.families.items()
    }
    return policy.model_copy(update={"channels": channels, "families": families})


def compute_policy_digest(policy: Policy) -> str:
    """Return the digest of all that is told by: a policy, the data of families, and who reads them."""
    policy_json = json.dumps(policy.model_dump(mode="json"), sort_keys=True)
    data = repr((sorted(ci.load_ci_table().families.items()), sorted(get_gfx_families().items())))
    return hashlib.sha256(f"{_DIGEST_FORM} {__version__}\0{policy_json}\0{data}".encode()).hexdigest()[:16]


def compute_status_digest(
    policy: Policy,
    policy_digest: str,
    channel_set: ChannelSet,
    evidence: Sequence[str],
    now: datetime,
    *,
    logged: int = 0,
) -> str:
    """Return the digest of what the told state of a set is found from; ``evidence`` are ids.

    ``logged`` is how many entries its log has.

    The id of an evidence holds the hash of what it says. Of the time all that matters is which waivers ended.
    """
    ended = [now.date() > waiver.expires for waiver in policy.waivers]
    facts = (
        policy_digest,
        ended,
        channel_set.set,
        channel_set.when,
        _list_wheel_notes(channel_set),
        sorted(evidence),
        logged,
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def make_set_status(
    document: wheel_set.SetDocument,
    results: Sequence[Result],
    channel_set: ChannelSet,
    *,
    policy: Policy,
    channel: str,
    now: datetime,
    digest: str,
    log: set_log.SetLog,
    stated: set_log.LogHead | None = None,
) -> SetStatus:
    """Return what is known of a set on a channel. ``policy`` is one without age.

    Its log must be whole, and begin with what the channel and an earlier refresh (``stated``) have of it.
    """
    log = log.compare_head(channel_set.log, "the document of the channel")
    log = log.compare_head(stated, "an earlier refresh")
    verdict = gate.judge_set(policy, channel, document, results, now, log=log)
    failed = _list_failed_checks(verdict, results)
    lines = [*make_shown_state(verdict).lines, *(f"{rule}: failed" for rule in failed), *verdict.notes]
    project = "torch" if "torch" in document.projects else document.projects[0]
    wheels = [file for file in document.files if file.project == project]
    ahead = any(max(item.evidence.when, item.evidence.added) > now + CLOCK_SKEW for item in results)
    return SetStatus(
        set=document.id,
        created=document.created,
        promoted=channel_set.when,
        project=project,
        version=wheels[0].version,
        rocm=document.rocm,
        os=wheel_set.find_set_platform(document),
        kind=document.layout,
        origin=document.origin,
        state=_find_state(verdict, failed),
        told=(*lines, *_list_wheel_notes(channel_set)),
        failed_checks=failed,
        targets=tuple(
            TargetStatus(gfx=item.gfx, state=item.state, by=item.by, pythons=item.pythons, when=item.when)
            for item in verdict.targets
        ),
        wheels=tuple(_make_wheel_status(file, document) for file in wheels),
        of="" if ahead else digest,
        log=(stated or channel_set.log or log.head) if log.faults else log.head,
        takes_reports=policy.takes_reports(channel),
    )


def _list_wheel_notes(channel_set: ChannelSet) -> list[str]:
    """Return the lines that are of the wheels, not of what is known of them: they stay."""
    return [
        line
        for line in channel_set.told
        if line.startswith((*set_conflicts.UNPINNED_PREFIXES, set_conflicts.FEWER_TARGETS_PREFIX))
    ]


def _list_failed_checks(verdict: Verdict, results: Sequence[Result]) -> tuple[str, ...]:
    """Return the rules about files that fail, not for want of evidence, but by a failure or a change."""
    bad = {item.id for item in results if not item.evidence.passed}
    return tuple(
        item.rule
        for item in verdict.failures
        if item.rule in {"hashes", "log", "evidence"}
        or (item.rule in {"verify", "resolver"} and bad.intersection(item.evidence))
    )


def _find_state(verdict: Verdict, failed: Sequence[str]) -> ShownTestState:
    word = make_shown_state(verdict).word
    return "checks failed" if failed and word != "tests failed" else word


def _make_wheel_status(file: wheel_set.SetFile, document: wheel_set.SetDocument) -> WheelStatus:
    """Return a wheel; one whose device code is in other wheels of the set is for all its targets."""
    targets = sorted({strip_features(target) for target in file.targets})
    return WheelStatus(
        file=file.name,
        sha256=file.sha256,
        pythons=tuple(sorted(wheel_set.list_wheel_pythons(file.name), key=_python_number)),
        platforms=tuple(sorted({tag.platform for tag in dist_info.parse_wheel_name(file.name).tags})),
        gfx=tuple(targets) or wheel_set.list_set_targets(document),
        label=file.label,
        rocm=document.rocm_of(file),
    )


def _python_number(python: str) -> tuple[int, str]:
    return int(python[2:].rstrip("t") or 0), python
