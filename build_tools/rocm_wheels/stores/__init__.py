"""Where releases are: a folder, a bucket, or anything that fsspec reaches, behind one small interface.

| module | what it knows |
|---|---|
| ``store`` | ``Store``, what its answers look like, and what a path in it is |
| ``content`` | bytes on their way in and out: how many, which, and whole |
| ``folder`` | a folder of this machine |
| ``s3`` ``s3_client`` ``s3_parts`` | S3 and what speaks its language, through s3fs |
| ``others`` | every other URL that fsspec knows, with what little can be promised there |
| ``attempts`` | what is tried again, and how a write whose answer was lost is looked at |
| ``probe`` | whether a store keeps its word about conditional writes |
| ``opening`` | which of them a URL means |
"""

from rocm_wheels.stores.opening import open_existing_store, open_store
from rocm_wheels.stores.store import (
    ChangedInStoreError,
    AlreadyInStoreError,
    StoredFile,
    StoredFileInfo,
    ListedFile,
    NotInStoreError,
    Store,
)

__all__ = [
    "ChangedInStoreError",
    "AlreadyInStoreError",
    "StoredFile",
    "StoredFileInfo",
    "ListedFile",
    "NotInStoreError",
    "Store",
    "open_existing_store",
    "open_store",
]
