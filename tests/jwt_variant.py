"""The JWTs of the suite's variant ``jwt``: who has signed what.

``python -m tests.jwt_variant`` prints them for ``conformance/targets/variants.toml``.

The keys of operator and accounts follow from their names; those of the users are published test vectors (RFC
8032, section 7.1), with which the checks sign nonces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.nats_identities import ACCOUNT, ANY, OPERATOR, NKey

FIRST = "UDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL"  # test 1
ODD = "UDWBOK4TVVPFMO7USMWHBYJEKA2MGVDH54XP2TLE5P4BS2BUM7RL7Q7A"  # test SHA(abc)
REVOKED_AT = 1690000000
BEFORE = 1680000000
PAST, FUTURE = 1577836800, 4102444800  # 2020 and 2100


def config_and_tokens() -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The configuration of the server, and the JWT of each role."""
    operator = NKey(OPERATOR, "operator")
    orders, bills, system = NKey(ACCOUNT, "orders"), NKey(ACCOUNT, "bills"), NKey(ACCOUNT, "system")
    signing, foreign = NKey(ACCOUNT, "signing key of orders"), NKey(ACCOUNT, "foreign")
    kind = {"type": "account", "version": 2}
    accounts = {
        orders.public: {
            "limits": ANY, **kind, "signing_keys": [signing.public], "revocations": {ODD: REVOKED_AT},
        },
        bills.public: {"limits": ANY, **kind},
        system.public: {"limits": ANY, **kind},
    }  # fmt: skip
    of_operator = {"type": "operator", "version": 2, "system_account": system.public}
    config = {
        "jetstream": False,
        # The signature is made in plain Python, which takes more than a second on a busy machine.
        "authorization": {"timeout": 10},
        "operator": operator.jwt(operator.public, "operator", of_operator),
        "resolver": "MEMORY",
        "resolver_preload": {key: operator.jwt(key, "account", claims) for key, claims in accounts.items()},
        "system_account": system.public,
    }
    user: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2}
    of_orders = {**user, "issuer_account": orders.public}
    limited = {**user, "pub": {"allow": ["*.ok.>"], "deny": ["*.ok.bad"]}, "sub": {"allow": ["*.ok.>"]}}
    whole = orders.jwt(FIRST, "user", user)
    of_limited = orders.jwt(FIRST, "user", limited)
    tokens = {
        "user": whole,
        "other": bills.jwt(FIRST, "user", user),
        "limited": of_limited,
        "signed-by-a-signing-key": signing.jwt(FIRST, "user", of_orders),
        "issued-later": orders.jwt(ODD, "user", user),
        "revoked": orders.jwt(ODD, "user", user, iat=BEFORE),
        "expired": orders.jwt(FIRST, "user", user, exp=PAST),
        "not-yet": orders.jwt(FIRST, "user", user, nbf=FUTURE),
        "bearer": orders.jwt(FIRST, "user", {**user, "bearer_token": True}),
        # Refused: another account signs for this one; no trusted operator has signed the account; a signature
        # of other claims.
        "signed-by-another-account": bills.jwt(FIRST, "user", of_orders),
        "of-an-unknown-account": foreign.jwt(FIRST, "user", user),
        "with-other-claims": ".".join((*of_limited.split(".")[:2], whole.rpartition(".")[2])),
    }
    return config, tokens


def main() -> None:
    """Print the tables of the variant."""
    config, tokens = config_and_tokens()
    print("[variant.jwt.config]")
    for name, value in config.items():
        if not isinstance(value, dict):
            print(f"{name} = {json.dumps(value)}")
    print("authorization = { timeout = 10 }")
    print("[variant.jwt.config.resolver_preload]")
    for key, token in config["resolver_preload"].items():
        print(f'{key} = "{token}"')
    print("[variant.jwt.credentials]")
    for role, token in tokens.items():
        print(f'{role} = {{ jwt = "{token}" }}')


if __name__ == "__main__":
    main()
