"""Decide requirements with variant markers (``"amd" in variant_namespaces``) for a machine.

No installer of today reads such a requirement (PEP 825 leaves the markers open), so a wheel with one
cannot be installed by any. The properties are those of the wheel that the machine supports, as the PEP has
it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rocm_wheels.core import errors
from rocm_wheels.variants import document
from rocm_wheels.wheels import dist_info, edit

_MARKER_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<word>[A-Za-z_][\w.]*)|(?P<sign>===|[~!=<>]=|[<>()]))""",
    re.VERBOSE,
)
_MARKER_VARIABLES = ("variant_label", "variant_namespaces", "variant_features", "variant_properties")
_MarkerValue = bool | str  # decided, or the rest of the marker that is left for the installer


def decide_requirement(requirement: str, label: str, properties: document.Properties) -> str | None:
    """Return a requirement without variant markers, None when they say that it does not apply.

    ``properties`` are those that a machine supports (``list_supported_properties``). DataError for a marker
    that cannot be read.
    """
    project, _, marker = requirement.partition(";")
    try:
        parser = _MarkerParser(_split_tokens(marker), label, properties)
        value = parser.parse_or()
        if parser.rest:
            raise ValueError(f"{parser.rest[0]} is not expected there")
    except (ValueError, RecursionError) as cause:
        raise errors.DataError(f"the requirement {requirement!r} cannot be decided: {cause}") from None
    if isinstance(value, bool):
        return project.strip() if value else None
    return f"{project.strip()} ; {value}"


def decide_markers(metadata: bytes, name: str, label: str, supported: document.Properties) -> bytes:
    """Return METADATA with its variant markers decided for a machine; the same bytes where it has none.

    ``name`` is the wheel's, ``label`` "" of one that is no variant, ``supported`` the properties of the wheel
    that the machine has. DataError for a marker that cannot be read.
    """
    if not any(variable.encode() in metadata for variable in _MARKER_VARIABLES):
        return metadata  # as nearly always: nothing is taken apart
    fields, _ = edit.read_metadata_fields(metadata, f"METADATA of {name}")
    requirements = []
    for text in edit.get_field_values(fields, "Requires-Dist"):
        decided: str | None = text
        if dist_info.has_variant_marker(text):
            decided = decide_requirement(text, label, supported)
        if decided is not None:
            requirements.append(decided)
    return edit.replace_field_values(metadata, {"Requires-Dist": requirements}, f"METADATA of {name}")


def _split_tokens(text: str) -> list[str]:
    tokens = []
    text = text.strip()
    at = 0
    while at < len(text):
        match = _MARKER_TOKEN.match(text, at)
        if not match:
            raise ValueError(f"{text[at:].strip()!r} is no marker")
        tokens.append(match.group().strip())
        at = match.end()
    return tokens


@dataclass
class _MarkerParser:
    """A marker, read from left to right; parts that the machine decides are values at once."""

    rest: list[str]
    label: str
    properties: document.Properties
    consumed: list[str] = field(default_factory=list)

    def take_token(self) -> str:
        if not self.rest:
            raise ValueError("its marker ends too early")
        self.consumed.append(self.rest.pop(0))
        return self.consumed[-1]

    def parse_or(self) -> _MarkerValue:
        values = [self.parse_and()]
        while self.rest[:1] == ["or"]:
            self.take_token()
            values.append(self.parse_and())
        if True in values:
            return True
        undecided = [value for value in values if isinstance(value, str)]
        return " or ".join(undecided) if undecided else False

    def parse_and(self) -> _MarkerValue:
        values = [self.parse_term()]
        while self.rest[:1] == ["and"]:
            self.take_token()
            values.append(self.parse_term())
        if False in values:
            return False
        undecided = [f"({value})" if " or " in value else value for value in values if isinstance(value, str)]
        return " and ".join(undecided) if undecided else True

    def parse_term(self) -> _MarkerValue:
        if self.rest[:1] == ["("]:
            self.take_token()
            value = self.parse_or()
            if self.take_token() != ")":
                raise ValueError("a bracket is not closed")
            return value
        operand, sign = self.take_token(), self.take_token()
        if sign == "not":
            sign = f"not {self.take_token()}"
        return self.decide_comparison(operand, sign, self.take_token())

    def decide_comparison(self, left_operand: str, sign: str, right_operand: str) -> _MarkerValue:
        if left_operand not in _MARKER_VARIABLES and right_operand not in _MARKER_VARIABLES:
            return f"{left_operand} {sign} {right_operand}"
        if "variant_label" in (left_operand, right_operand):
            label_text = right_operand if left_operand == "variant_label" else left_operand
            if sign not in ("==", "!="):
                raise ValueError(f"{sign} with variant_label has no meaning here")
            return (_strip_quotes(label_text) == self.label) == (sign == "==")
        if sign not in ("in", "not in") or right_operand not in _MARKER_VARIABLES:
            raise ValueError(f"{left_operand} {sign} {right_operand} has no meaning here")
        return self.has_property(_strip_quotes(left_operand), right_operand) == (sign == "in")

    def has_property(self, text: str, variable: str) -> bool:
        namespace, *parts = (part.strip() for part in text.split("::"))
        if len(parts) + 2 != _MARKER_VARIABLES.index(variable) + 1:
            raise ValueError(f"{text!r} is not what {variable} holds")
        features = self.properties.get(namespace, {})
        if len(parts) < 1:
            return bool(features)
        values = features.get(parts[0], ())
        if len(parts) < 2 or parts[1] not in values:
            return bool(values) and len(parts) < 2
        return True


def _strip_quotes(token: str) -> str:
    if token[:1] not in ("'", '"'):
        raise ValueError(f"{token} is not a text in quotes")
    return token[1:-1]
