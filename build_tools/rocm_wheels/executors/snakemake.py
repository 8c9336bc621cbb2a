"""A plan as a workflow of Snakemake, whose own plugins run it on Slurm, Kubernetes, AWS, Google, LSF or PBS.

A rule is a step: it starts ``run-step``, which does nothing for a step that is current, and leaves a mark
beside the workflow. The plan is an input of each rule, so that a new plan asks every step again. What a
step must only come behind, because it works in the same tree, counts as what it needs: Snakemake has
nothing weaker.

Each rule says what a job of Slurm would ask for (``size_job``) in the words that plugins read: ``threads``,
``mem_mb``, ``disk_mb``, ``runtime`` in minutes, and ``gpu`` for tests. All machines must see the folders of
the plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.core import errors, files, shell, workspace
from rocm_wheels.executors import slurm_jobs
from rocm_wheels.pipeline import estimates
from rocm_wheels.pipeline.plan import PlanFile, write_plan
from rocm_wheels.pipeline.step import Step

_HEAD = """\
# A rule for each step of {plan}, written by rocm-wheels plan.
# Run it: snakemake --snakefile {snakefile} --cores all
# Elsewhere: --executor, with a plugin of Snakemake; every machine must see the folders of the plan.

rule all:
    input:
        {marks},
"""

_RULE = """
rule {name}:
    input:
        {inputs},
    output:
        touch({mark}),
    threads: {threads}
    resources:
        {resources},
    shell:
        {command}
"""


def find_snakemake_plan(snakefile: Path) -> Path:
    """Return where the plan of a workflow lies: beside it."""
    return snakefile.with_name(f"{snakefile.name}.plan.json")


def write_snakefile(file: PlanFile, snakefile: Path, env: Mapping[str, str]) -> None:
    """Write a plan and the workflow that goes by it, each whole or not at all.

    Raises UsageError for a path that Snakemake would read as a pattern, DataError where two steps would be
    one rule.
    """
    if "{" in str(snakefile) or "}" in str(snakefile):
        raise errors.UsageError(
            f"{snakefile}: Snakemake takes braces for a pattern", tip="choose another folder"
        )
    plan = find_snakemake_plan(snakefile)
    text = make_snakefile(file, snakefile, env)
    write_plan(plan, file)
    files.write_atomically(snakefile, text)


def make_snakefile(file: PlanFile, snakefile: Path, env: Mapping[str, str]) -> str:
    """Return the text of a workflow that is to lie at ``snakefile``. See ``write_snakefile``."""
    plan = find_snakemake_plan(snakefile)
    history = estimates.read_history(workspace.Workspace(file.request.work).runs, env)
    steps = [step for step in file.plan if step.verdict != "left out"]
    marks = {step.id: snakefile.with_name(f"{snakefile.name}.done") / step.id for step in steps}
    names = {step.id: re.sub(r"\W", "_", step.id) for step in steps}
    if len(set(names.values())) < len(names):
        raise errors.DataError(f"two steps of the plan would be one rule: {', '.join(sorted(names))}")
    rules = []
    for step in steps:
        needed = [marks[name] for name in (*step.after, *step.behind) if name in marks]
        size = slurm_jobs.size_job(step, file.plan, history, None, None)
        rules.append(
            _RULE.format(
                name=names[step.id],
                inputs=_list_strings([plan, *dict.fromkeys(needed)]),
                mark=repr(str(marks[step.id])),
                threads=size.cpus,
                resources=_list_resources(size),
                command=repr(_make_shell_line(step, plan)),
            )
        )
    head = _HEAD.format(plan=plan, snakefile=snakefile, marks=_list_strings(list(marks.values())))
    return head + "".join(rules)


def _list_strings(paths: list[Path]) -> str:
    return ",\n        ".join(repr(str(path)) for path in paths)


def _list_resources(size: slurm_jobs.JobSize) -> str:
    resources: dict[str, int | None] = {"mem_mb": size.memory, "disk_mb": size.disk, "runtime": size.minutes}
    resources["gpu"] = 1 if size.gpu else None
    return ",\n        ".join(f"{name}={value}" for name, value in resources.items() if value is not None)


def _make_shell_line(step: Step, plan: Path) -> str:
    """Return the line that does a step; Snakemake puts values in braces, so that ours are doubled."""
    line = shell.format_command([*workspace.get_own_command(), "run-step", step.id, "--plan", plan])
    line = line.replace("{", "{{").replace("}", "}}")
    return f"MAX_JOBS={{threads}} {line}" if step.kind == "build" else line
