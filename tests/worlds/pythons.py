"""Python environments, installers, and what is installed there."""

from __future__ import annotations

import contextlib
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from binaries import bundle, code_object, elf, hip, kpack, kpack_reference
from servers import IndexServer, serve_folder
from uv import find_uv_bin
from wheels import NOW, SCHEMA, Draft, library, wheel

from rocm_wheels.core import errors, process
from rocm_wheels.index import update
from rocm_wheels.sdk import interpreters
from rocm_wheels.user import installed_packages

# ---- pip and uv of the environment that tests run in: no Python is sure to bring one. And older pips.


QUICK = ["--disable-pip-version-check", "--no-cache-dir", "--no-compile", "--ignore-installed"]
PIP = [sys.executable, "-m", "pip", "install", *QUICK]
UV = [find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--python", sys.executable]


def plan_by_uv(words: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return what uv would install, by project; nothing where it finds no such wheels."""
    done = subprocess.run([*UV, "--dry-run", *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    lines = [line.split()[1] for line in done.stderr.splitlines() if line.strip().startswith("+ ")]
    return dict(line.split("==") for line in lines)


def plan_by_pip(words: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return what pip would install, by project."""
    report = process.capture_output([*PIP, "--dry-run", "--quiet", "--report", "-", *words], env=env)
    listed = [one["metadata"] for one in json.loads(report)["install"]]
    return {one["name"]: one["version"] for one in listed}


def copy_pip(site: Path) -> None:
    """Put a copy of pip into a folder of packages."""
    for file in distribution("pip").files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.locate(), site / file)


# the first that we promise; that of Debian 12 and of Python 3.10; that of Python 3.11.5 to 3.11.7
OLD_PIPS = ("22.3.1", "23.0.1", "23.2.1")
# of the old pips the oldest that runs here each time: those between resolve, and read names, as it does
OLDEST = OLD_PIPS[2 if sys.version_info >= (3, 12) else 0]
INSTALLERS = [
    *(pytest.param(v, marks=[] if v == OLDEST else pytest.mark.exhaustive) for v in OLD_PIPS),
    *("newest", "uv"),
]


def find_other_pythons(env: Mapping[str, str]) -> list[interpreters.Interpreter]:
    """Return the Pythons of this machine, one a version, but for the version that runs the tests."""
    found: list[interpreters.Interpreter] = []
    for minor in (12, 13, 11, 10, 14):
        if minor != sys.version_info[1]:
            with contextlib.suppress(errors.RocmWheelsError):
                found += interpreters.find_interpreters([f"3.{minor}"], env)
    return found


def get_pip(version: str, folder: Path) -> list[str]:
    """Get a pip of another version from the package index; return the words that start it."""
    if sys.version_info >= (3, 12) and version < "23.1":
        pytest.skip(f"pip {version} runs on no Python from 3.12 on")
    quiet = ["--quiet", "--no-config", "--python", sys.executable]
    subprocess.run([UV[0], "pip", "install", *quiet, "--target", str(folder), f"pip=={version}"], check=True)
    return [sys.executable, str(folder / "pip")]


# ---- Writes environments as installers leave them: constructed, with libraries that hold next to nothing.


VERSION = "__version__ = '{version}'\ndebug = False\ncuda: str | None = {cuda}\nhip: str | None = {hip}\n"


def environment(
    folder: Path, *, also: Sequence[Path] = (), version: str = "3.11.9"
) -> installed_packages.PythonEnvironment:
    """A virtual environment in ``folder``, with its site-packages made."""
    place = folder / "lib" / "python3.11" / "site-packages"
    place.mkdir(parents=True, exist_ok=True)
    return installed_packages.PythonEnvironment(
        python=folder / "bin" / "python",
        version=version,
        implementation="cpython",
        free_threaded=False,
        prefix=folder,
        base_prefix=Path("/usr"),
        path=(*also, place),
        site_packages=place,
        user_site=None,
        markers={"python_full_version": version, "python_version": version.rpartition(".")[0]},
    )


def install(
    place: Path,
    name: str,
    version: str,
    *,
    files: Mapping[str, bytes | str] | None = None,
    requires: Sequence[str] = (),
    tag: str = "cp311-cp311-linux_x86_64",
    installer: str = "pip",
    direct_url: str = "",
    record: bool = True,
) -> Path:
    """Install a distribution; return its ``.dist-info``."""
    place.mkdir(parents=True, exist_ok=True)
    info = place / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (info / "INSTALLER").write_text(installer + "\n")
    if direct_url:
        (info / "direct_url.json").write_text(direct_url)
    for path, content in (files or {}).items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    if record:
        (info / "RECORD").write_text("".join(f'"{path}",,\n' for path in files or {}))
    return info


def install_torch(
    place: Path,
    *targets: str,
    version: str = "2.9.1+rocm7.1.0",
    hip: str | None = "7.1.25424",
    cuda: str | None = None,
    requires: Sequence[str] = (),
    **more: bytes,
) -> Path:
    """Install a torch whose ``libtorch_hip.so`` has code for the targets."""
    files: dict[str, bytes | str] = {
        "torch/__init__.py": "raise ImportError('nobody imports this')\n",
        "torch/version.py": VERSION.format(version=version, cuda=repr(cuda), hip=repr(hip)),
        "torch/lib/libtorch_cpu.so": library(),
    }
    if hip:
        files["torch/lib/libtorch_hip.so"] = library(*targets)
    if cuda:
        files["torch/lib/libtorch_cuda.so"] = library()
    files.update(more)
    return install(place, "torch", version, files=files, requires=requires)


# ---- Indexes and environments for tests of installing: tiny real wheels, real servers, real pip and uv.


TAG = f"py3-none-linux_{platform.machine()}"  # a wheel with code: a pure one has no kernels
ROCM = "hip: str | None = '7.2.26015'\ncuda: str | None = None\n"
CUDA = "hip: str | None = None\ncuda: str | None = '12.8'\n"


def torch(
    folder: Path,
    version: str,
    *requires: str,
    built: str = ROCM,
    extras: tuple[str, ...] = (),
    label: str = "",
    gfx: tuple[str, ...] = (),
    old: bool = False,
    code: bytes | None = None,
) -> Path:
    """Write a torch that says what it was built for; with a label a variant wheel for the targets ``gfx``.

    One for ROCm has code for them (gfx942 and gfx1100 without), none where it has extras: its kernels are
    elsewhere. ``code`` is another library in its place. ``old``: its document is in the form of 2025.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draft = Draft("torch", version, TAG, requires=list(requires))
    draft.fields = [f"Provides-Extra: {extra}" for extra in extras]
    draft.members = {
        "torch/__init__.py": f"# {version} {label}\n".encode(),
        "torch/version.py": f"__version__ = '{version}'\n{built}".encode(),
    }
    if built == ROCM:
        moved_code = elf({".rocm_kpack_ref": kpack_reference("../.kpack/torch_@GFXARCH@.kpack")})
        own_code = library_behind(*(gfx or ("gfx942", "gfx1100")))
        draft.members["torch/lib/libtorch_hip.so"] = code or (moved_code if extras else own_code)
    if label:
        draft.file_name = f"torch-{version}-{TAG}-{label}.whl"
        draft.members[f"{draft.folder}/variant.json"] = document(label, gfx, old=old).encode()
    return draft.write(folder)


def library_behind(*gfx: str, host_code: bytes = b"") -> bytes:
    """Return a library with code for these targets behind ``host_code``, where a linker puts it."""
    front = host_code + bytes(-(len(host_code) + 64) % 4096)  # behind the header
    return elf({".text": front, ".hip_fatbin": bundle(*map(hip, gfx))})


def document(label: str, gfx: tuple[str, ...], *, old: bool = False) -> str:
    """Return the document of one variant, in the form of today or of 2025."""
    amd = {
        "requires": ["rocm-bootstrap>=0.3,<1"],
        "plugin-api": "rocm_bootstrap.variant_provider:AMDVariantPlugin",
    }
    said: dict[str, object] = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": ["amd"]},
        "providers": {"amd": amd},
        "variants": {label: {"amd": {"gfx_arch": list(gfx)}} if gfx else {}},
    }
    if old:
        del said["$schema"]
        said["default-priorities"] = {"namespace": ["amd"], "feature": {"amd": ["gfx_arch"]}}
        amd["enable-if"] = "platform_system == 'Linux'"  # type: ignore[assignment]
    return json.dumps(said)


def rocm_index(raw: Path) -> list[Path]:
    """Wheels of an index as download.pytorch.org's: several releases and builds, a triton that is pinned."""
    files = [wheel(raw, "pytorch_triton_rocm", version) for version in ("3.4.0", "3.5.0", "3.6.0")]
    for minor, triton in (("2.9.1", "3.5.0"), ("2.8.0", "3.4.0")):
        needs = (f"pytorch-triton-rocm=={triton}", "sympy>=1.13")
        files.append(torch(raw, f"{minor}+rocm7.2", *needs))
        files.append(torch(raw, f"{minor}+cu128", built=CUDA))
    for version, minor in (("0.24.1", "2.9.1"), ("0.23.0", "2.8.0")):
        for build in ("rocm7.2", "cu128"):
            files.append(wheel(raw, "torchvision", f"{version}+{build}", requires=(f"torch=={minor}",)))
    files += [wheel(raw, "torchaudio", f"{v}+rocm7.2", requires=(f"torch=={v}",)) for v in ("2.9.1", "2.8.0")]
    return files


def multi_arch(folder: Path, *devices: str) -> list[Path]:
    """An index with kernels in wheels of their own, chosen by extras."""
    version, extras = "2.9.1+rocm7.2", ("device-gfx942", "device-gfx1100")
    requires = [f"amd-torch-{extra}=={version}; extra == '{extra}'" for extra in extras]
    files = [torch(folder, version, *requires, extras=extras)]
    return [*files, *(device_wheel(folder, one, version) for one in devices)]


def device_wheel(folder: Path, gfx: str, version: str) -> Path:
    draft = Draft(f"amd_torch_device_{gfx}", version, "py3-none-any")
    draft.members = {
        f"torch/.kpack/torch_{gfx}.kpack": kpack({("lib/libtorch_hip.so#0", gfx): code_object(gfx)})
    }
    return draft.write(folder)


def pypi(raw: Path) -> list[Path]:
    """Wheels of an index of dependencies, and what must never come from there."""
    compiled = "cp39-abi3-manylinux_2_17_x86_64"
    return [
        wheel(raw, "sympy", "1.14.0", requires=("mpmath<1.4",)),
        wheel(raw, "sympy", "1.15.0rc1"),
        wheel(raw, "mpmath", "1.3.0"),
        torch(raw, "9.9.9", built=CUDA),
        wheel(raw, "torchvision", "9.9.9"),
        wheel(raw, "triton", "9.9.9"),
        wheel(raw, "amd_torch_device_gfx1100", "2.9.1+rocm7.2"),
        wheel(raw, "torchao", "0.18.0", requires=("torch>=2.8",)),
        wheel(raw, "torchao", "0.18.0", tag=compiled, requires=("torch>=2.8",)),
        wheel(raw, "torchao", "0.19.0", tag=compiled, requires=("torch>=2.8",)),
        wheel(raw, "xformers", "0.0.33", tag=compiled, requires=("torch>=2.8",)),
        *(
            wheel(raw, name, "9.9.9")
            for name in ("bitsandbytes", "causal_conv1d", "flash_attn", "torchcodec")
        ),
        wheel(raw, "lightgbm", "4.6.0", tag=compiled),
        wheel(raw, "boosts_with_lightgbm", "1.0", requires=("lightgbm",)),
    ]


BACKEND = """
import os, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "rocm-7.2.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        archive.writestr("rocm_sdk/__init__.py", "")
        info = "rocm-7.2.0.dist-info/"
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: rocm\\nVersion: 7.2.0\\n"
            "Requires-Dist: rocm-sdk-core==7.2.0\\nProvides-Extra: libraries\\n"
            "Requires-Dist: rocm-sdk-libraries==7.2.0; extra == 'libraries'\\n")
        archive.writestr(info + "WHEEL",
            "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(info + "RECORD", "rocm_sdk/__init__.py,,\\n" + info + "METADATA,,\\n"
            + info + "WHEEL,,\\n" + info + "RECORD,,\\n")
    return name
"""


def rocm_sources(folder: Path) -> Path:
    """Write a source distribution that is built where it is installed, as ROCm's own ``rocm`` is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rocm-7.2.0.tar.gz"
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    about = "Metadata-Version: 2.1\nName: rocm\nVersion: 7.2.0\n"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (("pyproject.toml", project), ("backend.py", BACKEND), ("PKG-INFO", about)):
            member = tarfile.TarInfo(f"rocm-7.2.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@contextmanager
def served_index(folder: Path, files: list[Path]) -> Iterator[IndexServer]:
    """Serve an index of these wheels."""
    update.add_wheels(folder, files, now=NOW)
    with serve_folder(folder) as server:
        yield server


@dataclass(frozen=True)
class Environment:
    """A virtual environment without pip, unless it was made with it."""

    prefix: Path

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def site(self) -> Path:
        return next(self.prefix.glob("lib/python*/site-packages"))

    def packages(self) -> dict[str, str]:
        """Versions by name, as the folders have them."""
        names = [one.name.removesuffix(".dist-info") for one in self.site.glob("*.dist-info")]
        found = dict(name.split("-", 1) for name in names)
        return {name: version for name, version in sorted(found.items()) if name not in ("pip", "setuptools")}

    def uv(self, *words: str) -> None:
        from uv import find_uv_bin

        subprocess.run(
            [find_uv_bin(), "pip", *words[:1], "-q", "--python", str(self.python), *words[1:]], check=True
        )


def make_environment(prefix: Path, *, pip: bool = False) -> Environment:
    """Make a virtual environment of the running Python."""
    from uv import find_uv_bin

    subprocess.run([find_uv_bin(), "venv", "-q", "--python", sys.executable, str(prefix)], check=True)
    made = Environment(prefix)
    if pip:
        copy_pip(made.site)
    return made
