//go:build !linux

package backlog

import "net"

// Listen returns l.
func Listen(l net.Listener, _ Limits) (net.Listener, error) { return l, nil }
