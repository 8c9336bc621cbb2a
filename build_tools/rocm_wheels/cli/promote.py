"""``promote``, ``demote`` and ``refresh``: which sets people get from a channel."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, command, evidence, options
from rocm_wheels.cli.store import convert_store_findings, list_damage_lines, raise_damage
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.release import kept_policy, refresh, store_check, wheel_set
    from rocm_wheels.release.layout import FamilyPaths, StoreLayout
    from rocm_wheels.release.policy import Policy, Verdict
    from rocm_wheels.release.promote import ChannelChange, Promoter
    from rocm_wheels.stores.store import Store


@dataclass(frozen=True)
class ChangeReport:
    """What was done to a channel, and to its views (None: they do not follow yet).

    ``index`` is the address of the channel's pages, ``set_indexes`` are those of the sets alone.
    """

    done: ChannelChange
    refreshed: refresh.RefreshResult | None
    index: str
    set_indexes: list[str]


def format_document(document: Mapping[str, object], writes: list[str] | None) -> str:
    """Return a document; that of a dry run has the ``writes`` there would have been."""
    return json.dumps(
        {**document, "dry_run": True, "writes": writes} if writes is not None else document, indent=1
    )


def planned_write_lines(writes: list[str] | None) -> list[str]:
    """Return what a dry run would have written."""
    return [f"would {line}" for line in writes or ()]


def dry_run_prefix(writes: list[str] | None) -> str:
    """Return how lines begin that say what was done."""
    return "dry run: " if writes is not None else ""


def change_as_json(change: ChangeReport, store: str, layout: Path | None) -> dict[str, object]:
    """Return what was done to a channel."""
    done, channel, refreshed = change.done, change.done.channel, change.refreshed
    return {
        "action": done.action,
        "sets": list(done.sets),
        "family": channel.family,
        "channel": channel.channel,
        "revision": channel.revision,
        "current": channel.current,
        "shown": list(channel.shown),
        "index": change.index,
        "set_indexes": change.set_indexes,
        "copied": done.copied,
        "pages": done.pages,
        "finished": done.finished,
        "views": views_as_json(refreshed),
        "failing": failing_as_json(store, refreshed, layout) if refreshed else [],
    }


def change_lines(
    change: ChangeReport, writes: list[str] | None, store: str, layout: Path | None
) -> Iterator[str]:
    """Yield what was done to a channel, or would be, for people."""
    from rocm_wheels.release.channel import describe_action

    done, channel, refreshed = change.done, change.done.channel, change.refreshed
    yield from planned_write_lines(writes)
    word = (
        "nothing to do" if done.action is None else f"{', '.join(done.sets)} {describe_action(done.action)}"
    )
    begun = " (an earlier run had begun it)" if done.finished else ""
    yield (
        f"{dry_run_prefix(writes)}{word}{begun}; "
        f"{channel.channel} of {channel.family} is at {channel.current or 'no set'}: "
        f"{tables.format_count(done.copied, 'file')} copied, "
        f"{tables.format_count(done.pages, 'page')} changed"
    )
    yield f"index: {change.index}"
    if refreshed:
        yield from view_lines(refreshed)
        yield from failing_lines(store, refreshed, layout)
    for set_index in change.set_indexes if done.action == "promote" else ():
        yield f"index of the set alone, which never changes: {set_index}"


def refreshed_as_json(refreshed: refresh.RefreshResult, store: str, layout: Path | None) -> dict[str, object]:
    """Return what was done for a channel."""
    return {
        "family": refreshed.family,
        "channel": refreshed.channel,
        "told": list(refreshed.retold),
        "views": views_as_json(refreshed),
        "evidence": refreshed.evidence,
        "pages": refreshed.pages,
        "signed": refreshed.signed,
        "left": refreshed.other_change or None,
        "failing": failing_as_json(store, refreshed, layout),
    }


def describe_refreshed(refreshed: refresh.RefreshResult) -> str:
    """Return what was done for a channel, for people."""
    name = f"{refreshed.channel} of {refreshed.family}"
    if refreshed.other_change:
        return f"{name}: left as it is"
    if not (refreshed.retold or refreshed.views or refreshed.evidence or refreshed.pages):
        return f"{name}: {'signed anew' if refreshed.signed else 'nothing to do'}"
    updates = f"updates its entry of {', '.join(refreshed.retold)}; " if refreshed.retold else ""
    return f"{name}: {updates}{refreshed.evidence} results copied, {refreshed.pages} pages changed"


def views_as_json(done: refresh.RefreshResult | None) -> list[dict[str, str | None]]:
    """Return the views that changed, each platform's set alone."""
    moved = done.views if done else ()
    return [{"gfx": gfx, "before": old, "now": new, "os": platform} for gfx, old, new, platform in moved]


def view_lines(done: refresh.RefreshResult) -> list[str]:
    """Return the views that changed, for people."""
    return [
        f"view of {gfx}{' for Windows' if platform == 'windows' else ''} in {done.channel} of {done.family}: "
        f"{new or 'none'} (it was {old or 'none'})"
        for gfx, old, new, platform in done.views
    ]


def failing_lines(store: str, done: refresh.RefreshResult, layout: Path | None = None) -> list[str]:
    """Return what failed since it was released, for people, each with what takes it away."""
    lines = list[str]()
    for bad in done.failing:
        lines.append(f"{bad.set}: {'; '.join((bad.state, *bad.told))}")
        lines.append(f"  take it away: {format_demote_command(store, done, bad.set, layout)}")
    return lines


def failing_as_json(
    store: str, done: refresh.RefreshResult, layout: Path | None = None
) -> list[dict[str, object]]:
    """Return what failed since it was released."""
    return [
        {
            "set": bad.set,
            "state": bad.state,
            "told": list(bad.told),
            "command": format_demote_command(store, done, bad.set, layout),
        }
        for bad in done.failing
    ]


def format_demote_command(
    store: str, done: refresh.RefreshResult, set_id: str, layout: Path | None = None
) -> str:
    """Return the command that takes a set away."""
    words = [
        "rocm-wheels",
        "set",
        "demote",
        store,
        "--family",
        done.family,
        "--channel",
        done.channel,
        "--set",
        set_id,
    ]
    return shlex.join([*words, *(["--store-layout", str(layout)] if layout else [])])


# whose rules count
_policy_options = catalogue.takes(
    catalogue.POLICY,
    command.option(
        "--change-policy",
        is_flag=True,
        help="Have the channel keep this policy from now on, where it keeps another.",
    ),
)


@command.command("set refresh")
@click.argument("store", metavar="STORE")
@catalogue.FAMILY
@catalogue.CHANNEL.but(help="Only this channel [default: all that show sets].")
@_policy_options
@catalogue.PUBLIC_URL.but(
    help="Where people see STORE, for support.json. What serves a bucket must give index.html for URLs "
    "that end in /. It is kept in the store; '' forgets it."
)
@command.option(
    "--other-index",
    "other_indexes",
    multiple=True,
    metavar="URL",
    help="Where wheels find what is not in their set (ROCm), for support.json. It is kept; '' forgets all.",
)
@catalogue.take_release_keys
@command.option("--sign-anew", is_flag=True, help="Sign what has no snapshot that holds, too, as it is now.")
@catalogue.takes(catalogue.STORE_LAYOUT, catalogue.UNCONDITIONAL, catalogue.DRY_RUN, catalogue.JSON)
def refresh_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    family: str | None,
    channel: str | None,
    policy: Path | None,
    change_policy: bool,
    public_url: str | None,
    other_indexes: tuple[str, ...],
    keys: options.ReleaseKeys,
    sign_anew: bool,
    store_layout: Path | None,
    unconditional: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring pages, views and support.json of STORE to what is known of released sets now.

    Evidence that came after a release is copied beside it, and channels tell of it. A view
    (FAMILY/by-gfx/GFX/CHANNEL/) is an index of the newest set that passed on that GPU, of each platform: that
    of the newest torch, whichever came last. promote and demote do the same in the end. A run that was killed
    is finished by the same command; what is as it should be is not written. A channel that another process is
    changing is left as it is (exit code 15). With --sign-with each channel, and support.json, gets a signed
    snapshot: readers with --released-by take nothing else, nothing older, and nothing after --valid-days. A
    channel that was signed once is changed with the key alone; --sign-anew signs what nobody has signed, or
    what was signed by a lost key, or has expired.

    In the end all that is released is looked at as `store fsck` does, without reading a wheel. Damage is exit
    code 15, and so is a set that a channel shows although something of it failed since: all is written then,
    and the set stays until `set demote` takes it away. The summary of a job on GitHub says both.

    \b
    Examples:
      rocm-wheels set refresh s3://wheels --dry-run
    """
    from rocm_wheels.release import gate, views
    from rocm_wheels.release.layout import load_layout
    from rocm_wheels.stores.store import DryRunStore, open_existing_store, require_conditional_writes

    rules, layout = gate.load_policy_for(channel, policy), load_layout(store_layout)
    opened = open_existing_store(store, boundary.read_environment())
    if (public_url is not None or other_indexes) and (family or channel):
        raise errors.UsageError(
            "--public-url and --other-index are of the whole store", tip="leave out --family and --channel"
        )
    families = find_released_families(opened, layout, family)
    channels = _find_channels(opened, layout, families, rules, channel)
    rehearsal = DryRunStore(opened) if dry_run else None
    if rehearsal is None:
        require_conditional_writes(opened, unconditional=unconditional)
    used: Store = rehearsal or opened
    signer = keys.make_signer(
        boundary.read_environment(), evidence.current_time(), anew=sign_anew, dry_run=dry_run
    )
    if public_url is not None or other_indexes:
        views.update_public(used, layout, public_url, other_indexes or None, signer)
    refresher = make_refresher(used, layout, rules, named=policy is not None, change_policy=change_policy)
    refresher = replace(refresher, signer=signer)
    if not channels:  # of a promotion that was killed early there are only files
        log.log_note(f"there is no channel in {opened.url} yet: `rocm-wheels set promote` makes them")
    done, failures = _refresh_channels(refresher, channels)
    try:
        changed = refresher.refresh_support(families)
    except errors.RocmWheelsError as failure:
        _raise_first_failure(done, [*failures, failure])
        raise
    report = refresher.check_released(family) if rehearsal is None else None  # links of a rehearsal are none
    _print_refreshed(
        store,
        done,
        changed,
        rehearsal.writes if rehearsal else None,
        store_layout,
        report=report,
        as_json=as_json,
    )
    _append_job_summary(store, done, store_layout, report)
    _raise_first_failure(done, failures)
    if report is not None:
        raise_damage(report, store)
    _refuse_failing(store, done, store_layout)


def _append_job_summary(
    store: str, done: list[refresh.RefreshResult], layout: Path | None, report: store_check.StoreReport | None
) -> None:
    """Say in the summary of a job on GitHub what became of channels, what fails, and what is damaged."""
    if page := boundary.read_environment().get("GITHUB_STEP_SUMMARY"):
        lines = [
            line for item in done for line in (describe_refreshed(item), *failing_lines(store, item, layout))
        ]
        lines += list_damage_lines(report) if report is not None else ()
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write("```\n" + "\n".join(lines) + "\n```\n")
        except OSError as failure:  # the store is refreshed all the same
            log.log_warning(f"the step summary cannot be written: {failure.strerror} ({page})")


def _refuse_failing(store: str, done: list[refresh.RefreshResult], layout: Path | None) -> None:
    """Raise ReleaseError where a channel shows a set of which something failed since."""
    failing = [(item, bad) for item in done for bad in item.failing]
    if failing:
        item, bad = failing[0]
        shown = ", ".join(f"{other.set} ({kept.channel} of {kept.family})" for kept, other in failing)
        tip = f"take it away: {format_demote_command(store, item, bad.set, layout)}"
        raise errors.ReleaseError(f"shown, and something failed since: {shown}", tip=tip)


def _refresh_channels(
    refresher: refresh.Refresher, channels: list[tuple[str, str]]
) -> tuple[list[refresh.RefreshResult], list[errors.RocmWheelsError]]:
    """Refresh all channels, whatever becomes of one of them; return what was done, and failures."""
    done, failures = [], list[errors.RocmWheelsError]()
    for family, channel in channels:
        try:
            refreshed = refresher.refresh_channel(family, channel)
        except errors.RocmWheelsError as failure:
            error = errors.ReleaseError(f"{channel} of {family} was not refreshed")
            error.__cause__ = failure
            failures.append(error)
            continue
        done += [refreshed] if refreshed is not None else []
    return done, failures


def _raise_first_failure(done: list[refresh.RefreshResult], failures: list[errors.RocmWheelsError]) -> None:
    """Raise the first failure, or for channels that were left as they are; others are said before."""
    if unfinished := [refreshed for refreshed in done if refreshed.other_change]:
        message = "; ".join(
            f"{refreshed.channel} of {refreshed.family} is being changed: {refreshed.other_change}"
            for refreshed in unfinished
        )
        tip = "that run refreshes it in the end; if it is gone, run it again, or undo it (promote --abandon)"
        failures = [*failures, errors.ReleaseError(f"{message}: left as it is", tip=tip)]
    for other in failures[1:]:
        log.log_warning(errors.explain_error(other))
    if failures:
        raise failures[0]


def make_refresher(
    store: Store,
    layout: StoreLayout,
    policy: Policy,
    *,
    again: bool = True,
    named: bool = True,
    change_policy: bool = False,
) -> refresh.Refresher:
    """Return one who refreshes a store now, in the name of the user; the rest is as ``Refresher`` says."""
    from rocm_wheels.release import refresh

    return refresh.Refresher(
        store,
        layout,
        policy,
        evidence.name_user_and_host(),
        evidence.current_time(),
        boundary.read_environment(),
        again,
        named=named,
        change_policy=change_policy,
    )


def find_released_families(store: Store, layout: StoreLayout, family: str | None) -> list[str]:
    """Return the families that have releases, or the one that is named. Raises for none, and for another."""
    from rocm_wheels.release import wheel_set

    available = wheel_set.list_families(store, area="release", layout=layout)
    if not available:
        tip = "`rocm-wheels set promote` shows a staged set; `rocm-wheels set list` lists those"
        raise errors.ReleaseError(f"nothing was promoted in {store.url}", tip=tip)
    if family is None:
        return available
    if family not in available:
        tip = f"it has {', '.join(available)}"
        raise errors.UsageError(
            f"{store.url} has no releases of {family}{tables.suggest_name(family, available)}", tip=tip
        )
    return [family]


def _find_channels(
    store: Store, layout: StoreLayout, families: list[str], policy: Policy, channel: str | None
) -> list[tuple[str, str]]:
    """Return all channels that there are, or those of one name. UsageError for one not in the policy."""
    from rocm_wheels.release import gate
    from rocm_wheels.release.layout import FamilyPaths
    from rocm_wheels.release.policy import CHANNEL_NAMES

    channels = [
        (family, name)
        for family in families
        for name in (CHANNEL_NAMES if channel is None else (channel,))
        if store.head(FamilyPaths(layout, family, "release").channel_document(name)) is not None
    ]
    for _, name in channels:
        gate.require_channel(policy, name)
    if not channels and channel is not None:
        raise errors.UsageError(f"nothing was promoted to {channel} of {', '.join(families)}")
    return channels


def _print_refreshed(
    store: str,
    done: list[refresh.RefreshResult],
    changed: list[str],
    writes: list[str] | None,
    layout: Path | None,
    *,
    report: store_check.StoreReport | None,
    as_json: bool,
) -> None:
    if as_json:
        documents = [refreshed_as_json(refreshed, store, layout) for refreshed in done]
        damage = convert_store_findings(report.errors) if report is not None else None
        document = {"channels": documents, "documents": changed, "damage": damage}
        click.echo(format_document(document, writes))
        return
    for line in planned_write_lines(writes):
        click.echo(line)
    head = dry_run_prefix(writes)
    for refreshed in done:
        click.echo(f"{head}{describe_refreshed(refreshed)}")
        for line in view_lines(refreshed):
            click.echo(f"  {line}")
        for line in failing_lines(store, refreshed, layout):
            click.echo(f"  {line}")
    for path in changed:
        click.echo(f"{head}{path} written")
    for line in list_damage_lines(report) if report is not None else ():
        click.echo(line)


@dataclass(frozen=True)
class _ChangeOptions:
    """What was said of the store and of how to go about it."""

    store: str
    layout: Path | None
    unconditional: bool
    dry_run: bool
    as_json: bool
    keys: options.ReleaseKeys


# how either command writes, and where
_change_options = catalogue.takes(
    catalogue.CHANNEL.but(required=True),
    catalogue.take_release_keys,
    catalogue.UNCONDITIONAL,
    catalogue.DRY_RUN,
    catalogue.JSON,
)


@command.command("set promote")
@evidence.set_options
@_change_options
@_policy_options
@command.option(
    "--abandon", "undo", is_flag=True, help="Undo a change of the set that a killed run has begun."
)
@command.option(
    "--allow-unpinned",
    is_flag=True,
    help="Show wheels that do not pin each other, too: installers may mix them with those of other sets, "
    "and the pages say so.",
)
@command.option(
    "--allow-fewer-targets",
    is_flag=True,
    help="Show a set for all GPUs without code for some that the newest set on the channel has code for.",
)
def promote(  # noqa: PLR0917 - click passes them by name
    chosen: evidence.ChosenSet,
    channel: str,
    policy: Path | None,
    change_policy: bool,
    undo: bool,
    allow_unpinned: bool,
    allow_fewer_targets: bool,
    unconditional: bool,
    dry_run: bool,
    as_json: bool,
    keys: options.ReleaseKeys,
) -> None:
    """Show a staged set on a channel, once its gate lets it pass (exit code 15 when not).

    The bytes that were tested are copied inside the store and compared. People see the old sets or the new
    one at any moment: pages of dependencies change first. A run that was killed is finished by the same
    command, or undone with --abandon.

    \b
    Examples:
      rocm-wheels set promote s3://wheels --set 2.9.1-93bf --channel nightly
    """
    from rocm_wheels.release import gate, kept_policy
    from rocm_wheels.release.layout import FamilyPaths

    store, layout, document = chosen.open_set()
    rules, named = gate.load_policy_for(channel, policy), policy is not None
    use = kept_policy.PolicyUse(rules, evidence.current_time().date(), named, change_policy)

    def change(promoter: Promoter) -> ChannelChange:
        if undo:
            return promoter.abandon(document.id)
        return promoter.promote(document, lambda: _ask_gate(promoter, document, use))

    promoter = replace(
        _make_promoter(store, FamilyPaths(layout, document.family), channel),
        allow_unpinned=allow_unpinned,
        allow_fewer_targets=allow_fewer_targets,
        policy=use,
    )
    settings = _ChangeOptions(chosen.store, chosen.layout, unconditional, dry_run, as_json, keys)
    refresher = partial(make_refresher, policy=rules, named=named, change_policy=change_policy)
    _apply_change(promoter, change, refresher, settings)


@command.command("set demote")
@click.argument("store", metavar="STORE")
@catalogue.FAMILY.but(help="The family, where the store has several.")
@catalogue.SET.but(help="The set to take away, or how its id begins [default: the newest].")
@command.option(
    "--to", "back_to", metavar="ID", help="Take all away that came after this one (or how its id begins)."
)
@catalogue.POLICY.but(help="Judge what is left by it [default: as it was judged].")
@_change_options
@catalogue.STORE_LAYOUT
def demote(  # noqa: PLR0917 - click passes them by name
    store: str,
    family: str | None,
    set_id: str | None,
    back_to: str | None,
    policy: Path | None,
    channel: str,
    unconditional: bool,
    dry_run: bool,
    as_json: bool,
    keys: options.ReleaseKeys,
    store_layout: Path | None,
) -> None:
    """Take sets from a channel: dependents first, so that no wheel of theirs is left without the others.

    People get what is left. The files stay: each set can be installed from its own index. Name the set where
    the command may be repeated: without --set another one is the newest then.

    \b
    Examples:
      rocm-wheels set demote s3://wheels --channel nightly --family gfx110X-all --to 2.9.1-51aa
    """
    from rocm_wheels.release import gate, kept_policy
    from rocm_wheels.release.layout import FamilyPaths, load_layout
    from rocm_wheels.release.promote import list_newer_sets, resolve_set_id
    from rocm_wheels.stores.store import open_existing_store

    if set_id is not None and back_to is not None:
        raise errors.UsageError("--set and --to say two things", tip="give one of them")
    layout = load_layout(store_layout)
    opened = open_existing_store(store, boundary.read_environment())
    rules, again = gate.load_policy_for(channel, policy), policy is not None
    refresher = partial(make_refresher, policy=rules, again=again, named=again)

    def change(promoter: Promoter) -> ChannelChange:
        before = promoter.read_channel_record().channel
        if again:
            kept_policy.PolicyUse(rules, evidence.current_time().date()).choose(before)
        if back_to is None and set_id is None:
            return promoter.demote(None)
        if back_to is not None:
            return promoter.demote(list_newer_sets(before, resolve_set_id(before, back_to)))
        return promoter.demote((resolve_set_id(before, set_id or ""),))

    promoter = _make_promoter(opened, FamilyPaths(layout, _choose_family(opened, layout, family)), channel)
    _apply_change(
        promoter,
        change,
        refresher,
        _ChangeOptions(store, store_layout, unconditional, dry_run, as_json, keys),
    )


def _choose_family(store: Store, layout: StoreLayout, family: str | None) -> str:
    families = find_released_families(store, layout, family)
    if len(families) > 1:
        raise errors.UsageError(
            f"several families have releases in {store.url}", tip=f"--family: {', '.join(families)}"
        )
    return families[0]


def _ask_gate(promoter: Promoter, document: wheel_set.SetDocument, use: kept_policy.PolicyUse) -> Verdict:
    """Ask by the policy that the channel keeps now: who changes it changes its document, too."""
    from rocm_wheels.release import gate

    layout, env = promoter.staging.layout, boundary.read_environment()
    return gate.judge_staged_set(
        promoter.store,
        layout,
        document,
        promoter.channel,
        policy=use.choose(promoter.read_channel_record().channel)[0],
        now=evidence.current_time(),
        env=env,
        digests=promoter.digests,
    )[0]


def _make_promoter(store: Store, places: FamilyPaths, channel: str) -> Promoter:
    from rocm_wheels.release.promote import ChannelActor, Promoter

    actor = ChannelActor(evidence.name_user_and_host(), f"{evidence.current_time():%Y-%m-%dT%H:%M:%SZ}")
    return Promoter(store, places, channel, actor, evidence.remember_digests())


def _apply_change(
    promoter: Promoter,
    change: Callable[[Promoter], ChannelChange],
    refresher: Callable[[Store, StoreLayout], refresh.Refresher],
    settings: _ChangeOptions,
) -> None:
    from rocm_wheels.stores.store import DryRunStore, require_conditional_writes

    rehearsal = DryRunStore(promoter.store) if settings.dry_run else None
    if rehearsal is None:
        require_conditional_writes(promoter.store, unconditional=settings.unconditional)
    signer = settings.keys.make_signer(
        boundary.read_environment(), evidence.current_time(), dry_run=settings.dry_run
    )
    used = replace(promoter, store=rehearsal or promoter.store, signer=signer)
    done = change(used)
    refreshed, failure = _refresh_views(used, refresher)
    _print_change(
        _describe_change(promoter, done, refreshed), rehearsal.writes if rehearsal else None, settings
    )
    if failure is not None:
        channel = done.channel
        raise errors.ReleaseError(
            f"the change is made and people get it ({channel.channel} of {channel.family} is at "
            f"{channel.current or 'no set'}), but views and support.json do not follow it yet: "
            f"`rocm-wheels set refresh {promoter.store.url}` completes it"
        ) from failure


def _refresh_views(
    promoter: Promoter, refresher: Callable[[Store, StoreLayout], refresh.Refresher]
) -> tuple[refresh.RefreshResult | None, Exception | None]:
    """Have views and documents follow a change that was made; return the failure if they do not."""
    family = promoter.staging.family
    try:
        store_refresher = replace(refresher(promoter.store, promoter.staging.layout), signer=promoter.signer)
        refreshed = store_refresher.refresh_channel(family, promoter.channel)
        store_refresher.refresh_support([family])
    except (errors.RocmWheelsError, OSError) as failure:
        return None, failure
    if refreshed is not None and refreshed.other_change:
        log.log_note(
            f"{promoter.channel} is being changed again: {refreshed.other_change}; that run sees to its views"
        )
    return refreshed, None


def _print_change(change: ChangeReport, writes: list[str] | None, settings: _ChangeOptions) -> None:
    if settings.as_json:
        click.echo(format_document(change_as_json(change, settings.store, settings.layout), writes))
        return
    for line in change_lines(change, writes, settings.store, settings.layout):
        click.echo(line)


def _describe_change(
    promoter: Promoter, done: ChannelChange, refreshed: refresh.RefreshResult | None
) -> ChangeReport:
    from rocm_wheels.release import views

    release, store = promoter.release, promoter.store
    public = views.read_public(store, release.layout)
    index, *set_indexes = (
        public.address_of(store, f"{path}/")
        for path in (release.channel_pages(done.channel.channel), *map(release.set_index, done.sets))
    )
    return ChangeReport(done, refreshed, index, set_indexes)
