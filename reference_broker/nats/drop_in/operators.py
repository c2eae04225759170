"""Operator mode: accounts that an operator has signed, from JWTs in the configuration. Pure.

Source: docs.nats.io, "In Depth JWT Guide" and "Resolver Configuration"; nats-io/jwt, ``OperatorClaims`` and
``AccountClaims``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from plumbline.reference_broker.nats.config import (
    Account,
    AccountLimits,
    Destination,
    Export,
    Import,
    Role,
    SubjectMapping,
)
from plumbline.reference_broker.nats.issued import UserFields
from plumbline.reference_broker.nats.jwt import Claims, read_jwt
from plumbline.reference_broker.nats.mappings import mappings_problem
from plumbline.reference_broker.nats.nkeys import public_key

_BEGIN = "-----BEGIN"


class _OperatorFields(Struct):
    signing_keys: tuple[str, ...] = ()
    system_account: str = ""


class _Limits(Struct):
    """0 for both kinds of storage is an account without JetStream."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = -1
    consumer: int = -1
    max_ack_pending: int = -1
    mem_max_stream_bytes: int = -1
    disk_max_stream_bytes: int = -1
    max_bytes_required: bool = False

    def jetstream(self) -> AccountLimits | None:
        if not self.mem_storage and not self.disk_storage:
            return None
        return AccountLimits(
            max_memory=self.mem_storage,
            max_storage=self.disk_storage,
            max_streams=self.streams or -1,
            max_consumers=self.consumer or -1,
            max_ack_pending=self.max_ack_pending or -1,
            memory_max_stream_bytes=self.mem_max_stream_bytes or -1,
            storage_max_stream_bytes=self.disk_max_stream_bytes or -1,
            max_bytes_required=self.max_bytes_required,
        )


class _Export(Struct):
    subject: str
    type: Literal["stream", "service"]
    token_req: bool = False
    response_type: str = ""


class _Import(Struct):
    """``subject`` is of the account that publishes; ``to`` is how version 1 wrote ``local_subject``."""

    subject: str
    account: str
    type: Literal["stream", "service"]
    local_subject: str = ""
    to: str = ""
    token: str = ""

    def read(self) -> Import:
        source, local = self.subject, self.local_subject or self.subject
        if not self.local_subject and self.to:
            if self.type == "stream":
                local = f"{self.to}.{self.subject}"
            else:
                source = self.to
        return Import(kind=self.type, account=self.account, subject=source, to=local)


class _SigningKey(Struct):
    """A key whose users have the permissions of ``template``."""

    key: str
    template: UserFields = field(default_factory=UserFields)


class _Destination(Struct):
    """A weight of 0 is not given."""

    subject: str
    weight: int = 0


class _AccountFields(Struct):
    limits: _Limits = field(default_factory=_Limits)
    exports: tuple[_Export, ...] = ()
    imports: tuple[_Import, ...] = ()
    signing_keys: tuple[str | _SigningKey, ...] = ()
    revocations: dict[str, int] = field(default_factory=dict)
    mappings: dict[str, tuple[_Destination, ...]] = field(default_factory=dict)
    default_permissions: UserFields = field(default_factory=UserFields)


class Operator(Struct, frozen=True):
    """Those whose signature an account needs."""

    keys: tuple[str, ...]
    system_account: str | None = None


def jwt_in(text: str) -> str:
    """The JWT in a file, which may have a line of dashes before and behind it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line, following in pairwise(lines):
        if line.startswith(_BEGIN):
            return following
    return "".join(lines)


def read_operator(token: str) -> Operator:
    """Raises ``ValueError``."""
    claims = read_jwt(jwt_in(token), "operator")
    fields = msgspec.convert(claims.nats, _OperatorFields)
    return Operator((claims.subject, *fields.signing_keys), fields.system_account or None)


def read_account(key: str, token: str, trusted: Sequence[str]) -> tuple[Account, Claims]:
    """An account that a trusted key has signed. Raises ``ValueError``."""
    public_key(key, "A")
    claims = read_jwt(jwt_in(token), "account")
    if claims.subject != key:
        raise ValueError("it is of another account")
    if claims.issuer not in trusted:
        raise ValueError("its issuer is not trusted")
    fields = msgspec.convert(claims.nats, _AccountFields)
    account = Account(
        name=key,
        default_permissions=fields.default_permissions.permissions(),
        jetstream=fields.limits.jetstream(),
        imports=tuple(one.read() for one in fields.imports),
        signing_keys=dict(_signing_key(one) for one in fields.signing_keys),
        revocations=fields.revocations,
        mappings=tuple(_mapping(*one) for one in fields.mappings.items()),
    )
    return account, claims


def read_accounts(tokens: Mapping[str, str], trusted: Sequence[str]) -> tuple[Account, ...]:
    """The accounts of a memory resolver. Raises ``ValueError``, which names the account."""
    found: dict[str, tuple[Account, Claims]] = {}
    for key, token in tokens.items():
        try:
            found[key] = read_account(key, token, trusted)
        except ValueError as error:
            raise ValueError(f"account {key[:60]!r}: {error}") from None
    all_claims = {key: claims for key, (_, claims) in found.items()}
    return tuple(
        msgspec.structs.replace(account, exports=_exports(claims, all_claims))
        for account, claims in found.values()
    )


def _exports(exporter: Claims, accounts: Mapping[str, Claims]) -> tuple[Export, ...]:
    """What needs a token is for the accounts that have one."""
    exports = msgspec.convert(exporter.nats, _AccountFields).exports
    return tuple(
        Export(
            kind=one.type,
            subject=one.subject,
            accounts=_activated(exporter, one, accounts) if one.token_req else None,
            response_type="singleton" if one.response_type in ("", "Singleton") else "stream",
        )
        for one in exports
    )


def _activated(exporter: Claims, export: _Export, accounts: Mapping[str, Claims]) -> tuple[str, ...]:
    """Accounts that import it with a token that the exporter has signed."""
    return tuple(
        key
        for key, claims in accounts.items()
        for one in msgspec.convert(claims.nats, _AccountFields).imports
        if one.account == exporter.subject and one.type == export.type and _is_activation(one, key, exporter)
    )


def _is_activation(wanted: _Import, importer: str, exporter: Claims) -> bool:
    try:
        token = read_jwt(wanted.token, "activation")
    except ValueError:
        return False
    signers = {_signing_key(one)[0] for one in msgspec.convert(exporter.nats, _AccountFields).signing_keys}
    return token.subject == importer and token.issuer in signers | {exporter.subject}


def _mapping(source: str, destinations: Sequence[_Destination]) -> SubjectMapping:
    """Raises ``ValueError``."""
    found = tuple(Destination(one.subject, one.weight or 100) for one in destinations)
    if problem := mappings_problem(source, found):
        raise ValueError(problem)
    return SubjectMapping(source, found)


def _signing_key(one: str | _SigningKey) -> tuple[str, Role | None]:
    if isinstance(one, str):
        return one, None
    return one.key, Role(one.template.permissions(), one.template.bearer_token)


def settings_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """``accounts``, ``system_account`` and ``operator_mode`` of a configuration. Raises ``ValueError``."""
    operators = [read_operator(token) for token in fields.get("operator", ())]
    trusted = [key for operator in operators for key in operator.keys] + [*fields.get("trusted_keys", ())]
    system = fields.get("system_account") or next((one.system_account for one in operators), None)
    accounts = read_accounts(fields.get("resolver_preload", {}), trusted)
    names = {account.name for account in accounts}
    if system is not None and system not in names:
        raise ValueError(f"the system account {system[:60]!r} is not in resolver_preload")
    return {"accounts": accounts, "system_account": system, "operator_mode": True}
