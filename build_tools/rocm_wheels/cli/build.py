"""``rocm install``, ``build``, ``plan``, ``runs why`` and ``clean``: build wheels, tell why, tidy up."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, build_options, catalogue
from rocm_wheels.cli.command import Group, Option, command, complete_with, option, widen_command
from rocm_wheels.cli.options import Duration, GivenPath
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import environment_numbers, errors, log, shell, tables
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from rocm_wheels.pipeline.plan import PlannedRun
    from rocm_wheels.pipeline.run import RunSummary


class _OptionsFirst(Group):
    """A group before whose command its options may stand, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put options behind the command that they stand before."""
        params = [param for known in self.commands.values() for param in known.get_params(ctx)]
        flags = {name for param in params if isinstance(param, Option) for name in param.list_flags()}
        flags.update(ctx.help_option_names)
        end = 0
        while end < len(args) and args[end].startswith("-"):
            end += 1 if args[end] in flags or "=" in args[end] else 2
        if args[end : end + 1] and args[end] in self.commands:
            args = [args[end], *args[:end], *args[end + 1 :]]
        return super().parse_args(ctx, args)


@click.group("build_prod_wheels.py", cls=_OptionsFirst)
def production() -> None:
    """Install the ROCm packages and build the wheels of PyTorch and its companions.

    Options may also stand before the command.

    \b
    Example:
      build_prod_wheels.py build --install-rocm --rocm-index URL \\
          --gfx gfx942,gfx1100 --output-dir dist
    """


@command("rocm install")
@build_options.sdk_options
@catalogue.JSON
def install_rocm(as_json: bool, **options: Any) -> None:
    """Install the ROCm packages into a build environment, and print what they are.

    The environment is in the work directory, one for each Python and ROCm request; `build` finds it there. An
    unpinned version is resolved again each time.

    \b
    Examples:
      rocm-wheels rocm install --rocm-index URL --rocm ==7.10.0
      rocm-wheels rocm install --find-links dist --rocm-extras device-gfx942
    """
    from rocm_wheels.core.files import WAIT_TIP, lock_folder
    from rocm_wheels.core.workspace import Workspace
    from rocm_wheels.pipeline.step_kinds.install_rocm import install_rocm_now

    env = boundary.read_environment()
    _, work = build_options.resolve_folders(options)
    with lock_folder(work, purpose="install-rocm", tip=f"{WAIT_TIP}, or give this run another --work-dir"):
        ready = install_rocm_now(build_options.make_sdk_request(options, env), Workspace(work), env)
    document: dict[str, Any] = {
        "python": ready.environment.python,
        "version": str(ready.sdk.version),
        "root": ready.sdk.root,
        "targets": list(ready.sdk.targets),
    }
    rows = [(name, ", ".join(value) if name == "targets" else value) for name, value in document.items()]
    print_result(document, [f"{name:8} {value}" for name, value in rows], as_json=as_json)


@command("build", first=(*build_options.FIRST, "--dry-run"), apart=build_options.APART)
@build_options.sdk_options
@build_options.project_options
@build_options.build_options
@option(
    "--clean/--no-clean",
    default=False,
    show_default=True,
    help="First delete the build tree of this configuration.",
)
@catalogue.JOBS.but(help="Steps at a time [default: by cores].")
@option("--keep-going", is_flag=True, help="After a failure, continue with steps that do not need it.")
@catalogue.DRY_RUN.but(aliases=("--plan",), help="Show the plan, and build nothing (also --plan).")
@catalogue.JSON
def build(**options: Any) -> None:
    """Build, check and collect the wheels of every source tree, or of the PROJECTs.

    A PROJECT has the name of its recipe or of its wheel (torch for pytorch); a list with commas is several.
    Run it again to build what is missing: a wheel whose inputs did not change is not built again, and a
    killed build continues in its build tree.

    \b
    Example:
      rocm-wheels build --install-rocm --rocm-index URL \\
          --gfx gfx942,gfx1100 --python 3.12 --output-dir dist
      rocm-wheels runs show       # in another terminal
    """
    from rocm_wheels.core import installation
    from rocm_wheels.pipeline import local_executor
    from rocm_wheels.pipeline.run import build_wheels

    if not options["dry_run"]:
        installation.require_extras("a build", "build")
    with boundary.serve_forks() as server:
        env = boundary.read_build_environment()
        request = build_options.make_wheels_request(options, env)
        if options["dry_run"]:
            print_plans(request, env, as_json=options["as_json"], details=True, of_done=False)
            return
        jobs = options["jobs"] or environment_numbers.read_number(env, "ROCM_WHEELS_JOBS")
        how = local_executor.ExecutionOptions(jobs, options["keep_going"], server)
        summary = build_wheels(request, env, how, boundary.format_command_line())
    _print_summary(summary, env, as_json=options["as_json"])
    if summary.failure is None and summary.records:
        for line in _format_install_lines(summary, request.output, env):
            log.log_note(line)
    if summary.failure is not None:
        raise summary.failure


production.add_command(widen_command(install_rocm, [build_options.make_pre_option()]), "install-rocm")
production.add_command(widen_command(build, build_options.make_therock_options()))


def print_plans(
    request: Any, env: Mapping[str, str], *, as_json: bool, details: bool, of_done: bool = True
) -> tuple[PlannedRun, ...]:
    """Print the plan of each Python and target set, as JSON a list where there are several; return them."""
    from rocm_wheels.pipeline import preflight
    from rocm_wheels.pipeline.plan import (
        check_request,
        format_plan,
        log_rocm_and_targets,
        make_plan_json,
        plan_cells,
    )

    examined = check_request(request, env)
    plans = plan_cells(examined)
    findings = dict.fromkeys(finding for planned in plans for finding in preflight.preflight_plan(planned))
    for line in preflight.format_findings(tuple(findings)):
        log.log_note(line)
    if as_json:
        documents = [make_plan_json(planned.plan_file) for planned in plans]
        print_result(documents if len(documents) > 1 else documents[0], (), as_json=True)
        return plans
    for planned in plans:
        log_rocm_and_targets(planned)
        if len(plans) > 1:
            click.echo(f"{planned.facts.cell}:")
        click.echo(format_plan(planned.plan, details=details, of_done=of_done))
    return plans


def _print_summary(summary: RunSummary, env: Mapping[str, str], *, as_json: bool) -> None:
    """Print the table (or JSON) and append it to GitHub's step summary."""
    from rocm_wheels.pipeline import status

    table = status.format_summary(summary.rows, width=tables.get_output_width())
    print_result(summary.rows, [table], as_json=as_json)
    current = all(row.outcome in ("up to date", "packaged") for row in summary.rows)
    duration = tables.format_duration(summary.seconds)
    runs = f"run{'s'[: len(summary.records) > 1]} {', '.join(record.name for record in summary.records)}"
    if not summary.records:
        log.log_note(f"nothing to do: every wheel is up to date ({duration})")
    elif summary.failure is None:
        log.log_note(f"{runs}: done in {duration}{'; nothing had to be built' if current else ''}")
    else:
        log.log_note(f"{runs}: ended after {duration}")
    sys.stdout.flush()
    failure = ""
    if summary.failure is not None:
        failure = f"\n{tables.fence_markdown(errors.explain_error(summary.failure))}"
    boundary.append_step_summary(env, status.format_markdown_summary(summary.rows) + failure)


_MOST_INSTALL_LINES = 3


def _format_install_lines(summary: RunSummary, output: Path, env: Mapping[str, str]) -> list[str]:
    """Return a command for each Python and target set that puts its wheels into the active environment.

    Without --force-reinstall an installer keeps what it has of the same version, edited or not.
    """
    wheels: dict[tuple[str, str], list[Path]] = {}
    for row in summary.rows:
        if row.wheel:
            wheels.setdefault((row.python, row.target_set), []).append(output / row.target_set / row.wheel)
    installer = ["uv", "pip"] if shutil.which("uv", path=env.get("PATH")) else ["python", "-m", "pip"]
    if len(wheels) > _MOST_INSTALL_LINES:
        return []
    return [
        "reinstall: "
        + shell.format_command([*installer, "install", "--force-reinstall", "--no-deps", *files])
        for files in wheels.values()
    ]


_FILE = GivenPath()


@command("plan", first=(*build_options.FIRST, "--output"), apart=build_options.APART)
@build_options.sdk_options
@build_options.project_options
@build_options.build_options
@catalogue.OUTPUT.but(help="Write the plan, for `run-step`.")
@option(
    "--format",
    "form",
    type=click.Choice(["json", "snakemake"]),
    default="json",
    show_default=True,
    help="What -o writes: the plan, or a workflow of Snakemake and the plan beside it.",
)
@catalogue.JSON
def plan(output: Path | None, form: str, as_json: bool, **options: Any) -> None:
    """Show what `build` would do with the same options: each step, whether it runs, and why.

    Nothing is installed or built. What a step has yet to find out is shown as `known after` it. `--jobs`,
    `--keep-going` and `--clean` are not part of a plan. `build --dry-run` also shows command, environment and
    inputs of steps that run; --json those of all steps.

    \b
    Example:
      rocm-wheels plan --install-rocm --rocm-index URL --gfx gfx942 \\
          --output-dir dist -o plan.json
      rocm-wheels run-step build-pytorch-cp312 --plan plan.json
    """
    from rocm_wheels.pipeline.plan import write_plan

    if form != "json" and output is None:
        raise errors.UsageError(f"--format {form} is written to a file", tip="name it: -o Snakefile")
    env = boundary.read_build_environment()
    request = build_options.make_wheels_request(options, env)
    if output is not None and form == "json" and (request.per_target or len(request.interpreters) > 1):
        raise errors.UsageError(
            "a plan that is kept is of one Python and one set of targets",
            tip="name one of each; --format snakemake takes all of them",
        )
    plans = print_plans(request, env, as_json=as_json, details=False)
    if output is not None and form == "snakemake":
        from rocm_wheels.executors import snakemake

        cells = [planned.plan_file for planned in plans]
        written = snakemake.write_snakefile(cells, output.absolute())
        line = f"snakemake --snakefile {shlex.quote(str(output))} --cores all"
        log.log_note(f"wrote {output} and {', '.join(map(str, written))}; `{line}` runs it")
    elif output is not None:
        write_plan(output.absolute(), plans[0].plan_file)
        log.log_note(
            f"wrote {output}; `rocm-wheels run-step STEP --plan {shlex.quote(str(output))}` does a step of it"
        )


@command("runs why")
@click.argument("step", shell_complete=complete_with("list_steps"))
@click.argument("run", required=False, metavar="[RUN]")
@catalogue.WORK_DIR
@catalogue.JSON
def why(step: str, run: str | None, as_json: bool, **options: Any) -> None:
    """Show whether a step of a run would run again now, and what changed since it was done.

    The run is the newest. With RUN, named as for `runs show`, it also shows why the step ran in it, or why
    not.

    \b
    Examples:
      rocm-wheels runs why build-pytorch-cp312 --work-dir work
      rocm-wheels runs why build-pytorch-cp312 20261122-101500-1a2b
    """
    from rocm_wheels.pipeline import outputs, planner
    from rocm_wheels.pipeline.plan import check_request, explain_step, plan_run, read_plan

    env = boundary.read_build_environment()
    file = read_plan(_find_plan_of_run(options, run, step))
    then = file.plan.find_step(step)
    planned: PlannedRun = plan_run(check_request(file.request, env))
    planned_step = planned.plan.find_step(step)
    done = planned.facts.done.get(step)
    changes: list[str] = []
    if done is not None:
        changes += outputs.describe_changes(
            planner.make_comparable_stamp(planned_step, done.stamp), planned_step.inputs
        )
        changes += [done.fault] if done.fault else []
    never = done is None and planned_step.kind != "install-rocm"
    document = {
        "step": step,
        "runs_again": planned_step.verdict != "skip",
        "why": planned_step.why,
        "changes": changes,
        "has_run": not never,
    }
    lines = [explain_step(planned_step, never=never, changes=changes)]
    if run is not None:
        document |= {"run": run, "then": then.why}
        lines.append(f"  in run {run}: {then.why}")
    print_result(document, lines, as_json=as_json)


def _find_plan_of_run(options: Mapping[str, Any], name: str | None, step: str) -> Path:
    """Return the plan that a run went by: its own, or the one that `run-step` was given.

    Without a name, of the newest run that has the step: one before it may be of another Python.
    """
    from rocm_wheels.core.workspace import Workspace
    from rocm_wheels.pipeline import run_record

    workspace = Workspace(build_options.resolve_folders(options)[1])
    if name is not None:
        run: run_record.RecordedRun | None = build_options.find_run(workspace, name)
    else:
        ids = run_record.list_run_ids(workspace.runs)[:_RUNS_LOOKED_AT]
        runs = (run_record.read_run(workspace.runs / run_id) for run_id in ids)
        planned = (run for run in runs if step in {*run.steps, *(planned["id"] for planned in run.planned)})
        run = next(planned, None) or run_record.read_newest_run(workspace.runs)
    if run is None or not run.begun.text("plan"):
        raise errors.UsageError(f"no build has run in {workspace.root}", tip="name its --work-dir")
    return Path(run.begun.text("plan"))


_RUNS_LOOKED_AT = 20  # of the newest runs, for one that has a step
_KIND_NAMES = ("trees", "environments", "runs", "rejected", "fresh", "built", "steps", "set-aside")


@command("clean")
@catalogue.takes(catalogue.SOURCE_DIR, catalogue.WORK_DIR)
@option("--older-than", type=Duration(), metavar="TIME", help="Only what was unused for so long: 7d, 12h.")
@option(
    "--kind", "what", multiple=True, type=click.Choice(_KIND_NAMES), help="Only this kind; may be repeated."
)
@catalogue.takes(catalogue.DRY_RUN, catalogue.JSON)
def clean_command(**options: Any) -> None:
    """Delete what builds left in a work directory, and build trees that wait in its checkouts.

    \b
    trees         build trees waiting to be continued
    environments  build environments, with ROCm in them
    runs          records and logs of runs that have ended
    rejected      wheels that failed their checks
    fresh         wheels left behind before they were checked
    built         wheels as they were built; a missing one is built again
    steps         what each step last did: without it, it is done again
    set-aside     somebody else's build trees that --clean set aside

    The last three go only if --kind names them. Wheels in an output folder, checkouts, and the build tree in
    use in a checkout, are not touched. With --work-dir alone, waiting trees in checkouts stay.

    \b
    Example:
      rocm-wheels clean --older-than 30d --dry-run
      rocm-wheels clean --kind runs --kind rejected --older-than 30d
    """
    from rocm_wheels.pipeline import clean

    older_than = options["older_than"]
    if not (options["dry_run"] or options["what"] or older_than is not None):
        raise errors.UsageError(
            "nothing selected to delete: give --older-than or --kind",
            tip="--dry-run alone lists everything",
        )
    env, workspace = boundary.read_environment(), build_options.find_workspace(options)
    kinds = (*options["what"], "remains") if options["what"] else clean.DEFAULT_LEFTOVER_KINDS
    sources: dict[str, Path] = {}  # checkouts in which trees wait: none with a --work-dir alone
    if options["work_dir"] is None or options["root_checkout_dir"] is not None:
        root = (options["root_checkout_dir"] or build_options.find_default_root()).absolute()
        folders = {name: root / name for name in project_names.list_project_names()}
        sources = {name: folder for name, folder in folders.items() if folder.is_dir()}
    with ExitStack() as held:
        if not options["dry_run"]:
            held.enter_context(clean.hold_for_cleaning(workspace, sources.values(), env))
        found = clean.find_leftovers(workspace, kinds, sources=sources, env=env)
        pieces = clean.select_leftovers(found, older_than, now=time.time())
        for piece in () if options["dry_run"] else pieces:
            clean.remove_leftover(piece)
    total = sum(piece.size for piece in pieces)
    ages = [tables.format_duration(max(time.time() - piece.used, 0)) for piece in pieces]
    rows = [
        (piece.kind, tables.format_size(piece.size), age, str(piece.path))
        for piece, age in zip(pieces, ages, strict=True)
    ]
    document = {"deleted": not options["dry_run"], "size": total, "pieces": pieces}
    print_result(document, tables.align_rows(rows, right=(1, 2)), as_json=options["as_json"])
    how = "would be deleted" if options["dry_run"] else "deleted"
    count = f"{tables.format_count(len(pieces), 'item')} {how}, {tables.format_size(total)}"
    log.log_note(count if pieces else "nothing to delete")
