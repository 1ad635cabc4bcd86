"""An event loop whose clock jumps to the next timer: waits take no time and end exactly when they are due."""

import asyncio


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._virtual_s = 0.0

    def time(self) -> float:
        return self._virtual_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._virtual_s = max(self._virtual_s, self._scheduled[0]._when)
        super()._run_once()


def run(coroutine):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
