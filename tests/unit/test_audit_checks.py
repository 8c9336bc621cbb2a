"""Each check of anybody's wheels names exactly its mutation of a wheel in which it finds nothing."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_mutations import Mutation, Row, assert_named, become, drop, name_rows, put, require, say
from binaries import messagepack
from wheels import MACHINES, SCHEMA, Draft, bundle, dll, elf_header, library, torch_draft

from rocm_wheels.audit import audited_wheel, verify
from rocm_wheels.audit.checks import ALL_CHECKS, CHECKS
from rocm_wheels.audit.contents import find_disallowed_contents
from rocm_wheels.audit.definition import AuditCheck, Skip, SkippedCheck
from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.core.junit import read_junit_report
from rocm_wheels.models.project import load_project
from rocm_wheels.wheels import required_packages
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = pytest.mark.contract

IDS = {
    "RW001": "archive", "RW002": "file-name", "RW003": "platform", "RW004": "python", "RW005": "metadata",
    "RW006": "requires-python", "RW007": "requirements", "RW008": "rocm-requirement", "RW009": "pins",
    "RW010": "files", "RW011": "installer-files", "RW012": "elf-tag-too-old", "RW013": "rocm-init",
    "RW014": "carried-rocm", "RW015": "rocm-build", "RW016": "device-libraries", "RW017": "device-code",
    "RW018": "device-consistency", "RW019": "device-coverage", "RW020": "device-wheels",
    "RW021": "run-paths", "RW022": "import", "RW023": "wheel-tags", "RW024": "purelib",
    "RW025": "record-digests", "RW026": "executable-stack", "RW027": "text-relocations",
    "RW028": "duplicate-soname", "RW029": "two-runtimes", "RW030": "grafted-rocm",
    "RW031": "needed-libraries", "RW032": "imported-dlls", "RW033": "target-list", "RW034": "kernel-files",
    "RW035": "kernel-targets", "RW036": "code-object-version", "RW037": "feature-mixtures",
    "RW038": "generic-targets", "RW039": "target-packages", "RW040": "size", "RW041": "builder-paths",
    "RW042": "debug-sections", "RW043": "credentials", "RW044": "licences", "RW045": "architecture",
    "RW046": "open-run-paths", "RW047": "archive-form", "RW048": "exceptions",
    "RW049": "moved-code", "RW050": "device-extras", "RW051": "kpack-runtime",
    "RW052": "needed-symbols", "RW053": "needed-versions",
    "RW054": "allowed-contents", "RW055": "startup-files", "RW056": "environment-files",
    "RW057": "file-types", "RW058": "colliding-names", "RW059": "metadata-text",
    "RW060": "extension-modules", "RW091": "entry-points", "RW092": "normal-names", "RW093": "bundle-targets",
    "RW094": "asan-label",
}  # fmt: skip
HIP, STATING = "demo/lib/libtorch_hip.so", "demo/lib/libtorch_python.so"
TARGETS = b"\0gfx942 gfx1100\0"
TENSILE = "demo/lib/rocblas/library/"
FALLBACK, SGEMM = "TensileLibrary_Type_SS_fallback", "TensileLibrary_Type_SS_gfx942"
CODE = elf_header(224, MACHINES["gfx942"], abi=3) + b"kernels"
OTHER_CODE = elf_header(224, MACHINES["gfx1100"], abi=3)
CODE_ON, CODE_OFF = (elf_header(224, MACHINES["gfx942"] | sign << 8, abi=3) + b"kernels" for sign in (3, 2))
LINUX = {
    "demo/__init__.py": b"",
    HIP: library("gfx942:xnack-", "gfx1100", run_path="$ORIGIN", soname="libtorch_hip.so"),
    STATING: library(soname="libtorch_python.so", needed=("libc.so.6",), sections={b".rodata": TARGETS}),
    f"{TENSILE}TensileLibrary_lazy_gfx942.dat": messagepack({"files": [FALLBACK, SGEMM]}),
    f"{TENSILE}{FALLBACK}.dat": b"1",
    f"{TENSILE}{FALLBACK}_gfx942-xnack+.hsaco": CODE_ON,
    f"{TENSILE}{FALLBACK}_gfx942-xnack-.hsaco": CODE_OFF,
    f"{TENSILE}{SGEMM}.dat": b"1",
    f"{TENSILE}{SGEMM}.co": CODE,
}
NARROW = b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x03\0\x03\0" + bytes(32)
PE_AMD64, PE_I386, PE_ARM64 = (b"PE\0\0" + machine for machine in (b"\x64\x86", b"\x4c\x01", b"\x64\xaa"))
WINDOWS = {
    "demo/__init__.py": b"",
    "demo/demo.pyd": dll("KERNEL32.dll", "Other.DLL", "python311.dll", "MSVCP140.dll"),
    "demo/other.dll": dll(delayed=("demo_more.dll",)),
    "demo/demo_more.dll": dll(),
}


def linux() -> Draft:
    return Draft("demo", "1.0", "cp311-cp311-manylinux_2_17_x86_64", members=dict(LINUX))


def windows() -> Draft:
    return Draft("demo", "1.0", "cp311-cp311-win_amd64", members=dict(WINDOWS))


def audit(
    draft: Draft, folder: Path, *, packages: required_packages.PackagePool | None = None
) -> audited_wheel.AuditReport:
    system: Any = "windows" if "win" in draft.tag else "linux"
    return verify.verify_wheel(
        draft.write(folder), audited_wheel.WheelExpectation(None, system), packages=packages
    )


def run_path(text: str) -> Mutation:
    return put("demo/lib/libx.so", library(run_path=text))


def x_so(*targets: str, **facts: Any) -> Mutation:
    return put("demo/x.so", library(*targets, **facts))


def bill(name: str, version: object) -> bytes:
    return json.dumps({"metadata": {"component": {"name": name, "version": version}}}).encode()


def vary(*targets: str, label: str = "rocm7", rocm: str = "7.1") -> Mutation:
    """Make the variant ``rocm7`` of it, for targets and a ROCm; what it describes is ``label``."""
    properties = {"amd": {"gfx_arch": sorted(targets)}, "rocm": {"version": [rocm]}}
    document = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": ["amd", "rocm"]},
        "providers": {name: {"static-properties": values} for name, values in properties.items()},
        "variants": {label: properties},
    }
    member = {"demo-1.0.dist-info/variant.json": json.dumps(document).encode()}
    return become(
        member, requires=["rocm[libraries]==7.1.0"], file_name=WRITTEN.replace(".whl", "-rocm7.whl")
    )


def add_named(*files: str, **others: object) -> Mutation:
    """Add libraries whose SONAMEs are the names of their files."""
    return become({file: library(soname=file.rpartition("/")[2]) for file in files}, **others)


def state(targets: bytes) -> Mutation:
    return put(STATING, library(sections={b".rodata": targets + b"\0"}))


WRITTEN = "demo-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
BILL = "demo-1.0.dist-info/sboms/rocm-wheels.cdx.json"
OLD_LICENCE = "Classifier: License :: OSI Approved :: MIT License"
OTHERS_START = "rocm_sdk.initialize_process(preload_shortnames=['hipblas'], check_version='7.1.0')"
OTHERS_INIT = f"def initialize():\n    {OTHERS_START}\n"
LONG = "9" * 5000  # more digits than Python reads
OLD_FORM = b"Metadata-Version: 1.0\nName: demo\nVersion: 1.0\nRequires-Python: >=3.10\n"
CRLF_README = OLD_FORM.replace(b"1.0", b"2.1", 1) + b"\nuse http://user:password@proxy\n"
CRLF_README = CRLF_README.replace(b"\n", b"\r\n")
SETUPTOOLS = OLD_FORM.replace(b"1.0", b"2.1", 1) + b"License-File: LICENSE\n"
LINUX_TAG = "manylinux_2_17_x86_64"
OMP = library(soname="libgomp.so.1")
MODULE = "demo/_x.cpython-311-x86_64-linux-gnu.so"


def need(*names: str, requires: tuple[str, ...] = ()) -> Mutation:
    """Link the module to libraries, and require projects."""
    return become({MODULE: library(needed=names)}, requires=list(requires))


def rename(old: str, new: str) -> Mutation:
    return lambda draft: setattr(draft, "file_name", WRITTEN.replace(old, new))


def other_module(python: str, end: str = "x86_64-linux-gnu.so") -> Mutation:
    return put(f"demo/_x.{python}-{end}", dll() if end.endswith("pyd") else OMP)


def join_bundles(count: int, *, lacking: int, emptied: bool = False) -> bytes:
    """Return a section of bundles for gfx942 and gfx1100, some of which have no code for the second."""
    short = bundle("gfx942", "gfx1100", empty=("gfx1100",)) if emptied else bundle("gfx942")
    bundles = [*[short] * lacking, *[bundle("gfx942", "gfx1100")] * (count - lacking)]
    return b"".join(content.ljust(4096, b"\0") for content in bundles)


def lack(number: int, **facts: Any) -> dict[str, bytes]:
    return {"demo/x.so": library(fatbin=join_bundles(20, lacking=number, **facts))}


def entry_points(line: str) -> Mutation:
    return put(ENTRY, f"[console_scripts]\n{line}\n")


DATA = "demo-1.0.data"
KEY = b"-----BEGIN RSA PRIVATE KEY-----\n" + base64.b64encode(bytes(range(90))) + b"\n"
KEY_END = b"-----END RSA PRIVATE KEY-----\n"
PGP_KEY = KEY.replace(b"RSA PRIVATE KEY", b"PGP PRIVATE KEY BLOCK").replace(b"\n", b"\nVersion: 2\n\n", 1)
TOKEN = "token = '" + "gh" + "p_" + "a1B2" * 9 + "'\n"
HOME_PATH = "/home/somebody/src/demo.cc"
DEBUG = library(sections={b".debug_info": b"1" * 2048})


def build_for(machine: bytes, member: str) -> Mutation:
    def change(draft: Draft) -> None:
        content = draft.members.get(member, dll())
        draft.members[member] = content.replace(PE_AMD64, machine, 1)

    return change


def lead(run_path: str | None, *, file: str = "demo/lib/libown.so.1", init: str = "") -> Mutation:
    """Link the module to a library inside, which has its SONAME; the loader looks for a file at first."""

    def change(draft: Draft) -> None:
        draft.members["demo/__init__.py"] = init.encode()
        draft.members[file] = library(soname="libown.so.1")
        draft.members[MODULE] = library(needed=("libown.so.1",), run_path=run_path)

    return change


def move_folder(draft: Draft) -> None:
    """Its libraries find each other by DT_RPATH, and the module finds none of them."""
    other = library(soname="libother.so.1", needed=("libown.so.1",), run_path="$ORIGIN")
    draft.members["demo/moved/libother.so.1"] = other.replace(  # DT_RPATH, where there was DT_RUNPATH
        (29).to_bytes(8, "little"), (15).to_bytes(8, "little"), 1
    )
    draft.members["demo/moved/libown.so.1"] = library(soname="libown.so.1")
    draft.members[MODULE] = library(needed=("libother.so.1",), run_path="$ORIGIN/../demo.libs")


HIPS = "demo/lib/libamdhip64.so.7", "demo.libs/libamdhip64-0a1b2c3d.so.6"  # of a package of ROCm itself
GOMP = "demo.libs/libgomp-0a1b2c3d.so.1.0.0"
MIXED = {"demo/lib/libx.so": library("gfx942:xnack+"), HIP: library("gfx942:xnack-", "gfx1100")}
# a second library of one SONAME, which another one is linked to: which is it?
TWIN = {"demo/x.so": library(soname="libtorch_hip.so"), "demo/y.so": library(needed=("libtorch_hip.so",))}
BEHIND = {MODULE: library(needed=("libb.so",)), "demo/libb.so": library(needed=("libz9.so",))}
SEVERAL_PYTHONS = {f"demo/_x.cpython-3{minor}-x86_64-linux-gnu.so": OMP for minor in (10, 11, 12)}
ENTRY, DEMO_OF_OTHER = "demo-1.0.dist-info/entry_points.txt", b"[console_scripts]\ndemo = other:main\n"
OWN, NAMES_ONE = "libown.so.1 is inside", "from ctypes import CDLL\nCDLL('{}')\n"
ALL_OF_A_FOLDER = "for name in glob('*.so*'):\n    CDLL(name)\n"
HIP_FILE, HIP_GRAFT = "demo/lib/libamdhip64.so.7", "demo.libs/libamdhip64-0a1b2c3d.so.7"
OF_ROCM = "is a library of ROCm, and"
MUTATIONS: list[Row] = [
    ("own-way", "", lead("$ORIGIN/lib"), ""),
    ("second-way", "", lead("/usr/lib64:${ORIGIN}/../demo/lib/"), ""),
    ("other-way", "RW031 error", lead("$ORIGIN/libs"), OWN),
    ("no-way", "RW031 error", lead(None), OWN),
    ("other-file", "RW031 error", lead("$ORIGIN/lib", file="demo/lib/libown-2.so.1"), OWN),
    ("preloaded", "", lead(None, init=NAMES_ONE.format("libown.so.1")), ""),
    ("all-preloaded", "", lead(None, init=ALL_OF_A_FOLDER), ""),
    ("other-preloaded", "RW031 error", lead(None, init=NAMES_ONE.format("libother.so")), OWN),
    ("moved-folder", "RW031 error", move_folder, "libother.so.1 is inside"),
    ("hip-of-rocm", "RW030 error", add_named(HIP_FILE, requires=["rocm[libraries]==7.1.0"]), OF_ROCM),
    (
        "grafted-hip-of-rocm",
        "RW030 error",
        add_named(HIP_GRAFT, requires=["rocm[libraries]==7.1.0"]),
        OF_ROCM,
    ),
    ("hip-of-torch", "RW030 error", add_named(HIP_FILE, requires=["torch==2.9.0+rocm7.1.0"]), OF_ROCM),
    (
        "grafted-hip-of-torch",
        "RW030 error",
        add_named(HIP_GRAFT, requires=["torch==2.9.0+rocm7.1.0"]),
        OF_ROCM,
    ),
    ("unlisted", "RW001 error", become(unlisted={"demo/x.py": b""}), "not listed"),
    ("cut", "RW001 error", put(HIP, LINUX[HIP][:-70]), "reaches past the end"),
    ("pure-tag", "RW003 error", become(tag="py3-none-any"), "any platform"),
    ("field", "RW005 warning", say("License-Expression: do what you like"), "license-expression"),
    ("unknown-field", "RW005 warning", say("Colour: red"), "colour is unknown"),
    ("content-type", "RW005 warning", say("Description-Content-Type: text/html"), "text/html"),
    ("summaries", "RW005 warning", say("Summary: one", "Summary: two"), "given twice"),
    ("two-lines", "RW005 warning", say("Summary: one\n        two"), "a single line"),
    ("authors", "RW005 warning", say("Author: A", "Author: B"), "author is given twice"),
    ("dynamic", "RW005 warning", say("Dynamic: Version"), "not allowed as a dynamic field"),
    ("no-form", "RW005 error", become(metadata=OLD_FORM.replace(b"1.0", b"9.9", 1)), "metadata-version"),
    ("no-extra-name", "RW005 error", say("Provides-Extra: !!"), "provides-extra"),
    ("labels", "RW005 warning", say("Project-URL: A, https://a", "Project-URL: A, https://b"), "same label"),
    ("several-urls", "", say("Project-URL: A, https://a", "Project-URL: B, https://b"), ""),
    ("old-form", "RW005 error", become(metadata=OLD_FORM), "introduced in metadata version 1.2"),
    ("newer-field", "", become({"demo-1.0.dist-info/LICENSE": b""}, metadata=SETUPTOOLS), ""),
    ("extra-twice", "RW005 warning", say("Provides-Extra: A_b", "Provides-Extra: a-b"), "a-b twice"),
    ("no-extra", "RW005 warning", require("other; extra == 'X_y'"), "extra x-y, and does not"),
    ("own-extra", "", become(requires=["other; extra == 'X_y'"], fields=["Provides-Extra: x-y"]), ""),
    ("two-licences", "RW005 warning", say("License-Expression: MIT", OLD_LICENCE), "MIT License"),
    ("no-python", "RW006 warning", become(python=""), "no Requires-Python"),
    ("place", "RW007 error", require("x @ file:///x.whl"), "file:///x.whl"),
    ("installer", "RW011 error", put("demo-1.0.dist-info/INSTALLER", "pip\n"), "INSTALLER"),
    ("tags", "RW023 warning", become(wheel_tag="cp311-cp311-linux_x86_64"), "tags"),
    ("pure", "RW024 warning", become(pure="true"), "Root-Is-Purelib"),
    (
        "no-digest",
        "RW025 warning",
        become(record={"demo/__init__.py": "demo/__init__.py,,"}),
        "without a digest",
    ),
    ("absolute", "RW021 warning", run_path("$ORIGIN:/home/ci/lib"), "/home/ci/lib"),
    ("system", "", run_path("$ORIGIN:/usr/lib64"), ""),
    ("leaving", "RW021 warning", run_path("$ORIGIN/../../../lib"), "outside of site-packages"),
    ("python-folder", "RW021 warning", run_path("$ORIGIN/python3.11/x"), "folder of one Python"),
    ("sibling", "", run_path("$ORIGIN/../../_rocm_sdk_core/lib"), ""),
    ("empty", "RW046 warning", run_path("$ORIGIN:"), "an empty entry"),
    ("relative", "RW046 warning", run_path("lib"), "relative to the current folder"),
    ("stack", "RW026 error", put(HIP, library("gfx942", "gfx1100", stack=7)), HIP),
    ("no-stack", "RW026 error", put(HIP, library("gfx942", "gfx1100", stack=None)), HIP),
    ("textrel", "RW027 warning", x_so(flags=4), "demo/x.so"),
    ("soname", "RW028 warning", x_so(soname="libtorch_hip.so"), HIP),
    ("copy", "", put("demo/libtorch_hip.so.1", LINUX[HIP]), ""),
    ("two-hips", "RW029 error", add_named(*HIPS, distribution="rocm_demo"), "two HIP runtimes"),
    ("omp", "RW029 error", add_named(GOMP, "demo.libs/libomp.so"), "several OpenMP runtimes"),
    (
        "two-omps",
        "RW029 error",
        add_named(GOMP, "demo.libs/libgomp-4e5f6a7b.so.1.0.0"),
        "several OpenMP runtimes",
    ),
    ("copied-omp", "", become({"demo/lib/libgomp.so.1": OMP, "demo.libs/libgomp.so.1": OMP}), ""),
    ("graft", "RW030 warning", add_named("demo.libs/librocblas-0a1b2c3d.so.5"), "a repair took"),
    ("asan", "RW094 error", x_so(needed=("libasan.so.8",)), "the version does not say so: demo/x.so"),
    ("stray", "RW031 info", x_so(needed=("libstray.so",)), "libstray.so"),
    ("other-list", "RW033 error", state(b"gfx942 gfx90a"), "states gfx942 gfx90a"),
    ("longer-list", "RW033 warning", state(b"gfx942 gfx1100 gfx90a"), "states gfx942 gfx1100 gfx90a"),
    ("no-co", "RW034 error", drop(f"{TENSILE}{SGEMM}.co"), f"lacks files for gfx942: {SGEMM}.co"),
    ("no-dat", "RW034 error", drop(f"{TENSILE}{SGEMM}.dat"), f"{SGEMM}.dat"),
    ("no-fallback", "RW034 error", drop(f"{TENSILE}{FALLBACK}_gfx942-xnack+.hsaco"), "xnack+.hs"),
    ("extra-dat", "RW034 warning", put(f"{TENSILE}TensileLibrary_B_gfx942.dat", b"1"), "not name"),
    (
        "no-list",
        "RW034 error",
        put(f"{TENSILE}TensileLibrary_Type_SS_gfx1100.co", b"1"),
        "files for gfx1100 and no list",
    ),
    ("empty-co", "RW034 error", put(f"{TENSILE}{SGEMM}.co", b""), "is empty"),
    ("empty-dat", "RW034 error", put(f"{TENSILE}{SGEMM}.dat", b""), "is empty"),
    ("text-co", "RW034 error", put(f"{TENSILE}{SGEMM}.co", b"no code"), "holds no code object"),
    (
        "lying-co",
        "RW034 error",
        put(f"{TENSILE}{SGEMM}.co", OTHER_CODE),
        "is named for gfx942, and holds code for gfx1100",
    ),
    (
        "lying-setting",
        "RW034 error",
        put(f"{TENSILE}{FALLBACK}_gfx942-xnack+.hsaco", CODE_OFF),
        "holds code for gfx942:xnack-",
    ),
    ("lying-folder", "RW034 error", put("demo/hsa/gfx942/x.co", OTHER_CODE), "gfx1100"),
    ("own-folder", "", put("demo/hsa/gfx942/x.co", CODE), ""),
    ("lost-list", "RW034 error", drop(f"{TENSILE}TensileLibrary_lazy_gfx942.dat"), "no list"),
    ("broken-list", "RW001 error", put(f"{TENSILE}TensileLibrary_lazy_gfx942.dat", b"\xde"), "lazy"),
    (
        "other-database",
        "RW035 warning",
        put("demo/lib/hipblaslt/library/extop_gfx90a.co", elf_header(224, MACHINES["gfx90a"], abi=3)),
        "hipBLASLt has no kernel files for gfx942",
    ),
    ("old-code", "RW036 warning", x_so(fatbin=bundle("gfx942", abi=1)), "of version V3"),
    ("mixture", "RW037 error", become(MIXED), "gfx942:xnack+ alone"),
    ("half-mixture", "RW037 warning", x_so("gfx942", "gfx942:xnack+"), "some is for any setting"),
    ("generic", "RW038 error", x_so("gfx11-generic", "gfx942"), "older than V6"),
    ("generic-v6", "RW038 info", x_so(fatbin=bundle("gfx11-generic", abi=4)), "passes over it"),
    ("family", "RW039 error", require("rocm-sdk-libraries-gfx1151"), "rocm-sdk-libraries-gfx1151"),
    ("own-family", "", require("rocm-sdk-libraries-gfx94X-dcgpu"), ""),
    ("own-start", "", put("demo/_rocm_init.py", OTHERS_INIT), ""),
    (
        "old-start",
        "RW013 error",
        become({"demo/_rocm_init.py": OTHERS_INIT.encode()}, requires=["rocm==7.2.0"]),
        "checks for ROCm 7.1.0, and METADATA requires 7.2.0",
    ),
    ("path", "RW041 info", x_so(sections={b".rodata": HOME_PATH.encode() + b"\0"}), HOME_PATH),
    ("debug", "RW042 info", put("demo/x.so", DEBUG), "2.0 KiB"),
    ("token", "RW043 error", put("demo/x.py", TOKEN), "a token of GitHub"),
    ("key", "RW043 error", put("demo/x.pem", KEY), "a private key"),
    ("test-key", "RW043 warning", put("demo/tests/x.pem", KEY), "a private key"),
    ("key-in-library", "RW043 error", x_so(sections={b".rodata": KEY}), "a private key"),
    ("url", "RW043 error", say("Home-page: https://bob:secret@example.com/x"), "https://***@example.com/x"),
    ("user", "", say("Project-URL: Source, git+ssh://git@github.com/demo/demo"), ""),
    ("name", "", say("Home-page: https://bob@bitbucket.org/demo"), ""),
    ("token-as-user", "RW043 error", say(f"Home-page: https://{TOKEN[9:-2]}@example.com/x"), "of GitHub"),
    ("query-key", "RW043 warning", say("Project-URL: Demo, https://example.com/?key=demo"), "?key=***"),
    ("proxy-in-readme", "", become(metadata=CRLF_README), ""),
    ("cut-key", "RW043 error", put("demo/x.pem", KEY[:60]), "a private key (PRIVATE KEY…)"),
    ("end-of-key", "RW043 error", put("demo/x.pem", KEY[40:] + KEY_END), "a private key (PRIV"),
    ("whole-key", "RW043 error", put("demo/x.pem", KEY + KEY_END), "a private key (PRIVATE KEY…)"),
    ("key-in-source", "RW043 error", put("demo/x.py", KEY.replace(b"\n", b"\\n")), "a private key"),
    ("key-in-comment", "RW043 error", put("demo/x.py", b"# " + KEY.replace(b"\n", b"\n# ")), "key"),
    ("key-of-pgp", "RW043 error", put("demo/x.asc", PGP_KEY), "a private key"),
    ("example-of-key", "", put("demo/x.py", "-----BEGIN PRIVATE KEY-----\n...\n"), ""),
    ("no-key", "", put("demo/x.py", "begin = '-----BEGIN PRIVATE KEY-----'\n"), ""),
    ("licence", "RW044 error", say("License-File: LICENSE"), "LICENSE"),
    ("pth", "RW055 warning", put("demo.pth", "import demo\n"), "import demo"),
    ("outer-pth", "RW055 warning", put("demo.pth", "/opt/demo\n"), "/opt/demo"),
    ("inner-pth", "", put("demo.pth", "# ours\ndemo/parts\n"), ""),
    ("deep-pth", "", put("demo/model.pth", b"import weights"), ""),
    ("customize", "RW055 error", put("sitecustomize.py", ""), "sitecustomize.py"),
    ("python", "RW056 error", put(f"{DATA}/scripts/python3", ""), "scripts/python3"),
    ("program", "", put(f"{DATA}/scripts/python-demo", ""), ""),
    ("entry", "RW056 error", entry_points("../demo = demo:main"), "../demo"),
    ("twin", "RW058 error", put("demo/LIB/x.py", ""), "demo/lib"),
    ("entry-line", "RW059 error", entry_points("demo = demo;main"), "entry_points.txt"),
    ("control", "RW059 error", say("Summary: \x1b]0;demo\x07"), "U+001B"),
    ("form", "RW059 error", put("demo-1.0.dist-info/variant.json", "{}"), "variant.json"),
    ("bill", "", put(BILL, bill("demo", "1.0")), ""),
    ("spelled-bill", "", put(BILL, bill("Demo", "1.0.0")), ""),
    ("numbered-bill", "RW059 error", put(BILL, bill("demo", 1)), "is not the bill of materials of demo 1.0"),
    ("other-bill", "RW059 error", put(BILL, bill("demo", "0.9")), "is not the bill of materials of demo 1.0"),
    ("odd-bill", "RW059 error", put(BILL, b'{"metadata": [1]}'), "is not the bill of materials of demo"),
    ("cut-bill", "RW059 error", put(BILL, bill("demo", "1.0")[:20]), "is not JSON"),
    ("cut-lock", "RW059 error", put("demo-1.0.dist-info/sources.lock.json", b"{"), "is not JSON"),
    ("variant", "", vary("gfx942", "gfx1100"), ""),
    ("other-label", "RW059 error", vary("gfx942", label="rocm6"), "the file name has the label rocm7"),
    (
        "other-targets",
        "RW059 error",
        vary("gfx942", "gfx1201"),
        "is for gfx1201, which the wheel has no code",
    ),
    ("other-rocm", "RW059 error", vary("gfx942", rocm="6.4"), "is for ROCm 6.4, and METADATA requires 7.1.0"),
    ("machine", "RW045 error", x_so(machine=183), "is for aarch64"),
    ("empty-library", "RW045 warning", put("demo/x.so", b""), "is empty"),
    ("empty-module", "RW045 error", put(MODULE, b""), "is empty"),
    ("pointer", "RW045 error", put(MODULE, b"version https://git-lfs.github.com/spec/v1\n"), "no ELF file"),
    ("test-module", "RW045 warning", put("demo/tests/data/_x.abi3.so", b"text\n"), "no ELF file"),
    ("empty-test-module", "RW045 warning", put(MODULE.replace("demo/", "demo/tests/"), b""), "is empty"),
    ("linker-script", "", put("demo/lib/libx.so", b"INPUT(libx.so.1)\n"), ""),
    ("word-size", "RW045 error", put(MODULE, library(machine=3)), "is for machine 3"),
    ("narrow", "RW045 error", put("demo/x.so", NARROW), "is for machine 3 (32 bits"),
    ("told", "RW045 info", put("demo/i386/x.so", NARROW), "32 bits"),
    ("other-python", "RW060 error", other_module("cpython-312"), "3.11"),
    ("threads", "RW060 error", other_module("cpython-311t"), "3.11"),
    ("several-pythons", "", become(SEVERAL_PYTHONS), ""),
    ("stable", "", put("demo/_x.abi3.so", OMP), ""),
    (
        "stable-tag",
        "RW060 error",
        become({MODULE: OMP}, tag="cp311-abi3-manylinux_2_17_x86_64"),
        "3.11 and later",
    ),
    (
        "every-python",
        "RW060 warning",
        become({MODULE: OMP}, tag=f"py3-none-{LINUX_TAG}"),
        "for Python 3.11 alone",
    ),
    ("one-python", "", become({MODULE: OMP}, tag=f"py3-none-{LINUX_TAG}", python="==3.11.*"), ""),
    (
        "named-machine",
        "RW060 error",
        other_module("cpython-311", "aarch64-linux-gnu.so"),
        "is named for aarch64-linux-gnu",
    ),
    ("pyd", "RW060 error", other_module("cp311", "win_amd64.pyd"), "of another system"),
    ("entry-module", "RW091 error", entry_points("demo = demo.nowhere:main"), "demo.nowhere"),
    ("entry-there", "", entry_points("demo = demo:main"), ""),
    ("entry-elsewhere", "RW091 error", entry_points("demo = other:main"), "leads to other"),
    ("entry-required", "", become({ENTRY: DEMO_OF_OTHER}, requires=["other"]), ""),
    ("upper-case", "RW092 error", rename("demo", "Demo"), "Demo"),
    ("zero-version", "RW092 error", rename("1.0", "v1.0"), "must say demo-1.0"),
    ("old-spelling", "RW092 warning", become(distribution="De.mo"), "must say de_mo"),
    ("one-bundle", "RW093 warning", become(lack(1)), "1 of its 20 bundles"),
    ("one-bundle-of-ours", "RW093 error", become(lack(1), distribution="apex"), "1 of its 20 bundles"),
    ("emptied-bundle", "RW093 error", become(lack(1, emptied=True)), "1 of its 20 bundles"),
    ("many-bundles", "RW093 info", become(lack(8)), "8 of its 20 bundles"),
    ("own-machine", "RW045 info", put("demo/attach-aarch64.so", library(machine=183)), "aarch64"),
    ("no-311", "RW006 error", become(python=">=3.12"), "shuts out 3.11"),
    ("not-311", "RW006 error", become(python=">=3.10,!=3.11.*"), "cp311"),
    ("patch-release", "", become(python=">=3.11.4"), ""),
    ("specifier", "RW005 error", become(python=">>3"), "a field cannot be read"),
    ("long-python", "RW005 error", become(python=f">={LONG}"), "Requires-Python has a number of 1000 digits"),
    ("long-pin", "RW005 error", require(f"other=={LONG}"), "Requires-Dist has a number of 1000 digits"),
    (
        "long-form",
        "RW005 error",
        become(metadata=OLD_FORM.replace(b"1.0", LONG.encode(), 1)),
        "Metadata-Version has a number of 1000 digits",
    ),
    (
        "long-version",
        "RW005 error",
        become(metadata=OLD_FORM.replace(b"Version: 1.0\nReq", f"Version: {LONG}\nReq".encode())),
        "Version has a number of 1000 digits",
    ),
    ("long-summary", "", say(f"Summary: {LONG}"), ""),
    ("tmp", "RW021 error", run_path("$ORIGIN:/tmp/build/lib"), "where anybody can put some"),
    ("used-soname", "RW028 error", become(TWIN), "libtorch_hip.so"),
    ("stray-module", "RW031 error", need("libstray.so"), "libstray.so is neither"),
    ("stray-behind", "RW031 error", become(BEHIND), "libz9.so is neither"),
    ("libpython", "RW031 warning", need("libpython3.11.so.1.0"), "is linked to libpython3.11.so.1.0"),
    ("driver", "RW031 info", need("libamdhip64.so.7", "libcuda.so.1"), "libamdhip64.so.7, libcuda.so.1"),
    (
        "openmp-of-torch",
        "RW031 info",
        need("libgomp.so.1", requires=("torch",)),
        "that it requires: libgomp.so.1",
    ),
    (
        "its-package",
        "RW031 info",
        need("libarrow.so.2600", requires=("numpy", "pyarrow")),
        "packages that it requires: libarrow.so",
    ),
]


def test_ids_are_for_good() -> None:
    assert {check.id: check.name for check in CHECKS} == IDS
    assert [check.id for check in CHECKS] == sorted(IDS)
    assert all(check.looks_for and check.why and check.fix for check in CHECKS)


@pytest.mark.parametrize("draft", [linux(), windows()], ids=["linux", "windows"])
def test_nothing_is_found_in_a_wheel_without_faults(draft: Draft, tmp_path: Path) -> None:
    report = audit(draft, tmp_path)
    assert report.findings == ()
    reasons = {skip.check: skip.reason for skip in report.skipped}
    assert {check.name for check in CHECKS if check.needs_recipe} <= set(reasons)


@pytest.mark.parametrize(("named", "change", "words"), name_rows(MUTATIONS))
def test_one_mutation_is_named_by_exactly_one_check(
    named: str, change: Mutation, words: str, tmp_path: Path
) -> None:
    draft = linux()
    change(draft)
    report = audit(draft, tmp_path)
    assert_named(report.findings, named, words)
    assert report.passed == (not named.endswith("error"))


def become_linux(draft: Draft) -> None:
    draft.members = {"demo/__init__.py": b"", "demo/x.so": library()}


WINDOWS_MUTATIONS: list[Row] = [
    ("dll", "RW032 error", put("demo/demo.pyd", dll("stray.dll")), "stray.dll"),
    ("delayed", "RW032 error", put("demo/demo.pyd", dll(delayed=("Stray.DLL",))), "stray.dll"),
    ("case", "", put("demo/demo.pyd", dll("DEMO_more.dll", "kernel32.DLL", delayed=("OTHER.dll",))), ""),
    ("module", "RW045 error", build_for(PE_ARM64, "demo/demo.pyd"), "is for arm64"),
    ("loaded", "RW045 error", build_for(PE_I386, "demo/demo_more.dll"), "the wheel for amd64"),
    ("called", "RW045 error", build_for(PE_ARM64, "demo/called.dll"), "is for arm64"),
    ("told", "RW045 info", build_for(PE_ARM64, "demo/arm64/called.dll"), "is for arm64"),
    ("assembly", "", build_for(PE_I386, "demo/called.dll"), ""),  # one for all machines says so, too
    ("program", "", build_for(PE_I386, "demo/t32.exe"), ""),
    ("of-linux", "RW045 error", become_linux, "is for Linux on x86_64, the wheel for amd64"),
]


@pytest.mark.parametrize(("named", "change", "words"), name_rows(WINDOWS_MUTATIONS))
def test_one_mutation_of_a_wheel_for_windows_is_named(
    named: str, change: Mutation, words: str, tmp_path: Path
) -> None:
    draft = windows()
    change(draft)
    assert_named(audit(draft, tmp_path).findings, named, words)


def test_what_required_packages_have_is_told_from_what_nobody_has(tmp_path: Path) -> None:
    """The requirement is read with the wheels at hand: a library that was renamed there is missing."""
    (tmp_path / "other").mkdir()
    hip = library(soname="libamdhip64.so.7")
    core = Draft("rocm", "7.1.0", "py3-none-linux_x86_64", members={"_rocm/lib/libamdhip64.so.7": hip})
    draft = linux()
    draft.requires = ["rocm[libraries]==7.1.0", "absent"]
    draft.members["demo/x.so"] = library(needed=("libamdhip64.so.7", "libabsent.so"))
    unknown = audit(draft, tmp_path)
    assert [finding.severity for finding in unknown.findings] == ["info"]
    there = required_packages.PackagePool.collect([core.write(tmp_path)], (), None, {})
    report = audit(draft, tmp_path, packages=there)
    assert ["libabsent.so" in finding.message for finding in report.findings] == [True]
    core.members = {"_rocm/lib/libamdhip64.so.7": library(soname="libamdhip64.so.8")}
    renamed = required_packages.PackagePool.collect([core.write(tmp_path / "other")], (), None, {})
    report = audit(draft, tmp_path, packages=renamed)
    missing = [finding for finding in report.findings if finding.severity == "warning"]
    assert [(f.check, f.subject) for f in missing] == [("needed-libraries", "demo/x.so")]
    assert "libamdhip64.so.7 is neither in the wheel" in missing[0].message


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs cc on Linux")
def test_a_tag_is_compared_with_the_symbols_that_a_compiled_library_needs(tmp_path: Path) -> None:
    source, compiled = tmp_path / "x.c", tmp_path / "x.so"
    source.write_text("#include <pthread.h>\nint f(pthread_t t) { return pthread_kill(t, 0); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-s", source, "-o", compiled], check=True)
    for tag, checks in (("manylinux_2_17_x86_64", ["elf-tag-too-old"]), ("manylinux_2_39_x86_64", [])):
        draft = linux()
        draft.tag = f"cp311-cp311-{tag}"
        draft.members["demo/x.so"] = compiled.read_bytes()
        findings = audit(draft, tmp_path).findings
        assert [finding.check for finding in findings] == checks
        assert all("in demo/x.so" in finding.message for finding in findings)


def test_wheels_of_ours_are_held_to_more(tmp_path: Path) -> None:
    """What is untidy in others' wheels is an error in those that a recipe speaks of."""
    triton = audited_wheel.WheelExpectation(load_project("triton"), "linux")
    draft = Draft("triton", "3.5.0", "cp311-cp311-manylinux_2_17_x86_64")
    draft.members = {"triton/__init__.py": b"", "triton/_C/libtriton.so": library(run_path="$ORIGIN:")}
    draft.wheel_tag = "cp311-cp311-linux_x86_64"
    report = verify.verify_wheel(draft.write(tmp_path), triton)
    assert {f.check: f.severity for f in report.findings} == {
        "wheel-tags": "error",
        "open-run-paths": "error",
    }
    report = verify.verify_wheel(draft.write(tmp_path), replace(triton, project=None))
    assert {f.severity for f in report.findings} == {"warning"}


def test_what_pypi_refuses_of_an_archive_that_can_be_read(tmp_path: Path) -> None:
    path = linux().write(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"made by hand"
    report = verify.verify_wheel(path, audited_wheel.WheelExpectation(None, "linux"))
    assert [(f.check, f.severity) for f in report.findings] == [("archive-form", "error")]


def test_a_file_that_is_not_named_like_a_wheel_is_told_beside_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = linux().write(tmp_path)
    renamed = path.rename(tmp_path / "device.whl")
    good = Draft("good", "1.0", "py3-none-any", members={"good.py": b""}).write(tmp_path)
    code, out, _ = run(capfd, renamed, good, "--json")
    assert code == 14
    named = [[finding["id"] for finding in report["findings"]] for report in json.loads(out)["wheels"]]
    assert named == [["RW001"], []]


def test_a_large_file_is_told_of_limits(tmp_path: Path) -> None:
    scan = replace(scan_wheel(linux().write(tmp_path)), size=101 << 20)
    subject = audited_wheel.AuditedWheel(scan, audited_wheel.WheelExpectation(None, "linux"))
    assert_named(verify.check_wheel(subject).findings, "RW040 info", "more than PyPI takes")


def test_a_check_is_a_function_and_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is read of a library is there for it: nothing else has to be changed."""

    def find_unnamed(wheel: Any) -> list[errors.Finding]:
        unnamed = [name for name, binary in wheel.binaries.items() if binary.loader.soname is None]
        return [errors.Finding("warning", "has no SONAME", subject=name) for name in unnamed]

    row = AuditCheck("RW999", "unnamed", "warning", "libraries have names", "why", "fix", find=find_unnamed)
    monkeypatch.setattr("rocm_wheels.audit.verify.CHECKS", (*CHECKS, row))
    draft = linux()
    draft.members["demo/x.so"] = library()
    report = audit(draft, tmp_path)
    assert [(f.check, f.subject, f.tip) for f in report.findings] == [("unnamed", "demo/x.so", "fix")]


def test_what_was_found_before_a_check_could_not_look_on_stays(tmp_path: Path) -> None:
    def find(unnamed: list[str]) -> Iterator[errors.Finding]:
        for name in unnamed:
            yield errors.Finding("error", "has no SONAME", subject=name)
        raise Skip("the next library is damaged")

    row = AuditCheck("RW999", "unnamed", "error", "libraries have names", "why", "fix", find=find)
    findings = row.run(["a.so", "b.so"])
    assert isinstance(findings, tuple)
    assert [(f.severity, f.subject, f.check) for f in findings] == [
        ("error", "a.so", "unnamed"), ("error", "b.so", "unnamed"), ("info", "", "unnamed"),
    ]  # fmt: skip
    assert findings[-1].message == "not all was looked at: the next library is damaged"
    assert row.run([]) == SkippedCheck("the next library is damaged", "unnamed")


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = boundary.run_command(main.cli, ["audit", *map(str, words)])
    return code, *capfd.readouterr()


def stacked(folder: Path) -> Path:
    draft = linux()
    draft.members["demo/<b>.so"] = library(stack=7, run_path="/opt/x")
    return draft.write(folder)


def test_a_windows_that_no_table_knows_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wheel = replace(windows(), tag="cp311-cp311-win_ia64").write(tmp_path)
    out = tmp_path / "out"
    code = boundary.run_command(main.cli, ["wheel", "repair", str(wheel), "--output-dir", str(out)])
    assert (code, out.exists()) == (2, False), capfd.readouterr().err


def test_command_says_what_is_wrong_and_what_each_check_means(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = Draft("good", "1.0", "py3-none-any", members={"good.py": b""}).write(tmp_path)
    assert run(capfd, good)[0] == 0
    bad, cut = stacked(tmp_path), tmp_path / "cut-1.0-py3-none-any.whl"
    cut.write_bytes(good.read_bytes()[:-40])
    code, out, _ = run(capfd, good, bad, cut, "--json")
    assert code == 14
    reports = json.loads(out)["wheels"]
    named = [[(f["id"], f["check"]) for f in report["findings"]] for report in reports]
    assert named == [[], [("RW021", "run-paths"), ("RW026", "executable-stack")], [("RW001", "archive")]]
    assert [report["passed"] for report in reports] == [True, False, False]
    code, out, _ = run(capfd, "--explain", "executable-stack", "--json")
    assert code == 0 and json.loads(out)["checks"][0]["id"] == "RW026"
    code, out, _ = run(capfd, "--explain")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == [check.id for check in ALL_CHECKS]


def test_good_wheels_are_a_line_each_and_what_failed_stands_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    goods = [Draft(f"good{n}", "1.0", "py3-none-any", members={f"good{n}.py": b""}) for n in range(5)]
    wheels = [good.write(tmp_path) for good in goods]
    code, out, _ = run(capfd, *wheels)
    assert code == 0 and [line.split(":")[0] for line in out.splitlines()] == [
        f"passed {wheel.name}" for wheel in wheels
    ]
    draft = linux()
    for number in range(61):
        draft.members[f"demo/lib/x{number}.so"] = library(run_path=f"/tmp/builds/{number}", stack=7)
    code, out, _ = run(capfd, *wheels, draft.write(tmp_path))
    lines = out.splitlines()
    assert code == 14 and lines[0].startswith("FAILED demo-1.0") and len(lines) < 30
    assert "    demo/lib/x0.so, demo/lib/x1.so, demo/lib/x10.so, 58 more" in lines, "61 of one message"
    assert "  58 other findings of run-paths: --json and --report have all" in lines


def test_of_a_set_a_recipe_is_held_to_its_own_wheel_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = {torch_draft().write(tmp_path): "pytorch", linux().write(tmp_path): ""}
    _, out, _ = run(capfd, "--set", tmp_path, "--by-recipe", "--json")
    reports = sorted(json.loads(out)["wheels"], key=lambda report: report["recipe"], reverse=True)
    assert [report["recipe"] for report in reports] == list(paths.values())
    ran = [set(report["ran"]) & {check.name for check in CHECKS if check.needs_recipe} for report in reports]
    assert {"device-code", "files"} <= ran[0] and ran[1] == set()
    assert "rocm-init" in reports[0]["ran"] and "rocm-init" in reports[1]["skipped"]


@pytest.mark.parametrize(
    ("member", "allowed", "by"),
    [
        ("functorch/__init__.py", {}, "names"),
        ("functorch.cpython-311-x86_64-linux-gnu.so", {}, "names"),
        ("{stem}.data/platlib/functorch/__init__.py", {}, "names"),
        ("torch.libs/libgomp-0a1b2c3d.so.1", {}, ""),
        ("{stem}.data/scripts/torchrun", {}, "scripts"),
        ("{stem}.data/data/share/man/man1/torch.1", {"data": ("share/man/*",)}, "data"),
        ("{stem}.data/headers/torch.h", {"data": ("headers/*",)}, "data"),
        ("torch.pth", {"startup_files": ("torch.pth",)}, "startup_files"),
    ],
)
def test_a_recipe_allows_what_it_names_and_device_wheels_names_alone(
    member: str, allowed: dict[str, tuple[str, ...]], by: str, tmp_path: Path
) -> None:
    project = load_project("pytorch")
    contents = project.checks.contents.model_copy(update=allowed)
    silent = project.checks.contents.model_copy(update={by: ()} if by else {})
    for distribution in ("torch", "amd_torch_device_gfx942"):
        draft = Draft(distribution, "2.9.0", "py3-none-any")
        draft.members = {"torch/x": b"", member.format(stem=f"{distribution}-2.9.0"): b""}
        scan = scan_wheel(draft.write(tmp_path))
        codes = []
        for lines in (contents, silent):
            checks = project.checks.model_copy(update={"contents": lines})
            recipe = project.model_copy(update={"checks": checks})
            codes.append({f.check for f in find_disallowed_contents(scan.contents, distribution, recipe)})
        refused = {"startup-files" if by == "startup_files" else "allowed-contents"}
        is_part = distribution != "torch"
        of_part = refused if by != "names" or member.startswith("torch.libs") else set[str]()
        assert codes == ([of_part, refused] if is_part else [set(), refused if by else set()])


def test_without_the_tables_of_others_checks_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("auditwheel", "auditwheel.architecture", "delvewheel"):
        monkeypatch.setitem(sys.modules, module, None)
    for draft, checks in ((linux(), {"elf-tag-too-old", "needed-libraries"}), (windows(), {"imported-dlls"})):
        skipped = {skip.check: skip.reason for skip in audit(draft, tmp_path).skipped}
        assert all("rocm-wheels[build]" in skipped[check] for check in checks)


def test_what_a_damaged_wheel_says_is_not_cut_at_a_tip(tmp_path: Path) -> None:
    path = linux().write(tmp_path)
    damage = errors.DataError(f"{path} says\ntip: x", tip="y")
    report = verify.make_unreadable_report(path, damage, audited_wheel.WheelExpectation(None, "linux"))
    assert [(finding.message, finding.tip) for finding in report.findings] == [("says\ntip: x", "y")]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("WHEEL", "--ignore", "RW026"), 0),
        (("WHEEL", "--ignore", "executable-stack:demo/*.so"), 0),
        (("WHEEL", "--ignore", "RW026:other/*"), 14),
        (("WHEEL", "--ignore", "RW9"), 2),
        (("WHEEL", "--explain", "nothing"), 2),
        (("WHEEL", "--recipe", "pytorch"), 14),
        (("WHEEL", "--recipe", "torch"), 14),
        (("WHEEL", "--recipe", "nothing"), 2),
        (("WHEEL", "--by-recipe"), 2),
        (("WHEEL", "--report", "findings.txt"), 2),
        (("WHEEL", "--find-links", "/no/such/folder"), 2),
        (("WHEEL", "--policy", "/no/such/file"), 2),
    ],
)
def test_exit_codes(
    words: tuple[str, ...], code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wheel = stacked(tmp_path)
    assert run(capfd, *(wheel if word == "WHEEL" else word for word in words))[0] == code


@pytest.mark.parametrize(
    ("entry", "code", "ids"),
    [
        ({"check": "RW026", "expires": "2999-01-01"}, 0, ["RW021"]),
        ({"check": "RW026", "expires": "2999-01-01", "file": "demo/*.so"}, 0, ["RW021"]),
        ({"check": "RW026", "expires": "2999-01-01", "wheel": "other-*"}, 14, ["RW021", "RW026"]),
        ({"check": "executable-stack", "expires": "2020-01-01"}, 14, ["RW021", "RW026", "RW048"]),
        ({"check": "RW026"}, 2, None),
        ({"check": "RW99", "expires": "2999-01-01"}, 2, None),
    ],
)
def test_an_exception_has_an_owner_a_reason_and_an_end(
    entry: dict[str, str], code: int, ids: list[str] | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps({"ignore": [{"owner": "ann", "reason": "until the next build", **entry}]}))
    ended, out, _ = run(capfd, stacked(tmp_path), "--policy", policy, "--json")
    assert ended == code
    if ids is not None:
        [report] = json.loads(out)["wheels"]
        assert sorted(finding["id"] for finding in report["findings"]) == ids
        assert len(report["ignored"]) == 2 - len({*ids} - {"RW048"})


def test_files_for_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """SARIF by structure (no package here has its schema), JUnit by our reader, the page escaped."""
    wheel = stacked(tmp_path)
    sarif, junit, page = (tmp_path / name for name in ("a.sarif", "a.xml", "a.html"))
    words = ("--report", sarif, "--report", junit, "--report", page, "--ignore", "RW021")
    assert run(capfd, wheel, *words)[0] == 14
    log = json.loads(sarif.read_text())
    [run_of_log] = log["runs"]
    rules = run_of_log["tool"]["driver"]["rules"]
    assert log["version"] == "2.1.0" and [rule["id"] for rule in rules] == [check.id for check in ALL_CHECKS]
    results = {result["ruleId"]: result for result in run_of_log["results"]}
    assert set(results) == {"RW021", "RW026"}
    for result in results.values():
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]["artifactLocation"]
        artifact = run_of_log["artifacts"][place["index"]]
        assert artifact["location"]["uri"] == "/demo/%3Cb%3E.so"
        assert run_of_log["artifacts"][artifact["parentIndex"]]["location"]["uri"] == wheel.name
    assert results["RW026"]["level"] == "error" and "suppressions" not in results["RW026"]
    assert results["RW021"]["suppressions"] == [{"kind": "external"}]
    report = read_junit_report(junit)
    assert (report.counts["failed"], [*report.reasons]) == (1, ["audit::RW026 executable-stack"])
    assert report.counts["skipped"] > 10 and report.counts["passed"] > 20
    text = page.read_text()
    assert "<b>.so" not in text and "demo/&lt;b&gt;.so" in text


def test_no_file_for_others_has_the_credentials_that_a_wheel_has(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draft = linux()
    draft.requires.append("other @ https://user:hunter2@h.example/other.whl?token=s3cret-s3cret")
    reports = [tmp_path / name for name in ("a.sarif", "a.xml", "a.html")]
    words = [word for path in reports for word in ("--report", path)]
    code, out, err = run(capfd, draft.write(tmp_path), *words)
    assert code == 14
    for text in (out + err, *(path.read_text() for path in reports)):
        assert "https://***@h.example/other.whl" in text
        assert "hunter2" not in text and "s3cret" not in text


def test_findings_become_annotations_on_github(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    code, _, err = run(capfd, stacked(tmp_path))
    assert code == 14
    kinds = [line.split(" ")[0] for line in err.splitlines()]
    assert kinds.count("::warning::demo-1.0-cp311-cp311-manylinux_2_17_x86_64.whl:") == 1
    assert kinds.count("::error::demo-1.0-cp311-cp311-manylinux_2_17_x86_64.whl:") == 1
