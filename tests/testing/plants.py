"""Every way to break a promise that the checker knows: planted in the rows, or in the history of an actor."""

from __future__ import annotations

from collections.abc import Callable

from recovery.testing.recording import fingerprint
from tests.testing.worlds import OWN_EFFECTS, World, envelope, identity, reply

DONE, FAILED, CANCELLED, STORED = (identity(name) for name in ("done", "failed", "cancelled", "stored"))
FAR, LATE, ABSENT = (identity(name) for name in ("far", "late", "absent"))
FIRST_REPLY = reply("far")
"""The first one that was due: it was sent twice."""


PLANTS: dict[str, list[tuple[Callable[[World], None], str]]] = {}


def plant(rule, subject):
    """A way to break one rule, for the task or reply named."""

    def keep(function):
        PLANTS.setdefault(rule, []).append((function, subject))
        return function

    return keep


@plant("acknowledged is stored", f"task {DONE}")
def _lose_a_message(world):
    world.loose_queue("inbox", "tasks", "outbox")
    world.queue(*(f"DELETE FROM {name} WHERE task_id = '{DONE}'" for name in ("inbox", "tasks", "outbox", "journal")))


@plant("acknowledged is stored", f"task {DONE}")
def _store_a_message_twice(world):
    world.loose_queue("inbox", "tasks")
    world.queue(f"INSERT INTO inbox SELECT * FROM inbox WHERE task_id = '{DONE}'")


@plant("acknowledged is stored", f"task {DONE}")
def _store_other_content(world):
    world.queue(f"UPDATE inbox SET fingerprint = 'v1:0' WHERE task_id = '{DONE}'")


@plant("acknowledged is stored", f"task {DONE}")
def _acknowledge_under_another_id(world):
    world.edit("sender", "receive", lambda said: said.update(task_id="other"))


@plant("acknowledged is stored", f"task {DONE}")
def _be_new_twice(world):
    asked = {"principal": "agent-a", "message_id": "done", "fingerprint": fingerprint(envelope("done", max_attempts=2))}
    world.note("receive", "ok", {"task_id": DONE, "duplicate": False}, **asked)


@plant("task has inbox", f"task {DONE}")
def _forget_where_it_came_from(world):
    world.loose_queue("inbox", "tasks")
    world.queue(f"DELETE FROM inbox WHERE task_id = '{DONE}'")


@plant("task has inbox", f"task {DONE}")
def _change_the_message_id(world):
    world.queue(f"UPDATE inbox SET message_id = 'renamed' WHERE task_id = '{DONE}'")


@plant("one terminal state", f"task {DONE}")
def _leave_an_ending(world):
    world.queue(_move(DONE, "task", "done", "cancelled"))


@plant("one terminal state", f"reply {DONE}")
def _send_again(world):
    world.queue(_move(DONE, "reply", "sent", "pending"))


@plant("terminal has one reply", f"task {DONE}")
def _lose_a_reply(world):
    world.queue(f"DELETE FROM outbox WHERE task_id = '{DONE}'")


@plant("terminal has one reply", f"task {DONE}")
def _reply_twice(world):
    world.loose_queue("outbox")
    world.queue(f"INSERT INTO outbox SELECT * FROM outbox WHERE task_id = '{DONE}'")


@plant("terminal has one reply", f"task {DONE}")
def _reply_to_open_work(world):
    world.loose_queue("tasks")
    world.queue(f"UPDATE tasks SET state = 'pending', available_at = 9e12 WHERE task_id = '{DONE}'")


@plant("reply says the state", f"reply {CANCELLED}")
def _say_another_state(world):
    world.queue(f"UPDATE outbox SET status = 'done' WHERE task_id = '{CANCELLED}'")


@plant("reply says the state", f"reply {FAILED}")
def _say_another_reason(world):
    world.queue(f"UPDATE outbox SET payload = replace(payload, 'exhausted', 'spent') WHERE task_id = '{FAILED}'")


@plant("reply says the state", f"reply {DONE}")
def _say_another_result(world):
    world.queue(f"UPDATE tasks SET result = '{{\"sum\":4}}' WHERE task_id = '{DONE}'")


@plant("reply bytes never change", reply("done"))
def _receive_other_bytes(world):
    world.receiver(f"UPDATE receipts SET content_hash = 'other' WHERE reply_id = '{reply('done')}'")


@plant("reply bytes never change", FIRST_REPLY)
def _send_other_bytes(world):
    world.edit("dispatcher", "claim_reply", lambda said: said["claims"][0].update(payload="other"))


@plant("fence handed out once", f"task {DONE}")
def _claim_twice_by_the_journal(world):
    world.queue(_move(DONE, "task", "pending", "running", fence=1))


@plant("fence handed out once", f"task {DONE}")
def _claim_twice_by_the_actors(world):
    claim = {"task_id": DONE, "fence": 1, "attempt": 1, "lease_until": 1010.0}
    world.note("claim", "ok", {"claims": [claim]}, owner="stranger", limit=1)


@plant("fences increase", f"task {FAILED}")
def _lower_a_fence(world):
    world.queue(f"UPDATE journal SET fence = 9 WHERE task_id = '{FAILED}' AND to_state = 'running' AND attempt = 1")


@plant("leases never overlap", f"task {STORED}")
def _prolong_a_lease_that_another_has(world):
    world.edit("worker", "claim", lambda said: [one.update(lease_until=1012.0) for one in said["claims"]], nth=3)


@plant("leases never overlap", f"task {FAILED}")
def _take_what_was_never_given_back(world):
    world.forget("worker", "release")


@plant("nothing after the lease", f"task {DONE}")
def _finish_late(world):
    world.queue(f"UPDATE journal SET at = 1011 WHERE task_id = '{DONE}' AND to_state = 'done'")


@plant("nothing after the lease", f"reply {DONE}")
def _settle_late(world):
    world.queue(f"UPDATE journal SET at = 1999 WHERE task_id = '{DONE}' AND to_state = 'sent'")


@plant("nothing after the lease", f"task {DONE}")
def _finish_after_the_deadline(world):
    world.queue(f"UPDATE tasks SET deadline = 1000 WHERE task_id = '{DONE}'")


@plant("no start after deadline", f"task {STORED}")
def _start_late(world):
    world.queue(f"UPDATE tasks SET deadline = 1001 WHERE task_id = '{STORED}'")


@plant("attempts in bounds", f"task {FAILED}")
def _try_too_often(world):
    world.loose_queue("tasks")
    world.queue(f"UPDATE tasks SET attempts = 3 WHERE task_id = '{FAILED}'")


@plant("attempts in bounds", f"task {STORED}")
def _forget_an_attempt(world):
    world.queue(f"UPDATE tasks SET attempts = 2 WHERE task_id = '{STORED}'")


@plant("attempts in bounds", "reply " + identity("far"))
def _forget_a_delivery(world):
    world.queue(f"UPDATE outbox SET attempts = 1 WHERE task_id = '{FAR}'")


@plant("hops in bounds", f"task {DONE}")
def _work_from_too_far(world):
    world.queue(f"UPDATE tasks SET hops = 4 WHERE task_id = '{DONE}'")


@plant("hops in bounds", f"task {FAR}")
def _end_what_is_near(world):
    world.queue(f"UPDATE tasks SET hops = 3 WHERE task_id = '{FAR}'")


@plant("one effect", reply("done"))
def _apply_twice(world):
    world.receiver(f"INSERT INTO {OWN_EFFECTS} SELECT * FROM {OWN_EFFECTS} WHERE reply_id = '{reply('done')}'")


@plant("one effect", reply("done"))
def _mark_twice(world):
    world.loose_receiver("effects")
    world.receiver(f"INSERT INTO effects SELECT * FROM effects WHERE reply_id = '{reply('done')}'")


@plant("one effect", FIRST_REPLY)
def _be_new_to_the_receiver_twice(world):
    world.edit("receiver", "accept", lambda said: said.update(duplicate=False), nth=8)


@plant("sent has one effect", reply("done"))
def _confirm_without_effect(world):
    world.receiver(*(f"DELETE FROM {name} WHERE reply_id = '{reply('done')}'" for name in ("effects", "receipts")))
    world.receiver(f"DELETE FROM {OWN_EFFECTS} WHERE reply_id = '{reply('done')}'")


@plant("answered is recorded", f"task {STORED}")
def _lose_a_claim(world):
    world.queue(f"UPDATE journal SET fence = 7 WHERE task_id = '{STORED}' AND fence = 1")


@plant("answered is recorded", f"task {DONE}")
def _lose_a_result(world):
    world.edit("worker", "finish_and_claim", lambda said: said.update(result="other"), event="invoke")


@plant("answered is recorded", f"task {FAILED}")
def _lose_a_release(world):
    world.edit("worker", "release", lambda said: said.update(state="failed"))


@plant("answered is recorded", f"task {DONE}")
def _lose_a_cancel(world):
    world.note("cancel", "ok", {"cancelled": True}, task_id=DONE)


@plant("answered is recorded", reply("absent"))
def _lose_a_receipt(world):
    world.note("accept", "ok", {"duplicate": False}, reply_id=reply("absent"), payload="hash")


@plant("moves are asked for", f"task {DONE}")
def _finish_by_itself(world):
    world.forget("worker", "finish_and_claim")


@plant("moves are asked for", f"reply {DONE}")
def _settle_by_itself(world):
    world.forget("dispatcher", "settle")


@plant("moves are asked for", f"task {STORED}")
def _give_up_by_itself(world):
    world.forget("worker", "fail")


@plant("moves are asked for", f"task {CANCELLED}")
def _cancel_by_itself(world):
    world.forget("worker", "cancel")


@plant("moves are asked for", f"task {DONE}")
def _come_from_nobody(world):
    world.forget("sender", "receive")


@plant("refused changed nothing", f"task {identity('new')}")
def _collide_with_nothing(world):
    asked = {"principal": "agent-a", "message_id": "new", "fingerprint": "v1:new"}
    world.note("receive", "fail", {"error": "PayloadCollision"}, **asked)


@plant("refused changed nothing", DONE)
def _store_what_was_refused(world):
    world.edit("sender", "receive", lambda said: said.update(error="Busy"), event="fail")
    world.queue(f"UPDATE inbox SET fingerprint = '{_collision()}' WHERE task_id = '{DONE}'")


@plant("unknown is one of two", f"task {STORED}")
def _store_half_of_a_message(world):
    world.loose_queue("inbox", "tasks")
    world.queue(f"DELETE FROM tasks WHERE task_id = '{STORED}'")


@plant("unknown is one of two", f"task {STORED}")
def _store_what_nobody_sent(world):
    world.queue(f"UPDATE inbox SET fingerprint = 'v1:0' WHERE task_id = '{STORED}'")


@plant("unknown is one of two", f"task {identity('unheard')}")
def _finish_with_another_result(world):
    world.queue(f"UPDATE tasks SET result = '0' WHERE task_id = '{identity('unheard')}'")


@plant("unknown is one of two", reply("done"))
def _accept_half(world):
    world.note("accept", None, None, reply_id=reply("done"), payload="hash")
    world.receiver(f"DELETE FROM effects WHERE reply_id = '{reply('done')}'")


@plant("unknown is one of two", "owner worker")
def _hold_more_than_was_asked_for(world):
    world.edit("worker", "claim", lambda said: said["claims"].pop())


@plant("no other error", "stranger")
def _meet_an_error(world):
    world.note("claim", "fail", {"error": "StatementFailed"}, owner="stranger", limit=1)


@plant("journal replays", f"task {DONE}")
def _skip_a_move(world):
    world.queue(f"DELETE FROM journal WHERE task_id = '{DONE}' AND to_state = 'running'")


@plant("journal replays", f"task {LATE}")
def _make_a_move_that_is_not_allowed(world):
    world.queue(f"UPDATE journal SET to_state = 'done' WHERE task_id = '{LATE}' AND subject = 'task'")


@plant("journal replays", f"task {DONE}")
def _end_elsewhere(world):
    world.queue(f"UPDATE tasks SET fence = 2 WHERE task_id = '{DONE}'")


@plant("journal replays", f"task {LATE}")
def _forget_the_journal(world):
    world.queue(f"DELETE FROM journal WHERE task_id = '{LATE}'")


@plant("nothing left", f"task {DONE}")
def _leave_work(world):
    world.loose_queue("tasks")
    world.queue(f"UPDATE tasks SET state = 'pending' WHERE task_id = '{DONE}'")


@plant("nothing left", f"task {DONE}")
def _leave_a_lease(world):
    world.loose_queue("tasks")
    world.queue(f"UPDATE tasks SET state = 'running', lease_until = 1010 WHERE task_id = '{DONE}'")


@plant("nothing left", f"task {DONE}")
def _leave_a_deadline(world):
    world.loose_queue("tasks")
    world.queue(f"UPDATE tasks SET state = 'running', lease_until = 9e12 WHERE task_id = '{DONE}'")


@plant("nothing left", f"reply {DONE}")
def _leave_a_delivery(world):
    world.loose_queue("outbox")
    world.queue(f"UPDATE outbox SET state = 'pending' WHERE task_id = '{DONE}'")


@plant("database is whole", "database")
def _damage_an_index(world):
    for statements in DAMAGE[world.queue_url.split(":")[0]]:
        world.queue(*statements)


DAMAGE = {
    "sqlite": [
        ["CREATE INDEX planted ON tasks (state)"],
        [
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET sql = 'CREATE INDEX planted ON tasks (task_id)' WHERE name = 'planted'",
        ],
    ],
    "postgresql": [
        ["CREATE FUNCTION planted(text) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'a' || $1 $$"],
        ["CREATE INDEX planted ON tasks (planted(task_id))"],
        ["CREATE OR REPLACE FUNCTION planted(text) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'b' || $1 $$"],
    ],
}
"""An index whose rows are not what its definition makes of the table."""


def _collision():
    return fingerprint(envelope("done", payload={"n": 2}))


def _move(task, subject, source, target, fence=1):
    columns = "seq, at, task_id, subject, from_state, to_state, owner, fence, attempt, why"
    return (
        f"INSERT INTO journal ({columns}) VALUES"
        f" (1000000, 1999, '{task}', '{subject}', '{source}', '{target}', 'worker', {fence}, 1, 'planted')"
    )
