"""Installing a large wheel with rocm-wheels, uv and pip, for ``bench_hosts``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import clock
from host_files import CountingServer, counting, large_wheel
from host_world import World, say
from uv import find_uv_bin

SIZE = 600  # MB


class Installing:
    """Installs the large wheel with each tool, and prints what that took and fetched."""

    def __init__(self, world: World, server: CountingServer, wheel: Path) -> None:
        self.world, self.server, self.size = world, server, wheel.stat().st_size
        self.caches = world.folder / "caches"
        self.target = world.folder / "target"

    def words(self, tool: str) -> tuple[list[str], dict[str, str]]:
        """Return the command of a tool, and its environment with a cache of its own."""
        cache, python = self.caches / tool.partition(",")[0], str(self.target / "bin" / "python")
        env = {
            **self.world.env,
            "UV_CACHE_DIR": str(cache / "uv"),
            "PIP_CACHE_DIR": str(cache / "pip"),
            "XDG_CACHE_HOME": str(cache),
        }
        index = self.server.url
        plain = ["--no-deps", "torch"]
        return {
            "ours": [self.world.python, "-m", "rocm_wheels", "install", "torch", "--index", index, "--gfx",
                     "gfx942", "--python", python],
            "uv": [find_uv_bin(), "pip", "install", "--no-config", "--python", python, "--default-index",
                   index, *plain],
            "pip": [self.world.python, "-m", "pip", "--isolated", "--python", python, "install",
                    "--disable-pip-version-check", "--cache-dir", str(cache / "pip"), "--index-url", index,
                    "--trusted-host", "127.0.0.1", *plain],
        }[tool], env  # fmt: skip

    def install(self, tool: str, *, kill: bool = False) -> tuple[float, int]:
        """Install into a fresh environment; return seconds and bytes. ``kill``: at half of the bytes."""
        shutil.rmtree(self.target, ignore_errors=True)
        self.world.run([find_uv_bin(), "venv", "-q", "--python", self.world.python, str(self.target)])
        words, env = self.words(tool)
        server, begin = self.server, self.server.sent
        server.hold_at = self.size // 2 if kill else None
        server.held.clear()
        server.go_on.clear()
        start = time.perf_counter()
        if kill:
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            running = subprocess.Popen(words, env=env, start_new_session=True, **quiet)
            if not server.held.wait(120):
                raise SystemExit(f"{tool} did not fetch the wheel")
            time.sleep(0.3)  # what is on the way arrives
            os.killpg(running.pid, signal.SIGKILL)  # pip works in a process of its own
            running.wait()
            server.hold_at = None
            server.go_on.set()
        else:
            self.world.run(words, env=env)
        return time.perf_counter() - start, server.sent - begin


def install(world: World, quick: bool) -> None:
    """Install with each tool: nothing kept before, everything kept, and after a kill."""
    wheel = large_wheel(world.folder / "large", 120 if quick else SIZE)
    tools = ("ours", "uv", "pip")
    with counting(world.folder / "large") as server:
        installing = Installing(world, server, wheel)
        copied = clock.run(["cp", "--reflink=never", wheel, wheel.parent / "copy"]).clock
        (wheel.parent / "copy").unlink()
        digested = clock.run(["sha256sum", wheel]).clock
        print(f"{installing.size / 1e6:.0f} MB, cp {copied:.2f} s, sha256 {digested:.2f} s")
        for what in ("cold", "warm", "killed at 50 %, then again"):
            found = {}
            for tool in tools:
                if what != "warm":
                    shutil.rmtree(installing.caches / tool, ignore_errors=True)
                if "killed" in what:
                    installing.install(tool, kill=True)
                found[tool] = installing.install(tool)
            say(f"install, {what}", {tool: spent for tool, (spent, _) in found.items()}, "ours")
            fetched = ", ".join(f"{tool} {sent / 1e6:.0f} MB" for tool, (_, sent) in found.items())
            print(f"{'':34} fetched: {fetched}", flush=True)
    shutil.rmtree(installing.caches)
