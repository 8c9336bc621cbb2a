"""Refresh a channel: its pages, the views of GPU targets and support.json follow today's evidence.

A gate asks how old evidence is; once a set is out, its users are told what was found, and when. So age does
not matter here. Waivers and named exceptions are told as they are today: those that ended are not.

For a channel and a GPU target, or a list of them that the policy names, a view shows the newest set that
passed on it, on all of the list, of each platform. Where the
channel does not ask for signatures a pass that nobody known signed counts, too; of the newest version a set
with a signed one goes first. Beside it are the newest sets of companions alone that passed there, and that
take its torch. Where no set passed there is no view: nothing is found (404), and never another
set. A set that fails later leaves, and the one before it is back. While a view changes it shows the old sets
and the new ones for a moment: new wheels come from their dependencies on, then old ones go from their
dependents on, and by their pins one set or the other is whole at any moment.

support.json is read first and exchanged last, by its tag: of two who refresh at a time one begins again, with
what the other knew. So does who finds new results after its last write. All of it follows from documents, so
whoever comes after a run that was killed does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import NamedTuple

from rocm_wheels.core import parallel, records, tables
from rocm_wheels.index import manifest, signing
from rocm_wheels.index.folder import HTML_PAGE, METADATA_SUFFIX
from rocm_wheels.models import facts, project_names
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.release import channel as channels
from rocm_wheels.release import (
    gate,
    pages,
    set_needs,
    support,
    verdict_text,
    view_selectors,
    wheel_set,
)
from rocm_wheels.release.evidence.store import StoredEvidence, read_evidence
from rocm_wheels.release.policy import Policy, check_public_url
from rocm_wheels.release.store_paths import SUPPORT_FILE, FamilyPaths
from rocm_wheels.release.verdict import REPORTED, TargetTestState
from rocm_wheels.stores.store import (
    RUN_AGAIN_TIP,
    ChangedInStoreError,
    Store,
    change_documents,
    put_file,
    read_files,
)
from rocm_wheels.wheels import dist_info

_RULES_ABOUT_FILES = ("audit", "reproduced", "resolver")
WHOLENESS_RULES = frozenset({"audit", "hashes", "files"})  # without these no pass counts


class ViewChange(NamedTuple):
    """What a view shows of a platform: the set ``before`` and the one ``now``, None for none.

    ``gfx`` is the view's name: a target, or what the policy calls a list of them.
    """

    gfx: str
    before: str | None
    now: str | None
    os: project_names.Platform


class SetStatus(support.PublishedSet):
    """A set on a channel, as it is judged now.

    ``failed_checks`` are rules about files that failed since, say that the document was changed, or
    (``files``) that some are gone.
    ``takes_reports``: the channel takes a pass that nobody known has signed.
    """

    failed_checks: tuple[str, ...]
    takes_reports: bool

    @property
    def is_failing(self) -> bool:
        """Whether something failed since it was released."""
        return self.state in {"tests failed", "checks failed"}

    def rank_for(self, channel: str, targets: Sequence[str] = ()) -> wheel_set.SetRank:
        """Return what the newest set of a channel is found by; on targets tested ones of a version lead."""
        tested = {self._find_test_state(gfx) for gfx in targets} == {"tested"}
        return wheel_set.rank_set(
            (self.project,), self.version, self.created, self.set, channel=channel, tested=tested
        )

    def passed_on(self, gfx: str) -> bool:
        """Tell whether it passed on a target, and its files are whole."""
        state = self._find_test_state(gfx)
        passed = state == "tested" or (state == REPORTED and self.takes_reports)
        return passed and not WHOLENESS_RULES.intersection(self.failed_checks)

    def _find_test_state(self, gfx: str) -> TargetTestState:
        return next((target.state for target in self.targets if target.gfx == gfx), "untested")


def make_set_status(
    document: wheel_set.SetDocument,
    evidence: Sequence[StoredEvidence],
    entry: channels.ChannelSet,
    *,
    policy: Policy,
    channel: str,
    now: datetime,
    lost: Sequence[str] = (),
    earlier: Sequence[gate.EarlierSet] = (),
) -> SetStatus:
    """Return what is known of a set on a channel.

    ``lost`` are names of files that are gone, ``earlier`` what the channel shows that came before it.
    """
    verdict = gate.judge_set(policy, channel, document, evidence, now, earlier=earlier, ageless=True)
    bad = {item.id for item in evidence if not item.evidence.passed}
    failed: tuple[str, ...] = tuple(  # not for want of evidence, but by a failure or a change
        item.rule
        for item in verdict.failures
        if item.rule == "hashes" or (item.rule in _RULES_ABOUT_FILES and bad.intersection(item.evidence))
    )
    faults = [f"{rule}: failed" for rule in failed]
    if slower := [item for item in verdict.failures if "slower" in item.codes]:
        faults += [f"{item.title}: {verdict_text.describe_rule(item)}" for item in slower]
        failed = (*failed, "speed")
    if lost:
        others = f" and {tables.format_count(len(lost) - 1, 'other')}" if lost[1:] else ""
        faults.append(f"files: {lost[0]}{others} gone or cut short: stage the same wheels again")
        failed = (*failed, "files")
    notes = map(verdict_text.describe_reason, verdict.notes)
    project = document.main_projects[0]
    wheels = [file for file in document.files if file.project == project]
    return SetStatus(
        set=document.id,
        created=document.created,
        promoted=entry.when,
        project=project,
        version=wheels[0].version,
        rocm=document.rocm,
        os=wheel_set.find_set_platform(document),
        kind=document.layout,
        state="checks failed" if failed and verdict.state != "tests failed" else verdict.state,
        told=(*verdict_text.list_shown_lines(verdict), *faults, *notes, *entry.notes),
        targets=verdict.targets,
        wheels=tuple(_make_wheel_status(file, document) for file in wheels),
        failed_checks=failed,
        takes_reports=policy.takes_reports(channel),
    )


def _make_wheel_status(file: wheel_set.SetFile, document: wheel_set.SetDocument) -> support.WheelStatus:
    """Return a wheel; one whose device code is in other wheels of the set is for all its targets."""
    targets = sorted({strip_features(target) for target in file.targets})
    pythons = wheel_set.list_wheel_pythons(file.name)
    return support.WheelStatus(
        file=file.name,
        sha256=file.sha256,
        pythons=tuple(sorted(pythons, key=facts.get_python_key)),
        platforms=tuple(sorted({tag.platform for tag in dist_info.parse_wheel_name(file.name).tags})),
        gfx=tuple(targets) or wheel_set.list_set_targets(document),
        label=file.label,
        rocm=document.rocm_of(file),
    )


def find_newest_by_platform(
    sets: Iterable[SetStatus], channel: str, targets: Sequence[str] = ()
) -> tuple[SetStatus, ...]:
    """Return the newest set of each platform, that of Linux first.

    With ``targets``, of the newest version one that is tested there goes before those that are reported.
    """
    newest = {status.os: status for status in sorted(sets, key=lambda item: item.rank_for(channel, targets))}
    return tuple(newest[platform] for platform in wheel_set.PLATFORM_ORDER if platform in newest)


@dataclass(frozen=True)
class RefreshResult:
    """What was done for a channel.

    ``retold`` are the sets of which support.json tells something else now, ``views`` those that changed.
    ``pages`` counts pages that were written or removed; ``signed``: its manifest was. ``changing`` is the
    channel where another is changing it: then nothing was done. ``failing`` are sets that it shows although
    something failed since, or is gone.
    """

    family: str
    channel: str
    retold: tuple[str, ...] = ()
    views: tuple[ViewChange, ...] = ()
    pages: int = 0
    changing: channels.Channel | None = None
    failing: tuple[SetStatus, ...] = ()
    signed: bool = False

    @property
    def name(self) -> str:
        """The channel as people name it: ``nightly of gfx110X-all``."""
        return f"{self.channel} of {self.family}"


@dataclass(frozen=True)
class Refresher:
    """One who refreshes, by a policy. ``now`` is in UTC; ``signer`` signs what is shown, at the end."""

    store: Store
    policy: Policy
    by: str
    now: datetime
    env: Mapping[str, str]
    signer: signing.ReleaseSigner | None = None

    def make_promoter(self, paths: FamilyPaths, channel: str) -> channels.Promoter:
        """Return one who changes a channel in the same name, at the same moment, with the same key."""
        actor = channels.ChannelActor(self.by, records.format_moment(self.now))
        others = self.policy.other_indexes
        return channels.Promoter(self.store, paths, channel, actor, self.signer, others)

    def refresh_channel(self, family: str, channel: str) -> RefreshResult | None:
        """Refresh a channel and what is told of it; ``None`` when nothing was ever promoted to it.

        Raises ReleaseError; the same call carries on afterwards.
        """
        return change_documents(
            lambda: self._refresh_once(FamilyPaths(family), channel), description=f"{channel} of {family}"
        )

    def require_key(self, named: Iterable[tuple[str, str]]) -> None:
        """Raise UsageError, before anything is written, where a channel is signed and there is no key."""
        for family, name in named:
            self.make_promoter(FamilyPaths(family), name).manifest.require_key()

    def judge_sets(
        self, channel: channels.Channel, documents: Sequence[wheel_set.SetDocument]
    ) -> tuple[SetStatus, ...]:
        """Return what is known of the sets of a channel, in their order; these are their documents."""

        paths = FamilyPaths(channel.family)
        sizes = {item.path: item.size for item in self.store.listing(paths.pool)} if documents else {}

        def read(document: wheel_set.SetDocument) -> gate.EarlierSet:
            evidence = read_evidence(self.store, document, signers=self.policy.signers, env=self.env)
            return gate.EarlierSet(document, tuple(evidence))

        sets = parallel.run_in_parallel(read, documents)
        return tuple(
            make_set_status(
                shown.document,
                shown.evidence,
                entry,
                policy=self.policy,
                channel=channel.channel,
                now=self.now,
                lost=[
                    file.name
                    for file in shown.document.files
                    if sizes.get(wheel := paths.pool_file(file.sha256, file.name)) != file.size
                    or wheel + METADATA_SUFFIX not in sizes
                ],
                earlier=sets[:number],
            )
            for number, (entry, shown) in enumerate(zip(channel.sets, sets, strict=True))
        )

    def _refresh_once(self, paths: FamilyPaths, name: str) -> RefreshResult | None:
        store = self.store
        before, tag = support.read_document(store, paths.support_document)
        promoter = self.make_promoter(paths, name)
        record = promoter.read_signed()
        if record.tag is None:
            return None
        channel = record.channel
        if channel.pending is not None:
            return RefreshResult(paths.family, name, changing=channel)
        results = self._list_results(paths, channel)
        documents = channels.read_shown_sets(store, paths, channel.sets)
        sets = self.judge_sets(channel, documents)

        def check() -> None:
            for path, expected in ((paths.support_document, tag), (paths.channel_document(name), record.tag)):
                info = store.head(path)
                if (info.tag if info else None) != expected:
                    raise ChangedInStoreError(f"{path} was changed by another process", tip=RUN_AGAIN_TIP)

        notes = {status.set: pages.SetNote(status.state, status.told) for status in sets}
        shown_pages = pages.make_channel_pages(paths, name, documents, notes)
        folder = paths.channel_pages(name)
        count = pages.exchange_pages(store, folder, shown_pages, (), check, adds=True)
        targets = {target.gfx: (target.gfx,) for status in sets for target in status.targets}
        by_id, views = {document.id: document for document in documents}, dict[str, support.ShownView]()
        read_needs = cache(lambda set_id: set_needs.read_needs(store, paths, by_id[set_id]))
        for view, wanted in sorted({**targets, **self.policy.views}.items()):
            passed = [item for item in sets if all(map(item.passed_on, wanted))]
            if passed:
                chosen = _choose_view(support.ShownView(view, wanted), passed, by_id, read_needs, name)
                views |= {view: chosen} if chosen.sets else {}
        old = {
            (view.gfx, item.os): item.set
            for view in before.views
            if view.channel == name
            for item in view.sets
        }
        beside = {view.gfx: view.beside for view in before.views if view.channel == name}
        new = {(view.name, item.os): item.set for view in views.values() for item in view.sets}
        for view in sorted({*views, *(view for view, _ in old), *store.folders(paths.views_folder)}):
            earlier = [set_id for (old_view, _), set_id in old.items() if old_view == view]
            earlier += beside.get(view, ())
            shown = views.get(view, support.ShownView(view, ()))
            coming = {status.set: by_id[status.set] for status in (*shown.sets, *shown.beside)}
            folder = paths.view_pages(view, name)
            view_pages, written = self._exchange_view(paths, folder, earlier, coming, shown.targets, check)
            shown_pages |= view_pages
            count += written
        public = support.read_public(store).model_copy(update={"other_indexes": self.policy.other_indexes})
        newest = find_newest_by_platform(sets, name)
        newest_first = [
            by_id[item.set] for item in sorted(sets, key=lambda item: item.rank_for(name), reverse=True)
        ]
        beside_sets = {
            item.set: set_needs.find_pip_requirements(read_needs(item.set), by_id[item.set], newest_first)
            for item in sets
            if item.project != wheel_set.TORCH_PROJECT
        }
        part = support.make_channel_part(paths, name, sets, newest, views.values(), public, beside_sets)
        known = {"public_url": public.public_url, "other_indexes": public.other_indexes}
        after = before.with_channel(name, part).model_copy(update=known)
        is_new = after != before or tag is None
        if is_new:
            tag = store.replace(paths.support_document, after.to_json(), tag)
        stated = manifest.digest_pages(shown_pages, f"{paths.family}/")
        if signed := promoter.manifest.write(channel.to_json(), stated):
            check()  # a run that came between may have signed other pages before us
        if (count or is_new or signed) and self._list_results(paths, channel) != results:
            # whoever knew of these may have been here before our last write, and have found nothing to do
            raise ChangedInStoreError(f"there are new results in {paths.family}", tip=RUN_AGAIN_TIP)
        told = {item.set: (item.state, item.told) for item in before.releases if item.channel == name}
        return RefreshResult(
            paths.family,
            name,
            tuple(item.set for item in part.releases if told.get(item.set) != (item.state, item.told)),
            tuple(
                ViewChange(gfx, old.get((gfx, platform)), new.get((gfx, platform)), platform)
                for gfx in sorted({gfx for gfx, _ in (*old, *new)})
                for platform in wheel_set.PLATFORM_ORDER
                if old.get((gfx, platform)) != new.get((gfx, platform))
            ),
            count,
            failing=tuple(status for status in sets if status.is_failing),
            signed=signed,
        )

    def _list_results(self, paths: FamilyPaths, channel: channels.Channel) -> set[str]:
        """Return the paths of all that was written down about the sets that a channel shows."""
        listed = self.store.listing(paths.evidence_folder())
        return {item.path for item in listed if item.path.split("/")[2] in channel.shown}

    def _exchange_view(  # noqa: PLR0917 - what is shown, and what was
        self,
        paths: FamilyPaths,
        folder: str,
        earlier: Sequence[str],
        documents: Mapping[str, wheel_set.SetDocument],
        targets: Sequence[str],
        check: pages.Check,
    ) -> tuple[dict[str, bytes], int]:
        """Have the pages of a view show these sets, by their ids, where they showed ``earlier`` ones.

        What they link to is there before them. Returns them, and how many files were written or removed.
        """
        store, count = self.store, 0
        going = [set_id for set_id in earlier if set_id not in documents]
        wanted = pages.make_index_pages(folder, paths, documents.values(), targets) if documents else {}
        if not documents and store.head(f"{folder}/{HTML_PAGE}") is None and not list(store.listing(folder)):
            return {}, 0
        leaving = channels.read_remaining_sets(store, paths, going)
        both = [*leaving, *documents.values()]
        for path, content in view_selectors.make_selector_files(paths, both, targets).items():
            count += put_file(store, path, content, check)
        if not going and not set(documents) - set(earlier):  # as a rule nothing is written
            return wanted, count + pages.exchange_pages(store, folder, wanted, (), check, adds=True)
        order = channels.sort_projects(store, paths, [*documents.values()], leaving)
        if documents and leaving:
            both_pages = pages.make_index_pages(folder, paths, both, targets)
            present = read_files(store, both_pages)
            if any(present[path] not in {both_pages[path], wanted.get(path)} for path in both_pages):
                count += pages.exchange_pages(store, folder, both_pages, order, check, adds=True)
            # else a run that was killed had let the new ones come: old ones go on going
        adds = bool(documents) and not leaving
        count += pages.exchange_pages(store, folder, wanted, order, check, adds=adds)
        return wanted, count

    def refresh_support(self, public_url: str | None = None) -> list[str]:
        """Bring support.json of all families to what those of each say; return its path if that is new.

        ``public_url`` is the one that it is to say from now on; None: as it was.
        """

        def write() -> list[str]:
            before, tag = support.read_document(self.store, SUPPORT_FILE)
            changed: dict[str, object] = {"other_indexes": self.policy.other_indexes}
            if public_url is not None:
                changed["public_url"] = public_url
            public = before.model_copy(update=changed)
            merged = derive_whole_support(self.store, public)
            if merged == before and tag is not None:
                return []
            self.store.replace(SUPPORT_FILE, merged.to_json(), tag)
            if derive_whole_support(self.store, public) != merged:  # see _refresh_once
                raise ChangedInStoreError(f"{SUPPORT_FILE} is behind those of families", tip=RUN_AGAIN_TIP)
            return [SUPPORT_FILE]

        return change_documents(write, description=SUPPORT_FILE)

    def set_public(self, url: str) -> None:
        """Write down where the store is seen from ("": nobody says). UsageError for what is no URL."""
        self.refresh_support(check_public_url(url) if url else "")


def _choose_view(
    view: support.ShownView,
    passed: Sequence[SetStatus],
    documents: Mapping[str, wheel_set.SetDocument],
    read_needs: Callable[[str], tuple[set_needs.Need, ...] | None],
    channel: str,
) -> support.ShownView:
    """Return a view with what it shows of sets that passed: the newest torch, companions that take it.

    A companion that takes another torch of the channel is left out, and so is one of which nobody knows.
    """
    torch = [status for status in passed if status.project == wheel_set.TORCH_PROJECT]
    sets = find_newest_by_platform(torch, channel, view.targets)
    brought, shown = [documents[status.set] for status in sets], list(documents.values())
    companions: dict[str, list[SetStatus]] = {}
    for status in (item for item in passed if item not in torch):
        needs, document = read_needs(status.set), documents[status.set]
        if needs is not None and not any(
            set_needs.find_lack(need, document, brought)
            and not set_needs.find_lack(need, document, shown)  # else an index has it
            for need in needs
        ):
            companions.setdefault(status.project, []).append(status)
    newest = [
        status
        for alike in companions.values()
        for status in find_newest_by_platform(alike, channel, view.targets)
    ]
    sets = find_newest_by_platform([*sets, *newest], channel, view.targets)
    return replace(view, sets=sets, beside=tuple(item for item in newest if item not in sets))


def derive_whole_support(store: Store, public: support.SupportDocument) -> support.SupportDocument:
    """Return what the document of all families is to be."""
    documents = [
        support.read_document(store, FamilyPaths(family).support_document)[0]
        for family in wheel_set.list_families(store)
    ]
    return support.merge_documents(documents, public)
