"""Zstandard of the standard library (PEP 784); before Python 3.14 the same from backports.zstd."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdDecompressor, ZstdError, ZstdFile
else:
    from backports.zstd import CompressionParameter, ZstdDecompressor, ZstdError, ZstdFile

__all__ = ["CompressionParameter", "ZstdDecompressor", "ZstdError", "ZstdFile"]
