"""A plan as a workflow of Snakemake, whose own plugins run it on Slurm, Kubernetes, AWS, Google, LSF or PBS.

A rule is a step: it starts ``run-step``, which does nothing for a step that is current, and leaves a mark
beside the workflow. The plan is an input of each rule, so that a new plan asks every step again. What a
step must only come behind, because it works in the same tree, counts as what it needs: Snakemake has
nothing weaker.

Each rule says what its job asks a cluster for, in the words that plugins read: ``threads``, ``mem_mb``,
``disk_mb``, ``runtime`` in minutes, and ``gpu`` for tests. Memory and minutes follow the threads that a job
gets in the end (``--max-threads``). A build that is tried again (``--retries``) runs half as many compilers:
what may go well the next time was out of memory, as a rule. All machines must see the folders of the plan.

A scheduler lets a job that no node can take wait for ever, without a word (Slurm: PartitionConfig). So the
largest node can be stated: no job asks for more, and a step that cannot do with it is an error here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors, files, machine, shell, tables, workspace
from rocm_wheels.models import project
from rocm_wheels.pipeline import estimates
from rocm_wheels.pipeline.plan import PlanFile, write_plan
from rocm_wheels.pipeline.step import TEST_KINDS, Plan, Step

BUILD_THREADS = 16
TEST_THREADS = 8  # the CPU's half of the tests, and compilers that tests start
OTHER_THREADS = 2  # a step that compiles nothing
MEMORY_MARGIN = 1.25  # and a GiB for what starts the compilers
TIME_MARGIN = 2.0  # nodes differ, and file systems that many share; too short costs an attempt, no result
MINUTES_AT_LEAST = 30
DISK_WHEELS = 2  # a wheel in TMPDIR: unpacked to be checked, and packed; and a GiB for compilers
_MIB, _GIB = 1 << 20, 1 << 30
_NO_MACHINE = machine.MachineResources(1, _GIB, _GIB)  # the number of jobs is given, so this is not asked

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


@dataclass(frozen=True)
class LargestNode:
    """What the largest machine that takes jobs has; ``memory`` in bytes, None: more than any step wants."""

    cpus: int | None = None
    memory: int | None = None


def find_snakemake_plan(snakefile: Path) -> Path:
    """Return where the plan of a workflow lies: beside it."""
    return snakefile.with_name(f"{snakefile.name}.plan.json")


def write_snakefile(
    file: PlanFile, snakefile: Path, env: Mapping[str, str], node: LargestNode = LargestNode()
) -> None:
    """Write a plan and the workflow that goes by it, each whole or not at all.

    Raises UsageError for a path that Snakemake would read as a pattern, and for a step that ``node`` cannot
    take; DataError where two steps would be one rule.
    """
    if "{" in str(snakefile) or "}" in str(snakefile):
        raise errors.UsageError(
            f"{snakefile}: Snakemake takes braces for a pattern", tip="choose another folder"
        )
    plan = find_snakemake_plan(snakefile)
    text = make_snakefile(file, snakefile, env, node)
    write_plan(plan, file)
    files.write_atomically(snakefile, text)


def make_snakefile(
    file: PlanFile, snakefile: Path, env: Mapping[str, str], node: LargestNode = LargestNode()
) -> str:
    """Return the text of a workflow that is to lie at ``snakefile``. See ``write_snakefile``."""
    plan = find_snakemake_plan(snakefile)
    history = estimates.read_history(workspace.Workspace(file.request.work).runs)
    steps = [step for step in file.plan if step.verdict != "left out"]
    marks = {step.id: snakefile.with_name(f"{snakefile.name}.done") / step.id for step in steps}
    names = {step.id: re.sub(r"\W", "_", step.id) for step in steps}
    if len(set(names.values())) < len(names):
        raise errors.DataError(f"two steps of the plan would be one rule: {', '.join(sorted(names))}")
    rules = []
    for step in steps:
        needed = [marks[name] for name in (*step.after, *step.behind) if name in marks]
        threads, resources = _size_job(step, file.plan, history, node)
        rules.append(
            _RULE.format(
                name=names[step.id],
                inputs=_list_strings([plan, *dict.fromkeys(needed)]),
                mark=repr(str(marks[step.id])),
                threads=threads,
                resources=",\n        ".join(resources),
                command=repr(_make_shell_line(step, plan)),
            )
        )
    head = _HEAD.format(plan=plan, snakefile=snakefile, marks=_list_strings(list(marks.values())))
    return head + "".join(rules)


def _list_strings(paths: list[Path]) -> str:
    return ",\n        ".join(repr(str(path)) for path in paths)


def _count_threads(step: Step) -> int:
    return (
        BUILD_THREADS if step.kind == "build" else TEST_THREADS if step.kind in TEST_KINDS else OTHER_THREADS
    )


def _size_job(step: Step, plan: Plan, history: estimates.History, node: LargestNode) -> tuple[int, list[str]]:
    """Return the threads of a step's job, and what it asks for, as Python: memory and time follow threads.

    Raises UsageError for a step that takes more than the largest node has.
    """
    threads = _count_threads(step)
    name: str = step.kind
    targets = max(len(plan.targets), 1)
    if step.kind == "build":
        name = str(step.project)
        sets = {other.cell.target_set for other in plan if other.cell.target_set}
        if not project.load_project(name).has_device_code:
            targets = 1
        elif step.cell.target_set:  # one word of several; a family has a few of all targets
            targets = max(targets // len(sets), 1)
    single, several = (
        estimates.estimate_step(name, targets, _NO_MACHINE, history, jobs=jobs) for jobs in (1, threads)
    )
    shared = max(single.seconds - several.seconds, 0.0) * threads / (threads - 1)
    memory = int(several.memory * MEMORY_MARGIN / threads) // _MIB
    fitting = min(threads, node.cpus or threads)
    if node.memory is not None:
        fitting = min(fitting, (node.memory - _GIB) // max(memory * _MIB, 1))
    if fitting < 1:
        raise errors.UsageError(
            f"{step.id} takes {tables.format_size(_GIB + memory * _MIB)} of memory with one compiler, and"
            f" --max-memory is {tables.format_size(node.memory)}",
            tip="name a larger node, or build on another machine",
        )
    alone, together = (int(part * TIME_MARGIN / 60) for part in (single.seconds - shared, shared))
    resources = [
        f"mem_mb=lambda wildcards, threads: {_GIB // _MIB} + {memory} * threads",
        f"disk_mb={(several.wheel * DISK_WHEELS + _GIB) // _MIB}",
        f"runtime=lambda wildcards, threads: max({alone + 1} + {together} // threads, {MINUTES_AT_LEAST})",
    ]
    if step.kind == "build":
        resources.append(
            "compilers=lambda wildcards, threads, attempt: max(threads // 2 ** (attempt - 1), 1)"
        )
    return fitting, [*resources, "gpu=1"] if step.needs_gpu else resources


def _make_shell_line(step: Step, plan: Path) -> str:
    """Return the line that does a step; Snakemake puts values in braces, so that ours are doubled."""
    line = shell.format_command([*workspace.get_own_command(), "run-step", step.id, "--plan", plan])
    line = line.replace("{", "{{").replace("}", "}}")
    return f"MAX_JOBS={{resources.compilers}} {line}" if step.kind == "build" else line
