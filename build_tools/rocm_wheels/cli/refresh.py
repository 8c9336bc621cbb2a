"""``rocm-wheels refresh``: what is told of released sets, views and support.json follow what is known now."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.channels_text import (
    failing_lines,
    dry_run_prefix,
    format_document,
    refreshed_as_json,
    describe_refreshed,
    view_lines,
    planned_write_lines,
)
from rocm_wheels.cli.evidence import current_time
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.store_options import layout_option, unconditional_option
from rocm_wheels.errors import ReleaseError, RocmWheelsError, UsageError, explain_error

if TYPE_CHECKING:
    from rocm_wheels.release.gate.policy import Policy
    from rocm_wheels.release.layout import StoreLayout
    from rocm_wheels.release.views.refreshing import RefreshResult, Refresher
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
def refresh_command(  # noqa: PLR0917 - click passes them by name
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
    from rocm_wheels.release.gate.asking import load_policy_for
    from rocm_wheels.release.layout import load_layout
    from rocm_wheels.release.promotion.rehearsal import DryRunStore
    from rocm_wheels.release.views.public import update_public
    from rocm_wheels.stores import open_existing_store
    from rocm_wheels.stores.probe import require_conditional_writes

    rules, layout = load_policy_for(channel, policy), load_layout(store_layout)
    opened = open_existing_store(store, read_environment())
    if (public_url is not None or other_indexes) and (family or channel):
        raise UsageError(
            "--public-url and --other-index are of the whole store", tip="leave out --family and --channel"
        )
    families = find_released_families(opened, layout, family)
    channels = _find_channels(opened, layout, families, rules, channel)
    rehearsal = DryRunStore(opened) if dry_run else None
    if rehearsal is None:
        require_conditional_writes(opened, unconditional=unconditional)
    used: Store = rehearsal or opened
    if public_url is not None or other_indexes:
        update_public(used, layout, public_url, other_indexes or None)
    refresher = make_refresher(used, layout, rules)
    if not channels:  # of a promotion that was killed early there are only files
        log.log_note(f"there is no channel in {opened.url} yet: `rocm-wheels promote` makes them")
    done, failures = _refresh_channels(refresher, channels)
    changed = refresher.refresh_support(families)
    _print_refreshed(
        store, done, changed, rehearsal.writes if rehearsal else None, store_layout, as_json=as_json
    )
    _raise_first_failure(done, failures)


def _refresh_channels(
    refresher: Refresher, channels: list[tuple[str, str]]
) -> tuple[list[RefreshResult], list[RocmWheelsError]]:
    """Refresh all channels, whatever becomes of one of them; return what was done, and failures."""
    done, failures = [], list[RocmWheelsError]()
    for family, channel in channels:
        try:
            refreshed = refresher.refresh_channel(family, channel)
        except RocmWheelsError as failure:
            error = ReleaseError(f"{channel} of {family} was not refreshed")
            error.__cause__ = failure
            failures.append(error)
            continue
        done += [refreshed] if refreshed is not None else []
    return done, failures


def _raise_first_failure(done: list[RefreshResult], failures: list[RocmWheelsError]) -> None:
    """Raise the first failure, or for channels that were left as they are; others are said before."""
    if unfinished := [refreshed for refreshed in done if refreshed.other_change]:
        message = "; ".join(
            f"{refreshed.channel} of {refreshed.family} is being changed: {refreshed.other_change}"
            for refreshed in unfinished
        )
        tip = "that run refreshes it in the end; if it is gone, run it again, or undo it (promote --abandon)"
        failures = [*failures, ReleaseError(f"{message}: left as it is", tip=tip)]
    for other in failures[1:]:
        log.log_warning(explain_error(other))
    if failures:
        raise failures[0]


def make_refresher(store: Store, layout: StoreLayout, policy: Policy, *, again: bool = True) -> Refresher:
    """Return one who refreshes a store now, in the name of the user; ``again``: he judges by this policy."""
    from rocm_wheels.release.views.refreshing import Refresher

    return Refresher(store, layout, policy, name_user_and_host(), current_time(), read_environment(), again)


def name_user_and_host() -> str:
    """Return who changes a channel, as it will say: the user, and the machine."""
    return f"{getpass.getuser()}@{platform.node() or 'unknown'}"


def find_released_families(store: Store, layout: StoreLayout, family: str | None) -> list[str]:
    """Return the families that have releases, or the one that is named. Raises for none, and for another."""
    from rocm_wheels.records import suggest_name
    from rocm_wheels.release.sets import list_families

    available = list_families(store, area="release", layout=layout)
    if not available:
        tip = "`rocm-wheels promote` shows a staged set; `rocm-wheels releases` lists those"
        raise ReleaseError(f"nothing was promoted in {store.url}", tip=tip)
    if family is None:
        return available
    if family not in available:
        tip = f"it has {', '.join(available)}"
        raise UsageError(f"{store.url} has no releases of {family}{suggest_name(family, available)}", tip=tip)
    return [family]


def _find_channels(
    store: Store, layout: StoreLayout, families: list[str], policy: Policy, channel: str | None
) -> list[tuple[str, str]]:
    """Return all channels that there are, or those of one name. UsageError for one not in the policy."""
    from rocm_wheels.release.gate.asking import require_channel
    from rocm_wheels.release.gate.policy import CHANNEL_NAMES
    from rocm_wheels.release.layout import FamilyPaths

    channels = [
        (family, name)
        for family in families
        for name in (CHANNEL_NAMES if channel is None else (channel,))
        if store.head(FamilyPaths(layout, family, "release").channel_document(name)) is not None
    ]
    for _, name in channels:
        require_channel(policy, name)
    if not channels and channel is not None:
        raise UsageError(f"nothing was promoted to {channel} of {', '.join(families)}")
    return channels


def _print_refreshed(
    store: str,
    done: list[RefreshResult],
    changed: list[str],
    writes: list[str] | None,
    layout: Path | None,
    *,
    as_json: bool,
) -> None:
    _warn_of_policies(done)
    if as_json:
        documents = [refreshed_as_json(refreshed, store, layout) for refreshed in done]
        click.echo(format_document({"channels": documents, "documents": changed}, writes))
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


def _warn_of_policies(done: list[RefreshResult]) -> None:
    for refreshed in done:
        if refreshed.other_policy:
            log.log_note(
                f"{refreshed.channel} of {refreshed.family} was told of by another policy before:"
                " where that was not meant, name it with --policy"
            )
