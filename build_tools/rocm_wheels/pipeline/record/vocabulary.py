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
_COUNTS_SHAPE = {"hits": int, "misses": int}
_FILE_SHAPE = {"path": str, "size": int, "sha256": str}
_ANY_KEY = "*"  # whatever the key

EVENT_FIELDS: Mapping[str, dict[str, Any]] = {
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
        "against": [{_ANY_KEY: str}],
        "output": str,
    },
    "preflight": {"findings": [{"check": str, "severity": str, "text": str, "tip": str}]},
    "step-skipped": {
        "step": str,
        "why": str,
        "fingerprint": str,
        "outputs": [_FILE_SHAPE],
        "targets": [str],
        "version": str,
    },
    "step-begun": {
        "step": str,
        "why": str,
        "after": [str],
        "command": str,
        "environment": {_ANY_KEY: str},
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
        "environment": {_ANY_KEY: str},
        "seconds": SECONDS,
        "returncode": int,
    },
    "cache": {
        "step": str,
        "kind": str,
        "host": _COUNTS_SHAPE,
        "device": _COUNTS_SHAPE,
        "unsorted": _COUNTS_SHAPE,  # of which the cache does not say whether they were device code
        "rate": float,
    },
    "cache-test": {
        "step": str,
        "kind": str,
        "trusted": bool,
        "checks": [{"what": str, "expected": _SCALAR, "seen": _SCALAR, "passed": bool}],
    },
    "probe": {"step": str, "targets": {_ANY_KEY: str}, "dropped": [str]},
    "ninja": {"step": str, "log": str, "began": SECONDS},
    "output": {
        "step": str,
        **_FILE_SHAPE,
        "project": str,
        "version": str,
        "targets": [str],
        "libraries": {_ANY_KEY: [str]},
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
_STEP_EVENTS = {name for name, fields in EVENT_FIELDS.items() if "step" in fields}
# what is more is damage: about 300 years, 9 petabytes
_MAX_SECONDS, _MAX_NUMBER = 1e10, 1e16


def parse_event(line: bytes) -> Event | None:
    """Return the event that a line holds, or ``None`` for a damaged line."""
    try:
        event = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    if not _is_time(event.get("time")) or not fits_shape(event.get("clock", ""), SECONDS):
        return None
    if event["event"] in _STEP_EVENTS and not isinstance(event.get("step"), str):
        return None
    return event if fits_shape(event, EVENT_FIELDS.get(event["event"], {})) else None


def parse_event_time(event: Event) -> datetime:
    """Return the time of day at which an event was written, in UTC."""
    return datetime.fromisoformat(event["time"].replace("Z", "+00:00"))


def fits_shape(value: object, shape: Any) -> bool:
    """Tell whether a value has a form as ``EVENT_FIELDS`` writes it; ``None`` always has."""
    if value is None:
        return True
    if isinstance(shape, list):
        return isinstance(value, list) and all(
            item is not None and fits_shape(item, shape[0]) for item in value
        )
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if _ANY_KEY in shape:
            return all(fits_shape(inner, shape[_ANY_KEY]) for inner in value.values())
        return all(fits_shape(value[key], inner) for key, inner in shape.items() if key in value)
    if isinstance(value, bool) and shape in {int, float, SECONDS}:
        return False
    if shape in {float, SECONDS}:
        most = _MAX_SECONDS if shape == SECONDS else _MAX_NUMBER
        return isinstance(value, (int, float)) and -most < value < most
    if shape is int:
        return isinstance(value, int) and -_MAX_NUMBER < value < _MAX_NUMBER
    return isinstance(value, shape)


def _is_time(text: object) -> bool:
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00")) if isinstance(text, str) else None
    except ValueError:
        return False
    return when is not None and when.tzinfo is not None and 2000 <= when.year < 2200


def _refuse_constant(_constant: str) -> None:
    raise ValueError("JSON has no such number")
