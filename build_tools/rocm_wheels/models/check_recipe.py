"""Say what is wrong with a recipe beyond what its record refuses: names that clash, cycles, hooks, TODOs.

A fault has file, line and column. What the record refuses comes as it is; nothing else is looked at then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from rocm_wheels.core import errors, records, tables, yaml_reader
from rocm_wheels.models import estimates, release_lines
from rocm_wheels.models.project import Project, read_recipe

_HOOK_NAMES = ("environment", "prepare", "settings", "shows_flags")
_Fault = tuple[tuple[str | int, ...], str]  # keys and numbers that lead to the place, what is wrong there
_TODO = re.compile(r"(?:- )?(\w+): *TODO\b *(.*?) *(?:#.*)?")  # as `recipe new` leaves it


class RecipeFault(NamedTuple):
    """Something wrong with a recipe, and where: a file of people, its line and column (from 1)."""

    file: Path
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        """Return ``file:line:column: message``."""
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


def check_recipes(paths: Sequence[Path], recipe_paths: Mapping[str, Path]) -> list[str]:
    """Return what is wrong with recipes, a line a fault, each recipe's in the order of its lines.

    Those of ``paths`` hold beside each other, and beside all others, ``recipe_paths`` by project. A recipe
    whose record refuses it is not held against the others.
    """
    faults: list[str] = []
    sound: dict[str, Path] = {}
    for path in dict.fromkeys(paths):
        try:
            read_recipe(path)
        except errors.DataError as wrong:
            faults += wrong.message.splitlines()
            continue
        first = sound.setdefault(path.stem, path)
        if not first.samefile(path):
            faults.append(f"{path}:1:1: {first} is a recipe of {path.stem}, too: give one another name")
    for path in sound.values():
        # one of the same name is this very file, or one that it clashes with
        beside = {**sound, **recipe_paths}
        others = {name: read_recipe(other) for name, other in beside.items() if not other.samefile(path)}
        faults += map(str, sorted(_find_faults(path, others)))
    return faults


def _find_faults(path: Path, others: Mapping[str, Project]) -> Iterator[RecipeFault]:
    project, text = read_recipe(path), records.read_text_file(path)
    for number, line in enumerate(text.splitlines(), start=1):
        if left := _TODO.fullmatch(line.strip()):
            message = f"{left[1]} is TODO yet{': ' if left[2] else ''}{left[2]}"
            yield RecipeFault(path, number, line.index(left[1]) + 1, message)
    marks = yaml_reader.read_yaml_tree(text, name=str(path)).marks
    for place, message in _find_wrong_values(project, path, others):
        nearest = next((place[:end] for end in range(len(place), 0, -1) if place[:end] in marks), ())
        yield RecipeFault(path, *marks.get(nearest, (1, 1)), message)
    if project.hooks is not None and (path.parent / project.hooks).is_file():
        yield from _find_hook_faults(path.parent / project.hooks)


def _find_wrong_values(project: Project, path: Path, others: Mapping[str, Project]) -> Iterator[_Fault]:
    # names that are taken
    if project.name in others:
        yield ("name",), f"there is another recipe of {project.name}: give one of them another name"
    if project.name in estimates.load_estimate_table().steps:
        yield ("name",), f"{project.name} is a kind of step: call the project otherwise"
    for other in others.values():
        if other.normalized_name == project.normalized_name:
            yield ("distribution",), f"the wheel of {other.name} is called {other.distribution}, too"
        if other.checks.import_name == project.checks.import_name:
            yield ("checks", "import_name"), f"the package of {other.name} is called so, too"

    # names that lead nowhere, builds that wait for each other
    for number, name in enumerate(project.build.after):
        if name != project.name and name not in others:
            hint = tables.suggest_name(name, others)
            yield ("build", "after", number), f"there is no project {name}{hint}: its recipe has to be there"
    projects = {**others, project.name: project}
    try:
        TopologicalSorter({name: recipe.build.after for name, recipe in projects.items()}).prepare()
    except CycleError as fault:  # its second argument: each is waited for by the next
        if project.name in (cycle := fault.args[1]):
            yield ("build", "after"), f"projects wait for each other: {' after '.join(reversed(cycle))}"
    lines = [line.name for line in release_lines.get_release_lines()]
    for name in project.lines:
        if name not in lines:
            yield ("lines", name), f"there is no release line {name}{tables.suggest_name(name, lines)}"
    if project.hooks is not None and not (path.parent / project.hooks).is_file():
        yield ("hooks",), f"there is no file {project.hooks} beside the recipe"

    # files that the wheel must have, and that nothing lets it have
    package = project.checks.import_name.replace(".", "/")
    for number, pattern in enumerate(project.checks.files):
        top = pattern.partition("/")[0]
        names = project.checks.contents.names
        is_allowed = any(top == name or re.match(r"[*?\[]", name) for name in names)
        if not is_allowed and not re.match(rf"{re.escape(package)}[/.]|[*?\[]", pattern):
            message = f"{pattern} is not in {package}/: name it in `contents` too, or no wheel may hold it"
            yield ("checks", "files", number), message


def _find_hook_faults(path: Path) -> Iterator[RecipeFault]:
    """Yield what is wrong with a file of hooks, without running it: ``HOOKS``, and the functions it names."""
    try:
        tree = ast.parse(records.read_text_file(path), filename=str(path))
    except SyntaxError as wrong:
        yield RecipeFault(path, wrong.lineno or 1, wrong.offset or 1, f"not valid Python: {wrong.msg}")
        return
    assigned = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if "HOOKS" not in assigned:
        yield RecipeFault(path, 1, 1, "it has no HOOKS: HOOKS = Hooks(environment=…, prepare=…, settings=…)")
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    functions |= {node.asname or node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    hooks = assigned.get("HOOKS")
    for keyword in hooks.keywords if isinstance(hooks, ast.Call) else ():
        line, column = keyword.value.lineno, keyword.value.col_offset + 1
        if keyword.arg not in _HOOK_NAMES:
            hint = tables.suggest_name(str(keyword.arg), _HOOK_NAMES)
            yield RecipeFault(path, line, column, f"there is no hook {keyword.arg}{hint}")
        elif isinstance(keyword.value, ast.Name) and keyword.value.id not in functions | assigned.keys():
            yield RecipeFault(path, line, column, f"there is no function {keyword.value.id} in this file")
