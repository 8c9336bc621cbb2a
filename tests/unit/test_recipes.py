"""Where recipes are found, what clashes, what is wrong with one, and the draft of one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.ci import matrix
from rocm_wheels.cli import boundary, checkout, main
from rocm_wheels.compile import hooks
from rocm_wheels.core import errors
from rocm_wheels.models import closed_projects, project, project_names
from rocm_wheels.sources import draft_recipe
from rocm_wheels.user import installed_packages

CLONE = Path(__file__).resolve().parents[2]

USUAL = ["apex", "pytorch", "pytorch_audio", "pytorch_vision", "triton"]
OWN = sorted([*USUAL, "bitsandbytes", "causal_conv1d", "flash_attention", "lightgbm", "torchcodec"])


@pytest.fixture(autouse=True)
def no_other_folders() -> Iterator[None]:
    project_names.set_recipe_search(tuple)
    yield
    project_names.set_recipe_search(tuple)


def write_recipe(folder: Path, name: str, **changes: str) -> Path:
    """Write torchaudio's recipe under another name, with other texts in it."""
    text = (project_names.get_recipes_folder() / "pytorch_audio.yaml").read_text(encoding="utf-8")
    text = text.replace("name: pytorch_audio", f"name: {name}")
    text = text.replace("distribution: torchaudio", f"distribution: {name.replace('_', '-')}")
    text = text.replace("torchaudio", name)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def install_recipes(site: Path, value: str, *folders: str) -> None:
    """Put a distribution into ``sys.path``: an entry point, and packages that refuse to be imported."""
    info = site / "some_recipes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-recipes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{project_names.RECIPES_GROUP}]\nmore = {value}\n")
    for folder in folders:
        (site / folder).mkdir(parents=True)
        (site / folder / "__init__.py").write_text("raise RuntimeError('imported')\n")


def test_folders_of_options_of_packages_and_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_recipes(tmp_path / "site", "some_package.recipes", "some_package", "some_package/recipes")
    packaged = write_recipe(tmp_path / "site/some_package/recipes", "from_package")
    named = write_recipe(tmp_path / "named", "named")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    folder = project_names.RecipeFolder(tmp_path / "named", "--recipe-dir")
    project_names.set_recipe_search(lambda: [folder, folder])  # named twice: one file, no clash
    assert project_names.list_project_names() == sorted([*OWN, "from_package", "named"])
    assert project_names.list_foreign_recipes() == {"from_package": packaged, "named": named}
    assert project_names.find_recipes()["from_package"].origin == "some-recipes, installed"
    assert project_names.find_recipes()["named"].origin == "--recipe-dir"
    assert project.load_project("named").distribution == "named"
    assert "some_package" not in sys.modules
    project_names.use_planned_recipes({"named": named})
    assert project_names.list_foreign_recipes() == {"named": named}
    project_names.use_planned_recipes({})
    assert project_names.list_project_names() == OWN


@pytest.mark.parametrize("value", ["gone", "some_package.gone", "some_package.module"])
def test_an_entry_point_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    install_recipes(tmp_path, value, "some_package")
    (tmp_path / "some_package/module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(errors.DataError, match=f"some-recipes names {value} as a folder of recipes"):
        project_names.find_recipes()


def test_two_recipes_of_a_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    first, second = write_recipe(tmp_path / "a", "twice"), write_recipe(tmp_path / "b", "twice")
    project_names.set_recipe_search(
        lambda: [project_names.RecipeFolder(path.parent, "--recipe-dir") for path in (first, second)]
    )
    with pytest.raises(errors.DataError) as wrong:
        project_names.list_project_names()
    assert str(first) in wrong.value.message and str(second) in wrong.value.message
    own = write_recipe(tmp_path / "c", "triton")
    project_names.set_recipe_search(lambda: [project_names.RecipeFolder(own.parent, "--recipe-dir")])
    with pytest.raises(errors.DataError) as wrong:
        project.load_project("triton")
    assert (
        str(own) in wrong.value.message
        and str(project_names.get_recipes_folder() / own.name) in wrong.value.message
    )


@pytest.mark.parametrize("name", ["Big", "with-hyphen", "2nd", "ümlaut", ".hidden"])
def test_a_file_name_that_is_no_name_of_a_project(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.yaml").touch()
    project_names.set_recipe_search(lambda: [project_names.RecipeFolder(tmp_path, "recipes/ here")])
    with pytest.raises(errors.DataError, match="is no name of a project"):
        project_names.list_project_names()


@pytest.mark.contract
def test_a_command_takes_folders_from_option_variable_configuration_and_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("option", "second", "variable", "configured"):
        write_recipe(tmp_path / name, f"by_{name}")
    write_recipe(tmp_path / "recipes", "here")
    (tmp_path / "rocm-wheels.toml").write_text('recipe-dir = ["configured"]\n')
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)

    def projects(*words: str) -> set[str]:
        assert boundary.run_command(main.cli, ["compat", "show", "lines", *words]) == 0
        titles = capsys.readouterr().out
        names = {"by_option", "by_second", "by_variable", "by_configured", "here"}
        return {name for name in names if name.replace("_", "-") in titles}

    assert projects() == {"by_configured", "here"}
    monkeypatch.setenv("ROCM_WHEELS_RECIPE_DIR", "variable")
    assert projects() == {"by_variable", "here"}
    assert projects("--recipe-dir", "option", "--recipe-dir=second") == {"by_option", "by_second", "here"}
    monkeypatch.setenv("ROCM_WHEELS_RECIPE_DIR", "empty")
    assert boundary.run_command(main.cli, ["compat", "show", "lines"]) == 2
    assert "ROCM_WHEELS_RECIPE_DIR: the folder" in capsys.readouterr().err
    monkeypatch.delenv("ROCM_WHEELS_RECIPE_DIR")
    (tmp_path / "wrong.toml").write_text("recipe-dir = 3\n")
    assert boundary.run_command(main.cli, ["--config", "wrong.toml", "compat", "show", "lines"]) == 2
    assert "wrong.toml: recipe-dir takes a folder" in capsys.readouterr().err
    assert (
        boundary.run_command(main.cli, ["--config", "", "compat", "show", "lines", "--recipe-dir", "gone"])
        == 2
    )


def check(*paths: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The exit code of `recipe check`, and each fault as line:column: message."""
    code = boundary.run_command(main.cli, ["--config", "", "recipe", "check", "--json", *map(str, paths)])
    faults = json.loads(capsys.readouterr().out)["faults"]
    return code, [fault.partition(".yaml:")[2] or fault.partition(".py:")[2] for fault in faults]


@pytest.mark.parametrize(
    ("text", "wheel"),
    [
        ("distribution: Flash_Attn\n", "flash-attn"),
        ('name: mine\ndistribution: "flash-attn"  # quoted\n', "flash-attn"),
        ("{name: mine, distribution: flash-attn}\n", "flash-attn"),
        ("name: mine\n", None),
        ("- distribution: flash-attn\n", None),
    ],
)
def test_the_wheels_of_recipes_are_known_before_they_are_checked(
    tmp_path: Path, text: str, wheel: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {built.normalized_name: built.name for built in project.list_projects()}
    assert project_names.find_wheel_projects() == own
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(text)
    monkeypatch.setattr(
        project_names, "find_recipes", lambda: {"mine": project_names.RecipeFile(recipe, "a test")}
    )
    if wheel is not None:
        assert project_names.find_wheel_projects() == {wheel: "mine"}
        assert closed_projects.is_closed_project(wheel)
        return
    with pytest.raises(errors.DataError, match=r"mine\.yaml does not say what its wheel is called"):
        project_names.find_wheel_projects()


def test_what_is_imported_of_wheels_is_as_their_recipes_say() -> None:
    recipes = {built.normalized_name: built.checks.import_name for built in project.list_projects()}
    own = [name for name in installed_packages._OWN_MODULES if name in recipes]
    assert own == ["torch", "torchvision", "torchaudio"]
    assert [recipes[name] for name in own] == own


@pytest.mark.contract
def test_our_own_recipes_are_sound(capsys: pytest.CaptureFixture[str]) -> None:
    own = [project_names.get_recipes_folder() / f"{name}.yaml" for name in OWN]
    assert check(*own, capsys=capsys) == (0, [])


@pytest.fixture
def no_kept_lines() -> Iterator[None]:
    """Have a matrix list its projects anew, before and after: a process knows one set of recipes."""

    def forget() -> None:
        matrix.list_line_projects.cache_clear()
        matrix._list_buildable.cache_clear()

    forget()
    yield
    forget()


@pytest.mark.usefixtures("no_kept_lines")
def test_what_is_meant_where_no_project_is_named(tmp_path: Path) -> None:
    write_recipe(tmp_path, "mine")
    project_names.set_recipe_search(lambda: [project_names.RecipeFolder(tmp_path, "--recipe-dir")])
    expected = sorted([*USUAL, "mine"])
    assert sorted(recipe.name for recipe in project.list_usual_projects()) == expected
    assert [recipe.name for recipe in checkout.choose_recipes((), everything=True)] == expected
    (named,) = checkout.choose_recipes(["bitsandbytes"], everything=False)
    assert named.name == "bitsandbytes"
    built = matrix.list_line_projects("linux", "2.13")
    assert sorted(recipe.name for recipe in built) == expected


@pytest.mark.contract
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hipify:": "hipfy:"}, ["hipfy", "hipify"]),
        ({"distribution: mine": "distribution: torchvision"}, ["3:", "pytorch_vision"]),
        ({"import_name: mine": "import_name: torch"}, ["checks", "pytorch"]),
        ({"after: [pytorch]": "after: [pytorch, gone]"}, ["after", "gone"]),
        ({"files: [mine/__init__.py]": "files: [other/__init__.py]"}, ["other/__init__.py"]),
        ({"names: [torio]": 'names: ["*"]'}, ["*"]),
        ({"checks:": 'lines: {"2.99": {checkout: {kind: unknown, source: nowhere}}}\nchecks:'}, ["2.99"]),
        ({"checks:": "hooks: gone.py\nchecks:"}, ["gone.py"]),
    ],
)
def test_what_is_wrong_with_a_recipe_has_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], expected: list[str]
) -> None:
    path = write_recipe(tmp_path, "mine", **changes)
    code, faults = check(path, capsys=capsys)
    assert code == 2 and faults
    assert all(re.match(r"\d+:\d+: ", fault) for fault in faults)
    (new,) = changes.values()
    line = next(
        number
        for number, text in enumerate(path.read_text().splitlines(), start=1)
        if new.splitlines()[0].rstrip(":") in text
    )
    assert any(fault.startswith(f"{line}:") for fault in faults), (line, faults)
    assert any(expected[-1] in fault for fault in faults)


@pytest.mark.contract
def test_cycles_and_hooks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_recipe(tmp_path, "first", **{"after: [pytorch]": "after: [pytorch, second]"})
    second = write_recipe(tmp_path, "second", **{"after: [pytorch]": "after: [pytorch, first]"})
    code, faults = check(first, second, capsys=capsys)
    assert code == 2 and len(faults) == 2 and all("wait for each other" in fault for fault in faults)
    hooked = write_recipe(tmp_path / "b", "hooked", **{"checks:": "hooks: more.py\nchecks:"})
    script = hooked.with_name("more.py")
    head = "from rocm_wheels.compile.hooks import Hooks\n\n\ndef add(request, env):\n    env['A'] = 'b'\n\n\n"
    for text, problem in (
        ("", "it has no HOOKS"),
        (head + "HOOKS = Hooks(envronment=add)\n", "did you mean environment?"),
        (head + "HOOKS = Hooks(prepare=gone)\n", "there is no function gone"),
        ("HOOKS = (\n", "not valid Python"),
    ):
        script.write_text(text)
        code, faults = check(hooked, capsys=capsys)
        assert code == 2 and len(faults) == 1 and problem in faults[0], faults
    script.write_text(head + "HOOKS = Hooks(environment=add)\n")
    assert check(hooked, capsys=capsys) == (0, [])
    project_names.set_recipe_search(lambda: [project_names.RecipeFolder(hooked.parent, "--recipe-dir")])
    assert hooks.find_hooks(project.load_project("hooked")).environment is not hooks.Hooks().environment


@pytest.mark.contract
def test_a_template_lists_what_build_files_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "setup.py").write_text(
        "import os\nfrom os import getenv\n# os.environ['OLD']\nA = getenv('MY_VERSION')\n"
        "'''say os.environ['OLD']'''\nNAME = 'FORCE_BUILD'\n"
        "os.getenv(NAME, 'FALSE'), os.getenv(f'{NAME}_X')\n"
        "os.environ['FORCE_CUDA'] = '1'\nif 'DEBUG' in os.environ: os.environ.get(\"LEVEL\", 0)\n"
        "raise RuntimeError('run')\n"
    )
    (tree / "CMakeLists.txt").write_text(
        'option(USE_ROCM "Build\n  for #1, \\"AMD\\"" ON)\nOPTION(USE_X "X")\n#option(OLD "" ON)\n'
        'set(A $ENV{MY_ARCH} "$ENV{TEXT}#")\n#[[\noption(OLD "" ON)\n]]\noption(PLAIN)\n'
        'message("option(OLD ON)" [=[option(OLD) ]]]=])\nset(B "option(OLD ON)'
    )
    monkeypatch.chdir(tmp_path)
    assert boundary.run_command(main.cli, ["recipe", "new", "my-pkg", "--from", "tree"]) == 0
    draft = project.load_project("my_pkg", tmp_path / "recipes")
    assert (draft.distribution, draft.checks.import_name) == ("my-pkg", "my_pkg")
    assert (tmp_path / "recipes/my_pkg.yaml").read_text().splitlines()[-5:] == [
        '# Option of CMakeLists.txt: USE_ROCM (ON): Build for #1, \\"AMD\\"',
        "# Option of CMakeLists.txt: USE_X (OFF): X",
        "# Option of CMakeLists.txt: PLAIN (OFF)",
        "# Variables that CMakeLists.txt reads: MY_ARCH, TEXT",
        "# Variables that setup.py reads: DEBUG, FORCE_BUILD, FORCE_CUDA, LEVEL, MY_VERSION",
    ]
    capsys.readouterr()
    code, faults = check(capsys=capsys)  # what is for people to say
    lines = (tmp_path / "recipes/my_pkg.yaml").read_text().splitlines()
    places = [str(number) for number, line in enumerate(lines, start=1) if "TODO" in line]
    assert code == 2 and [fault.partition(":")[0] for fault in faults] == places
    assert [fault.split(": ", 1)[1] for fault in faults] == [
        "summary is TODO yet: one line for people",
        "origin is TODO yet: the URL of its repository",
        "reason is TODO yet: what compiles its GPU code, or that it has none",
        "reason is TODO yet: which libraries hold kernels, and for which targets",
    ]
    assert boundary.run_command(main.cli, ["recipe", "check", "--json"]) == 2
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)["recipes"]}
    first = ["lightgbm", "my_pkg", "triton", "pytorch"]
    assert list(listed) == [*first, *sorted({*OWN} - {*first})]
    assert listed["my_pkg"]["file"] == str(tmp_path / "recipes/my_pkg.yaml") and listed["my_pkg"]["faults"]
    assert listed["apex"]["from"] == "our own" and not listed["apex"]["faults"]
    assert boundary.run_command(main.cli, ["recipe", "check"]) == 2
    assert "my_pkg" in capsys.readouterr().out
    assert boundary.run_command(main.cli, ["recipe", "new", "my-pkg", "--from", "tree"]) == 2
    assert boundary.run_command(main.cli, ["recipe", "new", "other", "--from", "gone"]) == 2
    for name in ("../outside", "a b", ".x", ""):
        assert boundary.run_command(main.cli, ["recipe", "new", name]) == 2
    assert not (tmp_path / "recipes/other.yaml").exists()
    assert boundary.run_command(main.cli, ["recipe", "new", "plain"]) == 0
    assert project.load_project("plain", tmp_path / "recipes").hipify.by == "none"
    capsys.readouterr()


@pytest.mark.parametrize(
    "content",
    [b"print 'two'\n", b"\0", b"# coding: klingon\n", b"'\xff'\n", b"(" * 5000, b"#" * 2_000_001],
    ids=["python2", "binary", "coding", "latin", "deep", "huge"],
)
def test_a_file_that_cannot_be_read_is_a_comment(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "setup.py").write_bytes(content)
    (tmp_path / "CMakeLists.txt").mkdir()
    cmake, setup = draft_recipe.draft_recipe("fast_ops", tmp_path).splitlines()[-2:]
    assert setup.startswith("# setup.py was not read: ") and cmake.startswith(
        "# CMakeLists.txt was not read: "
    )


def test_a_template_without_its_comments_holds(tmp_path: Path) -> None:
    """What is a comment in it can be made a line of it."""
    text = draft_recipe.draft_recipe("fast_ops", tmp_path).replace(
        "TODO the URL", "https://x.invalid/a.git # the URL"
    )
    assert text.endswith("# There is no CMakeLists.txt.\n# There is no setup.py.\n")
    for line in ("requirements:", "after:", "needs:"):
        text = text.replace(f"  # {line}", f"  {line}")
    text = re.sub(r"^# (environment:.*)$", r"\1", text, flags=re.M)
    text = re.sub(r"^# (  .*)$", r"\1", text, flags=re.M)
    (tmp_path / "fast_ops.yaml").write_text(text)
    recipe = project.load_project("fast_ops", tmp_path)
    assert recipe.build.needs == ("pytorch",)
    assert "-DCMAKE_HIP_ARCHITECTURES={targets}" in recipe.environment["CMAKE_ARGS"]
