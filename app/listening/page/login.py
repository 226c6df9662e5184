"""The login of the rating page, for the accounts of `--auth-file`."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence

COOKIE = "access-token-relpe"
"""The cookie of a login."""
_MOST_LOGINS = 10_000
"""Logins that are remembered; the oldest is forgotten first."""


class Accounts:
    """Who may use the page, and who has logged in; the guard asks it about cookies."""

    def __init__(self, accounts: Sequence[tuple[str, str]]) -> None:
        self._passwords = dict(accounts)
        self.tokens: dict[str, str] = {}

    def knows(self, cookies: Mapping[str, str]) -> bool:
        """Return whether cookies are those of a login, or the page needs none."""
        return not self._passwords or cookies.get(COOKIE) in self.tokens

    def login(self, user: object, password: object) -> str | None:
        """Return the value of a cookie, or None for a wrong user or password."""
        expected = self._passwords.get(user) if isinstance(user, str) else None
        given = password if isinstance(password, str) else ""
        right = hmac.compare_digest((expected or "").encode(), given.encode())
        if expected is None or not right:
            return None
        token = secrets.token_urlsafe(24)
        self.tokens[token] = str(user)
        while len(self.tokens) > _MOST_LOGINS:
            del self.tokens[next(iter(self.tokens))]
        return token
