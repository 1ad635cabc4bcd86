"""The client's own state while it measures: was its event loop late, how much CPU and memory did it use?"""

import asyncio
import time
from collections.abc import Callable

import psutil

from loadgen.clock import Clock
from loadgen.records import Health

# How often the event loop is asked whether it is on time. A multiple of a millisecond: epoll rounds up to that.
TICK_S = 0.025


async def watch(
    clock: Clock,
    sink: Callable[[Health], None],
    in_flight: Callable[[], int],
    interval_s: float = 0.25,
    cpu_s: Callable[[], float] = time.process_time,
) -> None:
    """Gives one `Health` per `interval_s` until it is cancelled.

    The lag is how much later than asked a timer came back: what a stamp may have been late by, because something
    held the loop.
    """
    process = psutil.Process()
    since_s, used_s = clock.now(), cpu_s()
    while True:
        lag_s = 0.0
        while (left_s := since_s + interval_s - clock.now()) > 0:
            tick_s = min(TICK_S, left_s)
            asked_s = clock.now()
            await asyncio.sleep(tick_s)
            lag_s = max(lag_s, clock.now() - asked_s - tick_s)
        now_s, cpu = clock.now(), cpu_s()
        sink(
            Health(
                at_s=now_s,
                interval_s=now_s - since_s,
                loop_lag_max_s=lag_s,
                cpu_s=cpu - used_s,
                rss_bytes=process.memory_info().rss,
                in_flight=in_flight(),
            )
        )
        since_s, used_s = now_s, cpu
