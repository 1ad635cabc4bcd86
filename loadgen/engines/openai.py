"""A server that speaks OpenAI's protocol and about which nothing else is known."""

from loadgen.engines.engine import Engine

ENGINE = Engine(name="openai", label="OpenAI-compatible server", ready_path="/v1/models")
