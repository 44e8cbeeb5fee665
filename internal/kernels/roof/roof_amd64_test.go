//go:build !purego

package roof

import (
	"testing"

	"github.com/heftai/heft/internal/kernels/asm"
	"golang.org/x/sys/cpu"
)

// TestRoofsOfLessRun: what processors without AVX-512 are measured by runs on one that has it, too,
// and reads all.
func TestRoofsOfLessRun(t *testing.T) {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return
	}
	b := make([]byte, 3*readUnit)
	for i := range b {
		b[i] = byte(7 * i)
	}
	var want, got [64]byte
	readPlain(b, &want)
	roofRead2x8(asm.Bytes(b), int64(len(b)), asm.Bytes(got[:]))
	fold := func(v [64]byte) (x byte) {
		for _, b := range v {
			x ^= b
		}
		return x
	}
	if fold(got) != fold(want) {
		t.Errorf("the sum of %d bytes is %d, want %d", len(b), fold(got), fold(want))
	}
	roofFloat2(1000)
}
