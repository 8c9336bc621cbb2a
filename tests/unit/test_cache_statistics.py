"""What compiler caches count, as they print it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.compile import compiler_cache
from rocm_wheels.core import errors

# as ccache 4.14.2 writes it, shortened
LOG = """\
# kernel.hip
cache_miss
direct_cache_miss
local_storage_miss
local_storage_read_miss
preprocessed_cache_miss
# kernel.hip
direct_cache_hit
local_storage_hit
local_storage_read_hit
# other.hip
direct_cache_miss
preprocessed_cache_hit
remote_storage_timeout
# conftest.c
called_for_link
# broken.c
compile_failed
"""
# as sccache 0.16.0 prints it, shortened
SCCACHE = {
    "stats": {
        "requests_not_cacheable": 4,
        "non_cacheable_compilations": 1,
        "cache_errors": {"counts": {"HIP": 1}, "adv_counts": {}},
        "cache_hits": {"counts": {"HIP": 3, "C/C++": 20}, "adv_counts": {"hip [clang]": 3}},
        "cache_misses": {"counts": {"HIP": 2, "C/C++": 5, "Assembler": 1}, "adv_counts": {}},
    },
    "cache_location": "Local disk: /x",
}


def test_a_log_of_ccache() -> None:
    assert compiler_cache.parse_ccache_log(LOG.splitlines()) == compiler_cache.CacheCounts(
        hits=2, misses=1, uncacheable=2, errors=1
    )
    assert compiler_cache.parse_ccache_log([]) == compiler_cache.CacheCounts()


def test_statistics_of_sccache() -> None:
    found = compiler_cache.parse_sccache_statistics(SCCACHE)
    assert found.device == compiler_cache.CacheCounts(hits=3, misses=2, errors=1)
    assert found.host == compiler_cache.CacheCounts(hits=20, misses=6)
    assert found.unsorted == compiler_cache.CacheCounts(uncacheable=5)
    assert (found.hits, found.cacheable) == (23, 31)


@pytest.mark.parametrize("answer", [{}, {"stats": []}, {"stats": {"cache_hits": 3}}])
def test_an_unknown_form_is_no_zero(answer: dict[str, object]) -> None:
    with pytest.raises(errors.BuildError, match="in an unknown format"):
        compiler_cache.parse_sccache_statistics(answer)


def test_the_logs_of_a_step_keep_host_and_device_apart(tmp_path: Path) -> None:
    (tmp_path / "device.log").write_text(LOG)
    env = {
        "CCACHE_STATSLOG": str(tmp_path / "host.log"),  # nothing was compiled
        "ROCM_WHEELS_DEVICE_STATSLOG": str(tmp_path / "device.log"),
    }
    found = compiler_cache.read_statistics(compiler_cache.CompilerCache("ccache", Path("/no/ccache")), env)
    assert (found.host, found.device.hits) == (compiler_cache.CacheCounts(), 2)


def test_differences() -> None:
    before = compiler_cache.CacheStatistics(
        "sccache", host=compiler_cache.CacheCounts(5, 5), device=compiler_cache.CacheCounts(1, 1, 0, 0)
    )
    after = compiler_cache.CacheStatistics(
        "sccache",
        host=compiler_cache.CacheCounts(8, 6),
        device=compiler_cache.CacheCounts(0, 1, 0, 0),
        unsorted=compiler_cache.CacheCounts(0, 0, 2),
    )
    found = after.subtract(before)
    assert found.host == compiler_cache.CacheCounts(3, 1)
    assert found.device == compiler_cache.CacheCounts(0, 1)  # somebody set the counters back
    assert found.as_record() == {
        "kind": "sccache",
        "host": {"hits": 3, "misses": 1, "uncacheable": 0, "errors": 0},
        "device": {"hits": 0, "misses": 1, "uncacheable": 0, "errors": 0},
        "unsorted": {"hits": 0, "misses": 0, "uncacheable": 2, "errors": 0},
        "rate": 0.6,
    }
