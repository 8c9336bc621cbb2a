"""What a user has set for pip, where uv and we are to follow: honoured, or named in a note.

pip reads its configuration files from the most general to the most special, then variables (``PIP_PROXY``),
of which the later ones win. Source: pip's documentation, "Configuration".
"""

from __future__ import annotations

import configparser
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.core import errors

_HONOURED = {  # what uv and requests read
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"),
    "cert": ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
}
# what would change an installation by pip, and does not change ours
_NAMED = (
    *(
        "extra-index-url",
        "find-links",
        "trusted-host",
        "client-cert",
        "constraint",
        "only-binary",
        "no-binary",
    ),
    *("no-deps", "pre", "user", "target", "prefix", "root"),
)
_FALSE = ("", "0", "no", "off", "false")


@dataclass(frozen=True)
class PipSettings:
    """``index`` is the index-url, "" for none; ``no_index``: only indexes that are named here are asked.

    ``variables`` are those that proxies, certificates and patience come to, where the user has not set them;
    ``note`` names what is not followed. Hashes are required in any case.
    """

    index: str = ""
    index_source: str = ""
    no_index: bool = False
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    note: str = ""


def read_pip_settings(env: Mapping[str, str], prefix: Path) -> PipSettings:
    """Return what is set for the pip of the environment at ``prefix``. UsageError for a file that is none."""
    values: dict[str, tuple[str, str]] = {}  # by key: the value, and who says it
    for path in _list_files(env, prefix):
        # pip's own parser; a password may have a percent sign
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError) as cause:
            raise errors.UsageError(
                f"pip's {path} cannot be read: {cause}", tip="pip refuses it, too"
            ) from None
        for section in filter(parser.has_section, ("global", "install")):
            values |= {key.replace("_", "-"): (text, str(path)) for key, text in parser.items(section)}
    for name, text in env.items():
        if name.startswith("PIP_") and text:
            values[name[4:].lower().replace("_", "-")] = (text, name)
    if "default-timeout" in values:  # pip has two names for it
        values.setdefault("timeout", values["default-timeout"])
    for key in ("timeout", "retries"):
        if key in values:
            values[key] = (_round_up(key, *values[key]), values[key][1])
    variables = {
        variable: values[key][0]
        for key, names in _HONOURED.items()
        if key in values and not any(env.get(variable) for variable in names)
        for variable in names
    }
    ignored = [
        f"{key} ({values[key][1]})" for key in _NAMED if values.get(key, ("",))[0].lower() not in _FALSE
    ]
    note = f"not followed here, of what is set for pip: {', '.join(ignored)}" if ignored else ""
    index, source = values.get("index-url", ("", ""))
    no_index = values.get("no-index", ("", ""))[0].lower() in ("1", "y", "yes", "t", "true", "on")
    return PipSettings(index.strip(), source, no_index, variables, note)


def _round_up(key: str, text: str, source: str) -> str:
    """Return a number of pip's, which may have a fraction, as uv reads it. UsageError for none."""
    try:
        number = math.ceil(float(text))
    except (ValueError, OverflowError):
        number = -1
    if number < 0:
        raise errors.UsageError(f"pip's {key} ({source}) is no number: {text!r}", tip="for example: 15")
    return str(number)


def _list_files(env: Mapping[str, str], prefix: Path) -> list[Path]:
    """Return pip's configuration files that are there, the most special last."""
    named = env.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = Path(env.get("HOME") or Path.home())
    if sys.platform == "win32":
        places = [Path(env[name], "pip") for name in ("PROGRAMDATA", "APPDATA") if env.get(name)]
        places[1:1] = [home / "pip"]
    else:
        shared = env.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        own = Path(env.get("XDG_CONFIG_HOME") or home / ".config", "pip")
        if sys.platform == "darwin" and (application := home / "Library/Application Support/pip").is_dir():
            own = application
        places = [Path("/etc"), *(Path(place, "pip") for place in shared.split(":")), home / ".pip", own]
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    paths = [*(place / name for place in places), prefix / name, *([Path(named)] if named else [])]
    return [path for path in paths if path.is_file()]
