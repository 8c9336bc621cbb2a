"""Put the code objects of several GPU targets into one file, as clang's offload bundler does.

clang calls this once for each HIP source, with one ``-input`` for each of ``-targets``. A bundle
is: magic, number of entries, (offset, size, length of id, id) for each, then the code objects,
aligned. Compressed ("CCOB", version 3): sizes, a hash of the content, and the bundle in zlib.
Preprocessed sources (``-E``, with which compiler caches look at a compile) stay text: each stands
between two comments. The output ``-`` is standard output.
"""

import hashlib
import struct
import sys
import zlib

PLAIN, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
VERSION, ZLIB = 3, 0
TEXT = {"i", "ii", "cui", "hipi"}


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


def text_bundle(entries):
    """Put preprocessed sources one after another."""
    mark = b"\n// __CLANG_OFFLOAD_BUNDLE____%s__ %s\n"
    return b"".join(mark % (b"START", name) + text + mark % (b"END", name) for name, text in entries)


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
    if options["type"] in TEXT:
        content = text_bundle(entries)
    else:
        content = bundle(entries, int(options.get("bundle-align", "1")))
        content = compress(content) if "compress" in options else content
    if options["output"] == "-":
        sys.stdout.buffer.write(content)
        return
    with open(options["output"], "wb") as file:
        file.write(content)


if __name__ == "__main__":
    main(sys.argv[1:])
