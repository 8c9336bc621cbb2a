"""A tar with zstd as a stream: written with a checksum, read to its end."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from rocm_wheels.errors import SourceError

_ZSTD_LEVEL = 3
_READ_CHUNK = 1 << 20
_PIECE = 1 << 15  # of a compressed file: what is made of it is in memory


@contextlib.contextmanager
def create_archive(number: int) -> Iterator[tarfile.TarFile]:
    """Have an archive to add to, written through the descriptor of a file, with a checksum at its end."""
    import zstandard

    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, threads=-1, write_checksum=True)
    with (
        open(number, "wb", closefd=False) as file,
        compressor.stream_writer(file, closefd=False) as stream,
        tarfile.open(mode="w|", fileobj=stream, format=tarfile.PAX_FORMAT) as archive,
    ):
        yield archive


class _ZstdFrame:
    """The content of a compressed file that ends where its frame does; a checksum is at the end of it."""

    def __init__(self, file: BinaryIO) -> None:
        import zstandard

        self._file, self._decompressor, self._ready = file, zstandard.ZstdDecompressor().decompressobj(), b""

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end. Raises EOFError for a file that ends too early."""
        pieces, length = [self._ready], len(self._ready)
        while length < size and not self._decompressor.eof:
            content = self._file.read(_PIECE)
            if not content:
                raise EOFError("it ends too early")
            pieces.append(self._decompressor.decompress(content))
            length += len(pieces[-1])
        data = b"".join(pieces)
        self._ready = data[size:]
        return data[:size]

    def has_more(self) -> bool:
        """Tell whether there is more in the file than the frame, once that has ended."""
        return bool(self._decompressor.unused_data or self._file.read(1))


@contextlib.contextmanager
def read_archive(source: Path) -> Iterator[tarfile.TarFile]:
    """Have the archive of a file, read once in its order. Raises SourceError for a cut or damaged one."""
    import zstandard

    try:
        with source.open("rb") as file:
            stream = _ZstdFrame(file)
            # as a stream it is only read, though the annotation asks for more
            with tarfile.open(mode="r|", fileobj=cast("Any", stream)) as archive:
                yield archive
            while stream.read(_READ_CHUNK):  # to its end: the checksum is there
                pass
            if stream.has_more():
                raise EOFError("something follows its end")
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as cause:
        raise SourceError(f"{source} is no packed checkouts, or was cut", tip="fetch it again") from cause
