"""What a step costs: the memory of all its processes together, sampled, and the time of their processors."""

from __future__ import annotations

import threading
from types import TracebackType

_SECONDS = 0.5


class Usage:
    """Watches a process and all that it starts, from a thread. ``peak`` is in bytes.

    Memory is the sum of what each process has resident: pages that several share count for each.
    """

    def __init__(self) -> None:
        self.peak = 0
        self.cpu_seconds = 0.0
        self._pid: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def started(self, pid: int) -> None:
        """Begin to watch a process."""
        self._pid = pid
        self._thread.start()

    def __enter__(self) -> Usage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        import psutil

        try:
            leader = psutil.Process(self._pid)
        except psutil.Error:
            return
        while True:
            self._look(leader)
            if self._over.wait(_SECONDS):
                return

    def _look(self, leader: object) -> None:
        import psutil

        assert isinstance(leader, psutil.Process)
        try:
            everyone = [leader, *leader.children(recursive=True)]
            times = leader.cpu_times()
        except psutil.Error:
            return  # it has just ended
        memory = 0
        for one in everyone:
            try:
                memory += one.memory_info().rss
            except psutil.Error:
                continue
        self.peak = max(self.peak, memory)
        spent = times.user + times.system + times.children_user + times.children_system
        self.cpu_seconds = max(self.cpu_seconds, spent)
