"""``index`` and ``resolve-check``: static package indexes written and checked; what installers pick."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from rocm_wheels.cli import boundary, catalogue, command, evidence, options, output
from rocm_wheels.core import environment_numbers, errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.index import federation, signed_index, signing
    from rocm_wheels.stores import store

_MOST_NAMES = 8  # in a line
_PATH = click.Path(path_type=Path)
_FILE = options.RegularFile()


@command.command("index build")
@click.argument("folder", type=_PATH, metavar="DIR")
@click.argument("wheels", nargs=-1, type=_FILE, metavar="[FILE]...")
@catalogue.FAMILIES.but(
    multiple=True,
    help="Put FILEs into the index of this GPU family; without FILEs, a folder in DIR with a family's wheels"
    " (remembered, may be repeated).",
)
@catalogue.DROP_MISSING
@command.option(
    "--allow-pth",
    "startup_files",
    multiple=True,
    metavar="NAME",
    help="Accept wheels with this .pth, which Python reads whenever it starts (a glob). Can be repeated.",
)
@catalogue.PUBLIC_URL.but(
    help="Where people see DIR: pages name provenance objects (FILE.provenance, PEP 740) by their whole URL."
)
@catalogue.JSON
def build(
    folder: Path,
    wheels: tuple[Path, ...],
    families: tuple[str, ...],
    drop_missing: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Put FILEs into the index DIR, all or none, and write their pages; without FILEs, index all of DIR.

    FILEs are wheels and source distributions; DIR is made if it is missing. A file that the index has with
    the same bytes is kept; other bytes are an error, because a published file is never replaced. A provenance
    object beside a FILE (FILE.provenance, PEP 740) comes along; one of another file is an error.

    Without FILEs it indexes what lies in DIR and in its project folders. A wheel with known name, size and
    time is not read again; unchanged pages are not written. A wheel that is gone, or has other bytes than
    before, is an error.

    To remove wheels, delete the files and run with --drop-missing. Users who pinned them can no longer
    install them; after `index yank` they can.

    \b
    Examples:
      rocm-wheels index build public dist/*.whl --family gfx110X-all
      rocm-wheels index build public --drop-missing
    """
    from rocm_wheels.index import update

    root = folder.absolute()
    settings["now"] = read_source_date(boundary.read_environment())
    if wheels:
        if drop_missing or len(families) > 1:
            raise errors.UsageError(
                "FILEs go into one index, and nothing is dropped: leave out --drop-missing, further --family",
                tip="first put FILEs in, then call it without them",
            )
        paths = [wheel.absolute() for wheel in wheels]
        family = "".join(families)
        added = update.add_wheels(root, paths, family=family, **settings)
        lines = [*(f"added {name}" for name in added.new), *(f"had {name}" for name in added.unchanged)]
        result = {"added": list(added.new), "unchanged": list(added.unchanged)}
        output.print_result(result, lines, as_json=as_json)
        return
    built = update.build_index(root, new_families=families, drop_missing=drop_missing, **settings)
    for name in built.missing:
        log.log_note(f"dropped: {name}")
    count, projects = tables.format_count(built.files, "file"), tables.format_count(built.projects, "project")
    lines = [f"{folder}: {count} of {projects}, {built.new} new"]
    output.print_result(built, lines, as_json=as_json)


@command.command("index yank", apart=[("--unyank", "--reason")])
@click.argument("folder", type=_PATH, metavar="DIR")
@click.argument("words", nargs=-1, required=True, metavar="WHEEL|NAME==VERSION...")
@command.option("--reason", metavar="TEXT", help="The reason, which installers show.")
@command.option("--unyank", is_flag=True, help="Undo it.")
@catalogue.JSON
def yank(folder: Path, words: tuple[str, ...], reason: str | None, unyank: bool, as_json: bool) -> None:
    """Yank wheels (PEP 592): installers then take them only for their exact version.

    DIR is an index, or the folder of a GPU family in it (for its own wheels).

    \b
    Examples:
      rocm-wheels index yank public torch==2.9.0 --reason "wrong kernels"
      rocm-wheels index yank public/gfx110X-all torch==2.9.0
    """
    from rocm_wheels.index import update

    new_reason = None if unyank else reason or ""
    word = "unyanked" if unyank else "yanked"
    root = folder.absolute()
    names = update.yank_wheels(root, words, reason=new_reason)
    output.print_result({word: names}, [f"{word} {name}" for name in names], as_json=as_json)


@command.command("index federate")
@click.argument("owners_file", type=_FILE, metavar="OWNERS")
@click.argument("target", metavar="DIR|s3://…")
@catalogue.SIGN_RELEASE
@catalogue.DROP_MISSING.but(help="Drop names of which their owners have no files any more.")
@catalogue.DRY_RUN.but(help="Read everything, show what would change, and write nothing.")
@catalogue.JSON
def federate(
    owners_file: Path,
    target: str,
    *,
    sign_with: Path | None,
    drop_missing: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make an index of several: one page a name, from its owner alone. Files stay where they are.

    OWNERS is a YAML file: `sources` are indexes by name (a folder, s3://bucket/path or a URL; with `url`
    where people see it, `signed_by` keys that sign its pages, `allow_no_hash`); `owners` are sources by
    names of projects, or patterns such as rocm-*, of which the most exact one decides; `default` owns the
    rest, but what holds code for GPUs. With `targets` each has an index of its own, which goes when it is no
    target any more; {gfx} stands for it.

    The same command refreshes it: pages that did not change at their source are not sent again. A source that
    cannot be read, a name that is gone there, or a file that has other bytes than before leaves the index as
    it is; the exit code is 15 then.

    With --sign-with it has a signed manifest, which holds for `signed_for` of OWNERS (14d): readers with
    --released-by take nothing else. An index that was signed once is refreshed with a key alone.

    \b
    Examples:
      rocm-wheels index federate owners.yaml public
      rocm-wheels index federate owners.yaml s3://wheels/simple --dry-run
    """
    from rocm_wheels.cli import evidence
    from rocm_wheels.index import federation, owners, signed_index
    from rocm_wheels.stores import store

    env, stated = boundary.read_environment(), owners.load_owners(owners_file)
    signer = options.make_signer(sign_with, stated.signed_for, env, anew=True, dry_run=dry_run)
    whole = store.open_store(target, env)

    def sign(keys: Sequence[str]) -> signed_index.SignedIndexes:
        signers = options.read_signers(map(Path, keys), env)
        return signed_index.SignedIndexes(signers, env, options.open_memory(env), evidence.current_time())

    lines: list[str] = []
    results: dict[str, federation.Federated] = {}
    for gfx in stated.targets or ("",):
        place = f"{target.rstrip('/')}/{gfx}".rstrip("/")
        out, part = store.open_store(place, env), stated.at_target(gfx)
        sources = federation.open_sources(part, sign, env)
        keeper = _make_keeper(whole, gfx, signer)
        run = federation.Federation(part, sources, out, keeper, f"{gfx}/" if gfx else "")
        results[place] = run.refresh(drop_missing=drop_missing, dry_run=dry_run)
        lines += _describe_federated(place, results[place], "to change" if dry_run else "changed")
    dropped = federation.drop_other_targets(whole, stated.targets, dry_run=dry_run)
    lines += [f"dropped with its target: {target.rstrip('/')}/{gfx}" for gfx in dropped]
    document = {"dry_run": dry_run, "indexes": results, "dropped": dropped}
    output.print_result(document, lines, as_json=as_json)


def _make_keeper(
    index: store.Store, gfx: str, signer: signing.ReleaseSigner | None
) -> signing.ManifestKeeper:
    """Return who keeps the manifest of an index, or of that of one target in it, which lies in its folder.

    UsageError where one would be signed that cannot be told from others by the names in its URL.
    """
    from rocm_wheels.index import manifest, signing
    from rocm_wheels.release import policy
    from rocm_wheels.stores import store

    bucket_place = urlsplit(index.url).path.rstrip("/")
    name = index.folder.name if index.folder is not None else bucket_place.rpartition("/")[2]
    is_name = store.is_store_path(name)
    if signer is not None and (not is_name or name in policy.CHANNEL_NAMES):
        raise errors.UsageError(
            f"an index in {index.url} cannot be signed: {name!r} would not tell it from others",
            tip="give it a folder with a name of its own, which is in its URL, too: s3://wheels/all",
        )
    name = name if is_name else "unsigned"
    path = f"{gfx or name}{manifest.MANIFEST_SUFFIX}"
    return signing.ManifestKeeper(index, path, name, gfx or name, signer)


def _describe_federated(place: str, result: federation.Federated, done: str) -> list[str]:
    """Return what became of an index: what it has and what changed; then what it does not take, and why."""
    told = {
        done: result.written,
        "dropped": result.removed,
        "need an owner of their own": result.ownerless,
        "without a project": result.unmatched,
        "required, and not listed": result.not_listed,
        "with pages of somebody else": result.strays,
        "files left out": result.left_out,
        "files without sha256": result.no_hash,
        **{f"not taken from {source}": names for source, names in result.strangers.items()},
    }
    count = tables.format_count(result.files, "file")
    projects = tables.format_count(result.projects, "project")
    lines = [f"{place}: {count} of {projects}, {tables.format_count(len(result.written), 'name')} {done}"]
    lines[0] += ", signed" if result.signed else ""
    for words, names in told.items():
        more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
        lines += [f"{words}: {', '.join([*names[:_MOST_NAMES], *more])}"] if names else []
    return lines


def read_source_date(env: Mapping[str, str]) -> str:
    """Return when a wheel is added (PEP 700): now, or at SOURCE_DATE_EPOCH."""
    from rocm_wheels.core import records

    epoch, utc = environment_numbers.read_number(env, "SOURCE_DATE_EPOCH"), datetime.timezone.utc
    moment = datetime.datetime.now(utc) if epoch is None else datetime.datetime.fromtimestamp(epoch, utc)
    return records.format_moment(moment)


@command.command("index verify")
@click.argument("index", metavar="DIR|URL")
@command.option("--full", is_flag=True, help="Hash every file, which reads or downloads all of it.")
@catalogue.JSON
def verify(index: str, full: bool, as_json: bool) -> None:
    """Read an index as pip and uv do, and list what is wrong; the exit code is 14 then.

    It reads every page, link, METADATA and variants.json, and compares METADATA with that in the wheels (on a
    server by range requests). It hashes files with --full, in a folder also those that changed since they
    were hashed. In a folder it also reads the indexes of families, and compares every page with what would be
    written.

    \b
    Examples:
      rocm-wheels index verify https://wheels.example/simple/
      rocm-wheels index verify public --full
    """
    from rocm_wheels.index.verify import FAULTS, verify_index

    report = verify_index(index, full=full)
    document = {
        "index": index,
        "projects": report.projects,
        "files": report.files,
        "passed": not report.errors,
        "findings": [
            {
                "fault": finding.check,
                "severity": finding.severity,
                "where": finding.subject,
                "what": finding.message,
            }
            for finding in report.findings
        ],
    }
    lines = [f"{finding.severity}: {errors.format_finding(finding)}" for finding in report.findings]
    told = {finding.check for finding in report.findings}
    lines += tables.align_rows([(f"{name}:", meaning) for name, meaning in FAULTS.items() if name in told])
    count = tables.format_count(report.files, "file")
    lines.append(f"{index}: {count} of {tables.format_count(report.projects, 'project')}")
    output.print_result(document, lines, as_json=as_json)
    if report.errors:
        raise errors.AuditError(f"{tables.format_count(len(report.errors), 'fault')} in {index}")


_RESOLVE_HELP = """Check what pip and uv would pick from INDEX (a folder or URL) and NEW wheels.

It runs both as dry runs, for each new distribution and Python. If one does not pick the newest build, the
exit code is 14, with the reason. The newest build is that of the highest version (without local part) with
the latest date in its version, else the only new one, else that of --expect.

\b
Why this happens (PEP 440): local parts are compared field by field, fields are
split at dots, and a field with a letter in it is text. So rocm7 is above rocm10:
  2.12.0+rocm7.15.0a20260728  is taken before  2.12.0+rocm10.1.0a20260821

\b
Spellings that sort, of which the first is named that is above all others:
  +rocm.10.1.0a20260821     in an index that has no +rocm7…
  +rocmsdk.10.1.0a20260821  above +rocm7… and +rocm10… of before
  +20260821.rocm10.1.0a…    the latest build, whatever its ROCm
All of them put 10.1.1a… below 10.1.0 (text is below numbers): nightlies and
releases belong in different indexes.

\b
Examples:
  rocm-wheels index resolve-check public dist/*.whl --python 3.12
"""


@command.command("index resolve-check", help=_RESOLVE_HELP)
@click.argument("index", metavar="INDEX")
@click.argument("new", nargs=-1, required=True, type=_FILE, metavar="NEW...")
@catalogue.PYTHON_VERSIONS.but(
    multiple=True,
    help="Python of the user's machine, such as 3.12; can be repeated [default: those of the new wheels].",
)
@catalogue.PLATFORM.but(help="Platform of the user's machine, x86_64 [default: that of the new wheels].")
@catalogue.PRE.but(help="Let the user ask for pre-releases.")
@command.option(
    "--expect",
    multiple=True,
    metavar="NAME==VERSION",
    help="The version that should be picked; can be repeated.",
)
@catalogue.JSON
def resolve_command(
    index: str,
    new: tuple[Path, ...],
    platform: str | None,
    expect: tuple[str, ...],
    as_json: bool,
    **asked: Any,
) -> None:
    """Ask both, compare, and leave with 14 when the newest build is not what is picked."""
    from rocm_wheels.index import resolve_check

    expected = resolve_check.parse_expected_versions(expect)
    request = resolve_check.ResolveRequest(new=new, platform=platform or "", expect=expected, **asked)
    begun = evidence.describe_origin("resolve-check")
    checks = resolve_check.check_picks(index, request, boundary.read_environment())
    lines = []
    for check in checks:
        outcome = check.fault or f"takes {check.picked}{check.why and f' ({check.why})'}"
        state = "error: " if check.fault else ""
        lines.append(f"{state}{check.requirement}, Python {check.python}, {check.tool}: {outcome}")
    document = {"checks": checks, **begun}
    output.print_result(document, lines, as_json=as_json)
    for tip in dict.fromkeys(check.tip for check in checks if check.tip):
        log.log_note(f"tip: {tip}")
    failed = sum(bool(check.fault) for check in checks)
    if failed:
        raise errors.AuditError(
            f"the newest build is not picked in {tables.format_count(failed, 'check')} of {len(checks)}"
        )


_COMMANDS = {
    "build": ("index:build", "Put wheels into an index, all or none, and write its pages."),
    "yank": ("index:yank", "Yank wheels, with a reason, or undo that."),
    "federate": ("index:federate", "Make an index of several, with one owner for each name."),
    "verify": ("index:verify", "Read an index as pip and uv do, and list what is wrong."),
    "resolve-check": ("index:resolve_command", "Check whether pip and uv would pick the newest build."),
}
_INDEX_HELP = """Static package indexes: PEP 503, 658, 691, 700, 714, variants (PEP 825).

A web server serves DIR: `pip install --index-url https://host/DIR/ torch`. It holds the wheels
(DIR/<project>/), pages for people and installers, METADATA beside each wheel, a page for --find-links
(links.html), and an index for each GPU family (DIR/<family>/: its own wheels and those of DIR; wheels of
different families have the same names and different bytes, so they never share a page).

You need not upload DIR/.index. One writer at a time changes an index, others wait. Upload to an object store
from one place: files first, then pages, root pages last.
"""


@command.group("index", lazy=_COMMANDS, help=_INDEX_HELP)
def index_group() -> None:
    """Hold the commands about indexes."""
