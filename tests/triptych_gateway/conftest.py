"""A gateway in this process, in front of scripted workers, and what requests are made of."""

# ruff: noqa: PLC0415 - torch and transformers are imported by the tests that need them alone
import asyncio
import base64
import io
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import pytest
import uvicorn
from cluster.waiting import eventually
from PIL import Image as PilImage
from scripted_worker import ScriptedWorker, World
from triptych_contract.config import Endpoints, GatewayConfig, Model
from triptych_contract.fingerprints import EncoderIdentity
from triptych_contract.names import Tier, Topology
from triptych_contract.processor import MEDIA_DECODING, effective_processor


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> Path:
    import tiny_models

    return tiny_models.build("qwen2_5_vl", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def model(model_folder) -> Model:
    return Model(source=f"file://{model_folder}", served_name="tiny")


@pytest.fixture(scope="session")
def processor(model, model_folder):
    from triptych_gateway.processors.load import load_processor

    return load_processor(model_folder, model)


@dataclass
class Stand:
    """A gateway in this process, in front of scripted workers."""

    url: str
    workers: dict[Tier, list[ScriptedWorker]]
    world: World
    gateway: object
    server: uvicorn.Server

    def one(self, tier: Tier) -> ScriptedWorker:
        return self.workers[tier][0]

    async def ready(self) -> None:
        async with httpx.AsyncClient(timeout=60) as client:

            async def answers() -> bool:
                return (await client.get(f"{self.url}/readyz")).status_code == 200

            await eventually(answers, "a gateway that is ready", seconds=60)


@pytest.fixture(scope="session")
def identity(model, model_folder) -> EncoderIdentity:
    return EncoderIdentity(
        source=model.source,
        revision=model.revision,
        weights="w",
        processor_revision=model.revision,
        processor=effective_processor(model_folder, model.processor),
        media=MEDIA_DECODING,
        engine_version="1",
    )


@pytest.fixture
def stand(model, identity, processor):
    """A function that builds a Stand: ``async with stand(topology, ...) as s``."""
    from triptych_gateway.server import fetcher_of, running_gateway

    @asynccontextmanager
    async def build(topology=Topology.FULL_SPLIT, counts=None, fetcher=None, **overrides):
        world = World()
        async with AsyncExitStack() as stack:
            workers = {}
            for tier in topology.tiers[:-1]:
                workers[tier] = []
                for _ in range((counts or {}).get(tier, 1)):
                    sees = tier is Tier.ENCODER or topology is Topology.FUSED
                    worker = ScriptedWorker(tier, world, identity if sees else None)
                    await worker.start()
                    stack.push_async_callback(worker.stop)
                    workers[tier].append(worker)
            for tier in overrides.pop("can_encode", ()):
                for worker in workers[tier]:
                    worker.identity = identity
            config = GatewayConfig(
                model=model,
                topology=topology,
                **{
                    str(tier): Endpoints(addresses=tuple(w.address for w in pods))
                    for tier, pods in workers.items()
                },
                **overrides,
            )
            gateway = await stack.enter_async_context(
                running_gateway(config, processor, fetcher or fetcher_of(config))
            )
            server = uvicorn.Server(
                uvicorn.Config(gateway.app, port=0, log_config=None, lifespan="off")
            )
            serving = asyncio.create_task(server._serve())
            await eventually(lambda: server.started, "a server", seconds=60, of=serving)
            port = server.servers[0].sockets[0].getsockname()[1]
            made = Stand(f"http://127.0.0.1:{port}", workers, world, gateway, server)
            try:
                await made.ready()
                yield made
            finally:
                server.should_exit = True
                await serving

    return build


def encoded_picture(width: int = 60, height: int = 60, kind: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    shade = (width * 7 + height * 13) % 256
    PilImage.new("RGB", (width, height), (shade, 80, 160)).save(stream, kind, **options)
    return stream.getvalue()


@pytest.fixture
def picture():
    return encoded_picture


def _data_url(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


@pytest.fixture
def ask():
    """The body of a request about some pictures."""

    def body(*parts: str | bytes, model: str = "tiny", **fields: object) -> dict[str, object]:
        content = [_part(part) for part in parts]
        return {"model": model, "messages": [{"role": "user", "content": content}], **fields}

    return body


def _part(part: str | bytes) -> dict[str, object]:
    if isinstance(part, str) and not part.startswith("http"):
        return {"type": "text", "text": part}
    url = part if isinstance(part, str) else _data_url(part)
    return {"type": "image_url", "image_url": {"url": url}}


def events_of(text: str) -> list[dict[str, object]]:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.fixture
def events():
    return events_of
