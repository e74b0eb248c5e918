"""Every setting: its name, type, bound, default and the reason for the default.

The sections follow the names that users write (`training.learning_rate`, `rlaif.kl_penalty`); the code follows the
stages. A setting exists because two people want different values today. Defaults are for LoRA, and were chosen on the
embedded student: `docs/log.md` has the runs.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

LossName = Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce", "best_of_n"]
AdvantageName = Literal["group", "centred", "rloo", "batch", "none"]
SchedulerName = Literal[
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"
]


class Section(BaseModel):
    """Strict: an unknown key is an error (see `load.py` for its wording), and values are not coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class ModelSettings(Section):
    """The student."""

    name: str = Field("embedded", description="`embedded`, a directory in the Hugging Face format, or a hub name.")
    method: Literal["lora", "full"] = Field("lora", description="`lora` trains an adapter; `full` trains all weights.")
    adapter: str | None = Field(None, description="Directory of a PEFT adapter to continue from.")
    lora_r: int = Field(16, ge=1, le=1024, description="Rank of the adapter.")
    lora_alpha: float = Field(32.0, gt=0, description="The adapter is scaled by lora_alpha / lora_r.")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout inside the adapter. 0: sampling and training then agree exactly.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field("auto", description="`auto`: float32 on CPU, bfloat16 on a GPU that has it.")
    quantization: Literal["none", "4bit"] = Field("none", description="`4bit` loads the base with bitsandbytes (extra `quantized`).")
    gradient_checkpointing: bool = Field(False, description="Trade time for memory in the update.")


class DataSettings(Section):
    """Tasks. Each file is JSONL in our format, HumanEval or MBPP as published, or `hf:NAME[:SPLIT]`."""

    train: str = Field("embedded:train", description="`embedded:train`, a path, `hf:NAME[:SPLIT]`, or `module:name` of a TaskSource.")
    validation: str | None = Field("embedded:validation", description="Held-out tasks, evaluated after every epoch; null: none.")
    max_train_samples: int | None = Field(None, ge=1, description="Use at most so many train tasks (the first ones after the seeded shuffle).")
    max_validation_samples: int | None = Field(None, ge=1, description="Use at most so many validation tasks.")
    skip_bad_rows: bool = Field(False, description="Go on without the rows that are not valid tasks, counting them.")


class EarlyStoppingSettings(Section):
    enabled: bool = Field(True, description="Stop when the validation reward keeps falling.")
    patience: int = Field(2, ge=1, description="Epochs in a row below the best by more than the paired noise.")


class SchedulerArguments(Section):
    num_cycles: float | None = Field(None, gt=0, description="Cosine: half waves = 2 * num_cycles (default 0.5); restarts: number of hard restarts (default 1).")
    power: float | None = Field(None, gt=0, description="Polynomial: exponent (default 1.0).")
    lr_end: float | None = Field(None, ge=0, description="Polynomial: final rate (default 1e-7).")
    timescale: int | None = Field(None, ge=1, description="inverse_sqrt: time scale in steps (default: warmup, or 10000 without).")


class TrainingSettings(Section):
    """The update."""

    num_epochs: int = Field(4, ge=1, description="One epoch is one pass over the train tasks.")
    batch_size: int = Field(64, ge=1, description="Completions per micro-batch; memory only, the gradient does not depend on it.")
    gradient_accumulation_steps: int = Field(4, ge=1, description="Micro-batches per optimizer step: batch_size * this = completions per optimizer step.")
    updates_per_rollout: int = Field(1, ge=1, le=64, description="Optimizer steps on the same completions, with importance ratios.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Peak rate. LoRA wants about 10 times the rate of full fine-tuning; small models more.")
    warmup_steps: int = Field(0, ge=0, description="Optimizer steps of linear warmup.")
    warmup_ratio: float | None = Field(None, ge=0, lt=1, description="Warmup as a share of all optimizer steps; excludes warmup_steps.")
    lr_scheduler_type: SchedulerName = Field("linear", description="By transformers' names.")
    lr_scheduler_kwargs: SchedulerArguments = Field(default_factory=SchedulerArguments)
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient norm above which the gradient is scaled down.")
    weight_decay: float = Field(0.0, ge=0)
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    adam_beta2: float = Field(0.99, ge=0, lt=1, description="0.99 rather than 0.999: runs are short.")
    adam_epsilon: float = Field(1e-8, gt=0)
    seed: int = Field(0, ge=0, lt=2**31, description="Everything random in a run follows from it and the position in the run.")
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    num_threads: int | None = Field(None, ge=1, description="CPU threads of torch; null: the cores that this process may use. Stored in checkpoints: bit-exact resume needs the same.")
    early_stopping: EarlyStoppingSettings = Field(default_factory=EarlyStoppingSettings)
    checkpoint_every_steps: int | None = Field(10, ge=1, description="Besides the one at each epoch's end; null: epochs only.")
    keep_checkpoints: int = Field(5, ge=1, description="The last so many at epochs' ends are kept, and the best, and the newest two of any step.")
    max_bad_steps: int = Field(3, ge=1, description="Stop after so many steps in a row that were not finite or had nothing to train on.")


class QuantileThreshold(Section):
    quantile: float = Field(gt=0, lt=1, description="0.25 leaves out the bottom 25 % of the step's rewards.")


class ShapingSettings(Section):
    enabled: bool = Field(False, description="Bonuses for beating the best that a task had in earlier epochs.")
    correctness_bonus: float = Field(0.05, ge=0, le=1)
    quality_bonus: float = Field(0.03, ge=0, le=1)


class DynamicSamplingSettings(Section):
    enabled: bool = Field(False, description="Replace tasks whose group has no signal by others.")
    max_extra_tasks: float = Field(1.0, ge=0, le=8, description="Bound: at most this times the step's tasks are sampled on top.")


class RlaifSettings(Section):
    """Sampling, credit and the objective."""

    engine: str = Field("hf", description="`hf`, or `module:name` of a sampling engine.")
    num_samples_per_prompt: int = Field(8, ge=1, le=1024, description="Completions per task.")
    max_new_tokens: int = Field(96, ge=1, description="Token limit of a completion.")
    generation_temperature: float = Field(1.0, gt=0, le=10)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int | None = Field(None, ge=1, description="null: the full distribution.")
    curriculum_learning: bool = Field(True, description="Easy to hard, by declared difficulty and observed solve rate.")
    loss: LossName = Field("grpo", description="`grpo`: mean over each sequence, then over sequences. A token mean lets rare long garbage dominate.")
    advantage: AdvantageName = Field("group")
    reward_weight: float = Field(1.0, gt=0, description="With `advantage: none`: advantage = reward_weight * reward.")
    clip_low: float = Field(0.2, gt=0, lt=1, description="Importance ratios below 1 - clip_low are clipped.")
    clip_high: float = Field(0.2, gt=0, le=10, description="Importance ratios above 1 + clip_high are clipped.")
    kl_penalty: float = Field(0.0, ge=0, description="Weight of KL(policy || base).")
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="k2 or k3 in the loss, k1 in the reward.")
    kl_placement: Literal["loss", "reward"] = Field("loss")
    target_kl: float | None = Field(None, gt=0, description="Move kl_penalty so that KL stays near this, nats per token; null: fixed.")
    entropy_bonus: float = Field(0.0, ge=0)
    reward_threshold: float | QuantileThreshold | None = Field(None, description="Samples below it do not train: a reward, or {quantile: 0.25}.")
    train_on: Literal["all", "best", "top_k"] = Field("all", description="`best`: only the best sample of each task trains; `top_k`: the top_k_samples best.")
    top_k_samples: int = Field(2, ge=1, description="With `train_on: top_k`.")
    mask_truncated: bool = Field(True, description="Truncated completions count in the group's mean but do not train.")
    overlong_penalty: float = Field(0.0, ge=0, le=1, description="Subtracted from the reward of a truncated completion, for the advantages only.")
    reward_shaping: ShapingSettings = Field(default_factory=ShapingSettings)
    dynamic_sampling: DynamicSamplingSettings = Field(default_factory=DynamicSamplingSettings)
    target_reward: float = Field(0.7, gt=0, le=1, description="The average reward that the run is after.")
    autopilot: Literal["off", "advise", "auto"] = Field("off", description="Who acts on the doctor's advice.")


class RewardSettings(Section):
    """Weights of the reward's parts; they are renormalised over the parts that could be scored."""

    tests: float = Field(0.7, ge=0, description="Weight of the tests.")
    tests_mode: Literal["share", "all"] = Field("share", description="`share` of hidden tests passed, or `all`-or-nothing.")
    teacher: float = Field(0.3, ge=0, description="Weight of the teacher's rubric; 0: no teacher.")
    format: float = Field(0.0, ge=0, description="Weight of the format part: exactly one code block, or code alone.")
    custom: dict[str, float] = Field(default_factory=dict, description="`module:name` of own rewards and their weights.")


class RubricWeights(Section):
    correctness: float = Field(0.3, ge=0)
    quality: float = Field(0.3, ge=0)
    efficiency: float = Field(0.2, ge=0)
    documentation: float = Field(0.2, ge=0)


class TeacherSettings(Section):
    kind: Literal["offline"] = Field("offline", description="`offline`: a deterministic rubric, no network, no cost.")
    weights: RubricWeights = Field(default_factory=RubricWeights)


class SandboxSettings(Section):
    """Limits on one program. Code runs in a separate process under a non-root uid and is killed from outside."""

    timeout_s: float = Field(4.0, gt=0, le=600, description="Wall clock per program, all its tests together. The backstop for programs that wait: keep it well above cpu_s, or on a busy machine right answers time out.")
    cpu_s: int = Field(2, ge=1, le=600, description="CPU seconds per program, whole ones. They are the same on a busy machine, so this limit decides on programs that compute.")
    memory_mb: int = Field(512, ge=64, description="Address space per program.")
    output_kb: int = Field(1024, ge=1, description="Bytes a program may answer or print.")
    workers: int | None = Field(None, ge=1, description="Programs run at a time; null: the cores.")
    allow_weak: bool = Field(False, description="Go on where the machine gives no isolation beyond limits.")


class EvaluationSettings(Section):
    """The fixed held-out measurement after every epoch; epoch 0 is the untrained student."""

    num_samples: int = Field(8, ge=1, description="Samples per validation task, always the same temperature.")
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    greedy: bool = Field(True, description="Report the greedy score too.")
    baseline_temperatures: tuple[float, ...] = Field((0.3, 0.5), description="Further temperatures at which the start is measured: sharpening alone must not look like learning.")


class SftSettings(Section):
    """`evenkeel train --sft`: supervised warm start on reference solutions, the cure for sparse reward."""

    num_epochs: int = Field(1, ge=1)
    learning_rate: float = Field(3e-4, gt=0)


class TrackingSettings(Section):
    trackers: tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...] = Field((), description="Standard trackers that get the same metrics through Accelerate.")


class RunConfig(Section):
    """The whole configuration. No stage sees it: each is handed its own section."""

    model: ModelSettings = Field(default_factory=ModelSettings)
    data: DataSettings = Field(default_factory=DataSettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    rlaif: RlaifSettings = Field(default_factory=RlaifSettings)
    reward: RewardSettings = Field(default_factory=RewardSettings)
    teacher: TeacherSettings = Field(default_factory=TeacherSettings)
    sandbox: SandboxSettings = Field(default_factory=SandboxSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    sft: SftSettings = Field(default_factory=SftSettings)
    tracking: TrackingSettings = Field(default_factory=TrackingSettings)
