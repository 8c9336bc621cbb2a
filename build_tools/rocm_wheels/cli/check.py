"""``set check``: all that can be found out about a set without a GPU, as evidence."""

from __future__ import annotations

import platform
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.cli import audit, boundary, catalogue, command, evidence, output
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.models import test_results
    from rocm_wheels.release import wheel_set
    from rocm_wheels.stores.store import Store

_MOST_LETTERS = 1000  # of what a test says is wrong: a finding may list a thousand files


@command.command("set check")
@evidence.set_options
@catalogue.WHEELS.but(
    help="The wheels of the set, files or folders [default: those in the store; fetched from a bucket]."
)
@catalogue.OUTPUT_DIR.but(help="Also write audit.json and resolver.json there.")
@catalogue.SIGN_WITH
@catalogue.JSON
def check_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    set_id: str,
    wheels: tuple[Path, ...],
    output_dir: Path | None,
    sign_with: Path | None,
    as_json: bool,
) -> None:
    """Check everything about a staged set that needs no GPU, and store the results as evidence.

    It audits each wheel by the recipe of its project, and the set by its plan: its Pythons and GPU targets.
    It compares the set's document with wheels and locks, and asks pip and uv what they pick from the set's
    own index. The results are evidence, passed or not, for the rules `audit` (never waived) and `resolver` of
    a policy. The exit code is 14 if something failed.

    \b
    Examples:
      rocm-wheels set check s3://wheels --set 2.9.1-93bf --wheels dist
    """
    from rocm_wheels.core import files
    from rocm_wheels.models import test_results
    from rocm_wheels.release import next_step, set_copy
    from rocm_wheels.release.evidence import results
    from rocm_wheels.release.store_paths import FamilyPaths

    evidence.try_key(sign_with)
    begun = evidence.describe_origin("set check")
    opened, document = evidence.open_set(store, set_id)
    paths = FamilyPaths(document.family)
    named = results.hash_wheels(wheels) if wheels else None
    by_digest = {named[path.name]: path for path in _list_files(wheels)} if named is not None else None
    with (
        set_copy.open_copy(opened, document, by_digest) as root,
        tempfile.TemporaryDirectory(prefix="rocm-wheels-check-") as own,
    ):
        folder = output_dir or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        tests: dict[test_results.ResultKind, list[test_results.TestResult]] = {
            "audit": _audit_set(opened, document, root / paths.set_document(document.id))
        }
        plain = [root / paths.pool_file(file.sha256, file.name) for file in document.files if not file.label]
        if plain:
            tests["resolver"] = _ask_installers(document, root / paths.set_index(document.id), plain)
        else:
            log.log_note("all wheels are variants, which no resolver chooses by version alone")
        reports = []
        for kind, rows in tests.items():
            found = test_results.Results(
                kind=kind,
                tool=begun["tool"],
                when=datetime.fromisoformat(begun["when"]),
                host=platform.node() or "unknown",
                wheels={file.name: file.sha256 for file in document.files},
                tests=tuple(rows),
            )
            reports.append(folder / f"{kind}.json")
            files.write_atomically(reports[-1], found.to_json())
        entries = results.read_results(reports, evidence.make_submission(document))
    evidence.submit(opened, document, entries, sign_with, as_json=as_json)
    failed = [entry for entry in entries if not entry.passed]
    if failed:
        first = failed[0].failed[0] if failed[0].failed else failed[0].detail
        raise errors.AuditError(
            f"{tables.count_part(len(failed), len(entries), 'result')} did not pass: {first}",
            tip=f"`rocm-wheels set show {store} --set {document.id}` lists them",
        )
    step = next_step.format_tests(document, next_step.CommandWords(store))
    output.print_next(step, beside_json=as_json)


def _list_files(paths: tuple[Path, ...]) -> list[Path]:
    return [file for path in paths for file in (sorted(path.glob("*.whl")) if path.is_dir() else [path])]


def _audit_set(store: Store, document: wheel_set.SetDocument, path: Path) -> list[test_results.TestResult]:
    """Return what the checks of a set in a folder, and of each of its wheels by its recipe, found.

    ReleaseError where a stored wheel is not that of the set: that is no result about the wheels.
    """
    from rocm_wheels.audit import audited_wheel
    from rocm_wheels.release import stage, wheel_set

    done = audit.audit_wheels(audit.AuditRequest((), str(path), by_recipe=True))
    read = {scan.path.name: scan.sha256 for scan in done.scans}
    wrong = [file.name for file in document.files if read.get(file.name) != file.sha256]
    if wrong:
        more = f" and {tables.format_count(len(wrong) - 1, 'other')}" if wrong[1:] else ""
        raise errors.ReleaseError(
            f"{store.url} is damaged: {wrong[0]}{more} of {document.id} is gone, or has other bytes",
            tip="`rocm-wheels store fsck --hash` names the file: remove it, and stage the same wheels again",
        )
    try:
        locks = [wheel_set.read_set_lock(store, document, item) for item in document.locks]
        wrong = stage.find_document_faults(document, done.scans, locks)
    except (errors.DataError, errors.ReleaseError) as fault:  # a lock that is gone, or another
        wrong = [fault.message]
    tests = [_make_test("set: document", "; ".join(wrong))]
    held = {name for report in done.wheels if report.recipe for name in dict(report.parts)}
    for report in done.reports:
        about: tuple[str, ...] = ()
        faults = {finding.check: errors.format_finding(finding) for finding in report.errors}
        if isinstance(report, audited_wheel.AuditReport):
            about = (report.wheel.name, *dict(report.parts))
            if not report.recipe and report.wheel.name not in held:
                faults["recipe"] = "no recipe says what it must be"
        title = about[0] if about else "set"
        for check in dict.fromkeys((*report.ran, *faults)):
            tests.append(_make_test(f"{title}: {check}", faults.get(check, ""), about))
        for skip in report.skipped:
            tests.append(_make_test(f"{title}: {skip.check}", skip.reason, about, "skipped"))
    return tests


def _make_test(
    name: str, fault: str, wheels: tuple[str, ...] = (), outcome: test_results.TestOutcome = "failed"
) -> test_results.TestResult:
    """Return a test that failed, or was skipped, with the first line of why; or ("") passed."""
    from rocm_wheels.models import test_results

    detail = fault.partition("\n")[0][:_MOST_LETTERS]
    outcome = outcome if fault else "passed"
    return test_results.TestResult(name=name, outcome=outcome, detail=detail, wheels=wheels)


def _ask_installers(
    document: wheel_set.SetDocument, index: Path, wheels: list[Path]
) -> list[test_results.TestResult]:
    """Return what pip and uv pick from the index of a set, which has one version of most projects."""
    from packaging.version import Version

    from rocm_wheels.index import resolve_check
    from rocm_wheels.release.evidence import results

    versions = {
        project: {Version(file.version) for file in document.files if file.project == project}
        for project in document.projects
    }
    expect = {project: next(iter(found)) for project, found in versions.items() if len(found) == 1}
    request = resolve_check.ResolveRequest(new=wheels, expect=expect, pre=True, published=True)
    tests = []
    for check in resolve_check.check_picks(str(index), request, boundary.read_environment()):
        # a pick speaks of what was picked, a failure of all that was asked for
        picked = "" if check.fault else check.picked
        question = (results.parse_project(check.requirement), check.python, picked)
        about = tuple(path.name for path in wheels if results.covers_wheel({question}, path.name))
        name = f"{check.requirement}, Python {check.python}, {check.tool}"
        # the first line of pip's and uv's says only that they failed
        tests.append(_make_test(name, " ".join(check.fault.split()), about))
    return tests
