"""Do several pieces of work at a time, in threads: what they wait for are programs and networks.

Each piece runs in a copy of the caller's context, so that what is noted or printed there keeps
its place (``note_groups_in``, ``prefix_log_lines``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from rocm_wheels.core import process

ItemT = TypeVar("ItemT")
WorkResultT = TypeVar("WorkResultT")

# a signal that comes while the main thread passes the interpreter's lock on to another one, on its way into a
# wait, does not cut that wait: Python heeds it when the wait is over
_SIGNAL_SECONDS = 0.2

ResultAndMore = tuple[WorkResultT, Iterable[ItemT]]


def run_in_parallel(
    work: Callable[[ItemT], WorkResultT], items: Iterable[ItemT], *, jobs: int = 8
) -> list[WorkResultT]:
    """Return ``work(item)`` for every item, in their order, ``jobs`` at a time: 8 where a store is asked.

    After a failure nothing new is begun; what runs ends, then the first failure in the order of the
    items is raised. An interruption ends the programs that were started.
    """
    listed = list(items)
    results = dict(
        run_growing_work(lambda item: ((item[0], work(item[1])), ()), enumerate(listed), jobs=jobs)
    )
    return [results[number] for number in range(len(listed))]


def run_growing_work(
    work: Callable[[ItemT], ResultAndMore[WorkResultT, ItemT]], items: Iterable[ItemT], *, jobs: int
) -> list[WorkResultT]:
    """Do work that finds more work: ``work(item)`` returns its result and further items.

    Returns the results in the order in which they were ready; failures and interruptions as in
    ``run_in_parallel``.
    """
    waiting: list[tuple[int, ItemT]] = list(enumerate(items))
    begun = len(waiting)
    running: dict[Future[ResultAndMore[WorkResultT, ItemT]], int] = {}
    results: list[WorkResultT] = []
    failed: dict[int, BaseException] = {}
    with ThreadPoolExecutor(max(jobs, 1), thread_name_prefix="rocm-wheels") as pool:
        try:
            while running or (waiting and not failed):
                while waiting and not failed and len(running) < max(jobs, 1):
                    number, item = waiting.pop(0)
                    running[pool.submit(copy_context().run, work, item)] = number
                done, _ = wait(running, timeout=_SIGNAL_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    number = running.pop(future)
                    cause = future.exception()
                    if cause is not None:
                        if not isinstance(cause, Exception):
                            raise cause
                        failed[number] = cause
                        continue
                    result, more = future.result()
                    results.append(result)
                    for item in more:
                        waiting.append((begun, item))
                        begun += 1
        except BaseException:
            with process.block_new_work():  # what waits for its next attempt, or for a lock, gives up as well
                while any(not future.done() for future in running):
                    process.end_all_processes()
                    wait(running, timeout=0.1)
            raise
    if failed:
        raise failed[min(failed)]
    return results
