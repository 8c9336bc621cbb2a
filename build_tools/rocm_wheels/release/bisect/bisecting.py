"""The search: the ends first, then one set after the other, each noted before the next is begun."""

from __future__ import annotations

from collections.abc import Callable

from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.bisect.probing import Prober
from rocm_wheels.release.bisect.search import Between, Outcome, narrowed
from rocm_wheels.release.bisect.state import Probe, State
from rocm_wheels.words import counted

Tell = Callable[[str], None]


def bisect(prober: Prober, state: State, *, trust_ends: bool, tell: Tell) -> Between:
    """Return what it comes to; what an earlier run has noted is not tried again.

    Raises ReleaseError for an end that is not what was said of it, where not one set could be tested, and
    what ``Prober.probe`` raises.
    """
    ids = prober.line.ids
    if state.probes:
        tell(f"an earlier run, which is carried on, tried {counted(len(state.probes), 'set')}")
    if not trust_ends:
        _check_end(prober, state, 0, "good", tell)
        _check_end(prober, state, len(ids) - 1, "bad", tell)
    while (between := known(prober, state)).next is not None:
        left = counted(between.untested, "set")
        tell(f"trying {ids[between.next]}: {left} between good and bad")
        _try(prober, state, between.next, tell)
    if between.skipped and all(one.outcome == "skip" for one in state.probes):
        state.finish()
        why = state.probes[-1].why
        tip = "--extra-index and --find-links say where their requirements are, as ROCm's packages"
        raise ReleaseError(
            f"could test none of {counted(len(state.probes), 'set')}; the last: {why}", tip=tip
        )
    return between


def known(prober: Prober, state: State) -> Between:
    """Return what the probes so far come to."""
    number = {name: place for place, name in enumerate(prober.line.ids)}
    inner = {
        one.set: one.outcome
        for one in state.probes
        if one.set not in (prober.line.ids[0], prober.line.ids[-1])
    }
    found: dict[int, Outcome] = {number[name]: outcome for name, outcome in inner.items() if name in number}
    return narrowed(len(number), found)


def _check_end(prober: Prober, state: State, number: int, expected: Outcome, tell: Tell) -> None:
    name = prober.line.ids[number]
    probe = state.of(name)
    if probe is None:
        tell(f"trying {name}, which is said to be {expected}")
        probe = _try(prober, state, number, tell)
    if probe.outcome == expected:
        return
    state.forget(name)
    came = "cannot be tested" if probe.outcome == "skip" else f"is {probe.outcome}"
    what = f"{name} is said to be {expected}, and {came}: {probe.why}"
    if probe.exit in {126, 127}:
        tip = "126 and 127 say that a program was not found or may not be run: see to the command"
    else:
        tip = f"name another set with --{expected}, or believe it with --trust-ends"
        printed = prober.folder / "logs" / f"{name}.log"
        tip = f"see {printed}; {tip}" if printed.exists() else tip
    raise ReleaseError(what, tip=tip)


def _try(prober: Prober, state: State, number: int, tell: Tell) -> Probe:
    probe = prober.probe(number)
    state.add(probe)
    tell(f"{probe.set} is {'skipped' if probe.outcome == 'skip' else probe.outcome} ({probe.why})")
    return probe
