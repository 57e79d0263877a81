"""What the machine may do: one rule for each verb, for time, and for what happens to a database."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.model import values
from tests.model.machine import Compared
from tests.model.things import Broken, Refused, Thing

few = st.integers(0, 30)
rarely = st.integers(0, 9).map(lambda number: number == 9)
JUNK: list[Any] = [None, 7, "text", (), ("one",), (1, 2, 3), {"not": "a pair"}]
QUEUES = ("default", "urgent", "Default")

THEN: dict[str, Callable[[Any], object]] = {
    "reconcile": lambda self: self.maintain(0),
    "claim": lambda self: self.claim("worker-1", 3, QUEUES, single=False),
    "claim a reply": lambda self: self.claim_reply("worker-1", 3, single=False),
    "renew": lambda self: self.renew(0, {}),
    "fail": lambda self: self.fail(0, {}, "no", retryable=True),
    "finish": lambda self: self.finish(0, {}, None),
    "settle": lambda self: self.settle(0, {}, {"delivered": True}),
}
"""What may follow at the very moment."""


class QueueMachine(Compared):
    """Drives both queues and the model through whatever may happen."""

    @initialize(knobs=st.sampled_from(values.KNOBS), held=st.booleans(), messages=values.first_messages)
    def begin(self, knobs: Any, messages: list[Any], *, held: bool) -> None:
        """Empty databases with a few messages in them."""
        self.start(knobs, held=held)
        self.sent: list[Thing] = []
        self.claims: list[Thing] = []
        self.deliveries: list[Thing] = []
        for number, (seconds, change) in enumerate(messages):
            self.receive(f"m-{number}", {"n": number}, ("in", seconds), change, "agent-a")

    # Receiving

    def message(self, message_id: Any, payload: Any, deadline: tuple[str, Any], change: dict[str, Any]) -> Thing:
        """An envelope whose deadline is told from now."""
        word, when = deadline
        moment = self.model.now + when if word == "in" else when
        return values.envelope(message_id, payload, moment, change)

    @rule(
        message_id=values.message_ids,
        payload=values.payloads,
        deadline=values.deadlines,
        change=values.changes,
        auth=values.auths,
    )
    def receive(self, message_id: Any, payload: Any, deadline: Any, change: Any, auth: Any) -> None:
        one = self.message(message_id, payload, deadline, change)
        if auth == "agent-b" and "sender" not in change:
            one = one.but(sender="agent-b")
        if not isinstance(self.run("receive", one, values.authority(auth)), Refused):
            self.sent.append(one)

    @precondition(lambda self: self.sent)
    @rule(which=few, change=values.again)
    def receive_again(self, which: int, change: dict[str, Any]) -> None:
        one = latest(self.sent, which)
        self.run("receive", one.but(**change), values.authority(one["sender"]))

    @rule(
        new=st.lists(values.batch_items, max_size=4),
        old=st.lists(few, max_size=3),
        verb=st.sampled_from(["receive_all", "receive_batch"]),
        breaks=rarely,
        junk=rarely,
    )
    def receive_many(self, new: list[Any], old: list[int], verb: str, *, breaks: bool, junk: bool) -> None:
        many: list[Any] = [self.message(*one) for one in new]
        many += [latest(self.sent, which).but(sender="agent-a") for which in old if self.sent]
        many += many[:1]
        many += [Thing("Envelope*", many[0].fields)] if junk and many else []
        self.run(verb, Broken(many) if breaks else many, values.authority("agent-a"))

    @rule(verb=st.sampled_from(["receive_all", "receive_batch"]), auth=values.auths, junk=st.sampled_from(JUNK))
    def receive_junk(self, verb: str, auth: Any, junk: Any) -> None:
        self.ask("receive", junk, values.authority(auth))
        self.ask(verb, [junk], values.authority(auth))
        self.run(verb, None, values.authority(auth))

    # Tasks

    @rule(owner=values.owners, limit=values.limits, queues=values.queues, single=st.booleans())
    def claim(self, owner: Any, limit: Any, queues: Any, *, single: bool) -> None:
        asked = (owner, queues) if single else (owner, limit, queues)
        self.keep(self.claims, self.run("claim" if single else "claim_batch", *asked))

    @rule(owner=st.sampled_from(["worker-1", "worker-2"]), queues=st.sampled_from([QUEUES, ("default",)]))
    def claim_one(self, owner: str, queues: Any) -> None:
        """The plain case, which the hostile ones would make rare."""
        self.claim(owner, 1, queues, single=True)

    def keep(self, held: list[Thing], answer: Any) -> None:
        """Remember what was handed out; nothing is ever forgotten, so that most of it becomes stale."""
        if isinstance(answer, Thing):
            held.append(answer)
        elif isinstance(answer, list):
            held += answer

    def a_claim(self, which: int, twist: dict[str, Any]) -> Any:
        """A claim as it is handed in, spoilt or not; a new one where there is none."""
        if not self.claims:
            self.claim("worker-1", 2, QUEUES, single=False)
        claim = latest(self.claims, which) if self.claims else NO_CLAIM
        other = min((key for key in self.model.tasks if key != claim["task_id"]), default="0" * 64)
        return values.twisted(claim, twist, "task_id", other)

    @rule(which=few, twist=values.twists)
    def renew(self, which: int, twist: Any) -> None:
        self.keep(self.claims, self.run("renew", self.a_claim(which, twist)))

    @rule(which=few, twist=values.twists, result=values.results)
    def finish(self, which: int, twist: Any, result: Any) -> None:
        self.run("finish", self.a_claim(which, twist), result)

    @rule(
        items=st.lists(st.tuples(few, values.twists, values.results), min_size=1, max_size=4),
        breaks=rarely,
        junk=st.none() | st.sampled_from(JUNK),
    )
    def finish_batch(self, items: list[Any], junk: Any, *, breaks: bool) -> None:
        pairs: list[Any] = [(self.a_claim(which, twist), result) for which, twist, result in items]
        pairs += [] if junk is None else [junk]
        self.run("finish_batch", Broken(pairs) if breaks else pairs)

    @rule(which=few, twist=values.twists, result=values.results, queues=values.queues)
    def finish_and_claim(self, which: int, twist: Any, result: Any, queues: Any) -> None:
        self.keep(self.claims, self.run("finish_and_claim", self.a_claim(which, twist), result, queues))

    @rule(which=few, twist=values.twists, reason=values.reasons, retryable=st.booleans())
    def fail(self, which: int, twist: Any, reason: Any, *, retryable: bool) -> None:
        self.run("fail", self.a_claim(which, twist), reason, retryable=retryable)

    @rule(which=few, twist=values.twists)
    def release(self, which: int, twist: Any) -> None:
        self.run("release", self.a_claim(which, twist))

    @rule(which=few, asked=values.ids_asked)
    def cancel(self, which: int, asked: Any) -> None:
        self.run("cancel", self.known(which) if asked == "known" else asked)

    def known(self, which: int) -> str:
        """The id of some task; of none while there is none."""
        return latest(sorted(self.model.tasks), which) if self.model.tasks else "0" * 64

    # Replies

    @rule(owner=values.owners, limit=values.limits, single=st.booleans())
    def claim_reply(self, owner: Any, limit: Any, *, single: bool) -> None:
        answer = self.run("claim_reply", owner) if single else self.run("claim_reply_batch", owner, limit)
        self.keep(self.deliveries, answer)

    def a_delivery(self, which: int, twist: dict[str, Any]) -> Any:
        """A delivery as it is handed in, spoilt or not; a new one where there is none."""
        if not self.deliveries:
            self.claim_reply("dispatcher-1", 2, single=False)
        delivery = latest(self.deliveries, which) if self.deliveries else NO_DELIVERY
        other = min((key for key in self.model.outbox if key != delivery["reply_id"]), default="0" * 64)
        return values.twisted(delivery, twist, "reply_id", other)

    @rule(which=few, twist=values.twists)
    def renew_reply(self, which: int, twist: Any) -> None:
        self.keep(self.deliveries, self.run("renew_reply", self.a_delivery(which, twist)))

    @rule(which=few, twist=values.twists, outcome=values.outcomes)
    def settle(self, which: int, twist: Any, outcome: dict[str, Any]) -> None:
        self.run("settle", self.a_delivery(which, twist), **outcome)

    @rule(
        items=st.lists(st.tuples(few, values.twists, values.outcomes), min_size=1, max_size=4),
        breaks=rarely,
        junk=st.none() | st.sampled_from(JUNK),
    )
    def settle_batch(self, items: list[Any], junk: Any, *, breaks: bool) -> None:
        found: list[Any] = [
            Thing("Settlement", {"delivery": self.a_delivery(which, twist), **outcome})
            for which, twist, outcome in items
        ]
        found += [] if junk is None else [junk]
        self.run("settle_batch", Broken(found) if breaks else found)

    @rule(way=values.ways)
    def dispatch_once(self, way: str) -> None:
        self.run("dispatch_once", way)

    @rule(which=few, asked=values.reply_ids, payload=values.reply_payloads, effect=values.effects)
    def accept(self, which: int, asked: Any, payload: Any, effect: str | None) -> None:
        reply_id = f"reply:{self.known(which)}" if asked == "known" else asked
        stored = self.model.outbox.get(reply_id) if isinstance(reply_id, str) else None
        said = (stored.payload if stored else "{}") if payload == "the stored one" else payload
        self.run("accept", reply_id, said, apply=effect)

    # Time, and what is due

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.25, 1.0, 2.0, 5.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.until(self.model.now + seconds)

    @rule(which=st.integers(0, 4), side=st.sampled_from(["at", "before", "after"]), then=st.sampled_from(["", *THEN]))
    def wait_for_something(self, which: int, side: str, then: str) -> None:
        """To the very moment at which something is over or due, the last one before it, or the first one after it."""
        self.meet(sorted(moment for moment in self.moments() if moment > self.model.now), which, side)
        if then:
            THEN[then](self)

    @rule(which=st.integers(0, 2), side=st.sampled_from(["at", "before", "after"]), then=st.sampled_from(sorted(THEN)))
    def at_the_end_of_a_lease(self, which: int, side: str, then: str) -> None:
        """A lease that begins now, and somebody who acts at the moment of its end."""
        self.claim_one("worker-1", QUEUES)
        rows = [*self.model.tasks.values(), *self.model.outbox.values()]
        ends = sorted({row.lease_until for row in rows if row.lease_until is not None})
        self.meet([end for end in ends if end > self.model.now], which, side)
        THEN[then](self)

    def meet(self, coming: list[float], which: int, side: str) -> None:
        """Move the clocks to one of these moments, or right before or after it."""
        if coming:
            moment = coming[which % len(coming)]
            towards = {"before": -math.inf, "at": moment, "after": math.inf}[side]
            self.until(math.nextafter(moment, towards))

    def moments(self) -> set[float]:
        """When leases end, deadlines pass, and waits are over."""
        tasks, replies = self.model.tasks.values(), self.model.outbox.values()
        soon = {task.deadline for task in tasks if task.deadline < self.model.now + 100.0}
        return soon | {moment for row in [*tasks, *replies] for moment in (row.lease_until, row.available_at) if moment}

    def until(self, moment: float) -> None:
        """Move all clocks."""
        for world in self.worlds:
            world.clock.advance(moment - self.model.now)
        self.model.now += moment - self.model.now

    @rule(higher=st.integers(0, 3))
    def maintain(self, higher: int) -> None:
        """Settle what is due, or do to the floor of all fences what a restore does; its step is 2^32 there."""
        if higher == 0:
            self.run("reconcile")
        self.model.floor += higher
        for world in self.worlds:
            world.raise_floor(self.model.floor)

    # Reading

    @rule(which=few, asked=values.ids_asked, queues=values.queues, limit=values.limits)
    def look(self, which: int, asked: Any, queues: Any, limit: Any) -> None:
        task_id = self.known(which) if asked == "known" else asked
        for verb in ("task", "explain", "replies"):
            self.ask(verb, task_id)
        self.ask("seen", f"reply:{task_id}" if asked == "known" else asked)
        for verb in ("counts", "effect_count"):
            self.ask(verb)
        self.ask("has_open", queues)
        self.run("replies", limit=limit)


NO_CLAIM = Thing(
    "Claim",
    {
        "task_id": "0" * 64,
        "owner": "worker-1",
        "fence": 1,
        "attempt": 1,
        "payload": {},
        "lease_until": 1e9,
        "deadline": 1e9,
    },
)
NO_DELIVERY = Thing(
    "Delivery",
    {
        "reply_id": "reply:" + "0" * 64,
        "owner": "dispatcher-1",
        "fence": 1,
        "attempt": 1,
        "payload": "{}",
        "lease_until": 1e9,
    },
)


def latest(some: list[Any], which: int) -> Any:
    """One of them, the last for 0: the newest are most often still good."""
    return some[-1 - which % len(some)]
