"""Which variables a container gets: few, by name. Values from outside never stand in a command line.

Engines take the value of ``--env NAME`` from their own environment, so a token or the password of a proxy
is in no list of processes and in no printed command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rocm_wheels.errors import UsageError
from rocm_wheels.shell import hide_value

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
PROXIES = (*_PROXIES, *(name.upper() for name in _PROXIES))
# certificates: what OpenSSL, requests, curl, git, pip, uv and cargo read
CERTIFICATES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    *("PIP_CERT", "CARGO_HTTP_CAINFO", "NODE_EXTRA_CA_CERTS"),
)
OTHERS = ("SOURCE_DATE_EPOCH", "NO_COLOR", "TERM")
_OF_THE_SYSTEM = tuple(Path("/", one) for one in ("etc", "usr", "var"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_HOST = re.compile(r"localhost|127\.[0-9.]+|::1")


@dataclass(frozen=True)
class Variable:
    """A variable of the container; without a value it has that of the engine's own environment."""

    name: str
    value: str | None = None

    @property
    def word(self) -> str:
        """What stands behind ``--env``."""
        return self.name if self.value is None else f"{self.name}={self.value}"


def asked_for(texts: Sequence[str], env: Mapping[str, str]) -> tuple[Variable, ...]:
    """Read NAME and NAME=VALUE. Raises UsageError for a secret value, and for a name without one anywhere."""
    found = []
    for text in texts:
        name, given, value = text.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--env {text.split('=')[0]!r} is no name of a variable", tip="--env NAME or --env NAME=VALUE"
            )
        if given and value and hide_value(name, value) != value:
            raise UsageError(
                f"--env {name}=… would show a secret in every list of processes",
                tip=f"set {name} in your environment and give its name alone: --env {name}",
            )
        if not given and name not in env:
            raise UsageError(
                f"--env {name}: there is no such variable here",
                tip=f"set it first, or give --env {name}=VALUE",
            )
        found.append(Variable(name, value if given else None))
    return tuple(found)


def passed_on(env: Mapping[str, str], *, tty: bool) -> tuple[Variable, ...]:
    """Return the variables that are passed on where they are set: proxies, certificates, style of output."""
    names = [one for one in (*PROXIES, *CERTIFICATES, *OTHERS) if env.get(one)]
    return tuple(Variable(one) for one in names if _means_something(one, env[one], tty=tty))


def certificate_paths(env: Mapping[str, str]) -> list[Path]:
    """Return the files and folders that variables about certificates name, those that are here."""
    paths = [Path(env[one]) for one in CERTIFICATES if _means_something(one, env.get(one, ""), tty=False)]
    return [one for one in dict.fromkeys(paths) if one.is_absolute() and one.exists()]


def _means_something(name: str, value: str, *, tty: bool) -> bool:
    """Tell whether a variable is of use inside.

    A system's folder of certificates is full of links to elsewhere, and the image has its own.
    """
    path = Path(value)
    if name in CERTIFICATES and path.is_dir() and any(path.is_relative_to(one) for one in _OF_THE_SYSTEM):
        return False
    return bool(value) and (tty or name != "TERM")


def own_proxies(env: Mapping[str, str]) -> list[str]:
    """Return the variables whose proxy is on this machine: inside, that address is the container itself."""
    found = []
    for name in PROXIES:
        value = env.get(name, "")
        if name.lower() == "no_proxy" or not value:
            continue
        try:
            host = urlsplit(value if "://" in value else f"http://{value}").hostname or ""
        except ValueError as wrong:
            raise UsageError(f"{name} is no address of a proxy: {wrong}") from wrong
        if _OWN_HOST.fullmatch(host):
            found.append(name)
    return found
