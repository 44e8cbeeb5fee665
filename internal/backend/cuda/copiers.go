//go:build cuda

package cuda

import (
	"runtime"

	"github.com/heftai/heft/internal/hostmem"
)

// One core copies 5 to 10 GB/s, and a link takes 25 to 60, so several goroutines copy to pinned memory.
const (
	mostCopiers = 8
	copierBytes = 256 << 10 // at least, for each of them
)

// copiers copy between memory of the host. One goroutine uses them at a time.
type copiers struct {
	work []chan copying // of all but the caller
	done chan any       // what a copier's panic was, or nil
}

// A copying is one copier's share.
type copying struct{ to, from []byte }

// newCopiers starts goroutines for up to n copiers, the caller among them.
func newCopiers(n int) *copiers {
	c := &copiers{done: make(chan any, n)}
	for range n - 1 {
		work := make(chan copying, 1)
		c.work = append(c.work, work)
		go func() {
			for share := range work {
				c.done <- hostmem.Guard(func() { copy(share.to, share.from) })
			}
		}()
	}
	return c
}

// usualCopiers are those of this machine.
func usualCopiers() *copiers { return newCopiers(max(1, min(mostCopiers, runtime.GOMAXPROCS(0)/2))) }

// copy copies from to to, and returns how many bytes. If memory of a mapped file cannot be read, it panics as the
// copy of one goroutine does.
func (c *copiers) copy(to, from []byte) int {
	n := min(len(to), len(from))
	shares := max(1, min(len(c.work)+1, n/copierBytes))
	each := n / shares
	for i := range shares - 1 {
		c.work[i] <- copying{to[i*each : (i+1)*each], from[i*each : (i+1)*each]}
	}
	panicked := hostmem.Guard(func() { copy(to[(shares-1)*each:n], from[(shares-1)*each:n]) })
	for range shares - 1 {
		if p := <-c.done; p != nil {
			panicked = p
		}
	}
	if panicked != nil {
		panic(panicked)
	}
	return n
}

// close ends the goroutines.
func (c *copiers) close() {
	for _, w := range c.work {
		close(w)
	}
}
