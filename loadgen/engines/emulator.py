"""loadgen's own emulated engine: vLLM's endpoints, metric names and log wording, so it is read as vLLM is."""

from dataclasses import replace

from loadgen.engines import vllm

ENGINE = replace(
    vllm.ENGINE,
    name="emulator",
    label="the emulator",
    module="loadgen.emulator",
    package="loadgen",
    silences=(),
    known_wrong=(),
    needs_model=False,
)
