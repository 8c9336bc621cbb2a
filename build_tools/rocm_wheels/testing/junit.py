"""Results as JUnit XML, which CI systems show: written by us, so that lost tests are in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from rocm_wheels.testing.results import Results, TestResult
from rocm_wheels.workspace import write_whole

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TAGS = {
    "failed": "failure",
    "crashed": "error",
    "timeout": "error",
    "missing": "error",
    "skipped": "skipped",
}


def in_xml(text: str) -> str:
    """Return text without characters that XML has not."""
    return _NOT_XML.sub("?", text)


def write_junit(path: Path, results: Results) -> None:
    """Write a suite for what needed no GPU and one for each GPU, whole or not at all."""
    suites: dict[str, list[TestResult]] = defaultdict(list)
    for one in results.tests:
        suites[one.name.partition(" @")[2]].append(one)
    root = ET.Element("testsuites", _counts(results.tests))
    for label, tests in suites.items():
        name = f"smoke {label}".strip()
        about = {"name": name, "timestamp": results.when, "hostname": results.host, **_counts(tests)}
        suite = ET.SubElement(root, "testsuite", about)
        for one in tests:
            file, _, test = one.name.partition(" @")[0].rpartition("::")
            group = ".".join([*name.split(), file.removesuffix(".py")]).rstrip(".")
            about = {"classname": group, "name": test, "time": f"{one.seconds:.3f}"}
            case = ET.SubElement(suite, "testcase", about)
            if tag := TAGS.get(one.outcome):
                said = in_xml(one.reason)
                found = ET.SubElement(case, tag, {"message": said.partition("\n")[0], "type": one.outcome})
                found.text = said
    ET.indent(root, " ")
    write_whole(path, ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _counts(tests: Sequence[TestResult]) -> dict[str, str]:
    return counts([TAGS.get(one.outcome, "") for one in tests], tests)


def counts(tags: Sequence[str], tests: Sequence[TestResult]) -> dict[str, str]:
    """Return what a suite says of its tests as a whole; ``tags`` say what becomes of each of them."""
    return {
        "tests": str(len(tests)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
        "skipped": str(tags.count("skipped")),
        "time": f"{sum(one.seconds for one in tests):.3f}",
    }
