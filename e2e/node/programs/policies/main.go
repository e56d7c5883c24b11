// Command policies holds NetworkPolicies on one node, by iptables and ipsets: the firewall of kube-router
// without its routing and its services, which a node with a bridge and kube-proxy has no use for.
//
//	policies KUBECONFIG NODE SERVICE_NETWORK
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: policies KUBECONFIG NODE SERVICE_NETWORK")
		os.Exit(2)
	}
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ending, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

func run(ending context.Context, kubeconfig, node, services string) error {
	connection, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := watch(client, factory, configuration(node, services))
	if err != nil {
		return err
	}
	factory.Start(ending.Done())
	factory.WaitForCacheSync(ending.Done())

	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range heartbeats { // nobody asks for them here, and the controller waits for a reader
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(heartbeats, ending.Done(), &running)
	return nil
}

func configuration(node, services string) *options.KubeRouterConfig {
	config := options.NewKubeRouterConfig()
	config.HostnameOverride = node
	config.ClusterIPCIDRs = []string{services}
	config.EnableIPv4 = true
	return config
}

// The controller, told of every change of pods, namespaces and policies.
func watch(
	client kubernetes.Interface, factory informers.SharedInformerFactory, config *options.KubeRouterConfig,
) (*netpol.NetworkPolicyController, error) {
	iptables, ipsets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return nil, err
	}
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, iptables, ipsets,
	)
	if err != nil {
		return nil, err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		namespaces: controller.NamespaceEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	return controller, nil
}
