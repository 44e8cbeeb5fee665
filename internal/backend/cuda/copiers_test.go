//go:build cuda

package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
)

// copyAll copies from to to in pieces, and returns the value of a piece's panic, or nil.
func copyAll(c *copiers, to, from []byte, piece int) (panicked any) {
	done, pieces := make(chan any, len(from)/piece+1), 0
	for at := 0; at < len(from); at += piece {
		n := min(piece, len(from)-at)
		c.work <- copying{to[at : at+n], from[at : at+n], done}
		pieces++
	}
	for range pieces {
		if p := <-done; p != nil {
			panicked = p
		}
	}
	return panicked
}

// TestCopiersCopyAllBytes: of any length, by any number of goroutines.
func TestCopiersCopyAllBytes(t *testing.T) {
	from := make([]byte, 5<<16+7)
	for i := range from {
		from[i] = byte(rand.Uint32())
	}
	for _, n := range []int{1, 2, 5, 9} {
		c := newCopiers(n)
		for _, length := range []int{0, 1, 1 << 16, 2<<16 + 1, len(from)} {
			to := make([]byte, len(from))
			if p := copyAll(c, to, from[:length], 1<<16); p != nil || !bytes.Equal(to[:length], from[:length]) || !bytes.Equal(to[length:], make([]byte, len(from)-length)) {
				t.Errorf("%d copiers did not copy %d bytes, or others too (%v)", n, length, p)
			}
		}
		c.close()
	}
}

// TestCopiersReportFaults: if a goroutine cannot read memory, its caller gets the fault, and the
// copiers continue.
func TestCopiersReportFaults(t *testing.T) {
	c := newCopiers(4)
	defer c.close()
	mapped, err := hostmem.Alloc(nil, hostmem.Other, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	stale, to := mapped.Bytes(), make([]byte, 1<<20)
	if err := mapped.Release(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, fault := hostmem.FaultAddress(copyAll(c, to, stale, 1<<18)); !fault {
			t.Fatal("released memory was read")
		}
	}
	if from := bytes.Repeat([]byte{7}, len(to)); copyAll(c, to, from, 1<<18) != nil || !bytes.Equal(to, from) {
		t.Error("the copiers do not copy after a fault")
	}
}

// BenchmarkCopiers copies to memory of the size of the pinned ring.
func BenchmarkCopiers(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8, 12} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCopiers(n)
			defer c.close()
			from, to := make([]byte, 64*fillChunkBytes), make([]byte, fillChunks*fillChunkBytes)
			clear(from)
			b.SetBytes(int64(len(to)))
			at := 0
			for b.Loop() {
				copyAll(c, to, from[at:at+len(to)], fillChunkBytes)
				at = (at + len(to)) % len(from)
			}
		})
	}
}
