import json

import typer
from typer.testing import CliRunner

from evenkeel.cli.sandbox import sandbox


def test_the_report_agrees_with_the_exit_code():
    app = typer.Typer()
    app.command()(sandbox)
    done = CliRunner().invoke(app, ["--json"])
    report = json.loads(done.stdout)
    assert report["holds"] == (done.exit_code == 0)
    assert report["holds"] == (not report["isolation"]["weak"] and all(probe["withstood"] for probe in report["probes"]))
    assert report["isolation"]["weak"] or len(report["probes"]) > 10
