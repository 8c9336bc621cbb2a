"""How much memory a process and all that it started hold now."""

from __future__ import annotations


def measure_tree_memory(root: int) -> int | None:
    """Return the resident bytes of a process and its descendants; ``None`` when it is gone.

    Memory that several of them share counts for each.
    """
    import psutil

    try:
        leader = psutil.Process(root)
        everyone = [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return None
    total = 0
    for process in everyone:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue  # it has just ended
    return total
