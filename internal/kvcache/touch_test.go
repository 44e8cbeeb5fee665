package kvcache

import (
	"testing"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// touched is memory that counts the bytes that were touched.
type touched struct {
	heap
	bytes int64
}

func (m *touched) Touch(_ tensor.Tensor, begin, end int64) { m.bytes += end - begin }

// TestTheFirstPromptWaitedForFreshPages: the pages that a first sequence takes are touched, but none
// of those that are not usable, and none once a sequence has pages.
func TestTheFirstPromptWaitedForFreshPages(t *testing.T) {
	config := Config{Layers: []LayerShape{{KWidth: 8, VWidth: 4}, {KWidth: 8, VWidth: 4}}, DType: meta.Float32, PageTokens: 4, Pages: 10, Start: 3}
	const token = 2 * (8 + 4) * 4
	always := func() bool { return true }
	for _, c := range []struct {
		name    string
		tokens  int
		more    func() bool
		before  func(c *Cache)
		touched int64
	}{
		{"whole pages", 5, always, nil, 8 * token},
		{"usable pages", 100, always, nil, 12 * token},
		{"stopped", 5, func() bool { return false }, nil, 0},
		{"taken by a sequence", 5, always, func(c *Cache) { _ = c.NewSequence(0).Reserve(1, 1) }, 0},
		{"taken by a limit", 5, always, func(c *Cache) { c.Resize(1) }, 0},
		{"fewer by a limit", 5, always, func(c *Cache) { c.Resize(0); c.Resize(2) }, 0},
	} {
		m := &touched{}
		cache, err := New(m, config)
		if err != nil {
			t.Fatal(err)
		}
		if c.before != nil {
			c.before(cache)
		}
		if all := cache.Touch(c.tokens, c.more); m.bytes != c.touched || all != (c.touched > 0) {
			t.Errorf("%s: touched %d bytes, want %d; all: %v", c.name, m.bytes, c.touched, all)
		}
		cache.Close()
	}
}
