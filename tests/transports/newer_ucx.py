#!/usr/bin/env python3
"""newer_ucx.py TEST... - runs the tests of the UCX transport with another UCX than the system's.

WEFT_TEST_NEWER_UCX names the folder that has its libucp.so.0 (for example the libucx/lib of the PyPI
package libucx-cu13); without it there is nothing to run, and the test is skipped.
"""
import os
import subprocess
import sys

SKIPPED = 77

folder = os.environ.get("WEFT_TEST_NEWER_UCX", "")
if not os.path.exists(os.path.join(folder, "libucp.so.0")):
    print("skipped: WEFT_TEST_NEWER_UCX does not name a folder with libucp.so.0")
    sys.exit(SKIPPED)
environment = dict(os.environ, WEFT_UCX_LIBRARY=folder)
results = [subprocess.run([test], env=environment, check=False).returncode for test in sys.argv[1:]]
sys.exit(1 if any(results) else 0)
