//go:build cuda

package cuda

import (
	"runtime"

	"github.com/heftai/heft/internal/hostmem"
)

// One core copies 5 to 10 GB/s, but a PCIe link transfers 25 to 60 GB/s, so several goroutines copy
// to pinned memory.
const mostCopiers = 12

// copiers are goroutines that copy between buffers of host memory, concurrently with their caller.
type copiers struct{ work chan copying }

// A copying is one copy. When it ends, done receives nil, or the value of the panic that it caused.
type copying struct {
	to, from []byte
	done     chan any
}

// newCopiers starts n goroutines.
func newCopiers(n int) *copiers {
	c := &copiers{work: make(chan copying, fillChunks)}
	for range n {
		go func() {
			for share := range c.work {
				share.done <- hostmem.Guard(func() { copy(share.to, share.from) })
			}
		}()
	}
	return c
}

// usualCopiers starts the number of copiers that suits this machine: three quarters of the
// processors, at most mostCopiers.
func usualCopiers() *copiers { return newCopiers(max(1, min(mostCopiers, runtime.GOMAXPROCS(0)*3/4))) }

// close ends the goroutines once they have finished their queued copies.
func (c *copiers) close() { close(c.work) }
