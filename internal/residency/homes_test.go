package residency

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
)

func TestHomeParts(t *testing.T) {
	const huge = hostmem.HugePage
	two := append(slices.Repeat([]int{0}, 32), slices.Repeat([]int{1}, 32)...)
	for name, c := range map[string]struct {
		offset, size int
		homes        []int
		want         []homePart
	}{
		"no homes":               {0, 8 * huge, nil, nil},
		"one node":               {0, 8 * huge, []int{0, 0}, []homePart{{0, 8 * huge, 0}}},
		"two nodes of 32":        {0, 8 * huge, two, []homePart{{0, 4 * huge, 0}, {4 * huge, 8 * huge, 1}}},
		"uneven nodes":           {0, 8 * huge, []int{0, 0, 0, 2}, []homePart{{0, 6 * huge, 0}, {6 * huge, 8 * huge, 2}}},
		"bounds on huge pages":   {0, 3*huge + 64, two, []homePart{{0, 2 * huge, 0}, {2 * huge, 3*huge + 64, 1}}},
		"second in its block":    {huge + 640, 4 * huge, two, []homePart{{huge, 3 * huge, 0}, {3 * huge, 5*huge + 640, 1}}},
		"smaller than huge page": {64, 4096, two, []homePart{{0, 4160, 1}}},
	} {
		if got := homeParts(c.offset, c.size, c.homes); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSettle asks for an existing and a missing NUMA node. Neither loses bytes.
func TestSettle(t *testing.T) {
	block, err := hostmem.Alloc(nil, hostmem.Weights, 4*hostmem.HugePage)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Release()
	settle(block.Bytes(), 0, 4*hostmem.HugePage, []int{0, 0, 900, 5000})
	for i := range block.Bytes() {
		block.Bytes()[i] = byte(i)
	}
	if block.Bytes()[hostmem.HugePage+3] != 3 {
		t.Error("a byte was lost")
	}
}
