"""Find the folders that a user has for what programs keep: of ours, the cache and the state.

The rules are those of the XDG Base Directory Specification, in which a relative path is none; on Windows
both lie below ``%LOCALAPPDATA%``.
"""

from __future__ import annotations

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
