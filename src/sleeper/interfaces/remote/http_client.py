"""Sends requests to a REST server, and raises the errors that it answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote, urlsplit

import httpx

from sleeper.errors import AccessRefused, StorageFailed
from sleeper.interfaces.json_documents import error_of
from sleeper.model.authors import author_now

_log = logging.getLogger(__name__)

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_TIMES: Final = httpx.Timeout(connect=10, read=660, write=60, pool=60)
_ARROW: Final = "application/vnd.apache.arrow.stream"


def _say_reason(request: httpx.Request) -> None:
    """Send why this is done along: who does it, the token says."""
    if (reason := author_now().reason) is not None:
        request.headers["Sleeper-Reason"] = quote(reason, safe="")


class HttpClient:
    """A REST server. Safe for threads.

    Args:
        url: Its URL, without a path.
        token: A token of it; None for one that needs none.

    Raises:
        AccessRefused: the token has characters that no token has.
    """

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        token = (token or "").strip()
        if not (token.isascii() and token.isprintable()):
            raise AccessRefused(
                "the token has characters that no token has, such as the end of a line: give "
                "token= (or SLEEPER_TOKEN) as sleeper server token add printed it"
            )
        if token and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            _log.warning("the token travels in the clear to %s: use https://", parts.hostname)
        self.url = url
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMES,
            event_hooks={"request": [_say_reason]},
            # A proxy of the environment is not for this machine.
            transport=httpx.HTTPTransport() if parts.hostname in _LOOPBACK else None,
        )

    def get(self, path: str, **params: Any) -> Any:
        """Return what the server answers to a GET, as JSON values."""
        return self._json("GET", path, params={k: v for k, v in params.items() if v is not None})

    def send(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """Return what the server answers to a request with a JSON body; None for nothing."""
        return self._json(method, path, json=body, params=params)

    def upload(
        self, path: str, content: Iterator[bytes], headers: Mapping[str, str], **params: Any
    ) -> Any:
        """Return what the server answers to an upload of an Arrow stream, as JSON values.

        Raises:
            httpx.TransportError: the answer did not come: whether the upload was taken is unknown.
        """
        headers = {**headers, "Content-Type": _ARROW}
        answer = self._client.post(path, content=content, headers=headers, params=params)
        _raise_problem(answer)
        return _document(answer)

    def open_rows(self, path: str, body: Any = None, **params: Any) -> httpx.Response:
        """Return the answer that has rows as an Arrow stream; its body is read later.

        Without a body the rows are there, and the request is a GET.

        Raises:
            SleeperError: the server refused the request, or cannot be reached.
        """
        # The body is read as it comes, so no proxy may compress it.
        headers = {"Accept": _ARROW, "Accept-Encoding": "identity"}
        method = "GET" if body is None else "POST"
        given = {name: value for name, value in params.items() if value is not None}
        request = self._client.build_request(method, path, json=body, params=given, headers=headers)
        with self._reached():
            answer = self._client.send(request, stream=True)
            if answer.is_error:
                answer.read()
            if answer.is_error or "Sleeper-Transaction" not in answer.headers:
                answer.close()
                _raise_problem(answer)
                raise _no_server_of_ours(answer)
        return answer

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __del__(self) -> None:
        if hasattr(self, "_client"):
            self._client.close()

    def _json(self, method: str, path: str, **how: Any) -> Any:
        with self._reached():
            answer = self._client.request(method, path, **how)
            _raise_problem(answer)
        return _document(answer) if answer.content else None

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Translate the errors of a connection.

        Raises:
            StorageFailed: there was one.
        """
        try:
            yield
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from None


def unreachable(url: str, error: Exception) -> StorageFailed:
    """Return the error for a server that cannot be reached, or breaks off."""
    reason = str(error) or type(error).__name__
    advice = ". Is it running there (sleeper server start)? Else check URL, proxy and network"
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        advice = (
            ". Set SSL_CERT_FILE to a file with the certificate of the authority that issued the "
            "server's, or with the server's own"
        )
    if "WRONG_VERSION_NUMBER" in reason:
        advice = f". It may speak HTTP without TLS there: give http{url.removeprefix('https')}"
    return StorageFailed(f"the server {url} did not answer: {reason}{advice}")


def _no_server_of_ours(answer: httpx.Response) -> StorageFailed:
    return StorageFailed(
        f"{answer.url.host} answered {answer.status_code} {answer.reason_phrase}, not as a "
        "Sleeper server: is it one?"
    )


def _document(answer: httpx.Response) -> Any:
    """Return the JSON values of an answer.

    Raises:
        StorageFailed: it is no JSON, as of another server or a proxy.
    """
    try:
        return answer.json()
    except ValueError:
        raise _no_server_of_ours(answer) from None


def _raise_problem(answer: httpx.Response) -> None:
    """Raise the error that an answer is, if it is one."""
    if not answer.is_error:
        if answer.is_redirect:
            raise StorageFailed(f"{answer.url} redirects: name the URL of the server itself")
        return
    try:
        error = error_of(answer.json())
    except (json.JSONDecodeError, UnicodeDecodeError, LookupError, TypeError, AttributeError):
        raise _no_server_of_ours(answer) from None
    raise error


# ---------------------------------------------------------------- result values
#
# Makes result values of JSON documents: data classes, by the types of their fields.

Result = TypeVar("Result")


def result_of(kind: type[Result], document: Mapping[str, Any]) -> Result:
    """Return an object of a data class, from the document that `asdict` and JSON made of it.

    What the document has more, from a newer server, is left out.
    """
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind) if each.init]  # type: ignore[arg-type]
    given = {name: _value(hints[name], document[name]) for name in names if name in document}
    return kind(**given)


def _value(hint: Any, value: Any) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        others = [part for part in parts if part is not NoneType]
        return None if value is None else _value(others[0], value)
    if isinstance(value, list):
        element = parts[0] if parts else Any
        items = [_value(element, item) for item in value]
        return items if origin in (list, Sequence) else tuple(items)
    if isinstance(value, dict) and origin is not None:
        return {key: _value(parts[1], item) for key, item in value.items()}
    if not isinstance(hint, type) or value is None:
        return value
    if is_dataclass(hint):
        return result_of(hint, value)
    if issubclass(hint, datetime | date):
        return hint.fromisoformat(value)
    return hint(value) if issubclass(hint, Enum) else value
