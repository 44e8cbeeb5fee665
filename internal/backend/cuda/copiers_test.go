//go:build cuda

package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
)

// TestCopiersCopyAllBytes: of any length, by any number of goroutines.
func TestCopiersCopyAllBytes(t *testing.T) {
	from := make([]byte, 5*copierBytes+7)
	for i := range from {
		from[i] = byte(rand.Uint32())
	}
	for _, n := range []int{1, 2, 5, 9} {
		c := newCopiers(n)
		for _, length := range []int{0, 1, copierBytes, 2*copierBytes + 1, len(from)} {
			to := make([]byte, len(from))
			if got := c.copy(to, from[:length]); got != length || !bytes.Equal(to[:length], from[:length]) || !bytes.Equal(to[length:], make([]byte, len(from)-length)) {
				t.Errorf("%d copiers copied %d bytes of %d, or others", n, got, length)
			}
		}
		c.close()
	}
}

// TestCopiersPanicInTheCaller: memory that a share of another goroutine cannot read is a fault of the caller, who can
// recover, and the copiers go on.
func TestCopiersPanicInTheCaller(t *testing.T) {
	c := newCopiers(4)
	defer c.close()
	mapped, err := hostmem.Alloc(nil, hostmem.Other, 4*copierBytes)
	if err != nil {
		t.Fatal(err)
	}
	stale, to := mapped.Bytes(), make([]byte, 4*copierBytes)
	if err := mapped.Release(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, fault := hostmem.FaultAddress(hostmem.Guard(func() { c.copy(to, stale) })); !fault {
			t.Fatal("released memory was read")
		}
	}
	if from := bytes.Repeat([]byte{7}, len(to)); c.copy(to, from) != len(to) || !bytes.Equal(to, from) {
		t.Error("the copiers do not copy after a fault")
	}
}

// BenchmarkCopiers is a chunk of the pinned ring.
func BenchmarkCopiers(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCopiers(n)
			defer c.close()
			from := make([]byte, 64*fillChunkBytes)
			to := make([]byte, fillChunkBytes)
			b.SetBytes(fillChunkBytes)
			at := 0
			for b.Loop() {
				c.copy(to, from[at:at+fillChunkBytes])
				at = (at + fillChunkBytes) % len(from)
			}
		})
	}
}
