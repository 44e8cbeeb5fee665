package dispatch

import (
	"io/fs"
	"os"

	"github.com/heftai/heft/internal/topology"
)

// RuntimeBytes is the memory that a plan keeps for the Go runtime and the program, which no ledger counts. The row
// [devicemap.DevicePlan.RuntimeBytes] has the additional memory of the tokenizer and the module tree.
const RuntimeBytes = 64 << 20

// What a model takes of Go's memory, which a plan adds to RuntimeBytes. Tokenizers of 128256 to 262144 tokens keep 62
// to 107 bytes a token, and reading them takes as much again.
const (
	tokenBytes  = 256       // of the tokenizer
	matrixBytes = 512       // of the description and the state of a parameter, or of one expert's part of it
	mostRuntime = 128 << 20 // RuntimeBytes included
)

// runtimeFrom is the limit of the cpu from which it includes the runtime. [Options].Serving includes it at any limit.
const runtimeFrom = 1 << 30

// runtimeBytes is the memory of the Go runtime, the program, the tokenizer and the description of the planned model.
func (p *Planner) runtimeBytes() int64 {
	if p.runtime > 0 {
		return p.runtime
	}
	matrices := 0
	for _, param := range p.skeleton.Root.AllParams() {
		if s := param.Shape; len(s) == 3 && s[1] > 1 { // stacked experts, not a convolution
			matrices += s[0]
		} else {
			matrices++
		}
	}
	vocabulary := 0
	if program, err := p.compiled(); err == nil { // else the plan says why not
		vocabulary = program.Vocab()
	}
	p.runtime = min(RuntimeBytes+int64(vocabulary)*tokenBytes+int64(matrices)*matrixBytes, mostRuntime)
	return p.runtime
}

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
