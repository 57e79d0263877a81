"""A queue with secrets in it, every verb that can be tried on it, and the ways in which its database goes wrong."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from recovery import AuthContext, Claim, Delivery, Envelope, Settlement, migrate
from tests.hostile.canaries import Canaries
from tests.hostile.refused_values import SENDER, good
from tests.plugins.pg_server import PostgresServer

AUTH: Final = AuthContext(SENDER)
WRITTEN: Final = ("tasks", "outbox", "journal", "receipts")


class Place:
    """A database, its URL for somebody whose name and password are canaries, and the URL of who may wreck it."""

    def __init__(self, url: str, admin_url: str, canaries: Canaries) -> None:
        self.url, self.admin_url, self.canaries = url, admin_url, canaries

    @property
    def is_file(self) -> bool:
        """Whether it is a file of SQLite's."""
        return self.url.startswith("sqlite")

    @property
    def path(self) -> Path:
        """Where the file is."""
        return Path(str(sa.make_url(self.url).database))

    def run(self, *statements: str) -> None:
        """Change the database from outside."""
        with self.line() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
            connection.commit()

    @contextlib.contextmanager
    def line(self) -> Iterator[sa.Connection]:
        """A connection of the one who may."""
        driver = "sqlite" if self.is_file else "postgresql+psycopg"
        engine = sa.create_engine(sa.make_url(self.admin_url).set(drivername=driver))
        with engine.connect() as connection:
            yield connection
        engine.dispose()


@contextlib.contextmanager
def file_place(folder: Path) -> Iterator[Place]:
    """A migrated file."""
    url = f"sqlite:///{folder}/secret.db"
    migrate(url)
    yield Place(url, url, Canaries())


@contextlib.contextmanager
def server_place(server: PostgresServer) -> Iterator[Place]:
    """A migrated database, and a role that may do what recovery needs and no more."""
    canaries = Canaries()
    admin_url = server.create_database(server.template_database("migrated", migrate))
    name, password = canaries.user, canaries.password
    url = sa.make_url(admin_url).set(username=name, password=password).render_as_string(hide_password=False)
    place = Place(url, admin_url, canaries)
    rights = [f"GRANT ALL ON ALL {what} IN SCHEMA public TO {name}" for what in ("TABLES", "SEQUENCES")]
    rights += [f"GRANT CREATE ON {what} TO {name}" for what in ("SCHEMA public", f"DATABASE {_database(admin_url)}")]
    place.run(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'", *rights)
    yield place
    admit_nobody(place, closed=False)
    place.run(f"DROP OWNED BY {name}", f"DROP ROLE {name}")
    server.drop_database(admin_url)


def _database(url: str) -> str:
    return str(sa.make_url(url).database)


def message(canaries: Canaries, message_id: str = "m", **changes: Any) -> Envelope:
    """An envelope whose payload has secrets in its key and in its value."""
    return good(message_id, payload={canaries.key: [canaries.payload]}, **changes)


@dataclasses.dataclass(frozen=True)
class Held:
    """What was claimed before the database went wrong."""

    claim: Claim
    other: Claim
    delivery: Delivery


def filled(verbs: Any, canaries: Canaries) -> Held:
    """A reply that is being sent, two tasks that are worked on, and one that waits."""
    result = {canaries.key: canaries.result}
    for number in range(5):
        verbs.receive(message(canaries, f"m-{number}"), AUTH)
    first, *rest = verbs.claim_batch("w", 4)
    verbs.finish(first, result)
    verbs.fail(rest[2], canaries.reason, retryable=False)
    return Held(rest[0], rest[1], verbs.claim_reply("d"))


class Fails:
    """A receiver that says a secret."""

    def __init__(self, canaries: Canaries) -> None:
        self._said = canaries.error

    def accept(self, reply_id: str, payload: str) -> object:
        """Raise it, with the payload."""
        raise RuntimeError(f"{self._said} {payload}")


def attempts(verbs: Any, held: Held, canaries: Canaries) -> dict[str, Callable[[], object]]:
    """Every verb of a queue, called with secrets wherever it takes something."""
    new, result = partial(message, canaries), {canaries.key: canaries.result}
    sent = Settlement(held.delivery, delivered=False, error=canaries.error)
    calls: dict[str, Callable[[], object]] = {
        "receive": lambda: verbs.receive(new("n-1"), AUTH),
        "receive_all": lambda: verbs.receive_all([new("n-2"), new("n-3")], AUTH),
        "renew": lambda: verbs.renew(held.claim),
        "claim": lambda: verbs.claim("w"),
        "claim_batch": lambda: verbs.claim_batch("w", 1),
        "release": lambda: verbs.release(held.other),
        "fail": lambda: verbs.fail(held.other, canaries.reason),
        "finish": lambda: verbs.finish(held.claim, result),
        "finish_batch": lambda: verbs.finish_batch([(held.claim, result), (held.other, result)]),
        "finish_and_claim": lambda: verbs.finish_and_claim(held.other, result),
        "renew_reply": lambda: verbs.renew_reply(held.delivery),
        "settle": lambda: verbs.settle(held.delivery, delivered=False, error=canaries.error),
        "settle_batch": lambda: verbs.settle_batch([sent]),
        "claim_reply": lambda: verbs.claim_reply("d"),
        "claim_reply_batch": lambda: verbs.claim_reply_batch("d", 1),
        "cancel": lambda: verbs.cancel(held.other.task_id),
        "task": lambda: verbs.task(held.claim.task_id),
        "has_open": verbs.has_open,
        "explain": lambda: verbs.explain(held.claim.task_id),
        "replies": verbs.replies,
        "counts": verbs.counts,
    }
    if hasattr(getattr(verbs, "inner", verbs), "receive_batch"):
        calls["receive_batch"] = lambda: verbs.receive_batch([new("n-4"), new("n-5")], AUTH)
        calls["dispatch_once"] = lambda: verbs.dispatch_once(Fails(canaries), "d")
        calls["reconcile"] = verbs.reconcile
    return calls


def refusals(verbs: Any, held: Held, canaries: Canaries) -> dict[str, Callable[[], object]]:
    """What is refused although the database is sound, with secrets in what is refused."""
    key, text = canaries.key, canaries.payload
    stale = dataclasses.replace(held.claim, fence=held.claim.fence + 1)
    lost = dataclasses.replace(held.delivery, fence=held.delivery.fence + 1)
    payloads: dict[str, Any] = {
        "object": {key: [object(), text]},
        "surrogate": {key: f"{text}\ud800"},
        "key": {f"{key}\udfff": text},
        "large": {key: text * 10_000},
        "deep": {key: json_deep(text)},
        "NaN": {key: [text, float("nan")]},
    }
    calls: dict[str, Callable[[], object]] = {
        f"payload {name}": partial(verbs.receive, good(payload=payload), AUTH) for name, payload in payloads.items()
    }
    for field in ("message_id", "kind", "deadline", "max_attempts", "hops", "queue", "priority"):
        calls[field] = partial(verbs.receive, good(**{field: f"{text}\0"}), AUTH)
    return calls | {
        "sender": partial(verbs.receive, good(sender=text), AUTH),
        "principal": partial(verbs.receive, good(sender=text), AuthContext(text)),
        "collision": partial(verbs.receive, message(canaries, "m-0", hops=1), AUTH),
        "collision of all": partial(verbs.receive_all, [message(canaries), message(canaries, "m-0", hops=1)], AUTH),
        "result": partial(verbs.finish, held.claim, {key: f"{text}\ud800"}),
        "owner": partial(verbs.claim, f"{text}\0"),
        "queues": partial(verbs.claim, "w", text),
        "fenced finish": partial(verbs.finish, stale, {key: text}),
        "fenced finish_and_claim": partial(verbs.finish_and_claim, stale, {key: text}),
        "fenced fail": partial(verbs.fail, stale, canaries.reason),
        "fenced renew": partial(verbs.renew, stale),
        "fenced release": partial(verbs.release, stale),
        "fenced settle": partial(verbs.settle, lost, delivered=False, error=canaries.error),
        "fenced renew_reply": partial(verbs.renew_reply, lost),
        "no claim": partial(verbs.finish, {key: text}, text),
        "no delivery": partial(verbs.settle, {key: text}, delivered=True),
    }


def json_deep(text: str) -> Any:
    """A text far inside."""
    value: Any = text
    for _ in range(40):
        value = [value]
    return value


# How a database goes wrong


@contextlib.contextmanager
def busy(place: Place) -> Iterator[None]:
    """Somebody else holds what every verb needs."""
    with place.line() as connection:
        if place.is_file:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql(f"LOCK TABLE inbox, {', '.join(WRITTEN)} IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


@contextlib.contextmanager
def refusing(place: Place) -> Iterator[None]:
    """Triggers that say no to whatever is written, without telling what it was."""
    if place.is_file:
        told = [
            f"CREATE TRIGGER no_{table}_{when} BEFORE {when} ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END"
            for table in WRITTEN
            for when in ("INSERT", "UPDATE")
        ]
    else:
        told = ["CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$"]
        told += [f"CREATE TRIGGER no BEFORE INSERT OR UPDATE ON {t} EXECUTE FUNCTION no()" for t in WRITTEN]
    place.run(*told)
    yield


@contextlib.contextmanager
def without_tables(place: Place) -> Iterator[None]:
    """The tables have gone."""
    place.run(*[f"ALTER TABLE {table} RENAME TO gone_{table}" for table in ("inbox", *WRITTEN)])
    yield


@contextlib.contextmanager
def without_rights(place: Place) -> Iterator[None]:
    """The role may no longer do anything; a file is damaged instead."""
    if place.is_file:
        place.path.write_bytes(b"\xff" * place.path.stat().st_size)
        for side in ("-wal", "-shm"):
            Path(f"{place.path}{side}").unlink(missing_ok=True)
    else:
        place.run(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {place.canaries.user}")
    yield


@contextlib.contextmanager
def away(place: Place) -> Iterator[None]:
    """Nobody is let in any more; a file is not there any more."""
    if place.is_file:
        for path in place.path.parent.glob(f"{place.path.name}*"):
            path.unlink()
    else:
        admit_nobody(place, closed=True)
    yield


def admit_nobody(place: Place, *, closed: bool) -> None:
    """Lock a server's database for everybody, or open it again."""
    if place.is_file:
        return
    url = sa.make_url(place.admin_url)
    elsewhere = url.set(database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(elsewhere, autocommit=True) as line:
        line.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS {not closed}".encode())
        line.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [url.database])


WRECKS: Final = {
    "busy": (busy, {"Busy"}),
    "refusing": (refusing, {"StatementFailed"}),
    "without tables": (without_tables, {"SchemaMismatch"}),
    "without rights": (without_rights, {"Misconfigured"}),
    "away": (away, {"Unavailable", "SchemaMismatch"}),
}
"""Each with the errors, one of which at least must have been met."""
