package kvcache

import (
	"slices"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestLayersOfOtherHeadsSharedPages: layers of equal width and other heads shared pages, whose keys then
// had the heads of the first layer.
func TestLayersOfOtherHeadsSharedPages(t *testing.T) {
	c := Config{DType: meta.Float32, PageTokens: 16, Pages: 4, Layers: []LayerShape{
		{KWidth: 16, VWidth: 16, Heads: 2, Window: 8}, {KWidth: 16, VWidth: 16, Heads: 1},
	}}
	l := c.layout()
	if !slices.Equal(l.slots, c.Layers) || !slices.Equal(l.windows, []int{0}) {
		t.Errorf("slots %+v for windows %v, want those of each layer in one group", l.slots, l.windows)
	}
}

// TestReadBytes: a token reads the keys and values within each layer's window, and reads and writes
// the states.
func TestReadBytes(t *testing.T) {
	c := Config{DType: meta.BFloat16, States: []int{10, 0}, Layers: []LayerShape{
		{KWidth: 16, VWidth: 8, Heads: 2, Window: 8}, {KWidth: 32, Heads: 1},
	}}
	states := 2 * c.StateBytes()
	if states == 0 {
		t.Fatal("the states take no memory")
	}
	for n, want := range map[int]int64{0: 0, 5: 5 * (48 + 64), 100: 8*48 + 100*64} {
		if got := c.ReadBytes(n); got != want+states {
			t.Errorf("%d tokens: %d bytes, want %d", n, got, want+states)
		}
	}
}
