"""A folder in a bucket, to read: with credentials where there are some, else as everybody may.

Names may be any that S3 takes: what lies there was written by others.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocm_wheels.stores.attempts import S3Retry
from rocm_wheels.stores.s3_client import S3Client, has_aws_credentials, normalize_etag
from rocm_wheels.stores.store import ListedFile


class BucketFolder:
    """The files that lie directly in a folder of a bucket."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        env: Mapping[str, str],
        *,
        sign: bool = True,
        attempts: S3Retry | None = None,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._env, self._sign = env, sign
        self._attempts = attempts or S3Retry()
        self._made: S3Client | None = None

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def list_files(self) -> list[ListedFile]:
        """Return the files in the folder, not those in folders of it; none where nothing is."""
        query = {"Bucket": self._bucket, "Prefix": self._prefix, "Delimiter": "/"}
        listed: list[ListedFile] = []
        while True:
            answer = self._attempts.read(
                f"list {self.url}", lambda: self._get_client.call("list_objects_v2", **query)
            )
            for item in answer.get("Contents", ()):
                if name := item["Key"].removeprefix(self._prefix):
                    listed.append(ListedFile(name, item["Size"], normalize_etag(item["ETag"])))
            if not answer.get("IsTruncated"):
                return listed
            query["ContinuationToken"] = answer["NextContinuationToken"]

    def download_url(self, name: str) -> str:
        """Return a URL of a file in the folder that can be read without credentials, for half a day."""
        return self._get_client.download_url(self._bucket, self._prefix + name)

    @property
    def _get_client(self) -> S3Client:
        if self._made is None:
            signed = self._sign and has_aws_credentials(self._env)
            self._made = S3Client(self._env, anonymous=not signed)
        return self._made
