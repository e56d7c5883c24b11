"""The HTTP application: OpenAI's paths, probes and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from triptych_contract.errors import NotFound
from triptych_contract.names import Tier, Topology

from triptych_gateway.api.chat import ChatCompletions
from triptych_gateway.api.errors import body_of, status_of
from triptych_gateway.metrics import GatewayMetrics
from triptych_gateway.tiers.fleet import missing_tiers
from triptych_gateway.tiers.pools import Pools


@dataclass(slots=True)
class Readiness:
    """Whether this process takes new requests.

    It waits for a whole pipeline once. Encoders that are lost later do not count, nor those that
    may rest: text goes on, and what becomes of pictures is told request by request.
    """

    encoder_rests: bool = False
    draining: bool = False
    _was_complete: bool = False

    def waits_for(self, missing: Sequence[Tier]) -> list[Tier]:
        """Of the tiers that are ``missing`` now, those that it cannot begin without."""
        self._was_complete = self._was_complete or not missing
        if self._was_complete or self.encoder_rests:
            return [tier for tier in missing if tier is not Tier.ENCODER]
        return [*missing]


class Pages:
    """Everything but the completions."""

    def __init__(
        self,
        model: str,
        topology: Topology,
        pools: Pools,
        metrics: GatewayMetrics,
        readiness: Readiness,
    ) -> None:
        self._model = model
        self._topology = topology
        self._pools = pools
        self._metrics = metrics
        self._readiness = readiness

    async def models(self, _: Request) -> Response:
        """``GET /v1/models``."""
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def one_model(self, request: Request) -> Response:
        """``GET /v1/models/{id}``."""
        name = request.path_params["name"]
        if name != self._model:
            error = NotFound(f"model {name!r:.200} does not exist; there is {self._model!r}")
            return JSONResponse(body_of(error), status_of(error))
        return JSONResponse(self._card())

    async def healthy(self, _: Request) -> Response:
        """``GET /healthz``: the process answers."""
        return JSONResponse({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """``GET /readyz``: a complete pipeline exists; if not, which tier is missing."""
        if self._readiness.draining:
            return JSONResponse({"status": "draining"}, 503)
        missing = self._readiness.waits_for(missing_tiers(self._pools.route, self._topology))
        if missing:
            tiers = [str(tier) for tier in missing]
            return JSONResponse({"status": "not ready", "missing": tiers}, 503)
        return JSONResponse({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        """``GET /metrics``."""
        return Response(
            generate_latest(self._metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST}
        )

    def _card(self) -> dict[str, object]:
        return {"id": self._model, "object": "model", "created": 0, "owned_by": "triptych"}


def build_app(chat: ChatCompletions, pages: Pages) -> Starlette:
    """The application with all its routes."""
    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", pages.models),
            Route("/v1/models/{name:path}", pages.one_model),
            Route("/healthz", pages.healthy),
            Route("/readyz", pages.ready),
            Route("/metrics", pages.metrics),
        ],
        exception_handlers={HTTPException: _not_served},
    )


async def _not_served(request: Request, error: Exception) -> Response:
    """No such path, or not by this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"{request.method} {request.url.path} is not served here"
    return JSONResponse(
        {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": None,
                "code": "not_found" if status == 404 else "method_not_allowed",
            }
        },
        status,
    )
