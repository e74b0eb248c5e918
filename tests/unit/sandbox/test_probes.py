from evenkeel.sandbox.probes import try_probes


def test_the_cell_withstands_every_probe(cell):
    assert [finding for finding in try_probes(cell) if not finding.withstood] == []
