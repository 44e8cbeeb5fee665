package main

import (
	"runtime"
	"testing"
)

func TestGOMAXPROCSLeavesRoomForReaders(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	for _, c := range []struct {
		env                    string
		threads, readers, want int
	}{{"", procs - 1, 0, procs}, {"3", procs, 4, procs}, {"", procs, 0, procs + 1}, {"", procs, 4, procs + 5}, {"", procs, 0, procs + 5}} {
		t.Setenv("GOMAXPROCS", c.env)
		if leaveRoom(c.threads, c.readers); runtime.GOMAXPROCS(0) != c.want {
			t.Errorf("GOMAXPROCS=%q, %d threads, %d readers: %d run at once, want %d", c.env, c.threads, c.readers, runtime.GOMAXPROCS(0), c.want)
		}
	}
}
