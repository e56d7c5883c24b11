"""``/healthz``, ``/readyz`` and ``/metrics`` of the operator."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from triptych_operator.controller.settings import Listen


@contextlib.asynccontextmanager
async def serve(listen: Listen | None, problem: Callable[[], str]) -> AsyncIterator[None]:
    """Serves within the block, unless ``listen`` is ``None``.

    Args:
        problem: what is wrong with the process, or nothing; a problem fails ``/healthz``.
    """
    if listen is None:
        yield
        return

    async def healthz(_: web.Request) -> web.Response:
        wrong = problem()
        return web.Response(status=503 if wrong else 200, text=f"{wrong or 'ok'}\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # a replica that waits for its turn is as it should be

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(), headers=headers)

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, listen.host, listen.port).start()
        yield
    finally:
        await runner.cleanup()
