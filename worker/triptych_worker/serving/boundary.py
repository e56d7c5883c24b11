"""The one place where calls enter the worker: admission, outcome, and errors as gRPC status.

An error of the contract's tree goes to the peer as it is. Anything else is a bug of ours: it is
logged with its traceback, and the peer learns no more than that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import Any, Final, NoReturn, TypeVar

import grpc
from triptych_contract.errors import InternalError, TriptychError
from triptych_contract.names import Metric
from triptych_contract.rpc import abort_with

from triptych_worker.domain import Observer
from triptych_worker.serving.admission import Admission
from triptych_worker.serving.peers import deadline

_LOG: Final = logging.getLogger(__name__)

# Services that begin work. All others must answer while a worker starts or drains: whoever holds a
# lease fetches it, and the operator asks how far things are.
WORK_SERVICES: Final = frozenset(
    f"triptych.v1.{name}" for name in ("Encoder", "Prefill", "Decode", "Fused")
)
_OURS: Final = "/triptych.v1."

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
# grpc types handlers as synchronous; those of grpc.aio are coroutine functions.
_Context = grpc.aio.ServicerContext[Any, Any]


class Boundary(grpc.aio.ServerInterceptor):
    """Wraps every method of our own services; health and reflection pass untouched.

    ``peer_seconds`` bounds how long a client may take to read one message of a stream.
    """

    def __init__(self, admission: Admission, observer: Observer, peer_seconds: float) -> None:
        self._admission = admission
        self._observer = observer
        self._peer_seconds = peer_seconds

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails],
            Awaitable[grpc.RpcMethodHandler[_Request, _Response] | None],
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[_Request, _Response] | None:
        """The handler of the called method, guarded if it is ours."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(_OURS):
            return handler
        return self._guarded(handler, work=method[1:].partition("/")[0] in WORK_SERVICES)

    def _guarded(
        self, handler: grpc.RpcMethodHandler[_Request, _Response], *, work: bool
    ) -> grpc.RpcMethodHandler[_Request, _Response]:
        codec = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary:
            unary = self._answering(handler.unary_unary, work=work)
            return grpc.unary_unary_rpc_method_handler(unary, *codec)
        if handler.stream_unary:
            unary = self._answering(handler.stream_unary, work=work)
            return grpc.stream_unary_rpc_method_handler(unary, *codec)
        if handler.unary_stream:
            stream = self._streaming(handler.unary_stream, work=work)
            return grpc.unary_stream_rpc_method_handler(stream, *codec)
        stream = self._streaming(handler.stream_stream, work=work)
        return grpc.stream_stream_rpc_method_handler(stream, *codec)

    def _answering(self, method: Any, *, work: bool) -> Any:
        async def guarded(request: object, context: _Context) -> object:
            async with self._call(context, work=work):
                return await method(request, context)

        return guarded

    def _streaming(self, method: Any, *, work: bool) -> Any:
        """Writes what the method yields; however the call ends, the method's generator is closed
        before it does."""

        async def guarded(request: object, context: _Context) -> None:
            async with self._call(context, work=work), aclosing(method(request, context)) as items:
                async for item in items:
                    async with deadline(self._peer_seconds, "the client's reading"):
                        await context.write(item)

        return guarded

    @asynccontextmanager
    async def _call(self, context: _Context, *, work: bool) -> AsyncIterator[None]:
        async with self._errors(context, work=work):
            with self._admission.call() if work else nullcontext():
                yield

    @asynccontextmanager
    async def _errors(self, context: _Context, *, work: bool) -> AsyncIterator[None]:
        outcome = "ok"
        try:
            yield
        except TriptychError as error:
            outcome = error.reason
            await abort_with(context, error)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except grpc.aio.AbortError:
            outcome = "aborted"
            raise
        except Exception:  # noqa: BLE001 - a bug of ours ends one call, not the worker
            outcome = InternalError.reason
            await _abort_unexpected(context)
        finally:
            if work:
                self._observer.add(Metric.REQUESTS, outcome=outcome)


async def _abort_unexpected(context: _Context) -> NoReturn:
    _LOG.exception("a request failed with an unexpected error")
    await abort_with(context, InternalError("internal error; the worker's log has the traceback"))
