"""Count how the house is built: files, lines, sizes, names. ``measure_house.py [FOLDER]``, a table on stdout.

Code lines are those that are neither blank, comment nor docstring. A one-word name has no ``_`` inside it.
Upkeep of the repository, not a part of the product: it prints figures and judges nothing.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

PACKAGE = Path(__file__).resolve().parent / "rocm_wheels"
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
VAGUE_NAMES = frozenset(("one", "found", "said", "known", "asked", "told", "there", "given", "wanted"))


def count_code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code."""
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return lines


def bind_names(function: ast.AST) -> set[str]:
    """Return the names that a function binds: parameters and variables."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def measure(folder: Path) -> list[tuple[str, str]]:
    """Return rows of (what is counted, figure) for the Python files below a folder."""
    modules: list[int] = []
    functions: list[int] = []
    classes: Counter[str] = Counter()
    comprehensions = one_word = vague = imports = inits = 0
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        code = count_code_lines(text, tree)
        if path.name == "__init__.py":
            inits += 1
        modules.append(len(code))
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                end = node.end_lineno or node.lineno
                functions.append(sum(line in code for line in range(node.lineno, end + 1)))
                one_word += "_" not in node.name.strip("_")
                vague += bool(bind_names(node) & VAGUE_NAMES)
            elif isinstance(node, COMPREHENSIONS):
                comprehensions += 1
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                imports += (node.end_lineno or node.lineno) - node.lineno + 1
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                classes[statement.name] += 1
    total = sum(modules)
    shared = [count for count in classes.values() if count > 1]
    return [
        ("files", f"{len(modules)} ({inits} of them __init__)"),
        ("folders", str(len({path.parent for path in folder.rglob("*.py")}))),
        ("code lines", str(total)),
        ("code lines a module, p50/p90/max", _describe_spread(modules)),
        ("code lines a function, p50/p90/max", _describe_spread(functions)),
        ("functions", str(len(functions))),
        ("functions with a one-word name", f"{one_word / len(functions):.0%}"),
        ("functions that bind a vague name", str(vague)),
        ("comprehensions per 1,000 code lines", f"{1000 * comprehensions / total:.0f}"),
        ("public classes", str(sum(classes.values()))),
        ("class names used more than once", f"{len(shared)} by {sum(shared)} classes"),
        ("lines of imports", str(imports)),
    ]


def _describe_spread(sizes: list[int]) -> str:
    return f"{median(sizes):.0f}/{quantiles(sizes, n=10)[-1]:.0f}/{max(sizes)}"


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE
    if not folder.is_dir():
        sys.exit(f"error: {folder} is no folder")
    for label, figure in measure(folder):
        sys.stdout.write(f"{label:<38}{figure}\n")


if __name__ == "__main__":
    main()
