"""A first recipe: a template with comments, and what a checkout's build files let one set.

Nothing of a checkout is run, and nothing is guessed from it: options of CMakeLists.txt and variables that it
and setup.py read are listed in comments.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

_TEMPLATE = """\
# Recipe of {name}. Every key: the page Recipes of the reference.
name: {name} # the file must be called {name}.yaml
distribution: {distribution} # the name of the wheel
summary: TODO one line for people
source:
  origin: TODO the URL of its repository
  ref: main # what is checked out without --ref; a branch, a tag or a commit
hipify:
  by: none # or script, with `script: FILE`; or build, where its own build translates CUDA sources
  reason: TODO what compiles its GPU code, or that it has none
version:
  git_tag: false # the wheel keeps its own; or `file: version.txt`, or `variables: [NAME]`
  # append_suffix: true # +rocm…, put into the finished wheel
build:
  front_end: pep517 # or setup.py, where no pyproject.toml names a build backend
  # requirements: [pyproject.toml] # files that name what its build needs
  # after: [pytorch]
  # needs: [pytorch] # both, where its build needs torch
# environment: # variables of its build; {{targets}}: by semicolons, {{rocm}}: the root of ROCm
#   CMAKE_ARGS: >-
#     -DCMAKE_HIP_ARCHITECTURES={{targets}} -DCMAKE_PREFIX_PATH={{rocm}}
#     -DCMAKE_HIP_COMPILER={{rocm}}/lib/llvm/bin/clang++ -DCMAKE_HIP_COMPILER_ROCM_ROOT={{rocm}}
checks:
  import_name: {name}
  rocm: device code # or none
  files: [{name}/__init__.py]
  # requires_rocm: true # the wheel requires rocm[libraries] of the ROCm that it was built with
  # contents: what else the wheel may install: names, scripts, entry_points, data
  device_code:
    - files: "{name}/**"
      expect: subset # `all` for a library that has every kernel for every target
      reason: TODO which libraries hold kernels, and for which targets
      required: false # true: a wheel without such a file is refused
# repair: {{exclude: [libsecret.so.1]}} # libraries that users have by other means, which are not grafted
"""
_MOST_BYTES = 2_000_000  # build files that people write are far smaller
# What ends nowhere ends with the file. A comment or a text that comes first hides what is in it.
_CMAKE = re.compile(
    r"""\#\[(?P<c>=*)\[.*?(?:\](?P=c)\]|\Z) | \#[^\n]*
    | \b(?:cmake_dependent_)?option\s*\(\s*(?P<option>[^\s()"\#]+)
      (?:\s+"(?P<words>(?:[^"\\]|\\.)*)")?(?:\s+(?P<default>[^\s()"\#]+))?
    | \bENV\{(?P<variable>\w+)\}
    | "(?P<text>(?:[^"\\]|\\.)*)(?:"|\Z) | \[(?P<b>=*)\[.*?(?:\](?P=b)\]|\Z)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


def draft_recipe(name: str, checkout: Path | None) -> str:
    """Return the text of a recipe to be filled in; with a checkout, what its build files read, too."""
    text = _TEMPLATE.format(name=name, distribution=name.replace("_", "-"))
    return text if checkout is None else text + "".join(f"# {line}\n" for line in _list_switches(checkout))


def _list_switches(tree: Path) -> Iterator[str]:
    """List the options of CMakeLists.txt, and the variables that it and setup.py read."""
    for name, read in (("CMakeLists.txt", _read_cmake), ("setup.py", _read_python)):
        try:
            size = (tree / name).stat().st_size
            if size > _MOST_BYTES:
                yield f"{name} was not read: it has {size} bytes"
                continue
            options, variables = read((tree / name).read_bytes())
        except FileNotFoundError:
            yield f"There is no {name}."
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
            yield f"{name} was not read: {' '.join(str(wrong).split()) or type(wrong).__name__}"
        else:
            yield from (f"Option of {name}: {option}" for option in options)
            yield f"Variables that {name} reads: {', '.join(sorted(variables)) or 'none found'}"


def _read_cmake(content: bytes) -> tuple[list[str], set[str]]:
    options, variables = [], set()
    for found in _CMAKE.finditer(content.decode("utf-8", "replace")):
        if found["option"]:
            words = " ".join((found["words"] or "").split())
            options.append(f"{found['option']} ({found['default'] or 'OFF'}): {words}".removesuffix(": "))
        variables |= {found["variable"] or "", *re.findall(r"\bENV\{(\w+)\}", found["text"] or "")}
    return options, variables - {""}


def _read_python(content: bytes) -> tuple[list[str], set[str]]:
    """List what is asked of the environment by a name that stands there, as itself or as a constant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that are none: no business of ours
        nodes = list(ast.walk(ast.parse(content)))
    constants = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    asked: list[ast.expr] = []
    for node in nodes:
        if isinstance(node, ast.Call) and node.args:
            function = node.func
            of = function.value if isinstance(function, ast.Attribute) else None
            if _get_last_name(function) == "getenv" or _get_last_name(of) == "environ":
                asked.append(node.args[0])
        elif isinstance(node, ast.Subscript) and _get_last_name(node.value) == "environ":
            asked.append(node.slice)
        elif isinstance(node, ast.Compare) and _get_last_name(node.comparators[0]) == "environ":
            asked.append(node.left)
    values = [constants.get(name.id) if isinstance(name, ast.Name) else name for name in asked]
    return [], {
        value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def _get_last_name(node: ast.AST | None) -> str | None:
    return getattr(node, "attr", None) or getattr(node, "id", None)
