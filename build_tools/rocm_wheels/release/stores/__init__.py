"""Where releases are: a folder, a bucket, or anything that fsspec reaches, behind one small interface.

| module | what it knows |
|---|---|
| ``store`` | ``Store``, what its answers look like, and what a path in it is |
| ``folder`` | a folder of this machine |
| ``opening`` | which of them a URL means |
"""

from rocm_wheels.release.stores.opening import open_store
from rocm_wheels.release.stores.store import Changed, Exists, Found, Head, Listed, Missing, Store

__all__ = ["Changed", "Exists", "Found", "Head", "Listed", "Missing", "Store", "open_store"]
