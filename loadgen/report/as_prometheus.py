"""The report as a Prometheus text file, for node_exporter's textfile collector.

Names are `loadgen_` + the quantity in base units (`loadgen_ttft_p50_seconds`); intervals are `_lower` and `_upper`;
comparisons are `_vs_base_ratio`. A verdict is a set of 0/1 series, one for each value of the label `verdict`, so
that an alert may say `loadgen_output_tokens_per_second_verdict{verdict="worse"} == 1`. What is not known is left out.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from loadgen.quantities import QUANTITIES
from loadgen.records import Check, Difference, Estimate, Finding, Headline, QuantitySummary, Report, Verdict


def render(report: Report) -> str:
    """The exposition, in text format 0.0.4, families in a fixed order."""
    registry = CollectorRegistry()
    registry.register(_Families(report))
    return generate_latest(registry).decode()


def metric_name(quantity: str) -> str:
    """ "ttft_p50_s" -> "loadgen_ttft_p50_seconds", "output_tokens_per_s" -> "loadgen_output_tokens_per_second"."""
    stem = quantity.removesuffix("_s")
    if stem == quantity:
        return f"loadgen_{quantity}"
    return f"loadgen_{stem}_second" if stem.endswith("_per") else f"loadgen_{stem}_seconds"


class _Families(Collector):
    def __init__(self, report: Report) -> None:
        self.report = report
        self.scenario = report.scenario

    def collect(self) -> Iterator[Metric]:
        for families in (
            self._info(),
            self._requests(),
            self._capacity(),
            self._summaries(),
            self._differences(),
            self._conclusions(),
        ):
            yield from (family for family in families if family.samples)

    def _gauge(self, name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, help_text, labels=("scenario", *labels))

    def _add(self, family: GaugeMetricFamily, value: float | None, *labels: str) -> None:
        if value is not None:
            family.add_metric((self.scenario, *labels), value)

    def _info(self) -> Iterator[Metric]:
        report = self.report
        info = self._gauge("loadgen_report_info", "What the report is about; always 1", "base", "test", "loadgen")
        self._add(info, 1, report.base, report.test or "", report.loadgen)
        started = self._gauge("loadgen_report_started_timestamp_seconds", "When the experiment started, Unix time")
        self._add(started, _unix(report.started_at))
        simulated = self._gauge("loadgen_report_simulated", "1 if an emulator stood in for the engine")
        self._add(simulated, float(report.simulated))
        computed = self._gauge(
            "loadgen_report_virtual_time", "1 if no server ran: figures follow from a profile", "arm", "profile"
        )
        for arm in report.arms if report.virtual_time else ():
            self._add(computed, 1, arm.name, arm.facts.profile or "")
        yield from (info, started, simulated, computed)

    def _requests(self) -> Iterator[Metric]:
        blocks = self._gauge("loadgen_blocks", "Blocks that were judged", "arm")
        requests = self._gauge("loadgen_requests", "Requests over all blocks by outcome", "stage", "arm", "outcome")
        failures = self._gauge("loadgen_failures", "Failed requests over all blocks by kind", "arm", "kind")
        for arm in self.report.arms:
            self._add(blocks, arm.blocks, arm.name)
            for stage, counts in arm.requests.items():
                for outcome, count in zip(("planned", "sent", "ok", "failed"), counts, strict=True):
                    self._add(requests, count, stage, arm.name, outcome)
            for kind, count in arm.failures.items():
                self._add(failures, count, arm.name, kind)
        yield from (blocks, requests, failures)

    def _capacity(self) -> Iterator[Metric]:
        capacity = self._gauge("loadgen_kv_capacity_tokens", "Tokens that the server's KV cache holds", "arm")
        for arm in self.report.arms:
            self._add(capacity, arm.facts.capacity_tokens, arm.name)
        yield capacity

    def _summaries(self) -> Iterator[Metric]:
        by_quantity: dict[str, list[QuantitySummary]] = {}
        for summary in self.report.summaries:
            by_quantity.setdefault(summary.quantity, []).append(summary)
        for quantity, found in by_quantity.items():
            labelled = [((s.stage, s.arm), s.estimate) for s in found]
            yield from self._interval(metric_name(quantity), _sentence(quantity), ("stage", "arm"), labelled)

    def _differences(self) -> Iterator[Metric]:
        by_quantity: dict[str, list[Difference]] = {}
        for difference in self.report.differences:
            by_quantity.setdefault(difference.quantity, []).append(difference)
        for quantity, found in by_quantity.items():
            name, sentence = metric_name(quantity), _sentence(quantity)
            test = self.report.test or ""
            labelled = [((d.stage, test), d.ratio) for d in found]
            yield from self._interval(f"{name}_vs_base_ratio", f"Test / base: {sentence}", ("stage", "arm"), labelled)
            if quantity in QUANTITIES and QUANTITIES[quantity].better is not None:
                verdict = self._gauge(
                    f"{name}_verdict", f"1 for what was concluded: {sentence}", "stage", "arm", "verdict"
                )
                for d in found:
                    self._one_of(verdict, get_args(Verdict), d.verdict, d.stage, test)
                yield verdict

    def _conclusions(self) -> Iterator[Metric]:
        report, test = self.report, self.report.test or ""
        pays = self._gauge("loadgen_pays_verdict", "1 for the answer", "stage", "arm", "role", "verdict")
        for headline in report.headlines:
            values = get_args(Headline.__annotations__["verdict"])
            self._one_of(pays, values, headline.verdict, headline.stage, test, headline.role)
        cause = self._gauge("loadgen_cause_verdict", "1 for what was concluded of a cause", "arm", "cause", "verdict")
        for finding in report.findings:
            values = get_args(Finding.__annotations__["verdict"])
            self._one_of(cause, values, finding.verdict, test, finding.cause)
        yield from (pays, cause)
        if report.decomposition is not None:
            found = [((report.decomposition.stage, test), report.decomposition.break_even_tokens)]
            said = "Context above which the test arm decodes faster"
            yield from self._interval("loadgen_break_even_tokens", said, ("stage", "arm"), found)
        yield self._checks("loadgen_check_passed", "Checklist: 1 passed, 0 not; left out if unknown", report.checklist)
        yield self._checks("loadgen_client_check_passed", "The client's innocence: 1 passed, 0 not", report.innocence)

    def _checks(self, name: str, help_text: str, checks: Iterable[Check]) -> GaugeMetricFamily:
        family = self._gauge(name, help_text, "check")
        for check in checks:
            self._add(family, None if check.passed is None else float(check.passed), check.name)
        return family

    def _interval(
        self, name: str, help_text: str, labels: tuple[str, ...], found: Iterable[tuple[tuple[str, ...], Estimate]]
    ) -> Iterator[Metric]:
        center = self._gauge(name, help_text, *labels)
        lower = self._gauge(f"{name}_lower", f"Lower end of the interval: {help_text}", *labels)
        upper = self._gauge(f"{name}_upper", f"Upper end of the interval: {help_text}", *labels)
        for values, estimate in found:
            self._add(center, estimate.center, *values)
            self._add(lower, estimate.lo, *values)
            self._add(upper, estimate.hi, *values)
        yield from (center, lower, upper)

    def _one_of(self, family: GaugeMetricFamily, values: Iterable[str], held: str, *labels: str) -> None:
        for value in values:
            self._add(family, float(value == held), *labels, value)


def _sentence(quantity: str) -> str:
    return QUANTITIES[quantity].sentence if quantity in QUANTITIES else quantity


def _unix(instant: str) -> float | None:
    try:
        return datetime.fromisoformat(instant).timestamp()
    except ValueError:
        return None
