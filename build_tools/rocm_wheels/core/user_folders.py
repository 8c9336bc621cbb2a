"""Tell who the user is, and find the folders of what programs keep for one: of ours, cache and state.

The rules are those of the XDG Base Directory Specification, in which a relative path is none; on Windows
both lie below ``%LOCALAPPDATA%``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def find_cache_folder(env: Mapping[str, str], platform: str) -> Path:
    """Return the folder for what can be fetched or made again: ``$XDG_CACHE_HOME/rocm-wheels``."""
    return _find_user_folder(env, platform, "XDG_CACHE_HOME", Path(".cache"), "cache")


def find_state_folder(env: Mapping[str, str], platform: str) -> Path:
    """Return the folder for what is remembered: ``$XDG_STATE_HOME/rocm-wheels``."""
    return _find_user_folder(env, platform, "XDG_STATE_HOME", Path(".local", "state"), "state")


def _find_user_folder(
    env: Mapping[str, str], platform: str, variable: str, below_home: Path, on_windows: str
) -> Path:
    if platform == "win32" and env.get("LOCALAPPDATA"):
        return Path(env["LOCALAPPDATA"]) / "rocm-wheels" / on_windows
    configured = Path(env.get(variable, ""))
    if configured.is_absolute():
        return configured / "rocm-wheels"
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    return home / below_home / "rocm-wheels"


def find_user_name(env: Mapping[str, str]) -> str:
    """Return the name of whoever runs this; of a number without one, as in containers, ``user1000``."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # Windows has variables
        name = env.get("USER") or env.get("USERNAME")
        return name or (f"user{os.getuid()}" if sys.platform != "win32" else "unknown")
