"""Which command of a release is next."""

from __future__ import annotations

import pytest
from documents import a_set, wheel

from rocm_wheels.cli import output
from rocm_wheels.release import next_step

WORDS = next_step.CommandWords("my store")


def test_the_road_has_store_and_set_filled_in(capsys: pytest.CaptureFixture[str]) -> None:
    document = a_set()
    end = f"my store' --set {document.id}"
    assert WORDS.format_line("set check", document.id) == f"rocm-wheels set check '{end}"
    tests = f"rocm-wheels test smoke --store '{end}"
    assert next_step.format_tests(document, WORDS) == f"{tests} --family {document.family}"
    assert next_step.format_tests(document.model_copy(update={"layout": "multi-arch"}), WORDS) == tests
    evidence = WORDS.format_line("set evidence add", document.id, "--from", "smoke results/results.json")
    assert evidence == f"rocm-wheels set evidence add '{end} --from 'smoke results/results.json'"
    output.print_next("a", beside_json=False)
    output.print_next("b", beside_json=True)
    printed = capsys.readouterr()
    assert printed.out == "next: a\n" and "next: b" in printed.err


def test_a_set_without_device_code_is_tested_on_no_gpu() -> None:
    document = a_set(wheel("triton", targets=()))
    step = next_step.format_tests(document, next_step.CommandWords("s"))
    assert step == f"rocm-wheels set gate s --set {document.id} --channel nightly --explain"
