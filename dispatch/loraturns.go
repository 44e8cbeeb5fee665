package dispatch

import (
	"slices"
	"time"
)

// Adapters that are always in use would keep others out of the memory forever. A rejected adapter
// therefore gets a turn: after loraPatience, no other adapter begins a new use until the current
// uses have ended and the rejected adapter is loaded.
const (
	loraPatience = 5 * time.Second
	// loraGrace ends a turn that is not taken, because its caller does not try again.
	loraGrace = 30 * time.Second
)

// A loraWait is an adapter that was rejected for lack of memory and has not been loaded since.
type loraWait struct {
	model *Model
	name  string
	since time.Time
	grace *time.Timer // nil before its turn
}

// refuse records that there is no room for an adapter. The caller holds the lock.
func (p *adapterPool) refuse(m *Model, name string) error {
	if !slices.Contains(p.refused, m) {
		p.refused = append(p.refused, m)
	}
	if p.wait(m, name) < 0 {
		p.waits = append(p.waits, &loraWait{model: m, name: name, since: time.Now()})
	}
	return ErrAdaptersFull
}

// wait returns the index of an adapter's wait, or -1. The caller holds the lock.
func (p *adapterPool) wait(m *Model, name string) int {
	return slices.IndexFunc(p.waits, func(w *loraWait) bool { return w.model == m && w.name == name })
}

// holdsBack reports whether it is another adapter's turn. The caller holds the lock.
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

// abandon ends a turn that was not taken although there is room.
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

// endWait removes a wait and returns the models to notify. The caller holds the lock.
func (p *adapterPool) endWait(i int) (refused []*Model) {
	if i < 0 {
		return nil
	}
	p.waits[i].stop()
	p.waits = slices.Delete(p.waits, i, i+1)
	refused, p.refused = p.refused, nil
	return refused
}

// endWaits removes the waits of a model. The caller holds the lock.
func (p *adapterPool) endWaits(m *Model) {
	p.waits = slices.DeleteFunc(p.waits, func(w *loraWait) bool {
		if w.model == m {
			w.stop()
		}
		return w.model == m
	})
}

// stop stops the timer of the turn.
func (w *loraWait) stop() {
	if w.grace != nil {
		w.grace.Stop()
	}
}

// StopWaiting tells the model that no sequence waits any longer for the adapter called name, for
// which [Model.NewAdaptedSequence] returned [ErrAdaptersFull]. Without this call, adapters that
// were requested later wait until this one has been used. StopWaiting is safe for concurrent use.
func (m *Model) StopWaiting(name string) {
	p := m.pool()
	p.Lock()
	refused := p.endWait(p.wait(m, name))
	p.Unlock()
	notify(refused)
}
