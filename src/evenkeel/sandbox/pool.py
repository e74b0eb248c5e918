"""The sandbox that ships: as many zygotes as workers, each driven by one thread.

    with open_sandbox(settings) as sandbox:
        verdicts = sandbox.run(jobs)

What a program meets, where the machine allows (`Sandbox.isolation` tells, by trying): a process of its own under a
non-root uid, in PID, network and IPC namespaces, in a read-only root that holds the Python library and nothing of the
user's, with limits on time, memory, output, files and processes and a clean environment; killed from outside.

NOT protected against:
- a bug of the kernel: system calls are not filtered yet, so its whole surface is in reach;
- exhaustion of memory by all workers at once: `memory_mb` holds for each program, not for their sum;
- timing: programs share the cores, so one that burns its CPU limit slows its neighbours;
- a weak machine (`isolation.weak`): a program may then see and signal processes of the same uid, and so turn its own
  failures into `infrastructure`. Run only what you trust there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from evenkeel.errors import UsageError
from evenkeel.records import Outcome, Verdict
from evenkeel.sandbox.base import CodeFacts, Isolation, Job, Limits
from evenkeel.sandbox.grade import UnusableTest, grade
from evenkeel.sandbox.inspection import inspect_in
from evenkeel.sandbox.zygote import Zygote, ZygoteLost

Item = TypeVar("Item")
_ATTEMPTS = 2


class SandboxValues(Protocol):
    """The `sandbox` section of the configuration, or anything with its fields."""

    timeout_s: float
    cpu_s: int
    memory_mb: int
    output_kb: int
    workers: int | None
    allow_weak: bool


def open_sandbox(settings: SandboxValues) -> Pool:
    """Start the zygotes. Raises UsageError where the machine gives no isolation and `sandbox.allow_weak` is off."""
    limits = Limits(settings.timeout_s, settings.cpu_s, settings.memory_mb, settings.output_kb)
    pool = Pool(limits, settings.workers or _num_cores())
    if pool.isolation.weak and not settings.allow_weak:
        pool.close()
        raise UsageError(
            f"Programs cannot be isolated on this machine: {pool.isolation.reason} ({'; '.join(pool.isolation.missing)}). "
            "Run where namespaces are allowed, or set `sandbox.allow_weak: true` if you trust what the model writes."
        )
    return pool


class Pool:
    """A Sandbox (see `base.py`) and a context manager."""

    def __init__(self, limits: Limits, num_workers: int):
        self._workers = [_Worker(limits) for _ in range(num_workers)]
        self._closing = threading.Event()
        try:
            reports = [future.result() for future in [worker.submit(worker.start) for worker in self._workers]]
        except ZygoteLost as lost:
            self.close()
            raise UsageError(
                f"The sandbox process does not start: {lost}. `evenkeel sandbox` shows what this machine gives."
            ) from lost
        self.isolation = _isolation(reports[0])

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, jobs: Sequence[Job]) -> list[Verdict]:
        return self._share_out(jobs, lambda worker, batch: [worker.run(batch[0])], batch_size=1)

    def inspect(self, programs: Sequence[str]) -> list[CodeFacts]:
        return self._share_out(programs, lambda worker, batch: worker.inspect(batch), batch_size=32)

    def close(self) -> None:
        """Kill the zygotes, and with them all that they started. Closing twice is fine."""
        if self._closing.is_set():
            return
        self._closing.set()
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.stop()

    def _share_out(self, items: Sequence[Item], work: Callable[[_Worker, Sequence[Item]], list], batch_size: int) -> list:
        """Each worker takes the next batch when it is free; results keep the order of the items."""
        if self._closing.is_set():
            raise RuntimeError("the sandbox is closed")
        results: list[Any] = [None] * len(items)
        starts = _Shared(iter(range(0, len(items), batch_size)))

        def drain(worker: _Worker) -> None:
            while not self._closing.is_set() and (start := starts.take()) is not None:
                batch = items[start : start + batch_size]
                results[start : start + len(batch)] = work(worker, batch)

        futures = [worker.submit(drain, worker) for worker in self._workers[: max(1, len(items))]]
        try:
            for future in futures:
                future.result()
        except BaseException:  # Ctrl-C above all: hand out no more work, then let it rise
            starts.stop()
            raise
        if self._closing.is_set():
            raise RuntimeError("the sandbox was closed while it ran")
        return results


class _Worker:
    """One thread and its zygotes: one for programs and, once asserts come, one for the tests.

    The zygotes are started on this thread, which lives as long as the sandbox: the kernel's parent-death signal follows
    the thread that started a process, not the process.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sandbox")
        self._zygotes: dict[str, Zygote] = {}
        self._killed = False
        self._lock = threading.Lock()
        self.submit = self._thread.submit

    def start(self) -> dict:
        return self._zygote("solution").report

    def run(self, job: Job) -> Verdict:
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                return grade(job, self._limits, lambda: self._zygote("solution"), lambda: self._zygote("tests"))
            except ZygoteLost as lost:
                reason = str(lost)
                self._recycle()
            except UnusableTest as unusable:
                reason = f"the task's test cannot be run here: {unusable}"
                break
        return Verdict(Outcome.INFRASTRUCTURE, 0, 0, reason[:500])

    def inspect(self, programs: Sequence[str]) -> list[CodeFacts]:
        for _ in range(_ATTEMPTS):
            try:
                return inspect_in(self._zygote("solution"), programs, self._limits)
            except ZygoteLost as lost:
                reason = str(lost)
                self._recycle()
        return [CodeFacts("not_inspected", error=reason[:200]) for _ in programs]

    def kill(self) -> None:
        """From any thread: whatever the worker waits for ends."""
        with self._lock:
            self._killed = True
            for zygote in self._zygotes.values():
                zygote.kill()

    def stop(self) -> None:
        self._thread.submit(self._recycle).result()
        self._thread.shutdown()

    def _zygote(self, role: str) -> Zygote:
        if role not in self._zygotes:
            zygote = Zygote(self._limits)
            with self._lock:
                self._zygotes[role] = zygote
                if self._killed:
                    zygote.kill()
        return self._zygotes[role]

    def _recycle(self) -> None:
        with self._lock:
            zygotes, self._zygotes = self._zygotes, {}
        for zygote in zygotes.values():
            zygote.close()


class _Shared:
    """An iterator that several threads take from; None when there is nothing more."""

    def __init__(self, items: Iterator[int]):
        self._items: Iterator[int] = items
        self._lock = threading.Lock()

    def take(self) -> int | None:
        with self._lock:
            return next(self._items, None)

    def stop(self) -> None:
        with self._lock:
            self._items = iter(())


def _isolation(report: dict) -> Isolation:
    layers = tuple(report["layers"])
    reasons = []
    if "pid namespace" not in layers:
        reasons.append("without a PID namespace a program can see and signal other processes")
    if "process limit" not in layers:
        reasons.append("without a limit on processes a program can start others without end")
    if report["uid"] == 0:
        reasons.append("programs would run as root")
    return Isolation(layers, tuple(report["missing"]), report["uid"], bool(reasons), "; ".join(reasons))


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
