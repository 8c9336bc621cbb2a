"""``audit``: what is wrong with wheels and sets, anybody's or as their recipes want them, without a GPU."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels import __version__
from rocm_wheels.cli import boundary, catalogue, command, evidence, planned_wheels
from rocm_wheels.cli.options import GivenPath, RegularFile
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, files, installation, log, tables

if TYPE_CHECKING:
    from rocm_wheels.audit import audited_set, audited_wheel
    from rocm_wheels.release import wheel_set
    from rocm_wheels.wheels.scan import WheelScan

_EVERY_CHECK = "all"
_REPORT_SUFFIXES = (".html", ".sarif", ".xml")


@command.command("audit", needs=[("--plan", "--set")])
@click.argument("wheels", nargs=-1, type=RegularFile(), metavar="[WHEEL...]")
@catalogue.SET.but(
    name="place",
    metavar="DIR|INDEX|LOCK",
    help="Also audit these wheels as a set: a folder, an index, a pylock.toml, or a set.json of a store."
    " Without WHEELs, audit each wheel of it.",
)
@command.option(
    "--against",
    metavar="WHEEL|DIR|INDEX|LOCK",
    help="Compare with an older wheel or set: report what is gone, and what changed beyond the limits.",
)
@catalogue.PLAN.but(
    name="plan", help="What the set must hold: the output of `matrix --json` or `plan --json`."
)
@command.option(
    "--recipe",
    metavar="NAME",
    aliases=("--project",),
    help="Hold every WHEEL to the recipe of this project, whatever its name.",
)
@command.option(
    "--by-recipe",
    is_flag=True,
    help="Hold each WHEEL to the recipe of its project, found by its name. Implied by --gfx, --rocm and"
    " --python.",
)
@catalogue.GFX.but(help="Targets that they were built for: gfx942,gfx1100.")
@catalogue.ROCM.but(name="rocm_version", help="Version of ROCm that they were built with.")
@catalogue.PYTHON_WORDS.but(
    type=GivenPath(), help="Import each wheel too, with this Python and its packages."
)
@command.option(
    "--strict",
    is_flag=True,
    help="Make warnings about the form of WHEEL, RECORD and variant.json errors.",
)
@catalogue.LOCAL_LINKS.but(
    help="Wheels that METADATA requires, searched for needed libraries. May be given several times."
)
@command.option(
    "--ignore",
    multiple=True,
    metavar="CHECK[:FILE]",
    help="Ignore findings of a check, for files that match a glob. May be given several times.",
)
@catalogue.POLICY.but(
    help="YAML file of exceptions, each with owner, reason and end date, and of limits for --against."
)
@command.option(
    "--report",
    "reports",
    multiple=True,
    type=GivenPath(),
    metavar="FILE",
    help="Write the findings in the form of FILE's ending: .html, .sarif (2.1.0), .xml (JUnit). May be given"
    " several times.",
)
@command.option(
    "--explain",
    is_flag=False,
    flag_value=_EVERY_CHECK,
    metavar="[CHECK]",
    help="Explain what a check looks for, why, and what to do; without CHECK, list all. Then exit.",
)
@catalogue.takes(catalogue.JSON)
def audit_command(
    wheels: tuple[Path, ...],
    place: str | None,
    reports: tuple[Path, ...],
    explain: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Audit anybody's WHEELs, for Linux and Windows, without a GPU; and check whether those of a set agree.

    An error fails on a machine that the tags promise, or an index refuses it; a warning is untidy, but works;
    a note is worth knowing. The exit code is 14 if there are errors. --by-recipe also holds each wheel to its
    recipe (`rocm-wheels set check` makes evidence of such an audit). Device wheels are also read together
    with their host wheel. On GitHub errors and warnings become annotations.

    With --set the wheels of a set may require each other, and WHEELs are part of it: for example, those that
    you want to add to an index. Wheels at URLs are downloaded to a temporary folder.

    With --against each wheel is compared with the older one of the same project, Python, platform and label:
    files, libraries, targets, kernels, sizes, requirements. With --set, also which wheels there are.

    \b
    Examples:
      rocm-wheels audit torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl
      rocm-wheels audit --by-recipe dist/*.whl --gfx gfx942,gfx1100
      rocm-wheels audit dist/*.whl --find-links rocm-packages --report audit.html
      rocm-wheels audit --set dist
      rocm-wheels audit --set dist --against https://example.com/whl/nightly
      rocm-wheels audit --explain RW012
    """
    from rocm_wheels.audit import outputs

    if explain is not None:
        _explain_checks(explain, as_json=as_json)
        return
    if not wheels and place is None:
        raise errors.UsageError("no wheels were named", tip="for example: rocm-wheels audit dist/*.whl")
    for path in reports:
        if path.suffix not in _REPORT_SUFFIXES:
            tip = f"it ends with one of {' '.join(_REPORT_SUFFIXES)}"
            raise errors.UsageError(f"--report {path}: no form of a report is called so", tip=tip)
        if path.suffix == ".html":
            installation.require_extras("a page", "build")
    begun = evidence.describe_origin("audit")
    audit = audit_wheels(_read_request(wheels, place, options))
    for path in reports:
        _write_report(path, audit, begun["when"])
    document: dict[str, object] = {**begun, "wheels": [report.to_json() for report in audit.wheels]}
    if audit.of_set is not None:
        document["set"] = audit.of_set.to_json()
    print_result(document, outputs.format_audits(audit.wheels, audit.of_set), as_json=as_json)
    if log.is_log_on_github():
        _annotate(audit.reports)
    if failed := sum(not report.passed for report in audit.wheels):
        also = ", and the set" if audit.of_set is not None and not audit.of_set.passed else ""
        wheels_failed = f"{failed} of {len(audit.wheels)} wheels" if len(audit.wheels) > 1 else "the wheel"
        raise errors.AuditError(f"{wheels_failed} failed{also}")
    if audit.of_set is not None and not audit.of_set.passed:
        raise errors.AuditError(f"the set failed: {tables.format_count(len(audit.of_set.errors), 'error')}")


def _explain_checks(word: str, *, as_json: bool) -> None:
    from rocm_wheels.audit import checks, outputs

    chosen = checks.ALL_CHECKS if word == _EVERY_CHECK else (checks.find_check(word),)
    rows = [(check.id, check.name, check.severity, check.looks_for) for check in chosen]
    lines = tables.align_rows(rows) if word == _EVERY_CHECK else outputs.explain_check(chosen[0])
    print_result({"checks": [check.to_json() for check in chosen]}, lines, as_json=as_json)


def _write_report(path: Path, audit: AuditResult, when: str) -> None:
    from rocm_wheels.audit import outputs, page

    if path.suffix == ".html":
        files.write_atomically(path, page.render_audit_page(audit.wheels, __version__, audit.of_set))
    elif path.suffix == ".sarif":
        outputs.write_sarif_file(path, audit.reports, __version__)
    else:
        outputs.write_junit_file(path, audit.reports, when=when, host=platform.node())


def _annotate(reports: Sequence[audited_wheel.CheckReport]) -> None:
    """Print errors and warnings as GitHub shows them, beside the job."""
    from rocm_wheels.audit import checks

    for report in reports:
        for finding in report.findings:
            text = f"{report.title}: {checks.get_check_id(finding.check)} {errors.format_finding(finding)}"
            if finding.severity == "error":
                log.log_error(text)
            elif finding.severity == "warning":
                log.log_warning(text)


@dataclass(frozen=True)
class AuditRequest:
    """What is to be audited: ``wheels``, and ``place``, where a set is, None without one.

    ``by_recipe``: each is held to the recipe of its project, or all to ``recipe``, with ``targets`` and
    ``rocm_version`` as far as they are known, and imported with ``python``. ``strict``: files of the format
    are held to it, with a recipe or without. ``plan`` says what the set must hold. ``against`` is the place
    of what it is compared with.
    """

    wheels: Sequence[Path]
    place: str | None = None
    by_recipe: bool = False
    recipe: str | None = None
    strict: bool = False
    plan: Path | None = None
    targets: tuple[str, ...] | None = None
    rocm_version: str | None = None
    python: Path | None = None
    find_links: Sequence[Path] = ()
    ignore: Sequence[str] = ()
    policy: Path | None = None
    against: str | None = None


def _read_request(wheels: Sequence[Path], place: str | None, options: dict[str, Any]) -> AuditRequest:
    from rocm_wheels.models import gfx
    from rocm_wheels.sdk import interpreters

    source_of = click.get_current_context().get_parameter_source
    facts = ("targets", "rocm_version", "python")
    by_recipe = options["by_recipe"] or options["recipe"] is not None
    if not by_recipe:
        # what a configuration file says of builds makes no wheel ours
        named = [name for name in facts if source_of(name) is ParameterSource.COMMANDLINE]
        options |= {name: None for name in facts if name not in named}
        by_recipe = bool(named)
    options["by_recipe"] = by_recipe
    if options["targets"] is not None:
        options["targets"] = gfx.parse_targets(options["targets"])
    if options["python"] is not None:
        # not resolved: a virtual environment is found through the link that its interpreter is
        word, env = os.fspath(options["python"]), boundary.read_environment()
        options["python"] = interpreters.find_python_program(word, env).absolute()
    return AuditRequest(wheels, place, **options)


@dataclass(frozen=True)
class AuditResult:
    """The reports of wheels, and of their set, if there is one. ``scans``: what was read of all of these."""

    wheels: list[audited_wheel.AuditReport]
    of_set: audited_set.SetReport | None = None
    scans: tuple[WheelScan, ...] = ()

    @property
    def reports(self) -> list[audited_wheel.CheckReport]:
        """All reports."""
        return [*self.wheels, *([self.of_set] if self.of_set is not None else [])]


def audit_wheels(request: AuditRequest) -> AuditResult:
    """Return a report of each wheel, and of the set; that a wheel cannot be read is a finding like others.

    What is downloaded is removed in the end.
    """
    from rocm_wheels.audit import audited_set

    planned = planned_wheels.read_planned_wheels(request.plan) if request.plan is not None else None
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-audit-") as folder:
        listed = _collect_set(request.place, Path(folder, "set")) if request.place is not None else None
        if listed is not None and planned is not None:
            listed = replace(listed, planned=planned)
        older = None
        if request.against is not None:
            wheel = Path(request.against)
            if wheel.suffix == ".whl" and wheel.is_file():
                older = audited_set.SetFiles(request.against, "folder", (wheel,))
            else:
                older = _collect_set(request.against, Path(folder, "older"))
        return _audit_files(request, listed, older)


def _audit_files(
    request: AuditRequest, listed: audited_set.SetFiles | None, older: audited_set.SetFiles | None
) -> AuditResult:
    from rocm_wheels.audit import exceptions, import_check, set_sources, split_wheels, verify
    from rocm_wheels.audit.audited_set import AuditedSet, ComparedSet

    ignored = [exceptions.parse_ignored(text) for text in request.ignore]
    policy = exceptions.AuditPolicy()
    if request.policy is not None:
        policy = exceptions.load_audit_policy(request.policy)
    if listed is not None:
        listed = set_sources.add_named_wheels(listed, request.wheels)
    wheels = listed.wheels if listed is not None else ()
    expected = _make_expectations(request, wheels)
    older_wheels = _match_older(list(expected), older) if older is not None else {}
    read = verify.read_wheels(expected, find_links=request.find_links, together=listed is not None)
    today = datetime.now(timezone.utc).date()
    subjects = {subject.scan.path: subject for subject in read.wheels}
    reported, hosts = dict.fromkeys(request.wheels or wheels), dict[Path, Path]()
    if request.by_recipe:  # what is reported of a host is of its device wheels, too
        for host in reported:
            hosts.update(dict.fromkeys(split_wheels.select_device_wheels(host, list(reported)), host))
        reported = {wheel: None for wheel in reported if wheel not in hosts or wheel not in subjects}
    environment = None
    if request.python is not None:
        environment = import_check.ImportEnvironment(request.python, boundary.read_environment())
    reports = []
    for wheel in reported:
        if wheel in subjects:
            subject = subjects[wheel]
            if wheel in older_wheels:
                baseline = verify.read_baseline(older_wheels[wheel], policy.drift_limits)
                subject = replace(subject, baseline=baseline)
            report = verify.check_wheel(subject, environment=environment)
        else:
            of_host = expected[hosts.get(wheel, wheel)]
            report = verify.make_unreadable_report(wheel, read.damaged[wheel], of_host)
        reports.append(exceptions.apply_exceptions(report, ignored, policy, today))
    if listed is None:
        return AuditResult(reports)
    unreadable = {path.name: files.hash_file(path) for path in read.damaged}
    compared = None
    if older is not None:
        compared = ComparedSet(older.origin, tuple(wheel.name for wheel in older.wheels))
    of_set = verify.check_set(AuditedSet(listed, read.wheels, unreadable, compared))
    scans = tuple(wheel.scan for wheel in read.wheels)
    return AuditResult(reports, exceptions.apply_exceptions(of_set, ignored, policy, today), scans)


def _collect_set(place: str, folder: Path) -> audited_set.SetFiles:
    """Return the files of a set, of a store's that is a folder, too."""
    from rocm_wheels.audit import audited_set, set_sources
    from rocm_wheels.core import records

    path = Path(place)
    if path.name != "set.json" or not path.is_file():
        folder.mkdir()
        return set_sources.collect_set(place, folder)
    from rocm_wheels.release import wheel_set
    from rocm_wheels.release.store_paths import FamilyPaths

    document = wheel_set.parse_set(records.read_text_file(path).encode(), where=str(path))
    paths = FamilyPaths(document.family)
    inner = Path(paths.set_document(document.id))
    root = Path(*path.absolute().parts[: -len(inner.parts)])
    if root / inner != path.absolute():
        raise errors.UsageError(
            f"{path} does not lie in a store, so where its wheels are is not known",
            tip=f"in a store it is at {inner}; or name the folder of the wheels",
        )
    digests = {file.name: file.sha256 for file in document.files}
    places = {name: root / paths.pool_file(sha256, name) for name, sha256 in digests.items()}
    return audited_set.SetFiles(
        str(path),
        "set",
        tuple(place for place in places.values() if place.is_file()),
        digests=digests,
        absent={name: f"is not at {place}" for name, place in places.items() if not place.is_file()},
        planned=_list_planned_wheels(document),
    )


def _list_planned_wheels(document: wheel_set.SetDocument) -> tuple[audited_set.PlannedWheel, ...] | None:
    """Return what a set should hold, a project and Python each; None where nothing is known of that."""
    from rocm_wheels.audit import audited_set
    from rocm_wheels.release import wheel_set

    platform = wheel_set.find_set_platform(document)
    targets: dict[tuple[str, str], list[str]] = {}
    for cell in document.planned:
        targets.setdefault((cell.project, cell.python), []).extend([cell.target] if cell.target else [])
    planned = [
        audited_set.PlannedWheel(project, python, platform, tuple(dict.fromkeys(names)))
        for (project, python), names in targets.items()
    ]
    return tuple(planned) or None


def _match_older(wheels: Sequence[Path], older: audited_set.SetFiles) -> dict[Path, Path]:
    """Return the wheel that each is compared with. UsageError where there is none for any of them.

    DataError for a wheel that the older set lists and that could not be had.
    """
    from rocm_wheels.audit import drift

    if older.absent:
        name, reason = min(older.absent.items())
        raise errors.DataError(f"--against {older.origin}: {name} {reason}", tip="name a set that is whole")
    paths = {path.name: path for path in older.wheels}
    matches = drift.match_wheels([wheel.name for wheel in wheels], paths)
    if not matches:
        raise errors.UsageError(
            f"--against {older.origin}: nothing there is an older one of these wheels",
            tip="wheels are compared that are of one project, Python, platform and label",
        )
    return {wheel: paths[matches[wheel.name]] for wheel in wheels if wheel.name in matches}


def _make_expectations(
    request: AuditRequest, listed: Sequence[Path]
) -> dict[Path, audited_wheel.WheelExpectation]:
    """Return what each wheel is held to: those named, and those that a set lists.

    UsageError by recipe for a named wheel that none builds.
    """
    from rocm_wheels.audit import audited_wheel, split_wheels
    from rocm_wheels.models import project_names
    from rocm_wheels.models.project import load_project

    chosen, known = request.recipe, project_names.list_project_names()
    if chosen is not None and chosen not in known:  # people call a recipe by what it builds, too
        chosen = next((name for name in known if load_project(name).distribution == chosen), chosen)
    names = [chosen] if chosen else known if request.by_recipe else []
    recipes = [load_project(name) for name in names]
    need_recipe = split_wheels.group_device_wheels(request.wheels) if request.by_recipe else {}
    expected: dict[Path, audited_wheel.WheelExpectation] = {}
    for wheel in (*request.wheels, *listed):
        distribution, _, tags = wheel.name.partition("-")  # whether it is a wheel's name, a check tells
        builders = (r for r in recipes if audited_wheel.is_same_name(r.distribution, distribution))
        recipe = recipes[0] if chosen and wheel in need_recipe else next(builders, None)
        if recipe is None and wheel in need_recipe:
            builds = ", ".join(f"{project.distribution} ({project.name})" for project in recipes)
            raise errors.UsageError(
                f"{wheel.name}: no recipe builds {distribution}",
                tip=f"name one: --recipe NAME ({builds}); without --by-recipe, --gfx, --rocm and --python "
                "any wheel is audited",
            )
        expected[wheel] = audited_wheel.WheelExpectation(
            recipe,
            "windows" if "-win_" in tags else "linux",
            targets=request.targets if recipe is not None else None,
            rocm_version=request.rocm_version if recipe is not None else None,
            strict=request.strict,
        )
    if chosen and not any(expectation.project for expectation in expected.values()):
        raise errors.UsageError(
            f"--recipe {request.recipe}: no wheel of the set is of {recipes[0].distribution}",
            tip="leave --recipe out: any wheel can be audited without",
        )
    return expected
