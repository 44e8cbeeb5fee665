package main

import (
	"runtime"
	"testing"
)

func TestLeaveRoom(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	for _, c := range []struct {
		env           string
		threads, want int
	}{{"", procs - 1, procs}, {"3", procs, procs}, {"", procs, procs + 1}, {"", procs, procs + 1}} {
		t.Setenv("GOMAXPROCS", c.env)
		if leaveRoom(c.threads); runtime.GOMAXPROCS(0) != c.want {
			t.Errorf("GOMAXPROCS=%q, %d threads: %d run at once, want %d", c.env, c.threads, runtime.GOMAXPROCS(0), c.want)
		}
	}
}
