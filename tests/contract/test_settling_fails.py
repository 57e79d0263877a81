"""One row that cannot be settled holds up nobody, and is named."""

from __future__ import annotations

import sqlalchemy as sa

from recovery import AuthContext, Envelope, ManualClock, Queue, Unsettled, migrate, open_engine

AUTH = AuthContext("agent-a")
REFUSE = {
    "sqlite": (
        """CREATE TRIGGER refuse BEFORE UPDATE ON tasks WHEN OLD.hops = 3 AND NEW.state = 'expired'
        BEGIN SELECT RAISE(ABORT, 'no'); END""",
    ),
    "postgresql": (
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF OLD.hops = 3 AND NEW.state = 'expired' THEN RAISE 'no'; END IF; RETURN NEW; END $$""",
        "CREATE TRIGGER refuse BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
}


def spoil(url: str, backend: str) -> None:
    """From here on the database refuses to let the task with three hops expire."""
    engine = open_engine(url)
    with engine.begin() as connection:
        for statement in REFUSE[backend]:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_a_row_that_cannot_be_settled_is_named_and_the_rest_goes_on(empty_url: str, backend: str) -> None:
    """A claim goes on without settling, inside the caller's transaction too; reconcile settles the others."""
    migrate(empty_url)
    spoil(empty_url, backend)
    clock = ManualClock(1000.0)
    engine = open_engine(empty_url)
    with Queue(engine, clock=clock, allowed_sources={"agent-a"}) as queue:
        stuck = queue.receive(Envelope("stuck", "agent-a", {}, 1010.0, hops=3), AUTH).task_id
        late = queue.receive(Envelope("late", "agent-a", {}, 1010.0), AUTH).task_id
        for name in ("first", "second"):
            queue.receive(Envelope(name, "agent-a", {}, 2000.0), AUTH)
        clock.advance(20)
        assert queue.claim("worker") is not None
        with engine.begin() as connection:
            assert queue.on(connection).claim("worker") is not None
        assert queue.counts().ended["expired"] == 0
        done = queue.reconcile()
        assert (Unsettled("task", stuck, "StatementFailed"),) == done.unsettled
        assert done.tasks == 1
        row = queue.task(late)
        assert row is not None
        assert row.state == "expired"
        assert queue.claim("worker") is None
    engine.dispose()
