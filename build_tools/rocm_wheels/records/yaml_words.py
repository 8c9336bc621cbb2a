"""What PyYAML and libyaml find wrong with a text, in words that say what to do: one table for both."""

from __future__ import annotations

import re
from typing import Any

import yaml

_MERGE_CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNRESOLVED_MERGE = "a merge is not resolved here: put right what git left in the file"
_HERE, _ABOVE = "problem_mark", "context_mark"

TAG_MESSAGE = "! begins a tag, which means nothing here: put the value in quotes"
_TAB = "a tab is not for indentation: use spaces"
_LETTER = "a value cannot begin with {letter}: put it in quotes"
_OPEN = "the quotes that begin here are not closed"
_BLOCK = "after | or > the text begins on the next line"
_COLON = "no key can be here (`: ` makes one): put a value that holds a colon in quotes, or indent rightly"
_INDENTED = "below those that begin in line {began}, column {column}: indent it rightly"
_NO_PAIR = "this is no `key: value`: the colon is missing, or the space after it, or the indentation is wrong"
_ESCAPE = r"there is no such escape in double quotes: write \\ for a backslash, or use single quotes"

# what they say of the problem and of what they were reading, the mark that shows it best, and our words;
# braces take the letter there, and the line in which the reading of it began
_PROBLEMS = (
    ("tab character", "", _HERE, _TAB),
    ("cannot start any token", "", _HERE, _LETTER),
    ("alphabetic or numeric", "an (alias|anchor)", _ABOVE, _LETTER),
    ("mapping values are not allowed", "", _HERE, _COLON),
    ("sequence entries are not allowed", "", _HERE, "a list cannot begin here: each - begins a line"),
    ("or '?]'", "flow sequence", _HERE, "here must be , or ] (the list began in line {began})"),
    ("or '?}'", "flow mapping", _HERE, "here must be , or }} (what {{ opens began in line {began})"),
    ("unexpected (end of stream|document)", "quoted scalar", _ABOVE, _OPEN),
    ("expected (key|<block end>)", "block mapping", _HERE, f"here must be a key {_INDENTED}"),
    ("expected ('-' ind|<block end>)", "block (coll|seq)", _HERE, f"here must be an item (- ) {_INDENTED}"),
    ("node content", "", _HERE, "here a value is missing, or what [ or {{ opened above is not closed"),
    ("could not find expected ':'", "simple key", _ABOVE, _NO_PAIR),
    ("unknown escape", "", _HERE, _ESCAPE),
    ("hexa?decimal", "", _HERE, _ESCAPE),
    ("tag|'!'", "tag|parsing a node|directive", _ABOVE, TAG_MESSAGE),
    ("document start", "", _HERE, "nothing can follow here: what began in the first line is complete"),
    ("line break|indentation indicator", "block scalar", _HERE, _BLOCK),
)


def explain_yaml_error(error: yaml.YAMLError, text: str) -> tuple[int, int, str]:
    """Return line and column of what is no YAML, and what is wrong there.

    What the table does not know is shown in their words.
    """
    if merge := _MERGE_CONFLICT.search(text):
        return (*_get_text_position(text, merge.start()), _UNRESOLVED_MERGE)
    if not isinstance(error, yaml.MarkedYAMLError):
        return _describe_unprintable(error, text)
    problem, reading = error.problem or "", error.context or ""
    for of_problem, of_reading, place, message in _PROBLEMS:
        if re.search(of_problem, problem) and re.search(of_reading, reading):
            return _describe_problem(error, text, place, message)
    line, column = _get_mark_position(error.problem_mark or error.context_mark)
    return line, column, " ".join(filter(None, (problem, reading)))


def _describe_problem(
    error: yaml.MarkedYAMLError, text: str, place: str, message: str
) -> tuple[int, int, str]:
    mark: Any = getattr(error, place) or error.problem_mark
    letter = text[mark.index : mark.index + 1]
    if letter == "\t":
        message = _TAB
    began, column = _get_mark_position(error.context_mark or mark)
    return (*_get_mark_position(mark), message.format(letter=letter, began=began, column=column))


def _describe_unprintable(error: yaml.YAMLError, text: str) -> tuple[int, int, str]:
    match = _UNPRINTABLE.search(text)
    if match is None:
        return 1, 1, str(error)
    code = f"U+{ord(match[0]):04X}"
    return (
        *_get_text_position(text, match.start()),
        f"a text cannot hold the character {code}: is this file a text?",
    )


def _get_text_position(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _get_mark_position(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
