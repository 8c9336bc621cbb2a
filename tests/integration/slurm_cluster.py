"""A Slurm of one node, without systemd: munged, slurmctld and slurmd on free ports, all below one folder.

Debian: ``apt-get install slurm-wlm munge``. The configuration is what a test needs and no more: jobs that are
requeued may begin at once (``cred_expire``), a node that does not answer is down after some seconds.
"""

from __future__ import annotations

import contextlib
import json
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
from typing import Any

import pytest
from programs import Ended
from tiny_projects import World

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
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
MinJobAge=20
KillWait=5
SlurmdTimeout=10
InactiveLimit=0
ReturnToService=2
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000 TmpDisk=20000 Gres=gpu:1 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=120 State=UP
PartitionName=small Nodes={host} MaxTime=2 State=UP
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
        places = {"--socket": "munge.socket", "--log-file": "munged.log", "--pid-file": "munged.pid"}
        places |= {"--seed-file": "munged.seed", "--key-file": "munge.key"}
        words = [word for option, name in places.items() for word in (option, str(self.folder / name))]
        self._spawn("munged", "--foreground", "--force", *words)
        self._until((self.folder / "munge.socket").exists, "munged")
        self._spawn("slurmctld", "-D", "-i")
        self.start_node()

    def start_node(self) -> None:
        self._spawn("slurmd", "-D")
        self._until(
            lambda: self.ask("sinfo", "-h", "-o", "%T").split()[:1] in (["idle"], ["mixed"]), "slurmd"
        )

    def cut_power(self, job: str) -> None:
        """Take the node away as a power cut does: nothing on it says anything."""
        self._end("slurmd", signal.SIGKILL)
        pids = [*self._keepers(job), *self.processes_of(job)]
        assert pids, f"nothing of job {job} is here"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def _keepers(self, job: str) -> list[int]:
        """Return the processes by which our node looks after a job."""
        own = self.own_id(job)
        ours, found = f"SLURM_CONF={self.env['SLURM_CONF']}".encode(), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                name = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes().split(b"\0")
                if name.startswith(f"slurmstepd: [{own}.".encode()) and ours in environment:
                    found.append(int(entry.name))
        return found

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
        rows = [line.split() for line in self.ask("squeue", "--array", "-h", "-o", "%i %T").splitlines()]
        return dict(rows)

    @property
    def host(self) -> str:
        """The name of the node."""
        return socket.gethostname().split(".")[0]

    def own_id(self, job: str) -> str:
        """Return the id that a task of an array has for itself."""
        return self.ask("scontrol", "show", "job", "-o", job).removeprefix("JobId=").split(" ")[0]

    def processes_of(self, job: str) -> list[int]:
        """Return the processes of a job: by a variable that they all have."""
        mark = f"SLURM_JOB_ID={self.own_id(job)}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

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


OUT_OF_MEMORY = """
if os.environ.get("MAX_JOBS") != "2":
    print("g++: fatal error: Killed signal terminated program cc1plus", flush=True)
    sys.exit(1)
"""

COMPILE_ERROR = 'print("x.cpp:1:2: error: no such thing", flush=True); sys.exit(1)'

NETWORK = """
if not Path(os.environ["TINY_PLACE"], "seen").exists():
    Path(os.environ["TINY_PLACE"], "seen").touch()
    print("URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", flush=True)
    sys.exit(1)
"""

SLOW_ONCE = """
if not Path(os.environ["TINY_PLACE"], "seen").exists():
    Path(os.environ["TINY_PLACE"], "seen").touch()
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running Slurm."""
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Site:
    """A plan of tiny projects, and the cluster that does it."""

    def __init__(self, world: World, cluster: Cluster, *more: str) -> None:
        self.world, self.cluster = world, cluster
        self.plan = world.folder / "plan.json"
        made = world.run(*world.words("-o", str(self.plan), *more, command="plan"))
        assert made.code == 0, made.err
        (world.place / "seen").unlink(missing_ok=True)
        self.started: list[Any] = []

    def submit(self, *words: str, **env: str) -> Ended:
        return self.jobs("submit", *words, "--cpus", "1", "--network-delay", "1s", **env)

    def jobs(self, name: str, *words: str, **env: str) -> Ended:
        return self.world.run("jobs", name, str(self.plan), *words, **self.cluster.env, **env)

    def status(self) -> dict[str, dict[str, Any]]:
        ended = self.jobs("status", "--json")
        assert ended.code == 0, ended.err
        return {one["step"]: one for one in json.loads(ended.out)}

    def states(self) -> list[str]:
        return [one["state"] for one in self.status().values()]

    def log(self, step: str) -> str:
        return self.folder(f"{step}.log").read_text()

    def folder(self, name: str) -> Path:
        return self.world.folder / "plan.slurm" / name

    def until(self, happened: Any, what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, f"in vain waited for {what}: {self.status()}"
            time.sleep(0.1)
