"""A value as YAML that people can read: keys in their order, comments where given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class Noted:
    """A text, and a comment behind it."""

    text: str
    note: str


def as_yaml(value: Mapping[str, Any], header: Sequence[str]) -> str:
    """Return a mapping as YAML below a comment; jobs and other large parts stand apart by an empty line."""
    lines = [f"# {line}".rstrip() for line in header]
    for key, inner in value.items():
        if len(lines) > len(header) and key != "run-name":
            lines.append("")
        lines.extend(_apart(key, inner) if key == "jobs" else _entry(key, inner))
    return "\n".join(lines) + "\n"


def _apart(key: str, jobs: Mapping[str, Any]) -> Iterator[str]:
    yield f"{key}:"
    for number, (name, job) in enumerate(jobs.items()):
        if number:
            yield ""
        yield from _indented(_entry(name, job))


def _entry(key: str, value: Any) -> Iterator[str]:
    name = _scalar(key) if key != "on" else key  # of YAML 1.1 alone `on` is a boolean; GitHub reads 1.2
    if isinstance(value, Mapping) and value:
        yield f"{name}:"
        for inner, one in value.items():
            yield from _indented(_entry(inner, one))
    elif _is_list(value) and value:
        if all(isinstance(one, (str, int)) for one in value):
            yield f"{name}: [{', '.join(_scalar(one, flow=True) for one in value)}]"
            return
        yield f"{name}:"
        for one in value:
            yield from _item(one)
    else:
        yield f"{name}:{_after(value)}"


def _item(value: Any) -> Iterator[str]:
    first, *rest = [line for key, one in value.items() for line in _entry(key, one)]
    yield f"  - {first}"
    yield from (f"    {line}" if line else "" for line in rest)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _after(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Noted):
        return f" {_scalar(value.text)} # {value.note}"
    if isinstance(value, Mapping):
        return " {}"
    return " []" if _is_list(value) else f" {_scalar(value)}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _scalar(value: str | int | bool, *, flow: bool = False) -> str:
    """Return a scalar as it is where YAML reads the same again, else in quotes."""
    if not isinstance(value, str):
        return str(value).lower()
    before, after = ("[", "]") if flow else ("k: ", "")
    try:
        read = yaml.safe_load(f"{before}{value}{after}")
    except yaml.YAMLError:
        read = None
    plain = read == ([value] if flow else {"k": value})
    return value if plain and value.isprintable() else _quoted(value)


def _quoted(value: str) -> str:
    if not value.isprintable() or "'" in value:
        return f'"{"".join(map(_escaped, value))}"'
    return f"'{value}'" if '"' in value or "\\" in value else f'"{value}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
