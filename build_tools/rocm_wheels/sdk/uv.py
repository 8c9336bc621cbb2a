"""Call uv, the installer: which program, which environment, which options.

uv retries the network by itself; its last words become the message of an SdkError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from rocm_wheels.core import SdkError, format_command, hide_credentials, run_command

# They would make uv choose another environment, Python or output than the one asked for.
_REMOVED_VARIABLES = (
    "CONDA_PREFIX",
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_TARGET",
    "VIRTUAL_ENV",
)
_DISK_FULL = ("no space left", "quota exceeded")
_UNTRUSTED = ("certificate", "unknownissuer")
_NETWORK = ("error sending request", "dns error", "timed out", "connection", "retries", "status server error")


@dataclass(frozen=True)
class PackageSource:
    """Where packages come from. ``index_url`` alone replaces the user's indexes; ``find_links`` adds to them.

    ``cache_dir`` is the installer's; ``pre`` allows pre-releases.
    """

    index_url: str | None = None
    find_links: str | None = None
    cache_dir: Path | None = None
    pre: bool = False

    @property
    def variables(self) -> Mapping[str, str]:
        """Options with a password in them, as uv takes them from its environment: all may read arguments."""
        urls = {"UV_DEFAULT_INDEX": self.index_url, "UV_FIND_LINKS": self.find_links}
        return {name: value for name, value in urls.items() if value and hide_credentials(value) != value}

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``uv pip install``."""
        candidates = [
            ("--default-index", self.index_url),
            ("--find-links", self.find_links),
            ("--cache-dir", str(self.cache_dir) if self.cache_dir else None),
            ("--prerelease", "allow" if self.pre else None),
        ]
        return tuple(word for option, value in candidates if value for word in (option, value))


@lru_cache(maxsize=1)
def find_uv() -> Path:
    """Return the uv that was installed with this project; SdkError when it is not there."""
    try:
        import uv

        return Path(uv.find_uv_bin())
    except (ImportError, FileNotFoundError) as cause:
        raise SdkError(
            "the installer uv is missing", tip="install rocm-wheels again; uv belongs to it"
        ) from cause


def compose_uv_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Compose uv's environment: the user's own settings, without what would lead it elsewhere."""
    inherited = {name: value for name, value in env.items() if name not in _REMOVED_VARIABLES}
    return {**inherited, "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}


def make_venv(
    python: Path, prefix: Path, env: Mapping[str, str], *, on_line: Callable[[str], None] | None = None
) -> None:
    """Make a virtual environment of ``python`` at ``prefix``, without pip or anything else in it."""
    _run_uv(
        ["venv", "--quiet", "--no-project", "--python", str(python), str(prefix)],
        env,
        cwd=prefix.parent,
        activity=f"making a virtual environment of {python}",
        on_line=on_line,
    )


def pip_install(
    python: Path,
    arguments: Sequence[str],
    source: PackageSource,
    env: Mapping[str, str],
    *,
    activity: str,
    cwd: Path,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Install into the environment of ``python``. SdkError with the installer's last words."""
    hidden = source.variables
    public_source = replace(
        source,
        index_url=None if "UV_DEFAULT_INDEX" in hidden else source.index_url,
        find_links=None if "UV_FIND_LINKS" in hidden else source.find_links,
    )
    _run_uv(
        ["pip", "install", "--python", str(python), *public_source.options, *arguments],
        {**env, **hidden},
        cwd=cwd,
        activity=activity,
        on_line=on_line,
    )


def format_install_command(arguments: Sequence[str], source: PackageSource | None = None) -> str:
    """Return what ``pip_install`` starts, as people would type it in the environment."""
    options = source.options if source is not None else ()
    return format_command(["uv", "pip", "install", *options, *arguments])


def pip_uninstall(python: Path, names: Sequence[str], env: Mapping[str, str], *, cwd: Path) -> None:
    """Remove distributions from the environment of ``python``; one that is not there does not matter."""
    words = ["pip", "uninstall", "--python", str(python), *names]
    _run_uv(words, env, cwd=cwd, activity=f"removing {', '.join(names)}", on_line=None)


def _run_uv(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path,
    activity: str,
    on_line: Callable[[str], None] | None,
) -> None:
    lines: list[str] = []

    def listen(line: str) -> None:
        lines.append(line)
        if on_line is not None:
            on_line(line)

    try:
        run_command(
            [find_uv(), *words],
            env=compose_uv_environment(env),
            cwd=cwd,
            on_line=listen,
            check=SdkError,
            description=activity,
        )
    except SdkError as error:
        error.tip = _suggest_fix("\n".join(lines))
        raise


def is_transient_failure(output: str) -> bool:
    """Tell whether a failure of uv is the network's or the disk's: it says nothing of the packages."""
    low = output.lower()
    return any(word in low for word in (*_NETWORK, *_DISK_FULL, *_UNTRUSTED))


def _suggest_fix(output: str) -> str | None:
    """Tell from the installer's words what to do about a failure."""
    low = output.lower()
    if any(word in low for word in _DISK_FULL):
        return "free some space and run the same command again; the cache of uv may be on another disk"
    if any(word in low for word in _UNTRUSTED):
        return (
            "uv does not know who signed the index: set SSL_CERT_FILE, or UV_SYSTEM_CERTS=1 for the system's"
        )
    if "externally managed" in low:
        return "this Python belongs to the system; use a virtual environment, or leave --current-env out"
    if "no solution found" in low or "not found in the package registry" in low:
        return "check --rocm-sdk-version, --rocm-extras, --index-url and --find-links; --pre for pre-releases"
    if "no virtual environment" in low or "no interpreter found" in low:
        return "check that this Python exists and runs"
    if any(word in low for word in _NETWORK):
        return (
            "the package index could not be reached; uv has tried several times already, run this again later"
        )
    return None
