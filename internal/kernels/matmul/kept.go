package matmul

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels"
)

// kept are panels of weights that the next products with the same weights use again.
type kept struct {
	memory []uint32 // that is not used yet
	panels map[keptKey][]uint32
}

// keptKey is a block of a weight. Its panels depend on nothing else.
type keptKey struct {
	data            *byte
	stride          int
	turned          bool
	k, n, col, cols int
}

// Keeps reports whether [Multiplier.Keep] has an effect for weights stored as bfloat16.
func Keeps(set *kernels.Set) bool { return KernelFor(set, true, minPartsTerms) != Panels }

// Keep keeps the panels of right operands that are stored as bfloat16 in memory, as far as it is large enough, so that later
// products do not pack them again. No such operand may change or move before the next Keep, which forgets them. nil keeps none.
// No bit of a result depends on it.
func (m *Multiplier) Keep(memory []uint32) {
	m.kept.memory = memory
	clear(m.kept.panels)
}

// takePanels gives a block of b memory for its panels, of n words, or those that are kept: then b is not packed.
func (m *Multiplier) takePanels(n int) {
	if m.p.b.halves() && m.kept.memory != nil && m.keepPanels(n) {
		return
	}
	m.panels = atLeast(m.panels, n)
	m.p.panels = m.panels
}

// keepPanels is takePanels from the memory of Keep. It reports whether that had the panels or room for them.
func (m *Multiplier) keepPanels(n int) bool {
	p := &m.p
	w := p.b.Stored
	key := keptKey{unsafe.SliceData(w.Data), w.Stride, p.b.Turned, p.k, p.n, p.col, p.cols}
	if v, ok := m.kept.panels[key]; ok {
		p.panels, p.packed = v, p.packLeft
		return true
	}
	if n > len(m.kept.memory) {
		return false
	}
	if m.kept.panels == nil {
		m.kept.panels = map[keptKey][]uint32{}
	}
	p.panels, m.kept.memory = m.kept.memory[:n:n], m.kept.memory[n:]
	m.kept.panels[key] = p.panels
	return true
}
