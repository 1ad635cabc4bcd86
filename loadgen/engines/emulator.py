"""loadgen's own emulated engine: vLLM's endpoints, metric names, log wording and silences: it is read as vLLM is."""

from dataclasses import replace

from loadgen.engines import vllm

ENGINE = replace(
    vllm.ENGINE,
    name="emulator",
    label="the emulator",
    module="loadgen.emulator",
    package="loadgen",
    needs_model=False,
    owner="loadgen-emulator",
    known_wrong=(),
)
