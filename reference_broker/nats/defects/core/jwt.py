"""Defects of users by JWT: who is let in, and as whom."""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec
from msgspec import structs

from plumbline.reference_broker.nats.auth import Authenticator, Credentials
from plumbline.reference_broker.nats.config import Account, Permission, Permissions, User
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.issued import IssuedUser, IssuedUsers
from plumbline.reference_broker.nats.jwt import Claims, read_jwt

Change = Callable[[IssuedUsers, str, IssuedUser | None], IssuedUser | None]


def _with_users(broker: Broker, change: Change) -> None:
    """``change`` is given the JWT and the user that it is of, None if it is refused, and gives another."""
    users = broker.authenticator.users_by_jwt
    if users is not None:
        find = users.find
        replace(users, "find", lambda token: change(users, token, find(token)) if token else find(token))


def _with_user(broker: Broker, change: Callable[[IssuedUser], IssuedUser | None]) -> None:
    """The same for users that are not refused."""
    _with_users(broker, lambda users, token, found: change(found) if found is not None else None)


def _with_accounts(broker: Broker, change: Callable[[Account], Account]) -> None:
    users = broker.authenticator.users_by_jwt
    if users is not None:
        replace(users, "accounts", {name: change(account) for name, account in users.accounts.items()})


def _first(users: IssuedUsers) -> Account:
    return next(iter(users.accounts.values()))


def _user_of(claims: Claims, account: Account) -> IssuedUser:
    """Without permissions of its own."""
    return IssuedUser(User(nkey=claims.subject), account, claims)


@defect("CORE-133")
def users_by_jwt_are_refused(broker: Broker) -> None:
    """No JWT of a user is accepted."""
    _with_user(broker, lambda found: None)


@defect("CORE-133")
def users_by_jwt_share_an_account(broker: Broker) -> None:
    """All users by JWT are in one account."""
    _with_users(
        broker,
        lambda users, token, found: (
            found and structs.replace(found, account=next(iter(users.accounts.values())))
        ),
    )


def _with_signatures(broker: Broker, is_right: Callable[[str, bool], bool]) -> None:
    """``is_right`` is given the signature of a nonce, and whether it is right."""
    authenticator = broker.authenticator

    def answer(nkey: str, nonce: str, signature: str) -> bool:
        try:
            right = Authenticator.signature_is_right(authenticator, nkey, nonce, signature)
        except ValueError:
            right = False
        return is_right(signature, right)

    if authenticator.users_by_jwt is not None:
        replace(authenticator, "signature_is_right", answer)


@defect("CORE-134")
def any_signature_of_the_nonce_will_do(broker: Broker) -> None:
    """With a JWT the nonce may be signed by any key."""
    _with_signatures(broker, lambda signature, right: bool(signature))


@defect("CORE-134")
def signature_of_the_nonce_may_be_missing(broker: Broker) -> None:
    """With a JWT the nonce need not be signed."""
    _with_signatures(broker, lambda signature, right: right or not signature)


@defect("CORE-134")
def jwt_may_be_missing(broker: Broker) -> None:
    """A client without a JWT is let in."""
    authenticator = broker.authenticator

    def admits(credentials: Credentials, nonce: str) -> bool:
        return not credentials.jwt or Authenticator.admits(authenticator, credentials, nonce)

    if authenticator.users_by_jwt is not None:
        replace(authenticator, "admits", admits)


@defect("CORE-135")
def account_needs_no_operator(broker: Broker) -> None:
    """A JWT is accepted although no operator has signed its account."""

    def change(users: IssuedUsers, token: str, found: IssuedUser | None) -> IssuedUser | None:
        if found is not None:
            return found
        claims = read_jwt(token, "user")
        return (
            None if claims.issuer in users.accounts else _user_of(claims, next(iter(users.accounts.values())))
        )

    _with_users(broker, _or_refused(change))


@defect("CORE-135")
def any_account_may_sign(broker: Broker) -> None:
    """A JWT that one account has signed is accepted for the account that it names."""

    def change(users: IssuedUsers, token: str, found: IssuedUser | None) -> IssuedUser | None:
        if found is not None:
            return found
        claims = read_jwt(token, "user")
        named = claims.nats.get("issuer_account", "")
        return _user_of(claims, users.accounts[named]) if named else None

    _with_users(broker, _or_refused(change))


@defect("CORE-135")
def claims_may_be_changed(broker: Broker) -> None:
    """The signature of a JWT is not verified."""

    def change(users: IssuedUsers, token: str, found: IssuedUser | None) -> IssuedUser | None:
        if found is not None:
            return found
        part = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=Claims)
        named = claims.nats.get("issuer_account") or claims.issuer
        return _user_of(claims, users.accounts[named]) if named == claims.issuer else None

    _with_users(broker, _or_refused(change))


def _or_refused(change: Change) -> Change:
    """What raises is refused."""

    def changed(users: IssuedUsers, token: str, found: IssuedUser | None) -> IssuedUser | None:
        try:
            return change(users, token, found)
        except (ValueError, KeyError):
            return None

    return changed


@defect("CORE-136")
def signing_keys_are_not_known(broker: Broker) -> None:
    """A JWT that a signing key of the account has signed is refused."""
    _with_user(broker, lambda found: found if found.claims.issuer == found.account.name else None)


@defect("CORE-136")
def issuer_account_is_ignored(broker: Broker) -> None:
    """Who has a JWT that a signing key has signed is in another account than issuer_account names."""

    def change(users: IssuedUsers, token: str, found: IssuedUser | None) -> IssuedUser | None:
        if found is None or found.claims.issuer == found.account.name:
            return found
        others = [account for account in users.accounts.values() if account != found.account]
        return structs.replace(found, account=others[0])

    _with_users(broker, change)


@defect("CORE-137")
def revocations_are_ignored(broker: Broker) -> None:
    """A JWT of a user that is revoked is accepted."""
    _with_accounts(broker, lambda account: structs.replace(account, revocations={}))


@defect("CORE-137")
def revocations_are_for_ever(broker: Broker) -> None:
    """A JWT of a user that was revoked is refused although it was issued later."""
    _with_accounts(
        broker,
        lambda account: structs.replace(account, revocations=dict.fromkeys(account.revocations, 2**40)),
    )


@defect("CORE-138")
def jwt_never_expires(broker: Broker) -> None:
    """A JWT is accepted after its exp."""
    _with_user(broker, lambda found: structs.replace(found, claims=structs.replace(found.claims, expires=0)))


@defect("CORE-138")
def jwt_counts_at_once(broker: Broker) -> None:
    """A JWT is accepted before its nbf."""
    _with_user(
        broker, lambda found: structs.replace(found, claims=structs.replace(found.claims, not_before=0))
    )


def _with_permissions(broker: Broker, change: Callable[[Permissions], Permissions | None]) -> None:
    def changed(found: IssuedUser) -> IssuedUser:
        permissions = found.user.permissions
        if permissions is None:
            return found
        return structs.replace(found, user=structs.replace(found.user, permissions=change(permissions)))

    _with_user(broker, changed)


@defect("CORE-139")
def permissions_of_a_jwt_are_ignored(broker: Broker) -> None:
    """A user by JWT may do all."""
    _with_permissions(broker, lambda permissions: None)


@defect("CORE-139")
def denials_of_a_jwt_are_ignored(broker: Broker) -> None:
    """What a JWT allows and denies is allowed."""
    _with_permissions(
        broker,
        lambda permissions: structs.replace(
            permissions, publish=structs.replace(permissions.publish, deny=())
        ),
    )


@defect("CORE-139")
def subscriptions_of_a_jwt_are_free(broker: Broker) -> None:
    """A user by JWT may subscribe to everything."""
    _with_permissions(broker, lambda permissions: structs.replace(permissions, subscribe=Permission()))


@defect("CORE-140")
def bearer_must_sign(broker: Broker) -> None:
    """A JWT with bearer_token is refused without a signature."""
    _with_user(broker, lambda found: structs.replace(found, bearer=False))
