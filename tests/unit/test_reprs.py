from __future__ import annotations

from recovery import delivery
from recovery.messages import Reply, Task, Transition
from recovery.overview import Explanation

SECRET = "hunter2"
TASK = Task(
    "t",
    "p",
    "m",
    "f",
    "default",
    0,
    "failed",
    SECRET,
    1.0,
    0,
    1,
    1,
    1,
    1.0,
    None,
    None,
    "w",
    SECRET,
    SECRET,
    SECRET,
    1.0,
    2.0,
)
REPLY = Reply("r", "t", "failed", SECRET, "dead", 1, 1, 1, 1.0, None, None, "d", SECRET, 1.0, 2.0)
STEP = Transition(1, 1.0, "t", "task", "running", "failed", "w", 1, 1, SECRET)


def test_no_error_text_in_a_repr():
    """A repr ends up in a log: what a worker or a receiver said of an error stands in none of them."""
    said = f"it failed: {SECRET}"
    story = Explanation("t", 1.0, "received", said, said, said, "nothing", TASK, REPLY, (STEP,))
    for record in (TASK, REPLY, STEP, story, delivery.Outcome(delivered=False, error=said)):
        assert SECRET not in repr(record)
    assert SECRET in str(story)
