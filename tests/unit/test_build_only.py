"""PROJECTs and wheels: what a job of a workflow says of the projects that it builds."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rocm_wheels.cli import build, build_options
from rocm_wheels.core import errors

GIVEN = ["--output-dir", "out"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pytorch,trition"], "there is no project 'trition'; did you mean triton?"),
        (["torch", "trition"], "there is no project 'trition'; did you mean triton?"),
        (["torch", "--no-build-apex"], "PROJECT and --no-build-apex exclude each other"),
        ([" , "], "PROJECT names no project"),
        (["pytorch-vision", "--build-triton"], "PROJECT and --build-triton exclude each other"),
        (["--triton-wheel", "."], "--triton-wheel: there is no wheel of triton in ."),
        (
            ["pytorch", "--pytorch-wheel", "here"],
            "pytorch is to be built, and --pytorch-wheel says",
        ),
    ],
)
def test_wrong_input(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "torch-2.9.0-cp312-cp312-linux_x86_64.whl").touch()
    result = CliRunner().invoke(build.production.commands["build"], [*GIVEN, *words])
    assert isinstance(result.exception, errors.UsageError) and said in str(result.exception)


@pytest.mark.contract
@pytest.mark.parametrize("words", [["torch", "pytorch-vision"], ["pytorch,torchvision"]])
def test_projects_are_named_as_for_checkout(words: list[str]) -> None:
    options = build.build.make_context("build", [*GIVEN, *words]).params
    chosen = build_options.make_wheels_request(options, {}).chosen
    assert {name for name, is_built in chosen.items() if is_built} == {"pytorch", "pytorch_vision"}
    assert None not in chosen.values()


@pytest.mark.parametrize(("words", "clean"), [([], False), (["--clean"], True), (["--no-clean"], False)])
def test_a_tree_is_thrown_away_when_asked(words: list[str], clean: bool) -> None:
    assert build.build.make_context("build", [*GIVEN, *words]).params["clean"] is clean
