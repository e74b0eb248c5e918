"""The embedded default: a small student (`student/`) and its tasks (`tasks/`), so that everything runs without a network.

`tools/make_student.py` made the one and `tools/make_tasks.py` the other.
"""
