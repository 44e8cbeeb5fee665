package kvcache

import (
	"errors"
	"slices"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestALoneSequenceMayExceedAResizedCache: when the memory limit falls, requests go on one after
// another; the one that is left always gets its pages.
func TestALoneSequenceMayExceedAResizedCache(t *testing.T) {
	c := newCache(t, 8)
	a, b := c.NewSequence(0), c.NewSequence(0)
	for _, s := range []*Sequence{a, b} {
		if err := s.Reserve(8, 8); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.Resize(1); n != 4 {
		t.Errorf("%d pages are usable, want the 4 in use", n)
	}
	if err := a.Reserve(12, 12); !errors.Is(err, ErrFull) {
		t.Errorf("two sequences: got %v, want ErrFull", err)
	}
	b.Free()
	if n := c.Resize(1); n != 2 {
		t.Errorf("%d pages are usable, want the 2 in use", n)
	}
	if err := a.Reserve(32, 32); err != nil {
		t.Errorf("a sequence alone: %v", err)
	}
	if usable, used := c.PageMemory(); usable != 8 || used != 8 {
		t.Errorf("%d pages usable, %d used, want all 8", usable, used)
	}
	a.Free()
	if n := c.Resize(0); n != 0 {
		t.Errorf("%d pages are usable in an empty cache", n)
	}
	if n := c.Resize(100); n != 8 || c.Available() != 8 {
		t.Errorf("%d pages are usable, %d free, want 8", n, c.Available())
	}
}

// A cache starts with fewer pages than it may grow to. A sequence that is alone takes the first pages
// only, Missing returns the pages that a reservation lacks, and Resize adds them.
func TestACacheStartsSmall(t *testing.T) {
	config := Config{Layers: []LayerShape{{KWidth: 8, VWidth: 8}}, DType: meta.Float32, PageTokens: 4, Pages: 10, Start: 3}
	c, err := New(&heap{}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := c.NewSequence(0)
	if err := s.Reserve(13, 13); !errors.Is(err, ErrFull) || s.Missing(13, 13) != 1 || s.Missing(12, 12) != 0 {
		t.Fatalf("13 tokens in 3 pages: %v, %d missing", err, s.Missing(13, 13))
	}
	if n := c.Resize(4); n != 4 || s.Missing(13, 13) != 0 {
		t.Errorf("%d pages, %d missing", n, s.Missing(13, 13))
	}
	if err := s.Reserve(13, 13); err != nil || slices.Max(s.Pages(0)) != 3 {
		t.Errorf("13 tokens in 4 pages: %v, pages %v", err, s.Pages(0))
	}
	if usable, used := c.PageMemory(); usable != 4 || used != 4 {
		t.Errorf("%d of %d pages used", used, usable)
	}
	config.Start = 11
	if _, err := New(&heap{}, config); err == nil {
		t.Error("more pages at the start than there are")
	}
}
