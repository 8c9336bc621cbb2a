"""``set dashboard``: pages of what came of a night, and of what a store has; who is told of failures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, time, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.checkout_options import (
    find_checkouts_folder,
    make_transport,
    network_options,
    repo_option,
)
from rocm_wheels.cli.command import Command, Option
from rocm_wheels.cli.evidence import current_time
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.core import ReleaseError, RocmWheelsError, UsageError, format_count, log_warning

if TYPE_CHECKING:
    from rocm_wheels.core import SourceError, Store
    from rocm_wheels.release import Dashboard, Notice, Notifier, StoreLayout
    from rocm_wheels.sources import CommitRange, ProjectPath

_HELP = """Make pages of STORE: what came of a day, and what there is to install.

DIR gets three files. index.html is for those who install: families, channels, one command each, whether it
is signed. night.html is for those who release: what became of each family, Python and line of torch, what
failed and is new, flaky tests, lost GPUs, sources that changed since the set before, build times.
dashboard.json has what both say. Each page is one file that needs no network, and the same store and day
make the same files.

Of each family, platform and line of torch the newest set of the day counts (UTC), and the newest before it.
Commits between are looked up as `rocm-wheels lock diff` does it.

With --notify each failure gets an issue in a GitHub repository, which is closed when it passes, or a message
to a webhook. What is told already is not told again. The token is that of GITHUB_TOKEN, which needs to write
issues.

\b
Examples:
  rocm-wheels set dashboard s3://wheels -o pages
  rocm-wheels set dashboard s3://wheels -o pages --notify github:OWNER/REPO --dry-run
"""


def _make_command() -> click.Command:
    return Command(
        "set dashboard",
        params=[
            click.Argument(["store"], metavar="STORE"),
            Option(
                ["--output-dir", "-o"],
                required=True,
                type=GivenPath(),
                metavar="DIR",
                help="Folder for the pages; made when missing.",
            ),
            Option(
                ["--date", "day"],
                type=click.DateTime(["%Y-%m-%d"]),
                metavar="YYYY-MM-DD",
                help="The day, in UTC [default: today].",
            ),
            Option(
                ["--channel"],
                default="nightly",
                show_default=True,
                metavar="CHANNEL",
                help="Judge sets by what this channel needs.",
            ),
            Option(
                ["--policy"],
                type=GivenPath(),
                help="What channels need [default: what the channel keeps, then data/release_policy.yaml].",
            ),
            Option(
                ["--summary"],
                type=GivenPath(),
                metavar="FILE",
                envvar="GITHUB_STEP_SUMMARY",
                show_envvar=True,
                help="Add what came of the day to this file, as Markdown.",
            ),
            Option(
                ["--publish"],
                is_flag=True,
                help="Put the pages into STORE, too, at the root of what is released.",
            ),
            Option(
                ["--notify", "targets"],
                multiple=True,
                metavar="WHERE",
                help="Tell of failures: github:OWNER/REPO, a webhook's URL, or '': nobody. Can be repeated.",
            ),
            Option(
                ["--most-new"],
                type=click.IntRange(min=1),
                default=20,
                show_default=True,
                metavar="N",
                help="Failures to open at a time with --notify; others wait for the next run.",
            ),
            Option(
                ["--dry-run"], is_flag=True, help="Print what would be told and published, and do neither."
            ),
            Option(
                ["--validated"],
                type=GivenPath(),
                metavar="DIR",
                help="Show what build_tools/validate_published.py has written into DIR, too.",
            ),
            Option(["--json", "as_json"], is_flag=True, help="Print what was written and told as JSON."),
            Option(
                ["--history/--no-history"],
                default=True,
                show_default=True,
                help="Look commits up; without, no repository is asked.",
            ),
            repo_option(),
            *network_options(fills_mirrors=False),
            Option(
                ["--store-layout"],
                type=GivenPath(),
                help="YAML file with the names of areas and folders [default: v2-staging, v2, …].",
            ),
            Option(
                ["--unconditional"],
                is_flag=True,
                help="Write to a store that ignores conditional writes: nothing else may write there.",
            ),
        ],
        callback=_run_dashboard,
        help=_HELP,
    )


def _run_dashboard(**options: Any) -> None:
    from rocm_wheels.core import open_existing_store, require_conditional_writes, write_atomically
    from rocm_wheels.release import (
        DashboardReader,
        format_summary,
        limit_notices,
        load_layout,
        load_policy_for,
        make_dashboard_files,
        open_notifier,
        plan_notices,
        read_install_checks,
    )

    now = current_time()
    day = options["day"].date() if options["day"] is not None else now.date()
    if any(options["targets"]) and not now.date() - timedelta(days=1) <= day <= now.date():
        raise UsageError(
            f"--notify tells what fails now, and {day} is another day", tip="leave out --date, or --notify"
        )
    folder: Path = options["output_dir"]
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", tip="name another one with -o")
    rules, layout = (
        load_policy_for(options["channel"], options["policy"]),
        load_layout(options["store_layout"]),
    )
    env = read_environment()
    store = open_existing_store(options["store"], env)
    # a variable that a repository does not set is an empty word in its workflow: nobody is told
    targets = [target for target in options["targets"] if target]
    notifiers = [open_notifier(target, store, layout, now, env) for target in targets]
    if (options["publish"] or notifiers) and not options["dry_run"]:
        require_conditional_writes(store, unconditional=options["unconditional"])
    end_of_day = datetime.combine(day, time(23, 59, 59), timezone.utc)
    named = options["policy"] is not None
    installs = read_install_checks(options["validated"]) if options["validated"] is not None else ()
    if options["validated"] is not None and not installs:
        log_warning(f"{options['validated']} has no results of installing what is published")
    reader = DashboardReader(
        store, layout, rules, options["channel"], day, end_of_day, env, named=named, installs=installs
    )
    dashboard = reader.read()
    histories = _read_histories(dashboard, options)
    files = make_dashboard_files(dashboard, histories)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content)
    if options["summary"] is not None:
        _append_summary(options["summary"], format_summary(dashboard, histories))
    published = _publish(store, layout, files, dry_run=options["dry_run"]) if options["publish"] else []
    if not options["as_json"]:
        for place in (*(str(folder / name) for name in files), *published):
            click.echo(place)
    reports, failures = [], list[RocmWheelsError]()
    for notifier in notifiers:
        try:
            notices, left = limit_notices(plan_notices(dashboard, notifier.read_open()), options["most_new"])
            count = 0 if options["dry_run"] else notifier.send(notices)
        except RocmWheelsError as failure:  # one that cannot be told keeps it from no other
            failures.append(failure)
            log_warning(f"the {notifier.title} was not told: {failure}")
            continue
        reports.append(
            {"to": notifier.title, "new": count, "left": left, "notices": list(map(dump_notice, notices))}
        )
        if not options["as_json"]:
            for line in _list_notice_lines(notifier, notices, count, dry_run=options["dry_run"]):
                click.echo(line)
        if left:
            more = format_count(left, "more failure is", "more failures are")
            log_warning(f"{more} not told to the {notifier.title} yet: the next run does, or --most-new")
    if options["as_json"]:
        files_json = {name: str(folder / name) for name in files}
        document = {
            "dry_run": options["dry_run"],
            "files": files_json,
            "published": published,
            "told": reports,
        }
        click.echo(json.dumps(document, indent=1))
    if failures:
        raise failures[0]


def _append_summary(path: Path, text: str) -> None:
    """Add a text to a file. Raises ReleaseError where that cannot be."""
    try:
        with path.open("a", encoding="utf-8") as summary:
            summary.write(text)
    except OSError as failure:
        tip = "name a file in a folder that is there: --summary FILE"
        raise ReleaseError(f"{path} cannot be written: {failure.strerror}", tip=tip) from failure


def dump_notice(notice: Notice) -> dict[str, Any]:
    """Return a notice as JSON has it."""
    return {"action": notice.action, "failure": notice.failure.model_dump(mode="json")}


def _list_notice_lines(
    notifier: Notifier, notices: Sequence[Notice], count: int, *, dry_run: bool
) -> list[str]:
    if dry_run:
        return [f"would tell the {notifier.title}: {notice}" for notice in notices]
    return [f"{notifier.title}: {format_count(count, 'notice')}"]


def _read_histories(
    dashboard: Dashboard, options: Mapping[str, Any]
) -> list[Mapping[ProjectPath, CommitRange | SourceError]]:
    """Return the commits of each change, where they are asked for; what cannot be had is said on the page."""
    from rocm_wheels.sources import read_histories

    if not options["history"]:
        return [{} for _ in dashboard.changes]
    transport, repos = make_transport(options), find_checkouts_folder(options["repo"])
    env = read_environment()
    return [
        read_histories(change.diff, repos=repos, submodules=False, transport=transport, env=env)
        if change.diff is not None
        else {}
        for change in dashboard.changes
    ]


def _publish(store: Store, layout: StoreLayout, files: Mapping[str, bytes], *, dry_run: bool) -> list[str]:
    """Put the pages into the store; return what was done, or would be, in lines."""
    from rocm_wheels.core import DryRunStore, change_documents, put_file

    rehearsal = DryRunStore(store)
    for name, content in files.items():
        path = f"{layout.release}/{name}"
        used = rehearsal if dry_run else store
        change_documents(partial(put_file, used, path, content), description=path)
    if dry_run:
        return [f"would {line}" for line in rehearsal.writes]
    return [store.url_of(f"{layout.release}/{name}") for name in files]


dashboard_command = _make_command()
