package main

import (
	"runtime/debug"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// activationBytes estimates the memory that a token of a batch needs until backward: inputs,
// outputs and activations of the blocks' linear maps.
func activationBytes(m *meta.Model) int64 {
	head := ""
	if s, ok := m.Root.Spec.(*meta.CausalLMSpec); ok {
		head = s.Head
	}
	var floats int64
	for path, node := range m.Root.Walk() {
		switch s := node.Spec.(type) {
		case *meta.LinearSpec:
			if path != head {
				floats += int64(s.In + 2*s.Out)
			}
		case *meta.MoESpec:
			experts := node.Find(s.Experts)
			if experts == nil || experts.Param(s.GateUp) == nil {
				continue
			}
			if shape := experts.Param(s.GateUp).Shape; len(shape) == 3 { // [E, 2·F, H]
				floats += int64(s.TopK) * int64(3*shape[2]+3*shape[1])
			}
		}
	}
	return 4 * floats
}

// recomputes decides --recompute auto for a batch. It is on if the activations would take more than
// 2 GiB or, if all weights train, more than a quarter of the free memory if that is larger. The
// weights are bitwise the same either way.
func (j *job) recomputes(m *meta.Model) bool {
	switch j.Recompute {
	case "on":
		return true
	case "off":
		return false
	}
	limit := int64(2 << 30)
	if host := dispatch.DescribeHost(); j.LoRA == "" {
		limit = max(limit, host.AvailableBytes/4)
	}
	longest := 0
	for _, s := range j.data.train {
		longest = max(longest, len(s.IDs))
	}
	return int64(j.Batch*j.ranks*longest)*activationBytes(m) > limit
}

// keepLittle makes the garbage collector run when garbage is a tenth of the heap. The heap is
// mostly weights, gradients and optimizer state, which the collector does not scan.
func keepLittle() { debug.SetGCPercent(10) }
