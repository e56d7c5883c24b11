"""Which services a tier answers: exactly those that it has stages for, and those that all have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from triptych_contract.config import WorkerConfig
from triptych_contract.names import Tier
from triptych_contract.v1 import (
    stages_pb2,
    stages_pb2_grpc,
    transfer_pb2,
    worker_pb2,
    worker_pb2_grpc,
)

from triptych_worker.serving.admission import ByteBudget
from triptych_worker.serving.listener import Registration
from triptych_worker.serving.loading import encodes
from triptych_worker.serving.services import (
    CacheAdminService,
    DecodeService,
    DescribeService,
    EncoderService,
    FusedService,
    PrefillService,
)
from triptych_worker.serving.worker import Worker
from triptych_worker.transfer.service import TransferService


def registrations(
    config: WorkerConfig, worker: Worker, transfer: TransferService
) -> Mapping[str, Registration]:
    """How to add each service of the worker's tier to a server, by the service's full name."""
    tier = worker.tier
    workers, stages = worker_pb2.DESCRIPTOR, stages_pb2.DESCRIPTOR
    services = {
        _name(workers, "Worker"): _adding(
            worker_pb2_grpc.add_WorkerServicer_to_server, DescribeService(worker)
        ),
        _name(workers, "CacheAdmin"): _adding(
            worker_pb2_grpc.add_CacheAdminServicer_to_server, CacheAdminService(worker)
        ),
        _name(transfer_pb2.DESCRIPTOR, "Transfer"): transfer.add_to,
    }
    if encodes(tier, config):
        budget = ByteBudget(config.encode.inflight_bytes)
        services[_name(stages, "Encoder")] = _adding(
            stages_pb2_grpc.add_EncoderServicer_to_server,
            EncoderService(worker, budget, config.transfer.timeout_seconds),
        )
    if tier is Tier.PREFILL:
        services[_name(stages, "Prefill")] = _adding(
            stages_pb2_grpc.add_PrefillServicer_to_server, PrefillService(worker)
        )
    if tier is Tier.DECODE:
        services[_name(stages, "Decode")] = _adding(
            stages_pb2_grpc.add_DecodeServicer_to_server, DecodeService(worker)
        )
    if tier is Tier.FUSED:
        services[_name(stages, "Fused")] = _adding(
            stages_pb2_grpc.add_FusedServicer_to_server, FusedService(worker)
        )
    return services


def _name(descriptor: Any, service: str) -> str:
    name: str = descriptor.services_by_name[service].full_name
    return name


def _adding(add: Callable[[Any, grpc.aio.Server], None], servicer: object) -> Registration:
    return lambda server: add(servicer, server)
