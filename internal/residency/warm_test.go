package residency

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// savedTensors is a checkpoint of tensors of so many bytes, side by side in this order.
func savedTensors(t *testing.T, sizes ...int) (*loader.Checkpoint, []*loader.Tensor) {
	t.Helper()
	var tensors []loader.NamedTensor
	for i, n := range sizes {
		tensors = append(tensors, loader.NamedTensor{Name: string(rune('a' + i)), DType: meta.Uint8, Shape: []int{n},
			Bytes: func() ([]byte, error) { return bytes.Repeat([]byte{byte(i + 1)}, n), nil }})
	}
	dir := t.TempDir()
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	out := slices.SortedFunc(c.Tensors(), func(a, b *loader.Tensor) int { return compare(a.Offset, b.Offset) })
	return c, out
}

// TestSpans: what lies side by side is one span, in any order of use; gaps part them.
func TestSpans(t *testing.T) {
	_, all := savedTensors(t, 4096, 10, 5000, 64, 100)
	whole := func(i int) stored.Range { return stored.Range{Tensor: all[i], Begin: 0, Size: all[i].Size} }
	got := spans([]stored.Piece{
		{Ranges: []stored.Range{whole(1)}},
		{Ranges: []stored.Range{whole(0)}},
		{Ranges: []stored.Range{{Tensor: all[2], Begin: 0, Size: 3000}}},
		{Ranges: []stored.Range{whole(4), whole(3)}},
	})
	want := []struct {
		ranges    int
		off, size int64
	}{{3, all[0].Offset, 4096 + 10 + 3000}, {2, all[3].Offset, 164}}
	if len(got) != len(want) {
		t.Fatalf("%d spans, want %d", len(got), len(want))
	}
	for i, w := range want {
		if len(got[i].ranges) != w.ranges || got[i].off != w.off || got[i].size != w.size {
			t.Errorf("span %d: %d ranges at %d of %d bytes, want %+v", i, len(got[i].ranges), got[i].off, got[i].size, w)
		}
	}
}

// TestTouchTellsOfACutFile: whether the system populates or pages are touched, a shard that
// was cut is an error, and what it says was read is not counted.
func TestTouchTellsOfACutFile(t *testing.T) {
	_, all := savedTensors(t, 1<<20, 1<<20)
	var s Store
	x := spans([]stored.Piece{{Ranges: []stored.Range{{Tensor: all[0], Size: all[0].Size}, {Tensor: all[1], Size: all[1].Size}}}})[0]
	if err := s.touch(context.Background(), x); err != nil || s.warm.bytes.Load() != 2<<20 {
		t.Fatalf("%d bytes of a whole file: %v", s.warm.bytes.Load(), err)
	}
	if err := os.Truncate(filepath.Join(all[0].File.Path), all[1].Offset+4096); err != nil {
		t.Fatal(err)
	}
	s.warm.bytes.Store(0)
	if err := s.touch(context.Background(), x); err == nil {
		t.Error("a cut file gave no error")
	}
	if n := s.warm.bytes.Load(); n != 1<<20 {
		t.Errorf("%d bytes counted, want those of the tensor that is there", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.touch(ctx, x); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// TestAwait: one that computes waits for what Warm is about to bring, for as long as it runs.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w progress
		w.changed.L = &w.mu
		var unknown, first, second entry
		w.await(&unknown) // Warm does not bring it
		first.warm.Store(warmLater)
		second.warm.Store(warmLater)
		passed := 0
		go func() {
			w.await(&first)
			passed = 1
			w.await(&second)
			passed = 2
		}()
		for want, step := range []func(){func() {}, func() { w.brought([]*entry{&first}) }, func() {
			w.mu.Lock()
			w.over = true // it failed
			w.mu.Unlock()
			w.changed.Broadcast()
		}} {
			step()
			if synctest.Wait(); passed != want {
				t.Errorf("after step %d: passed %d", want, passed)
			}
		}
	})
}
