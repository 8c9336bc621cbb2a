"""A first recipe: a template with comments, and what a checkout's build files let one set.

Nothing of a checkout is run, and nothing is guessed from it: options of CMakeLists.txt and variables that it
and setup.py read are listed in comments.
"""

from __future__ import annotations

import ast
import re
import warnings
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
    for file, read in (("CMakeLists.txt", _read_cmake), ("setup.py", _read_python)) if checkout else ():
        try:
            content = Path(checkout or "", file).read_bytes()
            if len(content) > _MOST_BYTES:
                raise ValueError(f"it has {len(content)} bytes")
            options, variables = read(content)
        except FileNotFoundError:
            lines = [f"There is no {file}."]
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
            lines = [f"{file} was not read: {' '.join(str(wrong).split()) or type(wrong).__name__}"]
        else:
            lines = [f"Option of {file}: {option}" for option in options]
            lines.append(f"Variables that {file} reads: {', '.join(sorted(variables)) or 'none found'}")
        text += "".join(f"# {line}\n" for line in lines)
    return text


def _read_cmake(content: bytes) -> tuple[list[str], set[str]]:
    options, variables = [], set()
    for found in _CMAKE.finditer(content.decode("utf-8", "replace")):
        if found["option"]:
            words = " ".join((found["words"] or "").split())
            options.append(f"{found['option']} ({found['default'] or 'OFF'}): {words}".removesuffix(": "))
        variables |= {found["variable"], *re.findall(r"\bENV\{(\w+)\}", found["text"] or "")} - {None}
    return options, variables


def _read_python(content: bytes) -> tuple[list[str], set[str]]:
    """List what is asked of the environment by a name that stands there, as itself or as a constant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that are none: no business of ours
        tree = ast.parse(content)
    constants: dict[str, object] = {}
    asked: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                constants[name] = value
            case (
                ast.Call(func=ast.Name(id="getenv") | ast.Attribute(attr="getenv"), args=[key, *_])
                | ast.Call(func=ast.Attribute(value=ast.Attribute(attr="environ")), args=[key, *_])
                | ast.Call(func=ast.Attribute(value=ast.Name(id="environ")), args=[key, *_])
                | ast.Subscript(value=ast.Name(id="environ") | ast.Attribute(attr="environ"), slice=key)
                | ast.Compare(comparators=[ast.Name(id="environ") | ast.Attribute(attr="environ")], left=key)
            ):
                asked.append(key)
    names = (
        constants.get(key.id) if isinstance(key, ast.Name) else getattr(key, "value", None) for key in asked
    )
    return [], {name for name in names if isinstance(name, str)}
