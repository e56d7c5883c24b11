import aiohttp
import pytest
from cluster.ports import free_port
from triptych_operator.controller import audit, workers  # noqa: F401 - for their metrics
from triptych_operator.controller.health import serve
from triptych_operator.controller.settings import Listen


async def get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("problem", "status", "text"), [("", 200, "ok\n"), ("deaf for 9 s", 503, "deaf for 9 s\n")]
)
async def test_health_says_what_is_wrong(problem: str, status: int, text: str) -> None:
    port = free_port()
    async with serve(Listen("127.0.0.1", port), lambda: problem):
        assert await get(port, "/healthz") == (status, text)
        assert (await get(port, "/readyz"))[0] == 200


async def test_metrics_are_served() -> None:
    port = free_port()
    async with serve(Listen("127.0.0.1", port), lambda: ""):
        status, text = await get(port, "/metrics")
    assert status == 200
    assert "triptych_operator_queue_length" in text
    assert "triptych_operator_missed_changes_total" in text


async def test_nothing_is_served_once_it_ends() -> None:
    port = free_port()
    async with serve(Listen("127.0.0.1", port), lambda: ""):
        pass
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(port, "/healthz")


async def test_where_nothing_is_to_listen_nothing_does() -> None:
    async with serve(None, lambda: "unheard"):
        pass
