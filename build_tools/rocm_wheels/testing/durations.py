"""Read how long files of torch's tests took in earlier runs, and share files out by it.

Who takes part in a run shares out alone, and must come to what all others do: the same files, in the same
order, with the same seconds.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.core import errors
from rocm_wheels.core.records import read_json_file
from rocm_wheels.models import torch_tests
from rocm_wheels.testing.results import RESULTS_FILE, TorchResults, read_torch_results

_LONGEST_SECONDS = 7 * 24 * 3600.0
_PATH_TIP = "name a folder of results of `rocm-wheels test torch`, or its results.json"


def read_durations(paths: Sequence[Path], suite: str) -> dict[str, float]:
    """Return the seconds that files of a suite took, by name; of several results the newest counts.

    ``paths`` are results.json of torch's tests, and folders with some at any depth. What was not run to its
    end, or did not end well, says nothing; of a file in shares, all must be there. Raises UsageError for a
    path without any, DataError for results that cannot be read.
    """
    newest: dict[tuple[str, int], dict[int, tuple[str, float]]] = defaultdict(dict)  # by file and its shares
    for path in paths:
        for file_path, results in _read_results_at(path):
            _require_possible(file_path, results)
            for part in results.parts if results.chosen.suite == suite else ():
                if part.complete and not part.fault and part.seconds:
                    file, share, shares = torch_tests.split_test_share(part.name)
                    before = newest[file, shares].get(share, ("", 0.0))
                    newest[file, shares][share] = max(before, (results.when, part.seconds))
    totals: dict[str, tuple[str, float]] = {}
    for (file, shares), by_share in newest.items():
        if len(by_share) == shares:
            oldest = min(when for when, _ in by_share.values())
            total = oldest, sum(seconds for _, seconds in by_share.values())
            totals[file] = max(totals.get(file, total), total)
    return {file: seconds for file, (_, seconds) in sorted(totals.items())}


def _require_possible(path: Path, results: TorchResults) -> None:
    """Raise DataError for a file that took longer than any does: it would be cut into shares without end."""
    for part in results.parts:
        if part.seconds > _LONGEST_SECONDS:
            raise errors.DataError(
                f"{path} says that {part.name} took {part.seconds:.3g} s, more than a week",
                tip="leave it out of --durations",
            )


def _read_results_at(path: Path) -> list[tuple[Path, TorchResults]]:
    if not path.exists():
        raise errors.UsageError(f"--durations: there is no {path}", tip=_PATH_TIP)
    files = sorted(path.rglob(RESULTS_FILE)) if path.is_dir() else [path]
    if path.is_dir():  # smoke tests write a file of that name, too
        files = [file for file in files if _is_record(file)]
    elif path.name != RESULTS_FILE:
        raise errors.UsageError(f"--durations: {path} is no {RESULTS_FILE}", tip=_PATH_TIP)
    if not files:
        raise errors.UsageError(
            f"--durations: there are no results of torch's tests in {path}", tip=_PATH_TIP
        )
    records = []
    for file in files:
        results = read_torch_results(file.parent)
        if results is None:
            raise errors.DataError(f"{file} was removed while it was read")
        records.append((file, results))
    return records


def _is_record(file: Path) -> bool:
    content = read_json_file(file, complaint="holds no results")
    return isinstance(content, dict) and "parts" in content


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
