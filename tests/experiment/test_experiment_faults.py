"""Whole runs against an emulated server with planted faults: exact accounting, a report, and the right exit code."""

from pathlib import Path

import msgspec
import pytest
from fakes.emulated import beside

from loadgen.cli.main import main
from loadgen.records import Experiment, Report
from loadgen.store import read_experiment

SCENARIO = """
name: tiny
description: "a few short requests"
seed: 1
repeats: 1
workload: {input_tokens: {range: [8, 24]}, output_tokens: {range: [4, 6]}}
stages:
  - {name: one-stream, concurrency: 1, requests: 30, warmup: 1}
  - {name: busy, concurrency: 4, requests: 12, warmup: 2}
"""


class Ran:
    """What a run left behind."""

    def __init__(self, code: int, folder: Path, out: str, err: str) -> None:
        self.code, self.out, self.err = code, " ".join(out.split()), " ".join(err.split())
        self.experiment: Experiment = read_experiment(folder)
        self.report = msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)

    @property
    def kinds(self) -> set[str]:
        samples = [sample for block in self.experiment.blocks for sample in block.samples]
        return {"ok" if sample.failure is None else sample.failure.kind for sample in samples}


def assert_exact(experiment: Experiment) -> None:
    for block in experiment.blocks:
        for mark in block.marks:
            of_part = [s for s in block.samples if (s.stage, s.warmup) == (mark.stage, mark.warmup)]
            assert mark.planned == mark.sent + mark.unsent
            assert mark.sent == mark.ok + mark.failed == len(of_part) == len({s.index for s in of_part})
            assert mark.ok == sum(s.ok for s in of_part)


@pytest.fixture
def ran(tmp_path, capsys):
    def run(*switches: str, options: tuple[str, ...] = ()) -> Ran:
        scenario = tmp_path / "tiny.yaml"
        scenario.write_text(SCENARIO)
        arguments = ["run", str(scenario), "--engine", "emulator", "--out", str(tmp_path / "run"), *options]
        with beside(list(switches)) as url, pytest.raises(SystemExit) as ended:
            main([*arguments, "--url", url])
        captured = capsys.readouterr()
        done = Ran(int(ended.value.code or 0), tmp_path / "run", captured.out, captured.err)
        assert_exact(done.experiment)
        assert [block.end.how for block in done.experiment.blocks if block.end] == ["complete"]
        assert "Traceback" not in captured.err
        return done

    return run


@pytest.mark.parametrize(
    ("switch", "kinds", "said"),
    [
        ("status=429@3", {"ok", "status"}, "HTTP 429: "),
        ("reset-mid-stream@3", {"ok", "truncated"}, "connection lost (ConnectionResetError)"),
        ("error-in-stream@3", {"ok", "server_error"}, "most often: planted error"),
        ("stall@15", {"ok", "timeout"}, "most often: no byte for 0.4 s, after 2 events with content"),
        ("refuse@9", {"ok", "connect"}, "cannot connect to "),
        ("garbage-event@3", {"ok", "protocol"}, "event is no JSON object: <oops>"),
        ("short-output=2@3", {"ok", "truncated"}, "2 of "),
    ],
)
def test_some_requests_fail_and_the_run_says_which_and_why(ran, switch, kinds, said):
    done = ran(switch, options=("--read-timeout", "0.4") if switch.startswith("stall") else ())
    assert done.code == 0
    assert done.kinds == kinds
    assert any(said in warning for warning in done.report.warnings)


@pytest.mark.parametrize("switch", ["status", "no-done", "wrong-content-type", "usage-zero,short-output=2"])
def test_all_requests_fail_and_that_is_no_success(ran, switch):
    done = ran(switch)
    assert done.code == 3
    assert "not one measured request ended well" in done.err


@pytest.mark.parametrize("switch", ["usage-missing", "usage-zero"])
def test_counts_that_a_server_does_not_tell_are_not_made_up(ran, switch):
    done = ran(switch)
    assert (done.code, done.kinds) == (0, {"ok"})
    assert "busy: server: no token counts from the server for 12 requests: one event is taken as one token" in done.out


def test_fewer_events_than_tokens_are_said(ran):
    done = ran("tokens-per-event=4")
    assert (done.code, done.kinds) == (0, {"ok"})
    assert "busy: server: several tokens came in one event: ITL is between events" in done.out


@pytest.mark.parametrize(
    ("switch", "said"),
    [
        ("metrics-missing", "HTTP 404: server metrics are left out"),
        ("metrics-html", "not Prometheus text: server metrics are left out"),
        ("metrics-renamed", "none of the emulator's metrics: server metrics are left out"),
    ],
)
def test_metrics_of_no_use_are_said_once_and_the_run_goes_on(ran, switch, said):
    done = ran(switch)
    assert (done.code, done.kinds) == (0, {"ok"})
    assert done.err.count(said) == 1
    assert any("no reading of the server's metrics" in warning for warning in done.report.warnings)


def test_slow_metrics_slow_nothing_but_themselves(ran):
    done = ran("metrics-slow=0.1")
    assert (done.code, done.kinds) == (0, {"ok"})
    (block,) = done.experiment.blocks
    assert block.scrapes
    assert all(scrape.took_s >= 0.1 and scrape.failure is None for scrape in block.scrapes)
