"""A one-node Kubernetes cluster on this machine, without Docker: ``python -m node up``.

The node is one set of namespaces (network, mounts, processes): its API server, kubelet, containerd
and pods see interfaces, iptables and mounts of their own, and all of it ends with the first process
of the set. What the machine itself sees is one interface, the routes and rules that lead through it
(``host_network``), a cgroup and one folder; ``down`` takes those away again.
"""
