import io

from loadgen.live.dashboard import Dashboard
from loadgen.records import EngineScrape, Scrape


class Stage:
    stage = "saturated"
    warmup = False
    planned = 80
    failed = 0
    done = 12
    tokens = 1000


def scrape(generated: float, usage: float = 0.97) -> Scrape:
    values = {"generation_tokens": generated, "running": 16.0, "waiting": 4.0, "kv_usage_ratio": usage}
    return Scrape(at_s=1.0, took_s=0.01, engines=(EngineScrape(engine="0", values=values),))


def test_the_line_says_block_stage_rate_and_server_state():
    board = Dashboard(io.StringIO())
    board.block("block 3/8 fp8", blocks=8)
    board.watch(Stage())
    board.scraped(scrape(1000))
    board.line(10.0)
    board.scraped(scrape(1500))
    assert board.line(11.0) == "block 3/8 fp8 · saturated 12/80 · 500 tok/s · running 16 · waiting 4 · KV 97 %"


def test_ranks_are_summed_and_the_fullest_cache_shown():
    board = Dashboard(io.StringIO())
    board.block("b", blocks=1)
    board.watch(Stage())
    first, second = scrape(10, 0.2).engines[0], scrape(20, 0.6).engines[0]
    board.scraped(Scrape(at_s=0.0, took_s=0.0, engines=(first, second)))
    assert "running 32 · waiting 8 · KV 60 %" in board.line(0.0)


def test_failures_and_warm_up_are_shown():
    class Warming(Stage):
        warmup = True
        failed = 3

    board = Dashboard(io.StringIO())
    board.block("b", blocks=1)
    board.watch(Warming())
    assert "saturated warm-up 12/80 (3 failed)" in board.line(0.0)


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_whoever_looks_on_may_go_away(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    for board in (Dashboard(Gone()), Dashboard()):
        board.block("b", blocks=1)
        board.say("ready")
        board.clear()
        assert board.driving


def test_without_a_terminal_each_step_is_a_plain_line():
    out = io.StringIO()
    board = Dashboard(out)
    board.wait("starting")
    board.say("ready")
    assert out.getvalue() == "ready\n"
