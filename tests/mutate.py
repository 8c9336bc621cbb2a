#!/usr/bin/env python3
"""Mutate the product, a place at a time, and tell whether the tests of the contract notice.

    .venv/bin/python tests/mutate.py [--seed N] [--count N] [--only K …] [--list]

Draws mutants from the product by a seed: the same for the same commit. Each is written into a copy of the
commit, in a folder for temporary files; the work tree stays as it is. There the tests marked ``contract``
run, first those that name most of what the changed module defines, then all others, then ``contract_slow``,
until one fails. That test must pass without the mutant, or it counts for nothing. Exit code 0 when at least
four of five mutants were killed, 1 when not, 2 for wrong options.

Mutants are of the kinds in ``KINDS``, in turn. Left out, by rule and not by hand: docstrings, annotations,
``TYPE_CHECKING``, ``__repr__`` and ``__str__``; what only words a message (arguments of ``log_…`` and of
errors, the inside of f-strings); blocks for another system than this one; and the modules of ``WITHDRAWN``.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import fnmatch
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PRODUCT = "build_tools/rocm_wheels"
TESTS = ("tests/unit", "tests/integration")
ENOUGH = 0.8  # of the mutants
LIKELY = 12  # test modules that run first

# Modules whose promise is withdrawn when another takes its place: nobody holds them to anything until then.
WITHDRAWN = {
    "audit/page.py": "tables",
}

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
KINDS = (
    "comparison turned",
    "condition negated",
    "number or flag changed",
    "statement dropped",
    "result changed",
    "arguments swapped",
)
EMPTY = {"str": '""', "bytes": 'b""', "int": "0", "list": "[]", "dict": "{}", "tuple": "()", "set": "set()"}
# calls whose arguments are not swapped: Python itself refuses the other order, or it says the same
ORDERED = frozenset(
    ("isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast", "option", "argument")
)
OTHER_SYSTEM = re.compile(
    r"""(sys\.platform|os\.name) == ['"](win32|nt|darwin)['"]"""
    if os.name == "posix"
    else r"""(sys\.platform|os\.name) != ['"](win32|nt)['"]"""
)


@dataclass(frozen=True)
class Mutant:
    """One change: ``new`` in place of the bytes ``begin`` to ``end`` of a file below the clone."""

    kind: str
    path: str
    line: int
    begin: int
    end: int
    new: str

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.begin] + self.new.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """Return the change as lines that begin with - and +."""
        both = (source.decode().splitlines(), self.apply(source).decode().splitlines())
        return "\n".join(list(difflib.unified_diff(*both, n=0, lineterm=""))[3:])


class Collector(ast.NodeVisitor):
    """Collect every mutant of a file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.mutants: list[Mutant] = []
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._returns: list[str] = []
        self.visit(ast.parse(source))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self._lines[node.lineno - 1] + node.col_offset
        return begin, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self._span(node)
        return self.source[begin:end].decode()

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: str) -> None:
        if new != self._text(node):
            self.mutants.append(Mutant(kind, self.path, node.lineno, *self._span(node), new))

    # what is left out

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._returns.append("" if node.returns is None else ast.unparse(node.returns))
        for statement in node.body:
            self.visit(statement)
        self._returns.pop()

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        if name.endswith("Error") or name.lstrip("_").startswith("log_") or name == "dataclass":
            return
        first = node.args[:2]
        if (
            len(first) == 2
            and name not in ORDERED
            and not any(isinstance(part, ast.Starred) for part in first)
        ):
            begin, middle = self._span(first[0])
            again, end = self._span(first[1])
            if self.source[begin:middle] != self.source[again:end]:
                new = self.source[again:end] + self.source[middle:again] + self.source[begin:middle]
                swapped = Mutant("arguments swapped", self.path, node.lineno, begin, end, new.decode())
                self.mutants.append(swapped)
        self.generic_visit(node)

    # what is changed

    def visit_Compare(self, node: ast.Compare) -> None:
        turned = COMPARISONS[type(node.ops[0])]
        copy = ast.Compare(node.left, [turned(), *node.ops[1:]], node.comparators)
        self._add("comparison turned", node, f"({ast.unparse(copy)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        operator = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add("condition negated", node, f"({ast.unparse(ast.BoolOp(operator, node.values))})")
        self.generic_visit(node)

    def _negate(self, kind: str, node: ast.expr) -> None:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._add(kind, node, f"({ast.unparse(node.operand)})")
        else:
            self._add(kind, node, f"(not ({ast.unparse(node)}))")

    def visit_If(self, node: ast.If) -> None:
        test = ast.unparse(node.test)
        if "TYPE_CHECKING" not in test:
            self._negate("condition negated", node.test)
            self.visit(node.test)
            if not OTHER_SYSTEM.search(test):
                for statement in node.body:
                    self.visit(statement)
        for statement in node.orelse:
            self.visit(statement)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate("condition negated", node.test)
            self.visit(node.test)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate("condition negated", node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate("condition negated", condition)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        is_text = any(
            isinstance(side, texts)
            or (isinstance(side, ast.Constant) and isinstance(side.value, (str, bytes)))
            for side in (node.left, node.right)
        )
        if type(node.op) in ARITHMETIC and not is_text:
            copy = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
            self._add("number or flag changed", node, f"({ast.unparse(copy)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("number or flag changed", node, repr(not node.value))
        elif isinstance(node.value, (int, float)):
            self._add("number or flag changed", node, f"({node.value + 1!r})")

    def _drop(self, node: ast.stmt) -> None:
        self._add("statement dropped", node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            before = len(self.mutants)
            name = ast.unparse(node.value.func).rpartition(".")[2]
            self.visit(node.value)
            if len(self.mutants) > before or not name.lstrip("_").startswith("log_"):
                self._drop(node)
        elif not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self._drop(node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._drop(node)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._drop(node)
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._drop(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._drop(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        returns = self._returns[-1] if self._returns else ""
        if returns == "bool" and not isinstance(node.value, ast.Constant):
            self._negate("result changed", node.value)
        elif isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
            self._add("result changed", node.value, repr(not node.value.value))
        else:
            self._add("result changed", node.value, EMPTY.get(returns.partition("[")[0], "None"))
        self.visit(node.value)


def list_modules(clone: Path) -> list[str]:
    """Return the modules that mutants come from, as paths from the clone, sorted."""
    product = clone / PRODUCT
    names = sorted(path.relative_to(product).as_posix() for path in product.rglob("*.py"))
    return [
        f"{PRODUCT}/{name}"
        for name in names
        if not any(fnmatch.fnmatch(name, pattern) for pattern in WITHDRAWN)
    ]


def draw_mutants(clone: Path, seed: int, count: int) -> list[Mutant]:
    """Draw that many mutants, one a line, the kinds in turn; fewer where there are no more."""
    sources = {path: (clone / path).read_bytes() for path in list_modules(clone)}
    by_kind: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for path, source in sources.items():
        for mutant in Collector(path, source).mutants:
            by_kind[mutant.kind].append(mutant)
    chance = random.Random(seed)
    for mutants in by_kind.values():
        chance.shuffle(mutants)
    drawn: list[Mutant] = []
    while len(drawn) < count and any(by_kind.values()):
        for mutants in by_kind.values():
            while mutants and len(drawn) < count:
                mutant = mutants.pop()
                if all((mutant.path, mutant.line) != (other.path, other.line) for other in drawn):
                    compile(mutant.apply(sources[mutant.path]), mutant.path, "exec")
                    drawn.append(mutant)
                    break
    return drawn


def list_test_modules(clone: Path, mark: str) -> dict[str, str]:
    """Return the test modules with a mark, by paths from the clone: their text, and what they share."""
    modules = {}
    for folder in TESTS:
        for path in sorted((clone / folder).glob("test_*.py")):
            text = path.read_text(encoding="utf-8")
            if re.search(rf"\bmark\.{mark}\b", text):
                shared = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
                beside = [path.with_name(f"{name}.py") for name in shared]
                texts = [text, *(other.read_text(encoding="utf-8") for other in beside if other.exists())]
                modules[f"{folder}/{path.name}"] = "\n".join(texts)
    return modules


def list_defined_names(module: Path) -> set[str]:
    """Return the name of a module, and of its functions and classes."""
    body = ast.parse(module.read_bytes()).body
    return {module.stem, *(node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))}


def rank_test_modules(clone: Path, changed: str, tests: dict[str, str]) -> list[str]:
    """Return the test modules that name most of what a module defines, then of what its users define.

    A name counts less the more test modules have it.
    """
    defined = list_defined_names(clone / changed)
    weights = dict.fromkeys(defined, 1.0)
    for path in list_modules(clone):
        if defined & set(re.findall(r"\w+", (clone / path).read_text(encoding="utf-8"))):
            for name in list_defined_names(clone / path):
                weights.setdefault(name, 0.1)
    words = {path: set(re.findall(r"\w+", text)) & set(weights) for path, text in tests.items()}
    uses = Counter(name for names in words.values() for name in names)
    scores = {path: sum(weights[name] / uses[name] for name in names) for path, names in words.items()}
    ranked = sorted((path for path in scores if scores[path]), key=lambda path: -scores[path])
    return ranked[:LIKELY]


class Copy:
    """A copy of a commit in which tests run."""

    def __init__(self, clone: Path, folder: Path, python: Path | None, workers: int) -> None:
        self.clone = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(clone), str(self.clone)], check=True)
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))
        }
        self.env.pop("VIRTUAL_ENV", None)
        self.workers = workers
        self._cache = folder / "cache"
        self._runs = 0
        self._unsteady: set[str] = set()  # tests that fail without any mutant
        if python is None:
            quickstart = [str(self.clone / "build_tools" / "quickstart.py"), "setup", "--tests"]
            beside = (
                f"{Path(sys.executable).parent}{os.pathsep}{self.env['PATH']}"  # its uv is quicker than pip
            )
            base = getattr(sys, "_base_executable", sys.executable)
            subprocess.run([base, *quickstart], env={**self.env, "PATH": beside}, check=True)
            scripts = "Scripts" if sys.platform == "win32" else "bin"
            python = self.clone / ".venv" / scripts / "python"
        self.python = python

    def try_mutant(self, mutant: Mutant, stages: list[tuple[str, list[str]]]) -> str | None:
        """Return a test that the mutant fails, or None when all pass; the copy is then as it was."""
        path = self.clone / mutant.path
        source = path.read_bytes()
        for mark, modules in stages:
            while modules:
                self._write(path, mutant.apply(source))
                try:
                    failed = self._run_tests(mark, modules)
                finally:
                    self._write(path, source)
                if not failed:
                    break
                unsteady = self._run_tests(mark, modules, again=True)
                if not unsteady:
                    return failed[0]
                print(f"  fail without a mutant too, and count no more: {', '.join(unsteady)}", flush=True)
                self._unsteady |= set(unsteady)
        return None

    def _write(self, path: Path, content: bytes) -> None:
        """Write a file, with a time that no compiled module has."""
        self._runs += 1
        path.write_bytes(content)
        moment = time.time() + self._runs
        os.utime(path, (moment, moment))

    def _run_tests(self, mark: str, modules: list[str], *, again: bool = False) -> list[str]:
        """Run tests until one fails, or those that failed last; return the ids of those that fail."""
        if not again:
            self._cache = self._cache.with_name(f"cache-{self._runs}")
        argv = [str(self.python), "-m", "pytest", "-q", "-m", mark, "-o", f"cache_dir={self._cache}"]
        argv += ["--lf", "--lfnf=none", "-n", "0"] if again else ["-x"]
        if self.workers > 1 and not again:
            argv += ["-n", str(self.workers), "--dist", "loadfile", "--no-loadscope-reorder"]
        argv += [word for name in sorted(self._unsteady) for word in ("--deselect", name)]
        ended = subprocess.run(
            [*argv, *modules],
            cwd=self.clone,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode in (0, 5):  # 5: no test in these modules
            return []
        noted = self._cache / "v" / "cache" / "lastfailed"
        failed = list(json.loads(noted.read_text(encoding="utf-8"))) if noted.exists() else []
        if not failed:
            raise SystemExit(f"error: pytest ended with {ended.returncode}\n{ended.stdout}{ended.stderr}")
        return failed


def find_stages(copy: Path, mutant: Mutant, *, slow: bool) -> Iterator[tuple[str, list[str]]]:
    """Return which test modules run one after the other, each with the mark of its tests."""
    tests = list_test_modules(copy, "contract")
    likely = rank_test_modules(copy, mutant.path, tests)
    yield "contract", likely
    yield "contract", [path for path in tests if path not in likely]
    if slow:
        yield "contract_slow", list(list_test_modules(copy, "contract_slow"))


def main(words: list[str] | None = None) -> int:
    """Draw mutants, try them, print what came of each, and a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="which mutants are drawn (default: 1)")
    parser.add_argument("--count", type=int, default=30, help="how many (default: 30)")
    parser.add_argument("--only", type=int, nargs="+", metavar="K", help="try these of them, from 1 on")
    parser.add_argument("--list", action="store_true", help="show the mutants and try none")
    parser.add_argument("--without-slow", action="store_true", help="leave tests marked contract_slow out")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of pytest")
    parser.add_argument("--clone", type=Path, default=Path(__file__).resolve().parents[1], help="of what")
    parser.add_argument("--python", type=Path, help="run tests by it, not by a new environment in the copy")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copy = None
        clone = options.clone.resolve()
        if not options.list:
            copy = Copy(clone, Path(folder), options.python, options.workers)
            clone = copy.clone
        drawn = draw_mutants(clone, options.seed, options.count)
        numbers = options.only or range(1, len(drawn) + 1)
        if len(drawn) < options.count or not set(numbers) <= set(range(1, len(drawn) + 1)):
            parser.error(f"there are {len(drawn)} mutants")
        rows = []
        for number in numbers:
            mutant = drawn[number - 1]
            print(f"{number:3} {mutant.path}:{mutant.line} {mutant.kind}", flush=True)
            print(mutant.diff((clone / mutant.path).read_bytes()), flush=True)
            if copy is not None:
                began = time.monotonic()
                stages = list(find_stages(clone, mutant, slow=not options.without_slow))
                killer = copy.try_mutant(mutant, stages)
                state = f"killed by {killer}" if killer else "SURVIVED"
                print(f"    {state}, in {time.monotonic() - began:.0f} s", flush=True)
                rows.append((number, mutant, killer))
    if copy is None:
        return 0
    print()
    for number, mutant, killer in rows:
        state = "killed  " if killer else "SURVIVED"
        print(f"{number:3}  {state}  {mutant.kind:22}  {mutant.path}:{mutant.line}  {killer or ''}")
    killed = sum(killer is not None for *_, killer in rows)
    print(f"seed {options.seed}: {len(drawn)} drawn, {len(rows)} tried, {killed} killed")
    return 0 if killed >= ENOUGH * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
