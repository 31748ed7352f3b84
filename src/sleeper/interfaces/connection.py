"""`sleeper.connect`: opens an instance by its place, or by the REST server that serves it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, overload

from sleeper.errors import BadRequest, MissingExtra
from sleeper.instance import instance
from sleeper.instance.instance import Instance

if TYPE_CHECKING:
    from sleeper.interfaces.remote.remote_instance import RemoteInstance

_SERVERS = ("https://", "http://")


@overload
def connect(
    url: str | os.PathLike[str],
    *,
    create: bool = False,
    allow_functions: Sequence[str] | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
) -> Instance: ...


@overload
def connect(url: str, *, token: str | None) -> RemoteInstance: ...


def connect(
    url: str | os.PathLike[str],
    *,
    create: bool = False,
    allow_functions: Sequence[str] | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
    token: str | None = None,
) -> Instance | RemoteInstance:
    """Open an instance.

    Args:
        url: A folder, `file://` and a path, `s3://bucket/folder`, `aws://` and an instance id, or
            `memory://` for a new instance in the memory of this process. For a bucket,
            AWS_ENDPOINT_URL and AWS_REGION are read here and pickled with the instance;
            credentials are read from the environment of each process. Or `https://host:port` of a
            server (`sleeper server start`), which serves an instance to others.
        create: True to create the instance if it does not exist.
        allow_functions: Modules whose functions may run in this process if a table names one
            (`sleeper.table.function`), such as `my_package.cleaning` or `my_package.*`. Without
            it, the modules in SLEEPER_ALLOW_FUNCTIONS, separated by commas, or none.
        cache_folder: For a bucket: a folder of this machine's disk that keeps what look-ups by key
            and small ranges read of its files, for all processes of this user; it is made if it is
            missing. Without it, that in SLEEPER_CACHE_FOLDER, or nothing is kept.
        cache_bytes: How many bytes of the disk it may take, at least 16 MiB. Without it, the number
            in SLEEPER_CACHE_BYTES, or 1 GiB.
        token: For a server: a token of it. Without it, that in SLEEPER_TOKEN.

    Returns:
        The instance; usable as a context manager, picklable (except `memory://`). Of a server: a
        `RemoteInstance`, which has the methods that servers offer.

    Raises:
        UrlInvalid: the URL's scheme is not known.
        BadRequest: `allow_functions` is not a list of modules, `cache_folder` no path, or
            `cache_bytes` too small; or an argument is not for this kind of URL.
        InstanceNotFound: there is no instance, and `create` is False.
        FormatTooNew: a newer Sleeper made it.
        MissingExtra: the URL names a bucket, and `sleeper-store[objectstore]` is not installed; or
            a server, and `sleeper-store[client]` is not.
        StorageFailed: the storage cannot be read or written.
    """
    if not isinstance(url, str) or not url.lower().startswith(_SERVERS):
        if token is not None:
            raise BadRequest(f"token= is for a server, https://host:port, and {url!r} is none")
        return instance.connect(
            url,
            create=create,
            allow_functions=allow_functions,
            cache_folder=cache_folder,
            cache_bytes=cache_bytes,
        )
    if create or allow_functions is not None:
        raise BadRequest("create= and allow_functions= are not for a server, which decides both")
    if cache_folder is not None or cache_bytes is not None:
        raise BadRequest("cache_folder= and cache_bytes= are for a bucket, and not for a server")
    if find_spec("httpx") is None:
        raise MissingExtra(
            "the client of a server needs httpx, which is not installed: "
            "pip install 'sleeper-store[client]'"
        )
    from sleeper.interfaces.remote import remote_instance

    return remote_instance.open_remote(url, token)
