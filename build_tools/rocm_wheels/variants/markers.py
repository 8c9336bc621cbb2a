"""Requirements with variant markers (``"amd" in variant_namespaces``), decided for one wheel.

No installer of today reads such a requirement (PEP 825 leaves the markers open), so a wheel with one cannot
be installed at all. What its own label and properties decide is decided here; what a
machine would have to decide is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rocm_wheels.errors import DataError
from rocm_wheels.variants.document import Properties

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<word>[A-Za-z_][\w.]*)|(?P<sign>===|[~!=<>]=|[<>()]))""",
    re.VERBOSE,
)
_VARIABLES = ("variant_label", "variant_namespaces", "variant_features", "variant_properties")
_Value = bool | str  # decided, or the rest of the marker that is left for the installer


def has_variant_marker(requirement: str) -> bool:
    """Tell whether a Requires-Dist value has a variant marker."""
    return any(variable in requirement.partition(";")[2] for variable in _VARIABLES)


def decide(requirement: str, label: str, properties: Properties) -> str | None:
    """Return a requirement without variant markers, None when they say that it does not apply.

    DataError with the reason when it depends on more than the wheel.
    """
    project, _, marker = requirement.partition(";")
    try:
        parser = _Parser(_tokens(marker), label, properties)
        value = parser.either()
        if parser.rest:
            raise ValueError(f"{parser.rest[0]} is not expected there")
    except (ValueError, RecursionError) as cause:
        raise DataError(
            f"the requirement {requirement!r} cannot be decided for this wheel: {cause}"
        ) from None
    if isinstance(value, bool):
        return project.strip() if value else None
    return f"{project.strip()} ; {value}"


def _tokens(text: str) -> list[str]:
    found = []
    text = text.strip()
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"{text[at:].strip()!r} is no marker")
        found.append(match.group().strip())
        at = match.end()
    return found


@dataclass
class _Parser:
    """A marker, read from left to right; parts that the wheel decides are values at once."""

    rest: list[str]
    label: str
    properties: Properties
    taken: list[str] = field(default_factory=list)

    def take(self) -> str:
        if not self.rest:
            raise ValueError("its marker ends too early")
        self.taken.append(self.rest.pop(0))
        return self.taken[-1]

    def either(self) -> _Value:
        values = [self.both()]
        while self.rest[:1] == ["or"]:
            self.take()
            values.append(self.both())
        if True in values:
            return True
        left = [value for value in values if isinstance(value, str)]
        return " or ".join(left) if left else False

    def both(self) -> _Value:
        values = [self.single()]
        while self.rest[:1] == ["and"]:
            self.take()
            values.append(self.single())
        if False in values:
            return False
        left = [f"({value})" if " or " in value else value for value in values if isinstance(value, str)]
        return " and ".join(left) if left else True

    def single(self) -> _Value:
        if self.rest[:1] == ["("]:
            self.take()
            value = self.either()
            if self.take() != ")":
                raise ValueError("a bracket is not closed")
            return value
        left, sign = self.take(), self.take()
        if sign == "not":
            sign = f"not {self.take()}"
        return self.compare(left, sign, self.take())

    def compare(self, left: str, sign: str, right: str) -> _Value:
        if left not in _VARIABLES and right not in _VARIABLES:
            return f"{left} {sign} {right}"
        if "variant_label" in (left, right):
            other = right if left == "variant_label" else left
            if sign not in ("==", "!="):
                raise ValueError(f"{sign} with variant_label has no meaning here")
            return (_unquoted(other) == self.label) == (sign == "==")
        if sign not in ("in", "not in") or right not in _VARIABLES:
            raise ValueError(f"{left} {sign} {right} has no meaning here")
        return self.holds(_unquoted(left), right) == (sign == "in")

    def holds(self, text: str, variable: str) -> bool:
        namespace, *more = (part.strip() for part in text.split("::"))
        if len(more) + 2 != _VARIABLES.index(variable) + 1:
            raise ValueError(f"{text!r} is not what {variable} holds")
        features = self.properties.get(namespace, {})
        if len(more) < 1:
            return bool(features)
        values = features.get(more[0], ())
        if len(more) < 2 or more[1] not in values:
            return bool(values) and len(more) < 2
        if len(values) > 1:
            raise ValueError(
                f"the wheel has {len(values)} values of {namespace} :: {more[0]}: a machine decides"
            )
        return True


def _unquoted(token: str) -> str:
    if token[:1] not in ("'", '"'):
        raise ValueError(f"{token} is not a text in quotes")
    return token[1:-1]
