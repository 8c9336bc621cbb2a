"""The search: the ends first, then one set after the other, each noted before the next is begun."""

from __future__ import annotations

from collections.abc import Callable

from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.bisect.probing import SetProber
from rocm_wheels.release.bisect.search import BisectRange, ProbeOutcome, narrow_down
from rocm_wheels.release.bisect.state import SetProbe, BisectState
from rocm_wheels.words import format_count

ReportLine = Callable[[str], None]


def bisect_sets(
    prober: SetProber, state: BisectState, *, trust_ends: bool, report: ReportLine
) -> BisectRange:
    """Return what it comes to; what an earlier run has noted is not tried again.

    Raises ReleaseError for an end that is not what was said of it, where not one set could be tested, and
    what ``SetProber.probe_set`` raises.
    """
    ids = prober.line.ids
    if state.probes:
        report(f"an earlier run, which is carried on, tried {format_count(len(state.probes), 'set')}")
    if not trust_ends:
        _check_end(prober, state, 0, "good", report)
        _check_end(prober, state, len(ids) - 1, "bad", report)
    while (between := find_range(prober, state)).next is not None:
        remaining = format_count(between.untested, "set")
        report(f"trying {ids[between.next]}: {remaining} between good and bad")
        _try_set(prober, state, between.next, report)
    if between.skipped and all(probe.outcome == "skip" for probe in state.probes):
        state.clear()
        why = state.probes[-1].why
        tip = "--extra-index and --find-links say where their requirements are, as ROCm's packages"
        raise ReleaseError(
            f"could test none of {format_count(len(state.probes), 'set')}; the last: {why}", tip=tip
        )
    return between


def find_range(prober: SetProber, state: BisectState) -> BisectRange:
    """Return what the probes so far come to."""
    number = {name: place for place, name in enumerate(prober.line.ids)}
    inner = {
        probe.set: probe.outcome
        for probe in state.probes
        if probe.set not in (prober.line.ids[0], prober.line.ids[-1])
    }
    outcomes: dict[int, ProbeOutcome] = {
        number[name]: outcome for name, outcome in inner.items() if name in number
    }
    return narrow_down(len(number), outcomes)


def _check_end(
    prober: SetProber, state: BisectState, number: int, expected: ProbeOutcome, report: ReportLine
) -> None:
    name = prober.line.ids[number]
    probe = state.find_probe(name)
    if probe is None:
        report(f"trying {name}, which is said to be {expected}")
        probe = _try_set(prober, state, number, report)
    if probe.outcome == expected:
        return
    state.remove_probe(name)
    came = "cannot be tested" if probe.outcome == "skip" else f"is {probe.outcome}"
    message = f"{name} is said to be {expected}, and {came}: {probe.why}"
    if probe.exit in {126, 127}:
        tip = "126 and 127 say that a program was not found or may not be run: see to the command"
    else:
        tip = f"name another set with --{expected}, or believe it with --trust-ends"
        printed = prober.folder / "logs" / f"{name}.log"
        tip = f"see {printed}; {tip}" if printed.exists() else tip
    raise ReleaseError(message, tip=tip)


def _try_set(prober: SetProber, state: BisectState, number: int, report: ReportLine) -> SetProbe:
    probe = prober.probe_set(number)
    state.add_probe(probe)
    report(f"{probe.set} is {'skipped' if probe.outcome == 'skip' else probe.outcome} ({probe.why})")
    return probe
