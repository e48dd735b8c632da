"""Waits for other processes, each with a time limit: its end is an error that says what was waited for."""

import contextlib
import signal
import subprocess
import time

# Far more than a busy machine needs.
LIMIT_SECONDS = 180


@contextlib.contextmanager
def within(what, seconds=LIMIT_SECONDS):
    """Raises TimeoutError if the body, which waits for `what`, takes longer. For the main thread."""

    def end(*_):
        raise TimeoutError(f"waited {seconds} s for {what}")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def is_bound(port):
    """Whether a socket of this host has the UDP port `port`."""
    with open("/proc/net/udp") as table:
        next(table)
        return any(int(line.split()[1].rpartition(":")[2], 16) == port for line in table)


@contextlib.contextmanager
def running(command, ports):
    """Runs `command`, and enters the body once it has bound all UDP `ports`: what is sent to them waits in the sockets
    until the flowgraph starts. The process ends with the body."""
    process = subprocess.Popen(command)
    try:
        with within(f"the flowgraph to listen on the ports {ports}"):
            while not all(map(is_bound, ports)):
                if process.poll() is not None:
                    raise RuntimeError(f"the flowgraph ended with {process.returncode} before it listened on {ports}")
                time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()
