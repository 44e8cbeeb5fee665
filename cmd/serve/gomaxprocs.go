package main

import (
	"os"
	"runtime"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// diskReaders is the number of goroutines that read weights from a disk at once. Most disks reach
// their full rate with that many or fewer.
const diskReaders = 4

// leaveRoom lets Go run more goroutines at once than the threads that compute. One more is for
// accepting a request, sending a token or handling a signal. Otherwise that waits until the
// scheduler polls the network, every 10 ms while all processors compute. Readers are for reads of
// weights: after a read, a goroutine keeps its processor for a while, so another could not start
// the next read, and the disk would idle. GOMAXPROCS in the environment takes precedence.
func leaveRoom(threads, readers int) {
	if n := threads + 1 + readers; os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// leaveRoomFor calls leaveRoom for a model's threads, with readers if some weights stay on disk.
func leaveRoomFor(m *dispatch.Model) {
	readers := 0
	if m.Status().TierBytes[devicemap.Disk] > 0 {
		readers = diskReaders
	}
	leaveRoom(m.Kernels().Threads, readers)
}
