"""Real worker processes for tests, and what a gateway would say to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
from triptych_contract.fingerprints import NO_TENANT, embedding_key, media_digest, tenant_salt
from triptych_contract.v1 import (
    common_pb2,
    stages_pb2,
    stages_pb2_grpc,
    transfer_pb2,
    transfer_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

START_SECONDS = 240.0
CALL_SECONDS = 120.0


class WorkerProcess:
    """``triptych-worker TIER`` on free ports. ``ready`` waits until it serves."""

    def __init__(self, tier: str, folder: Path, place: Path, **config: Any) -> None:
        document = {
            "model": {"source": f"file://{folder}"},
            "listen": {"host": "127.0.0.1", "grpc_port": 0, "metrics_port": 0},
            "encode": {"cache_bytes": 64 << 20},
            "language": {"kv_tokens": 8192, "outbox_bytes": 64 << 20},
            "threads": 1,
            **config,
        }
        path = place / f"{tier}.json"
        path.write_text(json.dumps(document))
        self.log = place / f"{tier}.log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "triptych_worker", tier, "--config", str(path)],
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        self.addresses: Mapping[str, str] = {}

    def ready(self) -> WorkerProcess:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it did not start: {self.log.read_text()[-3000:]}"
        self.addresses = json.loads(line)
        return self

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal and waits for the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        return self.process.wait(CALL_SECONDS)

    def channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.addresses["grpc"])

    def metrics(self) -> str:
        url = f"http://{self.addresses['metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=CALL_SECONDS) as answer:
            return answer.read().decode()


def question(
    prompt: common_pb2.Prompt,
    described: worker_pb2.DescribeResponse,
    fingerprint: str = "",
    **sampling: Any,
) -> stages_pb2.GenerateRequest:
    """A request to prefill or generate."""
    return stages_pb2.GenerateRequest(
        request_id="request-1",
        fingerprint=fingerprint,
        model_digest=described.model_digest,
        prompt=prompt,
        sampling=common_pb2.Sampling(**{"top_p": 1, "max_tokens": 12, **sampling}),
        tenant_salt=NO_TENANT,
    )


def text_only(tokens: int = 4) -> common_pb2.Prompt:
    return common_pb2.Prompt(token_ids=[20 + i % 50 for i in range(tokens)])


@dataclass(frozen=True)
class Processed:
    """One picture with its question, as the model's own processor prepares it."""

    inputs: Any
    key: bytes
    fingerprint: str
    image_token: int
    rows: int

    @staticmethod
    def make(folder: Path, fingerprint: str, *, seed: int = 1) -> Processed:
        processor = AutoProcessor.from_pretrained(folder)
        pixels = np.random.default_rng(seed).integers(0, 256, (84, 112, 3), dtype=np.uint8)
        content = [{"type": "image"}, {"type": "text", "text": "What is in the picture?"}]
        text = processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        inputs = processor(text=[text], images=[Image.fromarray(pixels)], return_tensors="pt")
        image_token = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
        rows = int((inputs["input_ids"] == image_token).sum())
        key = embedding_key(media_digest(pixels.tobytes()), fingerprint, tenant_salt(""))
        return Processed(inputs, key, fingerprint, image_token, rows)

    @property
    def token_ids(self) -> list[int]:
        return list(self.inputs["input_ids"][0].tolist())

    def header(self, **changes: Any) -> stages_pb2.EncodeChunk:
        pixels = self.inputs["pixel_values"]
        fields = {
            "request_id": "request-1",
            "fingerprint": self.fingerprint,
            "key": self.key,
            "tensors": [
                stages_pb2.NamedTensor(
                    name="pixel_values",
                    tensor=common_pb2.TensorSpec(shape=pixels.shape, dtype="float32"),
                )
            ],
            "grid": self.inputs["image_grid_thw"][0].tolist(),
            "visual_tokens": self.rows,
        }
        return stages_pb2.EncodeChunk(header=stages_pb2.EncodeHeader(**(fields | changes)))

    @property
    def content(self) -> bytes:
        return self.inputs["pixel_values"].numpy().tobytes()

    def chunks(self) -> list[stages_pb2.EncodeChunk]:
        return [self.header(), stages_pb2.EncodeChunk(data=self.content)]

    def prompt(self, handle: common_pb2.Handle) -> common_pb2.Prompt:
        item = common_pb2.MediaItem(
            embedding=handle,
            spans=[
                common_pb2.Span(offset=self.token_ids.index(self.image_token), length=self.rows)
            ],
            grid=self.inputs["image_grid_thw"][0].tolist(),
        )
        return common_pb2.Prompt(token_ids=self.token_ids, media=[item])

    def generated(self, folder: Path, tokens: int) -> list[int]:
        """What ``generate()`` answers on the whole model."""
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        with torch.inference_mode():
            output = model.generate(**self.inputs, max_new_tokens=tokens, do_sample=False)
        return list(output[0, len(self.token_ids) :].tolist())


async def describe(worker: WorkerProcess) -> worker_pb2.DescribeResponse:
    async with worker.channel() as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)
        return await stub.Describe(worker_pb2.DescribeRequest(), timeout=CALL_SECONDS)


async def encoded(
    worker: WorkerProcess, chunks: Sequence[stages_pb2.EncodeChunk]
) -> stages_pb2.EncodeResponse:
    async with worker.channel() as channel:
        stub = stages_pb2_grpc.EncoderStub(channel)
        return await stub.Encode(iter(chunks), timeout=CALL_SECONDS)


async def prefilled(
    worker: WorkerProcess, request: stages_pb2.GenerateRequest
) -> stages_pb2.PrefillResponse:
    async with worker.channel() as channel:
        stub = stages_pb2_grpc.PrefillStub(channel)
        return await stub.Prefill(request, timeout=CALL_SECONDS)


async def released(worker: WorkerProcess, handle: common_pb2.Handle) -> None:
    async with worker.channel() as channel:
        stub = transfer_pb2_grpc.TransferStub(channel)
        await stub.Release(
            transfer_pb2.ReleaseRequest(lease_ids=[handle.lease_id]), timeout=CALL_SECONDS
        )


def going_on(
    first: stages_pb2.PrefillResponse, request: stages_pb2.GenerateRequest
) -> stages_pb2.DecodeRequest:
    """The decode request after a prefill's answer."""
    return stages_pb2.DecodeRequest(
        request_id=request.request_id,
        model_digest=request.model_digest,
        kv=first.kv,
        state=first.state,
        sampling=request.sampling,
    )
