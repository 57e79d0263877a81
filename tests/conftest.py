"""The list of plug-ins; each holds the fixtures of one subject, and stands below those that it imports."""

pytest_plugins = [
    "tests.plugins.backends",
    "tests.plugins.commands",
    "tests.plugins.containers",
    "tests.plugins.databases",
    "tests.plugins.marks",
    "tests.plugins.mutating",
    "tests.plugins.telling",
    "tests.plugins.postgres",
    "tests.plugins.queues",
]
