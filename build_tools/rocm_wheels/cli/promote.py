"""``rocm-wheels promote`` and ``demote``: which sets people get from a channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.channels_text import Change, change_as_json, change_lines, json_text
from rocm_wheels.cli.evidence import ChosenSet, now, set_options
from rocm_wheels.cli.option_lists import in_order
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.refresh import refresher_of, released_families, who
from rocm_wheels.cli.store_options import layout_option, unconditional_option
from rocm_wheels.errors import ReleaseError, RocmWheelsError, UsageError

if TYPE_CHECKING:
    from rocm_wheels.release.gate.policy import Policy
    from rocm_wheels.release.gate.verdict import Verdict
    from rocm_wheels.release.layout import Layout, Places
    from rocm_wheels.release.promotion.promoting import Done, Promoter
    from rocm_wheels.release.sets import SetDocument
    from rocm_wheels.release.views.refreshing import Refreshed, Refresher
    from rocm_wheels.stores import Store


@dataclass(frozen=True)
class _Said:
    """What was said of the store and of how to go about it."""

    store: str
    layout: Path | None
    unconditional: bool
    dry_run: bool
    as_json: bool


# how either command writes, and where
_options = in_order(
    click.option("--channel", required=True, metavar="CHANNEL", help="nightly, prerelease or stable."),
    unconditional_option,
    click.option("--dry-run", is_flag=True, help="Print each write that would be made, and make none."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


@click.command("promote")
@set_options
@_options
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
    from rocm_wheels.release.gate.asking import policy_with
    from rocm_wheels.release.layout import Places

    store, layout, document = chosen.find()
    rules = policy_with(channel, policy)

    def change(promoter: Promoter) -> Done:
        if undo:
            return promoter.abandon(document.id)
        return promoter.promote(document, lambda: _verdict(promoter, document, rules))

    promoter = replace(
        _promoter(store, Places(layout, document.family), channel),
        allow_unpinned=allow_unpinned,
        allow_fewer_targets=allow_fewer_targets,
    )
    said = _Said(chosen.store, chosen.layout, unconditional, dry_run, as_json)
    _run(promoter, change, partial(refresher_of, policy=rules), said)


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
@_options
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
    from rocm_wheels.release.gate.asking import policy_with
    from rocm_wheels.release.layout import Places, load_layout
    from rocm_wheels.release.promotion.objections import set_meant
    from rocm_wheels.release.promotion.promoting import newer_than
    from rocm_wheels.stores import open_existing

    if set_id is not None and back_to is not None:
        raise UsageError("--set and --to say two things", tip="give one of them")
    layout = load_layout(store_layout)
    opened = open_existing(store, environment())
    refresher = partial(refresher_of, policy=policy_with(channel, policy), again=policy is not None)

    def change(promoter: Promoter) -> Done:
        if back_to is None and set_id is None:
            return promoter.demote(None)
        channel = promoter.held().channel
        if back_to is not None:
            return promoter.demote(newer_than(channel, set_meant(channel, back_to)))
        return promoter.demote((set_meant(channel, set_id or ""),))

    promoter = _promoter(opened, Places(layout, _family(opened, layout, family)), channel)
    _run(promoter, change, refresher, _Said(store, store_layout, unconditional, dry_run, as_json))


def _family(store: Store, layout: Layout, family: str | None) -> str:
    known = released_families(store, layout, family)
    if len(known) > 1:
        raise UsageError(
            f"several families have releases in {store.url}", tip=f"--family: {', '.join(known)}"
        )
    return known[0]


def _verdict(promoter: Promoter, document: SetDocument, rules: Policy) -> Verdict:
    from rocm_wheels.release.gate.asking import ask_gate

    layout, env = promoter.staging.layout, environment()
    return ask_gate(promoter.store, layout, document, promoter.channel, policy=rules, now=now(), env=env)[0]


def _promoter(store: Store, places: Places, channel: str) -> Promoter:
    from rocm_wheels.release.promotion.promoting import Actor, Promoter

    return Promoter(store, places, channel, Actor(who(), f"{now():%Y-%m-%dT%H:%M:%SZ}"))


def _run(
    promoter: Promoter,
    change: Callable[[Promoter], Done],
    refresher: Callable[[Store, Layout], Refresher],
    said: _Said,
) -> None:
    from rocm_wheels.release.promotion.rehearsal import Rehearsal
    from rocm_wheels.stores.probe import require_conditional

    rehearsal = Rehearsal(promoter.store) if said.dry_run else None
    if rehearsal is None:
        require_conditional(promoter.store, unconditional=said.unconditional)
    used = replace(promoter, store=rehearsal or promoter.store)
    done = change(used)
    refreshed, failure = _refresh(used, refresher)
    _show(_change(promoter, done, refreshed), rehearsal.writes if rehearsal else None, said)
    if failure is not None:
        channel = done.channel
        raise ReleaseError(
            f"the change is made and people get it ({channel.channel} of {channel.family} is at "
            f"{channel.current or 'no set'}), but views and support.json do not follow it yet: "
            f"`rocm-wheels refresh {promoter.store.url}` completes it"
        ) from failure


def _refresh(
    promoter: Promoter, refresher: Callable[[Store, Layout], Refresher]
) -> tuple[Refreshed | None, Exception | None]:
    """Have views and documents follow a change that was made; return the failure if they do not."""
    family = promoter.staging.family
    try:
        one = refresher(promoter.store, promoter.staging.layout)
        refreshed = one.channel(family, promoter.channel)
        one.support([family])
    except (RocmWheelsError, OSError) as failure:
        return None, failure
    if refreshed is not None and refreshed.left:
        log.note(f"{promoter.channel} is being changed again: {refreshed.left}; that run sees to its views")
    return refreshed, None


def _show(change: Change, would: list[str] | None, said: _Said) -> None:
    if said.as_json:
        click.echo(json_text(change_as_json(change, said.store, said.layout), would))
        return
    for line in change_lines(change, would, said.store, said.layout):
        click.echo(line)


def _change(promoter: Promoter, done: Done, refreshed: Refreshed | None) -> Change:
    from rocm_wheels.release.views.public import read_public

    release, store = promoter.release, promoter.store
    public = read_public(store, release.layout)
    index, *own = (
        public.address(store, f"{path}/")
        for path in (release.channel_pages(done.channel.channel), *map(release.index, done.sets))
    )
    return Change(done, refreshed, index, own)
