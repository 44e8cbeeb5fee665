package dispatch

import (
	"testing"
	"time"
)

// TestNapsAreUsedWherePassesAreFaster: passes take so long in each mode, and every fourth one a multiple of it.
func TestNapsAreUsedWherePassesAreFaster(t *testing.T) {
	for name, c := range map[string]struct {
		spinning, napping time.Duration
		want              bool
	}{
		"faster":     {30, 27, true},
		"slower":     {28, 34, false},
		"no matter":  {20, 20, false},
		"hardly any": {1000, 990, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := new(naps)
			for i := range 3 * (napTrial + napPasses) {
				took := c.spinning
				if n.asleep() {
					took = c.napping
				}
				if i%8 > 5 {
					took *= 5
				}
				n.passed(took * time.Millisecond)
				if at := (i + 1) % (napTrial + napPasses); at >= napTrial && n.asleep() != c.want {
					t.Fatalf("after pass %d naps are %v, want %v", i, n.asleep(), c.want)
				}
			}
		})
	}
}

func TestNapsAllocateNothing(t *testing.T) {
	n := new(naps)
	if allocations := testing.AllocsPerRun(napTrial+napPasses, func() { n.passed(time.Millisecond) }); allocations != 0 {
		t.Errorf("%v allocations per pass, want 0", allocations)
	}
}
