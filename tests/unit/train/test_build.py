import os

import torch

from evenkeel.train.build import set_threads


def test_asked_threads_count_also_where_affinity_is_unknown(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    before = torch.get_num_threads()
    set_threads(3)
    found = torch.get_num_threads()
    torch.set_num_threads(before)
    assert found == 3
