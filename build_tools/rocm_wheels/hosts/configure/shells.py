"""Variables as lines that a shell runs, quoted as it reads them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping

from rocm_wheels.errors import UsageError
from rocm_wheels.hosts.configure.setting import VariableSetting

SHELL_NAMES = ("sh", "fish", "powershell", "cmd", "github")


def detect_shell(env: Mapping[str, str], platform: str) -> str:
    """Return the shell that most likely reads what we print: fish by ``SHELL``, PowerShell on Windows."""
    if env.get("SHELL", "").endswith("fish"):
        return "fish"
    return "powershell" if platform == "win32" and "SHELL" not in env else "sh"


def format_settings(settings: Iterable[VariableSetting], shell: str) -> list[str]:
    """Return one line a variable. ``github`` is what a step appends to ``$GITHUB_ENV``."""
    if shell not in _SHELL_FORMATS:
        raise UsageError(f"{shell} is no shell that is known here", tip=f"shells: {', '.join(SHELL_NAMES)}")
    return [_SHELL_FORMATS[shell](setting.name, setting.value) for setting in settings]


def _format_powershell(name: str, value: str) -> str:
    quoted = value.replace("'", "''")
    return f"$env:{name} = '{quoted}'"


_SHELL_FORMATS: dict[str, Callable[[str, str], str]] = {
    "sh": lambda name, value: f"export {name}={shlex.quote(value)}",
    "fish": lambda name, value: f"set -gx {name} {shlex.quote(value)}",
    "powershell": _format_powershell,
    "cmd": lambda name, value: f'set "{name}={value}"',
    "github": lambda name, value: f"{name}={value}",
}
