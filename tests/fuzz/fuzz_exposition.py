"""A body of /metrics: finite figures of each rank, or ValueError."""

import math

import fuzzing

with fuzzing.instrumented():
    import msgspec

    from loadgen.engines import vllm
    from loadgen.records import EngineScrape
    from loadgen.server.exposition import canonical, is_prometheus, labels_of


def one_input(data: bytes) -> None:
    """Ranks once each, with quantities that the table knows and that survive JSON."""
    body = data.decode("utf-8", "replace")
    is_prometheus(body)
    labels_of(body, vllm.ENGINE.config_metric or "")
    try:
        ranks = canonical(body, vllm.ENGINE)
    except ValueError:
        return
    assert len({rank.engine for rank in ranks}) == len(ranks)
    for rank in ranks:
        assert set(rank.values) <= set(vllm.METRICS)
        assert all(map(math.isfinite, rank.values.values()))
        assert msgspec.json.decode(msgspec.json.encode(rank), type=EngineScrape) == rank


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "exposition", most_bytes=4096)
