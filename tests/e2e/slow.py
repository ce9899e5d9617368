"""slow.py - how much longer than an idle machine the one that runs the tests may take.

WEFT_TEST_SLOW=N, a whole number: leases and deadlines of tests that are about them are N times as long. The suite sets
it for sanitized builds. It changes no judgement, only how long a process may wait for a core before it counts as dead.
"""
import os

SLOW = int(os.environ.get("WEFT_TEST_SLOW", "1"))
