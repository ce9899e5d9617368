"""processes.py - what the kernel says of a job's processes: for tools/fault-matrix, which strikes them."""
import os


def process_words(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as text:
            return text.read().decode(errors="replace").split("\0")
    except OSError:
        return []


def processes_of(folder):
    return [int(name) for name in os.listdir("/proc")
            if name.isdigit() and any(folder in word for word in process_words(name))]


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as text:
            return [int(child) for child in text.read().split()]
    except OSError:
        return []


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as text:
            return text.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"


def waited_of(pid):
    """Seconds for which its loop stood ready and waited for a core; 0 where the kernel does not count them."""
    try:
        with open(f"/proc/{pid}/schedstat") as text:
            return int(text.read().split()[1]) * 1e-9
    except (OSError, IndexError):
        return 0
