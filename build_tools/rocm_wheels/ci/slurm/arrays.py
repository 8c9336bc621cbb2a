"""Which steps of a plan are one array of jobs, and in which order arrays are submitted.

An array has the same step of several Pythons: of one kind, one project, one target set. The number of a task
is that of its Python in the plan, in every array, so that tasks correspond one to one. Which steps are
together, and their numbers, the plan alone decides: whoever reads the queue knows what a task does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from rocm_wheels.ci.slurm.records import JobFolder
from rocm_wheels.errors import DataError
from rocm_wheels.pipeline.plan.step import Plan, Step

ARRAY_SIZE = 1001  # MaxArraySize where nobody has said another (slurm.conf(5)): one more than the last number


@dataclass(frozen=True)
class JobArray:
    """Steps by the numbers of their tasks. ``plain``: one step, submitted as a job that is no array.

    ``one_by_one``: no two of them may be at work at a time.
    """

    name: str
    tasks: Mapping[int, str]
    one_by_one: bool = False
    plain: bool = False

    @property
    def steps(self) -> tuple[str, ...]:
        """The ids of its steps."""
        return tuple(self.tasks.values())

    def task_number(self, step: str) -> int | None:
        """Return the number of a step's task; ``None`` for a plain job."""
        return None if self.plain else next(number for number, name in self.tasks.items() if name == step)


def group_arrays(plan: Plan, size: int = ARRAY_SIZE) -> list[JobArray]:
    """Return the arrays of a plan, in an order in which nothing waits for a later one.

    ``size``: the site's MaxArraySize; less than two: plain jobs alone. Raises DataError for a plan whose
    steps wait for one another.
    """
    numbers = _number_pythons(plan)
    groups: dict[str, list[Step]] = {}
    for step in plan:
        groups.setdefault(_array_name(step), []).append(step)
    together = {
        name: steps
        for name, steps in groups.items()
        if name not in plan.steps and _fits_array(steps, numbers, size)
    }
    while True:
        of = {step.id: name for name, steps in together.items() for step in steps}
        waits: dict[str, list[str]] = {}
        for step in plan:
            array_name = of.get(step.id, step.id)
            others = [of.get(name, name) for name in (*step.after, *step.behind)]
            waits.setdefault(array_name, []).extend(name for name in others if name != array_name)
        try:
            order = list(TopologicalSorter(waits).static_order())
        except CycleError as circle:  # it waits for a part of another array, which waits for a part of it
            if not {*circle.args[1]} & {*together}:
                raise DataError(f"steps wait for one another: {', '.join(circle.args[1])}") from circle
            together = {name: steps for name, steps in together.items() if name not in circle.args[1]}
            continue
        return [
            _make_array(name, together.get(name) or [plan.steps[name]], numbers, name in of.values())
            for name in order
        ]


def _number_pythons(plan: Plan) -> dict[str, int]:
    """Number the Pythons of a plan."""
    return {tag: number for number, tag in enumerate(dict.fromkeys(step.cell.tag for step in plan))}


def _array_name(step: Step) -> str:
    return "-".join(part for part in (step.kind, step.project, step.cell.target_set) if part)


def _fits_array(steps: Collection[Step], numbers: Mapping[str, int], size: int) -> bool:
    """Tell whether steps can be tasks of one array."""
    used = {numbers[step.cell.tag] for step in steps}
    ids = {step.id for step in steps}
    return len(used) == len(steps) > 1 and max(used) < size and not any(ids & {*step.after} for step in steps)


def _make_array(name: str, steps: Collection[Step], numbers: Mapping[str, int], several: bool) -> JobArray:
    ids = {step.id for step in steps}
    tasks = {numbers[step.cell.tag]: step.id for step in steps}
    return JobArray(name, tasks, any(ids & {*step.behind} for step in steps), plain=not several)


def arrange_plan(plan: Plan, arrays: Collection[JobArray]) -> Plan:
    """Return a plan array by array. Its steps are behind all of an array that one of theirs is behind.

    What is behind another task of its own array is that no more: ``one_by_one`` keeps them apart. A step is
    behind all that was in its tree or environment before, too: what came between may be done already when
    the first is submitted again.
    """
    behind = _collect_behind(plan)
    of = {step: array for array in arrays for step in array.steps}
    steps: dict[str, Step] = {}
    for array in arrays:
        arrays_behind = [of[name] for step in array.steps for name in behind[step]]
        others = dict.fromkeys(name for other in arrays_behind if other is not array for name in other.steps)
        for step in array.steps:
            steps[step] = replace(plan.steps[step], behind=tuple(others))
    return replace(plan, steps=steps)


def _collect_behind(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return what each step is behind, and what that was behind of the same project or Python."""
    behind: dict[str, tuple[str, ...]] = {}
    for step in plan:
        names = dict.fromkeys(step.behind)
        for name in [earlier for other in step.behind for earlier in behind.get(other, ())]:
            first = plan.steps[name]
            if first.cell.tag == step.cell.tag or first.project == step.project is not None:
                names[name] = None
        behind[step.id] = tuple(names)
    return behind


def map_job_names(folder: JobFolder, plan: Plan) -> dict[tuple[str, int | None], str]:
    """Return the steps of a plan by the names and numbers that their jobs can have in the queue.

    Whatever has been an array on any site, or been submitted without arrays.
    """
    prefix, numbers = folder.job_prefix(), _number_pythons(plan)
    jobs: dict[tuple[str, int | None], str] = {(f"{prefix}{step.id}", None): step.id for step in plan}
    return jobs | {(f"{prefix}{_array_name(step)}", numbers[step.cell.tag]): step.id for step in plan}
