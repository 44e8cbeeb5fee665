package main

import (
	"runtime/debug"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// activationBytes is about what a token of a batch keeps for backward: what goes into
// each linear map of the blocks, what comes out, and what is made of that.
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

// recomputes decides what --recompute auto means for a batch: whether what it keeps for
// backward is more than 2 GiB, or, where all weights are trained and take several times
// as much anyhow, than a quarter of the memory that is free. Either way gives the same
// weights bit for bit.
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

// keepLittle lets the garbage collector run when a tenth of what is in use is garbage: what is
// in use are weights, gradients and the optimizer's state, which it need not look into.
func keepLittle() { debug.SetGCPercent(10) }
