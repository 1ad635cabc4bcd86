"""The servers of an experiment: all up at once, or one per block, or somebody else's."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loadgen.engines.table import ENGINES
from loadgen.errors import ServerError
from loadgen.experiment.setup import Setup
from loadgen.live.dashboard import Dashboard
from loadgen.records import ArmSpec, Plan, ServerFacts
from loadgen.server.facts import read_facts
from loadgen.server.host import host_facts
from loadgen.server.launch import free_port, launched, log_text
from loadgen.server.probe import check


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server that answers, and what it said it is."""

    url: str
    facts: ServerFacts
    ended: Callable[[], ServerError | None]


class Fleet:
    """Gives each block its server. With `restart: never` every server of ours is started on entry."""

    def __init__(self, setup: Setup, dashboard: Dashboard) -> None:
        self._setup = setup
        self._dashboard = dashboard
        self._stack = AsyncExitStack()
        self._up: dict[int, Endpoint] = {}
        self._ports: list[int] = []

    async def __aenter__(self) -> "Fleet":
        await self._stack.__aenter__()
        try:
            await self._start_all()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start_all(self) -> None:
        manifest = self._setup.manifest
        for number, arm in enumerate(manifest.arms):
            if arm.url is not None:
                self._up[number] = await self._attached(arm, arm.url)
        ours = [number for number, arm in enumerate(manifest.arms) if arm.url is None]
        if manifest.restart == "never" and ours:
            tasks = [asyncio.create_task(self._keep(number)) for number in ours]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, number: int) -> None:
        arm = self._setup.manifest.arms[number]
        endpoint = await self._stack.enter_async_context(self._launched(arm, f"{arm.name}.log"))
        self._up[number] = endpoint

    @asynccontextmanager
    async def at(self, position: int) -> AsyncIterator[Endpoint]:
        """The server for the block at `position`; started for it alone where the experiment restarts each block."""
        number = self._setup.manifest.order[position]
        if number in self._up:
            yield self._up[number]
            return
        arm = self._setup.manifest.arms[number]
        async with self._launched(arm, f"{position:03d}-{arm.name}.log") as endpoint:
            yield endpoint

    @asynccontextmanager
    async def _launched(self, arm: ArmSpec, log_name: str) -> AsyncIterator[Endpoint]:
        log_path = self._setup.root / "servers" / log_name.replace("/", "_")

        def on_wait(elapsed_s: float, last_line: str) -> None:
            self._dashboard.wait(f"starting {arm.name}: {elapsed_s:.0f} s · {last_line}")

        self._dashboard.say(f"starting {arm.name} ({arm.engine}); its log: {log_path}")
        self._ports.append(free_port(avoid=self._ports))
        async with launched(
            arm,
            port=self._ports[-1],
            log_path=log_path,
            on_wait=on_wait,
            timeout_s=self._setup.reach.start_timeout_s,
        ) as server:
            facts = await read_facts(
                url=server.url,
                log_text=log_text(log_path),
                engine=ENGINES[arm.engine],
                argv=server.argv,
                ready_after_s=server.ready_after_s,
                host=host_facts(),
            )
            facts = await self._suited(server.url, facts, facts.model)
            self._dashboard.say(_ready(arm, facts))
            yield Endpoint(url=server.url, facts=facts, ended=server.ended)

    async def _attached(self, arm: ArmSpec, url: str) -> Endpoint:
        facts = await read_facts(
            url=url,
            log_text=log_text(Path(arm.log)) if arm.log else None,
            engine=ENGINES[arm.engine],
            headers=self._setup.reach.headers,
            transport=self._setup.reach.wire(),
        )
        facts = await self._suited(url, facts, arm.shared_flags.get("model"))
        self._dashboard.say(_ready(arm, facts))
        return Endpoint(url=url, facts=facts, ended=lambda: None)

    async def _suited(self, url: str, facts: ServerFacts, model: str | None) -> ServerFacts:
        """The facts with the model that requests will name. Raises as `check` does if the plan cannot be sent there."""
        reach = self._setup.reach
        need = longest_tokens(self._setup.plan)
        found = await check(url, model=model, need_context=need, headers=reach.headers, transport=reach.wire())
        return msgspec.structs.replace(
            facts, model=found.model, max_model_len=found.max_model_len or facts.max_model_len
        )


def longest_tokens(plan: Plan) -> int:
    """Prompt and output tokens of the plan's longest request, warm-up included."""
    requests = (request for stage in plan.stages for request in (*stage.warmup, *stage.requests))
    return max((request.prompt_tokens + request.output_tokens for request in requests), default=0)


def _ready(arm: ArmSpec, facts: ServerFacts) -> str:
    capacity = f"{facts.capacity_tokens:,} tokens" if facts.capacity_tokens else "unknown capacity"
    backend = ", ".join(f"{b.name} ({b.how})" for b in facts.backends) or "unknown backend"
    after = f" after {facts.ready_after_s:.0f} s" if facts.ready_after_s is not None else ""
    return f"{arm.name} ready{after}: KV {facts.kv_dtype or 'dtype unknown'}, {capacity}, {backend}"
