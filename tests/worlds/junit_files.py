"""Files of results in JUnit's form, as pytest writes them."""

from __future__ import annotations

# JUnit: attributes of the suite, what is in it; outcome, passed, failed, what is said
CASE = '<testcase classname="TestNN" name="test_conv"/>'

BAD = '<testcase classname="TestNN" name="test_bad"><failure message="x">no</failure></testcase>'

ERROR = '<testcase classname="TestNN" name="test_err"><error message="x">no</error></testcase>'

SKIP = '<testcase classname="TestNN" name="test_skip"><skipped message="x"/></testcase>'


def junit(*cases: str, **attributes: object) -> str:
    said = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f"<testsuites><testsuite {said}>{''.join(cases)}</testsuite></testsuites>"


WHOLE = junit(
    CASE, SKIP, tests=2, failures=0, errors=0, hostname="runner-7", timestamp="2026-11-21T10:00:00+02:00"
)
