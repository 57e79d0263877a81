"""What the model, the databases and the machine hand to each other: records by the name of their class, and refusals.

Nothing here imports the product: an answer of a queue and an answer of the model meet as the same plain `Thing`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Thing:
    """A record of the public interface: the name of its class, and its fields by name.

    A `*` behind the name asks for a subclass, which the contract refuses.
    """

    kind: str
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def but(self, **changes: Any) -> Thing:
        """The same with other fields."""
        return Thing(self.kind, {**self.fields, **changes})


@dataclass(frozen=True)
class Failure:
    """What a queue raised: the name of the class, the field that it names, and for a batch how far it got."""

    name: str
    field: str = ""
    detail: Any = None


@dataclass(eq=False)
class Refused(Exception):
    """What the contract says must be raised.

    Equal to a Failure of one of the `names`. Where the contract leaves open which of several offences is named first,
    `fields` has them all; where it is empty, the field is not part of the promise.
    """

    names: frozenset[str]
    fields: frozenset[str] = frozenset()
    detail: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Failure):
            return NotImplemented
        named = not self.fields or other.name != "InvalidEnvelope" or other.field in self.fields
        return other.name in self.names and named and (self.detail is None or self.detail == other.detail)

    def __hash__(self) -> int:
        return hash(self.names)

    def __or__(self, other: Refused) -> Refused:
        return Refused(self.names | other.names, self.fields | other.fields)


def invalid(*fields: str) -> Refused:
    """InvalidEnvelope that names one of these fields."""
    return Refused(frozenset({"InvalidEnvelope"}), frozenset(fields))


def refused(name: str, detail: Any = None) -> Refused:
    """An error of this class."""
    return Refused(frozenset({name}), detail=detail)


@dataclass(frozen=True, eq=False)
class Words:
    """A text whose wording the contract leaves to the product: it must be there, storable, and hold `part`."""

    part: str = ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return False
        return self.part in other and "\0" not in other and len(other.encode()) <= 2048

    def __hash__(self) -> int:
        return hash(self.part)


@dataclass(frozen=True)
class Broken:
    """Stands for an iterator that hands out these items and then raises RuntimeError."""

    items: list[Any] = field(default_factory=list)
