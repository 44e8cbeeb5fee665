//go:build cuda

package cuda

import (
	"runtime"

	"github.com/heftai/heft/internal/hostmem"
)

// One core copies 5 to 10 GB/s, and a link takes 25 to 60, so several goroutines copy to pinned memory.
const mostCopiers = 12

// copiers copy between memory of the host beside their caller.
type copiers struct{ work chan copying }

// A copying is one copy, after which done gets nil, or what the copy's panic was.
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

// usualCopiers are those of this machine.
func usualCopiers() *copiers { return newCopiers(max(1, min(mostCopiers, runtime.GOMAXPROCS(0)*3/4))) }

// close ends the goroutines.
func (c *copiers) close() { close(c.work) }
