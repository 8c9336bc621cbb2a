"""The page of a set and the summary of a job say where it stands, and every test that failed."""

from __future__ import annotations

import re

from judged_sets import EVERY, SET, judged, said

from rocm_wheels.release.set_page import SetPage

FAILED = tuple(f"test_ops::test_{number}<script>|`" for number in range(285))

HOSTILE = "a|b `c` <script> | forged | row |"


def make_page() -> SetPage:
    known = [
        said("audit"),
        said("smoke", gfx="gfx1030"),
        said(
            "smoke", "fail", gfx="gfx1031", failed=FAILED, counts={"failed": 285, "passed": 3}, detail=HOSTILE
        ),
    ]
    verdict = judged(EVERY, *known)
    return SetPage(SET, verdict, known, "rocm-wheels set evidence add STORE --set X")


def test_both_tell_the_same_and_name_all_that_failed() -> None:
    page = make_page()
    html, markdown = page.render(), page.format_markdown()
    assert html.count("<li><code>test_ops::test_") == markdown.count("- `test_ops::test_") == 285
    for text in (html, markdown):
        for said_once in (page.headline, "285 failed", "3 passed", page.next_step):
            assert said_once in text
        for target in ("gfx1030", "gfx1031"):
            assert target in text
    assert page.list_rules()[0][0] == "fail"
    assert {row[:2] for row in page.list_targets()} == {("gfx1030", "tested"), ("gfx1031", "failed")}


def test_names_of_tests_are_text_wherever_they_are_shown() -> None:
    page = make_page()
    assert "<script>" not in page.render()
    assert all(line.count("`") == 2 for line in page.format_markdown().splitlines() if line.startswith("- "))


def test_what_somebody_wrote_into_a_result_is_no_markup_of_the_summary() -> None:
    outside = re.sub(r"`[^`\n]*`|\\.", "", re.sub(r"^- `.*`$", "", make_page().format_markdown(), flags=re.M))
    assert "forged" in outside and "<" not in outside and "`" not in outside.partition("\nNext:")[0]
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {4}
