"""Say what is wrong with a recipe beyond what its record refuses: names that clash, cycles, hooks, patterns.

A fault has file, line and column. What the record refuses comes as it is; nothing else is looked at then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from rocm_wheels.core import errors, records, tables, yaml_reader
from rocm_wheels.models import estimates, release_lines
from rocm_wheels.models.project import Project, read_recipe

HOOK_NAMES = ("environment", "prepare", "settings")
_Fault = tuple[tuple[str | int, ...], str]  # keys and numbers that lead to the place, what is wrong there
_IMPORT_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_TODO = re.compile(r"(?:- )?(\w+): *TODO\b *(.*?) *(?:#.*)?")  # as `recipe new` leaves it
_GLOB_OF_ALL = re.compile(r"[*?/]*")


class RecipeFault(NamedTuple):
    """Something wrong with a recipe, and where: a file of people, its line and column (from 1)."""

    file: Path
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        """Return ``file:line:column: message``."""
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


def check_recipe(
    path: Path, others: Mapping[str, Path], options: Mapping[str, Collection[str]]
) -> list[RecipeFault]:
    """Return what is wrong with a recipe, in the order of its lines.

    ``others``: the recipes that hold beside it, by project. ``options``: of each command that has options of
    projects, those that are no project's. Raises DataError, in lines that begin with ``file:line:column``,
    for what the record refuses.
    """
    project = read_recipe(path)
    recipes = {name: read_recipe(other) for name, other in others.items() if not other.samefile(path)}
    text = records.read_text_file(path)
    marks = yaml_reader.read_yaml_tree(text, name=str(path)).marks
    faults = []
    for number, line in enumerate(text.splitlines(), start=1):
        if left := _TODO.fullmatch(line.strip()):
            message = f"{left[1]} is TODO yet{': ' if left[2] else ''}{left[2]}"
            faults.append(RecipeFault(path, number, line.index(left[1]) + 1, message))
    for place, message in _find_faults(project, path, recipes, options):
        nearest = next((place[:end] for end in range(len(place), 0, -1) if place[:end] in marks), ())
        faults.append(RecipeFault(path, *marks.get(nearest, (1, 1)), message))
    if project.hooks is not None:
        faults += find_hook_faults(path.parent / project.hooks)
    return sorted(faults)


def _find_faults(
    project: Project,
    path: Path,
    recipes: Mapping[str, Project],
    options: Mapping[str, Collection[str]],
) -> Iterator[_Fault]:
    if project.name in recipes:
        yield ("name",), f"there is another recipe of {project.name}: give one of them another name"
    if project.name in estimates.load_estimate_table().steps:
        yield ("name",), f"{project.name} is a kind of step: call the project otherwise"
    for command, taken in options.items():
        if clashes := sorted(list_project_options(project.name) & set(taken)):
            yield ("name",), f"`{command}` has {', '.join(clashes)} already: call the project otherwise"
    for other in recipes.values():
        if other.normalized_name == project.normalized_name:
            yield ("distribution",), f"the wheel of {other.name} is called {other.distribution}, too"
        if other.checks.import_name == project.checks.import_name:
            yield ("checks", "import_name"), f"the package of {other.name} is called so, too"
    yield from _find_order_faults(project, recipes)
    names = [line.name for line in release_lines.get_release_lines()]
    for name in project.lines:
        if name not in names:
            yield ("lines", name), f"there is no release line {name}{tables.suggest_name(name, names)}"
    if project.hooks is not None and not (path.parent / project.hooks).is_file():
        yield ("hooks",), f"there is no file {project.hooks} beside the recipe"
    if not re.search(r"[/:]|^TODO\b", project.source.origin):
        yield ("source", "origin"), f"{project.source.origin!r} is no repository: give its URL"
    yield from _find_pattern_faults(project)


def list_project_options(project: str) -> set[str]:
    """Return the options that a project of a name gives to commands."""
    word = project.replace("_", "-")
    kinds = ("dir", "wheel", "ref", "origin")
    return {f"--build-{word}", f"--no-build-{word}", *(f"--{word}-{kind}" for kind in kinds)}


def _find_order_faults(project: Project, recipes: Mapping[str, Project]) -> Iterator[_Fault]:
    for number, name in enumerate(project.build.after):
        if name != project.name and name not in recipes:
            yield (
                ("build", "after", number),
                f"there is no project {name}{tables.suggest_name(name, recipes)}: its recipe has "
                "to be there, too",
            )
    projects = {**recipes, project.name: project}
    waits = {
        name: [other for other in recipe.build.after if other in projects]
        for name, recipe in projects.items()
    }
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as fault:  # its second argument: each is waited for by the next
        if project.name in (cycle := fault.args[1]):
            yield ("build", "after"), f"projects wait for each other: {' after '.join(reversed(cycle))}"


def _find_pattern_faults(project: Project) -> Iterator[_Fault]:
    checks = project.checks
    if _IMPORT_NAME.fullmatch(checks.import_name) is None:
        yield ("checks", "import_name"), f"{checks.import_name!r} cannot be imported: it is no name of Python"
    package = checks.import_name.replace(".", "/")
    for number, pattern in enumerate(checks.files):
        if pattern.startswith("/") or ".." in pattern.split("/"):
            yield ("checks", "files", number), f"{pattern}: paths in a wheel begin with no / and have no .."
        elif not re.match(rf"{re.escape(package)}[/.]|[*?\[]", pattern) and not _is_allowed(pattern, project):
            yield (
                ("checks", "files", number),
                f"{pattern} is not in {package}/: name it in `contents` too, or no wheel may hold it",
            )
    for number, pattern in enumerate(checks.contents.names):
        place = ("checks", "contents", "names", number)
        if "/" in pattern:
            yield place, f"{pattern} is a path: these are names beside {package}/"
        elif _GLOB_OF_ALL.fullmatch(pattern):
            yield place, f"{pattern} allows everything: name what the wheel may hold"
        elif pattern == package:
            yield place, f"{pattern} is the package itself, which is allowed anyway: leave it out"
    for number, rule in enumerate(checks.device_code):
        if rule.files.startswith("/") or ".." in rule.files.split("/"):
            yield (
                ("checks", "device_code", number, "files"),
                f"{rule.files}: paths in a wheel begin with no / and have no ..",
            )


def _is_allowed(pattern: str, project: Project) -> bool:
    top = pattern.partition("/")[0]
    return any(top == name or re.match(r"[*?\[]", name) for name in project.checks.contents.names)


def find_hook_faults(path: Path) -> Iterator[RecipeFault]:
    """Yield what is wrong with a file of hooks, without running it: ``HOOKS``, and the functions it names."""
    if not path.is_file():
        return
    try:
        tree = ast.parse(records.read_text_file(path), filename=str(path))
    except SyntaxError as wrong:
        yield RecipeFault(path, wrong.lineno or 1, wrong.offset or 1, f"not valid Python: {wrong.msg}")
        return
    made = [
        node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign)) and _assigns_hooks(node)
    ]
    if not made:
        yield RecipeFault(path, 1, 1, "it has no HOOKS: HOOKS = Hooks(environment=…, prepare=…, settings=…)")
        return
    value = made[-1].value
    if not isinstance(value, ast.Call):
        return
    defined = {
        node.name if not isinstance(node, ast.alias) else node.asname or node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.alias))
    }
    for keyword in value.keywords:
        line, column = keyword.value.lineno, keyword.value.col_offset + 1
        if keyword.arg not in HOOK_NAMES:
            hint = tables.suggest_name(str(keyword.arg), HOOK_NAMES)
            yield RecipeFault(path, line, column, f"there is no hook {keyword.arg}{hint}")
        elif isinstance(keyword.value, ast.Name) and keyword.value.id not in defined:
            yield RecipeFault(path, line, column, f"there is no function {keyword.value.id} in this file")


def _assigns_hooks(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "HOOKS" for target in targets)


def check_recipes(
    paths: Sequence[Path], recipe_paths: Mapping[str, Path], options: Mapping[str, Collection[str]]
) -> list[str]:
    """Return what is wrong with recipes, a line a fault; those of ``paths`` hold beside each other.

    ``recipe_paths``: all others. A recipe whose record refuses it is not held against the others.
    """
    lines: list[str] = []
    sound: dict[str, Path] = {}
    for path in dict.fromkeys(paths):
        try:
            read_recipe(path)
        except errors.DataError as wrong:
            lines += wrong.message.splitlines()
            continue
        first = sound.setdefault(path.stem, path)
        if not first.samefile(path):
            lines.append(f"{path}:1:1: {first} is a recipe of {path.stem}, too: give one another name")
    for name, path in sound.items():
        mine = {**recipe_paths, **sound}
        if name in recipe_paths:
            mine[name] = recipe_paths[name]  # this very file, or one that it clashes with
        lines += map(str, check_recipe(path, mine, options))
    return lines
