//go:build linux

package topology

import (
	"math"
	"os"
	"testing"
)

func TestFreeDescriptorsCountsOpenFiles(t *testing.T) {
	before := FreeDescriptors()
	if before == math.MaxInt32 {
		return // no limit
	}
	for range 5 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if got := before - FreeDescriptors(); got != 5 {
		t.Errorf("5 files take %d descriptors", got)
	}
}
