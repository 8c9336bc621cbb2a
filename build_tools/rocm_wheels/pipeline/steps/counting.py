"""What a compiler cache did for one build: counted, recorded, and compared with what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from rocm_wheels import log
from rocm_wheels.compile.cache import CacheStatistics, explain_low_rate, open_cache_session, read_statistics
from rocm_wheels.errors import BuildError
from rocm_wheels.pipeline.steps.turn import StepRun


@contextmanager
def count_cache_use(
    step_run: StepRun, environment: Mapping[str, str], collected: list[CacheStatistics]
) -> Iterator[Mapping[str, str]]:
    """Yield variables that the cache needs beside those of a build; what it did is added to ``collected``.

    The counts go into the record also when the build fails. Without a cache nothing happens.
    """
    cache = step_run.facts.cache
    if cache is None:
        yield {}
        return
    with open_cache_session(
        cache, environment, step_run.facts.workspace.root / "compiler-cache"
    ) as cache_variables:
        env = {**environment, **cache_variables}
        before = read_statistics(cache, env)
        try:
            yield cache_variables
        finally:
            after = read_statistics(cache, env)
            use = after.subtract(before)
            collected.append(use)
            if use.cacheable:
                log.log_note(use.text)
            step_run.record_event(
                "cache",
                kind=cache.kind,
                before=before.as_record(),
                after=after.as_record(),
                host=asdict(use.host),
                device=asdict(use.device),
                rate=use.rate,
            )


def refuse_few_hits(collected: Sequence[CacheStatistics], percent: float | None) -> None:
    """Raise BuildError where a cache gave less than is asked for; the wheel counts all the same."""
    if percent is None:
        return
    for use in collected:
        if (fault := explain_low_rate(use, percent / 100)) is not None:
            raise BuildError(fault, tip="the wheel is finished; is the cache the one that was filled before?")
