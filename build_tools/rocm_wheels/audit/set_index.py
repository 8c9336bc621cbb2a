"""Check the index that a set is in, as installers read it."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote, urlsplit

from rocm_wheels.audit import audited_set, definition
from rocm_wheels.core import errors
from rocm_wheels.index import verify


@definition.check(
    "RW070 set-index (error)",
    why="Some installer does not find a wheel, or refuses it.",
    fix="`rocm-wheels index build` writes the pages again.",
    kind="set",
)
def check_set_index(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """The index is what installers read: pages, links, digests, METADATA."""
    if not subject.files.index_url:
        return definition.SkippedCheck("the set is no index")
    verified = verify.verify_index(subject.files.index_url)
    return [
        replace(
            finding,
            message=f"{finding.check}: {finding.message}",
            tip=finding.tip or "`rocm-wheels index verify` tells more",
            subject=_get_place(finding.subject, subject.files.index_url),
        )
        for finding in verified.findings
    ]


def _get_place(url: str, index_url: str) -> str:
    """Return the file that a URL names, or the page: what is behind the index's own address."""
    path = urlsplit(url).path
    place = path.rpartition("/")[2] or path.removeprefix(urlsplit(index_url).path) or path
    return unquote(place) if unquote(place).isprintable() else place
