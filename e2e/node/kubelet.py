"""Configuration of kubelet and kube-proxy, which read JSON where Kubernetes documents YAML."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.control_plane import ControlPlane

from node.layout import (
    CGROUP,
    DNS_SERVICE,
    NODE_ADDRESS,
    NODE_NAME,
    POD_NETWORK,
    Layout,
)

Flags = dict[str, str | int]


def kubelet(control_plane: ControlPlane, layout: Layout, resolver: Path) -> Flags:
    """Flags of the kubelet; its configuration file is written beside its kubeconfig."""
    serving = control_plane.authority.issue("kubelet-serving", hosts=(NODE_ADDRESS, NODE_NAME))
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(control_plane.authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,  # a lower one may be refused
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE],
        "resolvConf": str(resolver),
        "podLogsDir": str(layout.pod_logs),
        "volumePluginDir": str(layout.run / "volume-plugins"),
        # Images come from no registry: one that is collected would be missing for good.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # Shares of a disk say little where it is shared with everything else.
        "evictionHard": {
            "memory.available": "200Mi",
            "nodefs.available": "1Gi",
            "imagefs.available": "1Gi",
            "nodefs.inodesFree": "1%",
        },
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
        "shutdownGracePeriod": "0s",
    }
    return {
        "config": str(_write(layout.run / "kubelet.json", configuration)),
        "kubeconfig": str(_kubeconfig(control_plane, f"system:node:{NODE_NAME}", "system:nodes")),
        "root-dir": str(layout.run / "kubelet"),
        "hostname-override": NODE_NAME,
        "node-ip": NODE_ADDRESS,
    }


def kube_proxy(control_plane: ControlPlane, layout: Layout) -> Flags:
    """Flags of kube-proxy, which brings Services' addresses to pods."""
    configuration = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_NETWORK,
        "hostnameOverride": NODE_NAME,
        "conntrack": {"maxPerCore": 0},  # the machine's own limits stay
        "oomScoreAdj": 0,
        "clientConnection": {
            "kubeconfig": str(_kubeconfig(control_plane, "system:kube-proxy", "")),
        },
    }
    return {"config": str(_write(layout.run / "kube-proxy.json", configuration))}


def _kubeconfig(control_plane: ControlPlane, user: str, group: str) -> Path:
    return control_plane.kubeconfig_for(user, groups=(group,) if group else ())


def _write(path: Path, configuration: dict[str, object]) -> Path:
    path.write_text(json.dumps(configuration, indent=2))
    return path
