"""What ``test`` is asked for, and what it refuses."""

from __future__ import annotations

import sys

import pytest

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.user import selftest

FACTS = {"version": "2.9.0+rocm7.2", "devices": [{"device": "cuda:0", "name": "Radeon RX 7900 XTX"}]}


def test_groups_and_devices() -> None:
    assert (
        selftest.parse_groups([])
        == selftest.parse_groups(["all"])
        == ("import", "devices", "compile", "math", "functions")
    )
    assert selftest.parse_groups(["math", "IMPORT"]) == ("import", "math")
    assert selftest.choose_devices("auto", FACTS) == ("cuda:0",)
    assert selftest.choose_devices("all", FACTS) == ("cpu", "cuda:0")
    assert selftest.choose_devices("auto", {}) == ("cpu",)
    assert (selftest.choose_devices("gpu", FACTS), selftest.choose_devices("gpu", {})) == (("cuda:0",), ())
    with pytest.raises(errors.UsageError, match="torch sees no device cuda:1"):
        selftest.choose_devices("cuda:1", FACTS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["test", "quick", "maths"], "there are no checks maths; did you mean math?"),
        (["test", "--python", ""], "the path is empty; is a variable not set?"),
        (["test", "--python", "/nowhere"], "there is no Python /nowhere"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run_command(main.cli, words) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.out == ""


def test_what_to_do_next_is_about_the_python_that_was_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = selftest.SelfTestOutcome("math", "matmul", "cuda:1", "fail", "HIP error: no kernel image is")
    report = selftest.SelfTestReport("x", {}, ("cuda:1",), (failure,))
    monkeypatch.setattr(selftest, "run_self_test", lambda *_, **__: report)
    given = ["math", "--device", "cuda:1", "--python", sys.executable]
    assert boundary.run_command(main.cli, ["test", "quick", *given]) == 16
    python = f"--python {sys.executable}"
    says = capsys.readouterr().err
    assert f"`rocm-wheels configure {python}`" in says and f"`rocm-wheels doctor {python}`" in says
