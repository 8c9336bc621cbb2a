"""Archives of ROCm artifacts as a build publishes them: packed, with digests, on a page, in a bucket."""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import s3_servers
from rocm_artifacts import make_artifacts
from zstd_library import zstd


def pack(folder: Path, form: str = "zst") -> bytes:
    """Pack an artifact's folder, its manifest first, as TheRock's builds do."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        manifest = folder / "artifact_manifest.txt"
        tar.add(manifest, manifest.name)
        for path in sorted(folder.rglob("*")):
            if path != manifest:
                tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return compressed(content.getvalue(), form)


def compressed(content: bytes, form: str) -> bytes:
    """Compress a tar archive."""
    return zstd.compress(content) if form == "zst" else lzma.compress(content, preset=0)


def packed_tree(folder: Path, *, form: str = "zst") -> dict[str, bytes]:
    """Return the archives of a very small ROCm and their digests by file name."""
    artifacts = make_artifacts(folder, compile_elf=False)
    files = {f"{path.name}.tar.{form}": pack(path, form) for path in sorted(artifacts.iterdir())}
    return with_digests(files)


def with_digests(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Add a ``.sha256sum`` to every archive."""
    sums = {f"{n}.sha256sum": f"{hashlib.sha256(c).hexdigest()}\n".encode() for n, c in files.items()}
    return {**files, **sums}


def put(bucket: str, folder: str, files: Mapping[str, bytes]) -> None:
    """Put files into a folder of a bucket of the test's S3, which is made when it is missing."""
    client = s3_servers._client(s3_servers.moto())
    client.call("create_bucket", Bucket=bucket)
    for name, content in files.items():
        client.call("put_object", Bucket=bucket, Key=f"{folder}/{name}", Body=content)


def page(names: list[str]) -> bytes:
    """Return the page that a server makes of a folder (as TheRock's: a table of links)."""
    rows = "".join(f'<tr><td><a href="{quote(name)}">{name}</a></td><td>1 kB</td></tr>\n' for name in names)
    head = '<!DOCTYPE html><html><body><table><tr><td><a href="../index.html">..</a></td></tr>'
    return f'{head}<tr><td><a href="logs/index.html">logs/</a></td></tr>{rows}</table>'.encode()
