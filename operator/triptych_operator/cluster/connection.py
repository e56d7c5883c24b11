"""Where the API server is, and by which credentials to speak to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import kopf
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from triptych_contract.errors import InvalidRequest

CONNECTIONS: Final = 16  # at a time, to the API server: each takes up to half a megabyte


async def load(kubeconfig: Path | None = None) -> Configuration:
    """The connection by ``kubeconfig``, by the environment's, or as a pod.

    Raises:
        InvalidRequest: there is none, or it cannot be read.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(client_configuration=configuration)
        else:
            path = str(kubeconfig) if kubeconfig else None
            await load_kube_config(path, client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise InvalidRequest(
            f"no cluster to connect to: {error}; set KUBECONFIG to a kubeconfig file"
        ) from error
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.proxy = configuration.proxy or _proxy_to(configuration.host)
    # Otherwise the client looks into the environment and into .netrc for every call, in threads.
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration


def client(configuration: Configuration) -> ApiClient:
    """A client of it; to be closed by whoever asks for it."""
    return ApiClient(configuration)


async def for_kopf(kubeconfig: Path | None) -> kopf.ConnectionInfo:
    """The same, read anew, as kopf's watches take it: tokens of pods change every hour."""
    configuration = await load(kubeconfig)
    authorization = await configuration.get_api_key_with_prefix("BearerToken") or ""
    scheme, _, token = authorization.partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme or None,
        token=token or None,
        proxy_url=configuration.proxy,
    )


def _proxy_to(url: str) -> str | None:
    """The environment's proxy for ``url``, by HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
