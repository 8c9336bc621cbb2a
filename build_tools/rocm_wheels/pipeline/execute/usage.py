"""What a step costs: the memory of all its processes together, sampled, and the time of their processors."""

from __future__ import annotations

import threading
from types import TracebackType

from rocm_wheels.pipeline.record.memory import measure_tree_memory

_SAMPLE_SECONDS = 0.5


class ResourceUsage:
    """Watches a process and all that it starts, from a thread. ``peak``: bytes, as ``measure_tree_memory`` counts."""

    def __init__(self) -> None:
        self.peak = 0
        self.cpu_seconds = 0.0
        self._pid: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def start(self, pid: int) -> None:
        """Begin to watch a process."""
        self._pid = pid
        self._thread.start()

    def __enter__(self) -> ResourceUsage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        import psutil

        assert self._pid is not None
        try:
            leader = psutil.Process(self._pid)
            while True:
                times = leader.cpu_times()
                spent = times.user + times.system + times.children_user + times.children_system
                self.cpu_seconds = max(self.cpu_seconds, spent)
                self.peak = max(self.peak, measure_tree_memory(self._pid) or 0)
                if self._over.wait(_SAMPLE_SECONDS):
                    return
        except psutil.NoSuchProcess:
            return  # it has ended
