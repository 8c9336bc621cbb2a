"""Package a built wheel: what the steps repair, fat, … have in common.

Such a step takes the wheel of the step before it, makes files of it in a scratch folder, checks them when
they are what people install, and puts them where they belong. Only there, in ``_deliver``, an output wheel
becomes final. A result that is whole and wanted in another output folder is copied there, not made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels.core.files import hash_file
from rocm_wheels.models.project import load_project
from rocm_wheels.pipeline import outputs, wheel_checks
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import NotYet, Step
from rocm_wheels.pipeline.step_run import StepRun

if TYPE_CHECKING:
    from rocm_wheels.audit import audited_wheel

_ORIGIN_FACTS = ("parts", "commit", "changed", "predicate", "lock_text")  # what repair writes into a wheel


@dataclass(frozen=True)
class PackagedFiles:
    """What a step made in its scratch folder.

    ``wheel`` is the project's own; ``others``: device wheels that were split off. ``note`` says in some words
    what was done; ``facts`` are for the stamp. ``rewritten``: libraries or Python files changed, so that it
    is imported again. ``write_statement`` gives the finished wheel, whose digest it is told, its statement,
    where none lies beside it yet.
    """

    wheel: Path
    others: tuple[Path, ...] = ()
    note: str = ""
    rewritten: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    write_statement: Callable[[str], None] | None = None


MakeFiles = Callable[[Path, Path], PackagedFiles]  # of a wheel, in a folder


def settle_packaging(planner: Planner, step: Step, inputs: dict[str, str], command: str) -> Step:
    """Return a step with its inputs, its wheel among them, and its verdict. Raises NotYet."""
    (needed,) = step.after
    if not planner.is_current(needed):
        raise NotYet(needed)
    inputs["wheel"] = planner.facts.done[needed].stamp.outputs[0].sha256
    step, request = decide_verdict(planner, step, inputs, command=command), planner.facts.request
    if step.verdict != "skip" or not step.delivers:
        return step
    outputs = planner.facts.done[step.id].stamp.outputs
    if any(Path(output.path).parent == request.wheels_folder for output in outputs):
        return step
    return replace(step, verdict="run", why=f"the wheel is missing in {request.wheels_folder}")


def refuse_foreign_wheels(step_run: StepRun) -> None:
    """Raise UsageError for a wheel in the output that that of this step must not replace."""
    outputs.refuse_foreign_wheels(
        step_run.facts.workspace,
        step_run.facts.request.wheels_folder,
        load_project(str(step_run.step.project)).distribution,
        step_run.ready.python_tag,
        step_run.planner.describe_purpose(step_run.step),
    )


def run_packaging(step_run: StepRun, make: MakeFiles) -> None:
    """Make the files of a step and put them where they belong.

    AuditError for a wheel that fails its checks: it is set aside, and the output stays as it was.
    """
    step, facts = step_run.step, step_run.facts
    source, done = facts.done[step.after[0]].stamp, facts.done.get(step.id)
    if step.delivers:
        refuse_foreign_wheels(step_run)
    same = done is not None and done.fault is None and dict(done.stamp.inputs) == step_run.known_inputs
    if done is not None and same and step.delivers:
        # whole, and wanted in another folder
        _deliver(step_run, _list_digests(done.stamp.outputs), done.stamp.facts)
        return
    scratch = facts.workspace.fresh_wheels / step.id
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
    scratch.mkdir(parents=True)
    made = make(Path(source.outputs[0].path), scratch)
    report = _check_files(step_run, made, source) if step.delivers else None
    digests = {made.wheel: report.sha256 if report else hash_file(made.wheel)}
    digests |= {file: hash_file(file) for file in made.others}
    if made.write_statement is not None:
        made.write_statement(digests[made.wheel])
    stamped = {name: value for name, value in source.facts.items() if name not in _ORIGIN_FACTS}
    stamped |= {
        **made.facts,
        "note": "; ".join(filter(None, (source.facts.get("note"), made.note))),
    }
    if not step.delivers:
        kept = step_run.keep_files(list(digests))
        made_files = tuple(map(outputs.OutputFile.from_path, kept, digests.values()))
        step_run.record_success((*made_files, *_find_statements(kept)), **stamped)
    else:
        stamped |= {"targets": list(report.targets)} if report else {}
        _deliver(step_run, digests, stamped, report.libraries if report else {})
    shutil.rmtree(scratch)


def _list_digests(files: Iterable[outputs.OutputFile]) -> dict[Path, str]:
    """Return files with their SHA-256, but for statements: those go wherever their wheel does."""
    paths = {Path(file.path): file.sha256 for file in files}
    return {path: digest for path, digest in paths.items() if path.suffix != ".json"}


def _find_statements(files: Iterable[Path]) -> list[outputs.OutputFile]:
    """Return the statements of wheels as outputs, too: one that is missing is written again."""
    from rocm_wheels.wheels import statement

    places = [statement.locate_statement(file) for file in files if file.suffix == ".whl"]
    return [outputs.OutputFile.from_path(place) for place in places if place.is_file()]


def _check_files(
    step_run: StepRun, made: PackagedFiles, source: outputs.StepStamp
) -> audited_wheel.AuditReport:
    """Check what people will install, and import it where it is not what was imported before.

    A wheel that needs others of ours was imported beside them when it was built; here they may be another
    set's by now.
    """
    from rocm_wheels.audit import verify

    project = load_project(str(step_run.step.project))
    expected = wheel_checks.make_expectation(
        step_run, str(source.facts["version"]), source.facts.get("requirements") or ()
    )
    report = verify.verify_wheel(made.wheel, expected, parts=made.others)
    needs_ours = any(load_project(name).build.installed_for_others for name in project.build.after)
    if report.passed and made.rewritten and not needs_ours:
        report = wheel_checks.import_checked_wheel(step_run, report, expected, installed=False)
    return wheel_checks.judge_report(step_run, report)


def _deliver(
    step_run: StepRun,
    digests: Mapping[Path, str],
    facts: Mapping[str, Any],
    libraries: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Put final files (with their SHA-256, the wheel first) into the output folder, and record them."""
    project = load_project(str(step_run.step.project))
    delivered = outputs.deliver_files(
        step_run.facts.workspace,
        list(digests),
        step_run.facts.request.wheels_folder,
        distribution=project.distribution,
        python_tag=step_run.ready.python_tag,
        purpose=step_run.planner.describe_purpose(step_run.step),
    )
    files = tuple(map(outputs.OutputFile.from_path, delivered, digests.values()))
    step_run.record_success((*files, *_find_statements(delivered)), **facts)
    for number, output in enumerate(files):
        step_run.record_event(
            "output",
            path=output.path,
            size=output.size,
            sha256=output.sha256,
            project=project.name,
            version=facts["version"],
            targets=facts["targets"],
            libraries=(libraries or {}) if number == 0 else {},
            content=facts["content"],
            note=facts["note"],
        )
