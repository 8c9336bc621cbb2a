"""Check a set as installers meet it: the index that it is in, and what pip and uv take of it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rocm_wheels.audit import audited_set, audited_wheel, check, set_environments
from rocm_wheels.core import errors
from rocm_wheels.index import resolve_check, verify


@check.check(
    "RW070 set-index (error)",
    why="Some installer does not find a wheel, or refuses it.",
    fix="`rocm-wheels index build` writes the pages again.",
    kind="set",
)
def check_set_index(subject: audited_set.AuditedSet) -> list[errors.Finding] | audited_wheel.SkippedCheck:
    """The index is what installers read: pages, links, digests, METADATA."""
    if not subject.files.index_url:
        return audited_wheel.SkippedCheck("the set is no index")
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


@check.check(
    "RW071 set-resolvers (error)",
    why="An older build is installed without a word, because its version sorts above.",
    fix="`rocm-wheels index resolve-check` names a spelling that sorts.",
    kind="set",
)
def check_set_resolvers(subject: audited_set.AuditedSet) -> list[errors.Finding] | audited_wheel.SkippedCheck:
    """Pip and uv take the newest wheels, and the same."""
    if subject.env is None:
        return audited_wheel.SkippedCheck("pip and uv were not asked what they take: --resolve")
    stack = set_environments.list_stack_projects(subject)
    findings: list[errors.Finding] = []
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as empty:
        index = subject.files.index_url or empty
        for system in ("linux", "windows"):
            wheels = [
                wheel.scan.path
                for project in sorted(stack)
                for wheel in subject.wheels_by_project[project]
                if wheel.wheel_platform is not None and wheel.wheel_platform.system == system
                if wheel.scan.name is not None and wheel.scan.name.label is None
                if not subject.files.named or wheel.scan.path in subject.files.named
            ]
            if wheels:
                findings += _ask_resolvers(index, wheels, system, subject)
    if not stack:
        return audited_wheel.SkippedCheck("the set has no torch, and nothing that is built for one")
    return findings


def _ask_resolvers(
    index: str, wheels: Sequence[Path], system: str, subject: audited_set.AuditedSet
) -> list[errors.Finding]:
    assert subject.env is not None
    try:
        checks = resolve_check.check_picks(
            index, resolve_check.ResolveRequest(wheels, platform=system, pre=True), subject.env
        )
    except errors.UsageError as cause:  # several versions, of which none can be told to be the newest
        return [errors.Finding("error", cause.message, cause.tip or "")]
    return [
        errors.Finding(
            "error", f"{check.requirement}, Python {check.python}: {check.fault.splitlines()[0]}", check.tip
        )
        for check in checks
        if check.fault
    ]
