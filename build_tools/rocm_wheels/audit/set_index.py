"""Check the index that a set is in, as installers read it."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote, urlsplit

from rocm_wheels.audit.audited_set import AuditedSet
from rocm_wheels.audit.definition import Findings, Skip, check
from rocm_wheels.index import verify


@check("RW070 set-index (error)", kind="set")
def check_set_index(subject: AuditedSet) -> Findings:
    """The index is what installers read: pages, links, digests, METADATA.

    Why: Some installer does not find a wheel, or refuses it.
    Fix: `rocm-wheels index build` writes the pages again; `rocm-wheels index verify` tells more.
    """
    url = subject.files.index_url
    if not url:
        raise Skip("the set is no index")
    for finding in verify.verify_index(url).findings:
        message, place = f"{finding.check}: {finding.message}", _get_place(finding.subject, url)
        yield replace(finding, message=message, subject=place)


def _get_place(url: str, index_url: str) -> str:
    """Return the file that a URL names, or the page: what is behind the index's own address."""
    path = urlsplit(url).path
    place = path.rpartition("/")[2] or path.removeprefix(urlsplit(index_url).path) or path
    return unquote(place) if unquote(place).isprintable() else place
