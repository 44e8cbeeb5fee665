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
// or the rest of its control group's limit if that is less. 0 means unknown.
func HostMemory() int64 { return hostMemory(os.DirFS("/")) }

// hostMemory reads a tree that has /proc and /sys.
func hostMemory(root fs.FS) int64 {
	_, available := topology.Memory(root)
	for _, g := range topology.MemoryGroups(root) {
		if available == 0 || g.Left < available {
			available = g.Left
		}
	}
	return available
}
