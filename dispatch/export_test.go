package dispatch

import "github.com/heftai/heft/internal/topology"

// On is o for a model that is placed as on the machine m.
func (o Options) On(m *topology.Machine) Options {
	o.machine = m
	return o
}
