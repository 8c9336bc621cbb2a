"""``set list``: the sets of a store, those that a channel shows, those that passed on a GPU."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli import boundary, catalogue, command, evidence, output
from rocm_wheels.core import errors, log, parallel, tables

if TYPE_CHECKING:
    from rocm_wheels.release import queries, wheel_set


def _list_channel_lines(channel: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yield what a person reads of a channel: the newest set first."""
    shows = f"shows {tables.format_count(len(channel['sets']), 'set')}" if channel["sets"] else "shows no set"
    yield f"{channel['channel']} of {channel['family']} {shows}  {channel['index']}"
    if change := channel["pending"]:
        yield (
            f"  pending: {change['action']} of {', '.join(change['sets'])} by {change['by']}, begun"
            f" {change['began']}; people may see parts of it until that is finished or undone"
        )
        yield f"    undo it: rocm-wheels set promote {shlex.quote(place)} --abandon {change['id']}"
    for shown in channel["sets"]:
        yield f"  {shown['set']}  ROCm {shown['rocm'] or 'unknown'}  {shown['os']}"
        yield f"    since {shown['since']}, by {shown['by']}"
        for title, known in (("pages say", shown["then"]), ("known now", shown["now"])):
            told = f" ({'; '.join(known['told'])})" if known["told"] else ""
            yield f"    {title}: {known['state']}{told}"
        yield f"    index: {shown['index']}"


_HELP = """List the staged sets of STORE, newest first: version, ROCm, what is missing, their test state.

Partly staged sets are only counted.

With --channel: the sets that people get there, since when and by whom, what their pages say about tests, and
what is known now (`rocm-wheels set refresh` updates the pages). With --passed: only sets, of the staged ones
or of the channel, that passed their tests on a GPU target, counted as the gate does; the exit code is 15 if
there are none. With --open: recent sets made for a channel that does not show them, because its gate was not
asked or blocked them.

\b
JSON (keys are added, never renamed):
  sets: [… os: linux|windows …], unfinished             without --channel and --open
  channels: [family, channel, revision, index, pending: {id, action, sets, by, began} or null,
    sets: [set, version, rocm, os, since, by, index, then: {state, told},
      now: {state, told, targets: [gfx, state, by, pythons, when]}]]
  open: [… as sets]                                     with --open

\b
Examples:
  rocm-wheels set list s3://wheels
  rocm-wheels set list s3://wheels --channel nightly --passed gfx942
"""


@command.command("set list", help=_HELP, apart=[("--open", "--channel"), ("--open", "--passed")])
@click.argument("store", metavar="STORE")
@catalogue.CHANNEL.but(help="Only what this channel shows: nightly, prerelease, stable.")
@command.option("--passed", metavar="GFX", help="Only sets that passed on this GPU target: gfx942.")
@command.option(
    "--open",
    "open_for",
    metavar="CHANNEL",
    help="The newest set of each torch and platform that was made for this channel (2.13.0+nightly…) in the"
    " last three days, if the channel does not show it. In a workflow, it also sets the outputs `sets`, a"
    " matrix of set and family, and `sets_count`.",
)
@catalogue.POLICY
@catalogue.JSON
def list_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    channel: str | None,
    passed: str | None,
    open_for: str | None,
    policy: Path | None,
    as_json: bool,
) -> None:
    """List sets."""
    from rocm_wheels.models.gfx import parse_single_target
    from rocm_wheels.release import gate, queries
    from rocm_wheels.stores.store import open_existing_store

    context = click.get_current_context()
    if channel is passed is None and context.get_parameter_source("policy") is ParameterSource.COMMANDLINE:
        raise errors.UsageError("--policy has no effect here", tip="it goes with --channel and --passed")
    rules = gate.load_policy_for(open_for or channel, None if open_for else policy)
    gfx = None if passed is None else parse_single_target(passed, input_name="--passed")
    env = boundary.read_environment()
    opened = open_existing_store(store, env)
    query = queries.StoreQuery(opened, rules, evidence.current_time(), env)
    if open_for is not None:
        _print_open(query, open_for, as_json=as_json)
    elif channel is not None:
        _print_channels(query, channel, gfx, as_json=as_json)
    else:
        _print_sets(query, gfx, as_json=as_json)


def _print_open(query: queries.StoreQuery, channel: str, *, as_json: bool) -> None:
    from rocm_wheels.ci import matrix_report
    from rocm_wheels.release import queries

    rows = queries.list_open_sets(query, channel)
    matrix = matrix_report.format_github_matrix([{"set": row.id, "family": row.family} for row in rows])
    matrix_report.set_outputs(query.env, {"sets": matrix, "sets_count": str(len(rows))})
    documents = [queries.make_set_row(row) for row in rows]
    lines = [f"{row['id']}  {row['family']}  {row['os']}  {row['created']}" for row in documents]
    output.print_result({"open": documents}, lines, as_json=as_json)
    if not rows and not as_json:
        log.log_note(f"{channel} shows all that was made for it in the last three days")


def _print_sets(query: queries.StoreQuery, gfx: str | None, *, as_json: bool) -> None:
    from rocm_wheels.release import queries, wheel_set
    from rocm_wheels.release.evidence.store import summarize_results

    opened = query.store
    names = wheel_set.list_families(opened)
    families = parallel.run_in_parallel(lambda name: wheel_set.read_family_sets(opened, name), names)
    summaries = parallel.run_in_parallel(lambda name: summarize_results(opened, name), names)
    results = dict(zip(names, summaries, strict=True))
    documents = sorted(
        (document for sets in families for document in sets.documents),
        key=lambda document: (document.created, document.id),
        reverse=True,
    )
    if gfx is not None:
        _report_unfinished(families)
        tested = [document for document in documents if results[document.family].get(document.id)]
        documents = queries.list_passed_sets(query, tested, gfx)
    sets = [
        {**queries.make_set_row(document), "results": results[document.family].get(document.id, [])}
        for document in documents
    ]
    unfinished = [{"family": item.family, "set": name} for item in families for name in item.unfinished]
    lines = [_describe_set(row) for row in sets]
    output.print_result({"sets": sets, "unfinished": unfinished}, lines, as_json=as_json)
    if not sets and gfx is None and not as_json:
        log.log_note(f"there are no sets in {opened.url}")
    if gfx is None:
        _report_unfinished(families)
    elif not sets:
        raise _make_no_set_error(gfx, opened.url)


def _describe_set(row: Mapping[str, Any]) -> str:
    planned = tables.format_count(row["planned"], "cell")
    complete = f"{row['missing']} of {planned} missing" if row["missing"] else "complete"
    targets = " ".join(row["targets"]) or "no device code"
    wheels, results = tables.format_count(row["wheels"], "wheel"), "; ".join(row["results"]) or "no results"
    headline = f"{row['id']}  {row['family']}  ROCm {row['rocm'] or 'unknown'}  {wheels}  {complete}"
    return f"{headline}\n  {row['created']}  {row['os']}  {targets}  {results}"


def _report_unfinished(families: list[wheel_set.FamilySets]) -> None:
    for sets in families:
        if sets.unfinished:
            count = tables.format_count(len(sets.unfinished), "set is", "sets are")
            log.log_note(f"{sets.family}: {count} not finished: {', '.join(sets.unfinished)}")
    from rocm_wheels.release import wheel_set

    if damaged := [fault for sets in families for fault in sets.damaged]:
        raise errors.ReleaseError("\n".join(damaged), tip=wheel_set.DAMAGED_TIP)


def _print_channels(query: queries.StoreQuery, channel: str, gfx: str | None, *, as_json: bool) -> None:
    from rocm_wheels.release import queries

    shown = queries.read_channels_now(query, channel, gfx)
    lines = [line for item in shown for line in _list_channel_lines(item, query.store.url)]
    output.print_result({"channels": shown}, lines, as_json=as_json)
    states = [(item["then"]["state"], item["now"]["state"]) for found in shown for item in found["sets"]]
    if not as_json and any(then != now for then, now in states):
        log.log_note("what is known is not what pages say: `rocm-wheels set refresh` brings it there")
    if gfx is not None and not states:
        raise _make_no_set_error(gfx, f"{channel} of {query.store.url}")
    if not shown and not as_json:
        log.log_note(f"nothing was promoted to {channel} in {query.store.url}")


def _make_no_set_error(gfx: str, where: str) -> errors.ReleaseError:
    tip = "`rocm-wheels set evidence add` writes results down; `rocm-wheels set list STORE` lists all sets"
    return errors.ReleaseError(f"no set passed on {gfx} in {where}", tip=tip)
