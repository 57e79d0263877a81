"""One frozen object with every setting, checked when it is made. Units stand in the names."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from recovery.accepting import checked_int, checked_seconds, checked_text
from recovery.backend import Bounds
from recovery.clock import ManualClock
from recovery.errors import InvalidEnvelope, Misconfigured
from recovery.schema import Tables, tables

WEEK_SECONDS: Final = 7 * 24 * 3600.0
LEASE_SECONDS: Final = 10.0
MAX_HOPS: Final = 4
DELIVERY_ATTEMPTS: Final = 3
RESULT_BYTES_MAX: Final = 1024 * 1024
FACTOR_MAX: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before try n + 1: `first_seconds * factor ** (n - 1)`, at most `cap_seconds`.

    With `jitter` the wait is drawn between half of that and all of it, so that tasks that failed together do not come
    back together.
    """

    first_seconds: float
    factor: float = 1.0
    cap_seconds: float = WEEK_SECONDS
    jitter: bool = False

    def __post_init__(self) -> None:
        checked_seconds(self.first_seconds, "first_seconds", 0.0, WEEK_SECONDS, Misconfigured)
        checked_seconds(self.factor, "factor", 1.0, FACTOR_MAX, Misconfigured)
        checked_seconds(self.cap_seconds, "cap_seconds", 0.0, WEEK_SECONDS, Misconfigured)
        if type(self.jitter) is not bool:
            raise Misconfigured("jitter must be True or False.")

    def seconds(self, attempt: int) -> float:
        """The wait after failed attempt number `attempt` (from 1), in seconds."""
        # 64 doublings already pass any cap; an exponent without a bound would overflow.
        wait = min(self.cap_seconds, self.first_seconds * self.factor ** min(max(attempt - 1, 0), 64))
        return random.uniform(wait / 2, wait) if self.jitter else wait


DEFAULT_BACKOFF: Final = Backoff(1.0, 2.0, 300.0, jitter=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a queue behaves. Raises Misconfigured for a value out of bounds.

    `backoff` serves tasks and, unless `delivery_backoff` is given, deliveries; a plain number is a fixed wait in
    seconds. The same goes for the leases.
    """

    allowed_sources: Collection[str] = ()
    lease_seconds: float = LEASE_SECONDS
    delivery_lease_seconds: float | None = None
    backoff: Backoff | float = DEFAULT_BACKOFF
    delivery_backoff: Backoff | float | None = None
    max_hops: int = MAX_HOPS
    delivery_attempts: int = DELIVERY_ATTEMPTS
    result_bytes_max: int = RESULT_BYTES_MAX
    busy_seconds: float = 10.0
    table_prefix: str = ""
    clock: ManualClock | None = None
    tables: Tables = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "allowed_sources", _sources(self.allowed_sources))
        put(self, "backoff", _backoff(self.backoff, "backoff"))
        put(self, "delivery_backoff", _backoff(self.delivery_backoff, "delivery_backoff", self.backoff))
        put(self, "lease_seconds", _lease(self.lease_seconds, "lease_seconds"))
        delivery_lease = self.lease_seconds if self.delivery_lease_seconds is None else self.delivery_lease_seconds
        put(self, "delivery_lease_seconds", _lease(delivery_lease, "delivery_lease_seconds"))
        checked_seconds(self.busy_seconds, "busy_seconds", 0.001, 600.0, Misconfigured)
        _whole(self.max_hops, "max_hops", 0, 2**31 - 1)
        _whole(self.delivery_attempts, "delivery_attempts", 1, 1000)
        _whole(self.result_bytes_max, "result_bytes_max", 1, 64 * RESULT_BYTES_MAX)
        if self.clock is not None and not isinstance(self.clock, ManualClock):
            raise Misconfigured("clock must be a ManualClock, or None for the database's own clock.")
        put(self, "tables", tables(_text(self.table_prefix)))

    @property
    def bounds(self) -> Bounds:
        """How long a transaction may wait."""
        return Bounds(busy_seconds=self.busy_seconds)

    def task_wait_seconds(self, attempt: int) -> float:
        """The wait before a task is tried again after attempt number `attempt`."""
        return _as_backoff(self.backoff).seconds(attempt)

    def delivery_wait_seconds(self, attempt: int) -> float:
        """The wait before a reply is sent again after attempt number `attempt`."""
        return _as_backoff(self.delivery_backoff).seconds(attempt)


def _text(value: object) -> str:
    if type(value) is not str:
        raise Misconfigured("table_prefix must be text.")
    return value


def _as_backoff(value: Backoff | float | None) -> Backoff:
    assert isinstance(value, Backoff)
    return value


def _backoff(value: Backoff | float | None, field_name: str, otherwise: Backoff | float | None = None) -> Backoff:
    if value is None and isinstance(otherwise, Backoff):
        return otherwise
    if type(value) is Backoff:
        return value
    return Backoff(checked_seconds(value, field_name, 0.0, WEEK_SECONDS, Misconfigured))


def _lease(value: object, field_name: str) -> float:
    return checked_seconds(value, field_name, 0.001, WEEK_SECONDS, Misconfigured)


def _whole(value: object, field_name: str, low: int, high: int) -> None:
    try:
        checked_int(value, field_name, low, high)
    except InvalidEnvelope as error:
        raise Misconfigured(str(error)) from error


def _sources(sources: object) -> frozenset[str]:
    # A bare str is a collection of its letters: "agent-a" would let "a" in.
    if isinstance(sources, str | bytes) or not isinstance(sources, Collection):
        raise Misconfigured("allowed_sources must be a set or list of names, never one bare text.")
    try:
        return frozenset(checked_text(source, "allowed_sources") for source in sources)
    except InvalidEnvelope as error:
        raise Misconfigured(str(error)) from error
