"""Package a built wheel: what the steps repair, fat, … have in common.

Such a step takes the wheel of the step before it, makes files of it in a scratch folder, checks them when
they are what people install, and puts them where they belong. Only there, in ``_deliver``, an output wheel
becomes final. A result that is whole and wanted in another output folder is copied there, not made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels.core.files import hash_file
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import wheel_checks
from rocm_wheels.pipeline.outputs import OutputFile, StepStamp, deliver_files, refuse_foreign_wheels
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import NotYet, Step
from rocm_wheels.pipeline.step_run import StepRun

if TYPE_CHECKING:
    from rocm_wheels.audit import audited_wheel


@dataclass(frozen=True)
class PackagedFiles:
    """What a step made in its scratch folder.

    ``wheel`` is the project's own; ``parts``: device wheels that were split off; ``debug_archive``: what was
    stripped. ``note`` says in some words what was done; ``facts`` are for the stamp. ``rewritten``: libraries
    or Python files changed, so that it is imported again.
    """

    wheel: Path
    parts: tuple[Path, ...] = ()
    debug_archive: Path | None = None
    note: str = ""
    rewritten: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """All of them, the wheel first."""
        return [self.wheel, *self.parts, *([self.debug_archive] if self.debug_archive else [])]


MakeFiles = Callable[[Path, Path], PackagedFiles]  # of a wheel, in a folder


def settle_packaging(planner: Planner, step: Step, inputs: dict[str, str], command: str) -> Step:
    """Return a step with its inputs, its wheel among them, and its verdict. Raises NotYet."""
    (needed,) = step.after
    # a build that only gets another lock has another wheel afterwards
    if needed not in planner.settled or planner.settled[needed].verdict != "skip":
        raise NotYet(needed)
    inputs["wheel"] = planner.facts.done[needed].stamp.outputs[0].sha256
    step = decide_verdict(planner, step, inputs, command=command)
    if step.verdict != "skip" or not step.delivers:
        return step
    stamp = planner.facts.done[step.id].stamp
    if planner.facts.request.verify and not stamp.facts.get("verified"):
        return replace(step, verdict="run", why="not verified")
    if stamp.facts.get("stated") and (bare := _find_without_statement(stamp)):
        return replace(step, verdict="run", why=f"the wheel has no statement: {bare.name}")
    folder = planner.facts.request.wheels_folder
    if not any(Path(output.path).parent == folder for output in stamp.outputs):
        return replace(step, verdict="run", why=f"the wheel is missing in {folder}", brought=True)
    return step


def _find_without_statement(stamp: StepStamp) -> Path | None:
    from rocm_wheels.wheels import statement

    paths = (Path(output.path) for output in stamp.outputs if output.path.endswith(".whl"))
    return next((path for path in paths if not statement.has_statement(path)), None)


def run_packaging(step_run: StepRun, make: MakeFiles) -> bool:
    """Make the files of a step and put them where they belong; tell whether they only had to be copied.

    AuditError for a wheel that fails its checks: it is set aside, and the output stays as it was.
    """
    project = load_project(str(step_run.step.project))
    source = step_run.facts.done[step_run.step.after[0]].stamp
    if step_run.step.delivers:
        refuse_foreign_wheels(
            step_run.facts.workspace,
            step_run.facts.request.wheels_folder,
            project.distribution,
            step_run.ready.python_tag,
            step_run.planner.describe_purpose(step_run.step),
        )
    done = step_run.facts.done.get(step_run.step.id)
    if done is not None and step_run.step.brought:
        _deliver(step_run, project, [Path(output.path) for output in done.stamp.outputs], done.stamp.facts)
        return True
    scratch = step_run.facts.workspace.fresh_wheels / step_run.step.id
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
    scratch.mkdir(parents=True)
    made = make(Path(source.outputs[0].path), scratch)
    own = {name: value for name, value in source.facts.items() if name not in ("built", "predicate")}
    own["stated"] = "predicate" in source.facts or bool(source.facts.get("stated"))
    facts = {**own, **made.facts, "note": _join_notes(source.facts.get("note"), made.note)}
    if not step_run.step.delivers:
        _keep_for_next_step(step_run, made, facts)
    else:
        report = _check_files(step_run, made, source) if step_run.facts.request.verify else None
        facts = {**facts, "verified": report is not None}
        facts |= {"targets": list(report.targets), "libraries": report.libraries} if report else {}
        carried = [Path(output.path) for output in source.outputs[1:]]  # what an earlier step stripped
        _deliver(step_run, project, [*made.files, *carried], facts)
    shutil.rmtree(scratch)
    return False


def _join_notes(*notes: str | None) -> str:
    return "; ".join(note for note in notes if note)


def _keep_for_next_step(step_run: StepRun, made: PackagedFiles, facts: Mapping[str, Any]) -> None:
    """Keep the wheel in the work directory; what was stripped is delivered with the last step's files."""
    kept = step_run.keep_files(made.files)
    unchecked = {**facts, "verified": False}  # only what is delivered is checked
    step_run.record_success(tuple(map(OutputFile.from_path, kept)), **unchecked)


def _check_files(step_run: StepRun, made: PackagedFiles, source: StepStamp) -> audited_wheel.AuditReport:
    """Check what people will install, and import it where it is not what was imported before.

    A wheel that needs others of ours was imported beside them when it was built; here they may be another
    set's by now.
    """
    from rocm_wheels.audit import verify

    project = load_project(str(step_run.step.project))
    expected = wheel_checks.make_expectation(
        step_run, str(source.facts["version"]), source.facts.get("requirements") or ()
    )
    report = verify.verify_wheel(made.wheel, expected, parts=made.parts)
    needs_ours = any(load_project(name).build.installed_for_others for name in project.build.after)
    if report.passed and made.rewritten and not needs_ours:
        report = wheel_checks.import_checked_wheel(step_run, report, expected, installed=False)
    return wheel_checks.judge_report(step_run, report)


def _deliver(step_run: StepRun, project: Project, files: Sequence[Path], facts: Mapping[str, Any]) -> None:
    """Put final files into the output folder, and record them."""
    delivered = deliver_files(
        step_run.facts.workspace,
        files,
        step_run.facts.request.wheels_folder,
        distribution=project.distribution,
        python_tag=step_run.ready.python_tag,
        purpose=step_run.planner.describe_purpose(step_run.step),
    )
    outputs = list(map(OutputFile.from_path, delivered, [hash_file(file) for file in files]))
    libraries = facts.get("libraries") or {}
    stamped = {name: value for name, value in facts.items() if name != "libraries"}
    step_run.record_success(tuple(outputs), **stamped)
    for number, output in enumerate(outputs):
        step_run.record_event(
            "output",
            path=output.path,
            size=output.size,
            sha256=output.sha256,
            project=project.name,
            version=facts["version"],
            targets=facts["targets"] if facts.get("verified") else None,
            libraries=libraries if number == 0 else {},
            content=facts["content"],
            note=facts.get("note") or "",
        )
