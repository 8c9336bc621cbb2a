"""Options that go together, as one decorator: written once, in the order in which help shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def combine_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what adds options (or lists of them) to a command, so that help shows the first one first."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add
