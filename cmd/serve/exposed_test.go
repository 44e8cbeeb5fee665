package main

import (
	"net"
	"testing"
)

// TestExposedServersNeedNoKey: a server that other machines reach without a key warns.
func TestExposedServersNeedNoKey(t *testing.T) {
	key, empty := "secret", ""
	for _, c := range []struct {
		ip      string
		flags   runCmd
		exposed bool
	}{
		{"0.0.0.0", runCmd{}, true},
		{"192.0.2.1", runCmd{accessFlags: accessFlags{APIKey: &empty}}, true},
		{"::", runCmd{}, true},
		{"127.0.0.1", runCmd{}, false},
		{"::1", runCmd{}, false},
		{"0.0.0.0", runCmd{accessFlags: accessFlags{APIKey: &key}}, false},
		{"0.0.0.0", runCmd{operateFlags: operateFlags{APIKeys: "keys.yaml"}}, false},
	} {
		if got := c.flags.exposed(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8000}); got != c.exposed {
			t.Errorf("%s with %+v: exposed is %v, want %v", c.ip, c.flags.accessFlags, got, c.exposed)
		}
	}
}
