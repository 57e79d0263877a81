"""Builds of the library in which one promise is broken, and the tests that have to notice.

A mutant is one exact text of one file, exchanged for another. What has to notice is named, so that a mutant takes
seconds to be found; a test among these that passes on every mutant proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """What is broken, where, and pytest's arguments for the tests that have to fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


CLAIMS = ("tests/contract/test_fences.py", "tests/contract/test_claiming.py", "tests/contract/test_ending.py")
RACES = ("tests/races/test_races.py",)
COMPOSED = ("tests/races/test_composed.py",)
LOST = ("tests/faults/test_lost_commit.py", "tests/faults/test_crashes.py")
RECEIVING = ("tests/contract/test_receiver.py", "tests/contract/test_effects.py")
SETTINGS = ("tests/doors/test_connections.py", "tests/doors/test_engines.py")

# None leaves out the state in `held_part`: by a CHECK of the table who has an owner is running, so it changes nothing.
MUTANTS = (
    Mutant(
        "the guard lets every move pass",
        "recovery/repositories/leases.py",
        "        if row.state not in allowed:\n",
        "        if not allowed:\n",
        ("tests/contract/test_fences.py",),
    ),
    Mutant(
        "a comparison that forgets the fence",
        "recovery/repositories/leases.py",
        "if type(fence) is not int or row.fence != fence:",
        "if type(fence) is not int:",
        CLAIMS,
    ),
    Mutant(
        "a comparison that forgets the owner",
        "recovery/repositories/leases.py",
        "if type(owner) is not str or row.owner != owner:",
        "if type(owner) is not str:",
        CLAIMS,
    ),
    Mutant(
        "a lease that still counts in the moment when it ends",
        "recovery/repositories/leases.py",
        "    if row.lease_until <= now:\n",
        "    if row.lease_until < now:\n",
        CLAIMS,
    ),
    Mutant(
        "a deadline that still counts in the moment when it ends",
        "recovery/repositories/leases.py",
        'row.deadline <= now:\n        return "its deadline',
        'row.deadline < now:\n        return "its deadline',
        CLAIMS,
    ),
    Mutant(
        "SQLite: a finish without the fence",
        "recovery/repositories/finishing.py",
        'mine = [leased.key == param("key", sa.Text()), table.c.fence == param("fence", sa.BigInteger())]',
        'mine = [leased.key == param("key", sa.Text())]',
        CLAIMS,
    ),
    Mutant(
        "SQLite: a finish without the lease",
        "recovery/repositories/finishing.py",
        "table.c.owner == owner, table.c.lease_until > now, ",
        "table.c.owner == owner, ",
        CLAIMS,
    ),
    Mutant(
        "SQLite: a finish without the deadline",
        "recovery/repositories/finishing.py",
        "table.c.lease_until > now, table.c.deadline > now]",
        "table.c.lease_until > now]",
        CLAIMS,
    ),
    Mutant(
        "PostgreSQL: a finish without the fence",
        "recovery/repositories/holding.py",
        "        locked.c.row_fence == locked.c.fence,\n",
        "",
        CLAIMS,
    ),
    Mutant(
        "PostgreSQL: a finish without the lease",
        "recovery/repositories/holding.py",
        "        locked.c.row_lease_until > reading.c.read_at,\n",
        "",
        CLAIMS,
    ),
    Mutant(
        "PostgreSQL: a finish without the row's lock",
        "recovery/repositories/holding.py",
        'lock.with_for_update(key_share=True, of=leased.table).cte("locked")',
        'lock.cte("locked")',
        COMPOSED,
    ),
    Mutant(
        "PostgreSQL: the clock is read before the lock is got",
        "recovery/repositories/holding.py",
        'reading = sa.select(now.label("read_at")).select_from(all_locked).cte("reading")',
        'reading = sa.select(now.label("read_at")).cte("reading")',
        COMPOSED,
    ),
    Mutant(
        "PostgreSQL: two claims may take one row",
        "recovery/repositories/claiming.py",
        '        .with_for_update(skip_locked=True, key_share=True)\n        .lateral("first")',
        '        .lateral("first")',
        (*RACES, *COMPOSED),
    ),
    Mutant(
        "PostgreSQL: a claim waits for whoever has a row",
        "recovery/repositories/claiming.py",
        '        .with_for_update(skip_locked=True, key_share=True)\n        .lateral("first")',
        '        .with_for_update(key_share=True)\n        .lateral("first")',
        (*RACES, *COMPOSED),
    ),
    Mutant(
        "a verb in steps does not lock its row",
        "recovery/repositories/leases.py",
        "sa.select(*leased.columns).where(by_key).with_for_update(key_share=True)",
        "sa.select(*leased.columns).where(by_key)",
        RACES,
    ),
    Mutant(
        "SQLite: a verb that writes asks for the lock too late",
        "recovery/backend/sqlite.py",
        '"BEGIN IMMEDIATE" if begin.write else "BEGIN"',
        '"BEGIN"',
        ("tests/races/test_races.py", "tests/plans/test_counts.py"),
    ),
    Mutant(
        "SQLite: a commit is not on the disk when it is answered",
        "recovery/backend/sqlite.py",
        '"PRAGMA synchronous = FULL"',
        '"PRAGMA synchronous = NORMAL"',
        SETTINGS,
    ),
    Mutant(
        "PostgreSQL: a commit is not on the disk when it is answered",
        "recovery/backend/postgresql.py",
        '"SET LOCAL synchronous_commit = on;"',
        '"SET LOCAL synchronous_commit = off;"',
        SETTINGS,
    ),
    Mutant(
        "the answer does not wait for the commit",
        "recovery/transactions.py",
        '            phase = "commit"\n            connection.commit()\n',
        '            phase = "commit"\n            with __import__("contextlib").suppress(Exception):\n'
        "                connection.commit()\n",
        LOST,
    ),
    Mutant(
        "a reply is called sent before the receiver has it",
        "recovery/queue.py",
        "            outcome = delivery.answered(receiver.accept(held.reply_id, held.payload), held)\n",
        "            self.settle(held, delivered=True)\n"
        "            outcome = delivery.answered(receiver.accept(held.reply_id, held.payload), held)\n",
        ("tests/contract/test_outbox.py",),
    ),
    Mutant(
        "a receiver that applies a repeated reply once more",
        "recovery/repositories/receipts.py",
        "        if not self._insert(reply_id, payload):\n            return",
        "        if not self._insert(reply_id, payload) and apply is None:\n            return",
        RECEIVING,
    ),
    Mutant(
        "the effect is applied whether or not the receipt is stored",
        "recovery/repositories/receipts.py",
        "        if known[0].content_hash != mark:\n",
        "        if not known[0].content_hash:\n",
        RECEIVING,
    ),
)
