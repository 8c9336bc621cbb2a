"""``releases``: the sets of a store, what channels show, which set is good on which GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.command import command, option
from rocm_wheels.cli.evidence import current_time
from rocm_wheels.cli.options import Duration, GivenPath, layout_option
from rocm_wheels.core import ReleaseError, UsageError, format_count, format_duration, log_note

if TYPE_CHECKING:
    from rocm_wheels.release import ChannelNow, FamilyOverview, QueryAnswer, SetRow, StoreQuery, TestKind

_MOST_NEWER = 5


def channel_lines(channel_now: ChannelNow) -> Iterator[str]:
    """Yield what a person reads of a channel: the newest set first."""
    channel = channel_now.channel
    shows = f"shows {format_count(len(channel_now.sets), 'set')}" if channel_now.sets else "shows no set"
    yield f"{channel.channel} of {channel.family} {shows}  {channel_now.index}"
    if channel.pending is not None:
        yield f"  pending: {channel.pending}; people may see parts of it until that is finished or undone"
    for entry in channel_now.sets:
        yield f"  {entry.channel_set.set}  ROCm {entry.document.rocm_in_words or 'unknown'}  {entry.now.os}"
        yield f"    since {entry.channel_set.when}, by {entry.channel_set.by}"
        yield f"    pages say: {_describe_state(entry.channel_set.state, entry.channel_set.told)}"
        yield f"    known now: {_describe_state(entry.now.state, entry.now.told)}"
        yield f"    index: {entry.index}"


def channel_as_json(channel_now: ChannelNow) -> dict[str, Any]:
    """Return a channel as ``releases --help`` says."""
    channel, pending = channel_now.channel, channel_now.channel.pending
    change = pending and {
        "action": pending.action,
        "sets": list(pending.sets),
        "by": pending.by,
        "began": pending.began,
    }
    return {
        "family": channel.family,
        "channel": channel.channel,
        "revision": channel.revision,
        "index": channel_now.index,
        "pending": change,
        "sets": [
            {
                "set": entry.channel_set.set,
                "version": entry.document.version,
                "rocm": entry.document.rocm_in_words or None,
                "os": entry.now.os,
                "since": entry.channel_set.when,
                "by": entry.channel_set.by,
                "index": entry.index,
                "then": {"state": entry.channel_set.state, "told": list(entry.channel_set.told)},
                "now": {
                    "state": entry.now.state,
                    "told": list(entry.now.told),
                    "targets": [target.model_dump(mode="json") for target in entry.now.targets],
                },
            }
            for entry in channel_now.sets
        ],
    }


def answer_lines(answer: QueryAnswer) -> Iterator[str]:
    """Yield what a person reads of a set that was looked for on a target."""
    best = answer.row
    on = f"{answer.gfx}{' on Windows' if answer.os == 'windows' else ''}"
    if best is None:
        yield f"{on}: {answer.why}"
    else:
        yield f"{on}: {best.id}  {best.family}  ROCm {best.rocm or 'unknown'}  {best.created}"
        yield f"  {answer.why}"
        yield f"  index: {answer.index}"
        yield f"  {answer.install}"
    for row, why in answer.newer[:_MOST_NEWER]:
        yield f"  {'newer' if best else 'not'}: {row.id}: {why}"
    if len(answer.newer) > _MOST_NEWER:
        yield f"  and {len(answer.newer) - _MOST_NEWER} more"


def answer_as_json(answer: QueryAnswer) -> dict[str, Any]:
    """Return it as ``releases --help`` says."""
    row = answer.row
    return {
        "gfx": answer.gfx,
        "set": row.id if row else None,
        "family": row.family if row else None,
        "version": row.version if row else None,
        "rocm": row.rocm if row else None,
        "created": row.created if row else None,
        "why": answer.why,
        "index": answer.index or None,
        "install": answer.install or None,
        "newer": [{"set": newer.id, "family": newer.family, "why": why} for newer, why in answer.newer],
        "os": answer.os,
    }


def _describe_state(word: str, lines: tuple[str, ...]) -> str:
    return f"{word} ({'; '.join(lines)})" if lines else word


_HELP = """List the staged sets of STORE, newest first: version, ROCm, what is missing, their test state.

A set that is staged only in part is no set yet; how many there are is said.

With --channel: the sets that people get there, since when and by whom, what their pages say of tests, and
what is known now (`rocm-wheels set refresh` has pages say it). With --passed: the newest set that passed
its tests on a GPU target, of each platform: that of the newest torch, and of those the one made last. With
--last-good: the newest that passed, of those that nobody took back; for each target, or for that of
--passed. All count results as the gate does: a failure stands until passes made it good. The exit code is
15 where the target that was asked for has no such set. With --open: what a night made for a channel, which
does not show it, because its gate was not asked or did not let it pass.

\b
JSON (keys are added, never renamed):
  sets: [… os: linux|windows …], unfinished             without the options below
  channels: [family, channel, revision, index, pending,
    sets: [set, version, rocm, os, since, by, index, then: {state, told},
      now: {state, told, targets: [gfx, state, by, pythons, when]}]]
  open: [… as sets]                                     with --open
  channel, kind, answers: [gfx, set, family, version, rocm, created, why,
    index, install, newer: [set, family, why], os]      set is null: none; an answer for each platform

\b
Examples:
  rocm-wheels set list s3://wheels
  rocm-wheels set list s3://wheels --last-good --passed gfx942
"""


@command("set list", help=_HELP)
@click.argument("store", metavar="STORE")
@option("--family", metavar="NAME", help="Only the sets of this GPU family.")
@option("--channel", metavar="CHANNEL", help="Only what this channel shows: nightly, prerelease, stable.")
@option("--passed", metavar="GFX", help="Find the newest set that passed on this GPU target: gfx942.")
@option(
    "--kind",
    type=click.Choice(["any", "smoke", "tests"]),
    help="What it must have passed, with --passed: smoke tests, torch's own tests, or any and failed none"
    "  [default: any].",
)
@option("--last-good", is_flag=True, help="Find the last known good set of each GPU target.")
@option(
    "--open",
    "open_for",
    metavar="CHANNEL",
    help="The newest set of each torch and platform that was made for this channel (2.13.0+nightly…), where"
    " the channel does not show it.",
)
@option(
    "--within",
    type=Duration(),
    default="3d",
    show_default=True,
    metavar="TIME",
    help="With --open: staged so long ago at most.",
)
@option(
    "--outputs",
    is_flag=True,
    help="With --open: set `sets`, a matrix of set and family, and `sets_count` as outputs of the step of a"
    " workflow (GITHUB_OUTPUT).",
)
@option("--policy", type=GivenPath(), help="What channels need [default: data/release_policy.yaml].")
@layout_option
@option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def list_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    family: str | None,
    channel: str | None,
    passed: str | None,
    kind: str | None,
    last_good: bool,
    open_for: str | None,
    within: float,
    outputs: bool,
    policy: Path | None,
    store_layout: Path | None,
    as_json: bool,
) -> None:
    """List or find sets."""
    from rocm_wheels.core import open_existing_store
    from rocm_wheels.release import load_layout

    if open_for is not None:
        if channel is not None or passed is not None or last_good:
            raise UsageError("--open and --channel, --passed or --last-good are several questions")
        _print_open(store, family, store_layout, open_for, within, outputs=outputs, as_json=as_json)
        return
    if outputs:
        raise UsageError("--outputs goes with --open alone")
    asks = channel is not None or passed is not None or last_good
    if kind is not None and (passed is None or last_good):
        tip = "the last good set passed some tests and failed none" if last_good else "add --passed GFX"
        raise UsageError("--kind goes with --passed alone", tip=tip)
    if not asks and click.get_current_context().get_parameter_source("policy") is ParameterSource.COMMANDLINE:
        raise UsageError("--policy has no effect here", tip="it goes with --channel, --passed, --last-good")
    if not asks:
        _print_sets(store, family, store_layout, as_json=as_json)
        return
    from rocm_wheels.release import StoreQuery, load_policy_for, resolve_target

    rules = load_policy_for(channel, policy)
    gfx = None if passed is None else resolve_target(passed)
    opened, layout = open_existing_store(store, read_environment()), load_layout(store_layout)
    inquiry = StoreQuery(
        opened, layout, rules, current_time(), read_environment(), family, named=policy is not None
    )
    if gfx is not None or last_good:
        only: TestKind | None = "smoke" if kind == "smoke" else "tests" if kind == "tests" else None
        _print_answers(inquiry, gfx, channel=channel, kind=only, good=last_good, as_json=as_json)
    elif channel is not None:
        _print_channels(inquiry, channel, as_json=as_json)


def _print_open(
    place: str,
    family: str | None,
    store_layout: Path | None,
    channel: str,
    within: float,
    *,
    outputs: bool,
    as_json: bool,
) -> None:
    from rocm_wheels.core import open_existing_store
    from rocm_wheels.release import StoreQuery, list_open_sets, load_layout, load_policy_for

    env, layout = read_environment(), load_layout(store_layout)
    opened = open_existing_store(place, env)
    query = StoreQuery(opened, layout, load_policy_for(channel, None), current_time(), env, family)
    rows = list_open_sets(query, channel, timedelta(seconds=within))
    if outputs:
        from rocm_wheels.ci import format_github_matrix, require_single_matrix, set_outputs
        from rocm_wheels.models import load_ci_table

        require_single_matrix(load_ci_table(), len(rows))
        matrix = format_github_matrix([{"set": row.id, "family": row.family} for row in rows])
        set_outputs(env, {"sets": matrix, "sets_count": str(len(rows))})
    if as_json:
        click.echo(json.dumps({"open": [row.model_dump() for row in rows]}, indent=1))
        return
    for row in rows:
        click.echo(f"{row.id}  {row.family}  {row.os}  {row.created}")
    if not rows:
        log_note(f"{channel} shows all that was made for it in the last {format_duration(within)}")


def _print_sets(place: str, family: str | None, store_layout: Path | None, *, as_json: bool) -> None:
    from rocm_wheels.core import open_existing_store
    from rocm_wheels.release import list_sets, load_layout, summarize_results

    opened, layout = open_existing_store(place, read_environment()), load_layout(store_layout)
    families = list_sets(opened, layout, family=family)
    results = {overview.family: summarize_results(opened, layout, overview.family) for overview in families}
    rows = sorted(
        (row for overview in families for row in overview.rows),
        key=lambda row: (row.created, row.id),
        reverse=True,
    )
    if as_json:
        sets = [{**row.model_dump(), "results": results[row.family].get(row.id, [])} for row in rows]
        unfinished = [
            {"family": overview.family, "set": name} for overview in families for name in overview.unfinished
        ]
        click.echo(json.dumps({"sets": sets, "unfinished": unfinished}, indent=1))
    else:
        for row in rows:
            click.echo(_describe_set(row, results[row.family].get(row.id, [])))
        if not rows:
            where = f" of {family}" if family else ""
            log_note(f"there are no sets{where} in {opened.url}")
    _report_unfinished(families)


def _describe_set(row: SetRow, results: list[str]) -> str:
    complete = f"{row.missing} of {row.planned} cells missing" if row.missing else "complete"
    targets = " ".join(row.targets) or "no device code"
    headline = f"{row.id}  {row.family}  ROCm {row.rocm or 'unknown'}  {row.wheels} wheels  {complete}"
    results_text = "; ".join(results) or "no results"
    return f"{headline}\n  {row.created}  {row.os}  {targets}  {results_text}"


def _report_unfinished(families: list[FamilyOverview]) -> None:
    for overview in families:
        if overview.unfinished:
            log_note(
                f"{overview.family}: {len(overview.unfinished)} sets are not finished: "
                f"{', '.join(overview.unfinished)}"
            )
    if damaged := [fault for overview in families for fault in overview.damaged]:
        raise ReleaseError("\n".join(damaged), tip="put the document back from a copy of the store")


def _print_channels(inquiry: StoreQuery, channel: str, *, as_json: bool) -> None:
    from rocm_wheels.release import read_channels_now

    channels = read_channels_now(inquiry, channel)
    if as_json:
        click.echo(
            json.dumps({"channels": [channel_as_json(channel_now) for channel_now in channels]}, indent=1)
        )
        return
    for channel_now in channels:
        click.echo("\n".join(channel_lines(channel_now)))
    if any(
        entry.channel_set.state != entry.now.state for channel_now in channels for entry in channel_now.sets
    ):
        log_note("what is known is not what pages say: `rocm-wheels set refresh` brings it there")
    if not channels:
        where = f" of {inquiry.family}" if inquiry.family else ""
        log_note(f"nothing was promoted to {channel}{where} in {inquiry.store.url}")


def _print_answers(
    inquiry: StoreQuery,
    gfx: str | None,
    *,
    channel: str | None,
    kind: TestKind | None,
    good: bool,
    as_json: bool,
) -> None:
    from rocm_wheels.release import query_last_good, query_newest_passed

    if good or gfx is None:
        answers = query_last_good(inquiry, (gfx,) if gfx else (), channel=channel)
    else:
        answers = query_newest_passed(inquiry, gfx, channel=channel, kind=kind)
    if as_json:
        documents = [answer_as_json(answer) for answer in answers]
        click.echo(json.dumps({"channel": channel, "kind": kind or "any", "answers": documents}, indent=1))
    else:
        for answer in answers:
            click.echo("\n".join(answer_lines(answer)))
    where = f"{channel} of " if channel else ""
    if not answers:
        log_note(f"there are no sets in {where}{inquiry.store.url}")
    if gfx is not None and not any(answer.row for answer in answers):
        raise _make_not_found_error(answers[0], f"{where}{inquiry.store.url}", good=good)


def _make_not_found_error(answer: QueryAnswer, where: str, *, good: bool) -> ReleaseError:
    message = "no set is known to be good" if good else "no set passed"
    tip = "`rocm-wheels set evidence add` writes results down; `rocm-wheels set list STORE` lists all sets"
    return ReleaseError(f"{message} on {answer.gfx} in {where}: {answer.why}", tip=tip)
