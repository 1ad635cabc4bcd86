"""A small OpenAI-compatible server with vLLM's endpoints and metric names: `python llm_server.py PORT`.

It answers correctly and at a set pace; `--slots` requests run at once, the rest wait. What it can be told to do wrong
is what the verbs must say clearly: `--die-after N` (exits on the N-th completion), `--html`, `--no-metrics`,
`--refuse-ids` (prompts must be text), `--fail-after N` (HTTP 500 to every stream from then on), `--models A B`.
"""

import argparse
import asyncio
import contextlib
import json
import os


class Server:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.slots = asyncio.Semaphore(options.slots)
        self.running = self.waiting = self.finished = self.prompt_tokens = self.generated = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                await self.answer(lines[0].split()[1], body, writer)
        writer.close()

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if self.options.html:
            return self.reply(writer, "<html><body>It works!</body></html>", "text/html")
        if path in ("/v1/completions", "/v1/chat/completions"):
            return await self.complete(json.loads(body), writer)
        if path == "/v1/models":
            context = self.options.context
            models = [{"id": name, "object": "model", "max_model_len": context} for name in self.options.models]
            return self.reply(writer, json.dumps({"object": "list", "data": models}))
        if path == "/version":
            return self.reply(writer, json.dumps({"version": "0.32.0"}))
        if path == "/health":
            return self.reply(writer, "")
        if path == "/metrics" and not self.options.no_metrics:
            return self.reply(writer, self.metrics(), "text/plain; version=0.0.4")
        if path == "/tokenize":
            count = len(json.loads(body).get("prompt", "").split())
            return self.reply(writer, json.dumps({"count": count, "max_model_len": self.options.context}))
        return self.reply(writer, '{"detail":"Not Found"}', status="404 Not Found")

    def reply(
        self, writer: asyncio.StreamWriter, text: str, kind: str = "application/json", status: str = "200 OK"
    ) -> None:
        data = text.encode()
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
        )

    def metrics(self) -> str:
        options = self.options
        labels = f'cache_dtype="{options.dtype}",block_size="16",num_gpu_blocks="{options.capacity // 16}",engine="0"'
        labels += f',kv_cache_size_tokens="{options.capacity}",enable_prefix_caching="False"'
        rows = {
            "kv_cache_usage_perc": self.running / options.slots,
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "num_preemptions_total": 0,
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generated,
        }
        lines = [f'vllm:{name}{{engine="0",model_name="fake"}} {value}' for name, value in rows.items()]
        return "\n".join([f"vllm:cache_config_info{{{labels}}} 1.0", *lines]) + "\n"

    async def complete(self, asked: dict[str, object], writer: asyncio.StreamWriter) -> None:
        prompt = asked.get("prompt", "")
        if isinstance(prompt, list) and self.options.refuse_ids:
            self.reply(writer, '{"error":{"message":"prompt must be a string."}}', status="400 Bad Request")
            return
        self.finished += 1
        if self.options.die_after and self.finished > self.options.die_after:
            os._exit(7)
        if asked.get("stream") and 0 <= self.options.fail_after < self.finished:
            self.reply(writer, '{"error":{"message":"out of [/memory]"}}', status="500 Internal Server Error")
            return
        tokens, prompted = (
            int(str(asked["max_tokens"])),
            len(prompt if isinstance(prompt, list) else str(prompt).split()),
        )
        usage = {"prompt_tokens": prompted, "completion_tokens": tokens, "total_tokens": prompted + tokens}
        if not asked.get("stream"):
            choice = {"index": 0, "text": "x" * tokens, "finish_reason": "length"}
            self.reply(writer, json.dumps({"choices": [choice], "usage": usage, "model": "fake"}))
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        self.waiting += 1
        async with self.slots:
            self.waiting -= 1
            self.running += 1
            try:
                await self.stream(tokens, usage, writer)
            finally:
                self.running -= 1
        self.prompt_tokens += prompted

    async def stream(self, tokens: int, usage: dict[str, int], writer: asyncio.StreamWriter) -> None:
        for number in range(tokens):
            await asyncio.sleep(self.options.token_s)
            if writer.is_closing():
                return
            reason = "length" if number == tokens - 1 else None
            self.event(writer, {"choices": [{"index": 0, "text": " x", "finish_reason": reason}]})
            self.generated += 1
        self.event(writer, {"choices": [], "usage": usage})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()

    def event(self, writer: asyncio.StreamWriter, payload: dict[str, object]) -> None:
        data = f"data: {json.dumps({'id': 'c', 'object': 'text_completion', **payload})}\n\n".encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--token-s", type=float, default=0.001)
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--models", nargs="+", default=["fake"])
    parser.add_argument("--fail-after", type=int, default=-1)
    parser.add_argument("--die-after", type=int, default=0)
    for switch in ("--html", "--no-metrics", "--refuse-ids"):
        parser.add_argument(switch, action="store_true")
    options = parser.parse_args()
    server = await asyncio.start_server(Server(options).serve, "127.0.0.1", options.port)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
