from pathlib import Path

import pytest

from evenkeel.metrics.names import CATALOGUE, in_reading_order, metric
from evenkeel.metrics.page import metrics_page
from evenkeel.records import Outcome

PROMISED = """reward/mean reward/best_of_n reward/std validation/tests/mean validation/reward/mean loss/mean kl/mean
grad_norm/mean learning_rate diversity/unique_fraction diversity/mean_similarity time/epoch_s""".split()


@pytest.mark.parametrize("name", PROMISED)
def test_names_that_users_were_promised_exist(name):
    assert name in CATALOGUE


def test_every_outcome_has_its_share():
    assert all(f"outcomes/{outcome}_share" in CATALOGUE for outcome in Outcome)


def test_every_entry_says_how_it_misleads():
    assert [entry.name for entry in CATALOGUE.values() if not (entry.formula and entry.source and entry.trap)] == []


def test_only_a_whole_name_matches_a_family():
    assert metric("start/tests/temperature_0.3").level == "epoch"
    assert metric("restart/tests/temperature_0.3") is None
    assert metric("reward/part/my_rewards:brevity/mean").unit == "share"


def test_reading_order_is_the_catalogues():
    assert in_reading_order({"z", "time/epoch_s", "reward/mean"}) == ["reward/mean", "time/epoch_s", "z"]


def test_the_printed_page_is_up_to_date():
    page = Path(__file__).parents[3] / "docs" / "metrics.md"
    assert page.read_text() == metrics_page(), "run: python -m evenkeel.metrics.page > docs/metrics.md"
