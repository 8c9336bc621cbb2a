"""``test smoke --set``: the GPU is asked first, then the set is installed from its own index."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Ended, call
from stores import FAMILY, NOW, TARGET, World

from rocm_wheels.core import errors, process
from rocm_wheels.gpus import variables
from rocm_wheels.release import stage, wheel_set
from rocm_wheels.stores import folder


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> wheel_set.SetDocument:
    """Return a set that is staged in the folder ``store`` of the current directory."""
    monkeypatch.chdir(tmp_path)
    return stage.stage_set(
        folder.FolderStore(tmp_path / "store"), World(tmp_path / "w").plan(), now=NOW
    ).document


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the words of installations that are begun; none is done."""
    begun: list[list[str]] = []

    def refuse(words: list[str], **_: object) -> None:
        begun.append(words)
        raise errors.HostError("not installed here")

    monkeypatch.setattr(process, "run_command", refuse)
    return begun


def smoke(document: wheel_set.SetDocument, *words: str, code: int = 0) -> Ended:
    command = ["test", "smoke", "--store", "store", "--set", document.id, "--output-dir", "results", *words]
    return call(*command, code=code)


@pytest.mark.parametrize(
    ("chips", "words"),
    [("", ()), ("", ("--family", FAMILY)), ("gfx1100", ()), ("gfx1100", ("--family", TARGET))],
)
def test_without_its_gpu_nothing_is_installed_and_there_are_no_results(
    chips: str,
    words: tuple[str, ...],
    *,
    document: wheel_set.SetDocument,
    installed: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of another run go, too: a script that goes on would hand them in."""
    for number, variable in enumerate(variables.GFX_VARIABLES):
        monkeypatch.delenv(variable, raising=False)
        if number == 0 and chips:
            monkeypatch.setenv(variable, chips)
    (tmp_path / "results").mkdir()
    for name in ("results.json", "junit.xml"):
        (tmp_path / "results" / name).write_text("of another run")
    said = smoke(document, *words, code=16).err
    assert f"no GPU of {TARGET}" in said and f"{document.id} is not installed" in said
    assert installed == [] and list((tmp_path / "results").iterdir()) == []


def test_a_gpu_that_the_set_has_no_code_for_is_a_wrong_word_and_leaves_results(
    document: wheel_set.SetDocument, installed: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "results.json").write_text("of another run")
    said = smoke(document, "--family", "gfx1100", code=2).err
    assert f"{document.id} has no code for gfx1100\ntip: it has code for {TARGET}" in said
    assert installed == [] and [path.name for path in (tmp_path / "results").iterdir()] == ["results.json"]


def test_with_its_gpu_it_is_installed_for_that(
    document: wheel_set.SetDocument, installed: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variables.GFX_VARIABLES[0], TARGET)
    smoke(document, code=17)
    smoke(document, "--family", TARGET, code=17)
    words, chosen = installed
    assert "--gfx" not in words and chosen[chosen.index("--gfx") + 1] == TARGET
    assert {f"{file.project}=={file.version}" for file in document.files} <= set(words)
