"""Where downloaded wheels are kept: by sha256, so that no two runs, indexes or environments fetch one twice.

| below the cache | what it is |
|---|---|
| ``wheels/sha256/ab/<digest>/<file>`` | a whole file, checked |
| ``parts/<key>/part``, ``state.json`` | one that is under way, and what the server said of it |
| ``urls/<digest of the URL>.json`` | which file a URL had whose index says no digest |
| ``sets/<key>/`` | the files of one installation under the names that installers read (links) |
| ``locks/<key>/`` | who is at work on an environment, or on the cache |

All of it can be deleted at any time; what is needed is fetched again. No URL is written down, as it may hold
a password or a signature: a digest stands for it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.downloads.identity import Validators, make_folder_name, fingerprint_of_url
from rocm_wheels.errors import HostError
from rocm_wheels.words import format_size
from rocm_wheels.workspace import write_json_file

_CACHE_TIP = "name another folder with --cache-dir, or keep nothing with --no-cache"


@dataclass(frozen=True)
class WheelCache:
    """A cache folder. Nothing is made before it is used."""

    root: Path

    def wheel_path(self, sha256: str, name: str) -> Path:
        """Return the place of a file with this digest."""
        return self.root / "wheels" / "sha256" / sha256[:2] / sha256 / name

    def part_folder(self, sha256: str | None, url: str) -> Path:
        """Return the folder of a file under way: by its digest, else by its URL."""
        return self.root / "parts" / (sha256 or f"url-{fingerprint_of_url(url)}")

    def installation_folder(self, names: Mapping[str, str]) -> Path:
        """Return the folder of files that are installed together, given their digests by name."""
        text = json.dumps(sorted(names.items()))
        return self.root / "sets" / make_folder_name(text)[:16]

    def lock_folder(self, key: str) -> Path:
        """Return the folder to hold while something is worked on."""
        return self.root / "locks" / key

    def remember_url(self, url: str, validators: Validators, sha256: str) -> None:
        """Note which file a URL had."""
        record = {"etag": validators.etag, "modified": validators.modified, "size": validators.size}
        write_json_file(self._url_record(url), {**record, "sha256": sha256})

    def find_remembered(self, url: str, validators: Validators, name: str) -> Path | None:
        """Return the file that a URL had, when the server still says the same of it; None otherwise."""
        try:
            record = json.loads(self._url_record(url).read_text(encoding="utf-8"))
            recorded = Validators(record["etag"], record["modified"], record["size"])
            path = self.wheel_path(str(record["sha256"]), name)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return path if recorded == validators and validators.strong and path.is_file() else None

    def require_writable(self) -> None:
        """Raise HostError where no file can be made."""
        probe = self.root / "parts" / f".probe-{os.getpid()}"
        try:
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as cause:
            raise HostError(
                f"the cache {self.root} cannot be written: {cause.strerror}", tip=_CACHE_TIP
            ) from None

    def require_room(self, size: int) -> None:
        """Raise HostError when so many bytes more do not fit on its disk."""
        folder = self.root
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        if size > free:
            raise HostError(
                f"{format_size(size)} are to be fetched, and {self.root} has room for {format_size(free)}",
                tip="free some space, or name a folder on another disk with --cache-dir",
            )

    def _url_record(self, url: str) -> Path:
        return self.root / "urls" / f"{fingerprint_of_url(url)}.json"


def find_cache_folder(env: Mapping[str, str], platform: str) -> Path:
    """Return the user's cache folder: ``$XDG_CACHE_HOME/rocm-wheels``, on Windows below ``%LOCALAPPDATA%``.

    A relative XDG_CACHE_HOME is none (XDG Base Directory Specification).
    """
    if platform == "win32" and env.get("LOCALAPPDATA"):
        return Path(env["LOCALAPPDATA"]) / "rocm-wheels" / "cache"
    configured = env.get("XDG_CACHE_HOME", "")
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    return (Path(configured) if Path(configured).is_absolute() else home / ".cache") / "rocm-wheels"
