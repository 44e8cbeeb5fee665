package dispatch

import (
	"io/fs"
	"os"

	"github.com/heftai/heft/internal/topology"
)

// RuntimeBytes is the memory that a plan keeps for the Go runtime, the tokenizer and the program,
// which no ledger counts.
const RuntimeBytes = 128 << 20

// HostMemory returns the memory in bytes that this process may take: the machine's available memory,
// or what its control group's limit or the limit of its address space (ulimit -v) leaves, if that is less. 0 means
// unknown.
func HostMemory() int64 { return hostMemory(os.DirFS("/")) }

// hostMemory reads a tree that has /proc and /sys.
func hostMemory(root fs.FS) int64 {
	_, available := topology.Memory(root)
	for _, g := range topology.MemoryGroups(root) {
		if available == 0 || g.Left < available {
			available = g.Left
		}
	}
	if limit, left := topology.AddressSpace(root); limit > 0 && (available == 0 || left < available) {
		available = max(left, 1) // 0 is unknown
	}
	return available
}
