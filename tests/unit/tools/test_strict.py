"""Schemas in the form of services that enforce them, and answers that follow it."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from nanobot_core import JsonObject
from nanobot_core.tools import strict_schema
from nanobot_core.tools.model import model_schema
from nanobot_core.tools.strict import without_unset


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str | None = "Rex"


class Order(BaseModel):
    """An order."""

    number: Annotated[int, Field(ge=1, description="number of the order")]
    day: date
    colour: Colour = Colour.RED
    lines: list[list[str]] = []
    comment: str | None = "none"
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    best: Dog = Dog(kind="dog")


class FreeKeys(BaseModel):
    values: dict[str, int]


class AnyValue(BaseModel):
    value: Any


class Fixed(BaseModel):
    point: tuple[int, int]


class Node(BaseModel):
    children: list[Node]


def strict_form(schema: JsonObject, **options: Any) -> dict[str, Any]:
    strict = strict_schema(schema, **options)
    assert strict is not None
    return strict


def objects(schema: object) -> list[dict[str, Any]]:
    """Return all objects of a schema."""
    if isinstance(schema, list):
        return [each for item in schema for each in objects(item)]
    if not isinstance(schema, dict):
        return []
    inner = [each for item in schema.values() for each in objects(item)]
    return [schema, *inner] if "properties" in schema else inner


def test_each_object_requires_all_its_properties_and_no_others() -> None:
    strict = strict_form(model_schema(Order))
    found = objects(strict)
    assert len(found) == 4
    for each in found:
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])
    assert strict["description"] == "An order."
    assert strict["properties"]["number"] == {
        "type": "integer",
        "description": "number of the order (minimum: 1)",
    }
    assert strict["properties"]["colour"] == {"type": ["string", "null"], "enum": [*Colour, None]}
    assert strict["properties"]["lines"]["type"] == ["array", "null"]
    assert "oneOf" not in str(strict)
    assert "default" not in str(strict)


def test_rules_that_the_service_enforces_stay_rules() -> None:
    strict = strict_form(model_schema(Order), keywords={"minimum", "format"})
    assert strict["properties"]["number"]["minimum"] == 1
    assert strict["properties"]["day"] == {"type": "string", "format": "date"}


@pytest.mark.parametrize("model", [FreeKeys, AnyValue, Fixed, Node])
def test_what_has_no_strict_form_is_left_to_the_caller(model: type[BaseModel]) -> None:
    assert strict_schema(model_schema(model)) is None


def test_references_stay_references() -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"pet": {"$ref": "#/$defs/Pet"}},
        "$defs": {"Pet": {"type": "object", "properties": {"age": {"type": "integer"}}}},
    }
    strict = strict_form(schema)
    assert strict["properties"]["pet"] == {"anyOf": [{"$ref": "#/$defs/Pet"}, {"type": "null"}]}
    assert strict["$defs"]["Pet"]["required"] == ["age"]


def test_an_answer_that_follows_the_strict_form_becomes_the_model() -> None:
    schema = model_schema(Order)
    answer: Any = {
        "number": 3,
        "day": "2026-01-02",
        "colour": None,
        "lines": None,
        "comment": None,
        "pet": {"kind": "cat", "lives": None},
        "best": {"kind": "dog", "name": None},
    }
    jsonschema.validate(answer, strict_form(schema))
    order = Order.model_validate(without_unset(schema, answer))
    assert order.colour is Colour.RED
    assert order.lines == []
    assert order.comment is None, "null is a value of its own here"
    assert order.pet == Cat(kind="cat")
    assert order.best == Dog(kind="dog", name=None)


def test_a_required_null_stays_for_the_validation_to_report() -> None:
    assert without_unset(model_schema(Order), {"number": None}) == {"number": None}
