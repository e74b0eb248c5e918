import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from evenkeel.errors import UsageError
from evenkeel.records import Outcome
from evenkeel.sandbox.base import Job
from evenkeel.sandbox.pool import open_sandbox
from tests.unit.sandbox.conftest import ADD, returning, run, settings

SOURCE = Path(__file__).parents[3] / "src"


def test_a_lost_zygote_costs_no_sample():
    with open_sandbox(settings(workers=2)) as sandbox:
        victim = sandbox._workers[0]._zygotes["solution"]
        victim.kill()
        verdicts = sandbox.run([Job(ADD, returning("a + b"))] * 20)
    assert {verdict.outcome for verdict in verdicts} == {Outcome.PASSED}


def test_several_workers_give_the_verdicts_of_one(sandbox):
    programs = [returning(f"a + b if a != {n % 6} else {n}") for n in range(40)]
    with open_sandbox(settings(workers=3)) as several:
        parallel = several.run([Job(ADD, program) for program in programs])
    alone = sandbox.run([Job(ADD, program) for program in programs])
    assert [(v.outcome, v.tests_passed, v.detail) for v in parallel] == [(v.outcome, v.tests_passed, v.detail) for v in alone]


def test_a_closed_sandbox_says_so():
    sandbox = open_sandbox(settings())
    sandbox.close()
    sandbox.close()
    with pytest.raises(RuntimeError, match="closed"):
        sandbox.run([Job(ADD, returning("0"))])


def test_no_jobs_give_no_verdicts(sandbox):
    assert sandbox.run([]) == [] and sandbox.inspect([]) == []


def test_inspection_keeps_the_order_over_many_batches(sandbox):
    facts = sandbox.inspect(["x = 1\n" * n for n in range(1, 100)])
    assert [fact.num_lines for fact in facts] == list(range(1, 100))


def test_the_limits_hold_for_each_program_that_is_inspected_and_not_for_all_together():
    # 24 kB of calls take some 0.1 s of CPU to read: 24 times that is more than the one second that each of them may use
    with open_sandbox(settings(timeout_s=60.0, cpu_s=1, memory_mb=512)) as sandbox:
        facts = sandbox.inspect(["f(a)[b] + c\n" * 2000] * 24)
    assert [fact.status for fact in facts] == ["parsed"] * 24


def test_what_a_program_does_to_the_parser_is_its_own_doing(sandbox):
    facts = sandbox.inspect(["x = (\n", "x = 1\n" * 20_000, "(" * 30_000, "x = 1\n"])
    assert [fact.status for fact in facts] == ["unreadable", "unreadable", "unreadable", "parsed"]


def test_what_a_lost_sandbox_did_not_inspect_is_told_apart(monkeypatch, tmp_path):
    with open_sandbox(settings()) as sandbox:
        monkeypatch.setattr(sys, "executable", _broken_python(tmp_path))
        sandbox._workers[0]._zygotes["solution"]._control.shutdown(socket.SHUT_RDWR)  # certain at once, as a kill is not
        facts = sandbox.inspect(["x = 1\n", "x = (\n"])
    assert [fact.status for fact in facts] == ["not_inspected", "not_inspected"]
    assert "no library here" in facts[0].error


def test_inspection_executes_nothing(sandbox):
    facts = sandbox.inspect(["import os\nos._exit(1)\n", "while True: pass\n"])
    assert [fact.parses for fact in facts] == [True, True]


def test_the_cpu_limit_decides_long_before_the_clock():
    """Also on a program that would rather not hear of it: the kernel kills it one CPU second later."""
    programs = [
        returning("sum(1 for _ in iter(int, 1))"),
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass\n",
    ]
    with open_sandbox(settings(timeout_s=60.0, cpu_s=1)) as sandbox:
        verdicts = [run(sandbox, program) for program in programs]
    assert [(verdict.outcome, verdict.detail) for verdict in verdicts] == [(Outcome.TIMEOUT, "more than 1 s of CPU")] * 2
    assert [round(verdict.cpu_s) for verdict in verdicts] == [1, 2]


def test_descriptors_do_not_grow_with_the_programs(sandbox):
    run(sandbox, returning("a + b"))
    before = len(os.listdir("/proc/self/fd"))
    sandbox.run([Job(ADD, returning("a + b" if n % 2 else "1 / 0")) for n in range(50)])
    assert len(os.listdir("/proc/self/fd")) == before


_REPORT = (
    "import sys\nsys.path[:0] = [{source!r}, {tests!r}]\nfrom sandbox.conftest import ADD, returning, run, settings\n"
    "from evenkeel.sandbox.pool import open_sandbox\nfrom evenkeel.errors import UsageError\n"
    "try:\n    with open_sandbox(settings(allow_weak={allow})) as pool:\n"
    "        print(pool.isolation.weak, pool.isolation.uid, run(pool, returning('a + b')).outcome.value)\n"
    "except UsageError as error:\n    print('refused:', error)\n"
)


def _elsewhere(prefix, allow_weak=True):
    """What a sandbox says when the process is started by `prefix`."""
    code = _REPORT.format(source=str(SOURCE), tests=str(Path(__file__).parents[1]), allow=allow_weak)
    done = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _works(command):
    return shutil.which(command[0]) is not None and subprocess.run([*command, "true"], capture_output=True).returncode == 0


# a user without rights in a namespace that may hold no further one: what a locked-down container gives
_NO_NAMESPACES = ["unshare", "--user", "--map-user=1000"]
_LOCKED_DOWN = [*_NO_NAMESPACES, "sh", "-c", 'test "$(unshare --user echo yes 2>/dev/null)" != yes && exec "$@"', "sh"]


@pytest.mark.skipif(not _works(_LOCKED_DOWN), reason="no way here to take the right to namespaces away")
def test_a_machine_without_isolation_is_refused_unless_allowed():
    assert _elsewhere(_LOCKED_DOWN, allow_weak=False).startswith("refused: Programs cannot be isolated on this machine")
    assert _elsewhere(_LOCKED_DOWN, allow_weak=True).split()[0::2] == ["True", "passed"]


_WITHOUT_ADMIN = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]


@pytest.mark.skipif(os.geteuid() != 0 or not _works(_WITHOUT_ADMIN), reason="needs root and setpriv")
def test_root_without_the_right_to_namespaces_goes_on_as_an_ordinary_user():
    assert _elsewhere(_WITHOUT_ADMIN).split()[1:] == ["65534", "passed"]


def test_an_interpreter_that_does_not_start_is_a_usage_error(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", _broken_python(tmp_path))
    with pytest.raises(UsageError, match="does not start.*no library here"):
        open_sandbox(settings())


def _broken_python(folder):
    path = folder / "python"
    path.write_text("#!/bin/sh\necho 'no library here' >&2\nexit 3\n")
    path.chmod(0o755)
    return str(path)
