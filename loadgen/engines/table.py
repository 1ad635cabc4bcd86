"""Every engine that loadgen knows, by name."""

from loadgen.engines import emulator, openai, vllm
from loadgen.engines.engine import Engine

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (vllm.ENGINE, emulator.ENGINE, openai.ENGINE)}
