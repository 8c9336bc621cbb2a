"""What the matrix builds can be locked: each torch line and platform, from stand-ins for the repositories."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from sources import enter, isolated_environment

from rocm_wheels.ci.matrix import list_line_projects
from rocm_wheels.cli import boundary, matrix
from rocm_wheels.cli.main import cli
from rocm_wheels.models import project, project_names, release_lines

GITHUB = "https://github.com/"
ROWS = json.loads(CliRunner().invoke(matrix.matrix_command, ["--rows", "lines"]).stdout)["include"]


def places() -> Iterator[tuple[str, str]]:
    """Every repository and ref that a line or a recipe names."""
    for line in release_lines.get_release_lines():
        for one in line.projects.values():
            if one.checkout.origin is not None:
                yield one.checkout.origin, one.checkout.ref or "main"
    for name in project_names.list_project_names():
        for platform in ("linux", "windows"):
            yield project.load_project(name).source.get_platform_source(platform).origin, "main"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One repository stands for all; torch's branches have their version, AMD's pin what belongs to it."""
    folder = tmp_path_factory.mktemp("lines")
    env, servers = isolated_environment(folder / "home"), folder / "servers"
    whole = servers / "whole.git"
    servers.mkdir()

    def git(*words: str, told: str = "") -> str:
        argv = ["git", "-C", str(servers), *words]
        return subprocess.run(argv, env=env, input=told, capture_output=True, text=True, check=True).stdout

    git("init", "-q", "--bare", str(whole))
    who, said = "committer a <a@b.example> 1700000000 +0000\ndata 0\n", []

    def commit(branch: str, files: dict[str, str]) -> None:
        written = (f"M 644 inline {path}\ndata {len(text)}\n{text}\n" for path, text in files.items())
        said.append(f"commit refs/heads/{branch}\n{who}{''.join(written)}")

    versions = {"version.txt": "1.0\n", "python/triton/__init__.py": "__version__ = '1.0'\n"}
    found = set(places())
    for ref in sorted({ref for _, ref in found}):
        commit(ref, versions)
    git("-C", str(whole), "fast-import", "--quiet", told="".join(said))
    main, said = git("-C", str(whole), "rev-parse", "main").strip(), []
    for line in release_lines.get_release_lines():
        torch = line.projects["pytorch"].checkout
        if torch.origin is None or torch.ref is None:
            continue
        pinned = (("torchaudio", "audio"), ("apex", "apex"))
        rows = [f"u|pytorch|{one}|main|{main}|{GITHUB}ROCm/{name}\n" for one, name in pinned]
        pins = {
            "version.txt": f"{line.torch}.0\n" if line.torch else "2.99.0a0\n",
            ".ci/docker/ci_commit_pins/triton.txt": f"{main}\n",
            **({"related_commits": "".join(rows)} if "ROCm/" in torch.origin else {}),
        }
        said.append("".join((f"commit refs/heads/{torch.ref}\n{who}", f"from refs/heads/{torch.ref}^0\n")))
        said += [f"M 644 inline {path}\ndata {len(text)}\n{text}\n" for path, text in pins.items()]
    git("-C", str(whole), "fast-import", "--quiet", told="".join(said))
    for origin in {origin for origin, _ in found}:
        for name in (origin, origin.removesuffix(".git")):
            place = servers / name.removeprefix(GITHUB)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(whole)
    git("config", "--global", f"url.{servers.as_uri()}/.insteadOf", GITHUB)
    return env


# one of each platform; the lines are alike, and all are locked by hand and at night
FIRST = {row["platform"]: row["name"] for row in reversed(ROWS)}.values()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=() if row["name"] in FIRST else pytest.mark.exhaustive, id=row["name"])
        for row in ROWS
    ],
)
def test_a_row_can_be_locked(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: dict[str, str]
) -> None:
    enter(monkeypatch, tmp_path, env)
    words = ["--line", row["line"], "--platform", row["platform"], "--rocm", row["rocm"]]
    assert boundary.run_command(cli, ["lock", *words, "--python", row["pythons"], "-o", "set.lock"]) == 0
    lock = json.loads(Path("set.lock").read_text())
    assert set(lock["projects"]) == {one.name for one in list_line_projects(row["platform"], row["line"])}
    assert (lock["line"], lock["platform"], " ".join(lock["pythons"])) == (
        *(row["line"], row["platform"], row["pythons"]),
    )


def test_what_a_line_has_elsewhere_only_is_said_and_can_be_asked_for(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    enter(monkeypatch, tmp_path, env)
    line = next(row["line"] for row in ROWS if row["platform"] == "windows")
    assert release_lines.get_release_line(line).leaves_out(project.load_project("triton"), "windows")
    words = ["lock", "--line", line, "--platform", "windows", "-o", "set.lock"]
    assert boundary.run_command(cli, words) == 0
    said = f"without triton: release line {line} has none for windows"
    assert said in capfd.readouterr().err
    with monkeypatch.context() as variables:
        variables.setenv("ROCM_WHEELS_TRITON_REF", "main")
        assert boundary.run_command(cli, words) == 0
    assert said not in capfd.readouterr().err
    assert json.loads(Path("set.lock").read_text())["projects"]["triton"]["origin"].endswith(
        "triton-windows.git"
    )
    assert boundary.run_command(cli, [*words, "--project", "triton"]) == 10
    assert "name it with --triton-ref" in capfd.readouterr().err
