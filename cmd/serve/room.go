package main

import (
	"os"
	"runtime"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// diskReaders is the number of goroutines that read weights from a disk at once; most disks are
// fastest with at most so many.
const diskReaders = 4

// leaveRoom lets Go run more goroutines at once than threads that compute. One is for accepting a
// request, sending a token or handling a signal: it would wait until the scheduler polls the network,
// every 10 ms while all processors compute. Readers are for reads of weights: a goroutine that has
// read keeps its processor for a while, so another could not begin the next read and the disk would
// idle. GOMAXPROCS in the environment takes precedence.
func leaveRoom(threads, readers int) {
	if n := threads + 1 + readers; os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// leaveRoomFor leaves room beside a model that computes: for reads of weights if some stay on the disk.
func leaveRoomFor(m *dispatch.Model) {
	readers := 0
	if m.Status().TierBytes[devicemap.Disk] > 0 {
		readers = diskReaders
	}
	leaveRoom(m.Kernels().Threads, readers)
}
