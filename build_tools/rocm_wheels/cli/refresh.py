"""``rocm-wheels refresh``: what is told of released sets, views and support.json follow what is known now."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.channels_text import (
    failing_lines,
    head_of,
    json_text,
    refreshed_as_json,
    refreshed_line,
    view_lines,
    would_lines,
)
from rocm_wheels.cli.evidence import now
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.store_options import layout_option, unconditional_option
from rocm_wheels.errors import ReleaseError, RocmWheelsError, UsageError, explain

if TYPE_CHECKING:
    from rocm_wheels.release.gate.policy import Policy
    from rocm_wheels.release.layout import Layout
    from rocm_wheels.release.views.refreshing import Refreshed, Refresher
    from rocm_wheels.stores import Store


@click.command("refresh")
@click.argument("store", metavar="STORE")
@click.option("--family", metavar="F", help="Only this family [default: all that have releases].")
@click.option("--channel", metavar="CHANNEL", help="Only this channel [default: all that show sets].")
@click.option("--policy", type=GivenPath(), help="What channels need [default: data/release_policy.yaml].")
@click.option(
    "--public-url",
    metavar="URL",
    help="Where people see STORE, for support.json. What serves a bucket must give index.html for URLs "
    "that end in /. It is kept in the store; '' forgets it.",
)
@click.option(
    "--other-index",
    "other_indexes",
    multiple=True,
    metavar="URL",
    help="Where wheels find what is not in their set (ROCm), for support.json. It is kept; '' forgets all.",
)
@layout_option
@unconditional_option
@click.option("--dry-run", is_flag=True, help="Print each write that would be made, and make none.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(  # noqa: PLR0917 - click passes them by name
    store: str,
    family: str | None,
    channel: str | None,
    policy: Path | None,
    public_url: str | None,
    other_indexes: tuple[str, ...],
    store_layout: Path | None,
    unconditional: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring pages, views and support.json of STORE to what is known of released sets now.

    Evidence that came after a release is copied beside it, and channels tell of it. A view
    (FAMILY/by-gfx/GFX/CHANNEL/) is an index of the newest set that passed on that GPU, of each platform: that
    of the newest torch, whichever came last. promote and demote do the same in the end. A run that was killed
    is finished by the same command; what is as it should be is not written. A channel that somebody else is
    changing is left as it is (exit code 15).
    """
    from rocm_wheels.release.gate.asking import policy_with
    from rocm_wheels.release.layout import load_layout
    from rocm_wheels.release.promotion.rehearsal import Rehearsal
    from rocm_wheels.release.views.public import set_public
    from rocm_wheels.stores import open_existing
    from rocm_wheels.stores.probe import require_conditional

    rules, layout = policy_with(channel, policy), load_layout(store_layout)
    opened = open_existing(store, environment())
    if (public_url is not None or other_indexes) and (family or channel):
        raise UsageError(
            "--public-url and --other-index are of the whole store", tip="leave out --family and --channel"
        )
    families = released_families(opened, layout, family)
    channels = _channels(opened, layout, families, rules, channel)
    rehearsal = Rehearsal(opened) if dry_run else None
    if rehearsal is None:
        require_conditional(opened, unconditional=unconditional)
    used: Store = rehearsal or opened
    if public_url is not None or other_indexes:
        set_public(used, layout, public_url, other_indexes or None)
    refresher = refresher_of(used, layout, rules)
    if not channels:  # of a promotion that was killed early there are only files
        log.note(f"there is no channel in {opened.url} yet: `rocm-wheels promote` makes them")
    done, failures = _refresh(refresher, channels)
    changed = refresher.support(families)
    _show(store, done, changed, rehearsal.writes if rehearsal else None, store_layout, as_json=as_json)
    _require_all(done, failures)


def _refresh(
    refresher: Refresher, channels: list[tuple[str, str]]
) -> tuple[list[Refreshed], list[RocmWheelsError]]:
    """Refresh all channels, whatever becomes of one of them; return what was done, and failures."""
    done, failures = [], list[RocmWheelsError]()
    for family, channel in channels:
        try:
            found = refresher.channel(family, channel)
        except RocmWheelsError as failure:
            said = ReleaseError(f"{channel} of {family} was not refreshed")
            said.__cause__ = failure
            failures.append(said)
            continue
        done += [found] if found is not None else []
    return done, failures


def _require_all(done: list[Refreshed], failures: list[RocmWheelsError]) -> None:
    """Raise the first failure, or for channels that were left as they are; others are said before."""
    if left := [one for one in done if one.left]:
        said = "; ".join(f"{one.channel} of {one.family} is being changed: {one.left}" for one in left)
        tip = "that run refreshes it in the end; if it is gone, run it again, or undo it (promote --abandon)"
        failures = [*failures, ReleaseError(f"{said}: left as it is", tip=tip)]
    for other in failures[1:]:
        log.warn(explain(other))
    if failures:
        raise failures[0]


def refresher_of(store: Store, layout: Layout, policy: Policy, *, again: bool = True) -> Refresher:
    """Return one who refreshes a store now, in the name of the user; ``again``: he judges by this policy."""
    from rocm_wheels.release.views.refreshing import Refresher

    return Refresher(store, layout, policy, who(), now(), environment(), again)


def who() -> str:
    """Return who changes a channel, as it will say: the user, and the machine."""
    return f"{getpass.getuser()}@{platform.node() or 'unknown'}"


def released_families(store: Store, layout: Layout, family: str | None) -> list[str]:
    """Return the families that have releases, or the one that is named. Raises for none, and for another."""
    from rocm_wheels.records import did_you_mean
    from rocm_wheels.release.sets import families

    known = families(store, area="release", layout=layout)
    if not known:
        tip = "`rocm-wheels promote` shows a staged set; `rocm-wheels releases` lists those"
        raise ReleaseError(f"nothing was promoted in {store.url}", tip=tip)
    if family is None:
        return known
    if family not in known:
        tip = f"it has {', '.join(known)}"
        raise UsageError(f"{store.url} has no releases of {family}{did_you_mean(family, known)}", tip=tip)
    return [family]


def _channels(
    store: Store, layout: Layout, families: list[str], policy: Policy, channel: str | None
) -> list[tuple[str, str]]:
    """Return all channels that there are, or those of one name. UsageError for one not in the policy."""
    from rocm_wheels.release.gate.asking import require_channel
    from rocm_wheels.release.gate.policy import CHANNELS
    from rocm_wheels.release.layout import Places

    found = [
        (family, name)
        for family in families
        for name in (CHANNELS if channel is None else (channel,))
        if store.head(Places(layout, family, "release").channel(name)) is not None
    ]
    for _, name in found:
        require_channel(policy, name)
    if not found and channel is not None:
        raise UsageError(f"nothing was promoted to {channel} of {', '.join(families)}")
    return found


def _show(
    store: str,
    done: list[Refreshed],
    changed: list[str],
    would: list[str] | None,
    layout: Path | None,
    *,
    as_json: bool,
) -> None:
    _warn_of_policies(done)
    if as_json:
        found = [refreshed_as_json(one, store, layout) for one in done]
        click.echo(json_text({"channels": found, "documents": changed}, would))
        return
    for line in would_lines(would):
        click.echo(line)
    head = head_of(would)
    for one in done:
        click.echo(f"{head}{refreshed_line(one)}")
        for line in view_lines(one):
            click.echo(f"  {line}")
        for line in failing_lines(store, one, layout):
            click.echo(f"  {line}")
    for path in changed:
        click.echo(f"{head}{path} written")


def _warn_of_policies(done: list[Refreshed]) -> None:
    for one in done:
        if one.other_policy:
            log.note(
                f"{one.channel} of {one.family} was told of by another policy before:"
                " where that was not meant, name it with --policy"
            )
