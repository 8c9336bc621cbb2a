"""YAML text as plain values, every scalar as text, with the place of each.

It is read event by event, and not deeper than files of people are: PyYAML's own tree breaks the whole process
on brackets in brackets in brackets. What is wrong is said in words of our own (``yaml_words``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from rocm_wheels.errors import DataError
from rocm_wheels.records import yaml_words
from rocm_wheels.words import did_you_mean

_BaseLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_DEEPEST = 100
# !!str and the like: every scalar is text anyway
_HARMLESS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}
_END = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_NO_KEY = -1
_NO_TEXT = "a key must be plain text; a value that begins with { or [ needs quotes"
_MERGE = "<< merges nothing here: write the keys out"

Place = tuple[str | int, ...]
Mark = tuple[int, int]


@dataclass
class Tree:
    """A document: its value (``None``: there is none), and line and column of each key and item.

    ``faults`` are keys that are given twice and the like, by their mark; what lies ``spoilt`` is not worth
    looking at further.
    """

    value: Any = None
    marks: dict[Place, Mark] = field(default_factory=dict)
    faults: list[tuple[Mark, str]] = field(default_factory=list)
    spoilt: set[Place] = field(default_factory=set)


def read_tree(text: str, *, name: str) -> Tree:
    """Read a document. Raises DataError with ``name:line:column`` for what is no YAML."""
    try:
        return _Reader(text, name).document()
    except yaml.YAMLError as cause:
        line, column, said = yaml_words.explain(cause, text)
        raise DataError(f"{name}:{line}:{column}: not valid YAML: {said}") from None


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._events: Iterator[Any] = yaml.parse(text, Loader=_BaseLoader)
        self._anchors: dict[str, Any] = {}
        self._open: set[str] = set()
        self._tree = Tree()

    def document(self) -> Tree:
        next(self._events)
        event = next(self._events)
        if isinstance(event, yaml.DocumentStartEvent):
            self._tree.value = self._value(next(self._events), ())
            next(self._events)
            event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            said = "a second document begins here (---): there must be one"
            raise DataError(self._at(event, f"not valid YAML: {said}"))
        return self._tree

    def _value(self, event: Any, place: Place) -> Any:
        self._tree.marks.setdefault(place, _mark(event))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, place)
        if event.tag is not None and event.tag not in _HARMLESS:
            self._spoil(event, place, yaml_words.TAG)
        if isinstance(event, yaml.ScalarEvent):
            return self._known(event, str(event.value))
        if len(place) >= _DEEPEST:
            raise DataError(self._at(event, f"not more than {_DEEPEST} lists and keys may lie in each other"))
        self._open.add(event.anchor)
        value = self._mapping(place) if isinstance(event, yaml.MappingStartEvent) else self._list(place)
        self._open.discard(event.anchor)
        return self._known(event, value)

    def _list(self, place: Place) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), _END):
            found.append(self._value(event, (*place, len(found))))
        return found

    def _mapping(self, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), _END):
            if not isinstance(event, yaml.ScalarEvent):
                self._spoil(event, place, _NO_TEXT)
                self._value(event, (*place, _NO_KEY))
                self._value(next(self._events), (*place, _NO_KEY))
                continue
            key = self._known(event, str(event.value))
            if key in found or key == "<<":
                self._spoil(event, None, self._twice(place, key) if key in found else _MERGE)
                self._value(next(self._events), (*place, _NO_KEY))
                continue
            self._tree.marks[(*place, key)] = _mark(event)
            found[key] = self._value(next(self._events), (*place, key))
        return found

    def _twice(self, place: Place, key: str) -> str:
        return f"{key} is given twice, in line {self._tree.marks[(*place, key)][0]} too: leave one"

    def _known(self, event: Any, value: Any) -> Any:
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _alias(self, event: Any, place: Place) -> Any:
        if event.anchor in self._open:
            self._spoil(event, place, f"*{event.anchor} would hold itself")
        elif event.anchor not in self._anchors:
            hint = did_you_mean(event.anchor, self._anchors)
            self._spoil(event, place, f"nothing above is called &{event.anchor}{hint}; put a text in quotes")
        return self._anchors.get(event.anchor, "")

    def _spoil(self, event: Any, place: Place | None, said: str) -> None:
        self._tree.faults.append((_mark(event), said))
        if place is not None:
            self._tree.spoilt.add(place)

    def _at(self, event: Any, said: str) -> str:
        line, column = _mark(event)
        return f"{self._name}:{line}:{column}: {said}"


def _mark(event: Any) -> Mark:
    return event.start_mark.line + 1, event.start_mark.column + 1
