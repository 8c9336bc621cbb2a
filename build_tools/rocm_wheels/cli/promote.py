"""``rocm-wheels promote`` and ``demote``: which sets people get from a channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.channels_text import ChangeReport, change_as_json, change_lines, format_document
from rocm_wheels.cli.evidence import ChosenSet, current_time, set_options
from rocm_wheels.cli.option_lists import combine_options
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.refresh import make_refresher, find_released_families, name_user_and_host
from rocm_wheels.cli.store_options import layout_option, unconditional_option
from rocm_wheels.errors import ReleaseError, RocmWheelsError, UsageError

if TYPE_CHECKING:
    from rocm_wheels.release.gate.policy import Policy
    from rocm_wheels.release.gate.verdict import Verdict
    from rocm_wheels.release.layout import StoreLayout, FamilyPaths
    from rocm_wheels.release.promotion.promoting import ChannelChange, Promoter
    from rocm_wheels.release.sets import SetDocument
    from rocm_wheels.release.views.refreshing import RefreshResult, Refresher
    from rocm_wheels.stores import Store


@dataclass(frozen=True)
class _ChangeOptions:
    """What was said of the store and of how to go about it."""

    store: str
    layout: Path | None
    unconditional: bool
    dry_run: bool
    as_json: bool


# how either command writes, and where
_change_options = combine_options(
    click.option("--channel", required=True, metavar="CHANNEL", help="nightly, prerelease or stable."),
    unconditional_option,
    click.option("--dry-run", is_flag=True, help="Print each write that would be made, and make none."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


@click.command("promote")
@set_options
@_change_options
@click.option("--policy", type=GivenPath(), help="What channels need [default: data/release_policy.yaml].")
@click.option("--abandon", "undo", is_flag=True, help="Undo a change of the set that a killed run has begun.")
@click.option(
    "--allow-unpinned",
    is_flag=True,
    help="Show wheels that do not pin each other, too: installers may mix them with those of other sets, "
    "and the pages say so.",
)
@click.option(
    "--allow-fewer-targets",
    is_flag=True,
    help="Show a set for all GPUs without code for some that the newest set on the channel has code for.",
)
def promote(  # noqa: PLR0917 - click passes them by name
    chosen: ChosenSet,
    channel: str,
    policy: Path | None,
    undo: bool,
    allow_unpinned: bool,
    allow_fewer_targets: bool,
    unconditional: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show a staged set on a channel, once its gate lets it pass (exit code 15 when not).

    The bytes that were tested are copied inside the store and compared. People see the old sets or the new
    one at any moment: pages of dependencies change first. A run that was killed is finished by the same
    command, or undone with --abandon.

    For some of its targets alone a set is made by `rocm-wheels finalize --keep-targets`, and tested.
    """
    from rocm_wheels.release.gate.asking import load_policy_for
    from rocm_wheels.release.layout import FamilyPaths

    store, layout, document = chosen.open_set()
    rules = load_policy_for(channel, policy)

    def change(promoter: Promoter) -> ChannelChange:
        if undo:
            return promoter.abandon(document.id)
        return promoter.promote(document, lambda: _ask_gate(promoter, document, rules))

    promoter = replace(
        _make_promoter(store, FamilyPaths(layout, document.family), channel),
        allow_unpinned=allow_unpinned,
        allow_fewer_targets=allow_fewer_targets,
    )
    settings = _ChangeOptions(chosen.store, chosen.layout, unconditional, dry_run, as_json)
    _apply_change(promoter, change, partial(make_refresher, policy=rules), settings)


@click.command("demote")
@click.argument("store", metavar="STORE")
@click.option("--family", metavar="F", help="The family, where the store has several.")
@click.option(
    "--set", "set_id", metavar="ID", help="The set to take away, or how its id begins [default: the newest]."
)
@click.option(
    "--to", "back_to", metavar="ID", help="Take all away that came after this one (or how its id begins)."
)
@click.option("--policy", type=GivenPath(), help="Judge what is left by it [default: as it was judged].")
@_change_options
@layout_option
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
    store_layout: Path | None,
) -> None:
    """Take sets from a channel: dependents first, so that no wheel of theirs is left without the others.

    People get what is left. The files stay: each set can be installed from its own index. Name the set where
    the command may be repeated: without --set another one is the newest then.
    """
    from rocm_wheels.release.gate.asking import load_policy_for
    from rocm_wheels.release.layout import FamilyPaths, load_layout
    from rocm_wheels.release.promotion.objections import resolve_set_id
    from rocm_wheels.release.promotion.promoting import list_newer_sets
    from rocm_wheels.stores import open_existing_store

    if set_id is not None and back_to is not None:
        raise UsageError("--set and --to say two things", tip="give one of them")
    layout = load_layout(store_layout)
    opened = open_existing_store(store, read_environment())
    refresher = partial(make_refresher, policy=load_policy_for(channel, policy), again=policy is not None)

    def change(promoter: Promoter) -> ChannelChange:
        if back_to is None and set_id is None:
            return promoter.demote(None)
        channel = promoter.read_channel_record().channel
        if back_to is not None:
            return promoter.demote(list_newer_sets(channel, resolve_set_id(channel, back_to)))
        return promoter.demote((resolve_set_id(channel, set_id or ""),))

    promoter = _make_promoter(opened, FamilyPaths(layout, _choose_family(opened, layout, family)), channel)
    _apply_change(
        promoter, change, refresher, _ChangeOptions(store, store_layout, unconditional, dry_run, as_json)
    )


def _choose_family(store: Store, layout: StoreLayout, family: str | None) -> str:
    families = find_released_families(store, layout, family)
    if len(families) > 1:
        raise UsageError(
            f"several families have releases in {store.url}", tip=f"--family: {', '.join(families)}"
        )
    return families[0]


def _ask_gate(promoter: Promoter, document: SetDocument, rules: Policy) -> Verdict:
    from rocm_wheels.release.gate.asking import judge_staged_set

    layout, env = promoter.staging.layout, read_environment()
    return judge_staged_set(
        promoter.store, layout, document, promoter.channel, policy=rules, now=current_time(), env=env
    )[0]


def _make_promoter(store: Store, places: FamilyPaths, channel: str) -> Promoter:
    from rocm_wheels.release.promotion.promoting import ChannelActor, Promoter

    return Promoter(
        store, places, channel, ChannelActor(name_user_and_host(), f"{current_time():%Y-%m-%dT%H:%M:%SZ}")
    )


def _apply_change(
    promoter: Promoter,
    change: Callable[[Promoter], ChannelChange],
    refresher: Callable[[Store, StoreLayout], Refresher],
    settings: _ChangeOptions,
) -> None:
    from rocm_wheels.release.promotion.rehearsal import DryRunStore
    from rocm_wheels.stores.probe import require_conditional_writes

    rehearsal = DryRunStore(promoter.store) if settings.dry_run else None
    if rehearsal is None:
        require_conditional_writes(promoter.store, unconditional=settings.unconditional)
    used = replace(promoter, store=rehearsal or promoter.store)
    done = change(used)
    refreshed, failure = _refresh_views(used, refresher)
    _print_change(
        _describe_change(promoter, done, refreshed), rehearsal.writes if rehearsal else None, settings
    )
    if failure is not None:
        channel = done.channel
        raise ReleaseError(
            f"the change is made and people get it ({channel.channel} of {channel.family} is at "
            f"{channel.current or 'no set'}), but views and support.json do not follow it yet: "
            f"`rocm-wheels refresh {promoter.store.url}` completes it"
        ) from failure


def _refresh_views(
    promoter: Promoter, refresher: Callable[[Store, StoreLayout], Refresher]
) -> tuple[RefreshResult | None, Exception | None]:
    """Have views and documents follow a change that was made; return the failure if they do not."""
    family = promoter.staging.family
    try:
        store_refresher = refresher(promoter.store, promoter.staging.layout)
        refreshed = store_refresher.refresh_channel(family, promoter.channel)
        store_refresher.refresh_support([family])
    except (RocmWheelsError, OSError) as failure:
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
    promoter: Promoter, done: ChannelChange, refreshed: RefreshResult | None
) -> ChangeReport:
    from rocm_wheels.release.views.public import read_public

    release, store = promoter.release, promoter.store
    public = read_public(store, release.layout)
    index, *set_indexes = (
        public.address_of(store, f"{path}/")
        for path in (release.channel_pages(done.channel.channel), *map(release.set_index, done.sets))
    )
    return ChangeReport(done, refreshed, index, set_indexes)
