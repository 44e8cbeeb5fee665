package hostmem

import (
	"bytes"
	"os"
	"testing"
)

// TestDiscardReturnsWholePages: pages that b covers in part keep their contents.
func TestDiscardReturnsWholePages(t *testing.T) {
	page := os.Getpagesize()
	block, err := Alloc(nil, Other, 8*page)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Release()
	b := block.Bytes()
	for i := range b {
		b[i] = 1
	}
	if n := Discard(b[page/2 : 4*page+page/2]); n != int64(3*page) {
		t.Errorf("%d bytes, want 3 pages", n)
	}
	if bytes.Count(b, []byte{0}) != 3*page || b[page-1] != 1 || b[4*page] != 1 {
		t.Error("the wrong bytes are gone")
	}
	if n := Discard(b[1 : page-1]); n != 0 {
		t.Errorf("%d bytes of less than a page", n)
	}
}
