"""A first recipe: a template with comments, and what a checkout's build files let one set.

Nothing of a checkout is run, and nothing is guessed from it: options of CMakeLists.txt and variables that it
and setup.py read are listed in comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_TEMPLATE = """\
# Recipe of {name}. Every key: the page Recipes of the reference.
name: {name} # the file must be called {name}.yaml
distribution: {distribution} # the name of the wheel
summary: one line for people
source:
  origin: TODO # the URL of its repository
  ref: main # what is checked out without --ref; a branch, a tag or a commit
hipify:
  by: none # or script, with `script: FILE`; or build, where its own build translates CUDA sources
  reason: TODO what compiles its GPU code, or that it has none
version:
  git_tag: false # the wheel keeps its own; or `file: version.txt`, or `variables: [NAME]`
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
  # contents: what else the wheel may install: names, scripts, entry_points, data
  device_code:
    - files: "{name}/**"
      expect: subset # `all` for a library that has every kernel for every target
      reason: TODO which libraries hold kernels, and for which targets
      required: false # true: a wheel without such a file is refused
"""
_CMAKE_OPTION = re.compile(r'\boption\s*\(\s*(\w+)\s+"((?:[^"\\]|\\.)*)"\s*(\w*)', re.IGNORECASE)
_VARIABLE = re.compile(
    r"""(?:\bgetenv|\benviron(?:\.\w+)?)\s*[\[(]\s*["'](\w+)["']|\bENV\{(\w+)\}|["'](\w+)["']\s+(?:not\s+)?in\s+os\.environ"""
)


def draft_recipe(name: str, checkout: Path | None) -> str:
    """Return the text of a recipe to be filled in; with a checkout, what its build files read, too."""
    text = _TEMPLATE.format(name=name, distribution=name.replace("_", "-"))
    return text if checkout is None else text + "".join(f"# {line}\n" for line in _list_switches(checkout))


def _list_switches(tree: Path) -> Iterator[str]:
    """List the options of CMakeLists.txt, and the variables that it and setup.py read."""
    for name in ("CMakeLists.txt", "setup.py"):
        if not (tree / name).is_file():
            yield f"There is no {name}."
            continue
        text = re.sub(r"#.*", "", (tree / name).read_text(encoding="utf-8", errors="replace"))
        options = _CMAKE_OPTION.findall(text) if name == "CMakeLists.txt" else []
        variables = sorted({"".join(groups) for groups in _VARIABLE.findall(text)})
        for option, words, default in options:
            yield f"Option of {name}: {option} ({default or 'OFF'}): {' '.join(words.split())}"
        yield f"Variables that {name} reads: {', '.join(variables) or 'none found'}"
