"""Put the code objects of several GPU targets into one file, as clang's offload bundler does.

clang calls this once for each HIP source, with one ``-input`` for each of ``-targets``. A bundle
is: magic, number of entries, (offset, size, length of id, id) for each, then the code objects,
aligned. Compressed ("CCOB", version 3): sizes, a hash of the content, and the bundle in zlib.
"""

import hashlib
import struct
import sys
import zlib

PLAIN, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
VERSION, ZLIB = 3, 0


def bundle(entries, alignment):
    """Lay out ``entries``, pairs of (id, bytes)."""
    position = len(PLAIN) + 8 + sum(24 + len(name) for name, _ in entries)
    head, body = PLAIN + struct.pack("<Q", len(entries)), b""
    for name, code in entries:
        padding = -(position + len(body)) % alignment
        body += bytes(padding)
        head += struct.pack("<3Q", position + len(body), len(code), len(name)) + name
        body += code
    return head + body


def compress(plain):
    """Wrap a bundle as clang does for ``--offload-compress``."""
    data = zlib.compress(plain, 6)
    total = 4 + 2 + 2 + 8 + 8 + 8 + len(data)
    digest = hashlib.md5(plain, usedforsecurity=False).digest()[:8]
    return COMPRESSED + struct.pack("<2H2Q", VERSION, ZLIB, total, len(plain)) + digest + data


def main(arguments):
    """Understand the options that clang passes; others change nothing here."""
    options, inputs = {}, []
    for argument in arguments:
        name, _, value = argument.lstrip("-").partition("=")
        if name == "input":
            inputs.append(value)
        else:
            options[name] = value
    targets = options["targets"].split(",")
    if "unbundle" in options or len(targets) != len(inputs):
        sys.exit("offload_bundler: one -input for each of -targets is all that this program can bundle")
    entries = []
    for target, path in zip(targets, inputs):
        with open(path, "rb") as file:
            entries.append((target.encode(), file.read()))
    content = bundle(entries, int(options.get("bundle-align", "1")))
    with open(options["output"], "wb") as file:
        file.write(compress(content) if "compress" in options else content)


if __name__ == "__main__":
    main(sys.argv[1:])
