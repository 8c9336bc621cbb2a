"""Check the modules of a wheel that say and start its ROCm: ``version.py``, ``_rocm_init.py``.

They are read as syntax trees: nothing of a wheel runs here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from packaging.version import Version

from rocm_wheels.audit.audited_wheel import AuditedWheel
from rocm_wheels.audit.definition import Findings, Skip, check, error
from rocm_wheels.audit.metadata import get_exact_version, is_same_version, list_rocm_requirements
from rocm_wheels.core.errors import DataError
from rocm_wheels.models.libraries import is_rocm_library

_INIT_CALL = "initialize_process"
_RUNTIME = "amdhip64"
_FAT_TIP = "`rocm-wheels wheel fat` makes such a wheel from a thin one"


@check("RW015 rocm-build (error)", needs_recipe=True)
def check_rocm_build(wheel: AuditedWheel) -> Findings:
    """A ROCm build, not a CPU-only one.

    Why: It installs and imports, and no GPU does anything.
    Fix: Look in the log for what configure said about HIP.
    """
    evidence, expected = wheel.project.checks.rocm, wheel.expected.targets
    if evidence == "none":
        raise Skip("the recipe says that nothing in this project tells a ROCm build from another")
    if evidence == "torch.version.hip":
        yield from _check_version_module(wheel)
        return
    if wheel.damaged_members.intersection(wheel.libraries):
        raise Skip("a library is damaged: its contents are unknown")
    present = set(wheel.targets)
    if expected is not None:
        present.intersection_update(target.partition(":")[0] for target in expected)
    if not present and not wheel.moved_code and not wheel.jit_sources:  # only libraries with code are split
        requested = f" of {' '.join(expected)}" if expected else ""
        jit = wheel.project.checks.jit_sources
        sources = f", and no {jit} to compile where it is used" if jit else ""
        tip = "torch in the build environment must be the ROCm build, and no option may turn HIP off"
        yield error(f"a CPU-only build: no device code{requested} inside{sources}", tip=tip)


def _check_version_module(wheel: AuditedWheel) -> Findings:
    """``version.py`` of the package states a ``hip`` version, and no ``cuda`` version."""
    member = f"{wheel.project.checks.import_name}/version.py"
    if member not in wheel.scan.texts:
        yield error("the module that states the HIP version is missing", member)
        return
    try:
        stated = _read_constants(_parse_module(wheel, member))
    except DataError as fault:
        yield error(str(fault), member)
        return
    version, name = stated.get("__version__"), wheel.scan.name
    # a finished wheel may be given another local part, or a final version
    if name is not None and isinstance(version, str) and wheel.expected.version in (None, str(name.version)):
        try:
            base = Version(version).base_version
        except ValueError:  # no version, or a number of more digits than Python reads
            base = ""
        if base != name.version.base_version:
            message = f"says that this is version {version}, and the file name {name.version}"
            yield error(message, member, "the file is of another build: build again with a clean tree")
    hip, rocm = stated.get("hip"), _find_built_rocm(wheel)
    if not isinstance(hip, str) or not hip:
        yield error("a CPU-only build: `hip` is not stated (None or missing)", member)
    elif rocm and hip.partition(".")[0] != rocm.partition(".")[0]:
        yield error(f"was compiled with HIP {hip}, and is for ROCm {rocm}", member)
    if stated.get("cuda") is not None:
        yield error(f"a CUDA build: `cuda` is {stated['cuda']!r}", member)


def _find_built_rocm(wheel: AuditedWheel) -> str:
    """Return the ROCm that it was built with, as far as it was stated or METADATA pins it, else ""."""
    if wheel.expected.rocm_version is not None or wheel.installed_rocm:
        return wheel.expected.rocm_version or wheel.installed_rocm
    return next(filter(None, map(get_exact_version, list_rocm_requirements(wheel))), "")


@check("RW013 rocm-init (error)")
def check_rocm_init(wheel: AuditedWheel) -> Findings:
    """The module that starts ROCm asks for the SDK's version.

    Why: torch loads the libraries of another ROCm, or finds none.
    Fix: Write the module again: the build makes it right before the front end runs.
    """
    member = wheel.rocm_init
    if member is None or (not wheel.has_recipe and not _is_started(wheel, member)):
        raise Skip("no recipe names such a module, and nothing inside uses one")
    if member not in wheel.scan.texts:
        tip = "the front end left it out: git-ignored files need to be named to some build back ends"
        yield error("the module that starts the ROCm packages is missing", member, tip)
        return
    try:
        tree = _parse_module(wheel, member)
    except DataError as fault:
        yield error(str(fault), member)
        return
    stated, call = _read_constants(tree), _find_init_call(tree)
    if not wheel.has_recipe:  # anybody may start ROCm in another way
        if call is not None:
            yield from _judge_init_call(wheel, member, call, stated)
        return
    if wheel.rocm_folder is not None:
        yield from _judge_carried_init(wheel, member, tree, stated)
    elif wheel.installed_rocm:  # it says which libraries of it are loaded, and of which ROCm
        if not isinstance(stated.get("LIBRARIES"), Mapping) or not stated["LIBRARIES"]:
            yield error("does not say which libraries it loads (LIBRARIES)", member)
        if stated.get("ROCM_VERSION") != wheel.installed_rocm:
            message = f"is for ROCm {stated.get('ROCM_VERSION')}, but was built on {wheel.installed_rocm}"
            yield error(message, member)
    elif call is None:
        yield error(f"`initialize()` does not call `{_INIT_CALL}`", member)
        return
    else:
        yield from _judge_init_call(wheel, member, call, stated)
    yield from _check_init_use(wheel, PurePosixPath(member))


def _is_started(wheel: AuditedWheel, member: str) -> bool:
    """Tell whether the module is there, or its package uses it."""
    package = wheel.scan.texts.get(str(PurePosixPath(member).with_name("__init__.py")), b"")
    return (
        member in wheel.members or re.search(rb"^\s*from \. import _rocm_init\b", package, re.M) is not None
    )


def _judge_carried_init(
    wheel: AuditedWheel, member: str, tree: ast.Module, stated: Mapping[str, object]
) -> Findings:
    """The module of a wheel that carries its ROCm loads files that are inside, and no ROCm package."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
    if "rocm_sdk" in imported:
        message = f"imports rocm_sdk, although the wheel carries its ROCm in {wheel.rocm_folder}"
        yield error(message, member, _FAT_TIP)
    libraries = stated.get("LIBRARIES")
    if not isinstance(libraries, Sequence) or isinstance(libraries, str) or not libraries:
        yield error("does not say which libraries it loads (LIBRARIES)", member, _FAT_TIP)
        return
    if absent := [name for name in libraries if f"{wheel.rocm_folder}{name}" not in wheel.members]:
        message = f"loads {', '.join(map(str, absent))}, which the wheel does not carry"
        yield error(message, member, _FAT_TIP)
    version, expected = stated.get("ROCM_VERSION"), wheel.expected.rocm_version
    if expected is not None and version != expected:
        yield error(f"carries ROCm {version}, but was to carry {expected}", member, _FAT_TIP)


def _check_init_use(wheel: AuditedWheel, member: PurePosixPath) -> Findings:
    """The package's ``__init__`` uses the module: torch before 2.9 does not do so by itself."""
    package = str(member.with_name("__init__.py"))
    if package not in wheel.scan.texts:
        return  # that a file is missing is said by another check
    try:
        tree = _parse_module(wheel, package)
    except DataError as fault:
        yield error(str(fault), package)
        return
    for node in ast.walk(tree):
        names = [getattr(node, field, None) for field in ("id", "attr", "name", "module")]
        if any(str(name).rpartition(".")[2] == member.stem for name in names):
            return
    message = f"never uses `{member.stem}`: the ROCm packages are not started before its libraries are loaded"
    yield error(message, package, "the sources need a patch that calls it first")


def _judge_init_call(
    wheel: AuditedWheel, member: str, call: ast.Call, stated: Mapping[str, object]
) -> Findings:
    arguments = {
        keyword.arg: stated.get(keyword.value.id)  # what the module's top level gave to that name
        if isinstance(keyword.value, ast.Name)
        else _read_literal(keyword.value)
        for keyword in call.keywords
    }
    version, rocm = arguments.get("check_version"), _find_built_rocm(wheel)
    if not isinstance(version, str) or not version:
        if wheel.has_recipe:
            yield error(f"`{_INIT_CALL}` is called without a `check_version`", member)
    elif rocm and not is_same_version(rocm, version):
        reason = "and METADATA requires" if wheel.expected.rocm_version is None else "but was built with"
        yield error(f"checks for ROCm {version}, {reason} {rocm}", member)
    if not wheel.has_recipe:  # which libraries it needs at first is its own affair
        return
    preloads = arguments.get("preload_shortnames")
    if not isinstance(preloads, Sequence) or isinstance(preloads, str) or not preloads:
        yield error(f"`{_INIT_CALL}` is called without libraries to preload", member)
    elif _RUNTIME not in preloads:
        yield error(f"does not preload {_RUNTIME}, without which torch cannot work", member)


def _parse_module(wheel: AuditedWheel, member: str) -> ast.Module:
    try:
        return ast.parse(wheel.scan.texts[member], filename=member)
    except SyntaxError as fault:
        raise DataError(f"does not compile: line {fault.lineno}: {fault.msg}") from fault
    except ValueError as fault:  # null bytes, or no valid encoding
        raise DataError(f"does not compile: {fault}") from fault
    except (MemoryError, RecursionError) as fault:  # how the parser says so
        raise DataError("does not compile: nested too deeply") from fault


def _read_constants(tree: ast.Module) -> dict[str, object]:
    """Return what a module's top level assigns to names, where the value is a literal."""
    stated: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            stated.update(dict.fromkeys(names, _read_literal(node.value)))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stated[node.target.id] = _read_literal(node.value) if node.value is not None else None
    return stated


def _read_literal(node: ast.expr) -> object:
    """Return a value; None of what is no literal: nothing that we can hold against an expectation."""
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value


def _find_init_call(tree: ast.Module) -> ast.Call | None:
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == "initialize":
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    called = node.func
                    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                    if name == _INIT_CALL:
                        return node
    return None


@check("RW014 carried-rocm (error)")
def check_carried_rocm(wheel: AuditedWheel) -> Findings:
    """Of a wheel that carries its ROCm: what it is linked to is inside.

    Why: Loading it fails on machines without a ROCm of their own, for which such wheels are made.
    Fix: `rocm-wheels wheel fat` makes such a wheel from a thin one, with all that it needs.
    """
    if wheel.rocm_folder is None:
        raise Skip("carries no ROCm of its own")
    inside = {PurePosixPath(name).name for name in wheel.members}
    for member, binary in sorted(wheel.scan.binaries.items()):
        missing = [name for name in binary.loader.needed if is_rocm_library(name) and name not in inside]
        if missing:
            yield error(f"is linked to {', '.join(missing)}, which the wheel does not carry", member)
