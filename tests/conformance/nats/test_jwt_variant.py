"""The JWTs of the variant ``jwt`` are those that tests/jwt_variant.py makes."""

from __future__ import annotations

from plumbline.conformance.targets.variants import variants
from tests.jwt_variant import config_and_tokens


def test_the_jwts_of_the_variant_can_be_made_again() -> None:
    config, tokens = config_and_tokens()
    variant = variants()["jwt"]
    assert variant.config == config
    assert variant.credentials == {role: {"jwt": token} for role, token in tokens.items()}
