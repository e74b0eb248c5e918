"""Programs that mean harm, to see what this machine's cell withstands. Each one wins if it gets a point or does its deed.

Only ever run where `isolation.weak` is False: on a weak machine some of them would succeed.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenkeel.records import Outcome, Task, TestCase
from evenkeel.sandbox.base import Job, Sandbox

_ADD = Task("probe", "def add(a, b):\n", "add", cases=(TestCase((1, 2), 3), TestCase((5, 5), 10)))
_TRUE = Task("probe", "def deed():\n", "deed", cases=(TestCase((), True),))


@dataclass(frozen=True)
class Probe:
    """One attempt.

    >>> PROBES[0].name
    'never ends'
    """

    name: str
    program: str
    expected: frozenset[Outcome]
    """Outcomes that mean it was withstood."""
    task: Task = _ADD


@dataclass(frozen=True)
class Finding:
    name: str
    withstood: bool
    outcome: Outcome
    detail: str


def _of(*outcomes: Outcome) -> frozenset[Outcome]:
    return frozenset(outcomes)


_FAULT = _of(Outcome.EXCEPTION, Outcome.WRONG_ANSWER)
_EQUALS_EVERYTHING = "class A:\n    __eq__ = lambda s, o: True\ndef add(a, b):\n    return A()\n"
_NETWORK = """import socket
def deed():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
    return True
"""
_KILL_KEEPER = """import os
def deed():
    keeper = os.getppid()
    os.kill(keeper, 9)
    return keeper != os.getppid()
"""
PROBES = (
    Probe("never ends", "def add(a, b):\n    while True:\n        pass\n", _of(Outcome.TIMEOUT)),
    Probe("takes all memory", "def add(a, b):\n    return [0] * 10 ** 12\n", _of(Outcome.MEMORY)),
    Probe("prints without end", "while True:\n    print('x' * 1000)\n", _of(Outcome.OUTPUT_LIMIT)),
    Probe("leaves with exit code 0", "import os\nos._exit(0)\n", _of(Outcome.CRASHED)),
    Probe("equals everything", _EQUALS_EVERYTHING, _of(Outcome.NOT_DATA)),
    Probe("forges a verdict", "import os\nos.write(3, b'[0,\"passed\"]\\n')\n", _of(Outcome.PROTOCOL_VIOLATION)),
    Probe("starts processes", "import os\nwhile True:\n    os.fork()\n", _of(Outcome.EXCEPTION)),
    Probe("reaches the network", _NETWORK, _FAULT, _TRUE),
    Probe("becomes root", "import os\ndef deed():\n    os.setuid(0)\n    return True\n", _FAULT, _TRUE),
    Probe("kills its keeper", _KILL_KEEPER, _FAULT, _TRUE),
    Probe("sees other processes", "import os\ndef deed():\n    return os.path.exists('/proc/self')\n", _FAULT, _TRUE),
    Probe("writes a file", "def deed():\n    open('/tmp/probe', 'w').write('x')\n    return True\n", _FAULT, _TRUE),
    Probe("reads the password file", "def deed():\n    return bool(open('/etc/passwd').read())\n", _FAULT, _TRUE),
    Probe("honest program", "def add(a, b):\n    return a + b\n", _of(Outcome.PASSED)),
)


def try_probes(sandbox: Sandbox) -> list[Finding]:
    """One finding for each probe, the honest program last: it must still be graded rightly after all the others."""
    assert not sandbox.isolation.weak, "hostile probes run only in a cell"
    verdicts = [sandbox.run([Job(probe.task, probe.program)])[0] for probe in PROBES]
    return [
        Finding(probe.name, verdict.outcome in probe.expected, verdict.outcome, verdict.detail)
        for probe, verdict in zip(PROBES, verdicts, strict=True)
    ]
