package kvcache

import (
	"errors"
	"testing"
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
