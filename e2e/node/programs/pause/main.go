// Command pause holds the namespaces of a pod: it sleeps until it is told to end, and reaps what the
// pod's other containers leave behind when they share its process namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGINT, syscall.SIGTERM)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ending:
			return
		case <-children:
			reap()
		}
	}
}

func reap() {
	for {
		child, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if child <= 0 || err != nil {
			return
		}
	}
}
