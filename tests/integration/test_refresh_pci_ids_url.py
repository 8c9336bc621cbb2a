"""Refreshing the tables of PCI ids over a real connection, as a program of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from servers import serve_requests

import refresh_pci_ids
from rocm_wheels.gpus import pci

SCRIPT = Path(refresh_pci_ids.__file__)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    (tmp_path / "www").mkdir()
    with serve_requests(partial(Quiet, directory=str(tmp_path / "www"))) as url:
        yield url


def test_a_fetched_pci_ids_is_compared_and_written(served: str, tmp_path: Path) -> None:
    lines = ["#\tVersion: 2027.01.02", "#\tDate:    2027-01-02 03:15:02", ""]
    for vendor, name in pci.PCI_VENDORS.items():
        path = Path(pci.__file__).with_name(pci.PCI_TABLES[name])
        shutil.copy(path, tmp_path)
        rows = refresh_pci_ids.read_pci_table(path, name).rows.values()
        named = [f"\t{row['id'][5:]}  {row['name']}" for row in rows if row["named"] == "pci.ids"]
        lines += [f"{vendor}  {name}", *named]
        lines += ["\t7600  Navi 60 [Radeon RX 10090]"] if name == "amd" else []
    (tmp_path / "www" / "pci.ids").write_text(
        "\n".join([*lines, "C ff  Unassigned class", ""]), encoding="utf-8"
    )

    def run(page: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(SCRIPT), "--url", f"{served}/{page}", "--tables", str(tmp_path), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    lost = run("no.ids", "--write")
    assert (lost.returncode, "answers 404" in lost.stderr) == (17, True)
    compared = run("pci.ids", "--check", "--json")
    assert compared.returncode == 17, compared.stderr
    assert json.loads(compared.stdout)["tables"] == {
        "amd": [{"what": "new", "id": "1002:7600", "before": "", "now": "Navi 60 [Radeon RX 10090]"}],
        "nvidia": [],
        "intel": [],
    }
    assert run("pci.ids", "--write").returncode == 0
    assert "\n1002:7600\t-\t-\tbelieved\t" in (tmp_path / "pci_ids.tsv").read_text(encoding="utf-8")
