"""One engine, step by step: vLLM V1's scheduler over paged blocks, with no clock and no input/output of its own.

`Model.step` advances one engine step: it schedules as `Scheduler.schedule` does (vllm/v1/core/sched/scheduler.py,
0.32.0), asks the cost model how long the work takes, and says which sequences yield a token at the step's end.

* Running sequences first, in order of admission, each with all tokens that it lacks, within `max_num_batched_tokens`
  (chunked prefill). Where blocks run out, the sequence admitted last is preempted: its blocks are freed, its computed
  tokens are forgotten, and it goes to the front of the waiting queue (`_preempt_request`).
* Then, unless a sequence was just preempted, waiting ones first come, first served, while there are sequence slots,
  token budget and free blocks for the whole sequence so far, not its first chunk alone (`scheduler_reserve_full_isl`,
  on by default, PR #37307). The first that does not fit stops the rest.
* Full blocks are known to the prefix cache once scheduled (`allocate_slots` in v1/core/kv_cache_manager.py), so
  that sequences admitted in one step share. A match never covers the last token, which must be computed to yield
  the next one (`get_computed_blocks`). A preempted sequence finds its own blocks again, output included, as far as
  nobody took them; its look-ups are not counted (`PrefixCacheStats.record` in v1/metrics/stats.py).
* One block, the null block, is never used (`BlockPool` in block_pool.py), nor counted in the usage (`get_usage`).
* The newest token is never stored: a sequence of p prompt and o output tokens fills p + o - 1 places at its end.

`benchmarks/scheduler_agreement.py` compares all this, step by step, with vLLM's own scheduler. Left out: asynchronous
scheduling (vLLM then frees what a finished sequence held one step later), speculative decoding, priorities, encoders,
sliding windows, connectors; `watermark` and `long_prefill_token_threshold`, whose defaults are 0 (off).
"""

from collections import deque
from collections.abc import Hashable, Sequence as Items
from dataclasses import dataclass, field

from loadgen.emulator.blocks import BlockPool
from loadgen.emulator.cost import StepCost, Work
from loadgen.emulator.noise import Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the scheduler may use."""

    blocks: int  # vLLM's num_gpu_blocks: one of them, the null block, holds nothing
    block_tokens: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    chunked_prefill: bool = True
    prefix_caching: bool = False
    residual_tokens: int = 0  # the newest tokens of each sequence that stay in 16 bits


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One request inside the engine.

    `contents` identify its full blocks, prompt then output, for the prefix cache: each stands for all tokens up to its
    block's end, as vLLM's chained hashes do.
    """

    prompt_tokens: int
    output_tokens: int
    arrived_s: float
    contents: Items[Hashable] = ()
    payload: object = None  # the caller's own
    computed: int = 0  # tokens whose keys and values are in the cache
    produced: int = 0
    blocks: list[int] = field(default_factory=list)
    known: int = 0  # blocks whose content the pool has been told
    cached_tokens: int = 0  # of the prompt, found in the prefix cache when first admitted
    preemptions: int = 0
    admitted_s: float | None = None  # first time
    events_s: list[float] = field(default_factory=list)  # when each token came out
    aborted: bool = False

    @property
    def tokens(self) -> int:
        """Prompt and output so far."""
        return self.prompt_tokens + self.produced

    @property
    def done(self) -> bool:
        """True once every output token is out."""
        return self.produced >= self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step did. Tokens of `yielding` are out at `started_s + took_s`; `finished` are among them."""

    started_s: float
    took_s: float
    work: Work
    yielding: list[Sequence]
    finished: list[Sequence]
    admitted: list[Sequence]
    preempted: list[Sequence]

    @property
    def ended_s(self) -> float:
        """When its tokens are out."""
        return self.started_s + self.took_s


class Model:
    """The engine's state: waiting and running sequences and the blocks they hold."""

    def __init__(self, limits: Limits, cost: StepCost, noise: Noise) -> None:
        self.limits = limits
        self.cost = cost
        self.pool = BlockPool(limits.blocks - 1, caching=limits.prefix_caching)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.prefix_queries = 0  # prompt tokens looked up, and found, in the prefix cache
        self.prefix_hits = 0
        self._noise = noise

    @property
    def busy(self) -> bool:
        """True while there is anything to step for."""
        return bool(self.running or self.waiting)

    @property
    def usage_ratio(self) -> float:
        """Share of the usable blocks that sequences hold."""
        return 1 - self.pool.free / self.pool.total

    def add(self, sequence: Sequence) -> None:
        """Puts a sequence at the end of the waiting queue. Raises ValueError for one that could never end."""
        stored = sequence.prompt_tokens + sequence.output_tokens - 1
        need = -(-stored // self.limits.block_tokens)
        if need > self.pool.total:
            raise ValueError(f"needs {need} blocks of {self.pool.total}")
        if not self.limits.chunked_prefill and stored > self.limits.max_num_batched_tokens:
            raise ValueError(f"needs up to {stored} tokens in one step of {self.limits.max_num_batched_tokens}")
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Takes a sequence out (its client has gone); nothing happens if it has ended."""
        sequence.aborted = True
        if sequence in self.running:
            self.running.remove(sequence)
            self._free(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def step(self, now_s: float) -> Step:
        """Advances by one step that begins at `now_s`; state afterwards is that of its end."""
        scheduled: list[tuple[Sequence, int]] = []
        budget, preempted = self._continue_running(scheduled)
        admitted = self._admit(scheduled, budget, now_s) if not preempted else []
        work = self._work(scheduled)
        took_s = self._noise.stretched(self.cost.seconds(work), now_s)
        yielding, finished = self._advance(scheduled, now_s + took_s)
        return Step(
            started_s=now_s,
            took_s=took_s,
            work=work,
            yielding=yielding,
            finished=finished,
            admitted=admitted,
            preempted=preempted,
        )

    def _continue_running(self, scheduled: list[tuple[Sequence, int]]) -> tuple[int, list[Sequence]]:
        size, budget, running = self.limits.block_tokens, self.limits.max_num_batched_tokens, self.running
        preempted: list[Sequence] = []
        position = 0
        while position < len(running) and budget > 0:
            sequence = running[position]
            lacks = sequence.prompt_tokens + sequence.produced - sequence.computed
            new = lacks if lacks < budget else budget
            end = sequence.computed + new
            if end > len(sequence.blocks) * size:
                lacking = -(-end // size) - len(sequence.blocks)
                while lacking > self.pool.free:
                    victim = running.pop()
                    self._preempt(victim)
                    preempted.append(victim)
                    if victim is sequence:
                        return budget, preempted
                sequence.blocks += self.pool.take(lacking)
            if end // size > sequence.known:
                self._tell(sequence, new)
            scheduled.append((sequence, new))
            budget -= new
            position += 1
        return budget, preempted

    def _admit(self, scheduled: list[tuple[Sequence, int]], budget: int, now_s: float) -> list[Sequence]:
        limits, admitted = self.limits, []
        while self.waiting and budget > 0 and len(self.running) < limits.max_num_seqs:
            sequence = self.waiting[0]
            found = self._found(sequence)
            hit = len(found) * limits.block_tokens
            new = sequence.tokens - hit
            if new > budget and not limits.chunked_prefill:
                break
            new = min(new, budget)
            whole = -(-sequence.tokens // limits.block_tokens)
            if whole - len(found) + (self.pool.unheld(found) if found else 0) > self.pool.free:
                break
            self.waiting.popleft()
            self._begin(sequence, found, hit, now_s)
            sequence.blocks += self.pool.take(-(-(hit + new) // limits.block_tokens) - len(found))
            self._tell(sequence, new)
            self.running.append(sequence)
            scheduled.append((sequence, new))
            admitted.append(sequence)
            budget -= new
        return admitted

    def _found(self, sequence: Sequence) -> list[int]:
        if not self.limits.prefix_caching:
            return []
        most = (sequence.tokens - 1) // self.limits.block_tokens
        return self.pool.matched(sequence.contents, most)

    def _begin(self, sequence: Sequence, found: list[int], hit: int, now_s: float) -> None:
        if found:
            self.pool.share(found)
        sequence.blocks = found
        sequence.known = len(found)
        sequence.computed = hit
        if sequence.admitted_s is None:
            sequence.admitted_s = now_s
            sequence.cached_tokens = hit
        if self.limits.prefix_caching and not sequence.preemptions:
            self.prefix_queries += sequence.tokens
            self.prefix_hits += hit

    def _tell(self, sequence: Sequence, new: int) -> None:
        if not self.limits.prefix_caching:
            return
        full = min((sequence.computed + new) // self.limits.block_tokens, len(sequence.contents))
        for number in range(sequence.known, full):
            self.pool.know(sequence.blocks[number], sequence.contents[number])
        sequence.known = max(sequence.known, full)

    def _preempt(self, sequence: Sequence) -> None:
        self._free(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.waiting.appendleft(sequence)

    def _free(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.known = 0

    def _work(self, scheduled: list[tuple[Sequence, int]]) -> Work:
        sequences = new_tokens = prefill = context = residual = 0
        pairs = 0.0
        window = self.limits.residual_tokens
        for sequence, new in scheduled:
            before = sequence.computed
            new_tokens += new
            context += before
            if before + new == sequence.prompt_tokens + sequence.produced:
                sequences += 1
            if new > 1 or not sequence.produced:
                prefill += new
                pairs += new * (before + new / 2)
            if window:
                residual += min(before, window)
        return Work(sequences, new_tokens, prefill, context, residual, pairs)

    def _advance(self, scheduled: list[tuple[Sequence, int]], at_s: float) -> tuple[list[Sequence], list[Sequence]]:
        yielding, finished = [], []
        for sequence, new in scheduled:
            sequence.computed += new
            if sequence.computed < sequence.prompt_tokens + sequence.produced:
                continue
            sequence.produced += 1
            sequence.events_s.append(at_s)
            yielding.append(sequence)
            if sequence.produced >= sequence.output_tokens:
                finished.append(sequence)
                self._free(sequence)
        if finished:
            self.running = [sequence for sequence in self.running if not sequence.done]
        return yielding, finished
