"""Names become objects, once: from a configuration and a run directory to the parts that the loop is handed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from evenkeel.algorithm.kl import KlController
from evenkeel.config.length import run_length
from evenkeel.config.named import named_object
from evenkeel.config.schema import RunConfig
from evenkeel.config.stages import (
    CreditSettings,
    ObjectiveSettings,
    SamplingSettings,
    ScheduleSettings,
    credit_settings,
    curriculum_settings,
    evaluation_sampling,
    objective_settings,
    sampling_settings,
    schedule_settings,
    score_settings,
    shaping_settings,
)  # fmt: skip
from evenkeel.distributed.world import World
from evenkeel.errors import UsageError
from evenkeel.metrics.rows import Event
from evenkeel.metrics.store import RunStore
from evenkeel.policy.lora import load_policy
from evenkeel.policy.model import Policy
from evenkeel.records import Task
from evenkeel.reward.score import Scorer
from evenkeel.reward.shaping import ShapingHistory
from evenkeel.reward.standard import rewards_of
from evenkeel.rollout.base import SamplingEngine
from evenkeel.rollout.hf import HFEngine
from evenkeel.sandbox.pool import open_sandbox
from evenkeel.tasks.curriculum import Curriculum
from evenkeel.train import checkpoint
from evenkeel.train.checkpoint import Checkpoint
from evenkeel.train.listener import Listener
from evenkeel.train.state import EarlyStopping, Position
from evenkeel.train.step import Updater, make_optimizer
from evenkeel.train.tracking import Trackers


@dataclass(frozen=True)
class LoopSettings:
    """What the loop itself reads, and what it hands on, section by section."""

    seed: int
    sampling: SamplingSettings
    evaluation: SamplingSettings
    credit: CreditSettings
    objective: ObjectiveSettings
    schedule: ScheduleSettings
    updates_per_rollout: int
    max_grad_norm: float
    max_bad_steps: int
    checkpoint_every_steps: int | None
    keep_checkpoints: int
    dynamic_sampling: bool
    max_extra_share: float
    target_reward: float
    greedy: bool
    baseline_temperatures: tuple[float, ...]
    stop_early: bool

    def evaluation_at(self, temperature: float) -> SamplingSettings:
        """The held-out sampling at another temperature; greedy (0) needs one sample."""
        return replace(
            self.evaluation, temperature=temperature, num_samples=1 if temperature == 0 else self.evaluation.num_samples
        )


@dataclass
class Run:
    """The parts of one run. They do not know each other; the loop calls them."""

    directory: Path
    settings: LoopSettings
    num_epochs: int
    tasks_per_rollout: int
    total_steps: int
    """Optimizer steps that the schedule is laid out for."""
    validation_tasks: tuple[Task, ...]
    world: World
    policy: Policy
    engine: SamplingEngine
    scorer: Scorer
    updater: Updater
    curriculum: Curriculum
    shaping: ShapingHistory
    kl: KlController
    early_stopping: EarlyStopping
    store: RunStore
    trackers: Trackers
    position: Position
    listener: Listener
    stop_requested: Callable[[], bool]

    def state(self) -> dict[str, Any]:
        """All of the run that a checkpoint keeps beside weights and optimizer."""
        return {
            "position": self.position.state(),
            "curriculum": self.curriculum.state(),
            "shaping": self.shaping.state(),
            "kl": self.kl.state(),
            "early_stopping": self.early_stopping.state(),
            "seed": self.settings.seed,
            "num_threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }

    def note(self, event: Event) -> None:
        if self.world.is_main:
            self.store.record_event(event)
        self.listener.note(event.message)


@contextmanager
def open_parts(
    config: RunConfig, directory: Path, train_tasks: tuple[Task, ...], validation_tasks: tuple[Task, ...], world: World, *,
    listener: Listener, stop_requested: Callable[[], bool], origin: Checkpoint | None = None, allow_custom_code: bool = False,
) -> Iterator[Run]:  # fmt: skip
    """Build a run, from the start or from a checkpoint; close what it holds at the end."""
    with ExitStack() as closing:
        set_threads(config.training.num_threads)
        torch.manual_seed(config.training.seed)
        policy = policy_at(config, origin)
        training = config.training
        optimizer = make_optimizer(
            policy,
            betas=(training.adam_beta1, training.adam_beta2),
            epsilon=training.adam_epsilon,
            weight_decay=training.weight_decay,
        )
        with world.main_first():
            store = closing.enter_context(RunStore(directory / "run.db"))
        sandbox = closing.enter_context(open_sandbox(config.sandbox))
        rewards = rewards_of(score_settings(config), allow_custom_code=allow_custom_code)
        trackers = Trackers(config.tracking.trackers, directory, _tracked_facts(config), is_main=world.is_main)
        closing.callback(trackers.close)
        objective, length = objective_settings(config), run_length(config, len(train_tasks))
        run = Run(
            directory=directory,
            settings=loop_settings(config),
            num_epochs=training.num_epochs,
            tasks_per_rollout=length.tasks_per_rollout,
            total_steps=length.total_steps,
            validation_tasks=validation_tasks,
            world=world,
            policy=policy,
            engine=make_engine(config.rlaif.engine, policy, allow_custom_code=allow_custom_code),
            scorer=Scorer(sandbox, rewards, store),
            updater=Updater(policy, optimizer, objective, world),
            curriculum=Curriculum(train_tasks, curriculum_settings(config)),
            shaping=ShapingHistory(shaping_settings(config)),
            kl=KlController(objective.kl_penalty, objective.target_kl),
            early_stopping=EarlyStopping(training.early_stopping.patience),
            store=store,
            trackers=trackers,
            position=Position(micro_batch_size=training.batch_size),
            listener=listener,
            stop_requested=stop_requested,
        )
        if origin is not None:
            restore(run, origin)
        yield run


def policy_at(config: RunConfig, origin: Checkpoint | None) -> Policy:
    """The student with the weights of a checkpoint, or as the configuration gives it."""
    if origin is None or config.model.method == "full":
        policy = load_policy(config.model, config.training.device)
        if origin is not None:
            trained = AutoModelForCausalLM.from_pretrained(origin.weights, dtype=policy.model.dtype)
            policy.model.load_state_dict(trained.state_dict())
        return policy
    return load_policy(config.model.model_copy(update={"adapter": str(origin.weights)}), config.training.device)


def restore(run: Run, origin: Checkpoint) -> None:
    """Put the run where the checkpoint was. The learning rate is not part of it: the schedule computes it from the
    configuration and the position, so a changed rate, warmup or horizon takes effect at the next step."""
    state = origin.state()
    run.curriculum.restore(state["curriculum"])
    run.shaping.restore(state["shaping"])
    run.kl.restore(state["kl"])
    run.early_stopping.restore(state["early_stopping"])
    batch_size = run.position.micro_batch_size
    run.position = Position.restored(state["position"])
    run.position.micro_batch_size = min(batch_size, run.position.micro_batch_size)
    run.position.finished = run.position.finished and run.position.epoch > run.num_epochs
    if not checkpoint.load_into(origin, run.policy, run.updater.optimizer):
        run.note(Event("optimizer_reset", "The adapter grew, so the optimizer's moments start anew.", run.position.step))
    before, now = state["num_threads"], torch.get_num_threads()
    if before != now:
        message = (
            f"The checkpoint was written with {before} threads, and {now} are used now: the run goes on, but not bit for bit "
            f"as it would have. Set `training.num_threads: {before}` for that."
        )
        run.note(Event("threads_changed", message, run.position.step))


def loop_settings(config: RunConfig) -> LoopSettings:
    training, rlaif = config.training, config.rlaif
    return LoopSettings(
        seed=training.seed,
        sampling=sampling_settings(config),
        evaluation=evaluation_sampling(config),
        credit=credit_settings(config),
        objective=objective_settings(config),
        schedule=schedule_settings(config),
        updates_per_rollout=training.updates_per_rollout,
        max_grad_norm=training.max_grad_norm,
        max_bad_steps=training.max_bad_steps,
        checkpoint_every_steps=training.checkpoint_every_steps,
        keep_checkpoints=training.keep_checkpoints,
        dynamic_sampling=rlaif.dynamic_sampling.enabled,
        max_extra_share=rlaif.dynamic_sampling.max_extra_tasks,
        target_reward=rlaif.target_reward,
        greedy=config.evaluation.greedy,
        baseline_temperatures=config.evaluation.baseline_temperatures,
        stop_early=training.early_stopping.enabled,
    )


def make_engine(name: str, policy: Policy, *, allow_custom_code: bool) -> SamplingEngine:
    if name == "hf":
        return HFEngine(policy)
    if ":" not in name:
        raise UsageError(f"`rlaif.engine` is `{name}`; engines are `hf` and your own as `module:name`.")
    return named_object(name, setting="rlaif.engine", allowed=allow_custom_code)(policy)


def set_threads(count: int | None) -> None:
    """Threads of torch on the CPU. Sums are split by thread, so bit-exact resume needs the same number."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(count or available)


def _tracked_facts(config: RunConfig) -> dict[str, str | int | float | bool]:
    """The configuration as flat scalars, for trackers."""
    flat: dict[str, str | int | float | bool] = {}
    for section, values in config.model_dump().items():
        for name, value in values.items():
            flat[f"{section}.{name}"] = value if isinstance(value, (str, int, float, bool)) else str(value)
    return flat
