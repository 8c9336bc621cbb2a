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
from rocm_wheels.shell import hide_variable_value

_PROXY_NAMES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
PROXY_VARIABLES = (*_PROXY_NAMES, *(name.upper() for name in _PROXY_NAMES))
# certificates: what OpenSSL, requests, curl, git, pip, uv and cargo read
CERTIFICATE_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    *("PIP_CERT", "CARGO_HTTP_CAINFO", "NODE_EXTRA_CA_CERTS"),
)
STYLE_VARIABLES = ("SOURCE_DATE_EPOCH", "NO_COLOR", "TERM")
_SYSTEM_FOLDERS = tuple(Path("/", folder) for folder in ("etc", "usr", "var"))
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_HOST = re.compile(r"localhost|127\.[0-9.]+|::1")


@dataclass(frozen=True)
class ContainerVariable:
    """A variable of the container; without a value it has that of the engine's own environment."""

    name: str
    value: str | None = None

    @property
    def word(self) -> str:
        """What stands behind ``--env``."""
        return self.name if self.value is None else f"{self.name}={self.value}"


def parse_variables(texts: Sequence[str], env: Mapping[str, str]) -> tuple[ContainerVariable, ...]:
    """Read NAME and NAME=VALUE. Raises UsageError for a secret value, and for a name without one anywhere."""
    variables = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not _VARIABLE_NAME.fullmatch(name):
            raise UsageError(
                f"--env {text.split('=')[0]!r} is no name of a variable", tip="--env NAME or --env NAME=VALUE"
            )
        if separator and value and hide_variable_value(name, value) != value:
            raise UsageError(
                f"--env {name}=… would show a secret in every list of processes",
                tip=f"set {name} in your environment and give its name alone: --env {name}",
            )
        if not separator and name not in env:
            raise UsageError(
                f"--env {name}: there is no such variable here",
                tip=f"set it first, or give --env {name}=VALUE",
            )
        variables.append(ContainerVariable(name, value if separator else None))
    return tuple(variables)


def select_passed_variables(env: Mapping[str, str], *, tty: bool) -> tuple[ContainerVariable, ...]:
    """Return the variables that are passed on where they are set: proxies, certificates, style of output."""
    names = [name for name in (*PROXY_VARIABLES, *CERTIFICATE_VARIABLES, *STYLE_VARIABLES) if env.get(name)]
    return tuple(ContainerVariable(name) for name in names if _is_useful_inside(name, env[name], tty=tty))


def find_certificate_paths(env: Mapping[str, str]) -> list[Path]:
    """Return the files and folders that variables about certificates name, those that are here."""
    paths = [
        Path(env[entry])
        for entry in CERTIFICATE_VARIABLES
        if _is_useful_inside(entry, env.get(entry, ""), tty=False)
    ]
    return [entry for entry in dict.fromkeys(paths) if entry.is_absolute() and entry.exists()]


def _is_useful_inside(name: str, value: str, *, tty: bool) -> bool:
    """Tell whether a variable is of use inside.

    A system's folder of certificates is full of links to elsewhere, and the image has its own.
    """
    path = Path(value)
    if (
        name in CERTIFICATE_VARIABLES
        and path.is_dir()
        and any(path.is_relative_to(folder) for folder in _SYSTEM_FOLDERS)
    ):
        return False
    return bool(value) and (tty or name != "TERM")


def find_local_proxies(env: Mapping[str, str]) -> list[str]:
    """Return the variables whose proxy is on this machine: inside, that address is the container itself."""
    names = []
    for name in PROXY_VARIABLES:
        value = env.get(name, "")
        if name.lower() == "no_proxy" or not value:
            continue
        try:
            host = urlsplit(value if "://" in value else f"http://{value}").hostname or ""
        except ValueError as wrong:
            raise UsageError(f"{name} is no address of a proxy: {wrong}") from wrong
        if _OWN_HOST.fullmatch(host):
            names.append(name)
    return names
