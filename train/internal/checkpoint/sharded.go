package checkpoint

import "github.com/heftai/heft/train/tensor"

// Gathered calls f while the values of m's sharded parameters are in memory, so that one rank can
// read them. Meanwhile the values take the memory of the whole parameters on each rank. It
// returns the first error. All ranks must call it.
func Gathered(m tensor.Module, f func() error) error {
	var held []*tensor.Parameter
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	seen := map[*tensor.Parameter]bool{}
	for _, p := range m.Parameters() {
		if p == nil || seen[p] {
			continue
		}
		seen[p] = true
		if s, ok := p.Storage().(tensor.Sharded); !ok || s.Ranks() < 2 {
			continue
		}
		if _, err := p.Acquire(false); err != nil {
			note(err)
			continue // the other ranks wait for this one at the next parameter
		}
		held = append(held, p)
	}
	if first == nil {
		note(f())
	}
	for _, p := range held {
		note(p.Release(false))
	}
	return first
}
