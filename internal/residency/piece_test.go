package residency

import (
	"strings"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/loader"
)

// TestOnlyMemoryFaultsAreReportedAsTruncation: other read errors do not say that the tensor file is truncated.
func TestOnlyMemoryFaultsAreReportedAsTruncation(t *testing.T) {
	x := &loader.Tensor{Name: "a.weight"}
	var none []byte
	if err := reading(x, func() { none[3] = 1 }); err == nil || strings.Contains(err.Error(), "cut short") || !strings.Contains(err.Error(), "a.weight") {
		t.Errorf("a flaw of the program: %v", err)
	}
	block, err := hostmem.Alloc(nil, hostmem.Other, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	gone := block.Bytes()
	if err := block.Release(); err != nil {
		t.Fatal(err)
	}
	if err := reading(x, func() { touched.Store(uint32(gone[0])) }); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("memory that is gone: %v", err)
	}
}
