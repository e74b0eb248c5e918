"""What a user gets wrong, and what the world does wrong: exit code, words, and what is left behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evenkeel.cli import run
from evenkeel.policy.model import embedded_student
from evenkeel.train.checkpoint import damage, list_checkpoints
from evenkeel.train.step import Updater

from .in_process import BRIEF, read, walk
from .small_run import arguments, run_python, start
from .test_train import assert_same_run, contents

TASK = {"task_id": "double", "prompt": "def double(n):\n", "entry_point": "double", "tests": [{"args": [3], "expected": 6}]}


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Runs a command that must be refused in an empty folder: its message, after checking that nothing is left behind."""
    folder = tmp_path / "empty folder"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def refuse(*command: str) -> str:
        capsys.readouterr()
        code = run(list(command))
        message = capsys.readouterr().err
        assert code == 2, message
        assert [path.name for path in folder.rglob("*") if path.name != "runs"] == []
        assert message.startswith("evenkeel: ") and "Traceback" not in message
        return " ".join(message.split())

    return refuse


def sets(**changes) -> list[str]:
    """Only these settings, and no --out: the directory would be runs/0001."""
    return ["train", *(part for key, value in changes.items() for part in ("--set", f"{key.replace('__', '.')}={value}"))]


def write_rows(path: Path, *rows) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


# --------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("training.learning_rte=1e-4", ["`training.learning_rte` is not a setting", "did you mean `training.learning_rate`?"]),
        ("training.kl_penalty=0.1", ["did you mean `rlaif.kl_penalty`?"]),
        ("training.num_epochs=many", ["`training.num_epochs` must be a whole number, at least 1", 'the text "many"']),
        ('training.learning_rate="1e-5"', ["`training.learning_rate` must be a number", "Remove the quotes."]),
        ("training.learning_rate=-1e-5", ["`training.learning_rate`", "greater than 0, at most 1, but is -1e-05"]),
        ("sft.learning_rate=-1", ["`sft.learning_rate` must be a number, greater than 0, but is -1"]),
        ("training.learning_rate=.nan", ["`training.learning_rate` must be a number", "nan"]),
        ("rlaif.kl_penalty=-0.1", ["`rlaif.kl_penalty` must be a number, at least 0, but is -0.1"]),
        ("rlaif.num_samples_per_prompt=1", ["is 1", "`rlaif.advantage: group` compares samples", "`rlaif.advantage: batch`"]),
        ("rlaif.loss=ppo", ["`rlaif.loss` must be `grpo` or", 'the text "ppo"']),
        ("reward.custom.evil=0.5", ["`reward.custom` is `evil`; write `module:name`"]),
        ("rlaif.engine=vllm", ["`rlaif.engine` is `vllm`; engines are `hf` and your own as `module:name`"]),
        ("rlaif.engine=nowhere:Engine", ["`rlaif.engine`", "there is no module `nowhere`"]),
        ("training.device=cuda", ["`training.device` is cuda, but torch finds no CUDA device"]),
        ("model.adapter=nowhere", ["`model.adapter` is `nowhere`", "no `adapter_config.json`"]),
        ("training.seed", ["`--set training.seed` is not of the form section.key=value"]),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_named_with_the_way_out(refused, setting, expected):
    import torch

    if "cuda" in setting and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    message = refused("train", "--set", setting)
    assert all(words in message for words in expected), message


def test_k1_in_the_loss_is_refused_with_its_reason(refused):
    message = refused(*sets(rlaif__kl_penalty=0.1, rlaif__kl_estimator="k1"))
    assert "no gradient in expectation" in message and "Choose k2 or k3, or `rlaif.kl_placement: reward`" in message


def test_all_errors_of_a_configuration_are_told_together(refused, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("training: {batch_sise: 8, num_epochs: 0}\nrlaif: {top_p: 2}\n")
    message = refused("train", str(config))
    assert "3 errors" in message and "`training.batch_size`?" in message
    assert "`training.num_epochs`" in message and "`rlaif.top_p`" in message


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("gone.yaml", None, "there is no such file"),
        ("list.yaml", "- training\n", "must be a mapping of sections"),
        ("broken.yaml", "training:\n  seed: [1\n", "line 3: not valid YAML"),
        ("binary.yaml", b"\xff\xfe\x00", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(refused, tmp_path, name, content, expected):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    message = refused("train", str(path))
    assert str(path) in message and expected in message, message


# --------------------------------------------------------------------------- tasks


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], ["holds no task (0 bad rows)"]),
        ([TASK | {"tests": []}], ["line 1: no tests"]),
        ([TASK | {"tests": [{"args": [3], "expected": 6, "visible": True}]}], ["line 1: no tests but visible ones"]),
        ([TASK, "", "{broken", TASK], ["2 of the 3 rows", "line 3: not JSON", "line 4: task_id 'double' occurs a second time"]),
        ([TASK | {"language": "cobol"}, TASK], ["1 of the 2 rows", "line 1: language 'cobol' is unknown; known: python"]),
    ],
    ids=["empty", "no tests", "visible tests only", "bad rows", "language"],
)
def test_tasks_that_are_none_are_named_by_their_lines(refused, tmp_path, rows, expected):
    message = refused(*sets(data__train=write_rows(tmp_path / "tasks.jsonl", *rows)))
    assert all(words in message for words in expected), message


def test_a_file_of_tasks_that_is_not_there_is_named(refused):
    assert "The task file nowhere.jsonl does not exist" in refused(*sets(data__train="nowhere.jsonl"))
    assert "The task file nowhere.jsonl does not exist" in refused(*sets(data__validation="nowhere.jsonl"))


@pytest.mark.parametrize("flag", [["--set", "data.skip_bad_rows=true"], ["--skip-bad-rows"]], ids=" ".join)
def test_bad_rows_may_be_skipped_and_are_counted(tmp_path, refused, capsys, flag):
    good = [TASK | {"task_id": f"double {number}"} for number in range(8)]
    source = write_rows(tmp_path / "tasks.jsonl", *good[:4], "{broken", *good[4:], TASK | {"tests": []})
    assert "`data.skip_bad_rows: true`" in refused(*sets(data__train=source))
    found = walk(tmp_path / "run", *flag, data__train=source, training__max_bad_steps=9)
    assert {row.task_id for row in found.samples} == {task["task_id"] for task in good}
    [event] = [event for event in found.events if event.kind == "skipped_rows"]
    assert f"{source}: 2 rows" in event.message and "line 5: not JSON" in event.message and "line 10: no tests" in event.message
    assert "line 10: no tests" in capsys.readouterr().out


def test_a_warm_start_without_references_is_refused_before_anything_is_measured(refused, tmp_path):
    message = refused(*sets(data__train=write_rows(tmp_path / "tasks.jsonl", TASK)), "--sft")
    assert "no train task has a `reference`" in message


# --------------------------------------------------------------------------- models


def test_a_model_directory_without_tokenizer_is_refused(refused, tmp_path):
    files = ("config.json", "generation_config.json", "model.safetensors")
    model = tmp_path / "model"
    model.mkdir()
    for file in files:
        if (embedded_student() / file).is_file():
            shutil.copy(embedded_student() / file, model)
    message = refused(*sets(model__name=model))
    assert str(model) in message and "has no tokenizer" in message and "Copy the tokenizer's files" in message


@pytest.mark.parametrize(("harm", "expected"), [("nothing there", "no `config.json`"), ("cut weights", "could not be loaded")])
def test_a_directory_that_is_no_model_is_refused(refused, tmp_path, harm, expected):
    model = tmp_path / "model"
    if harm == "cut weights":
        shutil.copytree(embedded_student(), model)
        (model / "model.safetensors").write_bytes((embedded_student() / "model.safetensors").read_bytes()[:5000])
    else:
        model.mkdir()
    message = refused(*sets(model__name=model))
    assert str(model) in message and expected in message


# --------------------------------------------------------------------------- where a run is written


def test_an_out_that_exists_is_refused_and_left_alone(tmp_path, capsys):
    out = tmp_path / "mine"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert run(arguments(out)) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"--out {out} exists and is not empty" in message and f"evenkeel train --resume {out}" in message
    assert [path.name for path in out.iterdir()] == ["notes.txt"]


def test_a_refused_start_takes_no_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "0007").mkdir(parents=True)
    assert run([*arguments(), "--set", "model.name=./nowhere"]) == 2
    assert run(arguments(data__max_train_samples=8, data__max_validation_samples=2, training__num_epochs=1)) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["0007", "0008"]


def test_an_output_that_may_not_be_written_is_refused(tmp_path):
    run(arguments(tmp_path))  # refused: loads what the child, which may not read our modules, will need
    folder = tmp_path / "locked"
    folder.mkdir()
    for out in (folder, folder / "new"):
        code, message = as_nobody(folder, arguments(out))
        assert code == 2 and f"{out} cannot be made: " in message and "--out" in message, message
        assert "ermission denied" in message
    assert list(folder.iterdir()) == []


def as_nobody(folder: Path, command: list[str]) -> tuple[int, str]:
    """Exit code and stderr of a command by a user who may read the folder and not write it. As root in a forked child, because
    the interpreter may lie where others cannot read."""
    if os.geteuid() != 0:
        folder.chmod(0o555)
        done = start(command)
        message = done.communicate()[1]
        folder.chmod(0o755)
        return done.returncode, message
    for parent in [*folder.parents][:3]:
        parent.chmod(parent.stat().st_mode | 0o555)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        sys.stderr = os.fdopen(writer, "w")
        code = run(command)
        sys.stderr.flush()
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        message = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), message


DISK = """
import json, shutil, subprocess, sys
from pathlib import Path
from evenkeel.cli import run

disk, copy, command = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
resume = ["train", "--resume", str(disk / "run")]
found = []
for size in ("5m", "100k"):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "small", disk], check=True)
    codes = [run(command), run(resume)]
    kept = sorted(path.name for path in disk.glob("run/checkpoints/*"))
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    found.append((kept, [*codes, run(resume)]))
    shutil.copytree(disk / "run", copy + size)
    subprocess.run(["umount", disk], check=True)
print(json.dumps(found))
"""


def test_a_full_disk_ends_the_run_and_more_room_lets_it_go_on(finished_run, tmp_path):
    """On real file systems of 5 MB and 100 KB, in a mount namespace of their own."""
    namespace = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0 or subprocess.run([*namespace, "true"], capture_output=True).returncode != 0:
        pytest.skip("a private mount needs root and a kernel that allows it")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = json.dumps(arguments(disk / "run"))
    done = run_python([*namespace, sys.executable, "-c", DISK, str(disk), str(tmp_path / "copy"), command])
    large, tiny = json.loads(done.stdout.splitlines()[-1])
    # 0.9 MB at the start, 2.5 MB with the optimizer, 0.5 MB of database: the checkpoint of step 3 does not fit, twice
    assert large == [["step-000000", "step-000002"], [1, 1, 0]], done.stderr
    assert tiny == [[], [1, 1, 0]], done.stderr
    assert done.stderr.count("the disk is full") == 4 and "Traceback" not in done.stderr
    assert_same_run(finished_run, tmp_path / "copy5m")
    assert_same_run(finished_run, tmp_path / "copy100k")


# --------------------------------------------------------------------------- numbers that are none


@pytest.fixture
def poison(monkeypatch):
    """Makes the gradients of some updates (counted from 1) NaN, as a bad kernel or an overflow would."""

    def make(updates) -> None:
        seen, plain = [], Updater.update

        def poisoned(self, *inputs):
            seen.append(None)
            bad = len(seen) in updates
            weights = [weight for _, weight in self.policy.trainable()] if bad else []
            hooks = [weight.register_hook(lambda gradient: gradient * float("nan")) for weight in weights]
            report = plain(self, *inputs)
            for hook in hooks:
                hook.remove()
            return report

        monkeypatch.setattr(Updater, "update", poisoned)

    return make


def test_a_step_that_is_not_finite_is_dropped_and_the_run_goes_on(tmp_path, poison, capsys):
    poison({2})
    found = walk(tmp_path / "run", data__max_train_samples=24)
    assert [step["update/dropped_steps"] for step in found.steps] == [0, 1, 0]
    assert found.epochs[1]["failures/survived"] == 1
    [event] = [event for event in found.events if event.kind == "dropped_step"]
    assert event.step == 2 and "gradient norm nan" in event.message and "the weights are as before" in event.message
    assert "Step 2 was dropped" in capsys.readouterr().out
    # a dropped step has no loss and no KL; the first one's work is kept
    assert "loss/mean" not in found.steps[1] and "kl/mean" not in found.steps[1] and found.steps[2]["kl/mean"] > 0


def test_a_run_that_stays_not_finite_stops_with_its_last_good_state(tmp_path, poison, monkeypatch, capsys):
    directory = tmp_path / "run"
    settings = {key.replace(".", "__"): value for key, value in BRIEF.items()} | {"data__max_train_samples": 40}
    poison({3, 4, 5, 6})
    assert run(arguments(directory, training__max_bad_steps=2, **settings)) == 1
    message = capsys.readouterr().err
    assert "2 steps in a row were not finite" in message and "gradient norm nan" in message and "--resume" in message
    found = read(directory)
    assert [step["update/dropped_steps"] for step in found.steps] == [0, 0, 1, 1]
    newest = list_checkpoints(directory / "checkpoints")[-1]
    assert newest.step == 4 and damage(newest.path) is None
    monkeypatch.undo()
    assert run(["train", "--resume", str(directory)]) == 0
    after = read(directory)
    assert len(after.steps) == 5 and after.steps[4]["update/dropped_steps"] == 0
    assert after.steps[:4] == found.steps


# --------------------------------------------------------------------------- going on


def test_only_a_run_directory_can_be_resumed(refused, tmp_path):
    (tmp_path / "no run").mkdir()
    assert "is no run directory" in refused("train", "--resume", str(tmp_path / "no run"))
    assert "is no run directory" in refused("train", "--resume", "nowhere")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["--from", "epoch:1"], "Add --resume RUN"),
        (["--resume", "RUN", "--sft"], "--sft is for the beginning of a run"),
        (["--resume", "RUN", "--set", "training.seed=1"], "branch: add --from last"),
        (["--resume", "RUN", "--out", "elsewhere"], "branch: add --from last"),
        (["--resume", "RUN", "--from", "epoch:9"], "has no checkpoint `epoch:9`; it has epoch:0, epoch:1, step:4, epoch:2."),
        (["--resume", "RUN", "--from", "step:1"], "has no checkpoint `step:1`; it has epoch:0,"),
        (["--resume", "RUN", "--from", "yesterday"], "write `epoch:N`, `step:N`, `best` or `last`"),
        (["--resume", "RUN", "--from", "last", "--set", "model.lora_r=4"], "it can grow, not shrink"),
        (["--resume", "RUN", "--from", "last", "--set", "training.learning_rat=1"], "did you mean `training.learning_rate`?"),
        (["--resume", "RUN", "--from", "last", "--set", "rlaif.num_samples_per_prompt=1"], "compares samples of the same task"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_resumed_or_branched_is_refused_and_the_run_left_alone(refused, finished_run, command, expected):
    before = files_of(finished_run)
    message = refused("train", *(str(finished_run) if word == "RUN" else word for word in command))
    assert expected in message, message
    assert files_of(finished_run) == before


def test_a_configuration_and_a_run_cannot_both_be_given(refused, finished_run):
    config = str(finished_run / "config.yaml")
    assert "no CONFIG may be given" in refused("train", config, "--resume", str(finished_run))


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


EVIL = "from pathlib import Path\nPath('was_here').touch()\n"


@pytest.fixture
def strangers_run(finished_run, tmp_path, monkeypatch):
    """A copy of a run whose configuration names code that lies in the current folder, before its last steps were made."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "strange.py").write_text(EVIL + "from evenkeel.rollout.hf import HFEngine as Engine\n")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "strange", raising=False)

    def make(old: str, new: str) -> Path:
        run_directory = shutil.copytree(finished_run, tmp_path / "strangers run")
        config = (run_directory / "config.yaml").read_text()
        assert old in config
        (run_directory / "config.yaml").write_text(config.replace(old, new))
        shutil.rmtree(list_checkpoints(run_directory / "checkpoints")[-1].path)
        return run_directory

    yield make
    sys.modules.pop("strange", None)


@pytest.mark.parametrize(
    ("old", "new", "setting"),
    [
        ("engine: hf", "engine: strange:Engine", "rlaif.engine"),
        ("train: embedded:train", "train: strange:Tasks", "data.train"),
        ("validation: embedded:validation", "validation: strange:Tasks", "data.validation"),
        ("custom: {}", "custom: {'strange:Reward': 1.0}", "reward.custom"),
    ],
    ids=["engine", "train tasks", "validation tasks", "reward"],
)
def test_code_that_a_strangers_run_names_is_not_imported(strangers_run, old, new, setting, capsys):
    directory = strangers_run(old, new)
    before = contents(directory)
    paths = ["strange.py"]
    for command in (
        ["train", "--resume", str(directory)],
        ["train", "--resume", str(directory), "--from", "last", "--out", "branch"],
        ["train", str(directory / "config.yaml"), "--out", "again"],
        ["plan", str(directory / "config.yaml")],
    ):
        if setting not in ("data.train", "data.validation") and command[0] == "plan":
            continue  # a plan samples and scores nothing
        assert run(command) == 2
        message = " ".join(capsys.readouterr().err.split())
        assert f"`{setting}` names `strange:" in message and "--allow-code" in message, message
    assert [path.name for path in Path().iterdir()] == paths
    assert contents(directory) == before


def test_code_of_a_run_is_imported_when_it_is_allowed(strangers_run, finished_run):
    directory = strangers_run("engine: hf", "engine: strange:Engine")
    assert run(["train", "--resume", str(directory), "--allow-code"]) == 0
    assert Path("was_here").exists()
    assert_same_run(finished_run, directory)
