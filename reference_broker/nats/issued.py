"""Users whose account has signed what they may do: nothing of them is in the configuration. Pure.

Source: docs.nats.io, "In Depth JWT Guide"; nats-io/jwt, ``UserClaims``.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from plumbline.bounds import ISSUED_USERS
from plumbline.reference_broker.nats.config import (
    NS,
    Account,
    Permission,
    Permissions,
    ResponsePermission,
    User,
)
from plumbline.reference_broker.nats.jwt import Claims, read_jwt

ALL_USERS = "*"  # in revocations
# Whoever is signed by a key with a role says none of these.
_LIMITS = ("pub", "sub", "resp", "subs", "data", "payload", "src", "times", "bearer_token")


class IssuedUser(Struct, frozen=True):
    """A user as a JWT describes it. ``bearer``: whoever has the JWT is this user, without a signature."""

    user: User
    account: Account
    claims: Claims
    bearer: bool = False


class _List(Struct, frozen=True):
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


class _Response(Struct, frozen=True):
    max: int = 1
    ttl: int = 0  # nanoseconds


class UserFields(Struct, frozen=True):
    """What claims of a user, roles of signing keys, and default permissions of accounts have in common."""

    pub: _List = _List()
    sub: _List = _List()
    resp: _Response | None = None
    bearer_token: bool = False
    issuer_account: str = ""

    def permissions(self) -> Permissions | None:
        """None if they allow everything."""
        found = Permissions(_permission(self.pub), _permission(self.sub), self._responses())
        return None if found == Permissions() else found

    def _responses(self) -> ResponsePermission | None:
        if self.resp is None:
            return None
        default = ResponsePermission()
        expires = self.resp.ttl / NS or default.expires
        return ResponsePermission(self.resp.max or default.max_msgs, expires)


def _permission(lists: _List) -> Permission:
    """An empty list is none."""
    return Permission(lists.allow or None, lists.deny or ())


class IssuedUsers:
    """The users of these accounts. A JWT that was seen is not verified again."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self.accounts = {account.name: account for account in accounts}
        self._known: dict[str, IssuedUser | None] = {}

    def find(self, token: str) -> IssuedUser | None:
        """The user of a JWT whose signatures are right, whatever the time is; None if there is none."""
        if token not in self._known:
            if len(self._known) >= ISSUED_USERS:
                self._known.clear()
            try:
                self._known[token] = self._read(token)
            except ValueError:
                self._known[token] = None
        return self._known[token]

    def _read(self, token: str) -> IssuedUser | None:
        claims = read_jwt(token, "user")
        fields = msgspec.convert(claims.nats, UserFields)
        account = self.accounts.get(fields.issuer_account or claims.issuer)
        if account is None or _is_revoked(account, claims):
            return None
        permissions, is_bearer = fields.permissions(), fields.bearer_token
        if claims.issuer != account.name:
            if claims.issuer not in account.signing_keys:
                return None
            if (role := account.signing_keys[claims.issuer]) is not None:
                if any(claims.nats.get(limit) for limit in _LIMITS):
                    return None
                permissions, is_bearer = role.permissions, role.bearer
        return IssuedUser(User(nkey=claims.subject, permissions=permissions), account, claims, is_bearer)


def _is_revoked(account: Account, claims: Claims) -> bool:
    """Whether it was issued before its user, or every user, was revoked."""
    return any(claims.issued <= account.revocations.get(who, -1) for who in (claims.subject, ALL_USERS))
