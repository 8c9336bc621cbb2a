"""The expressions of GitHub that our workflows use. What is not known is an error, and never skipped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Functions = Mapping[str, Callable[..., Any]]
_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<sign>==|!=|&&|\|\||[!<>().,\[\]]))"
)
_WHOLE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
STATUS = ("success", "failure", "cancelled", "always")


class Unknown(Exception):
    """Something that this interpreter does not know, or that GitHub would not take."""


class Optional(dict[str, Any]):
    """A context of which a name that is not there is an empty string, as GitHub has it."""


def evaluate(text: str, contexts: Mapping[str, Any], functions: Functions) -> Any:
    """Return the value of an expression (without its braces)."""
    return _Parser(text, contexts, functions).value()


def fill(value: Any, contexts: Mapping[str, Any], functions: Functions) -> Any:
    """Return a value of a workflow with its expressions replaced; one that is nothing else keeps its type."""
    if isinstance(value, dict):
        return {key: fill(inner, contexts, functions) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(one, contexts, functions) for one in value]
    if not isinstance(value, str):
        return value
    whole = _WHOLE.fullmatch(value)
    if whole and "${{" not in whole[1]:
        return evaluate(whole[1], contexts, functions)
    return _WHOLE.sub(lambda found: as_text(evaluate(found[1], contexts, functions)), value)


def condition(value: Any, contexts: Mapping[str, Any], functions: Functions) -> bool:
    """Return whether an `if` holds: one that asks for no status asks for success as well."""
    text = str(value).strip() if value is not None else "success()"
    found = _WHOLE.fullmatch(text)
    inner = found[1] if found else text
    asks = any(re.search(rf"\b{name}\s*\(", inner) for name in STATUS)
    said = _truth(evaluate(inner, contexts, functions))
    return said if asks else said and bool(functions["success"]())


def as_text(value: Any) -> str:
    """Return a value as GitHub writes it into a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        raise Unknown(f"an object within a text: {value}")
    return str(value)


def _truth(value: Any) -> bool:
    return value not in (None, False, "", 0)


def _number(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value) if value.strip() else 0.0
        except ValueError:
            return float("nan")
    return float(value or 0)


class _Parser:
    def __init__(self, text: str, contexts: Mapping[str, Any], functions: Functions) -> None:
        self._text, self._contexts, self._functions = text, contexts, functions
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                raise Unknown(f"not understood: {text[place:]!r} in {text!r}")
            kind = str(found.lastgroup)
            self._tokens.append((kind, found[kind]))
            place = found.end()

    def value(self) -> Any:
        made = self._either()
        if self._tokens:
            raise Unknown(f"left over in {self._text!r}: {self._tokens}")
        return made

    def _next(self, *wanted: str) -> bool:
        return bool(self._tokens) and self._tokens[0] in [("sign", sign) for sign in wanted]

    def _take(self, sign: str) -> None:
        if not self._next(sign):
            raise Unknown(f"{sign} is missing in {self._text!r}")
        del self._tokens[0]

    def _either(self) -> Any:
        made = self._both()
        while self._next("||"):
            self._take("||")
            other = self._both()
            made = made if _truth(made) else other
        return made

    def _both(self) -> Any:
        made = self._compared()
        while self._next("&&"):
            self._take("&&")
            other = self._compared()
            made = other if _truth(made) else made
        return made

    def _compared(self) -> Any:
        made = self._one()
        if self._next("==", "!=", "<", ">"):
            sign = self._tokens.pop(0)[1]
            other = self._one()
            if sign in "<>":
                made = _number(made) < _number(other) if sign == "<" else _number(made) > _number(other)
            else:
                same = self._same(made, other)
                made = same if sign == "==" else not same
        return made

    @staticmethod
    def _same(made: Any, other: Any) -> bool:
        if isinstance(made, str) and isinstance(other, str):
            return made.lower() == other.lower()
        if isinstance(made, (dict, list)) or isinstance(other, (dict, list)):
            raise Unknown("objects are compared")
        return (type(made) is type(other) and made == other) or _number(made) == _number(other)

    def _one(self) -> Any:
        if self._next("!"):
            self._take("!")
            return not _truth(self._one())
        if self._next("("):
            self._take("(")
            made = self._either()
            self._take(")")
            return made
        if not self._tokens:
            raise Unknown(f"it ends too early: {self._text!r}")
        kind, word = self._tokens.pop(0)
        if kind == "string":
            return word[1:-1].replace("''", "'")
        if kind == "number":
            return float(word) if "." in word else int(word)
        if kind != "name":
            raise Unknown(f"{word} in {self._text!r}")
        if word in {"true", "false", "null"}:
            return {"true": True, "false": False, "null": None}[word]
        return self._called(word) if self._next("(") else self._found(word)

    def _called(self, name: str) -> Any:
        self._take("(")
        given = []
        while not self._next(")"):
            given.append(self._either())
            if self._next(","):
                self._take(",")
        self._take(")")
        if name not in self._functions:
            raise Unknown(f"the function {name} in {self._text!r}")
        return self._functions[name](*given)

    def _found(self, name: str) -> Any:
        if name not in self._contexts:
            raise Unknown(f"there is no context {name} here: {self._text!r}")
        made = self._contexts[name]
        while self._next("."):
            self._take(".")
            made = self._member(made, self._tokens.pop(0)[1])
        return made

    def _member(self, made: Any, key: str) -> Any:
        if isinstance(made, Optional):
            return made.get(key, "")
        if isinstance(made, dict) and key in made:
            return made[key]
        raise Unknown(f"{key} is not there: {self._text!r}")


def from_json(text: Any) -> Any:
    """Read JSON, as `fromJSON` does; an empty text is none."""
    try:
        return json.loads(text)
    except (TypeError, ValueError) as wrong:
        raise Unknown(f"fromJSON of {text!r}: {wrong}") from None


PURE: Functions = {
    "fromJSON": from_json,
    "startsWith": lambda text, start: as_text(text).lower().startswith(as_text(start).lower()),
    "contains": lambda text, part: as_text(part).lower() in as_text(text).lower(),
}
