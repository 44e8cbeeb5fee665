package residency

import "github.com/heftai/heft/internal/hostmem"

// A homePart is the range of a matrix's bytes that threads of one NUMA node use.
type homePart struct {
	begin, end int
	node       int
}

// homeParts divides size bytes at an offset from a huge-page boundary as the threads divide a
// matrix's rows: evenly and in order. homes are the threads' NUMA nodes. Boundaries are rounded
// to huge pages. A matrix that is too small to divide stays whole.
func homeParts(offset, size int, homes []int) []homePart {
	var parts []homePart
	for i := 0; i < len(homes); {
		last := i
		for last < len(homes) && homes[last] == homes[i] {
			last++
		}
		part := homePart{begin: bound(offset, size, i, len(homes)), end: bound(offset, size, last, len(homes)), node: homes[i]}
		if part.begin < part.end {
			parts = append(parts, part)
		}
		i = last
	}
	return parts
}

// bound returns the offset at which the rows of thread i of n begin.
func bound(offset, size, i, n int) int {
	at := offset + int(int64(size)*int64(i)/int64(n))
	switch i {
	case 0:
		return offset &^ (hostmem.HugePage - 1)
	case n:
		return at
	}
	return (at + hostmem.HugePage/2) &^ (hostmem.HugePage - 1)
}

// settle asks the operating system to place a matrix near the threads that will use it. The
// matrix is at an offset of a block that was not written to. Without homes settle does nothing.
func settle(block []byte, offset, size int, homes []int) {
	if len(homes) == 0 || len(block) < hostmem.HugePage {
		return
	}
	into := hostmem.IntoHugePage(block)
	for _, p := range homeParts(into+offset, size, homes) {
		_ = hostmem.PreferNode(block[max(p.begin-into, 0):p.end-into], p.node) // only a hint
	}
}
