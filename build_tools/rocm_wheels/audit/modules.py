"""Checks of generated Python modules. They are read as syntax trees: nothing of a wheel runs here."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from rocm_wheels.audit.findings import Finding, Skipped
from rocm_wheels.audit.subject import Subject
from rocm_wheels.errors import DataError

_CALL = "initialize_process"
_WRITE = "write the module again: the build makes it right before the front end runs"
_CPU = "HIP was not found or switched off at configure time: look in the log for `USE_ROCM`"


def check_version_module(wheel: Subject) -> list[Finding]:
    """``version.py`` of the package states a ``hip`` version, and no ``cuda`` version."""
    member = f"{wheel.expected.project.checks.import_name}/version.py"
    if member not in wheel.scan.texts:
        return [Finding("the module that states the HIP version is missing", member, _CPU)]
    try:
        stated = _constants(_tree(wheel, member))
    except DataError as wrong:
        return [Finding(str(wrong), member, _CPU)]
    found = []
    if not isinstance(stated.get("hip"), str) or not stated["hip"]:
        found.append(Finding("a CPU-only build: `hip` is not stated (None or missing)", member, _CPU))
    if stated.get("cuda") is not None:
        found.append(Finding(f"a CUDA build: `cuda` is {stated['cuda']!r}", member, _CPU))
    return found


def check_rocm_init(wheel: Subject) -> list[Finding] | Skipped:
    """The module that starts the ROCm packages is there, compiles, and checks for the SDK's version."""
    member = wheel.expected.project.checks.rocm_init
    if member is None:
        return Skipped("the recipe names no such module for this project")
    if member not in wheel.scan.texts:
        tip = "the front end left it out: git-ignored files need to be named to some build back ends"
        return [Finding("the module that starts the ROCm packages is missing", member, tip)]
    try:
        tree = _tree(wheel, member)
    except DataError as wrong:
        return [Finding(str(wrong), member, _WRITE)]
    call = _call_in_initialize(tree)
    if call is None:
        return [Finding(f"`initialize()` does not call `{_CALL}`", member, _WRITE)]
    return _judge_call(wheel, member, call, _constants(tree))


def _judge_call(wheel: Subject, member: str, call: ast.Call, named: Mapping[str, object]) -> list[Finding]:
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    found = []
    version = _value(given.get("check_version"), named)
    wanted = wheel.expected.rocm_version
    if not isinstance(version, str) or not version:
        found.append(Finding(f"`{_CALL}` is called without a `check_version`", member, _WRITE))
    elif wanted is not None and version != wanted:
        said = f"checks for ROCm {version}, but was built with {wanted}"
        found.append(Finding(said, member, _WRITE))
    preloads = _value(given.get("preload_shortnames"), named)
    if not isinstance(preloads, Sequence) or isinstance(preloads, str) or not preloads:
        found.append(Finding(f"`{_CALL}` is called without libraries to preload", member, _WRITE))
    return found


def _tree(wheel: Subject, member: str) -> ast.Module:
    try:
        return ast.parse(wheel.scan.texts[member], filename=member)
    except SyntaxError as wrong:
        raise DataError(f"does not compile: line {wrong.lineno}: {wrong.msg}") from wrong
    except ValueError as wrong:  # null bytes, or no valid encoding
        raise DataError(f"does not compile: {wrong}") from wrong
    except (MemoryError, RecursionError) as wrong:  # how the parser says so
        raise DataError("does not compile: nested too deeply") from wrong


def _constants(tree: ast.Module) -> dict[str, object]:
    """Return what a module's top level assigns to names, where the value is a literal."""
    stated: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            stated.update(dict.fromkeys(names, _literal(node.value)))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stated[node.target.id] = _literal(node.value)
    return stated


def _literal(node: ast.expr | None) -> object:
    if node is None:
        return None
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError):  # not a literal: nothing that we can hold against an expectation
        return None
    return value


def _value(node: ast.expr | None, named: Mapping[str, object]) -> object:
    """Return a literal, or what the module's top level gave to the name that stands there."""
    return named.get(node.id) if isinstance(node, ast.Name) else _literal(node)


def _call_in_initialize(tree: ast.Module) -> ast.Call | None:
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == "initialize":
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _called(node.func) == _CALL:
                    return node
    return None


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
