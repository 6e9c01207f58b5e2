"""Limits of a run that are no settings; others are in ``SandboxConfig`` and ``WorkflowConfig``."""

OUTPUT_BYTES = 1_000_000  # printed by a run
FRAME_BYTES = 4_000_000  # of one message, and of all calls of a workflow in memory
TESTS_BYTES = 64_000_000  # of one message of hidden tests that run apart from the solution
OPEN_FILES = 32  # descriptors
ALL_TESTS = 10  # times the limits of time that a call of the function has: what all calls of hidden tests have
CONCURRENT_CALLS = 8  # operator calls of a workflow at once; further ones wait
