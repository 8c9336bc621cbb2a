"""Run a command in a container of docker or podman, as you, with the GPUs: one command line, and its end.

Folders are at the same paths as outside: what is written in a log is true in both. Values of variables from
outside never stand in the command line: engines take that of ``--env NAME`` from their own environment, so a
token or the password of a proxy is in no list of processes and in no printed command. The page "Build and
test in containers" of the documentation says why each word of the line is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rocm_wheels.core import errors, installation, log, process, shell, tables, user_folders
from rocm_wheels.models import ci, project_names

EngineName = Literal["docker", "podman"]
_PATIENCE_SECONDS = 60.0
_STOP_SECONDS = 10
_REMOVE_TRIES = 5  # an engine that is removing a container refuses to do it again, and lists it until then
_OTHER_MACHINE = re.compile(r"(?:tcp|ssh|https?)://", re.IGNORECASE)
_INSTALL_TIP = "install podman (apt, dnf) or docker (https://docs.docker.com/engine/install)"
_ANSWER_TIP = "the page about containers has what to do about common answers; --engine takes the other one"
# exit codes of `docker run` and `podman run` of their own (docs of both); a command may use them, too
_ENGINE_EXIT_CODES = {
    125: "the engine could not start the container, as it says above (without container-init or docker-init,"
    " that is the package catatonit for podman, tini or docker-init for docker)",
    126: "the command is there and could not be started, as the engine says above",
    127: "the image has no such command",
}
# all files of an image of ours have the first date that every archive can hold, 1980-01-01
_IMAGE_EPOCH = "315532800"
# distribution/reference: [domain/]path[:tag][@digest]; a domain has a dot or a port, or is localhost
_IMAGE_NAME = re.compile(
    r"(?P<domain>(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]+)(?::[0-9]+)?/)?"
    r"(?P<path>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
_COPY_LINE = re.compile(r"^COPY\s+(?:--\S+\s+)*(?P<paths>.+)$", re.IGNORECASE | re.MULTILINE)
_MOST_FILES = 524288  # more makes programs slow that close every possible file before they start another
_SOFT_FILES = 65536
_MOUNT = re.compile(r"(?P<path>[^:]+)(?::(?P<inside>/[^:]*))?(?::(?P<mode>r[ow]))?")
# what an image is made of: a folder of ours in its place would hide it; two are for sources of whoever comes
_IMAGE_PLACE = re.compile(
    r"/+(?:opt|run|var)?|/+usr(?!/(?:local/)?src(?:/|$))(?:/.*)?"
    r"|/+(?:bin|boot|dev|etc|lib|lib64|proc|sbin|sys)(?:/.*)?"
)
_GROUP_OF = "group-of:"  # before a path: the group that owns it where a printed line is run
# below the cache; HOME, because a number without a name has none, and caches of pip, uv and ccache
_CACHE_FOLDERS = {
    "HOME": "home",
    "XDG_CACHE_HOME": "cache",
    "CCACHE_DIR": "ccache",
    "UV_CACHE_DIR": "uv",
    "PIP_CACHE_DIR": "pip",
}
_PROXY_NAMES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_PROXY_VARIABLES = (*_PROXY_NAMES, *(name.upper() for name in _PROXY_NAMES))
# certificates: what OpenSSL, requests, curl, git, pip, uv and cargo read
_CERTIFICATE_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    *("PIP_CERT", "CARGO_HTTP_CAINFO", "NODE_EXTRA_CA_CERTS"),
)
_STYLE_VARIABLES = ("SOURCE_DATE_EPOCH", "NO_COLOR", "FORCE_COLOR", "TERM")


# ---- engines


@dataclass(frozen=True)
class Engine:
    """An engine that answers. ``program`` is what it is called on PATH: podman may be there as docker.

    ``keeps_groups``: a container can have the groups of whoever starts it (all but rootless docker and runc).
    """

    name: EngineName
    program: str
    rootless: bool = False
    keeps_groups: bool = True


def find_engine(preferred: EngineName | None, env: Mapping[str, str]) -> Engine:
    """Return the engine that was asked for, else the first that answers: docker, podman.

    Raises EngineError, which says of each that is installed why it cannot be used.
    """
    names: tuple[EngineName, ...] = (preferred,) if preferred else ("docker", "podman")
    refused: list[errors.EngineError] = []
    for name in names:
        if shutil.which(name, path=env.get("PATH")) is None:
            continue
        try:
            engine = _query_engine(name, env)
        except errors.EngineError as refusal:
            refused.append(refusal)
            continue
        for error in refused:
            log.log_note(f"{name} is used, because {' '.join(error.message.split())}")
        return engine
    if refused:
        raise errors.EngineError("; ".join(error.message for error in refused), tip=refused[0].tip)
    raise errors.EngineError(f"there is no {' and no '.join(names)} on PATH", tip=_INSTALL_TIP)


def _query_engine(name: EngineName, env: Mapping[str, str]) -> Engine:
    """Ask an engine what it is. A ``docker`` may be podman under another name (package podman-docker)."""
    setting = "DOCKER_HOST" if name == "docker" else "CONTAINER_HOST"
    address = env.get(setting, "")
    if name == "docker" and not address:
        setting = "docker's context"  # podman-docker and docker before 19.03 have none
        words = ["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
        address = _try_engine(name, words, env) or ""
    elsewhere = bool(_OTHER_MACHINE.match(address))
    facts = {} if elsewhere else _ask_engine(name, ["info", "--format", "{{json .}}"], env)
    host = facts.get("host")  # of podman alone
    if isinstance(host, dict) and host.get("serviceIsRemote") and sys.platform != "darwin":
        setting, elsewhere = "podman's connection (CONTAINER_CONNECTION, containers.conf)", True
    if elsewhere:
        raise errors.EngineError(
            f"{setting} names another machine, whose disks are not ours: nothing of here could be mounted",
            tip="run this command on that machine, or take the setting out",
        )
    if failures := facts.get("ServerErrors"):
        message = " ".join(map(str, failures))
        raise errors.EngineError(f"docker does not answer: {message}", tip=_ANSWER_TIP)
    if isinstance(host, dict):
        rootless = bool(host.get("security", {}).get("rootless"))
        runtime = host.get("ociRuntime", {}).get("name", "")
        return Engine("podman", name, rootless, keeps_groups=not rootless or runtime == "crun")
    server = _ask_engine(name, ["version", "--format", "{{json .Server}}"], env)
    if "podman" in json.dumps(server.get("Components")).lower():
        raise errors.EngineError(
            "this docker talks to podman's service, which loses the exit code of a container that is removed",
            tip="use podman itself: --engine podman",
        )
    rootless = any("name=rootless" in str(entry) for entry in facts.get("SecurityOptions") or ())
    return Engine("docker", name, rootless, keeps_groups=not rootless)


def _ask_engine(name: str, words: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return what an engine says of itself. Raises EngineError with its refusal."""
    query, check = f"`{name} {words[0]}`", errors.EngineError
    output = process.capture_output(
        [name, *words], env=env, timeout=_PATIENCE_SECONDS, check=check, description=query, tip=_ANSWER_TIP
    )
    with suppress(ValueError):
        if isinstance(facts := json.loads(output), dict):
            return facts
    raise errors.EngineError(f"{query} says nothing of itself as JSON: {output[:200]!r}")


def _try_engine(program: str, words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return what an engine printed, ``None`` when it failed: there may be nothing left to stop."""
    argv, check = [program, *words], errors.EngineError
    with suppress(check):
        return process.capture_output(argv, env=env, timeout=_PATIENCE_SECONDS, check=check)
    return None


# ---- images


@dataclass(frozen=True)
class ChosenImage:
    """An image as an engine takes it. ``made_here``: it is here or nowhere, so nothing is pulled.

    ``dockerfile`` is what an image of ours is made by.
    """

    reference: str
    made_here: bool = False
    dockerfile: Path | None = None


def choose_image(text: str, images: Mapping[str, ci.PinnedImage], clone: Path | None) -> ChosenImage:
    """Return the image of an option. ``clone`` is the checkout with our Dockerfiles, ``None`` without one.

    The tag of an image of ours is the digest of all that goes into it from the clone. A name without a
    domain is completed as docker reads it: podman would ask in which registry to look. Raises UsageError for
    a name that nothing can be called, and DataError where the digest is not known.
    """
    pinned = images.get(text)
    if pinned is not None and pinned.dockerfile:
        if clone is None:
            tip = "start rocm-wheels from a clone, or name an image that is run as it is: therock-build"
            message = f"image {text} is made from a clone: this rocm-wheels is installed"
            raise errors.UsageError(message, tip=tip)
        path = clone / "dockerfiles" / pinned.dockerfile
        digest = hashlib.sha256()
        for file in (path, *(clone / name for name in list_copied_files(path.read_text(encoding="utf-8")))):
            digest.update(file.read_bytes() + b"\0")
        return ChosenImage(f"localhost/rocm-wheels-{text}:{digest.hexdigest()[:16]}", True, path)
    if pinned is not None and pinned.is_resolved:
        return ChosenImage(f"{pinned.image}@{pinned.digest}")
    if pinned is not None:
        message = f"the digest of image {text} ({pinned.image}) is unresolved"
        raise errors.DataError(message, tip=f"name it with its digest: {pinned.image}@sha256:…")
    if ci.IMAGE_DIGEST.fullmatch(text):  # the number of an image that is here
        return ChosenImage(text, made_here=True)
    match, near = _IMAGE_NAME.fullmatch(text), tables.suggest_name(text, images)
    if match is None:
        tip = f"one of {', '.join(images)}, or name@sha256:…"
        raise errors.UsageError(f"{text!r} is no name of an image{near}", tip=tip)
    if match["digest"] is None:
        message = f"image {text} has no digest: it can be another one tomorrow{near}"
        tip = f"name it with its digest ({text}@sha256:…); `rocm-wheels compat show images` lists ours"
        raise errors.DataError(message, tip=tip)
    domain, path_text = match["domain"], match["path"]
    if domain is None:
        domain, path_text = "docker.io/", path_text if "/" in path_text else f"library/{path_text}"
    # a digest says more than a tag, and podman takes only one of the two
    return ChosenImage(f"{domain}{path_text}{match['digest']}", made_here=domain == "localhost/")


def list_copied_files(dockerfile: str) -> list[str]:
    """Return what a Dockerfile copies from the clone, in order; the last word of each line is the target."""
    return [word for match in _COPY_LINE.finditer(dockerfile) for word in match["paths"].split()[:-1]]


def choose_job_image(text: str, platform: project_names.Platform) -> tuple[str, str]:
    """Return the image that jobs build in, and what they tell ``build --plat``.

    Ours for "", "" (the machine itself) for ``none`` and on Windows. Raises UsageError where none can be
    used: on Windows, by a name that has to be made first, without a digest.
    """
    table = ci.load_container_table()
    if text == "none" or (not text and platform == "windows"):
        return "", "auto"
    if platform == "windows":
        raise errors.UsageError(f"jobs on Windows run in no image, and {text} was asked for", tip="none")
    name = text or table.jobs
    pinned = table.images.get(name)
    of_registry = re.fullmatch(rf"(?!sha256:|localhost/).*@{ci.IMAGE_DIGEST.pattern}", name)
    if not of_registry if pinned is None else pinned.dockerfile:
        near = tables.suggest_name(name, table.images)
        message = f"jobs cannot build in {name}: it has no digest, or is on the machine that made it{near}"
        raise errors.UsageError(message, tip=f"{table.jobs}, name@sha256:… of a registry, or none")
    reference = choose_image(name, table.images, None).reference
    platforms = {f"{each.image}@{each.digest}": each.platform for each in table.images.values()}
    return reference, platforms.get(reference) or "auto"


def require_image(engine: Engine, image: ChosenImage, env: Mapping[str, str]) -> None:
    """Raise EngineError, with the line that makes it, when an image that is made here is not there."""
    words = ["image", "inspect", "--format", "{{.Id}}", image.reference]
    if _try_engine(engine.program, words, env) is not None:
        return
    how = "build or load it first"
    if image.dockerfile is not None:
        words = [engine.program, "build", "--file", str(image.dockerfile), "--tag", image.reference]
        if engine.name == "podman":
            words += ["--timestamp", _IMAGE_EPOCH]
        else:  # before version 23 it knows `COPY --chmod` with BuildKit alone, which it must be told
            words = ["DOCKER_BUILDKIT=1", *words, "--build-arg", f"SOURCE_DATE_EPOCH={_IMAGE_EPOCH}"]
        # named only: the engine has the values
        words += [f"--build-arg={name}" for name in _PROXY_VARIABLES if env.get(name)]
        how = f"make it: {shell.format_command([*words, str(image.dockerfile.parent.parent)])}"
    raise errors.EngineError(f"there is no image {image.reference} here", tip=how)


# ---- the words of the command line


@dataclass(frozen=True)
class Container:
    """What is to run in a container, and what it may see. ``clone``: the checkout of the tool, if it is one.

    ``mounts`` are PATH[:INSIDE][:ro], ``variables`` NAME[=VALUE]. ``shown_only``: the line is printed, and
    may be for a machine that has the GPUs. ``root``: where the files of this machine are.
    """

    command: tuple[str, ...]
    here: Path
    cache: Path
    clone: Path | None
    image: ChosenImage
    mounts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    gpu: bool = False
    tty: bool = False
    shown_only: bool = False
    root: Path = Path("/")


def compose_command(engine: Engine, box: Container, env: Mapping[str, str]) -> list[str]:
    """Return the words of the command that runs a container.

    Raises what cannot be had before anything is started or made.
    """
    if sys.platform == "win32":
        raise errors.EngineError(
            "containers are started from Linux: paths of Windows mean nothing inside",
            tip="run this inside of WSL, where rocm-wheels and the engine are both at home",
        )
    certificates = _find_certificates(env)
    mounts = _collect_mounts(box, certificates.values())
    variables = _list_variables(box, env, certificates)
    devices, groups = _find_gpus(engine, box) if box.gpu else ([], [])
    keeps_numbers = engine.name == "podman" and engine.rootless
    # root inside of rootless docker is whoever started it
    user = "0:0" if engine.rootless else f"{os.getuid()}:{os.getgid()}"
    enforce = box.root / "sys/fs/selinux/enforce"
    is_enforced = enforce.is_file() and enforce.read_text(encoding="ascii").strip() == "1"
    files = _MOST_FILES
    if engine.name == "podman" or engine.rootless:  # which has no more than we have
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        files = files if limit in {-1, resource.RLIM_INFINITY} else min(limit, files)
    words = [engine.program, "run", "--rm", "--init", "--name", f"rocm-wheels-{secrets.token_hex(4)}"]
    words += ["--interactive", "--tty"] if box.tty else []
    for word, values in (
        ("--userns", ["keep-id"] if keeps_numbers else []),
        ("--user", [] if keeps_numbers else [user]),
        ("--volume", mounts),
        ("--workdir", [str(box.here)]),
        ("--env", variables),
        ("--device", devices),
        ("--group-add", groups),
        ("--security-opt", ["seccomp=unconfined"] if box.gpu else []),
        ("--ipc", ["host"] if box.gpu else []),
        ("--security-opt", ["label=disable"] if is_enforced else []),
        ("--ulimit", ["core=0:0", f"nofile={min(_SOFT_FILES, files)}:{files}"]),
        ("--pull", ["never"] if box.image.made_here else []),
    ):  # why each is there: the table of the page about containers
        words += [part for value in values if value for part in (word, value)]
    return [*words, box.image.reference, *box.command]


def _collect_mounts(box: Container, certificates: Iterable[Path]) -> list[str]:
    """Return what stands behind each ``--volume``, outer folders first: here, cache, clone, and those named.

    Repositories of worktrees and files of certificates go with them. Raises UsageError for a path that is
    not here, that engines cannot take, that hides the image, and for two at one place.
    """
    inside_of: dict[Path, tuple[Path, bool]] = {}  # by the place inside: the path here, and whether read-only
    for text in box.mounts:
        match = _MOUNT.fullmatch(text)
        if match is None:
            tip = "PATH, PATH:ro, PATH:/INSIDE or PATH:/INSIDE:ro"
            raise errors.UsageError(f"--mount {text} is no mount", tip=tip)
        path = expand_path(match["path"], f"--mount {text}")
        if not path.exists():
            tip = "make it first: an engine would make it as root"
            raise errors.UsageError(f"--mount {text}: there is no {path}", tip=tip)
        inside = Path(os.path.normpath(match["inside"] or path))
        mount = path, match["mode"] == "ro"
        if inside_of.setdefault(inside, mount) != mount:
            message = f"--mount: {path} and {inside_of[inside][0]} would be at one place inside, {inside}"
            raise errors.UsageError(message, tip="give each a place of its own: PATH:INSIDE")
    if box.cache.exists() and not box.cache.is_dir():
        raise errors.UsageError(f"the cache of containers, {box.cache}, is no folder")
    trees = [box.here, *([box.clone] if box.clone else [])]
    for folder in (*trees, box.cache, *filter(None, map(_find_worktree_repository, trees))):
        inside_of.setdefault(folder, (folder, False))
    for inside, (path, _) in inside_of.items():
        if ":" in f"{path}{inside}" or "\n" in f"{path}{inside}":
            message = f"{str(path)!r} has a colon or a line break in it: engines cannot mount that"
            raise errors.UsageError(message, tip="use a folder with another name")
        if _IMAGE_PLACE.fullmatch(str(inside)) and not path.is_file():
            tip = "mount another folder; commands run in the folder that you are in: change to another one"
            raise errors.UsageError(f"{inside} of the image would be hidden by a mount", tip=tip)
    for path in certificates:
        inside_of.setdefault(path, (path, True))
    ordered = sorted(inside_of.items(), key=lambda item: len(item[0].parts))
    return [f"{path}:{inside}{':ro' if read_only else ''}" for inside, (path, read_only) in ordered]


def expand_path(text: str, option: str) -> Path:
    """Return a path of an option, absolute and without ``..``. Raises UsageError for ``~`` of nobody."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as nobody:
        message = f"{option}: there is no home folder {text.partition('/')[0]}"
        raise errors.UsageError(message, tip="give the whole path") from nobody
    return path.resolve() if ".." in path.parts else path  # behind a symbolic link .. is elsewhere


def _find_worktree_repository(tree: Path) -> Path | None:
    """Return the repository of a `git worktree`, which is elsewhere; ``None`` where git needs no more.

    gitrepository-layout(5): .git is a file then, and names a folder whose ``commondir`` names the repository;
    a submodule has none.
    """
    place = tree
    for name in (".git", "commondir"):
        if not (place / name).is_file():
            break
        text = (place / name).read_text(encoding="utf-8", errors="surrogateescape")
        place = Path(os.path.normpath(place / text.removeprefix("gitdir:").strip()))
    return place if place != tree and place.is_dir() else None


def _find_certificates(env: Mapping[str, str]) -> dict[str, Path]:
    """Return the certificates of variables that are of use inside, by their names.

    A system's folder of certificates is full of links to elsewhere, and the image has its own.
    """
    certificates = {}
    for name in _CERTIFICATE_VARIABLES:
        path = Path(env.get(name, ""))
        of_system = path.is_dir() and path.parts[1:2] in {("etc",), ("usr",), ("var",)}
        if path.is_absolute() and path.exists() and not of_system:
            certificates[name] = path
    return certificates


def _list_variables(box: Container, env: Mapping[str, str], certificates: Iterable[str]) -> list[str]:
    """Return what stands behind each ``--env``: a name alone has the value of the engine's environment.

    Raises UsageError for a secret value, and for a name without a value anywhere.
    """
    passed = [*_PROXY_VARIABLES, *certificates, *_STYLE_VARIABLES]
    words = {name: name for name in passed if env.get(name) and (box.tty or name != "TERM")}
    values = {name: str(box.cache / folder) for name, folder in _CACHE_FOLDERS.items()}
    values |= dict.fromkeys(("USER", "LOGNAME"), user_folders.find_user_name(env))
    values[installation.IMAGE_VARIABLE] = box.image.reference  # statements of wheels name it
    if box.clone is not None:  # what rocm-wheels of our images is started from
        values["ROCM_WHEELS_CHECKOUT"] = str(box.clone)
    words |= {name: f"{name}={value}" for name, value in values.items()}
    for text in box.variables:
        name, separator, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            tip = "--env NAME or --env NAME=VALUE"
            raise errors.UsageError(f"--env {name!r} is no name of a variable", tip=tip)
        if value and shell.hide_variable_value(name, value) != value:
            message = f"--env {name}=… would show a secret in every list of processes"
            tip = f"set {name} in your environment and give its name alone: --env {name}"
            raise errors.UsageError(message, tip=tip)
        if not separator and name not in env:
            tip = f"set it first, or give --env {name}=VALUE"
            raise errors.UsageError(f"--env {name}: there is no such variable here", tip=tip)
        words[name] = text
    return [*words.values()]


def _find_gpus(engine: Engine, box: Container) -> tuple[list[str], list[str]]:
    """Return the devices that ROCm opens, the compute interface and every render node, and their groups.

    Groups by number: names differ between image and machine.
    """
    kfd, everyone = box.root / "dev/kfd", stat.S_IROTH | stat.S_IWOTH
    nodes = sorted((box.root / "dev/dri").glob("renderD*"), key=lambda node: (len(node.name), node.name))
    if kfd.exists() and nodes:
        devices = [f"/{device.relative_to(box.root)}" for device in (kfd, *nodes)]
        states = [device.stat() for device in (kfd, *nodes)]
        closed = {state.st_gid for state in states if state.st_mode & everyone != everyone}
        groups = [str(number) for number in sorted(closed)]
    elif box.shown_only:
        devices = ["/dev/kfd", "/dev/dri"]
        groups = [f"{_GROUP_OF}/dev/kfd", f"{_GROUP_OF}/dev/dri/renderD128"]
    else:
        raise errors.HostError(
            "there is no /dev/kfd, or no render node in /dev/dri: no AMD GPU can be used here",
            tip="`rocm-wheels doctor` says what is missing; without --gpu the container starts all the same;"
            " `container run --print --gpu` gives the line for a machine that has GPUs",
        )
    if not groups or (os.getuid() == 0 and not engine.rootless):
        return devices, []
    if not engine.keeps_groups:
        raise errors.EngineError(
            f"{engine.name} cannot hand on your groups here, and {devices[0]} is open to its group alone",
            tip="rootless podman does with crun as its runtime; docker with its daemon",
        )
    return devices, ["keep-groups"] if engine.rootless else groups


def list_cache_folders(cache: Path) -> list[Path]:
    """Return the folders that must be there before a container is: an engine would make them as root."""
    return [cache / name for name in _CACHE_FOLDERS.values()]


def format_pasteable_line(argv: Sequence[str], cache: Path) -> str:
    """Return the command for a shell; folders that are missing are made first, groups found where it runs."""
    line = shell.format_command(argv)
    if line != shlex.join(argv):
        log.log_warning("the line has *** in place of a secret: put that in before you run it")
    missing = [shlex.quote(str(folder)) for folder in list_cache_folders(cache) if not folder.is_dir()]
    mkdir = f"mkdir -p {' '.join(missing)} && " if missing else ""
    return mkdir + re.sub(rf"(--group-add ){_GROUP_OF}(/dev/\S+)", r'\1"$(stat -c %g \2)"', line)


# ---- its end


def run_container(engine: Engine, argv: Sequence[str], env: Mapping[str, str], *, stdin: bool) -> int:
    """Run the composed command on our terminal and return its exit code.

    At an interruption the container is stopped: politely, after 10 seconds by force. Then it goes on.
    """
    name, code = argv[argv.index("--name") + 1], -1

    def stop() -> None:
        log.log_note(f"ending the container {name}; the command inside has {_STOP_SECONDS} seconds")
        with _ignore_signals():
            _try_engine(engine.program, ["stop", "-t", str(_STOP_SECONDS), name], env)

    try:
        code = process.run_on_terminal(argv, env=env, stdin=stdin, end=stop, error=errors.EngineError)
    finally:
        if code < 0:  # without its client; also one that was not there yet when it was to be stopped
            _remove_container(engine, name, env)
    if code < 0:
        raise errors.EngineError(f"{engine.program} was killed by signal {-code}; its container was ended")
    if code in _ENGINE_EXIT_CODES:
        log.log_note(f"exit code {code}: {_ENGINE_EXIT_CODES[code]}; or the command itself ended with {code}")
    return code


def _remove_container(engine: Engine, name: str, env: Mapping[str, str]) -> None:
    """Remove a container, whatever state it is in; warn of one that is still there afterwards."""
    with _ignore_signals():
        for _ in range(_REMOVE_TRIES):
            _try_engine(engine.program, ["rm", "--force", name], env)
            left = _try_engine(engine.program, ["ps", "--all", "--quiet", "--filter", f"name=^{name}$"], env)
            if left == "":
                return
            time.sleep(0.3)
    log.log_warning(
        f"the container {name} may still be running: `{engine.program} rm --force {name}` ends it"
    )


@contextmanager
def _ignore_signals() -> Iterator[None]:
    """Let no second interruption cut the ending short: the container would go on alone."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
