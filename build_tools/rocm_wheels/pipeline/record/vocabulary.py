"""The words of a run's record: which fields an event has, and what they hold.

A field may be missing or null (an item of a list may not), and others may come with later versions; but
what is there has the form given here, or the line counts as damaged. What reads a record can rely on that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]

SECONDS = "seconds"
_SCALAR = (str, int, float, bool)
_FIGURES = {"hits": int, "misses": int}
_FILE = {"path": str, "size": int, "sha256": str}
_EACH = "*"  # whatever the key

FIELDS: Mapping[str, dict[str, Any]] = {
    "run-begun": {
        "run": str,
        "version": str,
        "command": str,
        "pid": int,
        "began": str,
        "host": str,
        "slurm_job": str,
        "platform": str,
        "cores": float,
        "memory": int,
        "plan": str,
        "steps": int,
        "lock": str,
        "lock_digest": str,
        "targets": [str],
        "pythons": [str],
        "against": [{_EACH: str}],
        "output": str,
    },
    "preflight": {"findings": [{"check": str, "severity": str, "text": str, "tip": str}]},
    "step-skipped": {
        "step": str,
        "why": str,
        "fingerprint": str,
        "outputs": [_FILE],
        "targets": [str],
        "version": str,
    },
    "step-begun": {
        "step": str,
        "why": str,
        "after": [str],
        "command": str,
        "environment": {_EACH: str},
        "fingerprint": str,
        "log": str,
        "pid": int,
        "began": str,
        "jobs": int,
        "estimate": {"seconds": SECONDS, "disk": float, "memory": float, "source": str},
    },
    "command": {
        "step": str,
        "command": str,
        "cwd": str,
        "environment": {_EACH: str},
        "seconds": SECONDS,
        "returncode": int,
    },
    "cache": {
        "step": str,
        "kind": str,
        "host": _FIGURES,
        "device": _FIGURES,
        "unsorted": _FIGURES,  # of which the cache does not say whether they were device code
        "rate": float,
    },
    "cache-test": {
        "step": str,
        "kind": str,
        "trusted": bool,
        "checks": [{"what": str, "expected": _SCALAR, "seen": _SCALAR, "passed": bool}],
    },
    "probe": {"step": str, "targets": {_EACH: str}, "dropped": [str]},
    "ninja": {"step": str, "log": str, "began": SECONDS},
    "output": {
        "step": str,
        **_FILE,
        "project": str,
        "version": str,
        "targets": [str],
        "libraries": {_EACH: [str]},
        "content": str,
    },
    "step-ended": {
        "step": str,
        "outcome": str,
        "seconds": SECONDS,
        "peak_memory": int,
        "cpu_seconds": SECONDS,
        "exit_code": int,
        "message": str,
        "tip": str,
        "fingerprint": str,
    },
    "run-ended": {"outcome": str, "seconds": SECONDS, "exit_code": int},
}
# step-begun says what is to be done, step-skipped that nothing is: without their step they mean nothing
_OF_A_STEP = {name for name, fields in FIELDS.items() if "step" in fields}
# what is more is damage: about 300 years, 9 petabytes
_LONGEST, _MOST = 1e10, 1e16


def parse_event(line: bytes) -> Event | None:
    """Return the event that a line holds, or ``None`` for a damaged line."""
    try:
        event = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    if not _is_time(event.get("time")) or not fits(event.get("clock", ""), SECONDS):
        return None
    if event["event"] in _OF_A_STEP and not isinstance(event.get("step"), str):
        return None
    return event if fits(event, FIELDS.get(event["event"], {})) else None


def time_of(event: Event) -> datetime:
    """Return the time of day at which an event was written, in UTC."""
    return datetime.fromisoformat(event["time"].replace("Z", "+00:00"))


def fits(value: object, shape: Any) -> bool:
    """Tell whether a value has a form as ``FIELDS`` writes it; ``None`` always has."""
    if value is None:
        return True
    if isinstance(shape, list):
        return isinstance(value, list) and all(one is not None and fits(one, shape[0]) for one in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if _EACH in shape:
            return all(fits(inner, shape[_EACH]) for inner in value.values())
        return all(fits(value[key], inner) for key, inner in shape.items() if key in value)
    if isinstance(value, bool) and shape in {int, float, SECONDS}:
        return False
    if shape in {float, SECONDS}:
        most = _LONGEST if shape == SECONDS else _MOST
        return isinstance(value, (int, float)) and -most < value < most
    if shape is int:
        return isinstance(value, int) and -_MOST < value < _MOST
    return isinstance(value, shape)


def _is_time(text: object) -> bool:
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00")) if isinstance(text, str) else None
    except ValueError:
        return False
    return when is not None and when.tzinfo is not None and 2000 <= when.year < 2200


def _refuse(_constant: str) -> None:
    raise ValueError("JSON has no such number")
