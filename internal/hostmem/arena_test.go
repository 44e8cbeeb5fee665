package hostmem

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// A heldBlock is a block that is filled with a value.
type heldBlock struct {
	*Block
	value byte
}

func newHeldBlock(t *testing.T, a *Arena, rng *rand.Rand) heldBlock {
	t.Helper()
	n := 1 + rng.IntN([]int{100, 20000, 300000, 3 << 20}[rng.IntN(4)])
	b, err := a.Alloc(Purpose(rng.IntN(2)), n)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Bytes()) != n || cap(b.Bytes()) != n || address(b.Bytes())%4096 != 0 {
		t.Fatalf("block of %d: len %d, cap %d at %#x", n, len(b.Bytes()), cap(b.Bytes()), address(b.Bytes()))
	}
	if !bytes.Equal(b.Bytes(), make([]byte, n)) {
		t.Fatalf("a new block of %d bytes does not contain zeros", n)
	}
	h := heldBlock{b, byte(1 + rng.IntN(255))}
	for i := range b.Bytes() {
		b.Bytes()[i] = h.value
	}
	return h
}

func (h heldBlock) release(t *testing.T) {
	t.Helper()
	for _, b := range h.Bytes() {
		if b != h.value {
			t.Fatalf("a block of %d bytes has %d, want %d: another block overlaps it", len(h.Bytes()), b, h.value)
		}
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); !errors.Is(err, ErrReleased) {
		t.Fatalf("second release: %v", err)
	}
}

// TestArenaBlocks: over random sizes and orders of releases, blocks begin with zeros, keep what is
// written to them, and are counted; in the end nothing is left.
func TestArenaBlocks(t *testing.T) {
	for seed := range uint64(6) {
		var l Ledger
		a := Arena{Ledger: &l, Size: 8 << 20}
		rng := rand.New(rand.NewPCG(seed, 4))
		var all []heldBlock
		for range 80 {
			if i := rng.IntN(len(all) + 1); i < len(all) && rng.IntN(5) < 2 {
				all[i].release(t)
				all = slices.Delete(all, i, i+1)
				continue
			}
			all = append(all, newHeldBlock(t, &a, rng))
		}
		var sum int64
		for _, h := range all {
			sum += int64(Up(len(h.Bytes()), os.Getpagesize()))
		}
		if l.Total() != sum {
			t.Errorf("the ledger has %d, want %d", l.Total(), sum)
		}
		if st := a.Stats(); runtime.GOOS == "linux" && (st.Bytes != sum || st.Blocks != len(all) || int64(st.HugePages)*HugePage < sum) {
			t.Errorf("%+v, want %d blocks of %d bytes", st, len(all), sum)
		}
		for _, h := range all {
			h.release(t)
		}
		if st := a.Stats(); l.Total() != 0 || st != (ArenaStats{}) {
			t.Errorf("in the end: %d bytes and %+v", l.Total(), st)
		}
	}
}

func TestArenaRejectsBadSizes(t *testing.T) {
	var a Arena
	if _, err := a.Alloc(Weights, -1); err == nil {
		t.Error("a negative size: got no error")
	}
	b, err := a.Alloc(Weights, 0)
	if err != nil || len(b.Bytes()) != 0 || b.Release() != nil {
		t.Errorf("an empty block: %v", err)
	}
}

// TestArenaServesManyGoroutines is for the race detector.
func TestArenaServesManyGoroutines(t *testing.T) {
	var a Arena
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 30 {
				b, err := a.Alloc(Staging, 1+n*(i+1)*4000)
				if err != nil {
					t.Error(err)
					return
				}
				b.Bytes()[0] = 1
				_ = b.Release()
			}
		})
	}
	group.Wait()
	if st := a.Stats(); st != (ArenaStats{}) {
		t.Errorf("in the end: %+v", st)
	}
}

// BenchmarkArena allocates and releases blocks between many others.
func BenchmarkArena(b *testing.B) {
	a := Arena{Size: 1 << 40}
	var blocks []*Block
	for range 2000 {
		block, err := a.Alloc(Weights, 3<<20)
		if err != nil {
			b.Fatal(err)
		}
		blocks = append(blocks, block)
	}
	for i := 0; b.Loop(); i++ {
		at := i * 7919 % len(blocks)
		_ = blocks[at].Release()
		blocks[at], _ = a.Alloc(Weights, 3<<20)
	}
}
