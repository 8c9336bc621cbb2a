"""``set promote``, ``demote`` and ``refresh``: which sets people get from a channel."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from rocm_wheels.cli import boundary, catalogue, command, evidence, options, output, store
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.release import fsck, refresh
    from rocm_wheels.release.channel import ChannelChange, Promoter
    from rocm_wheels.release.policy import Policy
    from rocm_wheels.release.verdict import Verdict
    from rocm_wheels.stores.store import Store

F = TypeVar("F", bound=Callable[..., Any])
_DONE_WORDS = {"promote": "{} promoted", "demote": "{} demoted", "abandon": "change of {} undone"}


@dataclass(frozen=True)
class ReleaseRun:
    """How a command changes what people get of a store: by which policy and keys, or in rehearsal alone."""

    place: str
    policy: Path | None
    sign_with: Path | None
    dry_run: bool
    as_json: bool

    @cached_property
    def store(self) -> Store:
        """The store; in a dry run what is written to it is only noted. Raises for one without conditions."""
        from rocm_wheels.stores.store import DryRunStore, open_existing_store, require_conditional_writes

        opened = open_existing_store(self.place, boundary.read_environment())
        if self.dry_run:
            return DryRunStore(opened)
        require_conditional_writes(opened)
        return opened

    def make_refresher(self, rules: Policy, *, anew: bool = False) -> refresh.Refresher:
        """Return one who changes the store now, in the user's name. UsageError for keys that are none."""
        from rocm_wheels.release import refresh

        env, now = boundary.read_environment(), evidence.current_time()
        signer = options.make_signer(self.sign_with, rules.signed_for, env, anew=anew, dry_run=self.dry_run)
        return refresh.Refresher(self.store, rules, evidence.name_user_and_host(), now, env, signer)

    def format_line(self, action: str, *words: str) -> str:
        """Return the line of another command for the same store, with the policy and key that were named."""
        given = ["--policy", str(self.policy)] if self.policy is not None else []
        source = click.get_current_context().get_parameter_source("sign_with")
        if self.sign_with is not None and source is ParameterSource.COMMANDLINE:
            given += ["--sign-with", str(self.sign_with)]
        return shlex.join(["rocm-wheels", "set", action, self.place, *words, *given])

    def format_demotion(self, done: refresh.RefreshResult, set_id: str) -> str:
        """Return the line that takes a set from a channel."""
        return self.format_line("demote", "--channel", done.channel, "--set", set_id)

    def describe_refreshed(self, done: refresh.RefreshResult | None) -> tuple[dict[str, Any], list[str]]:
        """Return which views of a channel changed and what fails of what it shows, as JSON and as lines."""
        if done is None:
            return {"views": [], "failing": []}, []
        failing, lines = [], []
        for view in done.views:
            system = " for Windows" if view.os == "windows" else ""
            was = f"(it was {view.before or 'none'})"
            lines.append(f"view of {view.gfx}{system} in {done.name}: {view.now or 'none'} {was}")
        for bad in done.failing:
            command = self.format_demotion(done, bad.set)
            failing.append({"set": bad.set, "state": bad.state, "told": bad.told, "command": command})
            lines += [f"{bad.set}: {'; '.join((bad.state, *bad.told))}", f"  take it away: {command}"]
        return {"views": done.views, "failing": failing}, lines

    def print(self, document: Mapping[str, object], lines: Iterable[str]) -> None:
        """Print a result, and what a dry run would have written."""
        from rocm_wheels.stores.store import DryRunStore

        if isinstance(self.store, DryRunStore):
            writes = self.store.writes
            document = {**document, "dry_run": True, "writes": writes}
            lines = (*(f"would {line}" for line in writes), *lines)
        output.print_result(document, lines, as_json=self.as_json)


def _take_run(function: F) -> F:
    """Add what all that changes a release takes: it comes as the first argument, a ``ReleaseRun``."""

    @wraps(function)
    def with_run(*, store: str, **values: Any) -> object:
        names = [field.name for field in fields(ReleaseRun) if field.name != "place"]
        return function(ReleaseRun(store, **{name: values.pop(name) for name in names}), **values)

    return cast(
        F,
        catalogue.takes(
            catalogue.POLICY,
            catalogue.SIGN_RELEASE,
            catalogue.DRY_RUN,
            catalogue.JSON,
        )(with_run),
    )


# ---- promote and demote


@command.command("set promote")
@click.argument("store", metavar="STORE")
@catalogue.SET
@catalogue.CHANNEL
@command.option(
    "--abandon",
    "change_id",
    metavar="ID",
    help="Undo a change that a killed run has begun, of any kind, by its id in messages and `set list`.",
)
@command.option(
    "--allow-fewer-targets",
    is_flag=True,
    help="Allow a set for all GPUs that lacks code for some that the newest set on the channel supports.",
)
@_take_run
def promote(
    run: ReleaseRun,
    *,
    set_id: str | None,
    channel: str | None,
    change_id: str | None,
    allow_fewer_targets: bool,
) -> None:
    """Show a staged set on a channel, if the gate lets it pass (otherwise exit code 15).

    Nothing is copied: pages link to the tested bytes, which are compared. At any moment people see the old
    sets or the new one, because pages of dependencies change first. After a kill, run the same command again,
    or undo the change with --abandon, which needs neither --set, --channel nor --policy.

    \b
    Examples:
      rocm-wheels set promote s3://wheels --set 2.9.1-93bf --channel nightly
      rocm-wheels set promote s3://wheels --abandon 5e0b1f0c2a77
    """
    from rocm_wheels.release import channel as channels
    from rocm_wheels.release import gate, stored_digests, wheel_set
    from rocm_wheels.release.store_paths import FamilyPaths

    if change_id is not None:
        _abandon_change(run, change_id)
        return
    if set_id is None or channel is None:
        raise errors.UsageError("which set goes where is not said", tip="name both: --set ID --channel NAME")
    rules = gate.load_policy_for(channel, run.policy)
    document = wheel_set.find_set(run.store, set_id)
    refresher = run.make_refresher(rules)
    promoter = refresher.make_promoter(FamilyPaths(document.family), channel)
    shown = promoter.read_channel_record().channel
    gate.require_own_policy(rules, shown)
    for fault in channels.find_upgrade_faults(run.store, promoter.paths, document, shown):
        log.log_warning(f"who upgrades: {fault}")

    digests = stored_digests.StoredDigests()  # the gate is asked several times

    def ask_gate() -> Verdict:
        now = evidence.current_time()
        return gate.judge_staged_set(
            run.store, document, channel, policy=rules, now=now, env=refresher.env, digests=digests
        )[0]

    _follow_change(
        run,
        refresher,
        promoter,
        promoter.promote(document, ask_gate, allow_fewer_targets=allow_fewer_targets),
    )


@command.command("set demote")
@click.argument("store", metavar="STORE")
@catalogue.SET.but(
    name="set_ids",
    required=True,
    multiple=True,
    help="The set to remove, or how its id begins. May be given several times.",
)
@catalogue.CHANNEL.but(required=True)
@_take_run
def demote(run: ReleaseRun, *, set_ids: tuple[str, ...], channel: str) -> None:
    """Remove sets from a channel: dependents first, so that no wheel is left without the others.

    Files stay: each set can still be installed from its own index. The command that shows a set again is
    printed. After a kill, run the same command again, or undo the change with `set promote STORE --abandon
    ID`.

    \b
    Examples:
      rocm-wheels set demote s3://wheels --channel nightly --set 2.9.1-51aa
    """
    from rocm_wheels.release import channel as channels
    from rocm_wheels.release import gate

    rules = gate.load_policy_for(channel, run.policy)
    paths, going = channels.find_sets_on(run.store, channel, set_ids)
    refresher = run.make_refresher(rules)
    promoter = refresher.make_promoter(paths, channel)
    gate.require_own_policy(rules, promoter.read_channel_record().channel)
    _follow_change(run, refresher, promoter, promoter.demote(going))


def _abandon_change(run: ReleaseRun, change_id: str) -> None:
    """Undo a pending change. Views follow changes that were finished, so there is nothing to judge."""
    from rocm_wheels.release import channel as channels
    from rocm_wheels.release.policy import load_policy

    context = click.get_current_context()
    idle = {"set_id", "channel", "policy", "allow_fewer_targets"}
    if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in idle):
        raise errors.UsageError(
            "--abandon says which change is meant, and judges nothing",
            tip="leave out what names a set, a channel or a policy",
        )
    promoter = run.make_refresher(load_policy()).make_promoter(*channels.find_change(run.store, change_id))
    _print_change(run, promoter, promoter.abandon(change_id), None)


def _follow_change(
    run: ReleaseRun, refresher: refresh.Refresher, promoter: Promoter, done: ChannelChange
) -> None:
    """Have views and support.json follow a change, and say what was done."""
    refreshed, failure = None, None
    try:
        refreshed = refresher.refresh_channel(promoter.paths.family, promoter.channel)
        refresher.refresh_support()
    except (errors.RocmWheelsError, OSError) as cause:
        failure = cause
    if refreshed is not None and (again := refreshed.changing) is not None:
        log.log_note(f"{again.channel} is being changed again: {again.pending}; that run sees to its views")
    _print_change(run, promoter, done, refreshed)
    if failure is not None:
        raise errors.ReleaseError(
            f"the change is made and people get it ({_describe_newest(done)}), but views and support.json do"
            f" not follow it yet: `{run.format_line('refresh')}` completes it"
        ) from failure


def _print_change(
    run: ReleaseRun, promoter: Promoter, done: ChannelChange, refreshed: refresh.RefreshResult | None
) -> None:
    from rocm_wheels.release import channel as channels
    from rocm_wheels.release import support

    paths, channel = promoter.paths, done.channel
    public, (followed, more) = support.read_public(run.store), run.describe_refreshed(refreshed)
    folders = (paths.channel_pages(channel.channel), *map(paths.set_index, done.sets))
    index, *set_indexes = (public.address_of(run.store, f"{folder}/") for folder in folders)
    words = ("--channel", channel.channel, "--set")
    gone = done.sets if done.action == "demote" else ()
    readable = channels.read_remaining_sets(run.store, paths, gone)  # no other set can be promoted again
    put_back = [run.format_line("promote", *words, document.id) for document in readable]
    did = _DONE_WORDS[done.action].format(", ".join(done.sets)) if done.action else "nothing to do"
    begun = " (an earlier run had begun it)" if done.finished else ""
    head = "dry run: " if run.dry_run else ""
    lines = [
        f"{head}{did}{begun}; {_describe_newest(done)}: {tables.format_count(done.pages, 'page')} changed",
        f"index: {index}",
        *more,
    ]
    if done.action == "promote":
        lines += [f"index of the set alone, which never changes: {address}" for address in set_indexes]
    lines += [f"put it back: {line}" for line in put_back]
    document = {
        "action": done.action,
        "sets": done.sets,
        "family": channel.family,
        "channel": channel.channel,
        "revision": channel.revision,
        "current": channel.current,
        "shown": channel.shown,
        "pages": done.pages,
        "finished": done.finished,
        **followed,
        "index": index,
        "set_indexes": set_indexes,
        "put_back": put_back,
    }
    run.print(document, lines)


def _describe_newest(done: ChannelChange) -> str:
    return f"{done.channel.channel} of {done.channel.family} is at {done.channel.current or 'no set'}"


# ---- refresh


@command.command("set refresh", needs=[("--sign-anew", "--sign-with")])
@click.argument("store", metavar="STORE")
@catalogue.PUBLIC_URL.but(
    help="Where people see STORE, for support.json. The server of a bucket must send index.html for URLs that"
    " end in /. It is kept in the store; '' removes it."
)
@command.option(
    "--sign-anew", is_flag=True, help="Also sign channels without a valid manifest, as they are now."
)
@_take_run
def refresh_command(run: ReleaseRun, *, public_url: str | None, sign_anew: bool) -> None:
    """Update pages, views and support.json of STORE to the present results of released sets.

    Pages then tell of results that came after the release. A view (FAMILY/by-gfx/GFX/CHANNEL/) is an index of
    the set with the newest torch that passed on that GPU, for each platform. In place of GFX it can have the
    name of a list of GPUs (`views` of the policy): the set passed on all of them. promote and demote do the
    same at their end. After a kill, run the same command again; only what changed is written. A channel that
    another process is changing is skipped (exit code 15). With --sign-with each channel gets a signed
    manifest: readers with --released-by accept nothing else, nothing older, and nothing after `signed_for` of
    the policy. A signed channel can be changed only with the key; --sign-anew signs a channel that is
    unsigned, was signed by a lost key, or has expired.

    Finally the store is checked as by `store fsck`, without reading wheels. The exit code is 15 for damage,
    and for a shown set that failed something since, or lost files; such a set stays until `set demote`. The
    summary of a job on GitHub says both.

    \b
    Examples:
      rocm-wheels set refresh s3://wheels --dry-run
    """
    from rocm_wheels.release import fsck, gate, queries
    from rocm_wheels.release.channel import read_channel
    from rocm_wheels.release.store_paths import FamilyPaths

    rules = gate.load_policy_for(None, run.policy)
    named = _find_channels(run.store, queries.require_families(run.store), rules)
    for name_of_family, name in named:
        with contextlib.suppress(errors.DataError):  # one that is damaged is told of below
            gate.require_own_policy(rules, read_channel(run.store, FamilyPaths(name_of_family), name).channel)
    refresher = run.make_refresher(rules, anew=sign_anew)
    refresher.require_key(named)
    if public_url is not None:
        refresher.set_public(public_url)
    if not named:
        log.log_note(f"there is no channel in {run.store.url} yet: `rocm-wheels set promote` makes them")
    done: list[refresh.RefreshResult] = []
    failures: list[errors.RocmWheelsError] = []
    for name_of_family, name in named:  # whatever becomes of one of them
        try:
            refreshed = refresher.refresh_channel(name_of_family, name)
            done += [refreshed] if refreshed is not None else []
        except errors.UsageError:
            raise
        except errors.RocmWheelsError as failure:
            failures.append(errors.ReleaseError(f"{name} of {name_of_family} was not refreshed"))
            failures[-1].__cause__ = failure
    changed: list[str] = []
    try:
        changed = refresher.refresh_support() if named else []
    except errors.RocmWheelsError as failure:
        failures.append(failure)
    report = None if run.dry_run else fsck.check_store(run.store)
    _print_refreshed(run, done, changed, report)
    _raise_first_failure(run, done, failures, report)


def _find_channels(opened: Store, families: list[str], rules: Policy) -> list[tuple[str, str]]:
    """Return all channels that there are. UsageError for one not in the policy."""
    from rocm_wheels.release import gate
    from rocm_wheels.release.policy import CHANNEL_NAMES
    from rocm_wheels.release.store_paths import FamilyPaths

    channels: list[tuple[str, str]] = [
        (family, name)
        for family in families
        for name in CHANNEL_NAMES
        if opened.head(FamilyPaths(family).channel_document(name)) is not None
    ]
    for _, name in channels:
        gate.require_channel(rules, name)
    return channels


def _print_refreshed(
    run: ReleaseRun, done: list[refresh.RefreshResult], changed: list[str], report: fsck.StoreReport | None
) -> None:
    """Say what became of channels, what fails, and what is damaged; a job on GitHub has it in its summary."""
    head, lines, channels = "dry run: " if run.dry_run else "", [], []
    for item in done:
        followed, more = run.describe_refreshed(item)
        updates = f"updates its entry of {', '.join(item.retold)}; " if item.retold else ""
        did = f"{updates}{tables.format_count(item.pages, 'page')} changed"
        if item.changing is not None:
            did = "left as it is"
        elif not (item.retold or item.views or item.pages):
            did = "signed anew" if item.signed else "nothing to do"
        lines += [f"{head}{item.name}: {did}", *(f"  {line}" for line in more)]
        channels.append(
            {
                "family": item.family,
                "channel": item.channel,
                "told": item.retold,
                **followed,
                "pages": item.pages,
                "signed": item.signed,
                "left": item.changing and str(item.changing.pending),
            }
        )
    lines += [f"{head}{path} written" for path in changed]
    lines += store.list_finding_lines(report.errors) if report is not None else ()
    found = store.convert_findings(report.errors) if report is not None else None
    run.print({"channels": channels, "documents": changed, "damage": found}, lines)
    boundary.append_step_summary(boundary.read_environment(), tables.fence_markdown("\n".join(lines)))


def _raise_first_failure(
    run: ReleaseRun,
    done: list[refresh.RefreshResult],
    failures: list[errors.RocmWheelsError],
    report: fsck.StoreReport | None,
) -> None:
    """Raise ReleaseError for what could not be done, is damaged, or fails; others are said before."""
    from rocm_wheels.release import channel as channels

    failures += [channels.make_pending_error(run.store, item.changing) for item in done if item.changing]
    if report is not None and report.errors:
        failures.append(store.make_damage_error(report, run.place))
    if failing := [(item, bad.set) for item in done for bad in item.failing]:
        shown = ", ".join(f"{set_id} ({item.name})" for item, set_id in failing)
        tip = f"take it away: {run.format_demotion(*failing[0])}"
        failures.append(errors.ReleaseError(f"shown, and something failed since: {shown}", tip=tip))
    for other in failures[1:]:
        log.log_warning(errors.explain_error(other))
    if failures:
        raise failures[0]
