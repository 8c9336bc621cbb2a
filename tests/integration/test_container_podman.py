"""A real container: root file system of one program, podman as it is here. Skipped where podman cannot."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

PODMAN, BUSYBOX = shutil.which("podman"), shutil.which("busybox")
IMAGE = "localhost/rocm-wheels-tests:tiny"
COMMANDS = ("sh", "cat", "echo", "id", "sleep", "touch")

pytestmark = pytest.mark.skipif(not PODMAN or not BUSYBOX, reason="no podman, or no busybox")

# Without the right to raise limits, podman as root cannot even ask for its own: then it is asked for less.
SHIM = """#!/bin/sh
if [ "$1" = run ]; then shift; exec {podman} run --ulimit nproc=1024:1024 "$@"; fi
exec {podman} "$@"
"""


def settings(folder: Path) -> dict[str, str]:
    """Return variables that keep podman's images and containers in a folder, without network."""
    runtime = next((one for one in ("runc", "crun") if shutil.which(one)), "crun")
    texts = {
        "storage.conf": f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\n'
        f'graphroot = "{folder}/graph"\n',
        "containers.conf": '[containers]\nnetns = "none"\n'
        f'[engine]\nruntime = "{runtime}"\nevents_logger = "file"\ncgroup_manager = "cgroupfs"\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    shim = folder / "bin/podman"
    shim.parent.mkdir()
    shim.write_text(SHIM.format(podman=PODMAN))
    shim.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf",
        "CONTAINERS_CONF": f"{folder}/containers.conf",
    }


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A podman with a tiny image; skips all where it cannot run a container."""
    assert BUSYBOX is not None
    folder = tmp_path_factory.mktemp("podman")
    found, root = settings(folder), folder / "root.tar"
    with tarfile.open(root, "w") as tar:
        tar.add(Path(BUSYBOX).resolve(), "bin/busybox")
        for name in COMMANDS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link, io.BytesIO())
    for argv in (
        ["import", str(root), IMAGE],
        ["run", "--rm", "--init", "--network=none", "--ulimit=nofile=1024:1024", IMAGE, "id"],
    ):
        ended = subprocess.run(["podman", *argv], env=found, capture_output=True, text=True, check=False)
        if ended.returncode:
            pytest.skip(f"podman cannot run a container here: {ended.stderr.strip()[-200:]}")
    argv = ["podman", "image", "inspect", "--format", "{{.Id}}", IMAGE]
    number = subprocess.run(argv, env=found, capture_output=True, text=True, check=True).stdout.strip()
    return {**found, "TESTED_IMAGE": f"sha256:{number}"}


def command(env: dict[str, str], tmp_path: Path, *words: str) -> list[str]:
    options = ["--engine", "podman", "--image", env["TESTED_IMAGE"]]
    return [
        "env",
        f"XDG_CACHE_HOME={tmp_path / 'cache'}",
        sys.executable,
        "-m",
        "rocm_wheels",
        "container",
        "run",
        *options,
        "--",
        *words,
    ]


def test_a_command_in_a_real_container(env: dict[str, str], tmp_path: Path) -> None:
    words = command(env, tmp_path, "sh", "-c", "id -u; echo $HOME; touch made; exit 37")
    ended = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 37, ended.stderr
    assert ended.stdout.splitlines() == [str(os.getuid()), f"{tmp_path}/cache/home"]
    assert (tmp_path / "made").stat().st_uid == os.getuid()


def test_a_signal_ends_a_real_container(env: dict[str, str], tmp_path: Path) -> None:
    words = command(env, tmp_path, "sh", "-c", "touch began; sleep 60")
    running = subprocess.Popen(words, env=env, cwd=tmp_path, stderr=subprocess.PIPE)
    while not (tmp_path / "began").exists():
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=30)[1].decode()
    assert running.returncode == 130, said
    left = subprocess.run(
        ["podman", "ps", "--all", "--quiet"], env=env, capture_output=True, text=True, check=True
    )
    assert left.stdout == ""
