"""A Slurm of one node, without systemd: munged, slurmctld and slurmd on free ports, all below one folder.

Debian: ``apt-get install slurm-wlm munge``. The configuration is what a test needs and no more: jobs that are
requeued may begin at once (``cred_expire``), those that have ended are shown for five minutes, and the node
has the memory that is stated here, whatever this machine has.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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
