package placement

import (
	"io/fs"

	"github.com/heftai/heft/internal/topology"
)

// RuntimeBytes is the memory that a plan reserves for the Go runtime and the program, which no
// ledger counts. The row [devicemap.DevicePlan.RuntimeBytes] also includes the memory of the
// tokenizer and the module tree.
const RuntimeBytes = 64 << 20

// These bounds estimate the Go memory of a model, which a plan adds to RuntimeBytes. Tokenizers
// of 128256 to 262144 tokens keep 62 to 107 bytes per token, and reading them takes as much
// again. Then samplers take up to 80 bytes per token.
const (
	tokenBytes  = 256       // per token of the tokenizer
	matrixBytes = 512       // per parameter, or per expert of a stack, for its description and state
	mostRuntime = 128 << 20 // of all of it, RuntimeBytes included
	expertBytes = 1536      // per expert, for reading it from the disk; see residency
)

// runtimeFrom is the smallest limit of the cpu that includes the runtime. With [Settings].Serving
// every limit includes it.
const runtimeFrom = 1 << 30

// runtimeBytes returns the memory of the Go runtime, the program, the tokenizer and the module
// tree.
func (p *Planner) runtimeBytes() int64 {
	if p.runtime > 0 {
		return p.runtime
	}
	matrices, experts := 0, 0
	for _, node := range p.skeleton.Root.Walk() {
		stacked := 0
		for _, param := range node.Params {
			if s := param.Shape; len(s) == 3 && s[1] > 1 { // stacked experts, not a convolution
				matrices, stacked = matrices+s[0], s[0]
			} else {
				matrices++
			}
		}
		experts += stacked
	}
	vocabulary := 0
	if program, err := p.compiled(); err == nil { // else the plan says why not
		vocabulary = program.Vocab()
	}
	p.runtime = min(RuntimeBytes+int64(vocabulary)*tokenBytes+int64(matrices)*matrixBytes+int64(experts)*expertBytes, mostRuntime)
	return p.runtime
}

// HostMemory returns the memory that this process may take, as the /proc and /sys below root
// tell it: the machine's available memory, or less if the limit of its control group or of its
// address space (ulimit -v) leaves less. 0 means unknown.
func HostMemory(root fs.FS) int64 {
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
