// Command coredns is CoreDNS with the few plugins that a cluster's DNS needs, so that it builds in a
// fraction of the time that all of its plugins take.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// The order in which a query passes through the plugins.
func init() {
	dnsserver.Directives = []string{"health", "ready", "errors", "cache", "kubernetes", "forward"}
}

func main() {
	coremain.Run()
}
