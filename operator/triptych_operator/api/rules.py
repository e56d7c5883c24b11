"""What a value must obey, as data: checked here in Python, and written into the CRD as CEL.

A rule says the same thing twice, once for the API server (``cel``) and once for us (``holds``), and
carries the message that either side answers with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition on a value. ``message`` says what to do when it does not hold."""

    cel: str
    message: str
    holds: Callable[[Any], bool]

    def as_validation(self) -> dict[str, str]:
        """The rule as an entry of ``x-kubernetes-validations``."""
        return {"rule": self.cel, "message": self.message}

    def check(self, value: object) -> None:
        """Raises the validation error of this rule unless ``value`` obeys it."""
        if not self.holds(value):
            raise PydanticCustomError("rule", "{message}", {"message": self.message})


@dataclass(frozen=True, slots=True)
class Obeys:
    """Annotation of a text type: ``Annotated[str, Obeys(Rule(...), max_length=253)]``."""

    rule: Rule
    max_length: int  # bounds the cost of the CEL, without which the API server refuses the rule

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Adds the check to the scalar's own schema."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Adds the rule and what the API server must know of the type."""
        made = handler(schema)
        made["x-kubernetes-validations"] = [self.rule.as_validation()]
        made["maxLength"] = self.max_length
        return made

    def _checked(self, value: str) -> str:
        if len(value) > self.max_length:
            raise PydanticCustomError(
                "too_long", "has more than {limit} characters", {"limit": self.max_length}
            )
        self.rule.check(value)
        return value


@dataclass(frozen=True, slots=True)
class NumberOrText:
    """Annotation of a text type that may be written as a whole number, as Kubernetes quantities.

    The API server checks ``pattern`` and ``minimum`` without CEL: to it, such a value may be as
    long as a whole request, and the cost of a rule on it would exceed what a CRD may cost.
    """

    pattern: str
    message: str
    minimum: int = 0  # of a value that is written as a number
    maximum: int = 2**63 - 1

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Turns numbers into text, and checks it."""
        text = core_schema.no_info_before_validator_function(_number_as_text, handler(source))
        return core_schema.no_info_after_validator_function(self._checked, text)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Says the same to the API server."""
        made = handler(schema)
        made["x-kubernetes-int-or-string"] = True
        made["pattern"] = self.pattern
        made["minimum"] = self.minimum
        made["maximum"] = self.maximum
        return made

    def _checked(self, value: str) -> str:
        if not matches(self.pattern, value):
            raise PydanticCustomError("pattern", "{message}", {"message": self.message})
        return value


@dataclass(frozen=True, slots=True)
class Immutable:
    """Annotation of a field that keeps the value that it had when the resource was made.

    Only the API server, which knows that value, can check it.
    """

    message: str

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Adds the rule."""
        made = handler(schema)
        rule = {"rule": "self == oldSelf", "message": self.message}
        made["x-kubernetes-validations"] = [*made.get("x-kubernetes-validations", ()), rule]
        return made


def matches(pattern: str, value: str) -> bool:
    """Whether ``value`` matches as the API server sees it: ``$`` is the very end."""
    return re.match(pattern.removesuffix("$") + r"\Z", value) is not None


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class ApiModel(BaseModel):
    """Base of every object in the resource: frozen, camelCase, and strict about names and types.

    Validate JSON (``model_validate_json``), as the API server does: in it, ``"2"`` is no number.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    # Written into the CRD alone: what a cluster refuses and `triptych up` takes.
    cluster_rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Adds the rules, and the defaults of nested objects so that the server fills them in."""
        made = handler.resolve_ref_schema(handler(schema))
        rules = [rule.as_validation() for rule in (*cls.rules, *cls.cluster_rules)]
        if rules:
            made["x-kubernetes-validations"] = rules
        for field in cls.model_fields.values():
            default = field.get_default(call_default_factory=True)
            if isinstance(default, ApiModel) and field.alias is not None:
                given = default.model_dump(mode="json", by_alias=True, exclude_unset=True)
                made["properties"][field.alias]["default"] = given
        return made

    @model_validator(mode="after")
    def _obeys_rules(self) -> Self:
        for rule in self.rules:
            rule.check(self)
        return self
