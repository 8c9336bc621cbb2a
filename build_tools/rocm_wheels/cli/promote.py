"""``promote``, ``demote`` and ``refresh``: which sets people get from a channel."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, command, evidence, options, store
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.release import care, refresh, wheel_set
    from rocm_wheels.release.channel import Channel, ChannelChange, Promoter
    from rocm_wheels.release.policy import Policy, Verdict
    from rocm_wheels.stores.store import Store

_DONE_WORDS = {"promote": "promoted", "demote": "demoted", "abandon": "put back"}


def refreshed_as_json(refreshed: refresh.RefreshResult, place: str) -> dict[str, object]:
    """Return what was done for a channel."""
    return {
        "family": refreshed.family,
        "channel": refreshed.channel,
        "told": list(refreshed.retold),
        "views": _views_as_json(refreshed),
        "pages": refreshed.pages,
        "signed": refreshed.signed,
        "left": refreshed.other_change or None,
        "failing": _failing_as_json(place, refreshed),
    }


def describe_refreshed(refreshed: refresh.RefreshResult) -> str:
    """Return what was done for a channel, for people."""
    name = f"{refreshed.channel} of {refreshed.family}"
    if refreshed.other_change:
        return f"{name}: left as it is"
    if not (refreshed.retold or refreshed.views or refreshed.pages):
        return f"{name}: {'signed anew' if refreshed.signed else 'nothing to do'}"
    updates = f"updates its entry of {', '.join(refreshed.retold)}; " if refreshed.retold else ""
    return f"{name}: {updates}{tables.format_count(refreshed.pages, 'page')} changed"


def _views_as_json(done: refresh.RefreshResult | None) -> list[dict[str, str | None]]:
    moved = done.views if done else ()
    return [{"gfx": gfx, "before": old, "now": new, "os": platform} for gfx, old, new, platform in moved]


def _view_lines(done: refresh.RefreshResult) -> list[str]:
    return [
        f"view of {gfx}{' for Windows' if platform == 'windows' else ''} in {done.channel} of {done.family}: "
        f"{new or 'none'} (it was {old or 'none'})"
        for gfx, old, new, platform in done.views
    ]


def _failing_lines(place: str, done: refresh.RefreshResult) -> Iterator[str]:
    """Yield what failed since it was released, each with what takes it away."""
    for bad in done.failing:
        yield f"{bad.set}: {'; '.join((bad.state, *bad.told))}"
        yield f"  take it away: {format_change_command('demote', place, done.family, done.channel, bad.set)}"


def _failing_as_json(place: str, done: refresh.RefreshResult | None) -> list[dict[str, object]]:
    if done is None:
        return []
    return [
        {
            "set": bad.set,
            "state": bad.state,
            "told": list(bad.told),
            "command": format_change_command("demote", place, done.family, done.channel, bad.set),
        }
        for bad in done.failing
    ]


def format_change_command(action: str, place: str, family: str, channel: str, set_id: str) -> str:
    """Return the command that takes a set away, or puts it back."""
    words = ["rocm-wheels", "set", action, place, "--family", family, "--channel", channel, "--set", set_id]
    return shlex.join(words)


@command.command("set refresh")
@click.argument("store", metavar="STORE")
@catalogue.FAMILY
@catalogue.CHANNEL.but(help="Only this channel [default: all that show sets].")
@catalogue.POLICY
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
@command.option("--sign-anew", is_flag=True, help="Sign what has no manifest that holds, too, as it is now.")
@catalogue.takes(catalogue.DRY_RUN, catalogue.JSON)
def refresh_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    family: str | None,
    channel: str | None,
    policy: Path | None,
    public_url: str | None,
    other_indexes: tuple[str, ...],
    keys: options.ReleaseKeys,
    sign_anew: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring pages, views and support.json of STORE to what is known of released sets now.

    Channels tell of results that came after a release. A view (FAMILY/by-gfx/GFX/CHANNEL/) is an index of the
    newest set that passed on that GPU, of each platform: that of the newest torch, whichever came last.
    promote and demote do the same in the end. A run that was killed is finished by the same command; what is
    as it should be is not written. A channel that another process is changing is left as it is (exit code
    15). With --sign-with each channel gets a signed manifest: readers with --released-by take nothing else,
    nothing older, and nothing after --valid-days. A channel that was signed once is changed with the key
    alone; --sign-anew signs what nobody has signed, or what was signed by a lost key, or has expired.

    In the end all that the store holds is looked at as `store fsck` does, without reading a wheel. Damage is
    exit code 15, and so is a set that a channel shows although something of it failed since: all is written
    then, and the set stays until `set demote` takes it away. The summary of a job on GitHub says both.

    \b
    Examples:
      rocm-wheels set refresh s3://wheels --dry-run
    """
    from rocm_wheels.release import care, gate
    from rocm_wheels.stores.store import DryRunStore, open_existing_store, require_conditional_writes

    rules = gate.load_policy_for(channel, policy)
    opened = open_existing_store(store, boundary.read_environment())
    if (public_url is not None or other_indexes) and (family or channel):
        raise errors.UsageError(
            "--public-url and --other-index are of the whole store", tip="leave out --family and --channel"
        )
    families = find_families(opened, family)
    channels = _find_channels(opened, families, rules, channel)
    rehearsal = DryRunStore(opened) if dry_run else None
    if rehearsal is None:
        require_conditional_writes(opened)
    refresher = make_refresher(rehearsal or opened, rules)
    signer = keys.make_signer(refresher.env, refresher.now, anew=sign_anew, dry_run=dry_run)
    refresher = replace(refresher, signer=signer)
    refresher.require_key(channels)
    if public_url is not None or other_indexes:
        refresher.set_public(public_url, other_indexes or None)
    if not channels:
        log.log_note(f"there is no channel in {opened.url} yet: `rocm-wheels set promote` makes them")
    done, failures = _refresh_channels(refresher, channels)
    changed: list[str] = []
    try:
        changed = refresher.refresh_support() if channels else []
    except errors.RocmWheelsError as failure:
        failures.append(failure)
    report = None if rehearsal else care.check_store(opened, None if family is None else {family})
    _print_refreshed(store, done, changed, rehearsal.writes if rehearsal else None, report, as_json=as_json)
    _append_job_summary(store, done, report)
    _raise_first_failure(store, done, failures, report)


def _append_job_summary(
    place: str, done: list[refresh.RefreshResult], report: care.StoreReport | None
) -> None:
    """Say in the summary of a job on GitHub what became of channels, what fails, and what is damaged."""
    lines = [line for item in done for line in (describe_refreshed(item), *_failing_lines(place, item))]
    lines += store.list_damage_lines(report) if report is not None else ()
    boundary.append_step_summary(boundary.read_environment(), tables.fence_markdown("\n".join(lines)))


def _refresh_channels(
    refresher: refresh.Refresher, channels: list[tuple[str, str]]
) -> tuple[list[refresh.RefreshResult], list[errors.RocmWheelsError]]:
    """Refresh all channels, whatever becomes of one of them; return what was done, and failures."""
    done, failures = [], list[errors.RocmWheelsError]()
    for family, channel in channels:
        try:
            refreshed = refresher.refresh_channel(family, channel)
        except errors.UsageError:
            raise
        except errors.RocmWheelsError as failure:
            error = errors.ReleaseError(f"{channel} of {family} was not refreshed")
            error.__cause__ = failure
            failures.append(error)
            continue
        done += [refreshed] if refreshed is not None else []
    return done, failures


def _raise_first_failure(
    place: str,
    done: list[refresh.RefreshResult],
    failures: list[errors.RocmWheelsError],
    report: care.StoreReport | None,
) -> None:
    """Raise ReleaseError for what could not be done, is damaged, or fails; others are said before."""
    for item in done:
        if item.other_change:
            failures.append(
                errors.ReleaseError(
                    f"{item.channel} of {item.family} is being changed: {item.other_change}: left as it is",
                    tip="that run refreshes it in the end; if it is gone, run it again, or undo it "
                    "(promote --abandon)",
                )
            )
    if report is not None and report.errors:
        failures.append(store.make_damage_error(report, place))
    failing = [(item, bad) for item in done for bad in item.failing]
    if failing:
        item, bad = failing[0]
        shown = ", ".join(f"{other.set} ({kept.channel} of {kept.family})" for kept, other in failing)
        command_line = format_change_command("demote", place, item.family, item.channel, bad.set)
        failures.append(
            errors.ReleaseError(
                f"shown, and something failed since: {shown}", tip=f"take it away: {command_line}"
            )
        )
    for other in failures[1:]:
        log.log_warning(errors.explain_error(other))
    if failures:
        raise failures[0]


def make_refresher(opened: Store, policy: Policy) -> refresh.Refresher:
    """Return one who refreshes a store now, in the name of the user."""
    from rocm_wheels.release import refresh

    return refresh.Refresher(
        opened, policy, evidence.name_user_and_host(), evidence.current_time(), boundary.read_environment()
    )


def find_families(opened: Store, family: str | None) -> list[str]:
    """Return the families that have sets, or the one that is named. Raises for none, and for another."""
    from rocm_wheels.release import wheel_set

    available = wheel_set.list_families(opened)
    if not available:
        raise errors.ReleaseError(
            f"nothing was staged in {opened.url}", tip="`rocm-wheels set stage` makes sets of wheels"
        )
    if family is None:
        return available
    if family not in available:
        near = tables.suggest_name(family, available)
        raise errors.UsageError(f"{opened.url} has no {family}{near}", tip=f"it has {', '.join(available)}")
    return [family]


def _find_channels(
    opened: Store, families: list[str], policy: Policy, channel: str | None
) -> list[tuple[str, str]]:
    """Return all channels that there are, or those of one name. UsageError for one not in the policy."""
    from rocm_wheels.release import gate
    from rocm_wheels.release.policy import CHANNEL_NAMES
    from rocm_wheels.release.store_paths import FamilyPaths

    channels = [
        (family, name)
        for family in families
        for name in (CHANNEL_NAMES if channel is None else (channel,))
        if opened.head(FamilyPaths(family).channel_document(name)) is not None
    ]
    for _, name in channels:
        gate.require_channel(policy, name)
    if not channels and channel is not None:
        raise errors.UsageError(f"nothing was promoted to {channel} of {', '.join(families)}")
    return channels


def _print_refreshed(
    place: str,
    done: list[refresh.RefreshResult],
    changed: list[str],
    writes: list[str] | None,
    report: care.StoreReport | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        document: dict[str, object] = {
            "channels": [refreshed_as_json(refreshed, place) for refreshed in done],
            "documents": changed,
            "damage": store.convert_findings(report.errors) if report is not None else None,
        }
        _print_json(document, writes)
        return
    for line in writes or ():
        click.echo(f"would {line}")
    head = "dry run: " if writes is not None else ""
    for refreshed in done:
        click.echo(f"{head}{describe_refreshed(refreshed)}")
        for line in (*_view_lines(refreshed), *_failing_lines(place, refreshed)):
            click.echo(f"  {line}")
    for path in changed:
        click.echo(f"{head}{path} written")
    for line in store.list_damage_lines(report) if report is not None else ():
        click.echo(line)


def _print_json(document: dict[str, object], writes: list[str] | None) -> None:
    """Print a document; that of a dry run has the ``writes`` there would have been."""
    dry = {} if writes is None else {"dry_run": True, "writes": writes}
    click.echo(json.dumps({**document, **dry}, indent=1))


# how either command writes, and where
_change_options = catalogue.takes(
    catalogue.CHANNEL.but(required=True),
    catalogue.take_release_keys,
    catalogue.DRY_RUN,
    catalogue.JSON,
)


@command.command("set promote")
@evidence.set_options
@_change_options
@catalogue.POLICY
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
    undo: bool,
    allow_unpinned: bool,
    allow_fewer_targets: bool,
    dry_run: bool,
    as_json: bool,
    keys: options.ReleaseKeys,
) -> None:
    """Show a staged set on a channel, once its gate lets it pass (exit code 15 when not).

    Nothing is copied: pages link to the bytes that were tested, which are compared. People see the old sets
    or the new one at any moment: pages of dependencies change first. A run that was killed is finished by the
    same command, or undone with --abandon.

    \b
    Examples:
      rocm-wheels set promote s3://wheels --set 2.9.1-93bf --channel nightly
    """
    from rocm_wheels.release import channel as channels
    from rocm_wheels.release import gate

    opened, document = chosen.open_set()
    rules = gate.load_policy_for(channel, policy)

    def change(promoter: Promoter) -> ChannelChange:
        if undo:
            return promoter.abandon(document.id)
        shown = promoter.read_channel_record().channel
        for fault in channels.find_upgrade_faults(opened, promoter.paths, document, shown):
            log.log_warning(f"who upgrades: {fault}")
        return promoter.promote(document, lambda: _ask_gate(promoter, document, rules))

    promoter = replace(
        _make_promoter(opened, document.family, channel),
        allow_unpinned=allow_unpinned,
        allow_fewer_targets=allow_fewer_targets,
    )
    _apply_change(promoter, change, rules, chosen.store, keys, dry_run, as_json)


@command.command("set demote")
@click.argument("store", metavar="STORE")
@catalogue.FAMILY.but(help="The family, where the store has several.")
@catalogue.SET.but(help="The set to take away, or how its id begins.")
@command.option(
    "--to", "back_to", metavar="ID", help="Take all away that came after this one (or how its id begins)."
)
@catalogue.POLICY.but(help="Judge what is left by it [default: data/release_policy.yaml].")
@_change_options
def demote(  # noqa: PLR0917 - click passes them by name
    store: str,
    family: str | None,
    set_id: str | None,
    back_to: str | None,
    policy: Path | None,
    channel: str,
    dry_run: bool,
    as_json: bool,
    keys: options.ReleaseKeys,
) -> None:
    """Take sets from a channel: dependents first, so that no wheel of theirs is left without the others.

    People get what is left. The files stay: each set can be installed from its own index. The line that puts
    a set back is printed.

    \b
    Examples:
      rocm-wheels set demote s3://wheels --channel nightly --family gfx110X-all --to 2.9.1-51aa
    """
    from rocm_wheels.release import gate
    from rocm_wheels.release.channel import list_newer_sets, resolve_set_id
    from rocm_wheels.stores.store import open_existing_store

    if (set_id is None) == (back_to is None):
        raise errors.UsageError(
            "which sets go is not said" if set_id is None else "--set and --to say two things",
            tip="name the set with --set ID, or the one that is to be the newest with --to ID",
        )
    opened = open_existing_store(store, boundary.read_environment())
    rules = gate.load_policy_for(channel, policy)
    families = find_families(opened, family)
    if len(families) > 1:
        raise errors.UsageError(
            f"{store} has several families", tip=f"name one with --family: {', '.join(families)}"
        )

    def change(promoter: Promoter) -> ChannelChange:
        before = promoter.read_channel_record().channel
        if back_to is not None:
            return promoter.demote(list_newer_sets(before, resolve_set_id(before, back_to)))
        return promoter.demote((resolve_set_id(before, set_id or ""),))

    promoter = _make_promoter(opened, families[0], channel)
    _apply_change(promoter, change, rules, store, keys, dry_run, as_json)


def _ask_gate(promoter: Promoter, document: wheel_set.SetDocument, policy: Policy) -> Verdict:
    from rocm_wheels.release import gate

    return gate.judge_staged_set(
        promoter.store,
        document,
        promoter.channel,
        policy=policy,
        now=evidence.current_time(),
        env=boundary.read_environment(),
        digests=evidence.remember_digests(),
    )[0]


def _make_promoter(opened: Store, family: str, channel: str) -> Promoter:
    from rocm_wheels.release.channel import ChannelActor, Promoter
    from rocm_wheels.release.store_paths import FamilyPaths

    actor = ChannelActor(evidence.name_user_and_host(), f"{evidence.current_time():%Y-%m-%dT%H:%M:%SZ}")
    return Promoter(opened, FamilyPaths(family), channel, actor)


def _apply_change(  # noqa: PLR0917 - what both commands were given
    promoter: Promoter,
    change: Callable[[Promoter], ChannelChange],
    policy: Policy,
    place: str,
    keys: options.ReleaseKeys,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a change, have views and support.json follow it, and say what was done."""
    from rocm_wheels.release import support
    from rocm_wheels.stores.store import DryRunStore, require_conditional_writes

    opened = promoter.store
    rehearsal = DryRunStore(opened) if dry_run else None
    if rehearsal is None:
        require_conditional_writes(opened)
    refresher = make_refresher(rehearsal or opened, policy)
    signer = keys.make_signer(refresher.env, refresher.now, dry_run=dry_run)
    done = change(replace(promoter, store=rehearsal or opened, signer=signer))
    refreshed, failure = None, None
    try:
        refreshed = replace(refresher, signer=signer).refresh_channel(promoter.paths.family, promoter.channel)
        refresher.refresh_support()
    except (errors.RocmWheelsError, OSError) as cause:
        failure = cause
    if refreshed is not None and refreshed.other_change:
        log.log_note(
            f"{promoter.channel} is being changed again: {refreshed.other_change}; that run sees to its views"
        )
    public = support.read_public(opened)
    index, *set_indexes = (
        public.address_of(opened, f"{path}/")
        for path in (
            promoter.paths.channel_pages(promoter.channel),
            *map(promoter.paths.set_index, done.sets),
        )
    )
    writes = rehearsal.writes if rehearsal else None
    if as_json:
        document = _change_as_json(done, refreshed, place)
        _print_json({**document, "index": index, "set_indexes": set_indexes}, writes)
    else:
        for line in _list_change_lines(done, refreshed, place, index, set_indexes, writes):
            click.echo(line)
    if failure is not None:
        raise errors.ReleaseError(
            f"the change is made and people get it ({_describe_newest(done.channel)}), but views and "
            f"support.json do not follow it yet: `rocm-wheels set refresh {place}` completes it"
        ) from failure


def _describe_newest(channel: Channel) -> str:
    return f"{channel.channel} of {channel.family} is at {channel.current or 'no set'}"


def _change_as_json(
    done: ChannelChange, refreshed: refresh.RefreshResult | None, place: str
) -> dict[str, object]:
    """Return what was done to a channel."""
    channel = done.channel
    return {
        "action": done.action,
        "sets": list(done.sets),
        "family": channel.family,
        "channel": channel.channel,
        "revision": channel.revision,
        "current": channel.current,
        "shown": list(channel.shown),
        "pages": done.pages,
        "finished": done.finished,
        "views": _views_as_json(refreshed),
        "failing": _failing_as_json(place, refreshed),
    }


def _list_change_lines(  # noqa: PLR0917 - what there is to say
    done: ChannelChange,
    refreshed: refresh.RefreshResult | None,
    place: str,
    index: str,
    set_indexes: list[str],
    writes: list[str] | None,
) -> Iterator[str]:
    """Yield what was done to a channel, or would be, for people."""
    channel = done.channel
    for line in writes or ():
        yield f"would {line}"
    word = "nothing to do"
    if done.action is not None:
        word = f"{', '.join(done.sets)} {_DONE_WORDS[done.action]}"
    begun = " (an earlier run had begun it)" if done.finished else ""
    head = "dry run: " if writes is not None else ""
    count = tables.format_count(done.pages, "page")
    yield f"{head}{word}{begun}; {_describe_newest(channel)}: {count} changed"
    yield f"index: {index}"
    if refreshed:
        yield from _view_lines(refreshed)
        yield from _failing_lines(place, refreshed)
    if done.action == "promote":
        yield from (f"index of the set alone, which never changes: {address}" for address in set_indexes)
    if done.action == "demote":
        for set_id in done.sets:
            line = format_change_command("promote", place, channel.family, channel.channel, set_id)
            yield f"put it back: {line}"
