package dispatch

import (
	"slices"
	"time"
)

// Adapters that are always in use would keep the memory from others for ever. A refused adapter therefore gets
// a turn: after loraPatience no adapter begins another use, until those in use have left and the
// refused one is in memory.
const (
	loraPatience = 5 * time.Second
	// loraGrace ends a turn that nothing takes, of a caller that does not try again.
	loraGrace = 30 * time.Second
)

// A loraWait is an adapter that was refused for lack of memory and has had none since.
type loraWait struct {
	model *Model
	name  string
	since time.Time
	grace *time.Timer // nil before its turn
}

// refuse notes that an adapter has no room. The lock is held.
func (p *adapterPool) refuse(m *Model, name string) error {
	if !slices.Contains(p.refused, m) {
		p.refused = append(p.refused, m)
	}
	if p.wait(m, name) < 0 {
		p.waits = append(p.waits, &loraWait{model: m, name: name, since: time.Now()})
	}
	return ErrAdaptersFull
}

// wait returns the index of the wait for an adapter, or -1. The lock is held.
func (p *adapterPool) wait(m *Model, name string) int {
	return slices.IndexFunc(p.waits, func(w *loraWait) bool { return w.model == m && w.name == name })
}

// holdsBack reports whether it is the turn of another adapter. The lock is held.
func (p *adapterPool) holdsBack(m *Model, name string) bool {
	if len(p.waits) == 0 {
		return false
	}
	first := p.waits[0]
	if first.model == m && first.name == name || time.Since(first.since) < loraPatience {
		return false
	}
	if first.grace == nil {
		first.grace = time.AfterFunc(loraGrace, func() { p.abandon(first) })
	}
	return true
}

// abandon ends a turn that was not taken although there is room for it.
func (p *adapterPool) abandon(w *loraWait) {
	p.Lock()
	i := slices.Index(p.waits, w)
	if i < 0 {
		p.Unlock()
		return
	}
	if p.inUse() {
		w.grace.Reset(loraGrace)
		p.Unlock()
		return
	}
	refused := p.endWait(i)
	p.Unlock()
	notify(refused)
}

// endWait removes a wait and returns the models to tell. The lock is held.
func (p *adapterPool) endWait(i int) (refused []*Model) {
	if i < 0 {
		return nil
	}
	p.waits[i].stop()
	p.waits = slices.Delete(p.waits, i, i+1)
	refused, p.refused = p.refused, nil
	return refused
}

// endWaits removes the waits of a model. The lock is held.
func (p *adapterPool) endWaits(m *Model) {
	p.waits = slices.DeleteFunc(p.waits, func(w *loraWait) bool {
		if w.model == m {
			w.stop()
		}
		return w.model == m
	})
}

// stop ends the time for taking a turn.
func (w *loraWait) stop() {
	if w.grace != nil {
		w.grace.Stop()
	}
}

// StopWaiting says that no sequence waits any longer for the adapter called name, for which
// [Model.NewAdaptedSequence] returned [ErrAdaptersFull]. Otherwise the adapters that were requested after it wait until
// it has been used. Any goroutine may call it.
func (m *Model) StopWaiting(name string) {
	p := m.pool()
	p.Lock()
	refused := p.endWait(p.wait(m, name))
	p.Unlock()
	notify(refused)
}
