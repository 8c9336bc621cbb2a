"""One installation for many machines: locked (PEP 751), and as a folder for machines without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from index_server import IndexServer
from index_wheels import wheel
from install_world import CUDA, Environment, make_environment, served_index, torch

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import extras, toml_reader
from rocm_wheels.core.files import hash_file

HEAD = 'lock-version = "1.0"\ncreated-by = "x"\n'
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "ROCM_", "AMD_", "HSA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexServer]:
    """An index with variants for two GPUs, which have their own triton, and what all have in common."""
    raw = tmp_path / "raw"
    files = [
        torch(raw, "2.9.1", "sympy", label="gfx94x", gfx=("gfx942",)),
        torch(raw, "2.9.1", "sympy", label="gfx110x", gfx=("gfx1100", "gfx1101")),
        wheel(raw, "torchvision", "0.24.1", requires=("torch==2.9.1",)),
        wheel(raw, "sympy", "1.14.0"),
    ]
    with served_index(tmp_path / "index", files) as server:
        yield server


def lock_for(index: IndexServer, output: Path, *words: str) -> int:
    common = ["--index", index.url, "--dependency-index", index.url, "-o", str(output)]
    return boundary.run_command(main.cli, ["lock", "install", "torch", "torchvision", *common, *words])


def install_lock(lock: Path, venv: Environment, gfx: str, *words: str) -> int:
    return boundary.run_command(
        main.cli, ["install", "--lock", str(lock), "--python", str(venv.prefix), "--gfx", gfx, *words]
    )


def test_each_machine_gets_its_own_of_a_lock(
    tmp_path: Path, index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "pylock.toml"
    assert lock_for(index, lock, "--gfx", "gfx942", "--gfx", "gfx1100", "--python", f"{HERE},3.10") == 0
    document = toml_reader.parse_toml(lock.read_text(), name="lock")
    rows = [
        (row["name"], row.get("tool", {}).get("rocm-wheels", {}).get("machines"))
        for row in document["packages"]
    ]
    assert rows == [("sympy", None), ("torch", ["gfx1100"]), ("torch", ["gfx942"]), ("torchvision", None)]
    again = tmp_path / "pylock.again.toml"
    assert lock_for(index, again, "--gfx", "gfx942", "--gfx", "gfx1100", "--python", f"{HERE},3.10") == 0
    assert again.read_bytes() == lock.read_bytes()
    venv = make_environment(tmp_path / "venv")
    index.requests.clear()
    for gfx, label in (("gfx1100", "gfx110x"), ("gfx942", "gfx94x")):
        assert install_lock(lock, venv, gfx) == 0
        assert label in (venv.site / "torch" / "__init__.py").read_text()
    assert [request.path for request in index.requests if not request.path.endswith(".whl")] == []
    assert venv.packages() == {"sympy": "1.14.0", "torch": "2.9.1", "torchvision": "0.24.1"}
    capsys.readouterr()
    assert install_lock(lock, venv, "gfx1201") == 17
    assert "gfx942; gfx1100" in capsys.readouterr().err
    wheels = [path for path in (tmp_path / "cache").rglob("torch-*.whl") if path.is_file()]
    for path in wheels:
        path.write_bytes(path.read_bytes() + b"x")
    assert install_lock(lock, make_environment(tmp_path / "other"), "gfx942") == 0, "a cache that has rotted"


@pytest.mark.contract
def test_pip_and_uv_install_a_lock_of_one_machine_and_we_one_of_uv(
    tmp_path: Path, index: IndexServer
) -> None:
    lock = tmp_path / "pylock.toml"
    assert lock_for(index, lock, "--gfx", "gfx942", "--python", HERE) == 0
    venv = make_environment(tmp_path / "venv")
    words = [
        str(extras.find_uv()),
        "pip",
        "install",
        "--no-config",
        "--python",
        str(venv.python),
        "-r",
        str(lock),
    ]
    subprocess.run([*words, "--preview"], check=True)
    assert "gfx94x" in (venv.site / "torch" / "__init__.py").read_text()
    theirs = tmp_path / "pylock.uv.toml"
    words = [str(extras.find_uv()), "pip", "compile", "--no-config", "--default-index", index.url, "--format"]
    subprocess.run([*words, "pylock.toml", "-o", str(theirs), "-"], input=b"sympy", check=True)
    other = make_environment(tmp_path / "other")
    assert install_lock(theirs, other, "none") == 0
    assert other.packages() == {"sympy": "1.14.0"}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (None, 2, "does not exist"),
        ("lock-version = ", 2, "not valid TOML"),
        ('lock-version = "1.0"\ncreated-by = "x"\n', 2, "is no lock of PEP 751"),
        ('lock-version = "1.0"\ncreated-by = "x"\npackages = [{name = "a", version = "1"}]\n', 2, "PEP 751"),
        (
            'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "a"\nversion = "1"\n'
            'wheels = [{name = "a-1-cp27-none-any.whl", url = "https://x/a-1-cp27-none-any.whl",'
            ' hashes = {sha256 = "00"}}]\n',
            17,
            "has nothing that fits Python",
        ),
        (
            'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "a"\nversion = "1"\n'
            'wheels = [{url = "https://x/a-1-py3-none-any.whl", hashes = {md5 = "00"}}]\n',
            2,
            "has no sha256",
        ),
        ('lock-version = "2.0"\ncreated-by = "x"\npackages = []\n', 2, "2.0"),
        (f'{HEAD}packages = []\n[tool.rocm-wheels]\nmachines = "gfx942"\n', 2, "is not a list of texts"),
        (f"{HEAD}packages = []\n[tool]\nrocm-wheels = 1\n", 2, "is not a list of texts"),
    ],
)
def test_what_is_no_lock(
    tmp_path: Path, text: str | None, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "pylock.toml"
    if text is not None:
        lock.write_text(text)
    venv = make_environment(tmp_path / "venv")
    assert install_lock(lock, venv, "gfx942") == code
    assert message in capsys.readouterr().err
    assert venv.packages() == {}


@pytest.mark.contract
def test_a_machine_that_the_chosen_torch_does_not_serve_is_not_locked(
    tmp_path: Path, index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "pylock.toml"
    assert lock_for(index, lock, "--gfx", "gfx942", "--gfx", "gfx1201", "--python", HERE) == 17
    assert not lock.exists()
    assert lock_for(index, lock, "--gfx", "gfx942,gfx1100", "--python", HERE) == 17
    assert lock_for(index, tmp_path / "lock.toml", "--gfx", "gfx942", "--python", HERE) == 2
    assert "pylock.toml" in capsys.readouterr().err


@pytest.fixture
def plain_index(tmp_path: Path) -> Iterator[IndexServer]:
    """An index with one torch, which does not say for which GPUs it has code."""
    files = [torch(tmp_path / "raw", "2.9.1", gfx=("gfx1030", "gfx1100"))]
    with served_index(tmp_path / "plain", files) as server:
        yield server


def lock_torch(index: IndexServer, output: Path, *words: str) -> int:
    common = ["--index", index.url, "--dependency-index", index.url, "--python", HERE, "-o", str(output)]
    return boundary.run_command(main.cli, ["lock", "install", "torch", *common, *words])


def test_a_card_beside_graphics_inside_the_processor_is_locked_as_it_is_installed(
    tmp_path: Path, plain_index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "pylock.toml"
    assert lock_torch(plain_index, lock, "--gfx", "gfx1036,gfx1100") == 0
    capsys.readouterr()
    assert install_lock(lock, make_environment(tmp_path / "venv"), "gfx1036,gfx1100") == 0
    hidden = "HIP_VISIBLE_DEVICES=1"  # as they are stated: graphics first
    assert hidden in capsys.readouterr().out
    words = ["--index", plain_index.url, "--gfx", "gfx1036,gfx1100", "--dry-run", "--json"]
    assert (
        boundary.run_command(main.cli, ["install", "torch", "--venv", str(tmp_path / "other"), *words]) == 0
    )
    assert json.loads(capsys.readouterr().out)["environment"] == hidden
    assert lock_torch(plain_index, lock, "--gfx", "gfx1036") == 17, "alone it needs kernels"


def test_a_card_that_runs_the_kernels_of_another_installs_a_lock_of_those(
    tmp_path: Path, plain_index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "pylock.toml"
    assert lock_torch(plain_index, lock, "--gfx", "gfx1030") == 0
    venv = make_environment(tmp_path / "venv")
    assert install_lock(lock, venv, "gfx1031") == 17
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0: --gfx gfx1030" in capsys.readouterr().err
    # as it is locked where no index serves the card itself
    lock.write_text(lock.read_text().replace('machines = ["gfx1030"]', 'machines = ["gfx1031"]'))
    assert install_lock(lock, venv, "gfx1031") == 0
    assert "export HSA_OVERRIDE_GFX_VERSION=10.3.0" in capsys.readouterr().out
    assert venv.packages() == {"torch": "2.9.1"}


def test_a_lock_is_no_way_round_the_question_about_the_cpu(
    tmp_path: Path, index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lock, raw = tmp_path / "pylock.toml", tmp_path / "cuda"
    with served_index(tmp_path / "cuda-index", [torch(raw, "2.9.1", built=CUDA)]) as server:
        assert lock_torch(server, lock, "--gfx", "none") == 0
        lock.write_text(lock.read_text().replace('machines = ["none"]', 'machines = ["gfx1100"]'))
        venv = make_environment(tmp_path / "venv")
        assert install_lock(lock, venv, "gfx1100") == 17
        assert venv.packages() == {}
        assert install_lock(lock, venv, "gfx1100", "--allow-cpu") == 0
        assert install_lock(lock, venv, "gfx942", "--allow-cpu") == 17, "it is for other machines"


def run_without_network(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where there is no network at all: not even this machine's own."""
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("there is no unshare here")
    front = [program, "--net", *(["--map-root-user"] if os.getuid() else [])]
    if subprocess.run([*front, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    return subprocess.run(
        [*front, *words], cwd=folder, env={**env, "HOME": str(folder.parent / "home"), "XDG_CACHE_HOME": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def check_sums(bundle: Path) -> set[str]:
    sums = dict(reversed(text.split("  ")) for text in (bundle / "SHA256SUMS").read_text().splitlines())
    assert {name: hash_file(bundle / name) for name in sums} == sums
    return set(sums)


def make_bundle(made: Path, index: IndexServer, *words: str) -> int:
    common = ["--gfx", "gfx942", "--gfx", "gfx1100", "--python", HERE, "--index", index.url]
    return boundary.run_command(main.cli, ["index", "bundle", "torch", *common, "-o", str(made), *words])


def test_a_bundle_installs_where_there_is_no_network(
    tmp_path: Path, index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "bundle"
    assert make_bundle(made, index, "--dependency-index", index.url) == 17, "it has no uv"
    assert "--no-tool" in capsys.readouterr().err
    assert not made.exists()
    assert make_bundle(made, index, "--dependency-index", index.url, "--no-tool") == 0
    (made / "pylock.toml").unlink()  # as of a run that was killed
    assert make_bundle(made, index, "--dependency-index", index.url, "--no-tool") == 0
    bundle = shutil.copytree(made, tmp_path / "elsewhere" / "bundle")
    files = check_sums(bundle)
    assert {"pylock.toml", "README.txt", "gfx942/torch/torch-2.9.1-py3-none-linux_x86_64.whl"} <= files
    line = f"{sys.executable} -m rocm_wheels install --lock pylock.toml --venv torch-env --gfx gfx1100"
    ran = run_without_network(line.split(), bundle)
    assert ran.returncode == 0, ran.stderr
    (init,) = (bundle / "torch-env").glob("lib/python*/site-packages/torch/__init__.py")
    assert "gfx110x" in init.read_text()
    venv = make_environment(tmp_path / "by-pip", pip=True)
    pip = f"{venv.python} -m pip install --no-index --find-links gfx942/links.html torch==2.9.1"
    ran = run_without_network(pip.split(), bundle)
    assert ran.returncode == 0, ran.stderr
    assert "gfx94x" in (venv.site / "torch" / "__init__.py").read_text()
    capsys.readouterr()
    assert make_bundle(tmp_path / "raw", index) == 2
    assert "has other files" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_a_bundle_brings_the_tool_along(
    tmp_path: Path, index: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "bundle"
    assert make_bundle(made, index) == 0
    line = capsys.readouterr().out.splitlines()[2].strip()
    assert line.startswith("python3 -m venv rw && ")
    bundle = shutil.copytree(made, tmp_path / "elsewhere" / "bundle")
    check_sums(bundle)
    shell = f"{line.replace('python3 -m venv', f'{sys.executable} -m venv')} --gfx gfx1100"
    ran = run_without_network(["sh", "-c", shell], bundle)
    assert ran.returncode == 0, ran.stderr
    (init,) = (bundle / "torch-env").glob("lib/python*/site-packages/torch/__init__.py")
    assert "gfx110x" in init.read_text()


def test_a_machine_is_known_again_whatever_its_card_was_called_by(tmp_path: Path, index: IndexServer) -> None:
    lock = tmp_path / "pylock.toml"
    assert lock_for(index, lock, "--gfx", "RX 7900 XTX", "--gfx", "GFX942", "--python", HERE) == 0
    assert toml_reader.parse_toml(lock.read_text(), name="lock")["tool"]["rocm-wheels"]["machines"] == [
        "gfx1100",
        "gfx942",
    ]
    venv = make_environment(tmp_path / "venv")
    assert install_lock(lock, venv, "gfx1100") == 0
    made = tmp_path / "bundle"
    words = [
        "index",
        "bundle",
        "torch",
        "--gfx",
        "RX 7900 XTX",
        "--python",
        HERE,
        "--no-tool",
        "-o",
        str(made),
    ]
    assert (
        boundary.run_command(main.cli, [*words, "--index", index.url, "--dependency-index", index.url]) == 0
    )
    assert (made / "gfx1100" / "torch").is_dir() and not (made / ".busy").exists()
    check_sums(made)
