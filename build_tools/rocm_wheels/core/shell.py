"""Write commands and environments as text for people, with no secrets in either.

What is secret: user and password of a URL, tokens and signatures in its query (``X-Amz-Signature=``), the
values of variables whose names tell of a secret (``AWS_SECRET_ACCESS_KEY``, ``SCCACHE_WEBDAV_TOKEN``,
``GH_PAT``), and the parts of values that hold one (``bearer-token=`` of ccache's remote storages,
``AccountKey=`` and ``sig=`` of Azure's).
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

HIDDEN = "***"

# up to the last @ before the path, as git reads it; begun only where a word begins, or a line of one
# endless word would take time with the square of its length
_URL_CREDENTIALS = re.compile(r"(?P<scheme>(?<![\w+.-])[\w+.-]+://)[^/\s]+@")
# parameters of a URL that let in whoever has it: of S3, GCS, Azure, CloudFront, GitLab and others
_QUERY_SECRET = re.compile(
    r"""(?:(?<=[?&])|(?<=&amp;))(?P<name>(?:[\w.%-]{0,40}[-_.])?(?:token|sig|signature|secret|password|passwd|credential|auth
      |authorization|api-?key|access-?key-?id|awsaccesskeyid|key)=)(?P<value>[^&;\#\s'"<>|)]+)""",
    re.VERBOSE | re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"""(?:^|_)(?:
        TOKENS? | PASSWORDS? | PASSWD | PASSPHRASE | SECRETS? | CREDENTIALS? | APIKEY | AUTHORIZATION | BEARER
      | CONNECTION_STRING | ACCESS_KEY(?:_ID)? | SECRET_ID | SAS
    )(?:_|$) | _(?:PWD|PAT|PASS|AUTH)$ | (?:^|_)(?<!CACHE_)(?<!PUBLIC_)KEY$""",
    re.VERBOSE | re.IGNORECASE,
)
_SECRET_PART = re.compile(
    r"(?P<name>\b(?:bearer-token|AccountKey|SharedAccessSignature|sig|signature|access_token)=)(?P<value>[^&;|\s]+)",
    re.IGNORECASE,
)
# a word that sets a variable, at its end as CMake's -DNAME=value and --set-env project:NAME=value do
_ASSIGNMENT = re.compile(r"(?P<name>(?<![A-Za-z0-9_-])(?:-D)?[A-Za-z_][A-Za-z0-9_]*)=(?P<value>[^\s;|&]+)")
_SHORTEST_SECRET = 6  # a shorter value is a word that lines are full of


def hide_credentials(text: str) -> str:
    """Replace user and password in every URL of ``text``, and what signs one in its query, by ``***``."""
    if "=" in text:
        text = _QUERY_SECRET.sub(rf"\g<name>{HIDDEN}", text)
    if "://" not in text:
        return text
    return _URL_CREDENTIALS.sub(rf"\g<scheme>{HIDDEN}@", text)


def drop_query_secrets(url: str) -> str:
    """Return a URL without the parameters of its query that are secret (``hide_credentials``)."""
    place, question_mark, query = url.partition("?")
    kept = [part for part in query.split("&") if not _QUERY_SECRET.match(f"?{part}", 1)]
    return place + (question_mark + "&".join(kept) if kept and query else "")


def hide_variable_value(name: str, value: str) -> str:
    """Return a variable's value as it may be shown: ``***`` when its name tells of a secret."""
    if value and _SECRET_NAME.search(name):
        return HIDDEN
    return _hide_secret_parts(value)


def redact_for_comparison(name: str, value: str) -> str:
    """Return a variable's value as it may be kept to be compared with: a digest stands for its secrets."""
    redacted = hide_variable_value(name, value)
    if redacted == value:
        return value
    return f"{redacted} (sha256 {hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:12]})"


def find_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secret values of an environment, the longest first: programs print them as well."""
    secrets = {value for name, value in env.items() if _SECRET_NAME.search(name)}
    for value in env.values():
        secrets.update(match["value"] for match in _SECRET_PART.finditer(value))
        secrets.update(
            match["value"] for match in _ASSIGNMENT.finditer(value) if _is_secret_assignment(match)
        )
    return tuple(
        sorted((value for value in secrets if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)
    )


def hide_secrets(text: str, secrets: Sequence[str]) -> str:
    """Hide the given values (``find_secrets``) and the credentials of URLs wherever they are in ``text``."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return hide_credentials(text)


def redact_environment(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return changes of an environment (``compare_environments``) as they may be shown or recorded."""
    return {
        name: None if value is None else hide_variable_value(name, value) for name, value in changes.items()
    }


def compare_environments(base: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return what differs between two environments: name → new value, ``None`` where it is removed."""
    changes: dict[str, str | None] = {k: v for k, v in environment.items() if base.get(k) != v}
    changes.update({k: None for k in base if k not in environment})
    return dict(sorted(changes.items()))


def format_command(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    changes: Mapping[str, str | None] | None = None,
) -> str:
    """Write a command so that it can be pasted into a shell, with only the changed variables before it.

    Secrets show as ``***``: in the variables, and in words that set one (``--set-env triton:GH_PAT=…``).
    """
    words = [shlex.quote(_hide_secret_parts(os.fspath(word))) for word in argv]
    prefix: list[str] = []
    if changes:
        redacted = redact_environment(changes)
        removed = [name for name, value in redacted.items() if value is None]
        assignments = [
            f"{name}={shlex.quote(value)}" for name, value in redacted.items() if value is not None
        ]
        prefix = ["env", *[f"-u {name}" for name in removed], *assignments] if removed else assignments
    line = " ".join([*prefix, *words])
    if cwd is not None:
        line = f"cd {shlex.quote(os.fspath(cwd))} && {line}"
    return hide_credentials(line)


def _hide_secret_parts(text: str) -> str:
    """Hide what is secret inside a value or a word of a command."""
    if "=" not in text:
        return hide_credentials(text)
    text = _SECRET_PART.sub(rf"\g<name>{HIDDEN}", hide_credentials(text))
    return _ASSIGNMENT.sub(
        lambda match: f"{match['name']}={HIDDEN}" if _is_secret_assignment(match) else match[0], text
    )


def _is_secret_assignment(assignment: re.Match[str]) -> bool:
    return _SECRET_NAME.search(assignment["name"].removeprefix("-D")) is not None
