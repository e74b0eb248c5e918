import io

import pytest
from rich.console import Console

from evenkeel.metrics.names import CATALOGUE
from evenkeel.records import EpochRecord
from evenkeel.report import terminal
from evenkeel.report.terminal import epoch_table, summary_line

# The seed's four epochs.
REWARD = (0.2604, 0.2662, 0.2804, 0.2553)
LOSS = (0.1980, 0.3853, 0.3552, 0.4473)


def seed_run():
    return [
        EpochRecord(epoch, 2 * epoch, {"reward/mean": reward, "reward/target_share": reward / 0.7, "reward/std_error": 0.02,
                                       "loss/mean": loss, "time/epoch_s": 3120.0})
        for epoch, (reward, loss) in enumerate(zip(REWARD, LOSS, strict=True), start=1)
    ]  # fmt: skip


def lines_of(epochs, width=100):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(epoch_table(epochs, width=width))
    return console.export_text().splitlines()


def line(label, lines):
    return next(text.split() for text in lines if text.strip().startswith(label))


def test_the_seeds_table():
    lines = lines_of(seed_run())
    assert line("Average Reward", lines) == "Average Reward 0.2604 0.2662 0.2804 0.2553 ↓ 2.0 % noise".split()
    assert line("share of target", lines) == "share of target 37 % 38 % 40 % 36 %".split()
    assert line("Average Loss", lines) == "Average Loss 0.1980 0.3853 0.3552 0.4473 ↑ 125.9 %".split()
    assert line("Time per Epoch", lines)[-2:] == ["=", "same"]


def trend(metrics_first, metrics_last, label="Average Reward"):
    table = epoch_table([EpochRecord(1, 1, metrics_first), EpochRecord(2, 2, metrics_last)])
    labels = list(table.columns[0].cells)
    return list(table.columns[-1].cells)[labels.index(label)]


def test_a_move_beyond_two_standard_errors_is_coloured_by_its_direction():
    # sqrt(0.02^2 + 0.02^2) = 0.0283, times 1.96 = 0.0554
    first = {"reward/mean": 0.30, "reward/std_error": 0.02}
    assert trend(first, {"reward/mean": 0.35, "reward/std_error": 0.02}).style == "dim"
    assert trend(first, {"reward/mean": 0.36, "reward/std_error": 0.02}).style == "green"
    assert trend(first, {"reward/mean": 0.24, "reward/std_error": 0.02}).style == "red"


def test_a_rising_loss_is_no_verdict():
    found = trend({"loss/mean": 0.1}, {"loss/mean": 0.2}, "Average Loss")
    assert (found.plain, found.style) == ("↑ 100.0 %", "")


def test_seconds_of_the_untrained_student_start_no_trend():
    epochs = [EpochRecord(epoch, epoch, {"time/epoch_s": seconds}) for epoch, seconds in enumerate((9.0, 60.0, 30.0))]
    assert line("Time per Epoch", lines_of(epochs))[-3:] == ["↓", "50.0", "%"]


@pytest.mark.parametrize(("width", "columns"), [(100, 6), (80, 4), (60, 2), (20, 2)])
def test_many_epochs_keep_the_start_and_the_last_that_fit(width, columns):
    epochs = [EpochRecord(epoch, epoch, {"reward/mean": 0.1}) for epoch in range(31)]
    headers = [column.header for column in epoch_table(epochs, width=width).columns][1:-1]
    assert headers == ["Start", *(f"Epoch {epoch}" for epoch in range(32 - columns, 31))]
    assert f"epochs 1 to {31 - columns}" in epoch_table(epochs, width=width).caption


@pytest.mark.parametrize("width", [60, 80, 100])
def test_nothing_is_cut_off(width):
    wide = {name: 12345.678 if name.startswith(("time", "memory", "tokens")) else 0.12345 for name in CATALOGUE}
    lines = lines_of([EpochRecord(epoch, epoch, wide) for epoch in range(100, 131)], width)
    assert not any("…" in text for text in lines)


def test_rows_that_nobody_measured_are_left_out_and_gaps_are_dashes():
    lines = lines_of([EpochRecord(0, 0, {"validation/tests/mean": 0.2}), EpochRecord(1, 8, {"reward/mean": 0.3})])
    assert line("Average Reward", lines) == ["Average", "Reward", "–", "0.3000"]
    assert not any("KL" in text for text in lines)


def test_every_row_shows_a_catalogued_metric():
    assert [row.name for section in terminal._SECTIONS for row in section if row.name not in CATALOGUE] == []


def test_the_start_in_one_line():
    record = EpochRecord(0, 0, {"validation/tests/mean": 0.23, "validation/tests/greedy": 0.14, "time/epoch_s": 9.0})
    assert summary_line(record) == "start | validation tests 0.2300 | greedy 0.1400 | 9.0 s"
