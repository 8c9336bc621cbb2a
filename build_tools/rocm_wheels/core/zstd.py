"""Zstandard of the standard library (PEP 784); before Python 3.14 the same from backports.zstd."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdDecompressor, ZstdError, ZstdFile
    from compression.zstd import compress as compress_zstd
else:
    from backports.zstd import CompressionParameter, ZstdDecompressor, ZstdError, ZstdFile
    from backports.zstd import compress as compress_zstd

__all__ = ["CompressionParameter", "ZstdDecompressor", "ZstdError", "ZstdFile", "compress_zstd"]
