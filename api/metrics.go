package api

import (
	"time"

	"github.com/heftai/heft/internal/engine"
)

// Metrics collects what /metrics shows. It is the engine's Observer.
type Metrics struct {
	model string
}

var _ engine.Observer = (*Metrics)(nil)

// NewMetrics makes the metrics of one model.
func NewMetrics(modelName string) *Metrics { return &Metrics{model: modelName} }

// Queued implements engine.Observer.
func (m *Metrics) Queued(time.Duration) {}

// FirstToken implements engine.Observer.
func (m *Metrics) FirstToken(time.Duration) {}

// NextToken implements engine.Observer.
func (m *Metrics) NextToken(time.Duration) {}

// Step implements engine.Observer.
func (m *Metrics) Step(engine.StepStats) {}

// Finished implements engine.Observer.
func (m *Metrics) Finished(engine.ChoiceStats) {}
