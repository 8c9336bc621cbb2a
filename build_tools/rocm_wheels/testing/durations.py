"""Read how long files of torch's tests took in earlier runs, and share files out by it.

Who takes part in a run shares out alone, and must come to what all others do: the same files, in the same
order, with the same seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.core import DataError, UsageError, read_json_file
from rocm_wheels.testing.results import RESULTS_FILE, TorchResults, read_torch_results

_PATH_TIP = "name a folder of results of `rocm-wheels tests torch`, or its results.json"


def read_durations(paths: Sequence[Path], suite: str) -> dict[str, float]:
    """Return the seconds that files of a suite took, by name; of several results the newest counts.

    ``paths`` are results.json of torch's tests, and folders with some at any depth. What was not run to its
    end, or did not end well, says nothing. Raises UsageError for a path without any, DataError for results
    that cannot be read.
    """
    newest: dict[str, tuple[str, float]] = {}
    for path in paths:
        for results in _read_results_at(path):
            if results.chosen.suite != suite:
                continue
            for part in results.parts:
                if part.complete and not part.fault and part.seconds:
                    newest[part.name] = max(newest.get(part.name, ("", 0.0)), (results.when, part.seconds))
    return {name: seconds for name, (_, seconds) in sorted(newest.items())}


def _read_results_at(path: Path) -> list[TorchResults]:
    if not path.exists():
        raise UsageError(f"--durations: there is no {path}", tip=_PATH_TIP)
    files = sorted(path.rglob(RESULTS_FILE)) if path.is_dir() else [path]
    if path.is_dir():  # smoke tests write a file of that name, too
        files = [file for file in files if "parts" in read_json_file(file, complaint="holds no results")]
    elif path.name != RESULTS_FILE:
        raise UsageError(f"--durations: {path} is no {RESULTS_FILE}", tip=_PATH_TIP)
    if not files:
        raise UsageError(f"--durations: there are no results of torch's tests in {path}", tip=_PATH_TIP)
    records = [read_torch_results(file.parent) for file in files]
    if None in records:
        raise DataError(f"{path} was removed while it was read")
    return [record for record in records if record is not None]


def share_out(seconds: Sequence[float], shards: int) -> list[list[int]]:
    """Return for each shard the numbers of its items: the longest is given out first, to the shortest shard.

    Of items that take as long, the earlier one goes first. Every item is in one shard.
    """
    order = sorted(range(len(seconds)), key=lambda number: (-seconds[number], number))
    loads = [(0.0, shard) for shard in range(shards)]
    shared: list[list[int]] = [[] for _ in range(shards)]
    for number in order:
        load, shard = heapq.heappop(loads)
        shared[shard].append(number)
        heapq.heappush(loads, (load + seconds[number], shard))
    return shared
