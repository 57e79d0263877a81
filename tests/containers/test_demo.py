"""The demo's tests that need a server, told in the container: twice, and by a role that may make no tables."""

from tests.command.test_demo import (
    test_an_ordinary_role_tells_it_after_prepare,
    test_prepare_only_prepares,
    test_the_story_is_the_same_again_and_on_both_backends,
)

__all__ = [
    "test_an_ordinary_role_tells_it_after_prepare",
    "test_prepare_only_prepares",
    "test_the_story_is_the_same_again_and_on_both_backends",
]
