"""What of this machine a container sees: user, GPU devices, limits, folders and variables.

Folders are at the same paths as outside: what is written in a log is true in both. Values of variables from
outside never stand in a command line: engines take that of ``--env NAME`` from their own environment, so a
token or the password of a proxy is in no list of processes and in no printed command.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rocm_wheels.core import errors, shell

KFD_PATH, DRI_PATH = "dev/kfd", "dev/dri"
ASSUMED_DEVICES = ("/dev/kfd", "/dev/dri")  # a folder stands for all in it
MOST_FILES = 524288  # more makes programs slow that close every possible file before they start another


@dataclass(frozen=True)
class GpuDevice:
    """A device file. ``group`` owns it (``None``: not known here); ``everyone`` may read and write it."""

    path: str
    group: int | None
    everyone: bool


@dataclass(frozen=True)
class ContainerHost:
    """The machine that containers are to run on. ``files`` is our own hard limit of open files.

    ``uid`` and ``gid`` are ``None`` where the system has no such numbers (Windows).
    """

    uid: int | None
    gid: int | None
    user: str
    home: Path
    selinux: bool = False
    files: int = MOST_FILES


def inspect_host(env: Mapping[str, str], root: Path = Path("/")) -> ContainerHost:
    """Return the machine whose files are below ``root``. Raises EngineError where containers are no Linux."""
    if sys.platform == "win32":
        raise errors.EngineError(
            "containers are started from Linux: paths of Windows mean nothing inside",
            tip="run this inside of WSL, where rocm-wheels and the engine are both at home",
        )
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enforce = root / "sys/fs/selinux/enforce"
    return ContainerHost(
        uid=os.getuid(),
        gid=os.getgid(),
        user=_find_user(env),
        home=Path(env.get("HOME") or Path.home()),
        selinux=enforce.is_file() and enforce.read_text(encoding="ascii").strip() == "1",
        files=MOST_FILES if files in (-1, resource.RLIM_INFINITY) else min(files, MOST_FILES),
    )


def find_gpu_devices(root: Path = Path("/")) -> tuple[GpuDevice, ...]:
    """Return the device files that ROCm opens: the compute interface and every render node, in this order.

    Raises HostError where there are none: a container without them would find no GPU.
    """
    kfd = root / KFD_PATH
    if not kfd.exists():
        raise errors.HostError(
            "there is no /dev/kfd: no driver for AMD's GPUs is loaded here",
            tip="`rocm-wheels doctor` says what is missing; without --gpu the container starts all the same;"
            " `container run --print --gpu` gives the line for a machine that has GPUs",
        )
    nodes = sorted((root / DRI_PATH).glob("renderD*"), key=lambda node: (len(node.name), node.name))
    if not nodes:
        raise errors.HostError(
            "/dev/kfd is there, and /dev/dri has no render node: no GPU is behind it",
            tip="`rocm-wheels doctor` says what is missing; in a container: it must have them, too",
        )
    return tuple(_read_device(node, root) for node in (kfd, *nodes))


def assume_gpu_devices() -> tuple[GpuDevice, ...]:
    """Return the devices of a machine that nobody has looked at."""
    return tuple(GpuDevice(path, None, everyone=False) for path in ASSUMED_DEVICES)


def _read_device(path: Path, root: Path) -> GpuDevice:
    status = path.stat()
    everyone = stat.S_IROTH | stat.S_IWOTH
    return GpuDevice(f"/{path.relative_to(root)}", status.st_gid, status.st_mode & everyone == everyone)


def _find_user(env: Mapping[str, str]) -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a number without a name, as on machines of a CI
        return env.get("USER") or f"user{os.getuid()}"


# what an image is made of: a folder of ours in its place would hide it, and SELinux would label ours anew
_IMAGE_FOLDERS = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr")
_IMAGE_PARENTS = ("opt", "run", "var")
_SOURCE_FOLDERS = (Path("/usr/src"), Path("/usr/local/src"))


@dataclass(frozen=True)
class ContainerMount:
    """A file or folder of this machine, and where it is inside. ``ours``: may be labelled for containers."""

    path: Path
    inside: Path
    read_only: bool = False
    ours: bool = True


def parse_mounts(texts: Sequence[str]) -> tuple[ContainerMount, ...]:
    """Read PATH, PATH:ro and PATH:INSIDE[:ro]. Raises UsageError for a path that is not here."""
    return tuple(_parse_mount(text) for text in texts)


def collect_mounts(
    clone: Path | None, here: Path, cache: Path, extra: Iterable[ContainerMount], certificates: Iterable[Path]
) -> tuple[ContainerMount, ...]:
    """Return every mount, outer folders first; what lies inside another one at the same place is left out.

    ``here`` is the folder the command runs in, with its work and output; ``clone`` the checkout of the tool.
    """
    own_mounts = [ContainerMount(here, here), ContainerMount(cache, cache)]
    if clone is not None:
        own_mounts.append(ContainerMount(clone, clone))
    own_mounts += [
        ContainerMount(entry, entry)
        for tree in (here, clone)
        if tree and (entry := find_worktree_repository(tree))
    ]
    by_place = {entry.inside: entry for entry in own_mounts} | _index_by_place(extra)
    for entry in certificates:
        by_place.setdefault(entry, ContainerMount(entry, entry, read_only=True, ours=False))
    mounts = [
        check_mount(entry) for entry in sorted(by_place.values(), key=lambda entry: len(entry.inside.parts))
    ]
    return tuple(
        entry
        for n, entry in enumerate(mounts)
        if not any(_covers_mount(outer, entry) for outer in mounts[:n])
    )


def _index_by_place(extra: Iterable[ContainerMount]) -> dict[Path, ContainerMount]:
    """Return mounts by where they are inside. Raises UsageError for two that differ at one place."""
    by_place: dict[Path, ContainerMount] = {}
    for mount in extra:
        other = by_place.setdefault(mount.inside, mount)
        if other != mount:
            twice = f"{mount.path} with ro and without"
            both = twice if other.path == mount.path else f"{other.path} and {mount.path}"
            raise errors.UsageError(
                f"--mount: {both} would be at one place inside, {mount.inside}",
                tip="give each a place of its own: PATH:INSIDE",
            )
    return by_place


def expand_path(text: str, option: str) -> Path:
    """Return a path of an option, absolute and without ``..``. Raises UsageError for ``~`` of nobody."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as nobody:
        user = text.partition("/")[0]
        raise errors.UsageError(
            f"{option}: there is no home folder {user}", tip="give the whole path"
        ) from nobody
    return path.resolve() if ".." in path.parts else path  # behind a symbolic link .. is elsewhere


def find_worktree_repository(tree: Path) -> Path | None:
    """Return the repository of a `git worktree`, which is elsewhere; ``None`` where git needs no more.

    gitrepository-layout(5): .git is a file then, and names a folder whose ``commondir`` names the repository.
    """
    link = tree / ".git"
    if not link.is_file():
        return None
    text = link.read_text(encoding="utf-8", errors="surrogateescape").strip()
    git_dir = tree / text.removeprefix("gitdir:").strip()
    common = git_dir / "commondir"
    if not common.is_file():
        return git_dir if git_dir.is_dir() else None  # a submodule, or a repository elsewhere
    return Path(
        os.path.normpath(git_dir / common.read_text(encoding="utf-8", errors="surrogateescape").strip())
    )


def check_mount(mount: ContainerMount) -> ContainerMount:
    """Return the mount. Raises UsageError for one that engines cannot take, or that hides the image."""
    for path in (mount.path, mount.inside):
        if ":" in str(path) or "\n" in str(path):
            raise errors.UsageError(
                f"{str(path)!r} has a colon or a line break in it: engines cannot mount that",
                tip="use a folder with another name",
            )
    if (mount.path.is_dir() or (mount.ours and not mount.path.exists())) and _hides_image(mount.inside):
        tip = "mount another folder; commands run in the folder that you are in: change to another one"
        raise errors.UsageError(f"{mount.inside} of the image would be hidden by a mount", tip=tip)
    return mount


def _hides_image(inside: Path) -> bool:
    top = inside.parts[1:2]
    if not top or (top[0] in _IMAGE_PARENTS and len(inside.parts) == 2):
        return True
    return top[0] in _IMAGE_FOLDERS and not any(inside.is_relative_to(folder) for folder in _SOURCE_FOLDERS)


def _parse_mount(text: str) -> ContainerMount:
    words = text.split(":")
    read_only = len(words) > 1 and words[-1] in ("ro", "rw") and words.pop() == "ro"
    if len(words) > 2 or not all(words):
        raise errors.UsageError(f"--mount {text}: this is none of PATH, PATH:ro, PATH:INSIDE, PATH:INSIDE:ro")
    path = expand_path(words[0], f"--mount {text}")
    if not path.exists():
        tip = "make it first: an engine would make it as root"
        raise errors.UsageError(f"--mount {text}: there is no {path}", tip=tip)
    inside = Path(words[1]) if len(words) > 1 else path
    if not inside.is_absolute():
        raise errors.UsageError(f"--mount {text}: {inside} is inside of the container, and no absolute path")
    return ContainerMount(path, Path(os.path.normpath(inside)), read_only)


def _covers_mount(outer: ContainerMount, inner: ContainerMount) -> bool:
    """Tell whether a mount is already to be seen through an outer one, with the same rights."""
    if not inner.inside.is_relative_to(outer.inside) or outer.read_only != inner.read_only:
        return False
    return outer.path / inner.inside.relative_to(outer.inside) == inner.path and outer.ours == inner.ours


_PROXY_NAMES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
PROXY_VARIABLES = (*_PROXY_NAMES, *(name.upper() for name in _PROXY_NAMES))
# certificates: what OpenSSL, requests, curl, git, pip, uv and cargo read
CERTIFICATE_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    *("PIP_CERT", "CARGO_HTTP_CAINFO", "NODE_EXTRA_CA_CERTS"),
)
STYLE_VARIABLES = ("SOURCE_DATE_EPOCH", "NO_COLOR", "FORCE_COLOR", "TERM")
_SYSTEM_FOLDERS = tuple(Path("/", folder) for folder in ("etc", "usr", "var"))
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_HOST = re.compile(r"localhost|127\.[0-9.]+|::1")


@dataclass(frozen=True)
class ContainerVariable:
    """A variable of the container; without a value it has that of the engine's own environment."""

    name: str
    value: str | None = None

    @property
    def word(self) -> str:
        """What stands behind ``--env``."""
        return self.name if self.value is None else f"{self.name}={self.value}"


def parse_variables(texts: Sequence[str], env: Mapping[str, str]) -> tuple[ContainerVariable, ...]:
    """Read NAME and NAME=VALUE. Raises UsageError for a secret value, and for a name without one anywhere."""
    variables = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not _VARIABLE_NAME.fullmatch(name):
            raise errors.UsageError(
                f"--env {text.split('=')[0]!r} is no name of a variable", tip="--env NAME or --env NAME=VALUE"
            )
        if separator and value and shell.hide_variable_value(name, value) != value:
            raise errors.UsageError(
                f"--env {name}=… would show a secret in every list of processes",
                tip=f"set {name} in your environment and give its name alone: --env {name}",
            )
        if not separator and name not in env:
            raise errors.UsageError(
                f"--env {name}: there is no such variable here",
                tip=f"set it first, or give --env {name}=VALUE",
            )
        variables.append(ContainerVariable(name, value if separator else None))
    return tuple(variables)


def select_passed_variables(env: Mapping[str, str], *, tty: bool) -> tuple[ContainerVariable, ...]:
    """Return the variables that are passed on where they are set: proxies, certificates, style of output."""
    names = [name for name in (*PROXY_VARIABLES, *CERTIFICATE_VARIABLES, *STYLE_VARIABLES) if env.get(name)]
    return tuple(ContainerVariable(name) for name in names if _is_useful_inside(name, env[name], tty=tty))


def find_certificate_paths(env: Mapping[str, str]) -> list[Path]:
    """Return the files and folders that variables about certificates name, those that are here."""
    paths = [
        Path(env[entry])
        for entry in CERTIFICATE_VARIABLES
        if _is_useful_inside(entry, env.get(entry, ""), tty=False)
    ]
    return [entry for entry in dict.fromkeys(paths) if entry.is_absolute() and entry.exists()]


def _is_useful_inside(name: str, value: str, *, tty: bool) -> bool:
    """Tell whether a variable is of use inside.

    A system's folder of certificates is full of links to elsewhere, and the image has its own.
    """
    path = Path(value)
    if (
        name in CERTIFICATE_VARIABLES
        and path.is_dir()
        and any(path.is_relative_to(folder) for folder in _SYSTEM_FOLDERS)
    ):
        return False
    return bool(value) and (tty or name != "TERM")


def find_local_proxies(env: Mapping[str, str]) -> list[str]:
    """Return the variables whose proxy is on this machine: inside, that address is the container itself."""
    names = []
    for name in PROXY_VARIABLES:
        value = env.get(name, "")
        if name.lower() == "no_proxy" or not value:
            continue
        try:
            host = urlsplit(value if "://" in value else f"http://{value}").hostname or ""
        except ValueError as wrong:
            raise errors.UsageError(f"{name} is no address of a proxy: {wrong}") from wrong
        if _OWN_HOST.fullmatch(host):
            names.append(name)
    return names
