"""How commands print what came out: one encoder of results as JSON, and one printer of either form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import click

from rocm_wheels.core import log, shell


def to_plain(value: object) -> Any:
    """Return a result as JSON has it: objects, lists, text, numbers, truth and null.

    Dataclasses, named tuples and models become objects of their fields; what a dataclass does not show of
    itself (``repr=False``) is left out. Sets are sorted; paths, versions and all else become text.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.repr)
        return {name: to_plain(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(item) for item in value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)


def print_result(document: object, lines: Iterable[object], *, as_json: bool) -> None:
    """Print a result on stdout: a document for programs, as ``to_plain`` makes it, or lines for people.

    Credentials in URLs are hidden in both.
    """
    if as_json:
        import json

        click.echo(json.dumps(_hide_credentials(to_plain(document)), indent=1))
        return
    for line in lines:
        click.echo(shell.hide_credentials(str(line)))


def _hide_credentials(plain: Any) -> Any:
    """Hide what is secret in each text by itself: encoded, a line's end looks like letters of a URL."""
    if isinstance(plain, str):
        return shell.hide_credentials(plain)
    if isinstance(plain, dict):
        return {shell.hide_credentials(str(name)): _hide_credentials(item) for name, item in plain.items()}
    return [_hide_credentials(item) for item in plain] if isinstance(plain, list) else plain


def print_next(line: str, *, beside_json: bool) -> None:
    """Print the command that is next as the last line; on stderr, where JSON is on stdout."""
    if beside_json:
        log.log_note(f"next: {line}")
    else:
        click.echo(f"next: {line}")
