import csv
import json

import pytest

from evenkeel.errors import UsageError
from evenkeel.metrics.store import RunStore
from evenkeel.records import EpochRecord, StepRecord
from evenkeel.report.metrics_file import metric_rows, write_metrics


@pytest.fixture
def run(tmp_path):
    with RunStore(tmp_path / "run.db") as store:
        store.record_epoch(EpochRecord(0, 0, {"validation/tests/mean": 0.25}), {})
        store.record_step(StepRecord(1, 1, {"reward/mean": 0.1, "loss/mean": 1 / 3}))
        store.record_step(StepRecord(2, 1, {"reward/mean": 0.2}))
        store.record_epoch(EpochRecord(1, 2, {"reward/mean": 0.15}), {})
        yield store


def test_rows_follow_the_run(run):
    assert [(row["kind"], row["epoch"], row["step"]) for row in metric_rows(run)] == [
        ("epoch", 0, 0), ("step", 1, 1), ("step", 1, 2), ("epoch", 1, 2),
    ]  # fmt: skip


def test_jsonl_keeps_every_bit_and_leaves_out_what_was_not_measured(run, tmp_path):
    assert write_metrics(run, tmp_path / "m.jsonl") == 4
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert rows[1] == {"kind": "step", "epoch": 1, "step": 1, "reward/mean": 0.1, "loss/mean": 1 / 3}


def test_csv_has_a_column_for_every_metric_in_reading_order(run, tmp_path):
    write_metrics(run, tmp_path / "m.csv")
    with (tmp_path / "m.csv").open(newline="") as file:
        header, start, step, *_ = csv.reader(file)
    assert header == ["kind", "epoch", "step", "reward/mean", "validation/tests/mean", "loss/mean"]
    assert start == ["epoch", "0", "0", "", "0.25", ""]
    assert float(step[5]) == 1 / 3


@pytest.mark.parametrize("name", ["m.parquet", "metrics", "absent/m.csv"])
def test_a_file_that_cannot_be_written_is_refused(run, tmp_path, name):
    with pytest.raises(UsageError, match="--metrics"):
        write_metrics(run, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("run.db")) == []
