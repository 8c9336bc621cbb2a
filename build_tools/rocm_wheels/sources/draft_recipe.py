"""Draft the recipe of a project from a checkout of it: what its build files say, read and never run.

What cannot be read is left to people, in a comment that says so.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from rocm_wheels.core import DataError, capture_output, parse_toml

_CODE_SUFFIXES = {".cu": "CUDA", ".cuh": "CUDA", ".hip": "HIP"}
_TARGET_VARIABLE = re.compile(r"\b((?:AMDGPU|GPU)_TARGETS|\w+_ROCM_ARCH|CMAKE_HIP_ARCHITECTURES)\b")
_VERSION_VARIABLE = re.compile(r"""(?:getenv|environ(?:\.get)?)\s*[\[(]\s*["'](\w*VERSION\w*)["']""")
_LEFT_OUT = {
    "test",
    "tests",
    "doc",
    "docs",
    "example",
    "examples",
    "benchmark",
    "benchmarks",
    "build",
    "scripts",
}
_MOST_FILES = 200_000


@dataclass
class CheckoutFacts:
    """What the build files of a checkout say; "" and empty: nothing. ``backend``: PEP 517's."""

    distribution: str = ""
    summary: str = ""
    package: str = ""
    backend: str = ""
    requires: list[str] = field(default_factory=list)
    version_file: str = ""
    version_variables: list[str] = field(default_factory=list)
    origin: str = ""
    ref: str = ""
    submodules: list[str] = field(default_factory=list)
    needs_torch: str = ""
    extension_builder: bool = False
    code: set[str] = field(default_factory=set)
    target_variables: list[str] = field(default_factory=list)
    compiles_hip: bool = False
    hipify_script: str = ""


def draft_recipe(name: str, checkout: Path | None, env: Mapping[str, str]) -> str:
    """Return the text of a recipe. Raises DataError for build files that cannot be read."""
    facts = CheckoutFacts() if checkout is None else read_checkout(checkout, env)
    return "\n".join(_write_lines(name, facts)) + "\n"


def read_checkout(tree: Path, env: Mapping[str, str]) -> CheckoutFacts:
    """Read what a checkout says of itself. Raises DataError for broken TOML."""
    facts = CheckoutFacts()
    _read_pyproject(tree / "pyproject.toml", facts)
    _read_setup_cfg(tree / "setup.cfg", facts)
    _read_setup_py(tree / "setup.py", facts)
    _read_cmake(tree / "CMakeLists.txt", facts)
    _read_tree(tree, facts)
    _read_git(tree, facts, env)
    return facts


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _read_pyproject(path: Path, facts: CheckoutFacts) -> None:
    table = parse_toml(_read_text(path), name=str(path))
    project, system = table.get("project", {}), table.get("build-system", {})
    facts.distribution, facts.summary = str(project.get("name", "")), str(project.get("description", ""))
    if system:
        facts.backend = str(system.get("build-backend", "setuptools.build_meta:__legacy__"))
        facts.requires = [str(requirement) for requirement in system.get("requires", [])]
    if "torch" in map(_parse_name, facts.requires):
        facts.needs_torch = "pyproject.toml requires it for the build"


def _parse_name(requirement: str) -> str:
    try:
        return Requirement(requirement).name.lower()
    except InvalidRequirement:
        return ""


def _read_setup_cfg(path: Path, facts: CheckoutFacts) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_read_text(path))
    except configparser.Error as wrong:
        raise DataError(f"{path} cannot be read: {str(wrong).splitlines()[0]}") from None
    facts.distribution = facts.distribution or parser.get("metadata", "name", fallback="")
    facts.summary = facts.summary or parser.get("metadata", "description", fallback="")


def _read_setup_py(path: Path, facts: CheckoutFacts) -> None:
    text = _read_text(path)
    try:
        tree = ast.parse(text)
    except SyntaxError as wrong:
        raise DataError(f"{path}:{wrong.lineno}: not valid Python: {wrong.msg}") from None
    names = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setup"):
            for keyword in node.keywords:
                value = keyword.value
                text_value = (
                    value.value if isinstance(value, ast.Constant) else names.get(ast.unparse(value), "")
                )
                if keyword.arg == "name" and isinstance(text_value, str):
                    facts.distribution = facts.distribution or text_value
                if keyword.arg == "description" and isinstance(text_value, str):
                    facts.summary = facts.summary or text_value
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            if any(module.partition(".")[0] == "torch" for module in modules):
                facts.needs_torch = facts.needs_torch or "setup.py imports it"
            facts.extension_builder |= any("cpp_extension" in module for module in modules)
    facts.extension_builder |= "cpp_extension" in text
    facts.version_variables = list(dict.fromkeys(_VERSION_VARIABLE.findall(text)))


def _read_cmake(path: Path, facts: CheckoutFacts) -> None:
    text = re.sub(r"#.*", "", _read_text(path))
    if re.search(r"find_package\s*\(\s*Torch\b", text):
        facts.needs_torch = facts.needs_torch or "CMakeLists.txt looks for it"
    facts.compiles_hip = bool(
        re.search(r"enable_language\s*\(\s*HIP|LANGUAGES[^)]*\bHIP\b|hip_add_library", text)
    )
    facts.target_variables = list(dict.fromkeys(_TARGET_VARIABLE.findall(text)))


def _read_tree(tree: Path, facts: CheckoutFacts) -> None:
    for number, path in enumerate(_walk_files(tree)):
        if number == _MOST_FILES:
            break
        if path.suffix in _CODE_SUFFIXES:
            facts.code.add(_CODE_SUFFIXES[path.suffix])
    wished = facts.distribution.lower().replace("-", "_")
    packages = [
        init.parent
        for root in (tree, tree / "src", tree / "python")
        for init in sorted(root.glob("*/__init__.py"))
        if init.parent.name not in _LEFT_OUT
    ]
    best = [package for package in packages if package.name.lower() == wished] or packages
    facts.package = best[0].name if best else wished
    if (tree / "version.txt").is_file():
        facts.version_file = "version.txt"
    elif best:
        for file in (best[0] / "__init__.py", best[0] / "version.py", best[0] / "_version.py"):
            if re.search(r"^__version__\s*=\s*[\"']", _read_text(file), re.MULTILINE):
                facts.version_file = file.relative_to(tree).as_posix()
                break
    if (tree / "tools/amd_build/build_amd.py").is_file():
        facts.hipify_script = "tools/amd_build/build_amd.py"
    modules = configparser.ConfigParser(interpolation=None, strict=False)
    modules.read_string("\n".join(map(str.strip, _read_text(tree / ".gitmodules").splitlines())))
    facts.submodules = [modules.get(section, "path", fallback=section) for section in modules.sections()]


def _walk_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name == ".git":
            continue
        if path.is_dir():
            yield from _walk_files(path)
        else:
            yield path


def _read_git(tree: Path, facts: CheckoutFacts, env: Mapping[str, str]) -> None:
    if not (tree / ".git").exists():
        return
    git = ["git", "-C", str(tree)]
    for attribute, words in (
        ("origin", ("remote", "get-url", "origin")),
        ("ref", ("symbolic-ref", "--short", "HEAD")),
    ):
        try:
            setattr(facts, attribute, capture_output([*git, *words], env=env, check=DataError))
        except DataError:
            continue  # no remote of that name, or no branch


def _write_lines(name: str, facts: CheckoutFacts) -> Iterator[str]:
    yield f"# Recipe of {facts.distribution or name}. Every key: the page Recipes of the reference."
    yield f"name: {name} # the file must be called {name}.yaml"
    yield f"distribution: {facts.distribution or name} # the name of the wheel"
    yield f"summary: {_quote(facts.summary or 'one line for people')}"
    yield "source:"
    yield f"  origin: {facts.origin or 'TODO'}" + ("" if facts.origin else " # the URL of its repository")
    yield f"  ref: {facts.ref or 'main'} # what is checked out without --ref; a branch, a tag or a commit"
    if facts.submodules:
        yield f"  # checked out with it: {', '.join(facts.submodules)}"
    yield from _write_hipify(facts)
    yield "version:"
    if facts.version_file.endswith(".txt"):
        yield f"  file: {facts.version_file}"
    elif facts.version_file:
        yield f"  stated: {{file: {facts.version_file}}} # the build makes its own version of it"
    if facts.version_variables:
        first, *others = facts.version_variables
        yield "  # setup.py reads it: does it take the whole version?" + (
            f" It reads {', '.join(others)}, too" if others else ""
        )
        yield f"  variables: [{first}]"
    if not facts.version_file and not facts.version_variables:
        yield "  git_tag: false # nothing that says the version was found: the wheel keeps its own"
    yield from _write_build(facts)
    yield from _write_environment(facts)
    yield from _write_checks(facts)


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return (
        line
        if re.fullmatch(r"[A-Za-z][\w ,.()/+-]*", line)
        else '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def _write_hipify(facts: CheckoutFacts) -> Iterator[str]:
    yield "hipify:"
    if facts.hipify_script:
        yield "  by: script"
        yield f"  script: {facts.hipify_script}"
    elif facts.extension_builder and "CUDA" in facts.code:
        yield "  by: build"
        yield "  reason: setup.py builds with torch.utils.cpp_extension, which translates CUDA sources"
    else:
        yield "  by: none"
        kinds = " and ".join(sorted(facts.code))
        if facts.compiles_hip and facts.code:
            reason = f"CMake compiles its {kinds} sources as HIP"
        elif facts.code:
            reason = f"TODO {kinds} sources were found, and nothing that translates or compiles them"
        else:
            reason = "there are no CUDA sources"
        yield f"  reason: {reason}"


def _write_build(facts: CheckoutFacts) -> Iterator[str]:
    yield "build:"
    yield f"  front_end: {'pep517' if facts.backend else 'setup.py'}" + (
        f" # {facts.backend}" if facts.backend else ""
    )
    if facts.requires:
        yield f"  requirements: [pyproject.toml] # {', '.join(facts.requires)}"
    if facts.needs_torch:
        yield "  after: [pytorch]"
        yield f"  needs: [pytorch] # {facts.needs_torch}"
    else:
        yield "  # after: [pytorch] and needs: [pytorch], where its build needs torch"


def _write_environment(facts: CheckoutFacts) -> Iterator[str]:
    if not facts.compiles_hip:
        return
    variable = next(iter(facts.target_variables), "CMAKE_HIP_ARCHITECTURES")
    yield "environment: # {targets}: by semicolons; {rocm}: the root of ROCm"
    yield "  CMAKE_ARGS: >-"
    yield f"    -D{variable}={{targets}}"
    yield "    -DCMAKE_HIP_COMPILER={rocm}/lib/llvm/bin/clang++ -DCMAKE_HIP_COMPILER_ROCM_ROOT={rocm}"
    yield "    -DCMAKE_PREFIX_PATH={rocm}"
    yield "  # and what else switches HIP on in CMakeLists.txt"


def _write_checks(facts: CheckoutFacts) -> Iterator[str]:
    package = facts.package or "TODO"
    yield "checks:"
    yield f"  import_name: {package}"
    yield f"  rocm: {'device code' if facts.code else 'none'}"
    yield f"  files: [{package}/__init__.py]"
    yield "  # contents: what else the wheel may install: names, scripts, entry_points, data"
    if facts.code:
        yield "  device_code:"
        yield f'    - files: "{package}/**"'
        yield "      expect: subset # `all` for a library that has every kernel for every target"
        yield "      reason: TODO which libraries hold kernels, and for which targets"
        yield "      required: false # true: a wheel without such a file is refused"
