"""How fast a set is on a GPU, against the sets that a channel showed before it.

Smoke tests measure TFLOP/s on each GPU, and evidence keeps them by name. A number is compared with that of an
earlier set on the same kind of machine alone: same target, same GPUs by the names that their driver has for
them, and what ``--host-kind`` says. Numbers of the CPU (``tflops:cpu-…``) are kept and not judged: other
programs run there, and machines with the same GPU have different CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rocm_wheels.models.gfx import strip_features
from rocm_wheels.release.evidence.evidence import Evidence
from rocm_wheels.release.verdict import Reason, reason

Speeds = Mapping[str, Mapping[str, float]]  # TFLOP/s by name, by kind of machine
_PREFIX, _CPU_PREFIX = "tflops:", "tflops:cpu-"


def find_speeds(passes: Iterable[Evidence]) -> Speeds:
    """Return what passes of the smoke tests on one target measured; of several (each Python) the least."""
    speeds: dict[str, dict[str, float]] = {}
    for evidence in passes:
        for name, speed in evidence.measurements.items():
            if name.startswith(_PREFIX) and not name.startswith(_CPU_PREFIX) and speed > 0:
                of_machine = speeds.setdefault(_name_machine(evidence), {})
                of_machine[name] = min(speed, of_machine.get(name, speed))
    return speeds


def _name_machine(evidence: Evidence) -> str:
    """Return the kind of machine that a result is from: its GPUs of the target, and what people call it."""
    gpus = evidence.machine.gpus if evidence.machine is not None else ()
    names = {gpu.name for gpu in gpus if gpu.name and strip_features(gpu.gfx) == evidence.gfx}
    kind = f" ({evidence.host.kind})" if evidence.host.kind != "any" else ""
    return f"{' and '.join(sorted(names)) or evidence.gfx}{kind}"


def compare_speeds(
    speeds: Speeds, earlier: Sequence[tuple[str, Speeds]], at_least: float
) -> tuple[bool | None, list[Reason]]:
    """Tell whether a set is fast enough, and why; None: nothing could be compared that should have been.

    ``earlier`` are ids of sets with their speeds, the one to compare with first; where it was not measured on
    a kind of machine, the next one is that was. ``at_least`` is the part of its speed that is fast enough.
    Where no earlier set was measured, there is nothing to be slower than.
    """
    measured = [(set_id, before) for set_id, before in earlier if before]
    if not measured:
        return True, [reason("first-measured", machines=tuple(speeds), speeds=_count(speeds))]
    last_id, last = measured[0]
    if not speeds:
        return None, [reason("not-measured", set=last_id, machines=tuple(last))]
    slow, lacking, fast, is_new = list[Reason](), list[Reason](), list[Reason](), list[str]()
    for machine, now in speeds.items():
        compared = [(set_id, before[machine]) for set_id, before in measured if machine in before]
        if not compared:
            is_new.append(machine)
            continue
        set_id, before = compared[0]
        facts = {"set": set_id, "machine": machine, "limit": at_least}
        ratios: list[dict[str, Any]] = [
            {"name": name, "speed": now[name], "before": number, "ratio": now[name] / number}
            for name, number in before.items()
            if name in now
        ]
        ratios.sort(key=lambda compared: compared["ratio"])
        if missing := tuple(sorted(set(before) - set(now))):
            lacking.append(reason("lacks-measurements", names=missing, **facts))
        if slower := tuple(compared for compared in ratios if compared["ratio"] < at_least):
            slow.append(reason("slower", slower=slower, **facts))
        elif ratios:
            fast.append(reason("fast-enough", least=ratios[0], speeds=len(ratios), **facts))
    if slow or lacking:
        return False, [*slow, *lacking]
    if not fast:
        return None, [reason("other-machine", set=last_id, machines=tuple(speeds), earlier=tuple(last))]
    first = [reason("first-measured", machines=(name,), speeds=len(speeds[name])) for name in is_new]
    return True, [*fast, *first]


def _count(speeds: Speeds) -> int:
    return sum(map(len, speeds.values()))
