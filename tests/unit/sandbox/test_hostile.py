"""Programs that mean harm. Every one runs only through `cell`, which skips where uid and PID namespace are not verified."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from evenkeel.records import Outcome, Task, TestCase
from tests.unit.sandbox.conftest import ADD, returning, run

ASSERTS = Task("add", "def add(a, b):\n", "add", assert_source="def check(candidate):\n    assert candidate(1, 2) == 3\n")


def _outcomes(cell, programs, task=ADD):
    verdicts = {program: run(cell, program, task) for program in programs}
    assert all(verdict.tests_passed == 0 for verdict in verdicts.values()), verdicts
    return {program: verdict.outcome for program, verdict in verdicts.items()}


def test_endless_programs_are_killed_by_the_clock(cell):
    programs = {
        "def add(a, b):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass\n",
        "import signal\nfor n in (*range(1, 9), *range(10, 17)):\n    signal.signal(n, signal.SIG_IGN)\nwhile True: pass\n",
        returning("len(str(7 ** 10 ** 8))"),
        "import time\ndef add(a, b):\n    time.sleep(1000)\n",
    }
    started = time.monotonic()
    assert set(_outcomes(cell, programs).values()) == {Outcome.TIMEOUT}
    assert time.monotonic() - started < 60


def test_a_memory_bomb_meets_its_limit(cell):
    programs = {
        returning("[0] * 10 ** 10"),
        returning("bytearray(10 ** 9)"),
        "def add(a, b):\n    held = []\n    while True:\n        held.append(bytearray(1 << 20))\n",
    }
    assert set(_outcomes(cell, programs).values()) == {Outcome.MEMORY}


def test_a_program_can_start_no_other(cell):
    programs = {
        "import os\nwhile True: os.fork()\n",
        "import os\ndef add(a, b):\n    return os.fork() and a + b\n",
        "import subprocess\nsubprocess.run(['/bin/true'])\n",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})\n",
        "import threading\nthreading.Thread(target=print).start()\n",
    }
    assert set(_outcomes(cell, programs).values()) == {Outcome.EXCEPTION}


def test_a_flood_of_output_is_cut(cell):
    programs = {
        "while True: print('x' * 1000)\n",
        returning("'x' * 10 ** 6"),
        "import os\ndef add(a, b):\n    while True: os.write(3, b'x' * 4096)\n",
    }
    assert set(_outcomes(cell, programs).values()) == {Outcome.OUTPUT_LIMIT}


def test_leaving_early_is_no_answer(cell):
    programs = {
        "import sys\nsys.exit(0)\n": Outcome.EXCEPTION,
        returning("exit(0)"): Outcome.EXCEPTION,
        "def add(a, b):\n    raise KeyboardInterrupt\n": Outcome.EXCEPTION,
        "import os\nos._exit(0)\n": Outcome.CRASHED,
        "import os\ndef add(a, b):\n    os._exit(0)\n": Outcome.CRASHED,
        "import os\ndef add(a, b):\n    os.kill(os.getpid(), 9)\n": Outcome.CRASHED,
        "import os\nos.closerange(0, 100)\n": Outcome.CRASHED,
        "import ctypes\ndef add(a, b):\n    ctypes.string_at(0)\n": Outcome.CRASHED,
    }
    assert _outcomes(cell, programs) == programs
    under_asserts = {program: outcome for program, outcome in programs.items() if outcome is Outcome.CRASHED}
    assert _outcomes(cell, under_asserts, ASSERTS) == under_asserts


def test_an_object_that_equals_everything_equals_nothing(cell):
    methods = "    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n"
    methods += "    __hash__ = lambda s: 0\n    __bool__ = lambda s: True\n"
    plain = f"class A:\n{methods}def add(a, b):\n    return A()\n"
    number = f"class A(int):\n{methods}def add(a, b):\n    return A(0)\n"
    for task in (ADD, ASSERTS):
        assert _outcomes(cell, [plain, number], task) == {plain: Outcome.NOT_DATA, number: Outcome.WRONG_ANSWER}


def test_forged_messages_are_a_violation(cell):
    lines = (
        '[7,"value",3]', '[0,"passed"]', '["passed"]', "{}", "null", "x", "[" * 20_000,
        '[0,"value",{"$":"pickle","v":"gASVHQ"}]', '[1.0,"value",3]', '[true,"value",3]', '[1,"value"]', '[1,"exception",3,4]',
    )  # fmt: skip
    programs = [f"import os\ndef add(a, b):\n    os.write(3, {line.encode()!r} + b'\\n')\n    return 3\n" for line in lines]
    for task in (ADD, ASSERTS):
        assert set(_outcomes(cell, programs, task).values()) == {Outcome.PROTOCOL_VIOLATION}


_SEARCH = """import gc, os
def look(planted):
    held = ['secret-' + str(4700 + 11)] if planted else []
    holders = [o.values() if isinstance(o, dict) else o for o in gc.get_objects() if isinstance(o, (list, tuple, dict))]
    texts = [x for holder in holders for x in holder]
    return [any(isinstance(x, str) and '4711' in x and 'secret-' in x for x in texts), os.path.exists('/proc/self')]
"""


def test_nothing_of_the_tests_is_in_the_programs_memory(cell):
    """The search finds what is planted, and neither another test's expected value nor the assert source."""
    cases = (TestCase((True,), [True, False]), TestCase((False,), [False, False]), TestCase((None,), "secret-4711"))
    verdict = run(cell, _SEARCH, Task("look", "", "look", cases=cases))
    assert verdict.tests_passed == 2, verdict.detail
    asserts = "assert look(True) == [True, False]\nassert look(False) == [False, False], 'secret-4711'\n"
    verdict = run(cell, _SEARCH, Task("look", "", "look", assert_source=asserts))
    assert verdict.outcome is Outcome.PASSED, verdict.detail


def test_files_of_the_user_are_not_there_and_none_can_be_written(cell, tmp_path):
    mine = tmp_path / "answers.txt"
    mine.write_text("42")
    os.chmod(tmp_path, 0o777)
    os.chmod(mine, 0o666)
    task = Task("peek", "", "peek", cases=(TestCase((str(mine), str(Path(__file__))), [False, False, []]),))
    program = """import os
def peek(*paths):
    written = []
    for folder in ("/tmp", "/", "/var/tmp", "/dev/shm", os.path.dirname(paths[0])):
        try:
            with open(folder + "/evenkeel-probe", "w") as file:
                file.write("x")
            written.append(folder)
        except OSError:
            pass
    return [os.path.exists(path) for path in paths] + [written]
"""
    verdict = run(cell, program, task)
    assert verdict.outcome is Outcome.PASSED, verdict.detail


def test_the_network_is_out_of_reach(cell):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        port = server.getsockname()[1]
        program = f"import socket\ndef add(a, b):\n    socket.create_connection(('127.0.0.1', {port}), 1)\n    return a + b\n"
        assert run(cell, program).outcome is Outcome.EXCEPTION
        try:
            server.accept()
            raise AssertionError("the program reached a server of this machine")
        except TimeoutError:
            pass


def test_other_processes_are_out_of_reach(cell):
    program = f"""import os, signal
def add(a, b):
    for pid in (os.getppid(), 1, 0x7fffffff, {os.getpid()}, -1):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    return a + b
"""
    # kill(-1) spares the caller and the namespace's first process, so nothing is left that it could hit
    assert run(cell, program).scored
    assert run(cell, returning("a + b")).outcome is Outcome.PASSED


def test_no_privilege_can_be_regained(cell):
    task = Task("climb", "", "climb", cases=(TestCase((), ["no"] * 6),))
    program = """import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(call, *args):
    try:
        return "no" if call(*args) == -1 else "yes"
    except OSError:
        return "no"
def climb():
    new_user_ns, attach = 0x10000000, 16
    return [attempt(os.setuid, 0), attempt(os.setgroups, [0]), attempt(libc.unshare, new_user_ns),
            attempt(libc.mount, b"none", b"/", b"tmpfs", 0, b""), attempt(os.chroot, "/"), attempt(libc.ptrace, attach, 1)]
"""
    verdict = run(cell, program, task)
    assert verdict.outcome is Outcome.PASSED, verdict.detail


def test_the_sandbox_grades_honestly_after_all_this(cell):
    assert run(cell, returning("a + b")).outcome is Outcome.PASSED
    assert run(cell, returning("a - b")).outcome is Outcome.WRONG_ANSWER
    assert run(cell, returning("a + b"), ASSERTS).outcome is Outcome.PASSED


def test_a_parser_bomb_does_not_take_the_others_along(cell):
    programs = ["x = 1\n", "(" * 30_000, "-" * 60_000 + "1", "x = (\n", "y = 2\n"]
    facts = cell.inspect(programs)
    assert [fact.parses for fact in facts] == [True, False, False, False, True]


_OPEN_AND_WAIT = """import sys
sys.path.insert(0, {tests!r})
from sandbox.conftest import settings, ADD
from evenkeel.sandbox.base import Job
from evenkeel.sandbox.pool import open_sandbox
pool = open_sandbox(settings(timeout_s=60))
print("open", flush=True)
try:
    pool.run([Job(ADD, "while True: pass")])
except KeyboardInterrupt:
    pool.close()
    print("closed", flush=True)
"""


def _children_of(pid):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(entry.name), *_children_of(int(entry.name))]
    return found


def _gone(pids, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _end_by(signal_number):
    code = _OPEN_AND_WAIT.format(tests=str(Path(__file__).parents[1]))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "open\n"
        deadline = time.monotonic() + 20
        while len(started := _children_of(process.pid)) < 3 and time.monotonic() < deadline:  # launcher, zygote, child
            time.sleep(0.05)
        assert len(started) == 3
        process.send_signal(signal_number)
        said, _ = process.communicate(timeout=30)
    return started, said


def test_ctrl_c_and_closing_leave_no_process(cell):
    started, said = _end_by(2)
    assert said == "closed\n" and _gone(started)


def test_killing_the_trainer_leaves_no_process(cell):
    started, _ = _end_by(9)
    assert _gone(started)
