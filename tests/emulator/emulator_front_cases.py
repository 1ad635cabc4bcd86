"""An emulated server without sockets: its application over httpx's own ASGI transport, in virtual time."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
from fakes import virtual

from loadgen.emulator.account import Account
from loadgen.emulator.arm import Emulated, emulated
from loadgen.emulator.engine import Engine
from loadgen.emulator.front import Front
from loadgen.emulator.profile import Profile

STEP_S = 0.010
PROFILE = {
    "name": "toy",
    "source": "planted",
    "model": {
        "name": "toy",
        "layers": 2,
        "kv_heads": 2,
        "head_dim": 64,
        "weight_bytes": 0,
        "max_model_len": 512,
        "vocabulary": 2048,
    },
    "memory": {"kv_cache_bytes": 2 * 2 * 64 * 4 * 16 * 64},  # 64 blocks of 16 tokens in 16 bits, one of them null
    "step": {"fixed_s": STEP_S, "weight_bandwidth_bytes_per_s": 1e12, "attention_bandwidth_bytes_per_s": 1e15},
    "formats": {"bfloat16": {"backend": "FLASH_ATTN"}, "fp8": {"backend": "FLASH_ATTN"}},
    "scheduler": {"max_num_seqs": 8},
}


def profile(**changes: Any) -> Profile:
    return Profile.model_validate({**PROFILE, **changes})


def arm(**flags: str) -> Emulated:
    return emulated(profile(), {name.replace("_", "-"): value for name, value in flags.items()})


@dataclass
class Served:
    """A running engine and a client of its front."""

    http: httpx.AsyncClient
    engine: Engine
    front: Front
    late: list[str]

    async def completion(self, **body: Any) -> httpx.Response:
        return await self.http.post("/v1/completions", json={"prompt": [100, 101, 102], **body})

    async def chat(self, **body: Any) -> httpx.Response:
        return await self.http.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "say the word"}], **body}
        )

    async def metric(self, name: str) -> float:
        text = (await self.http.get("/metrics")).text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


def serving(main: Callable[[Served], Coroutine[Any, Any, Any]], served: Emulated | None = None) -> Any:
    """Runs `main` beside an engine, in virtual time."""

    async def inside(loop: virtual.VirtualLoop) -> Any:
        planted = served or arm()
        late: list[str] = []
        engine = Engine(
            planted,
            Account(max_model_len=planted.max_model_len),
            clock=loop.time,
            origin_s=0.0,
            late=late.append,
        )
        front = Front(planted, engine)
        running = asyncio.create_task(engine.run())
        transport = httpx.ASGITransport(app=front.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://emulator") as http:
            result = await main(Served(http, engine, front, late))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return result

    return virtual.run(inside)


def events(response: httpx.Response) -> list[Any]:
    """The events of a stream; the end mark is a string."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    parts = response.text.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [part[6:] if part == "data: [DONE]" else json.loads(part[6:]) for part in parts]
