"""Check what a wheel is to those who publish it: sizes, licences, credentials, paths of the builder.

Sources: PyPI, "File size limits" and "Project size limits"; GitHub, "About releases" (2 GiB an asset);
Amazon S3, "Uploading objects" and CopyObject (5 GB at once); core metadata specification, License-File (PEP
639).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.metadata import parse_email

from rocm_wheels.audit.audited_wheel import TEST_FOLDER, AuditedWheel
from rocm_wheels.audit.definition import Findings, Skip, check, error, note, warning
from rocm_wheels.core import shell, tables
from rocm_wheels.wheels.hazards import HEADERS_END

# sizes in bytes, largest first: a wheel is told of the first that it exceeds
_LIMITS = (
    (5_000_000_000, warning, "more than S3 takes at once (5 GB), than a release on GitHub, and PyPI"),
    (2 << 30, warning, "more than a release on GitHub takes (2 GiB), and PyPI (100 MB unless it is raised)"),
    (100 << 20, note, "more than PyPI takes unless the project's limit is raised (100 MB)"),
)


@check("RW040 size (warning)")
def check_size(wheel: AuditedWheel) -> Findings:
    """The file is within the limits of PyPI, GitHub and S3.

    Why: The upload is refused, when everything else is done.
    Fix: Prune targets, take debug sections out, or ask for a higher limit.
    """
    for limit, finding, meaning in _LIMITS:
        if wheel.scan.size > limit:
            yield finding(f"{tables.format_size(wheel.scan.size)}, {meaning}")
            return


@check("RW044 licences (error)")
def check_licences(wheel: AuditedWheel) -> Findings:
    """The licence files that METADATA names are inside.

    Why: PyPI refuses the upload, and licences ask to come with the copy.
    Fix: The build back end must take them into *.dist-info/licenses.
    """
    if wheel.scan.metadata is None:
        raise Skip("METADATA could not be read")
    where = wheel.metadata_member
    raw, _ = parse_email(wheel.scan.texts[where])
    is_strict = tuple(map(int, re.findall(r"\d+", raw.get("metadata_version", "0")))) >= (2, 4)
    places = ("licenses/",) if is_strict else ("licenses/", "license_files/", "")
    for file in raw.get("license_files", []):
        if not any(f"{wheel.dist_info}/{place}{file}" in wheel.members for place in places):
            message = f"names {file} as its licence, which is not inside"
            yield (error if is_strict else warning)(message, where)


# a user alone (git@, or a name at a host) is no secret; a token in its place is told by its form
_PASSWORD = re.compile(r"://[^/\s:?#]*:[^/\s?#]+@")


@check("RW043 credentials (error)")
def check_credentials(wheel: AuditedWheel) -> Findings:
    """No token and no private key inside.

    Why: Whoever downloads the wheel can use it.
    Fix: Revoke it; then find out how it came into the build.
    """
    for member, name, example in _list_leaks(wheel, "credential"):
        yield (warning if TEST_FOLDER.search(member) else error)(f"holds {name} ({example})", member)
    text = wheel.scan.texts.get(wheel.metadata_member, b"").decode("utf-8", "replace")
    for line in HEADERS_END.split(text, maxsplit=1)[0].splitlines():
        hidden = shell.hide_credentials(line)
        if _PASSWORD.search(line):
            yield error(f"holds the credentials of a URL ({hidden})", wheel.metadata_member)
        elif f"={shell.HIDDEN}" in hidden:  # in a query, also what is no secret is called a key
            yield warning(f"holds what may be the key of a URL ({hidden})", wheel.metadata_member)


@check("RW041 builder-paths (info)")
def check_builder_paths(wheel: AuditedWheel) -> Findings:
    """No library holds paths of the builder's folders.

    Why: They tell who built it and where, and make builds of two machines differ.
    Fix: Compile with -ffile-prefix-map.
    """
    for member, name, example in _list_leaks(wheel, "builder-path"):
        yield note(f"holds paths of {name}: {example}", member)


def _list_leaks(wheel: AuditedWheel, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yield the member, what leaks, and an example with how many more there are."""
    for member, leaks in sorted(wheel.scan.leaks.items()):
        for leak in leaks:
            if leak.kind == kind:
                more = f", and {leak.count - 1:,} more" if leak.count > 1 else ""
                yield member, leak.name, f"{leak.example}{more}"
