"""What a compiler cache did for one build: counted, recorded, and compared with what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from rocm_wheels import log
from rocm_wheels.compile.cache import CacheStatistics, below_floor, cache_session, statistics
from rocm_wheels.errors import BuildError
from rocm_wheels.pipeline.steps.turn import Turn


@contextmanager
def counting(
    turn: Turn, environment: Mapping[str, str], counted: list[CacheStatistics]
) -> Iterator[Mapping[str, str]]:
    """Yield variables that the cache needs beside those of a build; what it did is added to ``counted``.

    The counts go into the record also when the build fails. Without a cache nothing happens.
    """
    cache = turn.facts.cache
    if cache is None:
        yield {}
        return
    with cache_session(cache, environment, turn.facts.workspace.root / "compiler-cache") as more:
        env = {**environment, **more}
        before = statistics(cache, env)
        try:
            yield more
        finally:
            after = statistics(cache, env)
            found = after.since(before)
            counted.append(found)
            if found.asked:
                log.note(found.text)
            turn.event(
                "cache",
                kind=cache.kind,
                before=before.as_record(),
                after=after.as_record(),
                host=asdict(found.host),
                device=asdict(found.device),
                rate=found.rate,
            )


def refuse_few_hits(counted: Sequence[CacheStatistics], percent: float | None) -> None:
    """Raise BuildError where a cache gave less than is asked for; the wheel counts all the same."""
    if percent is None:
        return
    for one in counted:
        if (fault := below_floor(one, percent / 100)) is not None:
            raise BuildError(fault, tip="the wheel is finished; is the cache the one that was filled before?")
