"""The documentation: it builds strictly, names what is there, and marks each command that is not run."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml
from commands import call, find_faults
from docs_pages import CLONE, DOCS, PAGES, list_blocks, list_fences, list_spans

from rocm_wheels.cli import main

SOURCES = CLONE / "build_tools" / "rocm_wheels"
names = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CLONE)))


@names
def test_marks_are_known_and_commands_are_in_blocks_of_console(page: Path) -> None:
    assert all(block.commands for block in list_blocks(page))


@names
def test_every_command_of_a_page_is_one_that_its_program_takes(page: Path) -> None:
    """In blocks, run here or not, and in sentences: each name is there, and nothing is missing."""
    lines = [(block.place, line, False) for block in list_blocks(page) for line, _ in block.commands]
    lines += [(str(page.relative_to(CLONE)), span, True) for span in list_spans(page)]
    faults = [
        f"{place}: {line}: {fault}"
        for place, line, names in lines
        for fault in find_faults(line, names=names)
    ]
    assert faults == []


@pytest.mark.parametrize(
    "line",
    [
        "rocm-wheels compat show --jsn",
        "rocm-wheels set gate store --channel nightly",  # --set is missing
        "rocm-wheels set stage store --lock set.lock --family gfx1100",  # no wheel
        "rocm-wheels build --jobs many",
        "rocm-wheels clean --dry-run smoke",  # takes no word
        "rocm-wheels install-rocm",  # a name of TheRock's
        "repos/pytorch_torch_repo.py checkout --hsh 1",
        'eval "$(true)" && rocm-wheels configure --prnt > file',
        'export A="$(rocm-wheels shell pytorch --print bash)"',
        "A=1 rocm-wheels container run -- rocm-wheels liens",
    ],
)
def test_a_line_that_its_command_refuses_is_seen(line: str) -> None:
    assert find_faults(line) != []


@pytest.mark.parametrize(
    "line",
    [
        "rocm-wheels compat show lines --json | head -3 2> none",
        "rocm-wheels audit none/*.whl --gfx gfx942 --json > audit.json",  # there is no such file
        'rocm-wheels set gate store --set "$(ls sets)" --channel nightly',
        "rocm-wheels doctor --python no-such-environment",
    ],
)
def test_a_line_is_parsed_without_a_look_at_the_disk(line: str) -> None:
    assert find_faults(line) == []


def test_every_configuration_file_of_a_page_is_taken(tmp_path: Path) -> None:
    """What a page has as TOML is ``rocm-wheels.toml``."""
    fences = [fence for page in PAGES for fence in list_fences(page) if fence.language == "toml"]
    assert fences
    own = CLONE / "repos" / "pytorch_audio.yaml"
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "other.yaml").write_text(own.read_text().replace("pytorch_audio", "other"))
    for number, fence in enumerate(fences):
        file = tmp_path / f"{number}.toml"
        file.write_text("\n".join(fence.lines))
        call("--config", file, "settings")


def test_a_name_is_no_whole_line_but_in_a_sentence() -> None:
    assert find_faults("rocm-wheels set stage", names=True) == []
    assert find_faults("rocm-wheels set stage") != []
    assert find_faults("rocm-wheels set stage STORE", names=True) != []


def test_readme_is_short() -> None:
    assert len((CLONE / "README.md").read_bytes()) <= 10_000


@names
def test_links_and_files_that_a_page_names_are_in_a_clone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text)
    files = re.findall(r"`((?:build_tools|docs|tests)/[\w./-]+)`", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    if page.name != "changelog.md":  # which names what is gone
        assert [file for file in files if not (CLONE / file).exists()] == []


def test_inputs_that_pages_give_to_workflows_and_to_the_action_are_there() -> None:
    workflows = {  # with a loader to which `on` is a word
        path.name: yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)
        for path in (CLONE / ".github" / "workflows").glob("*.yml")
    }
    action = yaml.safe_load((CLONE / "action.yml").read_text(encoding="utf-8"))
    named = [
        (words[3], field.partition("=")[0], workflows[words[3]]["on"]["workflow_dispatch"]["inputs"])
        for page in PAGES
        for block in list_blocks(page)
        for words in (shlex.split(line) for line, _ in block.commands)
        if words[:3] == ["gh", "workflow", "run"]
        for option, field in pairwise(words)
        if option == "-f"
    ]
    named += [
        (step["uses"], name, action["inputs"])
        for page in PAGES
        for fence in list_fences(page)
        if fence.language == "yaml" and "uses: OWNER/rocm-wheels@" in "\n".join(fence.lines)
        for step in yaml.safe_load("\n".join(fence.lines))["steps"]
        for name in step["with"]
    ]
    assert len({place for place, _, _ in named}) > 2
    assert [(place, name) for place, name, inputs in named if name not in inputs] == []


def test_ci_runs_the_test_command_that_readme_gives() -> None:
    command = (CLONE / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1].removeprefix("exec ")
    assert f"$ {command}\n" in (CLONE / "README.md").read_text(encoding="utf-8")


def test_it_builds_strictly(tmp_path: Path) -> None:
    """Links, anchors, navigation; and the pages that are made from the code."""
    words = ["mkdocs", "build", "--strict", "--quiet", "-f", str(DOCS / "mkdocs.yml"), "-d", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [sys.executable, "-m", *words], env=env, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    for page in ("index", "reference/recipe", "reference/exit-codes", "architecture"):
        assert (tmp_path / f"{page}.html").is_file()
    reference = (tmp_path / "reference/index.html").read_text(encoding="utf-8")
    assert 'href="exit-codes.html"' in reference.partition("<article")[2]
    commands = (tmp_path / "reference/commands.html").read_text(encoding="utf-8")
    for name in main.cli.list_commands(click.Context(main.cli)):
        assert f'id="rocm-wheels-{name}"' in commands
    assert "--gfx" in commands and "\n  rocm-wheels build --" in commands
    html = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")]
    assert not [text for text in html if "{{" in text], "something was not filled in"


def test_every_variable_of_ours_is_in_the_reference() -> None:
    groups = yaml.safe_load((DOCS / "environment.yaml").read_text(encoding="utf-8"))
    documented = [name for variables in groups.values() for name in variables]
    assert len(documented) == len(set(documented))
    files = [
        *(path for path in SOURCES.rglob("*") if path.suffix in {".py", ".yaml"}),
        *(CLONE / "repos").glob("*.yaml"),
        *(CLONE / ".github").glob("*/**/*.yml"),
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    ours = set(re.findall(r"\bROCM_WHEELS_[A-Z]+(?:_[A-Z]+)*\b(?!_)", text))
    assert sorted(ours - set(documented)) == []
    assert [name for name in documented if name not in text] == []


def test_messages_of_troubleshooting_are_those_of_the_code() -> None:
    """Each heading in backticks: what is between its … stands in one message of the code, in that order."""
    text = (DOCS / "pages" / "troubleshooting.md").read_text(encoding="utf-8")
    shown = re.findall(r"^### `(.+)`$", text, re.M)
    assert len(shown) > 15
    messages = [
        " ".join(message.split())
        for path in (*SOURCES.rglob("*.py"), CLONE / "build_tools" / "quickstart.py")
        for message in list_texts(ast.parse(path.read_text(encoding="utf-8")))
    ]
    missing = []
    for heading in shown:
        parts = heading.split("…")
        longest, pattern = max(parts, key=len), re.compile(".*".join(map(re.escape, parts)))
        if not any(longest in message and pattern.search(message) for message in messages):
            missing.append(heading)
    assert missing == []


def list_texts(tree: ast.AST) -> list[str]:
    """Return the strings of a module; in f-strings … stands for what is filled in."""
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            texts.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    return texts
