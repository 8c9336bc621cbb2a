"""Asking an S3 server: one attempt a call, and failures told apart by what may be done about them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.shell import hide_credentials
from rocm_wheels.stores.attempts import TransientS3Error, S3ConditionError
from rocm_wheels.stores.store import RUN_AGAIN_TIP, NotInStoreError, UnsupportedByStoreError

_NOT_DONE_STATUSES = {429, 503}  # what S3 says before it has done anything (SlowDown)
_CONFLICT_STATUS = 409  # another write of the same file is under way (S3, "conditional writes")
_TRANSIENT_CODES = {"RequestTimeout", "InternalError", "NoSuchUpload"}  # an upload that is gone: begun again
_TIPS_BY_CODE = {
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "ExpiredToken": f"the credentials have expired: get new ones, then {RUN_AGAIN_TIP}",
    "EntityTooLarge": "the server takes no file of this size",
    "QuotaExceeded": f"the bucket is full: free some space, then {RUN_AGAIN_TIP}",
    "XMinioStorageFull": f"the server is full: free some space, then {RUN_AGAIN_TIP}",
}
_SIGNED_URL_SECONDS = 12 * 3600  # a download of many files; temporary credentials may end it earlier
_INSTALL_EXTRA_TIP = "pip install 'rocm-wheels[s3]'"


class S3Client:
    """The operations of S3's own API by their names in botocore, from any thread."""

    def __init__(self, env: Mapping[str, str], *, anonymous: bool = False) -> None:
        self._env = env
        self._anonymous = anonymous
        self._endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
        self.without: set[str] = set()  # writes that the server knows no conditions for
        self._made: Any = None
        self._lock = threading.Lock()

    def bucket_url(self, bucket: str) -> str:
        """Return the URL of a bucket, without credentials."""
        if self._endpoint:
            return f"{hide_credentials(self._endpoint).rstrip('/')}/{bucket}"
        region = _get_region(self._env)
        return (
            f"https://{bucket}.s3.{region}.amazonaws.com" if region else f"https://{bucket}.s3.amazonaws.com"
        )

    def call(self, operation: str, **parameters: Any) -> Any:
        """Return the answer of the server.

        Raises Passing for what may succeed later, Refused for a condition that does not hold, Missing for
        a file that is not there, Unknown for what the server has not, and ReleaseError for everything else.
        """
        if operation in self.without:
            parameters = {
                key: value for key, value in parameters.items() if key not in ("IfMatch", "IfNoneMatch")
            }
        return self._call_and_translate(
            operation, parameters, lambda filesystem: filesystem.call_s3(operation, **parameters)
        )

    def call_with_body(self, operation: str, **parameters: Any) -> tuple[Any, bytes]:
        """Return the answer and the bytes that it carries. Raises as ``call``."""

        async def read(filesystem: Any) -> tuple[Any, bytes]:
            answer = await filesystem._call_s3(operation, **parameters)
            async with answer["Body"] as body:
                return answer, await body.read()

        def both(filesystem: Any) -> Any:
            from fsspec.asyn import sync  # type: ignore[import-untyped]

            return sync(filesystem.loop, read, filesystem)

        answer_and_body: tuple[Any, bytes] = self._call_and_translate(operation, parameters, both)
        return answer_and_body

    def download_url(self, bucket: str, key: str) -> str:
        """Return a URL that reads a file, signed with the credentials; nothing is asked of the server."""
        location, parameters = f"{bucket}/{key}", {"Bucket": bucket, "Key": key}
        return str(
            self._call_and_translate(
                "get_object", parameters, lambda filesystem: filesystem.url(location, _SIGNED_URL_SECONDS)
            )
        )

    def _get_filesystem(self) -> Any:
        with self._lock:
            if self._made is None:
                try:
                    import s3fs  # type: ignore[import-untyped]
                except ImportError as cause:
                    raise UsageError("stores in S3 need s3fs", tip=_INSTALL_EXTRA_TIP) from cause
                self._made = s3fs.S3FileSystem(
                    **_make_settings(self._env, self._endpoint), anon=self._anonymous
                )
                self._made.retries = 1  # its own would repeat a write without a look
            return self._made

    def _call_and_translate(
        self, operation: str, parameters: Mapping[str, Any], work: Callable[[Any], Any]
    ) -> Any:
        filesystem = self._get_filesystem()
        from botocore import exceptions as botocore_errors  # type: ignore[import-untyped]
        from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

        lost = (
            botocore_errors.HTTPClientError,
            botocore_errors.ConnectionError,
            botocore_errors.IncompleteReadError,
            OSError,
        )
        where = f"s3://{parameters['Bucket']}/{parameters.get('Key', '')}"
        try:
            return work(filesystem)
        except botocore_errors.NoCredentialsError as cause:
            tip = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            raise ReleaseError(f"there are no credentials for {where}", tip=tip) from cause
        except Exception as failure:
            causes = failure, failure.__cause__
            if answer := next(
                (error for error in causes if isinstance(error, botocore_errors.ClientError)), None
            ):
                raise _translate_error(answer, operation, where) from failure
            if isinstance(failure, (*lost, ResponseParserError)) or _is_connection_error(failure):
                raise TransientS3Error(
                    f"{where}: {str(failure) or type(failure).__name__}", unsure=True
                ) from failure
            if isinstance(failure, botocore_errors.BotoCoreError):
                raise ReleaseError(f"{operation} of {where} cannot be asked for") from failure
            raise


def has_aws_credentials(env: Mapping[str, str]) -> bool:
    """Tell whether AWS's own tools would find credentials: variables, files, or a server that gives them."""
    if env.get("AWS_ACCESS_KEY_ID") or env.get("AWS_PROFILE"):
        return True
    try:
        from botocore.session import Session  # type: ignore[import-untyped]
    except ImportError as cause:
        raise UsageError("stores in S3 need s3fs", tip=_INSTALL_EXTRA_TIP) from cause
    return Session().get_credentials() is not None


def _make_settings(env: Mapping[str, str], endpoint: str) -> dict[str, Any]:
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise UsageError(f"AWS_ENDPOINT_URL={endpoint.rpartition('@')[2]!r} is not the URL of a server")
    if "@" in endpoint:
        tip = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the URL is printed and logged"
        raise UsageError("AWS_ENDPOINT_URL holds credentials", tip=tip)
    settings: dict[str, Any] = {
        "signature_version": "s3v4",  # of URLs too, whose default is older than most regions
        # newer checksums are unknown to many servers; what arrived is told by the ETag
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "retries": {"mode": "standard", "total_max_attempts": 1},
        "max_pool_connections": 32,
    }
    if region := _get_region(env):
        settings["region_name"] = region
    elif endpoint:
        settings["region_name"] = "us-east-1"
    if endpoint:
        settings["s3"] = {"addressing_style": "path"}
    return {
        "key": env.get("AWS_ACCESS_KEY_ID"),
        "secret": env.get("AWS_SECRET_ACCESS_KEY"),
        "token": env.get("AWS_SESSION_TOKEN"),
        "profile": env.get("AWS_PROFILE"),
        "endpoint_url": endpoint or None,
        "config_kwargs": settings,
        "skip_instance_cache": True,
    }


def _get_region(env: Mapping[str, str]) -> str:
    return env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ""


def _translate_error(failure: Any, operation: str, where: str) -> Exception:
    details = failure.response.get("Error", {})
    status = int(failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    if status == 412:
        return S3ConditionError()
    if status == 501 or code == "NotImplemented":
        unknown = UnsupportedByStoreError(f"{operation} of {where}: {status} {code} {message}".rstrip())
        unknown.operation = operation
        return unknown
    if status == _CONFLICT_STATUS or status in _NOT_DONE_STATUSES:
        return TransientS3Error(f"{where}: {status} {code}", unsure=status != _CONFLICT_STATUS)
    if code in ("BadDigest", "IncompleteBody"):
        return TransientS3Error(f"{where}: the bytes did not arrive as they are", unsure=False)
    if status >= 500 or code in _TRANSIENT_CODES:
        return TransientS3Error(f"{where}: {status} {code}", unsure=True)
    if code == "NoSuchBucket":
        return ReleaseError(f"there is no bucket {where.split('/')[2]}", tip="make it, or name another")
    if status == 404:
        return NotInStoreError(f"there is no {where}")
    tip = _TIPS_BY_CODE.get(code) or ("the credentials must allow it" if status in (401, 403) else None)
    return ReleaseError(f"{operation} of {where}: {status} {code} {message}".rstrip(), tip=tip)


def normalize_etag(etag: str) -> str:
    """Return an ETag as it is compared: a proxy that compresses makes it weak, some leave out its quotes."""
    return '"{}"'.format(etag.removeprefix("W/").strip('"'))


def _is_connection_error(failure: Exception) -> bool:
    return type(failure).__module__.split(".")[0] in ("aiohttp", "aiobotocore", "asyncio")
