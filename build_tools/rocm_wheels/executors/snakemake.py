"""Plans as a workflow of Snakemake, whose own plugins run it on Slurm, Kubernetes, AWS, Google, LSF or PBS.

A workflow is of all Pythons and target sets of a request, with a plan for each; a step that is the same for
several is one rule. It starts ``run-step``, which does nothing for a step that is current, and leaves a mark
beside the workflow. The plan is an input of each rule, so that a new plan asks every step again.

Plans share source trees and environments, so that a step also waits for those of the plans before it that
work in the same: a build for the builds of its project, and for all that is built and packaged for another
set of its Python. Nothing uses ROCm before that of every Python is installed: they share a path to it, which
may lead into an environment that is made anew.

Each rule says what its job asks a cluster for, in the words that plugins read: ``threads``, ``mem_mb``,
``disk_mb``, ``runtime`` in minutes, and ``gpu`` for tests. Memory and minutes follow the threads that a job
gets in the end (``--max-threads``). A build that is tried again (``--retries``) runs half as many compilers:
what may go well the next time was out of memory, as a rule. All machines must see the folders of the plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.core import errors, files, installation, shell, workspace
from rocm_wheels.models import project
from rocm_wheels.pipeline import estimates, machine
from rocm_wheels.pipeline.plan import PlanFile, write_plan
from rocm_wheels.pipeline.step import COMPILING_KINDS, PACKAGING_KINDS, TEST_KINDS, Step

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
# A rule for each step of {plans}, written by rocm-wheels plan.
# Run it: snakemake --snakefile {snakefile} --cores all
# Elsewhere: --executor, with a plugin of Snakemake; every machine must see the folders of the plans.

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


def place_plans(cells: Sequence[PlanFile], snakefile: Path) -> dict[Path, PlanFile]:
    """Return the plans of a workflow by where they lie, which is beside it; of several each has a name."""
    if len(cells) == 1:
        return {snakefile.with_name(f"{snakefile.name}.plan.json"): cells[0]}
    names = ["-".join(filter(None, (cell.plan.python, cell.request.target_set))) for cell in cells]
    return {
        snakefile.with_name(f"{snakefile.name}.{name}.plan.json"): cell
        for name, cell in zip(names, cells, strict=True)
    }


def write_snakefile(cells: Sequence[PlanFile], snakefile: Path) -> tuple[Path, ...]:
    """Write plans and the workflow that goes by them, each whole or not at all; return where the plans are.

    Raises UsageError for a path that Snakemake would read as a pattern; DataError where two steps would be
    one rule.
    """
    if "{" in str(snakefile) or "}" in str(snakefile):
        raise errors.UsageError(
            f"{snakefile}: Snakemake takes braces for a pattern", tip="choose another folder"
        )
    text = make_snakefile(cells, snakefile)
    plans = place_plans(cells, snakefile)
    for path, file in plans.items():
        write_plan(path, file)
    files.write_atomically(snakefile, text)
    return tuple(plans)


def make_snakefile(cells: Sequence[PlanFile], snakefile: Path) -> str:
    """Return the text of a workflow that is to lie at ``snakefile``. See ``write_snakefile``."""
    history = estimates.read_history(workspace.Workspace(cells[0].request.work).runs)
    plans = place_plans(cells, snakefile)
    installs = [step.id for file in cells for step in file.plan if step.kind == "install-rocm"]
    waits: dict[str, dict[str, None]] = {}  # step → those that it waits for, in their order
    rules: dict[str, tuple[Step, Path]] = {}
    in_tree: dict[str, str] = {}  # project → the step that was last in its tree
    in_environment: dict[str, list[str]] = {}  # Python → what the plan before has in its environment
    for path, file in plans.items():
        new = [step for step in file.plan if step.id not in rules]
        before, using = in_environment.get(file.plan.python, []), list[str]()
        for step in new:
            needed = list(step.after)
            needed += installs if step.kind != "install-rocm" else []
            if step.kind in (*COMPILING_KINDS, "configure"):
                needed += before
                needed += filter(None, [in_tree.get(str(step.project))])
                in_tree[str(step.project)] = step.id
            if step.kind in (*COMPILING_KINDS, *PACKAGING_KINDS, "configure"):
                using.append(step.id)
            waits[step.id] = dict.fromkeys(needed)
            rules[step.id] = step, path
        in_environment[file.plan.python] = using
    marks = {name: snakefile.with_name(f"{snakefile.name}.done") / name for name in rules}
    names = {name: re.sub(r"\W", "_", name) for name in rules}
    if len(set(names.values())) < len(names):
        raise errors.DataError(f"two steps of the plan would be one rule: {', '.join(sorted(names))}")
    texts = []
    for name, (step, path) in rules.items():
        threads, resources = _size_job(step, len(plans[path].plan.targets), history)
        texts.append(
            _RULE.format(
                name=names[name],
                inputs=_list_strings([path, *(marks[needed] for needed in waits[name])]),
                mark=repr(str(marks[name])),
                threads=threads,
                resources=",\n        ".join(resources),
                command=repr(_make_shell_line(step, path)),
            )
        )
    head = _HEAD.format(
        plans=", ".join(map(str, plans)), snakefile=snakefile, marks=_list_strings(list(marks.values()))
    )
    return head + "".join(texts)


def _list_strings(paths: list[Path]) -> str:
    return ",\n        ".join(repr(str(path)) for path in paths)


def _count_threads(step: Step) -> int:
    return (
        BUILD_THREADS if step.kind == "build" else TEST_THREADS if step.kind in TEST_KINDS else OTHER_THREADS
    )


def _size_job(step: Step, targets: int, history: estimates.History) -> tuple[int, list[str]]:
    """Return the threads of a step's job, and what it asks for, as Python: memory and time follow threads."""
    threads = _count_threads(step)
    name: str = step.kind
    if step.kind == "build":
        name = str(step.project)
        targets = targets if project.load_project(name).has_device_code else 1
    single, several = (
        estimates.estimate_step(name, max(targets, 1), _NO_MACHINE, history, jobs=jobs)
        for jobs in (1, threads)
    )
    shared = max(single.seconds - several.seconds, 0.0) * threads / (threads - 1)
    memory = int(several.memory * MEMORY_MARGIN / threads) // _MIB
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
    return threads, [*resources, "gpu=1"] if step.needs_gpu else resources


def _make_shell_line(step: Step, plan: Path) -> str:
    """Return the line that does a step; Snakemake puts values in braces, so that ours are doubled."""
    line = shell.format_command([*installation.get_own_command(), "run-step", step.id, "--plan", plan])
    line = line.replace("{", "{{").replace("}", "}}")
    return f"MAX_JOBS={{resources.compilers}} {line}" if step.kind == "build" else line
