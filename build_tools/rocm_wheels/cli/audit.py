"""``audit``: what is wrong with wheels and sets, anybody's or as their recipes want them, without a GPU."""

from __future__ import annotations

import os
import platform as machine_platform
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels import __version__
from rocm_wheels.cli import audit_set, boundary, catalogue, command, evidence
from rocm_wheels.cli.options import GivenPath, RegularFile
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, extras, log, tables
from rocm_wheels.core.files import hash_file, write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.audit import audited_wheel, import_check
    from rocm_wheels.audit.audited_set import SetFiles, SetReport
    from rocm_wheels.wheels.scan import WheelScan

_FILE = RegularFile()


@command.command("audit")
@click.argument("wheels", nargs=-1, type=_FILE, metavar="[WHEEL...]")
@catalogue.SET.but(
    name="place",
    metavar="DIR|INDEX|LOCK",
    help="Audit these wheels as a set, too: a folder, an index, a pylock.toml, or a set.json of a store. "
    "Without WHEELs, each wheel of it is audited.",
)
@catalogue.PLAN.but(
    name="plan", help="What the set must hold: the output of `matrix --json` or `plan --json`."
)
@command.option(
    "--resolve", is_flag=True, help="Ask pip and uv what they take of the set, too; some seconds."
)
@command.option(
    "--against",
    metavar="WHEEL|DIR|INDEX|LOCK",
    help="Compare with an older wheel, or with the wheels of an older set: what was lost, and what changed "
    "beyond the limits.",
)
@command.option(
    "--recipe",
    metavar="NAME",
    aliases=("--project",),
    help="Hold every WHEEL to the recipe of this project, whatever it is called.",
)
@command.option(
    "--by-recipe",
    is_flag=True,
    help="Hold each WHEEL to the recipe of its project, found by its name. So do --gfx, --rocm and --python.",
)
@catalogue.GFX.but(name="pytorch_rocm_arch", help="Targets that they were built for: gfx942,gfx1100.")
@catalogue.ROCM.but(name="rocm_version", help="Version of ROCm that they were built with.")
@catalogue.PYTHON_WORDS.but(
    type=GivenPath(), help="Import each wheel too, with this Python and its packages."
)
@command.option(
    "--strict",
    is_flag=True,
    help="Have WHEEL, RECORD and variant.json as formats want them: what is a warning there is an error.",
)
@catalogue.LOCAL_LINKS.but(
    help="Wheels that METADATA requires, to look in for what libraries need. May be given several times."
)
@command.option(
    "--ignore",
    multiple=True,
    metavar="CHECK[:FILE]",
    help="Let findings of a check pass, for files that a glob names. May be given several times.",
)
@catalogue.POLICY.but(
    help="YAML file of exceptions, each with owner, reason and end date, and of limits for --against."
)
@command.option("--sarif", type=GivenPath(), metavar="FILE", help="Write the findings as SARIF 2.1.0.")
@command.option("--junit", type=GivenPath(), metavar="FILE", help="Write the checks as JUnit XML.")
@catalogue.HTML.but(help="Write a page: findings, libraries and their targets.")
@command.option(
    "--explain", metavar="CHECK", help="Say what a check looks for, why, and what to do; then leave."
)
@catalogue.takes(catalogue.LIST_CHECKS, catalogue.JSON)
def audit_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    recipe: str | None,
    find_links: tuple[Path, ...],
    place: str | None,
    against: str | None,
    explain: str | None,
    list_checks: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Audit WHEELs of anybody, for Linux and Windows, without a GPU; and whether those of a set agree.

    Errors break on a machine that the tags promise, or are what an index refuses; warnings are untidy, and
    work; notes are worth knowing. Exit code 14 with any error. A recipe adds what its wheel must be
    (--by-recipe; `rocm-wheels set check` makes evidence of such an audit). Device wheels are read with their
    host wheel, too. On GitHub errors and warnings become annotations.

    With --set the wheels of a set count for each other, and WHEELs are part of it: the ones that are to be
    added to an index, for example. Wheels at URLs are downloaded, and removed in the end.

    With --against each wheel is compared with that of the same project, Python, platform and label there:
    files, libraries, targets, kernels, sizes, requirements. With --set, so are the wheels that there are.

    \b
    Examples:
      rocm-wheels audit torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl
      rocm-wheels audit --by-recipe dist/*.whl --gfx gfx942,gfx1100
      rocm-wheels audit dist/*.whl --find-links rocm-packages --html audit.html
      rocm-wheels audit --set dist
      rocm-wheels audit --set dist --against https://example.com/whl/nightly
      rocm-wheels audit --explain RW012
    """
    from rocm_wheels.audit import checks, outputs

    if list_checks or explain is not None:
        chosen = checks.ALL_CHECKS if explain is None else (checks.find_check(explain),)
        rows = [(check.id, check.name, check.severity, check.looks_for) for check in checks.ALL_CHECKS]
        lines = tables.align_rows(rows) if explain is None else outputs.explain_check(chosen[0])
        print_result({"checks": [_describe_check(check) for check in chosen]}, lines, as_json=as_json)
        return
    if not wheels and place is None:
        raise errors.UsageError("no wheels were named", tip="for example: rocm-wheels audit dist/*.whl")
    if place is None and (options["plan"] is not None or options["resolve"]):
        raise errors.UsageError("--plan and --resolve are about a set", tip="name it: --set DIR")
    if options["html"] is not None:
        extras.require_extras("a page", "build")
    begun = evidence.describe_origin("audit")
    request = AuditRequest(
        wheels,
        _read_expected(recipe, options),
        find_links,
        options["ignore"],
        options["policy"],
        place,
        against=against,
        plan=options["plan"],
        resolve=options["resolve"],
    )
    audit = audit_wheels(request)
    _write_files(audit, options)
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


@dataclass(frozen=True)
class ExpectedBuild:
    """Which recipe wheels are held to, the one named or each its own, and what is known of their build.

    ``strict``: files of the format are held to it, with a recipe or without.
    """

    recipe: str | None = None
    by_recipe: bool = False
    targets: tuple[str, ...] | None = None
    rocm_version: str | None = None
    environment: import_check.ImportEnvironment | None = None
    strict: bool = False


def _read_expected(recipe: str | None, options: dict[str, Any]) -> ExpectedBuild:
    from rocm_wheels.audit import import_check
    from rocm_wheels.models import gfx
    from rocm_wheels.sdk import interpreters

    context, by_recipe = click.get_current_context(), options["by_recipe"] or recipe is not None
    facts = {  # what a configuration file says of builds makes no wheel ours
        name: options[name]
        for name in ("pytorch_rocm_arch", "rocm_version", "python")
        if by_recipe or context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    arch, python, environment = facts.get("pytorch_rocm_arch"), facts.get("python"), None
    if python is not None:
        env = boundary.read_environment()
        program = interpreters.find_python_program(os.fspath(python), env)
        # not resolved: a virtual environment is found through the link that its interpreter is
        environment = import_check.ImportEnvironment(program.absolute(), env)
    return ExpectedBuild(
        recipe,
        by_recipe or bool(facts),
        gfx.parse_targets(arch) if arch is not None else None,
        facts.get("rocm_version"),
        environment,
        options["strict"],
    )


@dataclass(frozen=True)
class AuditRequest:
    """What is to be audited, as options say it; ``place`` is that of a set, None without one.

    ``plan`` says what it must hold; with ``resolve`` pip and uv are asked what they take of it.
    ``against`` is the place of what it is compared with, if anything.
    """

    wheels: Sequence[Path]
    expected: ExpectedBuild
    find_links: Sequence[Path] = ()
    ignore: Sequence[str] = ()
    policy: Path | None = None
    place: str | None = None
    plan: Path | None = None
    resolve: bool = False
    against: str | None = None


@dataclass(frozen=True)
class AuditResult:
    """The reports of wheels, and of their set, if there is one. ``scans``: what was read of all of these."""

    wheels: list[audited_wheel.AuditReport]
    of_set: SetReport | None = None
    scans: tuple[WheelScan, ...] = ()

    @property
    def reports(self) -> list[audited_wheel.CheckReport]:
        """All reports."""
        return [*self.wheels, *([self.of_set] if self.of_set is not None else [])]


def audit_wheels(request: AuditRequest) -> AuditResult:
    """Return a report of each wheel, and of the set; that a wheel cannot be read is a finding like others.

    What is downloaded is removed in the end.
    """
    planned = audit_set.read_planned_wheels(request.plan) if request.plan is not None else None
    prefix = "rocm-wheels-audit-"
    with tempfile.TemporaryDirectory(prefix=prefix) as new, tempfile.TemporaryDirectory(prefix=prefix) as old:
        files = audit_set.collect_set_files(request.place, Path(new)) if request.place is not None else None
        if files is not None and planned is not None:
            files = replace(files, planned=planned)
        older = _collect_older(request.against, Path(old)) if request.against is not None else None
        return _audit_files(request, files, older)


def _audit_files(request: AuditRequest, files: SetFiles | None, older: SetFiles | None) -> AuditResult:
    from rocm_wheels.audit import set_sources, split_wheels, verify
    from rocm_wheels.audit.audited_set import AuditedSet, ComparedSet
    from rocm_wheels.audit.exceptions import AuditPolicy, apply_exceptions, load_audit_policy, parse_ignored

    ignored = [parse_ignored(text) for text in request.ignore]
    exceptions = load_audit_policy(request.policy) if request.policy is not None else AuditPolicy()
    if files is not None:
        files = set_sources.add_named_wheels(files, request.wheels)
    listed = files.wheels if files is not None else ()
    expected = _make_expectations(request.wheels, listed, request.expected)
    older_wheels = _match_older(list(expected), older) if older is not None else {}
    read = verify.read_wheels(expected, find_links=request.find_links, together=files is not None)
    today = datetime.now(timezone.utc).date()
    subjects = {subject.scan.path: subject for subject in read.wheels}
    reported, hosts = dict.fromkeys(request.wheels or listed), dict[Path, Path]()
    if request.expected.by_recipe:  # what is reported of a host is of its device wheels, too
        for host in reported:
            hosts.update(dict.fromkeys(split_wheels.select_device_wheels(host, list(reported)), host))
        reported = {wheel: None for wheel in reported if wheel not in hosts or wheel not in subjects}
    reports = []
    for wheel in reported:
        if wheel in subjects:
            subject = subjects[wheel]
            if wheel in older_wheels:
                baseline = verify.read_baseline(older_wheels[wheel], exceptions.drift_limits)
                subject = replace(subject, baseline=baseline)
            report = verify.check_wheel(subject, environment=request.expected.environment)
        else:
            report = verify.make_unreadable_report(
                wheel, read.damaged[wheel], expected[hosts.get(wheel, wheel)]
            )
        reports.append(apply_exceptions(report, ignored, exceptions, today))
    if files is None:
        return AuditResult(reports)
    unreadable = {path.name: hash_file(path) for path in read.damaged}
    env = boundary.read_environment() if request.resolve else None
    compared = None
    if older is not None:
        compared = ComparedSet(older.origin, tuple(wheel.name for wheel in older.wheels))
    audited_set = AuditedSet(files, read.wheels, unreadable, env, compared)
    set_report = apply_exceptions(verify.check_set(audited_set), ignored, exceptions, today)
    return AuditResult(reports, set_report, tuple(wheel.scan for wheel in read.wheels))


def _collect_older(place: str, folder: Path) -> SetFiles:
    """Return the files of a set to compare with, or one wheel alone."""
    from rocm_wheels.audit.audited_set import SetFiles

    path = Path(place)
    if path.suffix == ".whl" and path.is_file():
        return SetFiles(place, "folder", (path,))
    return audit_set.collect_set_files(place, folder)


def _match_older(wheels: Sequence[Path], older: SetFiles) -> dict[Path, Path]:
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
    wheels: Sequence[Path], listed: Sequence[Path], build: ExpectedBuild
) -> dict[Path, audited_wheel.WheelExpectation]:
    """Return what each wheel is held to: those named, and those that a set lists.

    UsageError by recipe for a named wheel that none builds.
    """
    from rocm_wheels.audit import audited_wheel, split_wheels
    from rocm_wheels.models import project_names
    from rocm_wheels.models.project import load_project

    chosen, known = build.recipe, project_names.list_project_names()
    if chosen is not None and chosen not in known:  # people call a recipe by what it builds, too
        chosen = next((name for name in known if load_project(name).distribution == chosen), chosen)
    names = [chosen] if chosen else known if build.by_recipe else []
    recipes = [load_project(name) for name in names]
    need_recipe = set(split_wheels.group_device_wheels(wheels)) if build.by_recipe else set()
    expected: dict[Path, audited_wheel.WheelExpectation] = {}
    for wheel in (*wheels, *listed):
        distribution, _, tags = wheel.name.partition("-")  # whether it is a wheel's name, a check tells
        windows = "-win_" in tags
        of_wheel = [
            recipe for recipe in recipes if audited_wheel.is_same_name(recipe.distribution, distribution)
        ]
        if build.recipe and wheel in need_recipe:
            of_wheel = recipes  # whatever the wheel is called
        recipe = of_wheel[0] if of_wheel else None
        if recipe is None and wheel in need_recipe:
            builds = ", ".join(f"{project.distribution} ({project.name})" for project in recipes)
            raise errors.UsageError(
                f"{wheel.name}: no recipe builds {distribution}",
                tip=f"name one: --recipe NAME ({builds}); without --by-recipe, --gfx, --rocm and "
                "--python any wheel is audited",
            )
        expected[wheel] = audited_wheel.WheelExpectation(
            recipe,
            "windows" if windows else "linux",
            targets=build.targets if recipe is not None else None,
            rocm_version=build.rocm_version if recipe is not None else None,
            strict=build.strict,
        )
    if build.recipe and not any(expectation.project for expectation in expected.values()):
        raise errors.UsageError(
            f"--recipe {build.recipe}: no wheel of the set is of {recipes[0].distribution}",
            tip="leave --recipe out: any wheel can be audited without",
        )
    return expected


def _write_files(audit: AuditResult, options: dict[str, Any]) -> None:
    from rocm_wheels.audit import outputs, page

    if options["sarif"] is not None:
        outputs.write_sarif_file(options["sarif"], audit.reports, __version__)
    if options["junit"] is not None:
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        outputs.write_audit_junit(options["junit"], audit.reports, when=when, host=machine_platform.node())
    if options["html"] is not None:
        write_atomically(options["html"], page.render_audit_page(audit.wheels, __version__, audit.of_set))


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


def _describe_check(check: Any) -> dict[str, object]:

    return {
        "id": check.id,
        "name": check.name,
        "severity": check.severity,
        "looks_for": check.looks_for,
        "why": check.why,
        "fix": check.fix,
        "needs_recipe": check.needs_recipe,
        "needs_set": check.kind == "set",
    }
