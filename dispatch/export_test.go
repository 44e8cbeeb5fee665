package dispatch

import "github.com/heftai/heft/internal/topology"

// On is o for a model that is placed as on the machine m.
func (o Options) On(m *topology.Machine) Options {
	o.machine = m
	return o
}

// Intercept is called instead of each read of weights of the models that l counts.
func (l *Ledger) Intercept(f func(read func() error) error) { l.mover.Intercept = f }

// InTiles is o for a model whose blocks process so many rows together.
func (o Options) InTiles(rows int) Options {
	o.tile = rows
	return o
}

// UngrowKV returns the KV cache to the size of the plan, as after some idle time.
func (m *Model) UngrowKV() { m.ungrowKV() }
