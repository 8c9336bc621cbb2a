#!/usr/bin/env python3
"""Pin the actions of the workflows to their newest releases, each by its commit, its tag in a comment.

update_action_pins.py [--check] [--json] [--only OWNER/NAME]... [--workflows DIR] [--from URL]

Those of ``actions/*/action.yml`` beside the folder of the workflows are pinned with them.
The tags of each repository come from ``git ls-remote``, all of them before any file is written. A release
is a tag vX.Y.Z. A pin that is not the commit of the tag in its comment is an error, and nothing is written:
a tag that was moved is a reason to look, not to follow. Upkeep of the repository, not a part of the product.
"""

from __future__ import annotations

if __name__ == "__main__":  # before imports that the Python which runs this may lack
    import _script

    _script.run("update_action_pins:update_action_pins")

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from rocm_wheels.cli import command
from rocm_wheels.core import errors, files, parallel, process, tables

WORKFLOW_FOLDER = Path(__file__).resolve().parent.parent / ".github" / "workflows"
GITHUB = "https://github.com"
_PIN = re.compile(r"(uses: ([\w.-]+/[\w.-]+)(?:/[\w./-]+)?@)([0-9a-f]{40}) # (\S+)")
_RELEASE = re.compile(r"v\d+\.\d+\.\d+")
_TAG_LINE = re.compile(r"([0-9a-f]{40})\trefs/tags/([^\s^]+)(\^\{\})?")
_SECONDS = 60.0  # for the tags of a repository


@dataclass(frozen=True)
class ActionPin:
    """An action as workflows pin it: ``OWNER/NAME``, the commit, and the tag in the comment."""

    repository: str
    commit: str
    tag: str


@dataclass(frozen=True)
class ActionUpdate:
    """A pin, and the newest release: its tag and commit. They are the pin's own when it is that."""

    pin: ActionPin
    tag: str
    commit: str

    @property
    def is_behind(self) -> bool:
        """Tell whether the pin is of an older release."""
        return self.tag != self.pin.tag


def read_pins(texts: Mapping[Path, str]) -> list[ActionPin]:
    """Return the pins of workflows, each once, in order. DataError for one that is not pinned this way."""
    pins: dict[ActionPin, None] = {}
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if not re.search(r"\buses: [^.]", line):
                continue
            match = _PIN.search(line)
            if match is None or not _RELEASE.fullmatch(match[4]):
                raise errors.DataError(
                    f"{path}:{number} pins no action as OWNER/NAME@<40 hexadecimal digits> # vX.Y.Z"
                )
            pins[ActionPin(match[2], match[3], match[4])] = None
    return sorted(pins, key=lambda pin: (pin.repository, pin.tag))


def parse_release_tags(text: str) -> dict[str, str]:
    """Return the commits of releases by their tags, from ``git ls-remote --tags``.

    Of an annotated tag git prints the object of the tag, and, as ``TAG^{}``, the commit.
    """
    commits: dict[str, str] = {}
    for match in map(_TAG_LINE.fullmatch, text.splitlines()):
        if match and _RELEASE.fullmatch(match[2]) and (match[3] or match[2] not in commits):
            commits[match[2]] = match[1]
    return commits


def find_update(pin: ActionPin, commits: Mapping[str, str]) -> ActionUpdate:
    """Return the newest release. DataError where the pin is not what its own tag is today."""
    if not commits:
        raise errors.DataError(f"{pin.repository} has no tag vX.Y.Z")
    if pin.tag not in commits:
        raise errors.DataError(
            f"{pin.repository} has no tag {pin.tag}, and a workflow says so of {pin.commit}"
        )
    if commits[pin.tag] != pin.commit:
        raise errors.DataError(
            f"{pin.repository} {pin.tag} is {commits[pin.tag]}, and {pin.commit} is pinned as that",
            tip="find out who moved the tag, and why, before you take its commit",
        )
    newest = max(commits, key=lambda tag: [int(part) for part in tag[1:].split(".")])
    return ActionUpdate(pin, newest, commits[newest])


def rewrite_pins(text: str, updates: Sequence[ActionUpdate]) -> str:
    """Return a workflow with the newest releases."""
    by_pin = {update.pin: update for update in updates}

    def replace_pin(match: re.Match[str]) -> str:
        update = by_pin.get(ActionPin(match[2], match[3], match[4]))
        return f"{match[1]}{update.commit} # {update.tag}" if update else match[0]

    return _PIN.sub(replace_pin, text)


@command.command("update_action_pins")
@command.option("--check", is_flag=True, help="Write nothing; fail (exit code 17) when a pin is behind.")
@command.option(
    "--only", multiple=True, metavar="OWNER/NAME", help="Only this action. May be given several times."
)
@command.option(
    "--workflows",
    "folder",
    type=click.Path(path_type=Path),
    default=WORKFLOW_FOLDER,
    metavar="DIR",
    help="Folder of the workflows [default: that of this clone].",
)
@command.option(
    "--from", "origin", default=GITHUB, metavar="URL", help=f"Where the repositories are [default: {GITHUB}]."
)
@command.option("--json", "as_json", is_flag=True, help="Print the pins as JSON.")
def update_action_pins(
    *, check: bool, only: tuple[str, ...], folder: Path, origin: str, as_json: bool
) -> None:
    """Pin the actions of the workflows to the commits of their newest releases."""
    paths = sorted([*folder.glob("*.yml"), *folder.parent.glob("actions/*/action.yml")])
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    if not texts:
        raise errors.UsageError(f"there is no workflow in {folder}")
    pins = read_pins(texts)
    if unused := sorted({*only} - {pin.repository for pin in pins}):
        raise errors.UsageError(f"no workflow in {folder} uses {unused[0]}")
    pins = [pin for pin in pins if not only or pin.repository in only]
    repositories = sorted({pin.repository for pin in pins})
    tags = parallel.run_in_parallel(
        lambda name: _list_tags(f"{origin}/{name}"), repositories, jobs=len(repositories)
    )
    commits = {name: parse_release_tags(text) for name, text in zip(repositories, tags, strict=True)}
    updates = [find_update(pin, commits[pin.repository]) for pin in pins]
    behind = [update for update in updates if update.is_behind]
    click.echo(_format_json(updates) if as_json else _format_updates(updates))
    if behind and check:
        names = ", ".join(f"{update.pin.repository} {update.pin.tag}" for update in behind)
        raise errors.HostError(
            f"not the newest: {names}", tip="build_tools/update_action_pins.py pins the newest"
        )
    for path, text in texts.items():
        if (rewritten := rewrite_pins(text, updates)) != text and not check:
            files.write_atomically(path, rewritten)


def _list_tags(url: str) -> str:
    return process.capture_output(
        ["git", "ls-remote", "--tags", url],
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        timeout=_SECONDS,
        check=errors.HostError,
        description=f"git ls-remote --tags {url}",
    )


def _format_updates(updates: Sequence[ActionUpdate]) -> str:
    rows = [
        (
            update.pin.repository,
            update.pin.tag,
            f"-> {update.tag} {update.commit}" if update.is_behind else "",
        )
        for update in updates
    ]
    return "\n".join(line.rstrip() for line in tables.align_rows(rows))


def _format_json(updates: Sequence[ActionUpdate]) -> str:
    rows = [
        {"action": each.pin.repository, "pinned": each.pin.tag, "newest": each.tag, "commit": each.commit}
        for each in updates
    ]
    return json.dumps({"actions": rows}, indent=1)
