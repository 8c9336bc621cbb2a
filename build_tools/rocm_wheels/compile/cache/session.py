"""What a build step needs beside the launcher variables, for as long as it compiles."""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.compile.cache.program import CompilerCache
from rocm_wheels.compile.cache.server import share_server
from rocm_wheels.compile.cache.statistics import DEVICE_LOG, HOST_LOG
from rocm_wheels.process import capture_output
from rocm_wheels.workspace import write_atomically

_IGNORED_CTIME = "include_file_ctime"


@contextmanager
def open_cache_session(
    cache: CompilerCache, env: Mapping[str, str], folder: Path
) -> Iterator[Mapping[str, str]]:
    """Yield variables to set beside those of a build step's environment ``env``.

    ``folder`` is the same for all steps of a work directory. With ``{**env, **yielded}``, ``statistics``
    counts what this step compiles; ask it inside, what is logged for it goes away with the session. A
    server of sccache's that was started for the session is stopped with the last that uses it. The user's
    own variables for storages, remote ones too, stay as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if cache.kind == "sccache":
        with share_server(cache.program, env, folder) as variables:
            yield variables
        return
    if env.get(HOST_LOG):
        log.log_note(f"{HOST_LOG} is set for this build's own counts; {env[HOST_LOG]} gets none of it")
    with tempfile.TemporaryDirectory(prefix="ccache-", dir=folder) as logs:
        yield make_ccache_variables(cache, env, folder, Path(logs))


def make_ccache_variables(
    cache: CompilerCache, env: Mapping[str, str], folder: Path, logs: Path
) -> dict[str, str]:
    """Return what makes ccache log into ``logs`` and look at the right things.

    Compilers of two ROCm packages can have the same size and date (archives store dates; installers
    copy them), so their content is what counts, unless the user chose another check than ccache's own.
    A header's status changes with each hard link that an installer makes to it or takes away; ccache (4.14)
    would then compile twice and store nothing. Its date and content are looked at all the same.
    """
    variables = {
        HOST_LOG: os.fspath(logs / "host.log"),
        DEVICE_LOG: os.fspath(logs / "device.log"),
        **_list_device_libraries(env, folder),
    }
    if _read_setting(cache, "compiler_check", env) == "mtime" and "CCACHE_COMPILERCHECK" not in env:
        variables["CCACHE_COMPILERCHECK"] = "content"
    overlooked = [word.strip() for word in _read_setting(cache, "sloppiness", env).split(",") if word.strip()]
    if _IGNORED_CTIME not in overlooked:
        variables["CCACHE_SLOPPINESS"] = ",".join([*overlooked, _IGNORED_CTIME])
    if env.get("HIP_CLANG_LAUNCHER") == os.fspath(cache.program):
        variables["HIP_CLANG_LAUNCHER"] = os.fspath(_write_device_launcher(cache, folder))
    return variables


def _read_setting(cache: CompilerCache, name: str, env: Mapping[str, str]) -> str:
    return capture_output(
        [cache.program, "--get-config", name], env=env, description=f"ccache --get-config {name}"
    )


def _list_device_libraries(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variable that makes the device libraries part of each entry's key.

    clang links the bitcode of HIP_DEVICE_LIB_PATH into device code, and no preprocessor shows that:
    ccache 4.7.5 and 4.14.2 were seen to return the old object. They hash the file that is named here: it
    lists the libraries with their digests. sccache 0.16.0 hashes the libraries itself.
    """
    library_folder = env.get("HIP_DEVICE_LIB_PATH")
    libraries = sorted(Path(library_folder).glob("*.bc")) if library_folder else []
    if not libraries:
        return {}
    text = "".join(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in libraries)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    list_path = folder / f"device-libraries-{name}.txt"
    if not list_path.exists():
        write_atomically(list_path, text)
    users = [env["CCACHE_EXTRAFILES"]] if env.get("CCACHE_EXTRAFILES") else []
    return {"CCACHE_EXTRAFILES": os.pathsep.join([*users, os.fspath(list_path)])}


def _write_device_launcher(cache: CompilerCache, folder: Path) -> Path:
    """Write what hipcc starts clang through: ccache with the other log, so that device code counts apart."""
    launcher = folder / "hip-ccache"
    text = (
        "#!/bin/sh\n# ccache for what hipcc compiles: it logs in a file of its own\n"
        f'{HOST_LOG}=${DEVICE_LOG} exec {shlex.quote(os.fspath(cache.program))} "$@"\n'
    )
    if not launcher.is_file() or launcher.read_text(encoding="utf-8") != text:
        write_atomically(launcher, text)
    launcher.chmod(0o755)
    return launcher
