"""A pod whose one thread is busy for some seconds whenever it is described: ``busy_pod.py SECONDS``
prints its address."""

# ruff: noqa: N802 - methods are named in the protobuf

import asyncio
import sys
import time

import grpc
from triptych_contract.v1.worker_pb2 import DescribeRequest, DescribeResponse
from triptych_contract.v1.worker_pb2_grpc import WorkerServicer, add_WorkerServicer_to_server


class Busy(WorkerServicer):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def Describe(
        self, request: DescribeRequest, context: grpc.aio.ServicerContext
    ) -> DescribeResponse:
        time.sleep(self._seconds)  # noqa: ASYNC251 - nothing else is to run meanwhile
        return DescribeResponse(instance="busy")


async def main() -> None:
    options = [("grpc.http2.min_ping_interval_without_data_ms", 100)]
    server = grpc.aio.server(options=options)
    add_WorkerServicer_to_server(Busy(float(sys.argv[1])), server)
    print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
