"""Results as JUnit XML, which CI systems show: written by us, so that lost tests are in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from rocm_wheels.testing.results import Results, TestResult
from rocm_wheels.workspace import write_atomically

_NOT_XML_CHARACTER = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
JUNIT_TAGS = {
    "failed": "failure",
    "crashed": "error",
    "timeout": "error",
    "missing": "error",
    "skipped": "skipped",
}


def replace_non_xml(text: str) -> str:
    """Return text without characters that XML has not."""
    return _NOT_XML_CHARACTER.sub("?", text)


def write_junit(path: Path, results: Results) -> None:
    """Write a suite for what needed no GPU and one for each GPU, whole or not at all."""
    suites: dict[str, list[TestResult]] = defaultdict(list)
    for result in results.tests:
        suites[result.name.partition(" @")[2]].append(result)
    root = ET.Element("testsuites", _count_suite(results.tests))
    for label, tests in suites.items():
        name = f"smoke {label}".strip()
        about = {"name": name, "timestamp": results.when, "hostname": results.host, **_count_suite(tests)}
        suite = ET.SubElement(root, "testsuite", about)
        for result in tests:
            file, _, test = result.name.partition(" @")[0].rpartition("::")
            group = ".".join([*name.split(), file.removesuffix(".py")]).rstrip(".")
            about = {"classname": group, "name": test, "time": f"{result.seconds:.3f}"}
            case = ET.SubElement(suite, "testcase", about)
            if tag := JUNIT_TAGS.get(result.outcome):
                reason = replace_non_xml(result.reason)
                element = ET.SubElement(
                    case, tag, {"message": reason.partition("\n")[0], "type": result.outcome}
                )
                element.text = reason
    ET.indent(root, " ")
    write_atomically(path, ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _count_suite(tests: Sequence[TestResult]) -> dict[str, str]:
    return make_suite_counts([JUNIT_TAGS.get(test.outcome, "") for test in tests], tests)


def make_suite_counts(tags: Sequence[str], tests: Sequence[TestResult]) -> dict[str, str]:
    """Return what a suite says of its tests as a whole; ``tags`` say what becomes of each of them."""
    return {
        "tests": str(len(tests)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
        "skipped": str(tags.count("skipped")),
        "time": f"{sum(test.seconds for test in tests):.3f}",
    }
