"""The script that pins actions, on real repositories with tags: what it writes, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rocm_wheels.cli import boundary
from update_action_pins import update_action_pins


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    command = ["git", *identity, "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def release(folder: Path, tag: str, *, annotated: bool = False) -> str:
    """Make a commit and tag it; return the commit."""
    if not folder.exists():
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", tag)
    git(folder, "tag", *(["-a", "-m", tag] if annotated else []), tag)
    return git(folder, "rev-parse", "HEAD")


class Actions:
    """Two actions with releases, and a tag of a kind that is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        cache, attest = folder / "a/cache", folder / "a/attest"
        self.old_cache = release(cache, "v9.1.0")
        release(cache, "v11.0.0-beta.1")
        self.new_cache = release(cache, "v10.0.0")
        release(cache, "v9.2.0")
        self.attest = release(attest, "v1.0.0", annotated=True)


@pytest.fixture(scope="module")
def actions(tmp_path_factory: pytest.TempPathFactory) -> Actions:
    return Actions(tmp_path_factory.mktemp("actions"))


class World:
    """A workflow and an action beside it that pin these actions, in different ways."""

    def __init__(self, folder: Path, actions: Actions) -> None:
        self.actions, self.workflows = actions.folder, folder / "workflows"
        old = f"{actions.old_cache} # v9.1.0"
        self.one, self.two = self.workflows / "one.yml", folder / "actions" / "two" / "action.yml"
        for path in (self.one, self.two):
            path.parent.mkdir(parents=True)
        self.one.write_text(f"# a: comment\n- uses: a/cache/save@{old}\n- uses: ./.github/x.yml\n")
        self.two.write_text(f"- uses: a/attest@{actions.attest} # v1.0.0\n- uses: a/cache@{old}\n")

    def run(self, *words: str) -> int:
        origin = ["--from", self.actions.as_uri(), "--workflows", str(self.workflows)]
        return boundary.run_command(update_action_pins, [*origin, *words])

    def texts(self) -> list[str]:
        return [self.one.read_text(), self.two.read_text()]


def test_the_newest_releases_are_pinned_everywhere(
    tmp_path: Path, actions: Actions, capfd: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path, actions)
    before = world.texts()
    assert world.run("--check", "--json") == 17
    rows = {row["action"]: row for row in json.loads(capfd.readouterr().out)["actions"]}
    assert (rows["a/cache"]["newest"], rows["a/attest"]["newest"]) == ("v10.0.0", "v1.0.0")
    assert rows["a/attest"]["commit"] == actions.attest, "of an annotated tag, its commit"
    assert world.run("--check", "--only", "a/attest") == 0 and world.texts() == before
    assert world.run() == 0
    expected = [
        text.replace(f"{actions.old_cache} # v9.1.0", f"{actions.new_cache} # v10.0.0") for text in before
    ]
    assert world.texts() == expected != before
    assert world.run("--check") == 0 and world.run() == 0 and world.texts() == expected


@pytest.mark.parametrize(
    ("pin", "code"),
    [
        ("a/gone@{cache} # v9.1.0", 17),
        ("a/cache@{cache} # v9.9.9", 2),
        ("a/cache@{cache} # v10.0.0", 2),  # as if the tag had been moved since
        ("a/cache@{cache}", 2),
        ("a/cache@v9", 2),
    ],
)
def test_what_cannot_be_trusted_changes_no_file(
    tmp_path: Path, actions: Actions, pin: str, code: int
) -> None:
    world = World(tmp_path, actions)
    world.two.write_text(f"- uses: {pin.format(cache=actions.old_cache)}\n")
    before = world.texts()
    assert world.run() == code and world.texts() == before


@pytest.mark.parametrize("words", [("--only", "a/other"), ("--workflows", "nowhere")])
def test_a_name_that_is_none_is_refused(tmp_path: Path, actions: Actions, words: tuple[str, ...]) -> None:
    assert World(tmp_path, actions).run(*words) == 2
