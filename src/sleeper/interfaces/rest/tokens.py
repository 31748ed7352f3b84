"""Tokens of the REST server, in a file that keeps no token, only salted hashes of them.

    {"tokens": [{"id": "5f0c61a2", "name": "ci", "role": "write", "salt": "...", "sha256": "...",
                 "made": "2026-01-01T00:00:00+00:00", "expires": null}]}

A token is `sleeper_<id>_<256 random bits>`. So many random bits need no slow hash.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from sleeper.errors import AccessRefused, AlreadyExists, BadRequest, NotFound

_log = logging.getLogger(__name__)

_PREFIX: Final = "sleeper_"
_OWN_MODE: Final = 0o600
_OTHERS: Final = 0o077


class Role(IntEnum):
    """What the bearer of a token may do. Each role may do what smaller ones may."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def text(self) -> str:
        """Its name, as in files and options."""
        return self.name.lower()

    @classmethod
    def of(cls, text: object) -> Role:
        """Return the role with a name.

        Raises:
            BadRequest: there is none.
        """
        for role in cls:
            if role.text == text:
                return role
        raise BadRequest(f"a role is one of {', '.join(r.text for r in cls)}, not {text!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token.

    Attributes:
        token_id: Its public part.
        name: What it was made for.
        role: What its bearer may do.
        made: When it was made (aware, UTC).
        expires: From when on it is refused; None for never.
    """

    token_id: str
    name: str
    role: Role
    made: datetime
    expires: datetime | None


@dataclass(frozen=True, slots=True)
class _StoredToken:
    token: Token
    salt: str
    digest: str


class TokenFile:
    """The file of tokens. It is read again when it has changed.

    Args:
        path: The file; it need not exist until a token is added.
        now: The clock (aware, UTC).
    """

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], datetime]) -> None:
        self.path = Path(path)
        self._now = now
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: dict[str, _StoredToken] = {}

    def add(
        self,
        name: str,
        role: Role,
        *,
        expires: datetime | None,
        new_secret: Callable[[], str],
        token_id: str,
    ) -> str:
        """Make a token and return it. It cannot be shown again.

        Args:
            name: What it is for; unique in the file.
            role: What its bearer may do.
            expires: From when on it is refused (aware); None for never.
            new_secret: Returns 256 random bits as text.
            token_id: Its public part; hex characters.

        Raises:
            AlreadyExists: the file has a token of this name.
            BadRequest: the name cannot be one, or the time has no time zone.
        """
        if not name.strip() or not name.isprintable():
            raise BadRequest(f"{name!r} cannot be the name of a token: name what it is for")
        if expires is not None and expires.tzinfo is None:
            raise BadRequest(f"expires={expires} has no time zone: add one")
        secret, salt = new_secret(), new_secret()
        made = Token(token_id=token_id, name=name, role=role, made=self._now(), expires=expires)
        with self._changed() as tokens:
            if any(stored.token.name == name for stored in tokens.values()):
                raise AlreadyExists(
                    f"{str(self.path)!r} has a token {name!r} already; choose another name, or "
                    "remove that one first"
                )
            tokens[token_id] = _StoredToken(made, salt, _digest(salt, secret))
        return f"{_PREFIX}{token_id}_{secret}"

    def remove(self, name: str) -> None:
        """Remove a token by its name. Servers that run refuse it from now on.

        Raises:
            NotFound: there is none of this name.
        """
        with self._changed() as tokens:
            found = [key for key, stored in tokens.items() if stored.token.name == name]
            if not found:
                raise NotFound(f"{str(self.path)!r} has no token {name!r}")
            del tokens[found[0]]

    def tokens(self) -> tuple[Token, ...]:
        """Return what is known of every token, in the order in which they were made."""
        return tuple(stored.token for stored in self._read().values())

    def checked(self, text: str) -> Token:
        """Return the token of which `text` is the whole.

        Raises:
            AccessRefused: it is none of the file, or has expired.
            BadRequest: the file cannot be read.
        """
        token_id, _, secret = text.removeprefix(_PREFIX).partition("_")
        stored = self._read().get(token_id)
        salt, digest = ("", _digest("", "")) if stored is None else (stored.salt, stored.digest)
        is_same = hmac.compare_digest(_digest(salt, secret), digest)
        if stored is None or not is_same or not text.startswith(_PREFIX):
            raise AccessRefused("the token is not valid; ask for another one")
        expires = stored.token.expires
        if expires is not None and expires <= self._now():
            raise AccessRefused(f"the token expired at {expires.isoformat()}; ask for another one")
        return stored.token

    def _read(self) -> dict[str, _StoredToken]:
        """Return all tokens by id."""
        try:
            info = self.path.stat()
            stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
            if stamp != self._stamp:
                if info.st_mode & _OTHERS:
                    raise BadRequest(
                        f"others may read the token file {str(self.path)!r}: chmod 600 it"
                    )
                self._tokens = dict(map(_entry, json.loads(self.path.read_bytes())["tokens"]))
                self._stamp = stamp
                _log.info("read %d tokens from %s", len(self._tokens), self.path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            if isinstance(error, BadRequest):
                raise
            raise BadRequest(
                f"the token file {str(self.path)!r} cannot be read: {error}"
            ) from error
        return self._tokens

    @contextmanager
    def _changed(self) -> Iterator[dict[str, _StoredToken]]:
        """Let the block change the tokens, and replace the file by a new one; one at a time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR, _OWN_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = dict(self._read())
            yield tokens
            text = json.dumps({"tokens": [*map(_document, tokens.values())]}, indent=2)
            unfinished = self.path.with_name(f"{self.path.name}.new")
            unfinished.unlink(missing_ok=True)
            file = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWN_MODE)
            with os.fdopen(file, "w") as output:
                output.write(f"{text}\n")
                output.flush()
                os.fsync(output.fileno())
            unfinished.replace(self.path)
        finally:
            os.close(lock)


def _digest(salt: str, secret: str) -> str:
    return sha256(f"{salt}:{secret}".encode()).hexdigest()


def _document(stored: _StoredToken) -> dict[str, Any]:
    token = stored.token
    return {
        "id": token.token_id,
        "name": token.name,
        "role": token.role.text,
        "salt": stored.salt,
        "sha256": stored.digest,
        "made": token.made.isoformat(),
        "expires": None if token.expires is None else token.expires.isoformat(),
    }


def _entry(document: dict[str, Any]) -> tuple[str, _StoredToken]:
    expires = document["expires"]
    if expires is not None and datetime.fromisoformat(expires).tzinfo is None:
        raise ValueError(f"expires {expires!r} has no time zone")
    token = Token(
        token_id=document["id"],
        name=document["name"],
        role=Role.of(document["role"]),
        made=datetime.fromisoformat(document["made"]),
        expires=None if expires is None else datetime.fromisoformat(expires),
    )
    return token.token_id, _StoredToken(token, document["salt"], document["sha256"])
