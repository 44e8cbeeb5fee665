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
