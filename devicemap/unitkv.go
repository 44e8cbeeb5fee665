package devicemap

import (
	"slices"
	"strings"
)

// hostOnly reports whether the module at path, or one of its ancestors, is in p.HostOnly.
func (p *Policy) hostOnly(path string) bool {
	for path != "" {
		if p.HostOnly[path] {
			return true
		}
		path = path[:max(0, strings.LastIndexByte(path, '.'))]
	}
	return p.HostOnly[""]
}

// bound returns a copy of d for placing its units under p, with the units' KV caches and
// HostOnly. It replaces pins of host-only units to an accelerator by the CPU.
func (d *divider) bound(p *Policy) *divider {
	b := *d
	b.units = slices.Clone(d.units)
	for i := range b.units {
		u := &b.units[i]
		u.kv = p.UnitKV[u.path]
		if u.hostOnly = p.hostOnly(u.path); u.hostOnly && u.pin.accelerator() {
			u.pin = CPU
		}
	}
	return &b
}

// kvOn returns the bytes of the KV cache of units on device d, if it is an accelerator.
func kvOn(units []unit, d Device) (sum int64) {
	for i := range units {
		if u := &units[i]; u.at == d && d.accelerator() {
			sum += u.kv
		}
	}
	return sum
}

// moveKV returns budgets and a policy in which the CPU reserves no memory for the KV cache of
// units on accelerators, and the bytes of that. If the accelerators take more, the CPU reserves
// what its own units take.
func moveKV(units []unit, budgets []Budget, p Policy) ([]Budget, Policy, int64) {
	var moved, left int64
	for i := range units {
		if u := &units[i]; !u.at.accelerator() {
			left += u.kv
		}
	}
	budgets = slices.Clone(budgets)
	for i := range budgets {
		kv := kvOn(units, budgets[i].Device)
		budgets[i].KV += kv
		moved += kv
	}
	if host := hostOf(budgets); host >= 0 && moved > 0 {
		moved = min(moved, max(0, budgets[host].KV-left))
		budgets[host].KV -= moved
		p.SequenceKV = max(0, p.SequenceKV-moved)
	}
	return budgets, p, moved
}
