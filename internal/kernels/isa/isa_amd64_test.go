//go:build !purego

package isa

import (
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// TestHiddenTilesMadePairsFast: a virtual machine on Sapphire Rapids that hides the tiles took pairs of
// bfloat16 for fast, and prompts took 1.75 times as long as with float32.
func TestHiddenTilesMadePairsFast(t *testing.T) {
	for vendor, want := range map[cpuid.Vendor]bool{cpuid.Intel: true, cpuid.AMD: false, cpuid.VendorUnknown: true} {
		if got := slowPairs(vendor); got != want {
			t.Errorf("%v: slow pairs %v, want %v", vendor, got, want)
		}
	}
}
