"""Compiler caches: ccache and sccache, started by the build through launcher variables.

| module | what it knows |
|---|---|
| ``program`` | which program, and the variables that put it before the compilers |
| ``session`` | what a build step needs beside them: logs of its own, a server that it does not leave behind |
| ``server`` | starting, asking and stopping servers of sccache |
| ``read_statistics`` | hits and misses, host and device apart |
| ``trust`` ``trial`` | the self-test before device objects are taken from a cache, and what it tries |
"""

from rocm_wheels.compile.cache.program import CompilerCache, find_compiler_cache
from rocm_wheels.compile.cache.session import open_cache_session
from rocm_wheels.compile.cache.statistics import CacheStatistics, explain_low_rate, read_statistics
from rocm_wheels.compile.cache.trial import read_user_settings
from rocm_wheels.compile.cache.trust import CacheVerdict, check_cache_trust

__all__ = [
    "CacheStatistics",
    "CacheVerdict",
    "CompilerCache",
    "explain_low_rate",
    "open_cache_session",
    "find_compiler_cache",
    "check_cache_trust",
    "read_statistics",
    "read_user_settings",
]
