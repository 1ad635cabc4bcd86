import re

from loadgen.engines.table import ENGINES
from loadgen.records import EngineScrape


def test_names_are_keys():
    assert {name: engine.name for name, engine in ENGINES.items()} == {
        name: name for name in ("vllm", "emulator", "openai")
    }


def test_every_metric_is_a_canonical_quantity():
    documented = set(re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", EngineScrape.__doc__))
    for engine in ENGINES.values():
        assert set(engine.metrics) <= documented


def test_no_sample_name_serves_two_quantities():
    for engine in ENGINES.values():
        names = [name for names in engine.metrics.values() for name in names]
        assert len(names) == len(set(names))


def test_the_table_covers_every_documented_quantity_for_vllm():
    documented = {
        word
        for word in re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", EngineScrape.__doc__.partition("Gauges:")[2])
        if word not in {"counters", "raw"}
    }
    assert documented == set(ENGINES["vllm"].metrics)
