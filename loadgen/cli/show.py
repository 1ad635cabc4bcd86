"""From a run directory to what a person reads: judge, write the report files, print the text."""

from pathlib import Path

from rich.console import Console

from loadgen.analysis.judge import judge
from loadgen.engines.kv_formats import likely_capacity_ratio
from loadgen.records import Report
from loadgen.report import as_text
from loadgen.report.write import write_all
from loadgen.store import read_experiment


class Page(Console):
    """A console whose reader may go away (`| head`): that ends the program quietly, with no exit code of its own."""

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError, which `main` knows."""
        self.quiet = True
        raise BrokenPipeError


def show(root: Path, *, detail: bool = False) -> Report:
    """Judges the run in `root`, writes report.* beside it and prints the text report to standard output.

    Raises UserError if `root` is no run directory.
    """
    report = judge(read_experiment(root), predicted_ratio=likely_capacity_ratio)
    paths = write_all(report, root)
    console = Page(markup=False, emoji=False)
    as_text.render(report, console, detail=detail)
    console.print("\n" + "\n".join(f"wrote {path}" for path in paths), highlight=False, soft_wrap=True)
    return report
