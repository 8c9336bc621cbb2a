"""How commands print what came out: one encoder of results as JSON, and one printer of either form."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import click

from rocm_wheels.core import log, shell, tables

_LONGEST_LIST, _LONGEST_OBJECT = 12, 80  # items in an object that people are shown, letters on one line


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


def format_facts(document: Mapping[str, object]) -> list[str]:
    """Return a document for people: a row a fact, a line for each item of a list; no row for what is empty.

    What is no text is shown as JSON, with long lists in objects cut: a release may have two hundred ROCm
    versions.
    """
    import json

    rows: list[tuple[str, str]] = []
    for name, value in to_plain(document).items():
        if value in (None, "", [], {}):
            continue
        texts = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            is_short = len(json.dumps(value)) < _LONGEST_OBJECT
            texts = json.dumps(_shorten_lists(value), indent=None if is_short else 1).splitlines()
        labels = [name.replace("_", "-"), *[""] * (len(texts) - 1)]
        shown = [text if isinstance(text, str) else json.dumps(text) for text in texts]
        rows += zip(labels, shown, strict=True)
    return tables.align_rows(rows)


def _shorten_lists(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _shorten_lists(item) for name, item in plain.items()}
    if isinstance(plain, list) and len(plain) > _LONGEST_LIST:
        return [plain[0], f"... {len(plain) - 2} more ...", plain[-1]]
    return plain


def print_next(line: str, *, beside_json: bool) -> None:
    """Print the command that is next as the last line; on stderr, where JSON is on stdout."""
    if beside_json:
        log.log_note(f"next: {line}")
    else:
        click.echo(f"next: {line}")


def format_variable(name: str, value: str | None, shell: str) -> str:
    """Return the line that sets a variable, or removes it (None).

    ``shell`` is ``sh``, ``fish``, ``powershell``, ``cmd``, or ``github``: that is what a step appends to
    ``$GITHUB_ENV``, where nothing can be removed.
    """
    if shell == "fish":
        text = (value or "").replace("\\", "\\\\").replace("'", "\\'")
        return f"set -e {name}" if value is None else f"set -gx {name} '{text}'"
    if shell == "powershell":
        text = (value or "").replace("'", "''")
        return f"Remove-Item Env:{name}" if value is None else f"$Env:{name} = '{text}'"
    if shell == "cmd":
        return f'set "{name}={value or ""}"'
    if shell == "github":
        return f"{name}={value or ''}"
    return f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
