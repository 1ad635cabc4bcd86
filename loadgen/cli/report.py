"""`loadgen report DIR`: the report again, from what lies on disk."""

from pathlib import Path

import click

from loadgen.analysis.judge import judge
from loadgen.cli.show import show
from loadgen.engines.kv_formats import likely_capacity_ratio
from loadgen.report import as_html, as_json, as_prometheus
from loadgen.store import read_experiment


@click.command(name="report")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--detail", is_flag=True, help="Every quantity, not only the telling ones.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "html", "prometheus"]),
    default="text",
    show_default=True,
    help="text also rewrites the report files in FOLDER; the others go to standard output alone.",
)
def command(folder: Path, detail: bool, form: str) -> None:
    """Renders the report of run directory FOLDER again."""
    if form == "text":
        show(folder, detail=detail)
        return
    report = judge(read_experiment(folder), predicted_ratio=likely_capacity_ratio)
    if form == "json":
        click.echo(as_json.render(report), nl=False)
    else:
        click.echo((as_html if form == "html" else as_prometheus).render(report).encode(), nl=False)
