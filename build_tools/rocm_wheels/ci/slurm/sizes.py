"""What a job asks of its node, from what the step is expected to take, with margins that are stated here.

The figures are those of the plan (recorded runs, else the stated table), for the processors of a job
rather than for the machine that the plan was made on.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocm_wheels.ci.slurm.cluster import Partition
from rocm_wheels.machine import MachineResources
from rocm_wheels.model.project import load_project
from rocm_wheels.pipeline.estimates import Estimate, History, estimate_step
from rocm_wheels.pipeline.plan.step import Plan, Step

MEMORY_MARGIN = 1.25  # and a GiB for what starts the compilers
TIME_MARGIN = 2.0  # nodes differ, and file systems that many share; too short costs a restart, no result
MINUTES_AT_LEAST = 30
DISK_WHEELS = 2  # a wheel in TMPDIR: unpacked to be checked, and packed; and a GiB for compilers
MOST_CPUS = 32  # by default: more shorten a build of torch little, and are waited for longer
CPUS_UNKNOWN = 16  # where no partition says
CPUS_OF_OTHERS = 2  # a step that compiles nothing
_MIB, _GIB = 1 << 20, 1 << 30
_NO_MACHINE = MachineResources(1, _GIB, _GIB)  # the number of jobs is given, so this is not asked


@dataclass(frozen=True)
class JobSize:
    """Processors, MiB of memory and of TMPDIR (``None``: not asked for), minutes. ``notes``: for people."""

    cpus: int
    memory: int | None
    disk: int | None
    minutes: int
    notes: tuple[str, ...] = ()


def size_job(
    step: Step, plan: Plan, history: History, partition: Partition | None, cpus: int | None
) -> JobSize:
    """Return what the job of a step asks for; ``cpus``: processors that a build is to have.

    No more than the nodes of the partition have: fewer compilers run at a time then, and a job that its
    partition's limit ends goes on in the next one.
    """
    if cpus is None:
        cpus = min(partition.cpus, MOST_CPUS) if partition else CPUS_UNKNOWN
    if step.kind != "build":
        cpus = min(cpus, CPUS_OF_OTHERS)
    expected = _estimate_step(step, plan, history, cpus)
    notes = []
    memory: int | None = int((expected.memory * MEMORY_MARGIN + _GIB) // _MIB)
    if partition is not None and partition.memory is None:
        memory = None
        notes.append(f"no --mem: Slurm was not told how much memory the nodes of {partition.name} have")
    elif partition is not None and memory is not None and partition.memory is not None:
        if memory > partition.memory:
            notes.append(f"--mem: {memory} MiB would do; nodes of {partition.name} have {partition.memory}")
        memory = min(memory, partition.memory)
    disk: int | None = (expected.wheel * DISK_WHEELS + _GIB) // _MIB
    if partition is not None and partition.disk is None:
        disk = None
        notes.append(f"no --tmp: Slurm was not told how large TMPDIR of {partition.name} is")
    minutes = max(int(expected.seconds * TIME_MARGIN / 60) + 1, MINUTES_AT_LEAST)
    if partition is not None and partition.minutes is not None and minutes > partition.minutes:
        notes.append(f"--time: {minutes} min would do; {partition.name} gives {partition.minutes}")
        minutes = partition.minutes
    return JobSize(cpus, memory, disk, minutes, tuple(notes))


def _estimate_step(step: Step, plan: Plan, history: History, cpus: int) -> Estimate:
    if step.kind != "build":
        return estimate_step(step.kind, max(len(plan.targets), 1), _NO_MACHINE, history, jobs=cpus)
    targets = max(len(plan.targets), 1) if load_project(str(step.project)).has_device_code else 1
    if step.cell.target_set:  # one word of several; a family has a few of all targets
        sets = {other.cell.target_set for other in plan if other.cell.target_set}
        targets = max(targets // len(sets), 1)
    return estimate_step(str(step.project), targets, _NO_MACHINE, history, jobs=cpus)


def describe_size(size: JobSize) -> str:
    """Say what a job asks for."""
    parts = [f"{size.cpus} CPUs"]
    parts += [f"{size.memory} MiB"] if size.memory else []
    parts += [f"{size.disk} MiB TMPDIR"] if size.disk else []
    return ", ".join([*parts, f"{size.minutes} min"])
