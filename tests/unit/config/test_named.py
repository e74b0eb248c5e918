"""`module:name`: found where it is allowed, refused where it is not, and said what is missing."""

import sys
from pathlib import Path

import pytest

from evenkeel.config.named import named_object, trusted
from evenkeel.errors import UsageError


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_rewards_of_the_test.py").write_text("IMPORTED = True\nclass Short:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "own_rewards_of_the_test"
    sys.modules.pop("own_rewards_of_the_test", None)


def test_a_module_in_the_current_folder_is_found(own_module):
    assert named_object(f"{own_module}:Short", setting="reward.custom", allowed=True).__name__ == "Short"


def test_what_is_not_allowed_is_not_even_imported(own_module):
    with pytest.raises(UsageError, match="not imported"):
        named_object(f"{own_module}:Short", setting="reward.custom", allowed=False)
    assert own_module not in sys.modules


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("no_such_module_anywhere:Thing", "there is no module `no_such_module_anywhere`"),
        ("own_rewards_of_the_test:Long", "has no `Long`"),
        ("sys:no_such_name", r"\(built in\) has no `no_such_name`"),
        ("own_rewards_of_the_test", "write `module:name`"),
        (":Thing", "write `module:name`"),
    ],
)
def test_what_is_missing_is_named_with_the_setting(own_module, named, expected):
    with pytest.raises(UsageError, match=expected) as caught:
        named_object(named, setting="data.train", allowed=True)
    assert "`data.train`" in str(caught.value)


def test_a_configuration_that_lies_in_a_run_is_not_trusted(tmp_path):
    run, mine = tmp_path / "run", tmp_path / "mine"
    (run / "checkpoints").mkdir(parents=True)
    (run / "run.db").touch()
    mine.mkdir()
    (mine / "link_to_run.yaml").symlink_to(run / "config.yaml")
    (run / "link_out_of_it.yaml").symlink_to(mine / "config.yaml")
    assert not any(map(trusted, (run / "config.yaml", run / "checkpoints" / "config.yaml", run / "link_out_of_it.yaml")))
    assert not trusted(mine / "link_to_run.yaml")
    assert trusted(mine / "config.yaml") and trusted(None)


def test_a_path_without_a_folder_means_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert trusted(Path("config.yaml"))
    (tmp_path / "run.db").touch()
    assert not trusted(Path("config.yaml"))
