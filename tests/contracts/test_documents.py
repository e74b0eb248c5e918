"""The documents name only what exists, and the generated pages are what their source makes of them."""

import re
from pathlib import Path

import pytest

from evenkeel.config.document import document

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()
]
PATH_IN_TEXT = re.compile(r"(?<![\w./-])((?:src|tests|docs|configs|examples|bench|tools|\.ci)/[\w./*-]*[\w*/])")


def test_the_page_of_settings_is_made_from_the_schema():
    assert (ROOT / "docs" / "config.md").read_text() == document(), "run `make docs`"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_a_document_names_exists(path):
    named = set(PATH_IN_TEXT.findall(path.read_text()))
    absent = sorted(name for name in named if not any(ROOT.glob(name.rstrip("/"))))
    assert not absent, f"{path.name} names what is not there: {absent}"


def test_the_pattern_finds_paths_and_leaves_other_words_alone():
    text = "see `src/evenkeel/records.py`, docs/config.md. Not shared/src/x, and configs/*.yaml (all)"
    assert PATH_IN_TEXT.findall(text) == ["src/evenkeel/records.py", "docs/config.md", "configs/*.yaml"]
