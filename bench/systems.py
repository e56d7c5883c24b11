"""The systems side by side: how each is started at its best, and how load is put on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from cluster.ports import free_port

from bench import client
from bench.client import Api
from bench.model import cache_root, model_folder
from bench.processes import Child, Command, DidNotStart, running, until_serving
from bench.samples import Load, Sample

OURS: Final = ("fused", "split")
SYSTEMS: Final = ("generate", "transformers", "vllm", *OURS)
START_SECONDS: Final = float(os.environ.get("BENCH_START_SECONDS", "300"))
CORES: Final = len(os.sched_getaffinity(0))
TCMALLOC: Final = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")
# vLLM and our gateway send usage when asked; `transformers serve` always does, and refuses this.
USAGE: Final = {"stream_options": {"include_usage": True}, "ignore_eos": True}
OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
MANIFEST: Final = """\
apiVersion: triptych.dev/v1alpha1
kind: MultimodalService
metadata:
  name: bench
spec:
  model:
    source: file://{folder}
    revision: "1"
    servedName: bench
    dtype: {dtype}
  topology: {topology}
  transfer: {{transport: {transport}}}
  tiers: {tiers}
"""


class System(Protocol):
    """Something that answers questions about pictures."""

    name: str
    child: Child
    batches: bool  # whether requests in flight help each other; if not, more of them only queue

    async def load(self, seeds: Sequence[int], concurrency: int, tokens: int) -> Load:
        """One request per picture, ``concurrency`` at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Server:
    """A system that speaks the OpenAI API."""

    name: str
    child: Child
    api: Api
    batches: bool = True

    async def load(self, seeds: Sequence[int], concurrency: int, tokens: int) -> Load:
        """See ``System``."""
        requests = client.bodies(self.api, seeds, tokens)
        cpu = self.child.cpu_seconds()
        began = time.perf_counter()
        samples = await client.send(self.api, requests, concurrency, tokens)
        seconds = time.perf_counter() - began
        return Load(tuple(samples), seconds, self.child.cpu_seconds() - cpu)


@dataclass(slots=True)
class GenerateLoop:
    """transformers' ``generate()``, one request after the other whatever the concurrency."""

    child: Child
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    name: str = "generate() loop"
    batches: bool = False

    async def load(self, seeds: Sequence[int], concurrency: int, tokens: int) -> Load:
        """See ``System``."""
        del concurrency
        await self._answer({"prepare": list(seeds)})
        cpu = self.child.cpu_seconds()
        began = time.perf_counter()
        samples = [await self._ask(seed, tokens) for seed in seeds]
        seconds = time.perf_counter() - began
        return Load(tuple(samples), seconds, self.child.cpu_seconds() - cpu)

    async def _ask(self, seed: int, tokens: int) -> Sample:
        sample = Sample(**await self._answer({"seed": seed, "tokens": tokens}))
        if sample.tokens != tokens:
            raise client.WrongAnswer(f"generate() made {sample.tokens} tokens, not {tokens}")
        return sample

    async def _answer(self, request: Mapping[str, object]) -> dict[str, Any]:
        self.writer.write(json.dumps(request).encode() + b"\n")
        await self.writer.drain()
        line = await asyncio.wait_for(self.reader.readline(), client.REQUEST_SECONDS)
        if not line:
            raise DidNotStart(f"generate() ended; its log ends:\n{self.child.tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def peers_root() -> Path:
    """Where hack/bench-peers puts the other systems."""
    return cache_root() / "peers"


def log_folder() -> Path:
    """Where the systems' output goes; each run writes over the last one's."""
    folder = cache_root() / "bench" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.asynccontextmanager
async def generate_loop(logs: Path, dtype: str) -> AsyncIterator[System]:
    """(a) transformers' generate() in this very environment."""
    address = logs / "generate.socket"
    address.unlink(missing_ok=True)
    connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    connected = asyncio.get_running_loop().create_future()
    server = await asyncio.start_unix_server(
        lambda reader, writer: connected.set_result((reader, writer)), address
    )
    argv = [sys.executable, "-m", "bench.generate_loop", str(address), dtype]
    command = Command(argv, {**OFFLINE, "OMP_NUM_THREADS": str(CORES)}, logs / "generate.log")
    async with server, running(command) as child:
        ended = asyncio.ensure_future(child.process.wait())
        await asyncio.wait((connected, ended), timeout=START_SECONDS,
                           return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        if not connected.done():
            raise DidNotStart(f"generate() did not start; its log ends:\n{child.tail()}")
        yield GenerateLoop(child, *connected.result())


@contextlib.asynccontextmanager
async def transformers_serve(logs: Path, dtype: str) -> AsyncIterator[System]:
    """(b) transformers' own server."""
    port = free_port()
    folder = str(model_folder())
    command = Command(
        [
            str(peers_root() / "transformers" / "bin" / "transformers"), "serve", folder,
            "--dtype", dtype, "--device", "cpu", "--host", "127.0.0.1", "--port", str(port),
        ],
        {**OFFLINE, "OMP_NUM_THREADS": str(CORES)},
        logs / "transformers.log",
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    async with running(command) as child:
        await until_serving(child, f"{url}/health", START_SECONDS)
        yield Server("transformers serve", child, Api(url, folder), batches=False)


@contextlib.asynccontextmanager
async def vllm(logs: Path, dtype: str, *, eager: bool = False) -> AsyncIterator[System]:
    """(c) vLLM on CPU: a thread per core bound to it, tcmalloc, prefix caching."""
    port = free_port()
    environment = peers_root() / "vllm"
    command = Command(
        [
            str(environment / "bin" / "vllm"), "serve", str(model_folder()),
            "--served-model-name", "bench", "--dtype", dtype, "--max-model-len", "1024",
            "--max-num-seqs", "16", "--limit-mm-per-prompt", '{"image": 1}',
            "--host", "127.0.0.1", "--port", str(port), "--no-enable-log-requests",
            *(["--enforce-eager"] if eager else []),
        ],
        {
            **OFFLINE,
            "OMP_NUM_THREADS": str(CORES),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{CORES - 1}",
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_TARGET_DEVICE": "cpu",
            "LD_PRELOAD": f"{TCMALLOC}:{environment / 'lib' / 'libiomp5.so'}",
            "VLLM_NO_USAGE_STATS": "1",
        },
        logs / "vllm.log",
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    async with running(command) as child:
        await until_serving(child, f"{url}/health", START_SECONDS)
        yield Server("vLLM", child, Api(url, "bench", USAGE))


@dataclass(frozen=True, slots=True)
class Tuning:
    """What may be varied in our own processes."""

    threads: int = CORES
    transport: str = "auto"
    dtype: str = "float32"
    environment: Mapping[str, str] = field(default_factory=dict)
    tiers: Mapping[str, object] = field(default_factory=dict)  # as the resource has them


@contextlib.asynccontextmanager
async def triptych(
    logs: Path, topology: str, tuning: Tuning | None = None
) -> AsyncIterator[System]:
    """(d) ours, by ``triptych up`` as a user starts it."""
    tuning = tuning or Tuning()
    port = free_port()
    manifest = logs / f"{topology}.yaml"
    manifest.write_text(
        MANIFEST.format(
            folder=model_folder(),
            dtype=tuning.dtype,
            topology=topology,
            transport=tuning.transport,
            tiers=json.dumps(tuning.tiers),
        )
    )
    folder = logs / topology
    command = Command(
        [
            sys.executable, "-m", "triptych_operator", "up", "-f", str(manifest),
            "--port", str(port), "--threads", str(tuning.threads), "--logs", str(folder),
            "--start-timeout", str(START_SECONDS),
        ],
        {**OFFLINE, **tuning.environment},
        logs / f"{topology}.log",
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    async with running(command) as child:
        await until_serving(child, f"{url}/readyz", START_SECONDS)
        yield Server(f"Triptych {topology}", child, Api(url, "bench", USAGE))
