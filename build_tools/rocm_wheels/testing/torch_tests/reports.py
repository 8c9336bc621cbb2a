"""The JUnit file of a file of torch's tests, which CI systems show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from rocm_wheels.testing.junit import JUNIT_TAGS, make_suite_counts, replace_non_xml
from rocm_wheels.testing.torch_tests.outcomes import OutcomeVerdict
from rocm_wheels.workspace import write_atomically

KNOWN_PREFIX = "known: "


def write_torch_junit(
    path: Path, name: str, verdicts: Sequence[OutcomeVerdict], *, when: str, host: str
) -> None:
    """Write one suite. A failure that is known is a test that was skipped, for a stated reason."""
    tags = [_find_junit_tag(verdict) for verdict in verdicts]
    sums = make_suite_counts(tags, [verdict.test for verdict in verdicts])
    root = ET.Element("testsuites", sums)
    suite = ET.SubElement(
        root, "testsuite", {"name": f"torch {name}", "timestamp": when, "hostname": host, **sums}
    )
    for verdict, tag in zip(verdicts, tags, strict=True):
        file, _, rest = verdict.test.name.partition("::")
        group, _, test = rest.rpartition("::")
        classname = ".".join(
            filter(None, [file.removesuffix(".py").replace("/", "."), group.replace("::", ".")])
        )
        about = {
            "classname": classname,
            "name": test or verdict.test.name,
            "time": f"{verdict.test.seconds:.3f}",
        }
        case = ET.SubElement(suite, "testcase", about)
        if tag:
            reason = replace_non_xml(_make_junit_reason(verdict))
            element = ET.SubElement(
                case, tag, {"message": reason.partition("\n")[0], "type": verdict.test.outcome}
            )
            element.text = reason
    ET.indent(root, " ")
    write_atomically(path, ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _find_junit_tag(verdict: OutcomeVerdict) -> str:
    return (
        "skipped"
        if verdict.known_reason and verdict.test.outcome == "failed"
        else JUNIT_TAGS.get(verdict.test.outcome, "")
    )


def _make_junit_reason(verdict: OutcomeVerdict) -> str:
    if verdict.known_reason and verdict.test.outcome == "failed":
        return f"{KNOWN_PREFIX}{verdict.known_reason}\n{verdict.test.reason}"
    return f"Timeout: {verdict.test.reason}" if verdict.test.outcome == "timeout" else verdict.test.reason
