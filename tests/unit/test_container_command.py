"""The command line of an engine: which image, which folders, whose files, which devices, and no secrets."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from messages import refused, transcript

from rocm_wheels.ci import container_command, container_engine, container_host
from rocm_wheels.core import errors
from rocm_wheels.models import ci, project_names

_ = transcript  # a fixture for every test here
MESSAGES = "containers"

CLONE = Path(__file__).resolve().parents[2]
DOCKER = container_engine.Engine("docker", "docker", "28.2.2")
PODMAN = container_engine.Engine("podman", "podman", "5.4.0", rootless=True, runtime="crun")
ME = container_host.ContainerHost(uid=1000, gid=1001, user="ada", home=Path("/home/ada"))
GPUS = (
    container_host.GpuDevice("/dev/kfd", 109, False),
    container_host.GpuDevice("/dev/dri/renderD128", 44, False),
)
DIGEST = "sha256:" + "5" * 64
IMAGES = {
    "open": ci.PinnedImage(about="", image="ghcr.io/a/b", digest="unresolved", source="x", kind="documented"),
    "known": ci.PinnedImage(about="", image="ghcr.io/a/b", digest=DIGEST, source="x", kind="documented"),
}


def request(**changes: object) -> container_command.ContainerRequest:
    image = container_engine.choose_image(f"ghcr.io/a/b@{DIGEST}", {}, None, allow_unresolved=False)
    here = Path("/home/ada/work")
    asked = container_command.ContainerRequest(
        image, ("make", "-j"), "rocm-wheels-1", here, (container_host.ContainerMount(here, here),)
    )
    return replace(asked, **changes)  # type: ignore[arg-type]


def words(
    engine: container_engine.Engine = DOCKER, machine: container_host.ContainerHost = ME, **changes: object
) -> str:
    return " ".join(
        container_command.flatten_parts(
            container_command.compose_command(engine, machine, request(**changes))
        )
    )


def test_the_whole_line_of_docker() -> None:
    assert words() == (
        "docker run --rm --init --name rocm-wheels-1 --user 1000:1001 --volume /home/ada/work:/home/ada/work "
        "--workdir /home/ada/work --ulimit core=0:0 --ulimit nofile=65536:524288 "
        f"ghcr.io/a/b@{DIGEST} make -j"
    )


SYSTEMS = [
    (DOCKER, ME, "--user 1000:1001"),
    (replace(DOCKER, rootless=True), ME, "--user 0:0"),
    (PODMAN, ME, "--userns keep-id"),
    (replace(PODMAN, rootless=False), replace(ME, uid=0, gid=0), "--user 0:0"),
    (DOCKER, replace(ME, selinux=True), "--volume /home/ada/work:/home/ada/work:z"),
    (PODMAN, replace(ME, files=1024), "--ulimit nofile=1024:1024"),
]


@pytest.mark.parametrize(("engine", "machine", "part"), SYSTEMS)
def test_files_belong_to_whoever_started_it(
    engine: container_engine.Engine, machine: container_host.ContainerHost, part: str
) -> None:
    assert f" {part} " in words(engine, machine)


def test_gpus_come_with_the_groups_that_own_them_by_number() -> None:
    said = words(gpu=GPUS)
    assert "--device /dev/kfd --device /dev/dri/renderD128 --group-add 44 --group-add 109" in said
    assert "--security-opt seccomp=unconfined --ipc host" in said
    assert "seccomp" not in words()
    sized = words(gpu=GPUS, shared_memory="16g")
    assert "--shm-size 16g" in sized
    assert "--ipc" not in sized
    kept = words(PODMAN, gpu=GPUS)
    assert kept.count("--group-add") == 1
    assert "--group-add keep-groups" in kept
    assert "--group-add" not in words(gpu=(container_host.GpuDevice("/dev/kfd", 0, True),))
    labelled = words(machine=replace(ME, selinux=True), gpu=GPUS)
    assert "label=disable" in labelled
    assert ":z" not in labelled


def test_every_part_says_why_it_is_there() -> None:
    asked = request(
        gpu=GPUS,
        tty=True,
        network="none",
        variables=(container_host.ContainerVariable("A"), container_host.ContainerVariable("B", "1")),
    )
    assert [part for part in container_command.compose_command(DOCKER, ME, asked) if not part.why] == []


REFUSED = [
    (replace(DOCKER, rootless=True), ME, {"gpu": GPUS}),
    (replace(PODMAN, runtime="runc"), ME, {"gpu": GPUS}),
    (
        DOCKER,
        replace(ME, selinux=True),
        {"mounts": (container_host.ContainerMount(Path("/home/ada"), Path("/home/ada")),)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "machine", "changes"), REFUSED)
def test_what_an_engine_could_not_do_is_said_before(
    engine: container_engine.Engine, machine: container_host.ContainerHost, changes: dict[str, object]
) -> None:
    with refused(errors.RocmWheelsError) as caught:
        words(engine, machine, **changes)
    assert caught.value.tip


NAMES = [
    ("known", False, f"ghcr.io/a/b@{DIGEST}"),
    ("open", True, "ghcr.io/a/b"),
    ("ubuntu:24.04", True, "docker.io/library/ubuntu:24.04"),
    ("rocm/pytorch", True, "docker.io/rocm/pytorch:latest"),
    (f"ubuntu:24.04@{DIGEST}", False, f"docker.io/library/ubuntu@{DIGEST}"),
    (f"localhost:5000/x/y@{DIGEST}", False, f"localhost:5000/x/y@{DIGEST}"),
    (DIGEST, False, DIGEST),
]


@pytest.mark.parametrize(("text", "allowed", "reference"), NAMES)
def test_names_of_images(text: str, allowed: bool, reference: str) -> None:
    assert container_engine.choose_image(text, IMAGES, None, allow_unresolved=allowed).reference == reference


WRONG_NAMES = [
    "open",
    "ubuntu:24.04",
    "knwon",
    "UBUNTU",
    "--privileged",
    "",
    "ubuntu@sha256:12",
]


@pytest.mark.parametrize("text", WRONG_NAMES)
def test_what_is_not_known_is_not_run(text: str) -> None:
    with refused((errors.DataError, errors.UsageError)) as wrong:
        container_engine.choose_image(text, IMAGES, None, allow_unresolved=False)
    assert "--allow-unresolved" in f"{wrong.value.tip}" or "name@sha256" in f"{wrong.value.tip}"


def test_our_dockerfiles_start_from_what_the_table_says() -> None:
    made = {name: one for name, one in ci.load_container_table().images.items() if one.dockerfile}
    assert {path.name for path in (CLONE / "dockerfiles").glob("*.Dockerfile")} == {
        one.dockerfile for one in made.values()
    }
    for name, one in made.items():
        recipe = container_engine.make_image_recipe(name, one, CLONE)
        text = recipe.dockerfile.read_text(encoding="utf-8")
        assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == [f"{one.image}@{one.digest}"]
        assert f'base.digest="{one.digest}"' in text
        assert ci.load_container_table().sources[one.source].at in text
        assert all((CLONE / copied).is_file() for copied in container_engine.list_copied_files(text))
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
    known = replace_dockerfile("x.Dockerfile")
    copied.write_text("1")
    first = container_engine.make_image_recipe("x", known, tmp_path).reference
    copied.write_text("2")
    assert first.startswith("localhost/rocm-wheels-x:")
    assert container_engine.make_image_recipe("x", known, tmp_path).reference != first
    with refused(errors.UsageError):
        container_engine.make_image_recipe("x", known, None)


def replace_dockerfile(name: str) -> ci.PinnedImage:
    return IMAGES["known"].model_copy(update={"dockerfile": name})


def test_a_table_takes_no_digest_that_is_none(tmp_path: Path) -> None:
    table = tmp_path / "containers.yaml"
    row = "{about: a, image: b, digest: sha256:12, source: x, kind: documented}"
    table.write_text(
        f"sources: {{x: {{url: 'https://x', retrieved: 2026-01-01}}}}\njobs: a\nimages:\n  a: {row}\n"
    )
    with refused(errors.DataError):
        ci.read_container_table(table)


OTHER_IMAGE = f"ghcr.io/a/b@{DIGEST}"


@pytest.mark.parametrize(
    ("text", "platform", "image", "plat"),
    [
        ("none", "linux", "", "auto"),
        ("", "windows", "", "auto"),
        ("none", "windows", "", "auto"),
        (OTHER_IMAGE, "linux", OTHER_IMAGE, "auto"),
    ],
)
def test_jobs_run_in_the_image_that_was_asked_for(
    text: str, platform: project_names.Platform, image: str, plat: str
) -> None:
    assert container_engine.choose_job_image(text, platform) == container_engine.JobImage(image, plat)


def test_jobs_run_in_the_manylinux_image_where_none_was_asked_for() -> None:
    table = ci.load_container_table()
    named = container_engine.choose_job_image(f"{table.job_image.image}@{table.job_image.digest}", "linux")
    job_image = container_engine.choose_job_image("", "linux")
    assert job_image == container_engine.choose_job_image("therock-build", "linux") == named
    assert job_image.plat == table.wheel_platform and job_image.plat.startswith("manylinux_2_")
    assert re.fullmatch(r"[a-z0-9._/-]+@sha256:[0-9a-f]{64}", job_image.image)


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        ("build", "linux"),
        ("ubuntu:24.04", "linux"),
        (DIGEST, "linux"),
        (f"localhost/x@{DIGEST}", "linux"),
        ("no name", "linux"),
        ("therock-build", "windows"),
    ],
)
def test_an_image_that_no_job_can_run_in_is_refused(text: str, platform: project_names.Platform) -> None:
    with refused(errors.UsageError):
        container_engine.choose_job_image(text, platform)


def test_mounts_are_at_the_same_paths_and_said_once(tmp_path: Path) -> None:
    clone, cache = tmp_path / "clone", tmp_path / "clone/work/cache"
    cache.mkdir(parents=True)
    given = container_host.parse_mounts([f"{tmp_path}/clone/work", f"{tmp_path}/clone:/data:ro"])
    mounts = container_host.collect_mounts(clone, clone / "work", cache, given, [Path("/etc/ssl/own.pem")])
    assert mounts == (
        container_host.ContainerMount(clone, Path("/data"), read_only=True),
        container_host.ContainerMount(
            Path("/etc/ssl/own.pem"), Path("/etc/ssl/own.pem"), read_only=True, ours=False
        ),
        container_host.ContainerMount(clone, clone),
    )


def test_the_repository_of_a_worktree_is_mounted_as_well(tmp_path: Path) -> None:
    own, tree = tmp_path / "main/.git/worktrees/tree", tmp_path / "tree"
    own.mkdir(parents=True)
    tree.mkdir()
    (own / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {own}\n")
    mounts = container_host.collect_mounts(None, tree, tree, [], [])
    assert [one.path for one in mounts] == [tree, tmp_path / "main/.git"]


WRONG_MOUNTS = [
    "/nowhere/at/all",
    "~nobody-of-this-name/x",
    "/tmp:relative",
    "/tmp:/a:/b:ro",
    ":/a",
    "",
    "/tmp:/usr",
    "/tmp:/",
    "/tmp:/x/../etc",
    "/tmp:/usr/lib/x86_64-linux-gnu",
    "/tmp:/opt",
]


@pytest.mark.parametrize("text", WRONG_MOUNTS)
def test_mounts_that_cannot_be(text: str) -> None:
    here = Path("/home/ada/work")
    with refused(errors.UsageError):
        container_host.collect_mounts(None, here, here, container_host.parse_mounts([text]), [])


def test_of_two_mounts_at_one_place_none_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    here = Path("/home/ada/work")
    given = container_host.parse_mounts(
        [f"{tmp_path}/a/b/../b", f"{tmp_path}/a/b", f"{tmp_path}/link/../b:/x"]
    )
    mounts = {one.inside: one.path for one in container_host.collect_mounts(None, here, here, given, [])}
    assert mounts == {here: here, tmp_path / "a/b": tmp_path / "a/b", Path("/x"): tmp_path / "a/b"}
    for other in (f"{tmp_path}/a:/x", f"{tmp_path}/a/b:/x:ro"):
        with refused(errors.UsageError):
            container_host.collect_mounts(
                None, here, here, [*given, *container_host.parse_mounts([other])], []
            )


def test_a_folder_with_a_colon_cannot_be_mounted() -> None:
    here = Path("/home/ada/a:b")
    with refused(errors.UsageError):
        container_host.collect_mounts(None, here, here, [], [])


def test_only_named_variables_go_inside_and_no_value_from_outside(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    env = {
        "https_proxy": "http://ada:hunter2@proxy:3128",
        "PIP_CERT": str(bundle),
        "SSL_CERT_DIR": "/etc",
        "TERM": "xterm",
        "AWS_SECRET_ACCESS_KEY": "do-not-tell",
        "HF_TOKEN": "neither",
    }
    named = [
        *container_host.select_passed_variables(env, tty=False),
        *container_host.parse_variables(["HF_TOKEN", "MAX_JOBS=8"], env),
    ]
    assert [one.word for one in named] == ["https_proxy", "PIP_CERT", "HF_TOKEN", "MAX_JOBS=8"]
    assert container_host.select_passed_variables(env, tty=True)[-1].word == "TERM"
    assert container_host.find_certificate_paths(env) == [bundle]
    assert container_host.find_local_proxies(
        {"http_proxy": "127.0.0.1:3128", "ALL_PROXY": "socks5://p", "no_proxy": "localhost"}
    ) == ["http_proxy"]


WRONG_VARIABLES = [
    "HF_TOKEN=abc",
    "INDEX=https://ada:hunter2@host/",
    "NOT_SET",
    "1A=x",
    "=x",
]


@pytest.mark.parametrize("text", WRONG_VARIABLES)
def test_variables_that_are_refused_do_not_show_their_value(text: str) -> None:
    with refused(errors.UsageError) as wrong:
        container_host.parse_variables([text], {})
    assert "hunter2" not in f"{wrong.value.message}{wrong.value.tip}"


def test_devices_of_a_machine(tmp_path: Path) -> None:
    with refused(errors.HostError):
        container_host.find_gpu_devices(tmp_path)
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name in ("kfd", "dri/card0"):
        (tmp_path / "dev" / name).touch()
    with refused(errors.HostError):
        container_host.find_gpu_devices(tmp_path)
    for name in ("dri/renderD129", "dri/renderD1280", "dri/renderD128"):
        (tmp_path / "dev" / name).touch()
    (tmp_path / "dev/kfd").chmod(0o666)
    found = container_host.find_gpu_devices(tmp_path)
    assert [one.path for one in found] == [
        *("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/dri/renderD1280")
    ]
    assert [one.everyone for one in found] == [True, False, False, False]


def test_a_line_for_a_machine_with_gpus_is_shown_where_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = container_command.ContainerOptions(
        "therock-test", ("ls", "group-of:/dev/x"), tmp_path, tmp_path / "c", None, gpu=True
    )
    with refused(errors.HostError):
        container_command.make_container_request(asked, ME, {}, tmp_path)
    shown = container_command.make_container_request(replace(asked, for_any_machine=True), ME, {}, tmp_path)
    line = container_command.format_pasteable_line(
        container_command.flatten_parts(container_command.compose_command(DOCKER, ME, shown)), asked.cache
    )
    assert "--device /dev/kfd --device /dev/dri " in line
    assert '--group-add "$(stat -c %g /dev/kfd)" --group-add "$(stat -c %g /dev/dri/renderD128)" ' in line
    assert line.endswith(" ls group-of:/dev/x")
    assert "--group-add keep-groups" in " ".join(
        container_command.flatten_parts(container_command.compose_command(PODMAN, ME, shown))
    )
    assert "and asks there who owns them" in capsys.readouterr().err
    container_command.make_container_request(
        replace(asked, for_any_machine=True), replace(ME, uid=0), {}, tmp_path
    )
    assert "has GPUs\n" in capsys.readouterr().err
    root = container_command.flatten_parts(
        container_command.compose_command(DOCKER, replace(ME, uid=0, gid=0), shown)
    )
    assert "--device" in root and "--group-add" not in root


def test_selinux_counts_where_it_is_enforced(tmp_path: Path) -> None:
    enforce = tmp_path / "sys/fs/selinux/enforce"
    assert not container_host.inspect_host({}, tmp_path).selinux
    enforce.parent.mkdir(parents=True)
    for said, counts in (("0", False), ("1", True)):
        enforce.write_text(said)
        assert container_host.inspect_host({}, tmp_path).selinux == counts


def test_a_request_of_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, cache = tmp_path / "here", tmp_path / "the cache"
    here.mkdir()
    asked = container_command.ContainerOptions(
        "therock-build", ("ls",), here, cache, CLONE, variables=("USER=eve",)
    )
    got = container_command.make_container_request(asked, ME, {})
    values = {one.name: one.value for one in got.variables}
    assert values["HOME"] == str(cache / "home")
    assert values["USER"] == "eve"
    assert values["ROCM_WHEELS_CHECKOUT"] == str(CLONE)
    assert {one.path for one in got.mounts} == {here, cache, CLONE}
    assert not cache.exists()
    assert "root" not in capsys.readouterr().err
    container_command.make_container_request(asked, replace(ME, uid=0), {"SUDO_UID": "1000"})
    assert "by sudo you are root" in capsys.readouterr().err
    line = container_command.format_pasteable_line(["docker", "run"], cache)
    assert line.startswith(f"mkdir -p '{cache}/home' ")
    assert line.endswith(" && docker run")


# as engines say it: docker/cli 20.10, 27 and 29.6, podman 3.4 to 5.6, in their sources, tests and issues
SOCKET = "unix:///var/run/docker.sock"
SAID = [
    (
        f"Got permission denied while trying to connect to the Docker daemon socket at {SOCKET}",
        "docker $USER",
    ),
    ("dial unix /var/run/docker.sock: connect: permission denied", "usermod -aG docker"),
    (f"permission denied while trying to connect to the docker API at {SOCKET}", "usermod -aG docker"),
    (f"Cannot connect to the Docker daemon at {SOCKET}. Is the docker daemon running?", "start docker"),
    (f"failed to connect to the docker API at {SOCKET}; check if the path is correct", "start docker"),
    ('ERRO[0000] cannot find UID/GID for user ada: no subuid ranges found for user "ada"', "--add-subuids"),
    ('ERRO[0000] cannot find mappings for user ada: No subuid ranges found for user "ada"', "system migrate"),
    ('command required for rootless mode with multiple IDs: exec: "newuidmap": executable file', "uidmap"),
    ('exec: "newuidmap": executable file not found in $PATH', "uidmap"),
    ("user namespaces are not enabled in /proc/sys/user/max_user_namespaces", "max_user_namespaces=28633"),
    ("Error: cannot re-exec process", "max_user_namespaces=28633"),
    ("Cannot connect to Podman. Please verify your connection to the Linux system", "podman machine start"),
]


@pytest.mark.parametrize(("said", "tip"), SAID)
def test_what_to_do_about_what_engines_say(said: str, tip: str) -> None:
    assert tip in (container_engine.find_advice(said) or "")


def test_what_is_not_known_gets_no_advice() -> None:
    assert container_engine.find_advice("Error: image not known") is None
