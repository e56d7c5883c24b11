// Command peer is the operator that Triptych's is measured against: a controller-runtime program
// that keeps the same children for the same resources, the way operators in Go are usually written.
package main

import (
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

type options struct {
	kubeconfig, namespace, templates, listen string
	workers                                  int
}

func main() {
	var chosen options
	flag.StringVar(&chosen.kubeconfig, "kube", "", "kubeconfig to act by")
	flag.StringVar(&chosen.namespace, "namespace", "", "the only namespace to look after")
	flag.StringVar(&chosen.templates, "templates", "", "file of manifests by value of the changing field")
	flag.StringVar(&chosen.listen, "listen", "", "HOST:PORT that serves /metrics")
	flag.IntVar(&chosen.workers, "workers", 1, "reconciles at a time")
	flag.Parse()
	ctrl.SetLogger(klog.NewKlogr())
	if err := run(chosen); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(chosen options) error {
	templates, err := readTemplates(chosen.templates)
	if err != nil {
		return err
	}
	manager, err := newManager(chosen)
	if err != nil {
		return err
	}
	reconciler := &Reconciler{Client: manager.GetClient(), Templates: templates}
	if err := watch(manager, chosen.workers).Complete(reconciler); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func newManager(chosen options) (ctrl.Manager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", chosen.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the API server's own fairness is the limit, as it is for the other side
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Client: client.Options{
			Cache: &client.CacheOptions{Unstructured: true}, // the resource itself, which is untyped here
		},
		Metrics: server.Options{BindAddress: chosen.listen},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{chosen.namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(),
		},
	})
}

// Own status writes start no reconcile; every event of a child or a pod does.
func watch(manager ctrl.Manager, workers int) *builder.Builder {
	resource := &unstructured.Unstructured{}
	resource.SetGroupVersionKind(resourceKind)
	watched := ctrl.NewControllerManagedBy(manager).
		For(resource, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	for _, child := range childKinds() {
		watched = watched.Owns(child)
	}
	return watched.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(resourceOf))
}
