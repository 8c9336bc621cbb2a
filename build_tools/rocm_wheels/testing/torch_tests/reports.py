"""The JUnit file of a file of torch's tests, which CI systems show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from rocm_wheels.testing.junit import TAGS, counts, in_xml
from rocm_wheels.testing.torch_tests.outcomes import Verdict
from rocm_wheels.workspace import write_whole

KNOWN = "known: "


def write_report(path: Path, name: str, verdicts: Sequence[Verdict], *, when: str, host: str) -> None:
    """Write one suite. A failure that is known is a test that was skipped, for a stated reason."""
    tags = [_tag(one) for one in verdicts]
    sums = counts(tags, [one.test for one in verdicts])
    root = ET.Element("testsuites", sums)
    suite = ET.SubElement(
        root, "testsuite", {"name": f"torch {name}", "timestamp": when, "hostname": host, **sums}
    )
    for one, tag in zip(verdicts, tags, strict=True):
        file, _, rest = one.test.name.partition("::")
        group, _, test = rest.rpartition("::")
        classname = ".".join(
            filter(None, [file.removesuffix(".py").replace("/", "."), group.replace("::", ".")])
        )
        about = {"classname": classname, "name": test or one.test.name, "time": f"{one.test.seconds:.3f}"}
        case = ET.SubElement(suite, "testcase", about)
        if tag:
            said = in_xml(_words(one))
            found = ET.SubElement(case, tag, {"message": said.partition("\n")[0], "type": one.test.outcome})
            found.text = said
    ET.indent(root, " ")
    write_whole(path, ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _tag(one: Verdict) -> str:
    return "skipped" if one.known and one.test.outcome == "failed" else TAGS.get(one.test.outcome, "")


def _words(one: Verdict) -> str:
    if one.known and one.test.outcome == "failed":
        return f"{KNOWN}{one.known}\n{one.test.reason}"
    return f"Timeout: {one.test.reason}" if one.test.outcome == "timeout" else one.test.reason
