# One virtual environment, made on first use and again when pyproject.toml changes. PYTHON=python3.12 make test picks another.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-long lint docs

demo: $(READY)  ## train the embedded student: no network, no GPU, a few minutes
	$(BIN)/evenkeel train

test: $(READY)
	$(BIN)/python -m pytest -m "not long"

test-long: $(READY)
	$(BIN)/python -m pytest -m long --timeout=3600

lint: $(READY)
	$(BIN)/ruff check .

docs: $(READY)  ## the generated pages
	$(BIN)/python -m evenkeel.config.document > docs/config.md
	$(BIN)/python -m evenkeel.metrics.page > docs/metrics.md

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@
