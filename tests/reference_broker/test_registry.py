"""How a defect is declared, whatever broker it is of."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.registry import Defect, Registry

Lamp = dict[str, bool]


@pytest.fixture
def registry() -> Registry[Lamp]:
    return Registry("no_package", [])


def test_a_decorated_function_is_a_defect_with_the_name_and_docstring_of_the_function(
    registry: Registry[Lamp],
) -> None:
    @registry.defect("LAMP-001", "LAMP-002")
    def light_stays_off(lamp: Lamp) -> None:
        """The lamp is off,
        whatever the switch says.

        More about it.
        """
        lamp["on"] = False

    (found,) = registry.all_defects()
    assert found.name == "light-stays-off"
    assert found.breaks == ("LAMP-001", "LAMP-002")
    assert found.summary == "The lamp is off, whatever the switch says."
    assert found.needs == ()
    lamp = {"on": True}
    found.alter(lamp)
    assert lamp == {"on": False}


def test_a_name_that_is_no_identifier_is_given_apart(registry: Registry[Lamp]) -> None:
    @registry.defect("LAMP-001", name="2-lamps", needs=("mains",))
    def two_lamps(lamp: Lamp) -> None:
        """There are two."""

    assert registry.find("2-lamps").needs == ("mains",)


def test_a_defect_breaks_a_requirement(registry: Registry[Lamp]) -> None:
    with pytest.raises(ValueError, match="the defect 'flickers' breaks no requirement"):
        registry.add(Defect("flickers", (), "It flickers.", lambda lamp: None))


def test_a_defect_has_a_summary(registry: Registry[Lamp]) -> None:
    def flickers(lamp: Lamp) -> None:
        pass

    with pytest.raises(ValueError, match="the defect 'flickers' has no summary"):
        registry.defect("LAMP-001")(flickers)


def test_two_defects_cannot_have_one_name(registry: Registry[Lamp]) -> None:
    one: Defect[Lamp] = Defect("flickers", ("LAMP-001",), "It flickers.", lambda lamp: None)
    registry.add(one)
    with pytest.raises(ValueError, match="two defects are called 'flickers'"):
        registry.add(one)
