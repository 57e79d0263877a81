from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import recovery.errors
from recovery import (
    Ack,
    BatchFailed,
    Fenced,
    InvalidEnvelope,
    PayloadCollision,
    RecoveryError,
)
from recovery.repositories.settling import SettlingFailed

ACK = Ack("stored", "t", duplicate=False)
WITH_FACTS = [
    InvalidEnvelope("too long.", field="owner", limit=128),
    PayloadCollision("reply:1"),
    Fenced("t", 3, "its lease is over"),
    BatchFailed([ACK], 1, Fenced("t", 3, "its lease is over")),
]
PLAIN = [
    kind("a sentence.")
    for kind in vars(recovery.errors).values()
    if isinstance(kind, type) and issubclass(kind, RecoveryError) and kind not in {type(one) for one in WITH_FACTS}
]
ERRORS = [*WITH_FACTS, *PLAIN, SettlingFailed()]


def known(error):
    """All that an error tells: its class, its sentence, its facts."""
    facts = {name: known(fact) if isinstance(fact, Exception) else fact for name, fact in vars(error).items()}
    return type(error), str(error), error.args, facts


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_travel_between_processes(error, protocol):
    """What was pickled comes back as the same class with the same sentence and the same facts, each of them once."""
    assert known(error) == known(pickle.loads(pickle.dumps(error, protocol)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_can_be_copied(error, copied):
    """A copy tells what the original tells."""
    assert known(error) == known(copied(error))


def test_a_note_travels_too():
    """What somebody added to an error on its way is still there."""
    error = Fenced("t", 3, "its lease is over")
    error.add_note("seen by the worker on host b")
    assert ["seen by the worker on host b"] == pickle.loads(pickle.dumps(error)).__notes__


def raise_fenced():
    """What a worker process may well do."""
    raise Fenced("t", 3, "its lease is over")


def test_a_refusal_does_not_break_a_pool_of_processes():
    """Fenced, raised in a worker process, is raised as itself where its result is asked for, and the pool lives on."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for _ in range(2):
            with pytest.raises(Fenced, match="its lease is over") as caught:
                pool.submit(raise_fenced).result(timeout=60)
            assert ("t", 3) == (caught.value.identity, caught.value.fence)


def test_repositories_raise_one_tree_of_errors():
    """Repositories are public: what they raise by themselves stands in the tree, the failed settling too."""
    assert issubclass(SettlingFailed, RecoveryError)
    assert not isinstance(SettlingFailed(), ValueError)
    assert "could not be settled" in str(SettlingFailed())
