"""The rules of the house, held by a machine: what reviewers should not have to look for.

Docstrings, hidden failures, the environment and who starts programs are ruff's to watch (pyproject.toml).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parents[2]
PACKAGE = CLONE / "build_tools" / "rocm_wheels"
TOP_LEVEL = {
    "pyproject.toml",
    "build_tools",
    "repos",
    "patches",
    "dockerfiles",
    "docs",
    "action.yml",  # of GitHub: `uses: OWNER/rocm-wheels@COMMIT`
    "tests",
    "smoke-tests",
}
PAGES = {"README.md", "LICENSE"}
AVOIDED = re.compile(r"(?i)(utils?|helpers?|manager|context|common)(_|$)|^do_")


Module = tuple[str, str, ast.Module]


@pytest.fixture(scope="module")
def shipped() -> Iterator[list[Module]]:
    """Every module as (name, text, tree): read once for all rules, and forgotten after the last one."""
    found = [(path, path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    held = [(path.relative_to(PACKAGE).as_posix(), text, ast.parse(text)) for path, text in found]
    yield held
    held.clear()


@pytest.fixture
def modules(shipped: list[Module]) -> list[Module]:
    """The same, but for what runs inside the ROCm packages."""
    return [module for module in shipped if "templates" not in module[0].split("/")]


def test_top_level_is_what_a_newcomer_was_told() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=CLONE, capture_output=True, text=True, check=True)
    tops = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {top for top in tops if not top.startswith(".")} <= TOP_LEVEL | PAGES


def test_gpus_stand_on_the_standard_library_alone(modules: list[Module]) -> None:
    """The room is shipped inside the provider plugin, under another name."""
    outside = [
        f"{name}:{node.lineno}"
        for name, _, tree in modules
        if name.startswith("gpus/")
        for node in ast.walk(tree)
        if not (isinstance(node, ast.ImportFrom) and node.level)
        for module in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if module.split(".")[0] not in sys.stdlib_module_names
    ]
    assert outside == []


def test_product_code_cannot_know_that_it_runs_on_the_miniature(shipped: list[Module]) -> None:
    knows = [
        f"{name}: {found.group()}"
        for name, text, _ in shipped
        if (found := re.search(r"(?i)miniature|\bdemo\b|\bzig", text))
    ]
    assert knows == []


def test_names_say_what_they_are(modules: list[Module]) -> None:
    vague = [name for name, _, _ in modules if any(AVOIDED.search(part) for part in Path(name[:-3]).parts)]
    for name, _, tree in modules:
        vague += [
            f"{name}:{node.lineno} {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and AVOIDED.search(node.name)
            and node.name != "make_context"  # click calls it so
        ]
    assert vague == []


def test_tables_say_where_their_facts_come_from() -> None:
    tables = sorted((PACKAGE / "data").glob("*.yaml"))
    assert [t.name for t in tables if not re.search(r"(?i)source|https://", t.read_text())] == []


def test_tests_import_public_names_and_no_other_test() -> None:
    """What tests share is in support modules, so that each module can be moved, split and run alone."""
    faults = []
    for path in sorted((CLONE / "tests").glob("*/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            faults += [f"{path.name}:{node.lineno} {name}" for name in modules if name.startswith("test_")]
    assert faults == []
