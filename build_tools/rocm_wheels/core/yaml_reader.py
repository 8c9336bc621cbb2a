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

_TAG_MESSAGE = "! begins a tag, which means nothing here: put the value in quotes"


def locate_yaml_error(error: yaml.YAMLError, text: str) -> tuple[int, int, str]:
    """Return line and column of what is no YAML, and what PyYAML or libyaml says of it."""
    if isinstance(error, yaml.MarkedYAMLError):
        line, column = _get_mark_position(error.problem_mark or error.context_mark)
        begin = error.context_mark
        where = f"from line {begin.line + 1}" if begin is not None and begin.line + 1 < line else ""
        return line, column, " ".join(filter(None, (error.problem, error.context, where)))
    if isinstance(error, yaml.reader.ReaderError):
        line, column = _get_text_position(text, max(text.find(chr(error.character)), 0))
        return line, column, f"{error.reason} (U+{error.character:04X})"
    return 1, 1, str(error)


def _get_text_position(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _get_mark_position(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


_BaseLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MOST_LEVELS = 100
# !!str and the like: every scalar is text anyway
_HARMLESS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}
_END_EVENTS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_NO_KEY = -1
_NOT_A_TEXT_KEY = "a key must be plain text; a value that begins with { or [ needs quotes"
_NO_MERGE_KEYS = "<< merges nothing here: write the keys out"

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
        return _YamlReader(text, name).read_document()
    except yaml.YAMLError as cause:
        line, column, message = locate_yaml_error(cause, text)
        raise errors.DataError(f"{name}:{line}:{column}: not valid YAML: {message}") from None


class _YamlReader:
    def __init__(self, text: str, name: str) -> None:
        self._name = name
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
            problem = "a second document begins here (---): there must be one"
            raise errors.DataError(self._locate_message(event, f"not valid YAML: {problem}"))
        return self._tree

    def _read_value(self, event: Any, place: KeyPath) -> Any:
        self._tree.marks.setdefault(place, _get_event_position(event))
        if isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(event, place)
        if event.tag is not None and event.tag not in _HARMLESS:
            self._add_fault(event, place, _TAG_MESSAGE)
        if isinstance(event, yaml.ScalarEvent):
            return self._remember_anchor(event, str(event.value))
        if len(place) >= _MOST_LEVELS:
            raise errors.DataError(
                self._locate_message(
                    event, f"not more than {_MOST_LEVELS} lists and keys may lie in each other"
                )
            )
        self._open.add(event.anchor)
        value = (
            self._read_mapping(place) if isinstance(event, yaml.MappingStartEvent) else self._read_list(place)
        )
        self._open.discard(event.anchor)
        return self._remember_anchor(event, value)

    def _read_list(self, place: KeyPath) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), _END_EVENTS):
            items.append(self._read_value(event, (*place, len(items))))
        return items

    def _read_mapping(self, place: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), _END_EVENTS):
            if not isinstance(event, yaml.ScalarEvent):
                self._add_fault(event, place, _NOT_A_TEXT_KEY)
                self._read_value(event, (*place, _NO_KEY))
                self._read_value(next(self._events), (*place, _NO_KEY))
                continue
            key = self._remember_anchor(event, str(event.value))
            if key in mapping or key == "<<":
                self._add_fault(
                    event, None, self._describe_duplicate(place, key) if key in mapping else _NO_MERGE_KEYS
                )
                self._read_value(next(self._events), (*place, _NO_KEY))
                continue
            inner = (*place, key)
            self._tree.marks[inner] = _get_event_position(event)
            mapping[key] = self._read_value(next(self._events), inner)
        return mapping

    def _describe_duplicate(self, place: KeyPath, key: str) -> str:
        first = (*place, key)
        line, _ = self._tree.marks[first]
        return f"{key} is given twice, in line {line} too: leave one"

    def _remember_anchor(self, event: Any, value: Any) -> Any:
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _resolve_alias(self, event: Any, place: KeyPath) -> Any:
        if event.anchor in self._open:
            self._add_fault(event, place, f"*{event.anchor} would hold itself")
        elif event.anchor not in self._anchors:
            hint = tables.suggest_name(event.anchor, self._anchors)
            self._add_fault(
                event, place, f"nothing above is called &{event.anchor}{hint}; put a text in quotes"
            )
        return self._anchors.get(event.anchor, "")

    def _add_fault(self, event: Any, place: KeyPath | None, message: str) -> None:
        self._tree.faults.append((_get_event_position(event), message))
        if place is not None:
            self._tree.spoilt.add(place)

    def _locate_message(self, event: Any, message: str) -> str:
        line, column = _get_event_position(event)
        return f"{self._name}:{line}:{column}: {message}"


def _get_event_position(event: Any) -> Mark:
    return event.start_mark.line + 1, event.start_mark.column + 1
