"""The sandbox's own process: a warm zygote that forks one child per program. Executed by path, never imported by the trainer.

    trainer --F + (channel, stdout)--> zygote --fork--> child: reads a program and calls, writes answers
            --K-------------------->          kills and reaps it  --{"status", "cpu_s"}-->

The zygote builds its cell (`isolation.py`), imports what programs usually import, runs a few snippets to warm its heap,
and then reads nothing but one-letter commands: no program, no test and no expected value ever enters its memory, so no
child can inherit one. Verdicts are decided in the trainer; the exit code of a child is never one.

Messages on the channel are lines of JSON. To the child: a header `{"mode", "source", "entry_point"}`, then
`[index, args, kwargs]`, values as `evenkeel/codec.py` writes them. From it: `[index, "value", tree]`,
`[index, "exception", type, text]`, `[index, "not_data", text]`; index -1 speaks of loading the program.

NOT protected against: bugs of the kernel (no filter on system calls yet); a program that takes its own process apart
(it only harms its own answers); timing of the machine by a program that burns its CPU share; where no PID namespace can
be had, a program may see and signal the processes of the same uid, this zygote included.
"""

import builtins
import gc
import json
import os
import random
import signal
import socket
import sys
import types

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.dirname(_HERE)]
import codec  # noqa: E402
import facts  # noqa: E402
import isolation  # noqa: E402

del sys.path[:2]

_PRELOADED = """abc array ast base64 bisect calendar cmath collections collections.abc contextlib copy dataclasses datetime
decimal enum fractions functools hashlib heapq io itertools json math numbers operator queue random re resource statistics
string struct sys textwrap time traceback types typing unicodedata uuid zlib""".split()
_CHANNEL = 3
_DEVNULL = os.open(os.devnull, os.O_RDONLY)


# --------------------------------------------------------------------------- the zygote


def main(config):
    control = socket.socket(fileno=config["control_fd"])
    isolation.die_with_parent()
    for name in _PRELOADED:  # while the interpreter's library can be read for certain
        __import__(name)
    report = isolation.enter(config["uid"])
    if report["fork_needed"] and (init := os.fork()):
        control.close()
        isolation.seal(config["uid"])
        os._exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]) & 0xFF)
    isolation.seal(config["uid"])
    _warm_up()
    known_by_trying = report["layers"] if _cannot_fork(config) else report["missing"]
    known_by_trying.append(
        "process limit" if known_by_trying is report["layers"] else "process limit: a program can start others"
    )
    control.sendall(json.dumps({key: report[key] for key in ("layers", "missing", "uid")}).encode() + b"\n")
    _serve_commands(control, config)


def _serve_commands(control, config):
    child = None
    while True:
        command, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if command == b"F":
            try:
                child = os.fork()
            except OSError as error:
                control.sendall(json.dumps({"error": f"fork: {error.strerror}"}).encode() + b"\n")
                return
            if child == 0:
                _become_child(*descriptors, config)
            for descriptor in descriptors:
                os.close(descriptor)
        elif command == b"K":
            control.sendall(json.dumps(_end(child)).encode() + b"\n")
            child = None
        else:  # the trainer has gone
            if child:
                _end(child)
            return


def _end(child):
    """Kill the child and whatever it may have left behind, reap it, and say how it ended and what it used."""
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    everyone_or_group = -1 if os.getpid() == 1 else -child
    try:
        os.kill(everyone_or_group, signal.SIGKILL)
        while os.getpid() == 1:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError, PermissionError):
        pass  # nobody was left: the usual case
    return {"status": os.waitstatus_to_exitcode(status), "cpu_s": usage.ru_utime + usage.ru_stime}


def _cannot_fork(config):
    """Whether the limit on processes holds for a child: the kernel exempts its real root, also under another name."""
    probe = os.fork()
    if probe == 0:
        _limit(config)
        try:
            os._exit(int(os.fork() >= 0))
        except OSError:
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1]) == 7


def _warm_up():
    """Run what children will run, so that they inherit warm memory and touch few new pages; twice the programs per second."""
    source = (
        "from typing import List\nimport math, re\nfrom collections import Counter, defaultdict\n\n"
        "def solve(xs: List[int], name='a b') -> dict:\n    '''Doc.'''\n    total = 0\n    for i, x in enumerate(sorted(xs)):\n"
        "        total += x ** 2 if x % 2 == 0 else -x\n    words = [w.upper() for w in name.split() if w]\n"
        "    try:\n        total //= 0\n    except ZeroDivisionError:\n        total = max(xs, default=0)\n"
        "    return {'t': total, 'w': tuple(words), 'c': dict(Counter(name)), 'm': math.sqrt(4), 'r': re.sub('a', 'b', name)}\n"
    )
    for _ in range(20):
        facts.facts_of(source)
        solve = _load(compile(source, "<warm-up>", "exec"))["solve"]
        codec.decode(codec.encode([solve([3, 1, 2]), (1.5, b"x"), {1}]))
    gc.collect()
    gc.disable()
    gc.freeze()


# --------------------------------------------------------------------------- the child


def _become_child(channel, stdout, config):
    """Close everything but the channel, set the limits, serve, and leave without running anybody's exit handlers."""
    try:
        os.setsid()
        channel, stdout = os.dup(channel), os.dup(stdout)  # away from the numbers that are about to be overwritten
        for source, target in ((_DEVNULL, 0), (stdout, 1), (stdout, 2), (channel, _CHANNEL)):
            os.dup2(source, target)
        os.closerange(_CHANNEL + 1, 256)
        _limit(config)
        random.seed(0)
        with os.fdopen(_CHANNEL, "rb", closefd=False) as reader:
            header = json.loads(reader.readline())
            _MODES[header["mode"]](header, reader)
    finally:
        os._exit(0)


def _limit(config):
    import resource

    memory = config["memory_mb"] << 20
    limits = [("CPU", config["cpu_s"], config["cpu_s"] + 1), ("FSIZE", 0, 0), ("NOFILE", 32, 32), ("CORE", 0, 0)]
    if sys.platform.startswith("linux"):  # elsewhere AS is refused and NPROC counts all of the user's processes
        limits += [("AS", memory, memory), ("NPROC", 0, 0)]
    for name, soft, hard in limits:
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (soft, hard))


def _load(code):
    """The program's namespace; `__name__` is not `__main__`, so a demo below that guard does not run."""
    module = types.ModuleType("solution")
    sys.modules["solution"] = module  # dataclasses look their module up
    exec(code, module.__dict__)
    return module.__dict__


def _send(*message):
    data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    while data:
        data = data[os.write(_CHANNEL, data) :]


def _described(error):
    """Type and text of an exception that may itself be hostile."""
    try:
        return str(type(error).__name__)[:100], str(error)[:300]
    except BaseException:
        return "Exception", "(its text could not be read)"


def _serve_solution(header, reader):
    """Load the program and answer calls. Whatever it raises is an answer; SystemExit and KeyboardInterrupt are no way out."""
    try:
        code = compile(header["source"], "<solution>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return _send(-1, "parse_error", *_described(error))
    try:
        function = _load(code)[header["entry_point"]]
    except BaseException as error:
        return _send(-1, "exception", *_described(error))
    _send(-1, "loaded")
    for line in reader:
        index, args, kwargs = json.loads(line)
        _send(index, *_answer(function, codec.from_tree(args), codec.from_tree(kwargs)))


def _answer(function, args, kwargs):
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        return "exception", *_described(error)
    try:
        return "value", codec.to_tree(value)
    except MemoryError as error:
        return "exception", *_described(error)
    except BaseException as error:
        return "not_data", *_described(error)


def _serve_facts(_header, reader):
    for line in reader:
        index, source = json.loads(line)
        _send(index, "facts", facts.facts_of(source))


class RemoteError(Exception):
    """The solution raised something that is no builtin exception."""


def _serve_tests(header, reader):
    """Run a task's asserts with the entry point replaced by a stub whose calls the trainer relays to the solution's child."""

    def candidate(*args, **kwargs):
        _send(0, "call", codec.to_tree(args), codec.to_tree(kwargs))
        kind, *rest = json.loads(reader.readline())
        if kind == "value":
            return codec.from_tree(rest[0])
        error_type = getattr(builtins, rest[0], None)
        is_error = isinstance(error_type, type) and issubclass(error_type, Exception) and error_type is not AssertionError
        raise error_type(rest[1]) if is_error else RemoteError(f"{rest[0]}: {rest[1]}")

    namespace = {"__name__": "tests", header["entry_point"]: candidate}
    try:
        exec(compile(header["source"], "<tests>", "exec", dont_inherit=True), namespace)
        if callable(namespace.get("check")):
            namespace["check"](candidate)
    except codec.NotData as error:
        return _send(0, "unusable", *_described(error))
    except BaseException as error:
        return _send(0, "failed", *_described(error))
    _send(0, "passed")


_MODES = {"solution": _serve_solution, "tests": _serve_tests, "facts": _serve_facts}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
