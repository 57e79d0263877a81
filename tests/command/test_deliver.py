from recovery import Queue, Receiver
from tests.plugins.commands import line


def test_deliver_sends_each_reply_once(command, receiver_url):
    """`--once` sends one, `--drain` the rest, as lines of JSON with the documented keys; then there is nothing."""
    command.send(*[line(name, deadline=1) for name in "abc"])
    once = command.run("deliver", "--to", receiver_url, "--once", "--json")
    assert [{"reply_id", "state", "duplicate"}] == [told.keys() for told in once.json_lines()]
    rest = command.run("deliver", "--drain", RECOVERY_RECEIVER_URL=receiver_url)
    assert (0, "", ["sent", "sent"]) == (rest.code, rest.err, [text.split()[0] for text in rest.out.splitlines()])
    nothing = command.run("deliver", "--to", receiver_url, "--once")
    assert (0, "", "") == tuple(vars(nothing).values())
    with Receiver.open(receiver_url) as receiver:
        assert 3 == receiver.effect_count()


def test_deliver_says_what_the_receiver_had(command, receiver_url):
    """A reply that was stored before is a duplicate; one with other content is dead, and both are said."""
    first, second = command.send(line("a", deadline=1), line("b", deadline=1))
    with Queue.open(command.url) as queue, Receiver.open(receiver_url) as receiver:
        receiver.accept(f"reply:{first}", queue.replies(first)[0].payload or "")
        receiver.accept(f"reply:{second}", "{}")
    ran = command.run("deliver", "--to", receiver_url, "--drain")
    said = dict(reversed(text.split(maxsplit=1)) for text in ran.out.splitlines())
    assert {
        f"reply:{first}: the receiver had it already": "sent",
        f"reply:{second}: not confirmed, and not sent again": "dead",
    } == said
