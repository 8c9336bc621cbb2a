"""``tests/mutate.py``: the same mutants for a seed, tried in a copy alone, and what came of them is true."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mutate
import pytest
from mutate import KINDS, PRODUCT, WITHDRAWN, draw_mutants

CLONE = Path(__file__).resolve().parents[2]
PRICES = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from os import PathLike
class CheapError(Exception):
    def __repr__(self) -> str:
        return "cheap" if self.args == () else ""
def log_price(price: int) -> None:
    pass
def is_free(price: int, currency: "str | PathLike[str] | None" = None) -> None:
    'Docstring.'
    log_price(price + 1)
    log_price(not price)
    assert price == 0, f"{price - 1}"
def is_dear(price: int) -> None:
    assert price < 9
"""
TESTS = """
import pytest
from rocm_wheels.prices import is_free, is_dear
@pytest.mark.contract
def test_free() -> None:
    is_free(0)
def test_dear() -> None:
    is_dear(0)
@pytest.mark.contract_slow
def test_slow() -> None:
    is_dear(0)
@pytest.mark.contract
def test_fails_by_itself() -> None:
    assert False
"""
SETTINGS = """
[tool.pytest.ini_options]
pythonpath = ["build_tools"]
markers = ["contract: of the contract", "contract_slow: likewise"]
"""


def test_a_seed_draws_the_same_mutants_of_all_kinds(tmp_path: Path) -> None:
    """Each compiles, or drawing would end; none is of what only words a message, or checks types."""
    (tmp_path / PRODUCT).mkdir(parents=True)
    for name in ("wheels/edit.py", "release/gate.py", "models/versions.py"):
        shutil.copy(CLONE / PRODUCT / name, tmp_path / PRODUCT)
    drawn = draw_mutants(tmp_path, 7, 12)
    assert drawn == draw_mutants(tmp_path, 7, 12) != draw_mutants(tmp_path, 8, 12)
    assert Counter(mutant.kind for mutant in drawn) == dict.fromkeys(KINDS, 2)
    assert all(mutant.apply((tmp_path / mutant.path).read_bytes()) for mutant in drawn)


def test_what_is_withdrawn_is_still_there() -> None:
    """Else its row can go."""
    for pattern in WITHDRAWN:
        assert any((CLONE / PRODUCT).glob(pattern)), pattern


@pytest.mark.slow
def test_killed_is_what_a_test_of_the_contract_notices(tmp_path: Path) -> None:
    """Words, annotations and the like are no mutants; a test that fails without a mutant kills none."""
    files = {"prices.py": PRICES, "__init__.py": ""}
    texts = {f"{PRODUCT}/{name}": text for name, text in files.items()}
    texts.update({"tests/unit/test_prices.py": TESTS, "pyproject.toml": SETTINGS})
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Prices"]):
        subprocess.run([*git, *words], check=True)
    argv = [sys.executable, mutate.__file__, "--clone", str(tmp_path), "--python", sys.executable]
    argv += ["--workers", "1", "--without-slow", "--count"]
    ended = subprocess.run([*argv, "2"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    free, dear = ended.stdout.splitlines()[-3:-1]
    assert "killed" in free and free.endswith("::test_free")
    assert "SURVIVED" in dear and "number" in dear
    assert subprocess.run([*argv, "3", "--list"], capture_output=True, check=False).returncode == 2
    assert not subprocess.run([*git, "diff", "--stat"], capture_output=True, check=True).stdout
