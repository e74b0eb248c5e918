"""`evenkeel sandbox`: which isolation this machine gives, and what it withstands."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def sandbox(json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False) -> None:
    """Show which layers of isolation this machine gives, and run programs that mean harm to see that they hold.

    Exit code 0: the cell holds. 1: the machine gives too little, or a program got through.
    """
    from dataclasses import asdict

    from evenkeel.config.schema import SandboxSettings
    from evenkeel.sandbox.pool import open_sandbox
    from evenkeel.sandbox.probes import try_probes

    with open_sandbox(SandboxSettings(workers=1, allow_weak=True)) as pool:
        isolation = pool.isolation
        findings = [] if isolation.weak else try_probes(pool)
    holds = not isolation.weak and all(finding.withstood for finding in findings)
    report = {"isolation": asdict(isolation), "probes": [asdict(finding) for finding in findings], "holds": holds}
    if json:
        _print_json(report)
    else:
        _print_text(report)
    if not holds:
        raise typer.Exit(1)


def _print_json(report: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(report))


def _print_text(report: dict[str, Any]) -> None:
    isolation = report["isolation"]
    typer.echo(f"Programs run under uid {isolation['uid']}, behind: {', '.join(isolation['layers'])}.")
    for missing in isolation["missing"]:
        typer.echo(f"  missing  {missing}")
    if isolation["weak"]:
        typer.echo(
            f"WEAK: {isolation['reason']}. Hostile programs were not tried. Training needs `sandbox.allow_weak: true` here."
        )
        return
    for finding in report["probes"]:
        what = "withstood" if finding["withstood"] else "GOT THROUGH"
        typer.echo(f"  {what:<12} {finding['name']} ({finding['outcome']})")
    typer.echo(
        "The cell holds." if report["holds"] else "The cell does NOT hold: do not train on this machine, and please report it."
    )
