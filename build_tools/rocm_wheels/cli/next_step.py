"""Say which command of a release is next: stage, check, smoke tests, gate, promote, refresh.

It has the store and the id of the set filled in, as they can be pasted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rocm_wheels.core import log, shell

if TYPE_CHECKING:
    from rocm_wheels.release import wheel_set


def format_check(store: str, document: wheel_set.SetDocument) -> str:
    """Return what follows when a set is staged."""
    return _format(["set", "check", store], document)


def format_tests(store: str, document: wheel_set.SetDocument) -> str:
    """Return what follows when all is known that needs no GPU: tests on one, where it has device code."""
    if not document.targets:
        return _format(["set", "gate", store], document, "--channel", "nightly", "--explain")
    family = ["--family", document.family] if document.layout == "per-family" else []
    return _format(["test", "smoke", "--store", store], document, *family)


def format_evidence(store: str, document: wheel_set.SetDocument, results: str) -> str:
    """Return what follows when a set was tested."""
    return _format(["set", "evidence", "add", store], document, "--from", results)


def _format(words: list[str], document: wheel_set.SetDocument, *options: str) -> str:
    return shell.format_command(["rocm-wheels", *words, "--set", document.id, *options])


def print_next(line: str, *, beside_json: bool = False) -> None:
    """Print it as the last line; on stderr, where JSON is on stdout."""
    if beside_json:
        log.log_note(f"next: {line}")
    else:
        click.echo(f"next: {line}")
