from __future__ import annotations

import ast
from pathlib import Path

from hypothesis.stateful import run_state_machine_as_test

from tests.model.rules import QueueMachine

HERE = Path(__file__).parent
THE_MODEL = ("things.py", "accepted.py", "ledger.py", "tasks.py", "model.py")


def test_both_backends_do_what_the_model_does(worlds, profile):
    """After every step both queues and the model have given the same answer and hold the same rows."""
    run_state_machine_as_test(type("Machine", (QueueMachine,), {"worlds": worlds}), settings=profile)


def test_the_model_shares_no_code_with_the_product():
    """A model that used the product's code would have the product's faults."""
    for name in THE_MODEL:
        tree = ast.parse((HERE / name).read_text())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        imported |= {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
        ours = {f"tests.model.{Path(other).stem}" for other in THE_MODEL}
        assert set() == {one for one in imported if one.partition(".")[0] in {"recovery", "tests"}} - ours
