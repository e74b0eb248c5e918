"""The trainer's end of one zygote: start it, have it fork a child, talk to the child by the clock, have it killed.

    Zygote.start_child() -> Child -- send / read_line --> Zygote.end_child(child) -> Ending

Nothing here waits without a deadline, and nothing waits for end-of-file: a program is over when its answers are in, when
its time or output is used up, or when its end of the channel closes, and then it is killed.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from evenkeel.sandbox.base import Limits

HARNESS = Path(__file__).with_name("harness.py")
NOBODY = 65534
_START_TIMEOUT_S = 60.0
_REPLY_TIMEOUT_S = 20.0


class ZygoteLost(Exception):
    """Our own machinery failed: the zygote did not start, died or did not answer. Says nothing about the program."""


class Stopped(Exception):
    """The child will not answer any more. `reason`: `ended`, `timeout` or `flood`."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Ending:
    """How a child ended, by the zygote's wait."""

    status: int
    """Exit code, or minus the signal that killed it (-9 is ours when it still ran)."""
    cpu_s: float


class Child:
    """One forked child: a channel of lines, and its standard output, which is counted and thrown away."""

    def __init__(self, channel: socket.socket, stdout: int, max_bytes: int):
        self._channel, self._stdout = channel, stdout
        self._outgoing, self._incoming = b"", bytearray()
        self._bytes_left = max_bytes
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._poll.register(stdout, select.POLLIN)

    def send(self, text: str) -> None:
        """Queue; `read_line` writes as far as the child reads."""
        self._outgoing += text.encode("ascii")

    def read_line(self, deadline: float) -> bytes:
        """The next line of the channel; raises Stopped when there will be none in time and within the output limit."""
        while (end := self._incoming.find(b"\n")) < 0:
            self._flush()
            wait_s = deadline - time.monotonic()
            if wait_s <= 0:
                raise Stopped("timeout")
            for descriptor, _ in self._poll.poll(wait_s * 1000 + 1):
                if descriptor == self._stdout:
                    self._count(os.read(self._stdout, 65536))
                else:
                    self._receive()
        line = bytes(self._incoming[:end])
        del self._incoming[: end + 1]
        return line

    def close(self) -> None:
        self._channel.close()
        os.close(self._stdout)

    def _flush(self) -> None:
        wanted = select.POLLIN
        if self._outgoing:
            try:
                self._outgoing = self._outgoing[self._channel.send(self._outgoing) :]
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                self._outgoing = b""  # it has ended; what it said before is still to be read
            if self._outgoing:
                wanted |= select.POLLOUT
        self._poll.modify(self._channel, wanted)

    def _receive(self) -> None:
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return  # it was writable only
        except ConnectionResetError:
            data = b""
        if not data:
            raise Stopped("ended")
        self._incoming += data
        self._count(data)

    def _count(self, data: bytes) -> None:
        if not data:
            self._poll.unregister(self._stdout)  # it closed its output
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise Stopped("flood")


class Zygote:
    """One warm process that forks the children, one at a time."""

    def __init__(self, limits: Limits):
        self._limits = limits
        ours, theirs = socket.socketpair()
        config = {"control_fd": theirs.fileno(), "uid": NOBODY, "cpu_s": limits.cpu_s, "memory_mb": limits.memory_mb}
        environment = {"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        if "LD_LIBRARY_PATH" in os.environ:  # some interpreters find their own library only by it
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        # -P -s -S -E would be -I -S, but -E also drops the hash seed, which makes the order of sets repeatable
        command = [sys.executable, "-P", "-s", "-S", "-B", str(HARNESS), json.dumps(config)]
        with theirs:
            self._process = subprocess.Popen(
                command, env=environment, cwd="/", pass_fds=(theirs.fileno(),), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
        self._control = ours
        self.report = self._reply(_START_TIMEOUT_S)
        """What the zygote found out about its cell: `layers`, `missing`, `uid`."""

    def start_child(self) -> Child:
        """Fork a child with a fresh channel; the zygote never reads from it."""
        ours, theirs = socket.socketpair()
        stdout, child_stdout = os.pipe()
        try:
            socket.send_fds(self._control, [b"F"], [theirs.fileno(), child_stdout])
        except OSError as error:
            ours.close()
            os.close(stdout)
            raise ZygoteLost(self._last_words(f"it is gone ({error.strerror})")) from error
        finally:
            theirs.close()
            os.close(child_stdout)
        ours.setblocking(False)
        return Child(ours, stdout, self._limits.output_kb * 1024)

    def end_child(self, child: Child) -> Ending:
        """Kill the child, whatever it does, with all that it may have started."""
        child.close()
        try:
            self._control.sendall(b"K")
        except OSError as error:
            raise ZygoteLost(self._last_words(f"it is gone ({error.strerror})")) from error
        reply = self._reply(_REPLY_TIMEOUT_S)
        return Ending(reply["status"], reply["cpu_s"])

    def kill(self) -> None:
        """From any thread: whoever waits for this zygote gets ZygoteLost."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and reap it; its PID namespace, or its parent-death signal, takes the rest along."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()

    def _reply(self, timeout_s: float) -> dict:
        deadline = time.monotonic() + timeout_s
        line = b""
        while not line.endswith(b"\n"):
            self._control.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._control.recv(65536)
            except TimeoutError as error:
                raise ZygoteLost(self._last_words(f"no reply within {timeout_s:g} s")) from error
            except OSError as error:
                raise ZygoteLost(self._last_words(f"it is gone ({error.strerror})")) from error
            if not data:
                raise ZygoteLost(self._last_words("it has ended"))
            line += data
        self._control.settimeout(None)
        reply = json.loads(line)
        if "error" in reply:
            raise ZygoteLost(reply["error"])
        return reply

    def _last_words(self, what: str) -> str:
        self._process.kill()
        os.set_blocking(self._process.stderr.fileno(), False)
        said = (self._process.stderr.read() or b"").decode("utf-8", "replace").strip()
        return f"{what}: {said.splitlines()[-1]}" if said else what
