"""Read YAML text as plain values, every scalar as text, with line and column of each.

It is read event by event, and not deeper than files of people are: PyYAML's own tree breaks the whole
process on brackets in brackets in brackets. What is no YAML is said in PyYAML's words, with its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from rocm_wheels.core import errors, tables

_BaseLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MOST_LEVELS = 100
# !!str and the like: every scalar is text anyway
_HARMLESS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}
_END_EVENTS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)

KeyPath = tuple[str | int, ...]
Mark = tuple[int, int]


@dataclass
class YamlTree:
    """A document: its value (``None``: there is none), and line and column of each key and item.

    ``faults`` are keys that are given twice and the like, by their mark; what lies ``spoilt`` is not worth
    looking at further.
    """

    value: Any = None
    marks: dict[KeyPath, Mark] = field(default_factory=dict)
    faults: list[tuple[Mark, str]] = field(default_factory=list)
    spoilt: set[KeyPath] = field(default_factory=set)


def read_yaml_tree(text: str, *, name: str) -> YamlTree:
    """Read a document. Raises DataError with ``name:line:column`` for what is no YAML."""
    try:
        return _YamlReader(text).read_document()
    except yaml.reader.ReaderError as cause:
        before = text[: max(text.find(chr(cause.character)), 0)]
        mark = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = f"not valid YAML: {cause.reason} (U+{cause.character:04X})"
    except yaml.MarkedYAMLError as cause:
        place, begin = cause.problem_mark or cause.context_mark, cause.context_mark
        mark = (place.line + 1, place.column + 1) if place is not None else (1, 1)
        where = f"from line {begin.line + 1}" if begin is not None and begin.line + 1 < mark[0] else ""
        problem = "not valid YAML: " + " ".join(filter(None, (cause.problem, cause.context, where)))
    except _UnreadableError as cause:
        mark, problem = cause.args
    raise errors.DataError(f"{name}:{mark[0]}:{mark[1]}: {problem}")


class _UnreadableError(Exception):
    """What cannot be read on: its mark, and why."""


class _YamlReader:
    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=_BaseLoader)
        self._anchors: dict[str, Any] = {}
        self._open: set[str] = set()
        self._tree = YamlTree()

    def read_document(self) -> YamlTree:
        next(self._events)
        event = next(self._events)
        if isinstance(event, yaml.DocumentStartEvent):
            self._tree.value = self._read_value(next(self._events), ())
            next(self._events)
            event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            problem = "not valid YAML: a second document begins here (---): there must be one"
            raise _UnreadableError(_locate_event(event), problem)
        return self._tree

    def _read_value(self, event: Any, place: KeyPath) -> Any:
        self._tree.marks.setdefault(place, _locate_event(event))
        if isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(event, place)
        if event.tag is not None and event.tag not in _HARMLESS:
            self._add_fault(event, "! begins a tag, which means nothing here: put the value in quotes", place)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = str(event.value)
        elif len(place) >= _MOST_LEVELS:
            problem = f"not more than {_MOST_LEVELS} lists and keys may lie in each other"
            raise _UnreadableError(_locate_event(event), problem)
        else:
            self._open.add(event.anchor)
            value = {} if isinstance(event, yaml.MappingStartEvent) else []
            while not isinstance(inner := next(self._events), _END_EVENTS):
                if isinstance(value, list):
                    value.append(self._read_value(inner, (*place, len(value))))
                else:
                    self._read_entry(inner, place, value)
            self._open.discard(event.anchor)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _read_entry(self, event: Any, place: KeyPath, mapping: dict[str, Any]) -> None:
        """Read a key and its value into a mapping."""
        nowhere = (*place, -1)  # of what no record is made
        if not isinstance(event, yaml.ScalarEvent):
            problem = "a key must be plain text; a value that begins with { or [ needs quotes"
            self._add_fault(event, problem, place)
            self._read_value(event, nowhere)
            self._read_value(next(self._events), nowhere)
            return
        key = str(event.value)
        if event.anchor is not None:
            self._anchors[event.anchor] = key
        inner = (*place, key)
        if key in mapping:
            self._add_fault(
                event, f"{key} is given twice, in line {self._tree.marks[inner][0]} too: leave one"
            )
        elif key == "<<":
            self._add_fault(event, "<< merges nothing here: write the keys out")
        else:
            self._tree.marks[inner] = _locate_event(event)
            mapping[key] = self._read_value(next(self._events), inner)
            return
        self._read_value(next(self._events), nowhere)

    def _resolve_alias(self, event: Any, place: KeyPath) -> Any:
        if event.anchor in self._open:
            self._add_fault(event, f"*{event.anchor} would hold itself", place)
        elif event.anchor not in self._anchors:
            hint = tables.suggest_name(event.anchor, self._anchors)
            self._add_fault(
                event, f"nothing above is called &{event.anchor}{hint}; put a text in quotes", place
            )
        return self._anchors.get(event.anchor, "")

    def _add_fault(self, event: Any, message: str, spoilt: KeyPath | None = None) -> None:
        self._tree.faults.append((_locate_event(event), message))
        if spoilt is not None:
            self._tree.spoilt.add(spoilt)


def _locate_event(event: Any) -> Mark:
    return event.start_mark.line + 1, event.start_mark.column + 1
