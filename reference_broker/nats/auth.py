"""Who may connect, and what they may publish and subscribe to.

Knows the configuration and what a client says in CONNECT; does not know connections.
Source: docs.nats.io, "Authentication" and "Authorization".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from plumbline.reference_broker.nats.config import NS, Account, Authorization, Permission, Permissions, User
from plumbline.reference_broker.nats.nkeys import decode_signature, public_key, verify
from plumbline.reference_broker.nats.sublist import Sublist
from plumbline.wire.nats.subjects import ANY_TAIL, ANY_TOKEN, collide, covers

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.issued import IssuedUser, IssuedUsers

REMEMBERED = 4096  # subjects whose permission is remembered per user and direction
BCRYPT = "$2"  # begins a password that is a hash
SYSTEM_QUEUE = b"_sys_"  # a queue group of the server's own


class Credentials(Struct, frozen=True):
    """What CONNECT says about who connects."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey: str | None = None
    signature: str = ""  # of the nonce in INFO
    jwt: str = ""  # in operator mode


class Authenticator:
    """Decides who a client is."""

    def __init__(
        self,
        authorization: Authorization,
        accounts: Iterable[Account] = (),
        no_auth_user: str | None = None,
        *,
        operator_mode: bool = False,
    ) -> None:
        self.users_by_jwt: IssuedUsers | None = None
        if operator_mode:
            from plumbline.reference_broker.nats.issued import IssuedUsers

            self.users_by_jwt = IssuedUsers(accounts)
        self.required = operator_mode or authorization.required or any(account.users for account in accounts)
        self._token = authorization.token
        self._default = authorization.default_permissions
        self._users = {user.user: user for user in authorization.users if not user.nkey}
        self._keys = {user.nkey: user for user in authorization.users if user.nkey}
        self._accounts: dict[User, Account] = {}
        for account in accounts:
            self._users |= {user.user: user for user in account.users if not user.nkey}
            self._keys |= {user.nkey: user for user in account.users if user.nkey}
            self._accounts |= dict.fromkeys(account.users, account)
        self._no_auth_user = self._users.get(no_auth_user or "") or self._keys.get(no_auth_user or "")
        if authorization.user is not None:
            self._users[authorization.user] = User(authorization.user, authorization.password or "")

    def admits(self, credentials: Credentials, nonce: str) -> bool:
        """Whether they may connect at all."""
        if not self.required or self.is_nobody(credentials):
            return True
        issued = self.issued(credentials)
        if issued is not None and issued.bearer:
            return True
        user = self.user_of(credentials)
        if user is not None and user.nkey:
            return self.signature_is_right(user.nkey, nonce, credentials.signature)
        if user is not None:
            return self.password_is_right(user, credentials.password)
        return self._token is not None and self.token_is_right(credentials.token)

    def is_nobody(self, credentials: Credentials) -> bool:
        """Whether a client without credentials is let in as ``no_auth_user``."""
        given = (credentials.user, credentials.password, credentials.token, credentials.nkey)
        return self._no_auth_user is not None and not any(given)

    def account_of(self, credentials: Credentials) -> str | None:
        """The name of the user's account; None for the global one."""
        account = self._account(credentials)
        return account.name if account is not None else None

    def _account(self, credentials: Credentials) -> Account | None:
        if (issued := self.issued(credentials)) is not None:
            return issued.account
        user = self.user_of(credentials)
        return self._accounts.get(user) if user is not None else None

    def issued(self, credentials: Credentials) -> IssuedUser | None:
        """The user of a JWT that its account has signed, whatever the time is."""
        return self.users_by_jwt.find(credentials.jwt) if self.users_by_jwt is not None else None

    def user_of(self, credentials: Credentials) -> User | None:
        """Whom the credentials name, right or wrong."""
        if self.users_by_jwt is not None:
            issued = self.users_by_jwt.find(credentials.jwt)
            return issued.user if issued is not None else None
        if self.is_nobody(credentials):
            return self._no_auth_user
        if credentials.nkey:
            return self._keys.get(credentials.nkey)
        return self._users.get(credentials.user or "")

    def password_is_right(self, user: User, password: str | None) -> bool:
        return _is_secret(user.password, password or "")

    def token_is_right(self, token: str | None) -> bool:
        return token is not None and _is_secret(self._token or "", token)

    def signature_is_right(self, nkey: str, nonce: str, signature: str) -> bool:
        return verify(public_key(nkey), nonce.encode(), decode_signature(signature))

    def permissions(self, credentials: Credentials) -> ConnectionPermissions | None:
        """What those admitted may do; None for everything."""
        user, account = self.user_of(credentials), self._account(credentials)
        default = self._default if account is None else account.default_permissions
        configured = (user and user.permissions) or default
        return ConnectionPermissions(configured) if configured is not None and self.required else None


class ConnectionPermissions:
    """The permissions of one connection, ready to be asked about every message."""

    def __init__(self, permissions: Permissions) -> None:
        self.permissions = permissions
        self.responses = permissions.allow_responses
        self.replies: dict[bytes, tuple[int, int]] = {}  # how often, and until when, by reply subject
        self.publish = SubjectPermissions(_publishing(permissions))
        self.subscribe = SubjectPermissions(permissions.subscribe)
        self._publish_known: dict[bytes, bool] = {}
        self._deny_known: dict[tuple[bytes, bytes | None], bool] = {}

    def may_publish(self, subject: bytes) -> bool:
        known = self._publish_known.get(subject)
        if known is None:
            known = self.publish.allows(subject) and not self.publish.denies(subject)
            _remember(self._publish_known, subject, known)
        return known

    def expect_response(self, reply: bytes, now: int) -> None:
        """A message with ``reply`` was delivered. docs.nats.io, "Allow Responses"."""
        if self.responses is None:
            return
        if len(self.replies) >= REMEMBERED:
            del self.replies[next(iter(self.replies))]
        ends = round(self.responses.expires * NS)
        self.replies[reply] = (self.responses.max_msgs, now + ends if ends >= 0 else 0)

    def may_respond(self, subject: bytes, now: int) -> bool:
        """Whether it is the answer to what was delivered; counts it."""
        left, ends = self.replies.get(subject, (0, 0))
        if left == 0 or (ends and now > ends):
            self.replies.pop(subject, None)
            return False
        self.replies[subject] = (left - 1 if left > 0 else left, ends)
        return True

    def may_subscribe(self, subject: bytes, queue: bytes | None) -> bool:
        return self.subscribe.allows(subject, queue) and not self.subscribe.denies(subject, queue)

    def must_filter(self, subject: bytes) -> bool:
        """Whether a subscription that is allowed can still match what is denied."""
        return any(collide(denied, subject) for denied in self.subscribe.denied)

    def may_receive(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether a message may be delivered to a subscription that must be filtered."""
        known = self._deny_known.get((subject, queue))
        if known is None:
            known = not self.subscribe.denies(subject, queue)
            _remember(self._deny_known, (subject, queue), known)
        return known


def _publishing(permissions: Permissions) -> Permission:
    """Who may answer may publish nothing else that is not allowed by name."""
    if permissions.allow_responses is None or permissions.publish.allow is not None:
        return permissions.publish
    return structs.replace(permissions.publish, allow=())


class SubjectPermissions:
    """One direction's allow and deny lists. An entry may be ``subject`` or ``subject queue``."""

    def __init__(self, permission: Permission) -> None:
        self._allow = None if permission.allow is None else _sublist(permission.allow)
        self._deny = _sublist(permission.deny)
        self.denied = [entry.split()[0].encode() for entry in permission.deny]

    def allows(self, subject: bytes, queue: bytes | None = None) -> bool:
        if self._allow is None:
            return True
        queues = self._allow.match(subject)
        named = [pattern for pattern in queues if pattern]
        # An entry that names queues decides about queue subscriptions, whatever plain entries say.
        if queue and named:
            return _queue_matches(queue, named)
        return b"" in queues

    def denies(self, subject: bytes, queue: bytes | None = None) -> bool:
        queues = self._deny.match(subject)
        named = [pattern for pattern in queues if pattern]
        return b"" in queues or (bool(queue) and bool(named) and _queue_matches(queue or b"", named))


def _is_secret(configured: str, given: str) -> bool:
    """``configured`` may be a bcrypt hash."""
    if configured.startswith(BCRYPT):
        from plumbline.reference_broker.nats.bcrypt import matches

        return matches(configured, given)
    return configured == given


def secret_problem(configured: str) -> str:
    """Why a configured password or token cannot be compared here; empty if it can."""
    if not configured.startswith(BCRYPT):
        return ""
    from plumbline.reference_broker.nats.bcrypt import is_available

    return "" if is_available() else "a bcrypt hash needs libcrypt with bcrypt, which is not on this machine"


def _sublist(entries: Iterable[str]) -> Sublist[bytes]:
    """Subjects of permission entries; the subscriber is the queue pattern, empty for none."""
    subjects: Sublist[bytes] = Sublist()
    for entry in entries:
        subject, _, queue = entry.partition(" ")
        subjects.insert(subject.encode(), queue.strip().encode())
    return subjects


def _queue_matches(queue: bytes, patterns: Iterable[bytes]) -> bool:
    return any(
        queue == pattern or ((ANY_TOKEN in pattern or ANY_TAIL in pattern) and covers(pattern, queue))
        for pattern in patterns
    )


def _remember(known: dict[Any, bool], key: object, answer: bool) -> None:  # noqa: FBT001 - a value, not a switch
    if len(known) >= REMEMBERED:
        known.clear()
    known[key] = answer
