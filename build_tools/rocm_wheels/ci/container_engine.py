"""The container engine of this machine, and the images that it runs: pinned, or built from a Dockerfile."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rocm_wheels.ci import container_host
from rocm_wheels.core import log, process, shell, tables
from rocm_wheels.core.errors import DataError, EngineError, UsageError
from rocm_wheels.models import ci, project_names

EngineName = Literal["docker", "podman"]
ENGINES: tuple[EngineName, ...] = ("docker", "podman")
_PATIENCE_SECONDS = 60.0
_OTHER_MACHINE = re.compile(r"(?:tcp|ssh|https?)://", re.IGNORECASE)
INSTALL_TIP = (
    "install podman (`apt-get install podman`, `dnf install podman`) or docker "
    "(https://docs.docker.com/engine/install)"
)

# What engines say when they cannot (docker 20 to 29, podman 3 to 5: their sources and issues), and what to do
_ADVICE = (
    (
        r"permission denied while trying to connect to the docker|docker\.sock: connect: permission denied",
        "your user is not in the group docker: `sudo usermod -aG docker $USER`, then log in again; "
        "or use rootless podman: --engine podman",
    ),
    (
        r"cannot connect to the docker daemon|failed to connect to the docker api"
        r"|is the docker daemon running|error during connect",
        "the daemon is not running: `sudo systemctl start docker`; or use podman, which has none: "
        "--engine podman",
    ),
    (
        r"no subuid ranges found|no subgid ranges found|not enough ids available"
        r"|cannot find uid/gid for user",
        "your user has no numbers for rootless containers: `sudo usermod --add-subuids 100000-165535 "
        "--add-subgids 100000-165535 $USER`, then `podman system migrate`",
    ),
    (
        r'new[ug]idmap"?: executable file not found|required for rootless mode with multiple ids',
        "rootless containers need newuidmap and newgidmap: install uidmap (Debian, Ubuntu) or shadow-utils",
    ),
    (
        r"user namespaces are not enabled in|cannot clone: (?:operation not permitted|no space left)"
        r"|cannot re-exec process",
        "user namespaces are switched off: `sudo sysctl -w user.max_user_namespaces=28633`, on Ubuntu also "
        "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
    (
        r"connect to podman",
        "podman's service does not answer: `systemctl --user start podman.socket`, or `podman machine start`",
    ),
)


@dataclass(frozen=True)
class Engine:
    """An engine that answers. ``runtime`` is what starts podman's containers: crun or runc.

    ``program`` is what it is called on PATH: podman may be there as docker.
    """

    name: EngineName
    program: str
    version: str
    rootless: bool = False
    runtime: str = ""


def find_engine(preferred: EngineName | None, env: Mapping[str, str]) -> Engine:
    """Return the engine that was asked for, else the first that answers: docker, podman.

    Raises EngineError, which says of each that is installed why it cannot be used.
    """
    refused: list[EngineError] = []
    for name in (preferred,) if preferred else ENGINES:
        if shutil.which(name, path=env.get("PATH")) is None:
            continue
        try:
            engine = _query_engine(name, env)
        except EngineError as refusal:
            refused.append(refusal)
            continue
        for error in refused:
            log.log_note(f"{name} is used, because {_join_first_lines(error)}")
        return engine
    if not refused:
        raise EngineError(f"there is no {preferred or 'docker and no podman'} on PATH", tip=INSTALL_TIP)
    tips = [error.tip for error in refused if error.tip]
    raise EngineError("; ".join(error.message for error in refused), tip=tips[0] if tips else None)


def assume_engine(preferred: EngineName | None) -> Engine:
    """Return the engine that commands are shown for where none answers."""
    name = preferred or ENGINES[0]
    return Engine(name, name, "", runtime="crun" if name == "podman" else "")


def find_advice(message: str) -> str | None:
    """Return what to do about what an engine said, where that is known."""
    return next((tip for sign, tip in _ADVICE if re.search(sign, message, re.IGNORECASE)), None)


def _query_engine(name: EngineName, env: Mapping[str, str]) -> Engine:
    """Ask an engine what it is. A ``docker`` may be podman under another name (package podman-docker)."""
    _refuse_other_machine(name, env)
    facts = _read_json([name, "info", "--format", "{{json .}}"], env)
    if errors := facts.get("ServerErrors"):
        message = " ".join(str(entry) for entry in errors)
        raise EngineError(f"docker does not answer: {message}", tip=find_advice(message))
    if isinstance(host := facts.get("host"), dict):
        if host.get("serviceIsRemote") and not env.get("CONTAINER_HOST") and sys.platform != "darwin":
            raise _make_other_machine_error(
                "podman's connection (CONTAINER_CONNECTION, containers.conf)", "take it out"
            )
        return Engine(
            "podman",
            name,
            str(facts.get("version", {}).get("Version", "")),
            rootless=bool(host.get("security", {}).get("rootless")),
            runtime=str(host.get("ociRuntime", {}).get("name", "")),
        )
    server = _read_json([name, "version", "--format", "{{json .Server}}"], env)
    if any("podman" in str(entry.get("Name", "")).lower() for entry in server.get("Components") or ()):
        raise EngineError(
            "this docker talks to podman's service, which loses the exit code of a container that is removed",
            tip="use podman itself: --engine podman",
        )
    rootless = any("name=rootless" in str(entry) for entry in facts.get("SecurityOptions") or ())
    return Engine("docker", name, str(facts.get("ServerVersion", "")), rootless=rootless)


def _refuse_other_machine(name: EngineName, env: Mapping[str, str]) -> None:
    """Raise EngineError where a variable or docker's context names another machine, which is not asked."""
    variable = "DOCKER_HOST" if name == "docker" else "CONTAINER_HOST"
    if _OTHER_MACHINE.match(env.get(variable, "")):
        raise _make_other_machine_error(variable, f"unset {variable}")
    if name == "podman" or env.get(variable):
        return
    argv = [name, "context", "inspect", "--format", "{{.Name}} {{.Endpoints.docker.Host}}"]
    try:
        output = process.capture_output(argv, env=env, timeout=_PATIENCE_SECONDS, check=EngineError).strip()
    except EngineError:
        return  # podman-docker and docker before 19.03 have no contexts; a missing one `info` tells of
    context, _, address = output.partition(" ")
    if _OTHER_MACHINE.match(address):
        raise _make_other_machine_error(
            f"docker's context {context}", "`docker context use default`, and no DOCKER_CONTEXT"
        )


def _make_other_machine_error(setting: str, tip: str) -> EngineError:
    message = f"{setting} names another machine, whose disks are not ours: nothing of here could be mounted"
    return EngineError(message, tip=f"{tip}; or run this command on that machine")


def _read_json(argv: list[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return what an engine says of itself. Raises EngineError with what to do about its refusal."""
    name = f"`{argv[0]} {argv[1]}`"
    try:
        output = process.capture_output(
            argv, env=env, timeout=_PATIENCE_SECONDS, check=EngineError, description=name
        )
    except EngineError as failure:
        raise EngineError(failure.message, tip=find_advice(failure.message)) from failure.__cause__
    try:
        facts = json.loads(output)
    except ValueError as wrong:
        raise EngineError(f"{name} printed no JSON: {output[:200]!r}") from wrong
    if not isinstance(facts, dict):
        raise EngineError(f"{name} says nothing of itself: {output[:200]!r}", tip=find_advice(output))
    return facts


def _join_first_lines(error: EngineError) -> str:
    lines = [line.strip(" |") for line in error.message.splitlines() if line.strip(" |")]
    return " ".join(lines[:2])


ALLOW_TIP = "--allow-unresolved takes what the name means now"
# distribution/reference: [domain/]path[:tag][@digest]; a domain has a dot or a port, or is localhost
_IMAGE_NAME = re.compile(
    r"(?P<domain>(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]+)(?::[0-9]+)?/)?"
    r"(?P<path>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
_COPY_LINE = re.compile(r"^COPY\s+(?:--\S+\s+)*(?P<paths>.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class ChosenImage:
    """An image as an engine takes it. ``made_here``: it is here or nowhere, so nothing is pulled."""

    reference: str
    made_here: bool = False


@dataclass(frozen=True)
class ImageRecipe:
    """A Dockerfile of ours: its path, and the name that stands for exactly what it is made of."""

    name: str
    dockerfile: Path
    reference: str


def choose_image(
    text: str, images: Mapping[str, ci.PinnedImage], clone: Path | None, *, allow_unresolved: bool
) -> ChosenImage:
    """Return the image of an option. ``clone`` is the checkout with our Dockerfiles, ``None`` without one.

    Raises UsageError for a name that nothing can be called, and DataError where the digest is not known.
    """
    if (known_image := images.get(text)) is not None:
        if known_image.dockerfile:
            return ChosenImage(make_image_recipe(text, known_image, clone).reference, made_here=True)
        if known_image.is_resolved:
            return ChosenImage(f"{known_image.image}@{known_image.digest}")
        if allow_unresolved:
            return ChosenImage(known_image.image)
        raise DataError(f"the digest of image {text} ({known_image.image}) is unresolved", tip=ALLOW_TIP)
    if ci.IMAGE_DIGEST.fullmatch(text):  # the number of an image that is here
        return ChosenImage(text, made_here=True)
    match = _IMAGE_NAME.fullmatch(text)
    if match is None:
        near = tables.suggest_name(text, images)
        tip = f"one of {', '.join(images)}, or name@sha256:…"
        raise UsageError(f"{text!r} is no name of an image{near}", tip=tip)
    if match["digest"] is None and not allow_unresolved:
        tip = (
            f"name it with its digest ({text}@sha256:…); {ALLOW_TIP}; "
            "`rocm-wheels compat show images` lists ours"
        )
        raise DataError(
            f"image {text} has no digest: it can be another one tomorrow{tables.suggest_name(text, images)}",
            tip=tip,
        )
    return ChosenImage(_complete_name(match), made_here=match["domain"] == "localhost/")


@dataclass(frozen=True)
class JobImage:
    """What a job builds in, "" for the machine itself; ``plat``: what it tells ``build --plat``."""

    image: str
    plat: str


NO_IMAGE = "none"


def choose_job_image(text: str, platform: project_names.Platform) -> JobImage:
    """Return the image of jobs that build: ours for "", none for ``none``, else a name, or one by its digest.

    Raises UsageError where none can be used: on Windows, by a name that has to be made first.
    """
    table = ci.load_container_table()
    if text == NO_IMAGE or (not text and platform == "windows"):
        return JobImage("", "auto")
    if platform == "windows":
        raise UsageError(f"jobs on Windows run in no image, and {text} was asked for", tip=NO_IMAGE)
    name = text or table.jobs
    tip = f"{table.jobs}, name@sha256:… of a registry, or {NO_IMAGE}"
    pinned_image = table.images.get(name)
    if pinned_image is None and not ci.IMAGE_DIGEST.fullmatch(name.rpartition("@")[2]):
        raise UsageError(f"image {name} has no digest{tables.suggest_name(name, table.images)}", tip=tip)
    if name.startswith(("sha256:", "localhost/")) or (pinned_image is not None and pinned_image.dockerfile):
        raise UsageError(f"{name} is an image of the machine that it was made on", tip=tip)
    image = choose_image(name, table.images, None, allow_unresolved=False)
    platforms = {f"{each.image}@{each.digest}": each.platform for each in table.images.values()}
    return JobImage(image.reference, platforms.get(image.reference) or "auto")


def make_image_recipe(name: str, known_image: ci.PinnedImage, clone: Path | None) -> ImageRecipe:
    """Return how an image of ours is made. Its tag is the digest of all that goes into it from a checkout."""
    if clone is None:
        tip = "start rocm-wheels from a clone, or name an image that is run as it is: therock-build"
        raise UsageError(
            f"image {name} is made from a clone, and this rocm-wheels is an installed one", tip=tip
        )
    path = clone / "dockerfiles" / known_image.dockerfile
    digest = hashlib.sha256()
    for file in (path, *(clone / copied for copied in list_copied_files(path.read_text(encoding="utf-8")))):
        digest.update(file.read_bytes() + b"\0")
    return ImageRecipe(name, path, f"localhost/rocm-wheels-{name}:{digest.hexdigest()[:16]}")


def list_copied_files(dockerfile: str) -> list[str]:
    """Return what a Dockerfile copies from the clone, in order; the last word of each line is the target."""
    return [word for match in _COPY_LINE.finditer(dockerfile) for word in match["paths"].split()[:-1]]


def _complete_name(match: re.Match[str]) -> str:
    """Return a name as docker reads it, for engines that would ask in which registry to look.

    A digest says more than a tag, and podman takes only one of the two.
    """
    domain, path = match["domain"], match["path"]
    if domain is None:
        domain, path = "docker.io/", path if "/" in path else f"library/{path}"
    return f"{domain}{path}{match['digest'] or match['tag'] or ':latest'}"


_IMAGE_DATE = (
    "315532800"  # 1980-01-01, the first that every archive can hold: the date of all files of an image
)


def make_build_argv(engine: Engine, recipe: ImageRecipe, env: Mapping[str, str]) -> list[str]:
    """Return the command. Proxies are named only: their values are in the environment, not in the image."""
    clone = recipe.dockerfile.parent.parent
    proxies = [f"--build-arg={name}" for name in container_host.PROXY_VARIABLES if env.get(name)]
    dated = (
        ["--timestamp", _IMAGE_DATE]
        if engine.name == "podman"
        else ["--build-arg", f"SOURCE_DATE_EPOCH={_IMAGE_DATE}"]
    )
    named = ["--file", str(recipe.dockerfile), "--tag", recipe.reference]
    return [engine.program, "build", *named, *dated, *proxies, str(clone)]


def format_build_command(engine: Engine, recipe: ImageRecipe, env: Mapping[str, str]) -> str:
    """Return the command for a shell.

    Without BuildKit docker knows no ``COPY --chmod``. It is the default since docker 23; earlier ones must be
    told, and later ones without the plugin buildx say so.
    """
    told = "DOCKER_BUILDKIT=1 " if engine.name == "docker" else ""
    return told + shell.format_command(make_build_argv(engine, recipe, env))
