"""Packed checkouts that somebody with other plans made: each is refused, or does nothing but be a tree."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from zstd_library import zstd

from rocm_wheels.cli.main import sources_group
from rocm_wheels.core import SourceError
from rocm_wheels.sources import pack_checkouts, unpack_checkouts

pytestmark = pytest.mark.skipif(os.name != "posix", reason="hooks, links and devices of POSIX")

ENV = {
    **os.environ,
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip
GIT_DIR, MODULE = "pytorch/.git", "pytorch/.git/modules/third_party/inner"
POINTER = "pytorch/third_party/inner/.git"


def run_git(folder: Path, *words: str, check: bool = True) -> str:
    settings = ("-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main")
    command = ["git", *settings, "-C", str(folder), *words]
    return subprocess.run(command, env=ENV, check=check, capture_output=True, text=True).stdout


@dataclass
class Member:
    """A member of an archive as somebody wants it."""

    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o755


@dataclass
class PackedTree:
    """What an honest file holds; ``marker`` is what a program writes that must never run."""

    members: list[Member]
    marker: Path

    @property
    def program(self) -> bytes:
        return f"#!/bin/sh\ntouch {self.marker}\ncat\n".encode()

    @property
    def command(self) -> str:
        return f"touch {self.marker}; cat"

    def read(self, name: str) -> bytes:
        return next(member.content for member in self.members if member.name == name)

    def replace(self, name: str, content: bytes) -> None:
        self.members = [member for member in self.members if member.name != name] + [Member(name, content)]

    def configure(self, folder: str, text: str) -> None:
        self.replace(f"{folder}/config", self.read(f"{folder}/config") + text.encode())

    def write(self, target: Path) -> Path:
        """Write the file: git's own first, as an honest one has them."""
        stream = io.BytesIO()
        with tarfile.open(mode="w", fileobj=stream, format=tarfile.PAX_FORMAT) as archive:
            for member in sorted(self.members, key=lambda member: member.name != "checkouts.json"):
                info = tarfile.TarInfo(member.name)
                info.type, info.linkname, info.mode = member.kind, member.link, member.mode
                info.size = len(member.content)
                archive.addfile(info, io.BytesIO(member.content))
        target.write_bytes(zstd.compress(stream.getvalue()))
        return target


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> list[Member]:
    """The members of a checkout with a submodule, a second commit and a link."""
    folder = tmp_path_factory.mktemp("honest")
    inner, outer = folder / "inner", folder / "trees" / "pytorch"
    for repository in (inner, outer):
        repository.mkdir(parents=True)
        run_git(repository, "init", "-q")
    (inner / "a.cu").write_text("inner")
    run_git(inner, "add", ".")
    run_git(inner, "commit", "-qm", "inner")
    (outer / "run.sh").write_text("#!/bin/sh\n")
    (outer / "link").symlink_to("run.sh")
    (outer / ".gitattributes").write_text("*.sh filter=evil diff=evil\n")
    run_git(outer, "submodule", "add", "-q", str(inner), "third_party/inner")
    run_git(outer, "add", ".")
    run_git(outer, "commit", "-qm", "outer")
    run_git(outer, "tag", "v1")
    pack_checkouts({"pytorch": outer}, folder / "s", env=ENV)
    with tarfile.open(fileobj=io.BytesIO(zstd.decompress((folder / "s").read_bytes()))) as archive:
        return [
            Member(
                info.name,
                archive.extractfile(info).read() if info.isreg() else b"",  # type: ignore[union-attr]
                info.type,
                info.linkname,
                info.mode,
            )
            for info in archive
        ]


def add(*members: Member) -> Callable[[PackedTree], None]:
    return lambda packed: packed.members.extend(members)


def add_hooks(packed: PackedTree) -> None:
    for folder in (GIT_DIR, MODULE):
        for hook in ("post-checkout", "post-index-change", "pre-commit", "post-commit", "fsmonitor-watchman"):
            packed.members.append(Member(f"{folder}/hooks/{hook}", packed.program))


def set_key(text: str, folder: str = GIT_DIR) -> Callable[[PackedTree], None]:
    def change(packed: PackedTree) -> None:
        packed.configure(folder, text.replace("COMMAND", packed.command))

    return change


def include_file(packed: PackedTree) -> None:
    packed.configure(GIT_DIR, "[include]\n\tpath = ../evil.ini\n")
    packed.members.append(Member("pytorch/evil.ini", f'[core]\n\tfsmonitor = "{packed.command}"\n'.encode()))


def use_worktree_config(packed: PackedTree) -> None:
    packed.configure(GIT_DIR, "[extensions]\n\tworktreeConfig = true\n")
    text = f'[core]\n\tfsmonitor = "{packed.command}"\n'
    packed.members.append(Member(f"{GIT_DIR}/config.worktree", text.encode()))


def set_attributes(packed: PackedTree) -> None:
    packed.configure(
        GIT_DIR, f'[filter "other"]\n\tclean = "{packed.command}"\n\tsmudge = "{packed.command}"\n'
    )
    packed.members.append(Member(f"{GIT_DIR}/info/attributes", b"* filter=other\n"))


def point(text: bytes) -> Callable[[PackedTree], None]:
    return lambda packed: packed.replace(POINTER, text)


def carry_own_repository(packed: PackedTree) -> None:
    """Have the submodule's repository inside of it, as a folder."""
    packed.members = [member for member in packed.members if member.name != POINTER]
    for member in list(packed.members):
        if member.name.startswith(f"{MODULE}/"):
            packed.members.append(Member(POINTER + member.name.removeprefix(MODULE), member.content))
    packed.members.append(Member(f"{POINTER}/hooks/post-checkout", packed.program))


def write_index_entry(path: str) -> Callable[[PackedTree], None]:
    """Have an index whose entry of run.sh is another path of as many letters."""

    def change(packed: PackedTree) -> None:
        old, new = b"run.sh", path.encode()
        content = packed.read(f"{GIT_DIR}/index")[:-20].replace(old, new)
        packed.replace(f"{GIT_DIR}/index", content + hashlib.sha1(content).digest())

    return change


def change_object(packed: PackedTree) -> None:
    """Have a blob hold other bytes than its name says."""
    oid = hash_content(b"#!/bin/sh\n")
    name = f"{GIT_DIR}/objects/{oid[:2]}/{oid[2:]}"
    packed.replace(name, zlib.compress(b"blob 10\0#!/bin/bad"))


def hash_content(content: bytes) -> str:
    command = ["git", "hash-object", "--stdin"]
    return subprocess.run(command, input=content, capture_output=True, check=True).stdout.decode().strip()


def inflate(packed: PackedTree) -> None:
    """Have an object of 2 GB of zeros in 2 MB."""
    packer = zlib.compressobj(9)
    content = packer.compress(b"blob 2147483648\0")
    content += b"".join(packer.compress(bytes(1 << 20)) for _ in range(2)) + packer.flush()
    packed.replace(f"{GIT_DIR}/objects/aa/{'b' * 38}", content)


CASES: dict[str, Callable[[PackedTree], None]] = {
    "hooks": add_hooks,
    "fsmonitor": set_key('[core]\n\tfsmonitor = "COMMAND"\n'),
    "fsmonitor of a submodule": set_key('[core]\n\tfsmonitor = "COMMAND"\n', MODULE),
    "hooks elsewhere": lambda packed: (
        packed.configure(GIT_DIR, "[core]\n\thooksPath = evil\n"),
        packed.members.append(Member("pytorch/evil/post-checkout", packed.program)),
    )[0],
    "filter": set_key('[filter "evil"]\n\tclean = "COMMAND"\n\tsmudge = "COMMAND"\n\trequired = true\n'),
    "filter of a submodule": set_key('[filter "evil"]\n\tclean = "COMMAND"\n', MODULE),
    "attributes": set_attributes,
    "include": include_file,
    "include by branch": set_key('[includeIf "onbranch:main"]\n\tpath = ../evil.ini\n'),
    "configuration of a working tree": use_worktree_config,
    "ssh": set_key('[core]\n\tsshCommand = "COMMAND"\n'),
    "alias": set_key('[alias]\n\tst = "!COMMAND"\n'),
    "diff": set_key('[diff "evil"]\n\ttextconv = "COMMAND"\n\tcommand = "COMMAND"\n[diff]\n\texternal = x\n'),
    "credentials and pager": set_key('[credential]\n\thelper = "!COMMAND"\n[core]\n\tpager = "COMMAND"\n'),
    "origin that is a program": set_key('[remote "evil"]\n\turl = "ext::sh -c COMMAND"\n'),
    "origin that is an option": set_key('[remote "evil"]\n\turl = "--upload-pack=COMMAND"\n'),
    "partial clone": set_key('[remote "origin"]\n\tpromisor = true\n\turl = "ext::COMMAND"\n'),
    "working tree elsewhere": set_key("[core]\n\tworktree = ../../..\n", MODULE),
    "update that is a program": set_key('[submodule "third_party/inner"]\n\tupdate = "!COMMAND"\n'),
    "configuration that is none": set_key("[core\n"),
    "alternates": add(Member(f"{GIT_DIR}/objects/info/alternates", b"/etc\n")),
    "common folder elsewhere": add(Member(f"{GIT_DIR}/commondir", b"/tmp\n")),
    "grafts": add(Member(f"{GIT_DIR}/info/grafts", b"0" * 40 + b"\n")),
    "submodule that points out": point(b"gitdir: ../../../../elsewhere\n"),
    "submodule at an absolute place": point(b"gitdir: /tmp/elsewhere\n"),
    "submodule with its parent's repository": point(b"gitdir: ../../.git\n"),
    "submodule among the objects": point(b"gitdir: ../../.git/objects/pack\n"),
    "submodule with a repository inside": carry_own_repository,
    "file out of the folder": add(Member("pytorch/../../escaped", b"x")),
    "absolute file": add(Member("/tmp/rocm-wheels-escaped", b"x")),
    "file through a link": add(
        Member("pytorch/out", kind=tarfile.SYMTYPE, link="/tmp"), Member("pytorch/out/x")
    ),
    "tree that is a link": add(Member("pytorch", kind=tarfile.SYMTYPE, link="/tmp")),
    "repository that is a link": add(Member(GIT_DIR, kind=tarfile.SYMTYPE, link="/tmp")),
    "link in the repository": add(Member(f"{GIT_DIR}/refs/x", kind=tarfile.SYMTYPE, link="/etc/passwd")),
    "link out": add(Member("pytorch/out", kind=tarfile.SYMTYPE, link="/etc/passwd")),
    "second name of a file": add(Member("pytorch/hard", kind=tarfile.LNKTYPE, link="/etc/passwd")),
    "device": add(Member("pytorch/zero", kind=tarfile.CHRTYPE)),
    "pipe": add(Member("pytorch/pipe", kind=tarfile.FIFOTYPE)),
    "file twice": add(Member("pytorch/run.sh", b"other")),
    "file over a folder": add(Member("pytorch/third_party", b"x")),
    "folder over a link": add(Member("pytorch/link", kind=tarfile.DIRTYPE)),
    "git's folder in other letters": add(Member("pytorch/.GIT/hooks/post-checkout", b"x")),
    "git's folder on Windows": add(Member("pytorch/git~1/config", b"x")),
    "1,500 folders deep": add(Member("pytorch/" + "d/" * 1500 + "f", b"x")),
    "name that is too long": add(Member(f"pytorch/{'n' * 300}", b"x")),
    "link that is too long": add(Member("pytorch/out", kind=tarfile.SYMTYPE, link="l" * 5000)),
    "HEAD out of the refs": lambda packed: packed.replace(f"{GIT_DIR}/HEAD", b"ref: ../../x\n"),
    "ref out of the refs": add(Member(f"{GIT_DIR}/refs/heads/evil", b"ref: ../config\n")),
    "packed refs that are none": add(Member(f"{GIT_DIR}/packed-refs", b"0" * 40 + b" refs/../config\n")),
    "state that names files elsewhere": add(
        Member(
            f"{GIT_DIR}/rocm-wheels/state.json",
            b'{"format": 1, "origin": "o", "ref": "r", "upstream": "u", "generated": ["../../../etc/passwd"],'
            b' "left": {"": {"head": "a", "upstream": "a", "tree": "a"}}}',
        )
    ),
    "index with git's own files": write_index_entry(".git/x"),
    "index with files elsewhere": write_index_entry("../out"),
    "index that is none": lambda packed: packed.replace(f"{GIT_DIR}/index", b"DIRC" * 9),
    "object with another content": change_object,
    "object that inflates": inflate,
}  # fmt: skip
HARMLESS = {  # what is wrong with them is not taken, and the tree is as it was; the others are refused
    "hooks", "fsmonitor", "fsmonitor of a submodule", "filter", "filter of a submodule", "attributes",
    "include by branch", "configuration of a working tree", "ssh", "alias", "diff", "credentials and pager",
    "origin that is a program", "origin that is an option", "partial clone", "working tree elsewhere",
    "update that is a program", "alternates", "common folder elsewhere", "grafts",
}  # fmt: skip


def test_there_are_as_many_hostile_files_as_threats_says() -> None:
    assert len(CASES) >= 54


def list_disk(folder: Path) -> list[tuple[str, bool]]:
    return sorted((str(path), path.is_symlink()) for path in folder.rglob("*"))


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_file_is_refused_or_harmless(honest: list[Member], tmp_path: Path, case: str) -> None:
    packed = PackedTree([*honest], tmp_path / "marker")
    CASES[case](packed)
    file, disk = packed.write(tmp_path / "s"), list_disk(tmp_path)
    started = list_disk(tmp_path)
    try:
        unpack_checkouts(file, tmp_path / "out", env=ENV)
    except SourceError as refusal:
        assert case not in HARMLESS, refusal.message
        assert str(file) in refusal.message and refusal.tip
        assert list_disk(tmp_path) == started == [*disk]
        return
    assert case in HARMLESS
    tree = tmp_path / "out" / "pytorch"
    (tree / "run.sh").write_text("changed")  # filters run on what changed
    (tree / "third_party/inner/a.cu").write_text("changed")
    run_git(tree, "status")
    run_git(tree, "diff", "--stat", "--submodule=diff")
    run_git(tree, "checkout", "-q", "--", ".")
    run_git(tree, "checkout", "-q", "-b", "work")
    run_git(tree, "add", "-A")
    run_git(tree, "commit", "-q", "--allow-empty", "-m", "work")
    run_git(tree, "submodule", "update", "--force", check=False)
    run_git(tree, "st", check=False)
    run_git(tree, "fetch", "-q", "evil", check=False)
    status = CliRunner().invoke(sources_group, ["status", "torch", "--source-dir", str(tmp_path / "out")])
    assert status.exit_code == 0, status.output
    assert not packed.marker.exists()
    executable = [p for p in (tree / ".git").rglob("*") if p.is_file() and p.stat().st_mode & 0o111]
    assert not executable
    assert run_git(tree, "fsck", "--strict") == ""


def test_the_honest_file_comes_out(honest: list[Member], tmp_path: Path) -> None:
    packed = PackedTree([*honest], tmp_path / "marker")
    unpack_checkouts(packed.write(tmp_path / "s"), tmp_path / "out", env=ENV)
    tree = tmp_path / "out" / "pytorch"
    assert run_git(tree, "status", "--porcelain") == ""
    assert run_git(tree, "submodule", "status").startswith(" ")
    assert run_git(tree, "describe", "--tags") == "v1\n"


def test_credentials_of_an_origin_are_not_packed(tmp_path: Path) -> None:
    tree = tmp_path / "trees" / "pytorch"
    tree.mkdir(parents=True)
    run_git(tree, "init", "-q")
    run_git(tree, "commit", "-q", "--allow-empty", "-m", "first")
    run_git(tree, "remote", "add", "origin", "https://me:hunter2@example.org/r.git")
    run_git(tree, "config", "http.extraHeader", "Authorization: hunter2")
    pack_checkouts({"pytorch": tree}, tmp_path / "s", env=ENV)
    assert b"hunter2" not in zstd.decompress((tmp_path / "s").read_bytes())
    unpack_checkouts(tmp_path / "s", tmp_path / "out", env=ENV)
    assert run_git(tmp_path / "out/pytorch", "remote", "get-url", "origin") == "https://example.org/r.git\n"


@pytest.mark.parametrize("kind", ["zeros", "long names"])
def test_a_bomb_is_refused_before_it_is_on_the_disk(tmp_path: Path, kind: str) -> None:
    """Zeros that were quadratic in time, and headers that call themselves."""
    if kind == "zeros":
        member = tarfile.TarInfo("t/zeros")
        member.size = 1 << 40
        pieces = [tarfile.TarInfo("checkouts.json").tobuf(), member.tobuf(), bytes(300 << 20)]
    else:
        long = tarfile.TarInfo("././@LongLink")
        long.type, long.size = tarfile.GNUTYPE_LONGNAME, 1
        pieces = [long.tobuf(), bytes(512)] * 3000
    (tmp_path / "s").write_bytes(zstd.compress(b"".join(pieces)))
    before = time.process_time()
    with pytest.raises(SourceError):
        unpack_checkouts(tmp_path / "s", tmp_path / "out", env=ENV)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert time.process_time() - before < 30
