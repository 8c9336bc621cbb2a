"""Find the tables of facts in ``data/``, and give out rows of any of them as ``compat show`` prints them.

A table has a head: its name, what it has, who reads it, and when it ends. Below it stand ``sources`` by key,
and sections of rows: rows by name, several rows a name, or a list of rows. What is read by code has a record
in the module that reads it; here every table is plain text, so that a new one is shown without code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, records, tables, yaml_reader
from rocm_wheels.models import facts, project_names

_HEAD = re.compile(r"^table:\n(?:  .*\n)+", re.MULTILINE)


class _Head(records.Record):
    table: facts.TableHead


def list_tables() -> dict[str, tuple[facts.TableHead, Path]]:
    """Return the heads of all tables by name, with their files. Raises DataError for a head that is none."""
    heads = {}
    for path in project_names.get_data_folder().glob("*.yaml"):
        if match := _HEAD.search(records.read_text_file(path)):
            head = records.parse_record(match[0], _Head, name=str(path)).table
            heads[head.name] = (head, path)
    return dict(sorted(heads.items()))


def read_table(name: str, word: str | None = None) -> dict[str, Any]:
    """Return a table as its file has it, every scalar as text: ``table``, ``sources``, then its sections.

    With ``word``: rows alone that have this name, or this value: an alias of a dtype, a GPU of a known
    issue, a release line. ``torch.half`` and ``half`` are the same word. Raises UsageError, with near
    names, for a table or word that is none.
    """
    heads = list_tables()
    if name not in heads:
        raise errors.UsageError(
            f"there is no table {name!r}{tables.suggest_name(name, heads)}", tip=f"tables: {', '.join(heads)}"
        )
    path = heads[name][1]
    table: dict[str, Any] = yaml_reader.read_yaml_tree(records.read_text_file(path), name=str(path)).value
    if word is None:
        return table
    sections = list_sections(table)
    words: dict[str, set[str]] = {}
    for _, content in sections:
        for key, row in list_rows(content):
            for text in filter(None, (key, *_list_words(row))):
                words.setdefault(text, set()).add(key)
    # half is an alias in the row float16, which has rows of that name in other sections, too
    names = {key for text, keys in words.items() if _normalize(text) == _normalize(word) for key in keys}
    if not names:
        hint = tables.suggest_name(word, words)
        raise errors.UsageError(
            f"no row of the table {name} has the name or value {word!r}{hint}",
            tip=f"`rocm-wheels compat show {name}` has all",
        )
    chosen: dict[str, Any] = {}
    for section, content in sections:
        if isinstance(content, dict):
            chosen[section] = {key: rows for key, rows in content.items() if key in names}
        else:
            rows = _as_list(content)
            chosen[section] = [row for row in rows if _normalize(word) in map(_normalize, _list_words(row))]
    chosen = {section: kept for section, kept in chosen.items() if kept}
    return {"table": table["table"], "sources": table.get("sources", {}), **chosen}


def list_sections(table: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the sections of a table by name: all but its head and its sources."""
    return [(name, content) for name, content in table.items() if name not in ("table", "sources")]


def list_rows(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a section, each with its name ("": it has none)."""
    named = content.items() if isinstance(content, dict) else [("", content)]
    for name, value in named:
        yield from ((name, row) for row in _as_list(value))


def flatten_row(row: Any, place: str = "") -> dict[str, str]:
    """Return the cells of a row: ``state.now: frozen``; items of a list are parted by commas."""
    if isinstance(row, dict):
        children = row.items()
    elif isinstance(row, list) and any(isinstance(item, (dict, list)) for item in row):
        children = {str(number): item for number, item in enumerate(row, 1)}.items()
    else:
        return {place or "value": ", ".join(row) if isinstance(row, list) else str(row or "")}
    cells: dict[str, str] = {}
    for key, value in children:
        cells |= flatten_row(value, f"{place}.{key}" if place else key)
    return cells


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _list_words(value: Any) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _list_words(item)
    elif value:
        yield str(value)


def _normalize(text: str) -> str:
    return text.casefold().removeprefix("torch.")
