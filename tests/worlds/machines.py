"""Machines with GPUs, imitated, and a cluster of one node."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocm_wheels.gpus import detect
from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.gpus.programs import ProgramAnswer, Runner
from rocm_wheels.gpus.vendors import GPU_VENDORS

# ---- Faked machines for the detection of GPUs: files as the kernel writes them, programs that answer from
# texts.
#
# The nodes of MI100 and RX 7900 XTX are recorded (tests/data/gpus); all others are constructed in the same
# form, with the PCI ids, sizes and numbers of nodes that the cards have.


DATA = Path(__file__).resolve().parents[1] / "data" / "gpus"
NODES = "sys/class/kfd/kfd/topology/nodes"
Node = Mapping[str, int | str]
CPU: Node = {"cpu_cores_count": 64, "simd_count": 0, "gfx_target_version": 0, "vendor_id": 0, "device_id": 0}
GIB = 2**30


def text(name: str) -> str:
    """A text of tests/data/gpus without the lines that say where it is from."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#:"))


def recorded(name: str, **more: int) -> Node:
    """A recorded node, with some values others."""
    pairs = (line.split() for line in text(name).splitlines())
    return {**{key: int(value) for key, value in pairs}, **more}


def gpu(version: int, device: int, bus: int, simds: int = 1216, *, memory: int = 0, **more: int) -> Node:
    """A GPU by its number, PCI device and bus. ``memory`` in bytes."""
    card = {"simd_count": simds, "gfx_target_version": version, "vendor_id": 0x1002, "device_id": device}
    place = {"location_id": bus << 8, "domain": 0, "drm_render_minor": 127 + bus}
    return {
        "cpu_cores_count": 0,
        **card,
        **place,
        "unique_id": 0xABBA000000000000 + bus,
        "memory": memory,
        **more,
    }


MACHINES: dict[str, Sequence[Node]] = {
    "none": [CPU],
    "mi300x": [CPU, CPU, gpu(90402, 0x74A1, 5, memory=192 * GIB)],
    "mi300x_8": [CPU, CPU, *(gpu(90402, 0x74A1, bus, memory=192 * GIB) for bus in range(5, 13))],
    "mi300x_cpx": [
        CPU,
        *(gpu(90402, 0x74A1, 5, 152, location_id=n << 28 | 0x500, unique_id=7 + n) for n in range(8)),
    ],
    "mi300a": [{**gpu(90402, 0x74A0, 1, 912), "cpu_cores_count": 24}],
    "mi250x": [
        CPU,
        gpu(90010, 0x740C, 0xC1, 440, memory=64 * GIB),
        gpu(90010, 0x740C, 0xC6, 440, memory=64 * GIB),
    ],
    "mi210": [CPU, gpu(90010, 0x740F, 0x43, 416, memory=64 * GIB)],
    "mi100": [CPU, recorded("kfd_mi100.txt")],
    "mi350x": [CPU, gpu(90500, 0x75A0, 5, 1024, memory=288 * GIB)],
    "radeon": [CPU, recorded("kfd_rx7900xtx.txt")],
    "apu": [CPU, gpu(110501, 0x1586, 0xC5, 80)],
    "mixed": [CPU, gpu(100306, 0x164E, 0x0F, 4), recorded("kfd_rx7900xtx.txt", location_id=0x300)],
    "many_apus_first": [
        CPU,
        *(gpu(110003, 0x15BF, n, 24) for n in range(1, 10)),
        gpu(120001, 0x7550, 32, 128),
    ],
    "old_and_new": [CPU, gpu(80003, 0x67DF, 1, 144), gpu(110000, 0x744C, 3, 192)],
    "unknown": [CPU, gpu(130102, 0xFFFE, 5)],
    "unreadable": [CPU, gpu(999999999, 0xFFFE, 5), gpu(999999999, 0x744C, 6), gpu(90402, 0x74A1, 7)],
}


def machine(root: Path, *nodes: Node, rocm: str | None = None, devices: bool = True) -> Path:
    """Write a machine below ``root``: nodes numbered from 0, their device files, ROCm in /opt."""
    for number, node in enumerate(nodes):
        folder = root / NODES / str(number)
        (folder / "mem_banks" / "0").mkdir(parents=True)
        values = {key: value for key, value in node.items() if key != "memory"}
        _write(folder / "properties", "".join(f"{key} {value}\n" for key, value in values.items()))
        _write(folder / "name", "ip discovery\n" if node.get("simd_count") else "\n")
        bank = f"heap_type 1\nsize_in_bytes {node.get('memory', 0)}\nflags 0\nwidth 8192\n"
        _write(folder / "mem_banks/0/properties", bank)
        if devices and node.get("drm_render_minor"):
            _write(root / f"dev/dri/renderD{node['drm_render_minor']}", "")
    if rocm is not None:
        _write(root / "opt/rocm/.info/version", rocm)
    return root


def pci(root: Path, *cards: tuple[str, str, int]) -> Path:
    """Write cards of the PCI bus: slot, vendor:device, class."""
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    for slot, pci_id, kind in cards:
        folder = root / "sys/bus/pci/devices" / slot
        _write(folder / "class", f"0x{kind:04x}00\n")
        _write(folder / "vendor", f"0x{pci_id[:4]}\n")
        _write(folder / "device", f"0x{pci_id[5:]}\n")
    return root


def programs(**answers: str | ProgramAnswer) -> Runner:
    """Programs that answer with a text; ``_`` in a name stands for ``-``; all others are not installed."""

    def run(words: Sequence[str], env: Mapping[str, str], timeout: float) -> ProgramAnswer:
        name = Path(words[0].replace("\\", "/")).name.removesuffix(".exe")
        key = name.replace("-", "_") + ("_banner" if words == ("nvidia-smi",) else "")
        answer = answers.get(key, ProgramAnswer(installed=False))
        return ProgramAnswer(answer) if isinstance(answer, str) else answer

    return run


def look(
    root: Path = Path("/no"),
    env: Mapping[str, str] | None = None,
    *,
    platform: str = "linux",
    vendors: Collection[str] = GPU_VENDORS.keys(),
    **answers: str | ProgramAnswer,
) -> Hardware:
    """Look at a machine: its files, its variables, what its programs answer."""
    return detect.detect_hardware(
        env or {}, root=root, platform=platform, run=programs(**answers), vendors=vendors
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# ---- A Slurm of one node, without systemd: munged, slurmctld and slurmd on free ports, all below one
# folder.
#
# Debian: ``apt-get install slurm-wlm munge``. The configuration is what a test needs and no more: jobs that
# are
# requeued may begin at once (``cred_expire``), those that have ended are shown for five minutes, and the
# node
# has the memory that is stated here, whatever this machine has.


PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
MinJobAge=300
SlurmdParameters=config_overrides
KillWait=5
SlurmdTimeout=10
InactiveLimit=0
ReturnToService=2
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=64000 TmpDisk=20000 Gres=gpu:1 State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES State=UP
PartitionName=gpu Nodes={host} State=UP
"""


def found(name: str) -> str | None:
    """Return where a program is; Debian has the daemons in sbin, which is not everybody's PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def missing() -> list[str]:
    """Return the programs of Slurm that are not here."""
    return [name for name in PROGRAMS if found(name) is None]


@dataclass
class Cluster:
    """A running Slurm. ``env``: what its clients need."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        user = pwd.getpwuid(os.getuid()).pw_name
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)  # munged's socket may be in nobody's folder but its user's, and readable
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        text = CONFIGURATION.format(
            host=self.host,
            user=user,
            folder=self.folder,
            cpus=os.cpu_count(),
            controller=_port(),
            node=_port(),
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        self.env = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.programs.mkdir()
        srun = self.programs / "srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={self.env["SLURM_CONF"]} exec {found("srun")} "$@"\n')
        srun.chmod(0o755)
        places = {"--socket": "munge.socket", "--log-file": "munged.log", "--pid-file": "munged.pid"}
        places |= {"--seed-file": "munged.seed", "--key-file": "munge.key"}
        words = [word for option, name in places.items() for word in (option, str(self.folder / name))]
        self._spawn("munged", "--foreground", "--force", *words)
        self._until((self.folder / "munge.socket").exists, "munged")
        self._spawn("slurmctld", "-D", "-i")
        self._spawn("slurmd", "-D")
        self._until(
            lambda: self.ask("sinfo", "-h", "-o", "%T").split()[:1] in (["idle"], ["mixed"]), "slurmd"
        )

    def ask(self, program: str, *words: str) -> str:
        """Return what a program of Slurm prints; nothing where it fails."""
        ended = subprocess.run(
            [found(program) or program, *words],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.stdout if ended.returncode == 0 else ""

    def jobs(self) -> dict[str, str]:
        """Return the jobs in the queue and their states."""
        rows = [line.split() for line in self.ask("squeue", "-h", "-o", "%i %T").splitlines()]
        return dict(rows)

    @property
    def programs(self) -> Path:
        """For the PATH: `srun` that knows our configuration, of which Snakemake's plugin tells it nothing."""
        return self.folder / "bin"

    @property
    def host(self) -> str:
        """The name of the node."""
        return socket.gethostname().split(".")[0]

    def stop(self) -> None:
        """End everything; jobs that are left are killed."""
        self.ask("scancel", "--user", pwd.getpwuid(os.getuid()).pw_name)
        for name in ("slurmd", "slurmctld", "munged"):
            self._end(name, signal.SIGTERM)

    def _spawn(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                [found(name) or name, *words],
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self, name: str, sign: signal.Signals) -> None:
        if (daemon := self.daemons.pop(name, None)) is not None:
            daemon.send_signal(sign)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _until(self, happened: Callable[[], bool], what: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > end or self.daemons[what].poll() is not None:
                log = self.folder / f"{what}.out"
                raise AssertionError(f"{what} did not come up:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)


def _port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running Slurm."""
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
