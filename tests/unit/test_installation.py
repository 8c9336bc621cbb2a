"""The extras: what is imported of each, and what a command says without one."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.core.installation import (
    EXTRAS,
    adapt_commands,
    explain_missing_module,
    find_uv,
    require_extras,
)
from rocm_wheels.user.environment import name_uv

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CLONE = Path(__file__).resolve().parents[2]
PACKAGE = CLONE / "build_tools" / "rocm_wheels"
ELSEWHERE = {  # run in other Pythons
    *("audit/import_probe.py", "sources/hipify_runner.py", "testing/recording/rocm_wheels_recorder.py")
}
# imported where it is installed, done without where it is not
OPTIONAL = {"rich", "rocm_bootstrap"}
NOT_IMPORTED = {"pytest"}  # lent to the Python that is tested
DISTRIBUTIONS = {  # of modules: the distribution that we require, itself or for one that it brings
    "backports": "backports-zstd",
    "git": "gitpython",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "urllib3": "requests",
    "yaml": "pyyaml",
}


def read_names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def find_distribution(module: str) -> str:
    return DISTRIBUTIONS.get(module, module)


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    return tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def walk_imports(node: ast.AST, *, at_once: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield imports, but those for types alone, and whether they happen when the module is loaded."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, at_once
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from walk_imports(child, at_once=False)
        elif not isinstance(child, ast.expr) and not (
            isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        ):
            yield from walk_imports(child, at_once=at_once)


def list_imports() -> dict[str, set[tuple[str, bool]]]:
    """Modules of others by name: the files that import each, and whether that is when they are loaded."""
    imports: dict[str, set[tuple[str, bool]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if "templates" in path.parts or file in ELSEWHERE:
            continue
        for node, at_once in walk_imports(ast.parse(path.read_text(encoding="utf-8")), at_once=True):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in ("rocm_wheels", "compression"):
                    imports.setdefault(top, set()).add((file, at_once))
    return imports


def test_what_is_imported_is_a_dependency_or_of_an_extra(project: dict[str, list[str]]) -> None:
    light = read_names(project["dependencies"])
    of_extras = {module for modules in EXTRAS.values() for module in modules}
    imports = list_imports()
    for module, places in imports.items():
        assert module in of_extras | OPTIONAL or find_distribution(module) in light, (module, places)
    loaded_at_once = {
        name: places for name, places in imports.items() if any(at_once for _, at_once in places)
    }
    assert set(loaded_at_once) & (of_extras | OPTIONAL) == set(), "they would be missed by every command"
    assert of_extras - NOT_IMPORTED <= set(imports), "nobody imports them"
    assert light <= {find_distribution(module) for module in imports}, "nobody imports it"


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_the_modules_of_the_table(
    extra: str, project: dict[str, dict[str, list[str]]]
) -> None:
    stated = read_names(project["optional-dependencies"][extra])
    assert {find_distribution(module) for module in EXTRAS[extra]} <= stated
    light = read_names(project["dependencies"])  # type: ignore[arg-type]
    assert stated & light == set()


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Have modules missing, as in a light installation."""
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        monkeypatch.delitem(sys.modules, name)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.contract
def test_a_command_without_its_extra_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    hide(monkeypatch, *{module for modules in EXTRAS.values() for module in modules})
    for words, extras in [
        (["build", "--output-dir", "dist"], "[build]'"),
        (["set", "list", "s3://bucket/store"], "[s3]'"),
    ]:
        assert boundary.run_command(main.cli, words) == 2, words
        shown = capfd.readouterr().err
        assert re.search(rf"^tip: pip install '.+{re.escape(extras)}$", shown, re.MULTILINE), shown
        assert "Traceback" not in shown


def test_a_module_of_no_extra_is_a_bug() -> None:
    assert explain_missing_module(ModuleNotFoundError("x", name="rocm_wheels.nothing")) is None
    assert explain_missing_module(ModuleNotFoundError("x", name="yaml")) is None
    explained = explain_missing_module(ModuleNotFoundError("x", name="jinja2.sandbox"))
    assert explained is not None and explained.exit_code == 2


@pytest.mark.parametrize(
    ("place", "file", "line"),
    [
        ("venvs/rocm-wheels", "pipx_metadata.json", "pipx install --force '{}'"),
        ("cache/3f1", "pipx_metadata.json", "pipx run --spec '{}' rocm-wheels …"),
        ("tools/rocm-wheels", "uv-receipt.toml", "uv tool install '{}'"),
        ("archive-v0/X1", "pyvenv.cfg", "uvx --from '{}' rocm-wheels …"),
        (".venv", "pyvenv.cfg", "pip install '{}'"),
    ],
)
def test_the_line_is_for_how_we_were_started(
    place: str, file: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / place))
    hide(monkeypatch, "botocore")
    with pytest.raises(errors.MissingExtraError, match=re.escape("a store needs the extra s3")) as failure:
        require_extras("a store", "s3")
    before, after = line.split("{}")
    tip = failure.value.tip or ""
    assert tip.startswith(before) and tip.endswith(f"[s3]{after}")
    origin = Path(tip.removeprefix(before).removesuffix(f"[s3]{after}"))
    assert origin.exists()  # the clone: no index has us


@pytest.mark.contract
@pytest.mark.parametrize(
    ("place", "program", "command"),
    [
        ("archive-v0/X1/pyvenv.cfg", "bin/rocm-wheels", "uvx --from {} rocm-wheels"),
        ("cache/3f1/pipx_metadata.json", "bin/rocm-wheels", "pipx run --spec {} rocm-wheels"),
        ("clone/.venv/pyvenv.cfg", ".venv/bin/rocm-wheels", ".venv/bin/rocm-wheels"),
        ("tools/rocm-wheels/uv-receipt.toml", "{path}/rocm-wheels", "rocm-wheels"),
        ("a-program/pyvenv.cfg", "serve.py", "rocm-wheels"),  # which imports rocm_wheels
        ("a/pyvenv.cfg", "a/rocm_wheels/__main__.py", f"{sys.executable} -m rocm_wheels"),
    ],
)
def test_advice_has_our_commands_as_they_were_started(
    place: str, program: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for file in (tmp_path / place, tmp_path / "path/rocm-wheels"):
        file.parent.mkdir(parents=True)
        file.touch(0o755)
    monkeypatch.setattr(sys, "prefix", str((tmp_path / place).parent))
    monkeypatch.setattr(sys, "argv", [program.format(path=tmp_path / "path"), "doctor"])
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    text = (
        "rocm-wheels install --venv v   # `rocm-wheels choose torch`; rocm-wheels itself; x/rocm-wheels test"
    )
    said = adapt_commands(text)
    own = said.partition(" install --venv")[0]
    assert own.startswith(command.partition("{}")[0]) and own.endswith(command.partition("{}")[2])
    assert said == text.replace("rocm-wheels install", f"{own} install").replace(
        "`rocm-wheels choose", f"`{own} choose"
    )


def test_uv_is_taken_from_path_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / ("uv.exe" if sys.platform == "win32" else "uv")
    program.write_text("", encoding="utf-8")
    program.chmod(0o755)
    hide(monkeypatch, "uv")
    find_uv.cache_clear()
    try:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_uv() == program
        find_uv.cache_clear()
        monkeypatch.setenv("PATH", "")
        with pytest.raises(errors.MissingExtraError) as failure:
            find_uv()
        assert failure.value.tip == "pip install uv"
        assert name_uv() == "uv"  # and whoever pastes the line is told by the shell
        monkeypatch.undo()
        find_uv.cache_clear()
        monkeypatch.setenv("PATH", "")
        assert name_uv() == str(find_uv())  # pip installed it beside us, and nothing on PATH leads there
    finally:
        find_uv.cache_clear()
