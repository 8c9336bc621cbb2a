"""The command line of an engine: which image, which folders, whose files, which devices, and no secrets."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from commands import refused, transcript

from rocm_wheels.ci import container
from rocm_wheels.core import errors, records
from rocm_wheels.models import ci, project_names

_ = transcript  # a fixture for every test here
MESSAGES = "containers"

CLONE = Path(__file__).resolve().parents[2]
DOCKER = container.Engine("docker", "docker")
PODMAN = container.Engine("podman", "podman", rootless=True)
DIGEST = "sha256:" + "5" * 64
IMAGE = f"ghcr.io/a/b@{DIGEST}"
HERE = Path("/home/ada/work")
OPEN = ci.PinnedImage(about="", image="ghcr.io/a/b", digest="unresolved", source="x", kind="documented")
IMAGES = {"open": OPEN, "known": OPEN.model_copy(update={"digest": DIGEST})}
CHOSEN = container.ChosenImage(IMAGE)
BOX = container.Container(("make", "-j"), HERE, HERE.parent / "cache", None, CHOSEN, root=Path("/nowhere"))

pytestmark = pytest.mark.skipif(os.name == "nt", reason="containers are started from Linux")


@pytest.fixture(autouse=True)
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1001)


def words(
    engine: container.Engine = DOCKER, env: dict[str, str] | None = None, **changes: object
) -> list[str]:
    return container.compose_command(engine, replace(BOX, **changes), env or {})  # type: ignore[arg-type]


def machine(folder: Path, *, mode: int = 0o660, selinux: str = "0") -> Path:
    """Lay out the files of a machine with two GPUs."""
    for name in ("dev/kfd", "dev/dri/renderD129", "dev/dri/renderD1280", "dev/dri/card0"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(mode)
    (folder / "sys/fs/selinux").mkdir(parents=True)
    (folder / "sys/fs/selinux/enforce").write_text(selinux)
    return folder


def values(line: list[str], option: str) -> list[str]:
    """Return what stands behind each of an option."""
    return [line[n + 1] for n, word in enumerate(line) if word == option]


def test_the_whole_line_of_docker() -> None:
    line = words()
    assert line[:4] == ["docker", "run", "--rm", "--init"] and line[-3:] == [IMAGE, "make", "-j"]
    assert re.fullmatch(r"rocm-wheels-[0-9a-f]{8}", *values(line, "--name"))
    assert values(line, "--user") == ["1000:1001"] and values(line, "--workdir") == [str(HERE)]
    assert values(line, "--volume") == [f"{path}:{path}" for path in (HERE, "/home/ada/cache")]
    assert values(line, "--ulimit") == ["core=0:0", "nofile=65536:524288"]
    assert not {"--device", "--security-opt", "--tty", "--interactive", "--network"} & {*line}
    assert {"--interactive", "--tty"} <= {*words(tty=True)}


@pytest.mark.parametrize(
    ("engine", "part"),
    [
        (DOCKER, "--user 1000:1001"),
        (replace(DOCKER, rootless=True), "--user 0:0"),
        (PODMAN, "--userns keep-id"),
        (replace(PODMAN, rootless=False), "--user 1000:1001"),
    ],
)
def test_files_belong_to_whoever_started_it(engine: container.Engine, part: str) -> None:
    assert f" {part} " in " ".join(words(engine))


def test_gpus_come_with_the_groups_that_own_them_by_number(tmp_path: Path) -> None:
    root = machine(tmp_path)
    line = words(root=root, gpu=True)
    assert values(line, "--device") == ["/dev/kfd", "/dev/dri/renderD129", "/dev/dri/renderD1280"]
    assert values(line, "--group-add") == [str((root / "dev/kfd").stat().st_gid)]
    assert values(line, "--security-opt") == ["seccomp=unconfined"] and values(line, "--ipc") == ["host"]
    assert values(words(PODMAN, root=root, gpu=True), "--group-add") == ["keep-groups"]
    with refused(errors.EngineError):
        words(replace(DOCKER, rootless=True, keeps_groups=False), root=root, gpu=True)
    with refused(errors.HostError):
        words(gpu=True)
    assert "--group-add" not in words(root=machine(tmp_path / "open", mode=0o666), gpu=True)
    assert "label=disable" in words(root=machine(tmp_path / "selinux", selinux="1"))


def test_a_line_for_a_machine_with_gpus_is_shown_where_there_are_none(tmp_path: Path) -> None:
    argv = words(gpu=True, shown_only=True, command=("ls", "group-of:/dev/x"))
    line = container.format_pasteable_line(argv, tmp_path / "the cache")
    assert line.startswith(f"mkdir -p '{tmp_path}/the cache/home' ") and " && docker run " in line
    assert "--device /dev/kfd --device /dev/dri " in line and line.endswith(" ls group-of:/dev/x")
    assert '--group-add "$(stat -c %g /dev/kfd)" --group-add "$(stat -c %g /dev/dri/renderD128)" ' in line


NAMES = [
    ("known", f"ghcr.io/a/b@{DIGEST}"),
    (f"rocm/pytorch@{DIGEST}", f"docker.io/rocm/pytorch@{DIGEST}"),
    (f"ubuntu:24.04@{DIGEST}", f"docker.io/library/ubuntu@{DIGEST}"),
    (f"localhost:5000/x/y@{DIGEST}", f"localhost:5000/x/y@{DIGEST}"),
    (DIGEST, DIGEST),
]


@pytest.mark.parametrize(("text", "reference"), NAMES)
def test_names_of_images(text: str, reference: str) -> None:
    assert container.choose_image(text, IMAGES, None).reference == reference


@pytest.mark.parametrize(
    "text", ["open", "ubuntu:24.04", "knwon", "UBUNTU", "--privileged", "", "ubuntu@sha256:12"]
)
def test_what_is_not_known_is_not_run(text: str) -> None:
    with refused((errors.DataError, errors.UsageError)) as wrong:
        container.choose_image(text, IMAGES, None)
    assert "@sha256:" in f"{wrong.value.tip}"


def test_our_dockerfiles_start_from_what_the_table_says() -> None:
    made = {name: one for name, one in ci.load_container_table().images.items() if one.dockerfile}
    there = {path.name for path in (CLONE / "dockerfiles").glob("*.Dockerfile")}
    assert there == {one.dockerfile for one in made.values()}
    for name, one in made.items():
        path = container.choose_image(name, made, CLONE).dockerfile
        assert path is not None
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == [f"{one.image}@{one.digest}"]
        assert f'base.digest="{one.digest}"' in text
        assert ci.load_container_table().sources[one.source].at in text
        assert all((CLONE / copied).is_file() for copied in container.list_copied_files(text))
        assert re.search(r"^USER [1-9]", text, re.MULTILINE)


def test_tools_of_an_image_are_those_that_tests_run_with() -> None:
    tools, tests = (
        dict(re.findall(r"^([a-z-]+)==(\S+)", (CLONE / path).read_text(encoding="utf-8"), re.MULTILINE))
        for path in ("dockerfiles/tools.lock", "build_tools/requirements-test.lock")
    )
    assert tools
    assert {name: tests[name] for name in tools} == tools


def test_a_tag_stands_for_all_that_an_image_is_made_of(tmp_path: Path) -> None:
    (tmp_path / "dockerfiles").mkdir()
    dockerfile, copied = tmp_path / "dockerfiles/x.Dockerfile", tmp_path / "lock"
    dockerfile.write_text(f"FROM a@{DIGEST}\nCOPY --chmod=0644 lock /x/\n")
    images = {"x": IMAGES["known"].model_copy(update={"dockerfile": "x.Dockerfile"})}
    copied.write_text("1")
    first = container.choose_image("x", images, tmp_path).reference
    copied.write_text("2")
    assert first.startswith("localhost/rocm-wheels-x:")
    assert container.choose_image("x", images, tmp_path).reference != first
    with refused(errors.UsageError):
        container.choose_image("x", images, None)


def test_a_table_takes_no_digest_that_is_none(tmp_path: Path) -> None:
    row = "{about: a, image: b, digest: sha256:12, source: x, kind: documented}"
    text = f"sources: {{x: {{url: 'https://x', retrieved: 2026-01-01}}}}\njobs: a\nimages:\n  a: {row}\n"
    (tmp_path / "containers.yaml").write_text(text)
    with refused(errors.DataError):
        records.load_record(tmp_path / "containers.yaml", ci.ContainerTable)


def test_jobs_run_in_the_image_that_was_asked_for_or_the_manylinux_one() -> None:
    for text, platform in (("none", "linux"), ("", "windows"), ("none", "windows")):
        assert container.choose_job_image(text, platform) == ("", "auto")  # type: ignore[arg-type]
    assert container.choose_job_image(IMAGE, "linux") == (IMAGE, "auto")
    table = ci.load_container_table()
    named = container.choose_job_image(f"{table.job_image.image}@{table.job_image.digest}", "linux")
    image, plat = container.choose_job_image("", "linux")
    assert (image, plat) == container.choose_job_image("therock-build", "linux") == named
    assert plat == table.wheel_platform and plat.startswith("manylinux_2_")
    assert re.fullmatch(r"[a-z0-9._/-]+@sha256:[0-9a-f]{64}", image)


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        *((text, "linux") for text in ("build", "ubuntu:24.04", DIGEST, f"localhost/x@{DIGEST}", "no name")),
        ("therock-build", "windows"),
    ],
)
def test_an_image_that_no_job_can_run_in_is_refused(text: str, platform: project_names.Platform) -> None:
    with refused(errors.UsageError):
        container.choose_job_image(text, platform)


def test_mounts_are_at_the_same_paths_and_said_once(tmp_path: Path) -> None:
    clone, cache = tmp_path / "clone", tmp_path / "clone/work/cache"
    cache.mkdir(parents=True)
    certificate = tmp_path / "own.pem"
    certificate.touch()
    own, tree = tmp_path / "main/.git/worktrees/tree", clone / "work"  # a worktree: its repository goes along
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {own}\n")
    mounts = (f"{clone}/work", f"{tmp_path}/clone/work/../work:/data:ro")
    line = words(env={"PIP_CERT": str(certificate)}, here=tree, cache=cache, clone=clone, mounts=mounts)
    same = [f"{path}:{path}" for path in (clone, tree, cache, tmp_path / "main/.git")]
    assert sorted(values(line, "--volume")) == sorted(
        [*same, f"{tree}:/data:ro", f"{certificate}:{certificate}:ro"]
    )


@pytest.mark.parametrize(
    "text",
    [
        *("/nowhere/at/all", "~nobody-of-this-name/x", "/tmp:relative", "/tmp:/a:/b:ro", ":/a", ""),
        *("/tmp:/usr", "/tmp:/", "/tmp:/x/../etc", "/tmp:/usr/lib/x86_64-linux-gnu", "/tmp:/opt"),
        *("/tmp:/x /usr:/x", "/tmp:/x /tmp:/x:ro"),
    ],
)
def test_mounts_that_cannot_be(text: str) -> None:
    with refused(errors.UsageError):
        words(mounts=tuple(text.split(" ")))


def test_a_folder_with_a_colon_cannot_be_mounted() -> None:
    with refused(errors.UsageError):
        words(here=Path("/home/ada/a:b"))


def test_only_named_variables_go_inside_and_no_value_from_outside(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    env = {"https_proxy": "http://ada:hunter2@proxy:3128", "PIP_CERT": str(bundle), "SSL_CERT_DIR": "/etc"}
    env |= {"TERM": "xterm", "AWS_SECRET_ACCESS_KEY": "do-not-tell", "HF_TOKEN": "neither"}
    line = words(env=env, variables=("HF_TOKEN", "MAX_JOBS=8", "USER=eve"), clone=CLONE)
    given = values(line, "--env")
    assert [one for one in given if "=" not in one] == ["https_proxy", "PIP_CERT", "HF_TOKEN"]
    named = dict(one.split("=", 1) for one in given if "=" in one)
    assert named["HOME"] == "/home/ada/cache/home" and named["ROCM_WHEELS_IMAGE"] == IMAGE
    assert (named["USER"], named["MAX_JOBS"], named["ROCM_WHEELS_CHECKOUT"]) == ("eve", "8", str(CLONE))
    assert "hunter2" not in shlex.join(line) and "TERM" in values(words(env=env, tty=True), "--env")


@pytest.mark.parametrize("text", ["HF_TOKEN=abc", "INDEX=https://ada:hunter2@host/", "NOT_SET", "1A=x", "=x"])
def test_variables_that_are_refused_do_not_show_their_value(text: str) -> None:
    with refused(errors.UsageError) as wrong:
        words(variables=(text,))
    assert "hunter2" not in f"{wrong.value.message}{wrong.value.tip}"
