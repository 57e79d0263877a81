# ruff: noqa: FBT003 - the answers of a loop are True and False
import pytest

from recovery.errors import Busy, CommitUnknown, Unavailable
from recovery.runtime.looping import AWAY_SECONDS, Patience, loop, owner_name
from recovery.runtime.pacing import idle_seconds
from recovery.runtime.stopping import Stop


class NoWait(Stop):
    """Notes the waits instead of waiting, and stops at the tenth."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.wanted = len(self.waits) == 10


def answering(*answers):
    """Answers or raises one after the other, and False from then on."""
    rest = list(answers)

    def one():
        answer = rest.pop(0) if rest else False
        if isinstance(answer, Exception):
            raise answer
        return answer

    return one


def test_the_wait_doubles_up_to_a_second():
    """0.05 s after the first empty answer, doubled at each, and a second at most, however many there were."""
    assert [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0] == [idle_seconds(number) for number in range(1, 8)]
    assert (0.05, 1.0) == (idle_seconds(0), idle_seconds(10**9))


def test_something_to_do_starts_the_waits_again():
    """No wait after work; the next empty answer waits the shortest."""
    stop = NoWait()
    loop(stop, answering(False, False, True, False), lambda: True, drain=False, once=False)
    assert [0.05, 0.1, 0.05, 0.1] == stop.waits[:4]
    assert 10 == len(stop.waits)


def test_drain_ends_when_nothing_is_open():
    """An empty answer ends it only when nothing is open: what is held elsewhere or due later is waited for."""
    stop = NoWait()
    loop(stop, answering(True, False, False, True), answering(True, True, False), drain=True, once=False)
    assert [0.05, 0.1] == stop.waits


def test_once_asks_once():
    """One call, no wait, whatever it answered."""
    for answer in (True, False):
        stop = NoWait()
        loop(stop, answering(answer, AssertionError()), lambda: True, drain=False, once=True)
        assert [] == stop.waits


@pytest.mark.parametrize("error", [Busy(), Unavailable(), CommitUnknown()])
def test_a_database_that_cannot_just_now_is_asked_again(error):
    """The loop waits and goes on, also where it is the question for what is open that fails; `once` raises."""
    stop = NoWait()
    loop(stop, answering(error, error, False, False), answering(error, False), drain=True, once=False)
    assert [0.05, 0.1, 0.2] == stop.waits
    with pytest.raises(type(error)):
        loop(NoWait(), answering(error), lambda: True, drain=False, once=True)


def test_other_errors_end_the_loop():
    """What waiting does not cure is raised at once."""
    with pytest.raises(ZeroDivisionError):
        loop(NoWait(), answering(ZeroDivisionError()), lambda: True, drain=False, once=False)


def test_patience_with_a_database_that_is_away():
    """It is over when it went wrong for so many seconds without a good moment between."""
    now = [0.0]
    patience = Patience(AWAY_SECONDS, lambda: now[0])

    def over_at(seconds):
        now[0] = seconds
        return patience.is_over()

    assert [False, False, True] == [over_at(0.0), over_at(59.9), over_at(60.0)]
    patience.reset()
    assert [False, False, True] == [over_at(70.0), over_at(129.9), over_at(130.0)]


def test_a_name_for_every_process():
    """A worker without a name has its host's and its process's, in what a key may hold."""
    assert 1 <= len(owner_name().encode()) <= 128
