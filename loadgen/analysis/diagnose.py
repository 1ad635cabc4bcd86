"""Why it pays or not: the four causes, each with its evidence."""

import msgspec

from loadgen.analysis.case import Case
from loadgen.analysis.causes.backend import backend
from loadgen.analysis.causes.context import short_context
from loadgen.analysis.causes.conversion import conversion
from loadgen.analysis.causes.memory import unused_memory
from loadgen.records import Finding


def diagnose(case: Case) -> tuple[Finding, ...]:
    """One finding per cause, always four, in the order in which one would look.

    "holds" says that the cause is at work in these arms on this traffic and takes from the gain; it does not say
    that nothing was gained: more than one may hold beside a verdict of "pays".
    """
    return (backend(case), conversion(case), short_context(case), _memory(case))


def _memory(case: Case) -> Finding:
    """Memory is judged on a stage whose work is equal; otherwise the batch may differ for another reason."""
    finding = unused_memory(case)
    spec = case.study.stage("saturated", "open_loop")
    if spec is None or spec.name not in case.refused or finding.verdict == "not observable":
        return finding
    claim = f"The arms did not do the same work in {spec.name}, so that their use of memory is not compared."
    return msgspec.structs.replace(finding, verdict="cannot tell", claim=claim)
