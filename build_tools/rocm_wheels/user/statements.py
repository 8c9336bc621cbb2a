"""Take wheels of recipes only with a statement of how they were made that a key has signed (--signed-by)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from rocm_wheels.core import errors, files, parallel
from rocm_wheels.index import reader
from rocm_wheels.models import project_names
from rocm_wheels.user import fetch
from rocm_wheels.user.lock import LockedPackage

_JOBS = 8
_NOT_THERE = {403, 404, 410}  # 403: a bucket that may be read and not listed


def require_statements(
    packages: Sequence[LockedPackage],
    signers: Mapping[str, str],
    reach: reader.IndexReader,
    cache: Path,
    env: Mapping[str, str],
) -> None:
    """Raise HostError unless one of the keys has signed a statement about each wheel of a recipe.

    ROCm's own packages are not asked for any.
    """
    from rocm_wheels.package.provenance import check_signature, parse_stored_statement
    from rocm_wheels.wheels import statement

    def read_beside(package: LockedPackage, suffix: str) -> bytes | None:
        parts = urlsplit(package.url)
        answer = reach.get(urlunsplit(parts._replace(path=parts.path + suffix)))
        if answer.status not in {200, *_NOT_THERE}:
            raise errors.DataError(f"{package.file}{suffix} cannot be read: the server says {answer.status}")
        return answer.content if answer.status == 200 else None

    def find_fault(package: LockedPackage) -> str:
        name = f"{package.file}{statement.STATEMENT_SUFFIX}"
        try:
            content = read_beside(package, statement.STATEMENT_SUFFIX)
            signature = read_beside(package, statement.STATEMENT_SIGNATURE_SUFFIX)
            if content is None or signature is None:
                return f"the index has no {name}{'' if content is None else ' with a signature'}"
            local = fetch.find_fetched(package, cache)
            sha256 = package.sha256 or (files.hash_file(local) if local else "")
            stated = parse_stored_statement(content, name=name, wheel=package.file, sha256=sha256)
            for _inner in statement.walk_statements(stated):
                pass  # each that it holds is about the wheel that it is named as the statement of
            if not check_signature(content, signature, signers, env):
                return f"{name} is not signed by {' or '.join(signers)}"
        except errors.DataError as fault:
            return str(fault)
        return ""

    names = project_names.find_wheel_projects()
    device_parts = tuple(f"amd-{name}-device-" for name in names)
    built = [p for p in packages if p.project in names or p.project.startswith(device_parts)]
    if faults := list(filter(None, parallel.run_in_parallel(find_fault, built, jobs=_JOBS))):
        raise errors.HostError(
            "\n".join(faults),
            tip="nothing was installed; leave --signed-by out to install what nobody answers for",
        )
