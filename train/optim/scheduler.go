package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Scheduler changes an optimizer's learning rates. Its constructor sets the rates of step 0, which
// the first optimizer step uses.
type Scheduler interface {
	// Step advances the schedule. A [Plateau] needs one metric; the others take none.
	Step(metric ...float64) error
	// LastLR returns the current rate of every group.
	LastLR() []float64
	State() SchedulerState
	LoadState(SchedulerState) error
}

// SchedulerState is a scheduler's saved state. It encodes as plain JSON.
type SchedulerState struct {
	LastEpoch int       `json:"last_epoch"`
	StepCount int       `json:"_step_count"`
	LastLR    []float64 `json:"_last_lr"`
	Momentum  []float64 `json:"momentum,omitempty"`
	// of a Plateau; Best is nil before the first metric
	Best     *float64 `json:"best,omitempty"`
	Bad      int      `json:"num_bad_epochs,omitempty"`
	Cooldown int      `json:"cooldown_counter,omitempty"`
}

// clock counts the steps of all schedulers.
type clock struct {
	of    Optimizer
	epoch int // number of steps taken
	count int // calls of Step, and one before the first
}

func (c *clock) LastLR() []float64 {
	var all []float64
	for _, g := range c.of.Groups() {
		all = append(all, g.LR)
	}
	return all
}

// LastEpoch returns the number of steps taken.
func (c *clock) LastEpoch() int { return c.epoch }

// StepCount returns torch's count of steps, which is one before the first.
func (c *clock) StepCount() int { return c.count }

// Skip counts a step without changing the rates, as Accelerate's adjust_scheduler does.
func (c *clock) Skip() { c.count++ }

func (c *clock) State() SchedulerState {
	return SchedulerState{LastEpoch: c.epoch, StepCount: c.count, LastLR: c.LastLR()}
}

func (c *clock) LoadState(s SchedulerState) error {
	groups := c.of.Groups()
	if len(s.LastLR) != len(groups) || s.LastEpoch < 0 {
		return fmt.Errorf("optim: load scheduler state: got %d rates at step %d, want %d groups", len(s.LastLR), s.LastEpoch, len(groups))
	}
	c.epoch, c.count = s.LastEpoch, s.StepCount
	for i, g := range groups {
		g.LR = s.LastLR[i]
	}
	return nil
}

var errMetric = errors.New("optim: only a plateau scheduler takes a metric")

// initial records the rates that schedules multiply. Those of the first scheduler are kept.
func initial(o Optimizer) {
	for _, g := range o.Groups() {
		if !g.scheduled && g.InitialLR == 0 {
			g.InitialLR = g.LR
		}
		g.scheduled = true
	}
}

// Lambda multiplies every group's initial rate by a factor of the step.
type Lambda struct {
	clock
	factor Factor
}

// NewLambda returns a scheduler of o that multiplies by f.
func NewLambda(o Optimizer, f Factor) *Lambda {
	initial(o)
	l := &Lambda{clock{of: o, count: 1}, f}
	l.set()
	return l
}

func (l *Lambda) set() {
	for _, g := range l.of.Groups() {
		g.LR = g.InitialLR * l.factor(l.epoch)
	}
}

// Step sets the rates of the next step. A metric is an error.
func (l *Lambda) Step(metric ...float64) error {
	if len(metric) > 0 {
		return errMetric
	}
	l.count++
	l.epoch++
	l.set()
	return nil
}

// LoadState restores s. If s has no rates, it computes those of the step.
func (l *Lambda) LoadState(s SchedulerState) error {
	if s.LastLR != nil {
		return l.clock.LoadState(s)
	}
	s.LastLR = l.LastLR()
	err := l.clock.LoadState(s)
	if err == nil {
		l.set()
	}
	return err
}

// PlateauOptions configures ReduceLROnPlateau. Use [DefaultPlateau] for torch's defaults.
type PlateauOptions struct {
	Max       bool // a larger metric is better
	Factor    float64
	Patience  int
	Threshold float64
	Absolute  bool // Threshold is a difference, not a fraction of the best metric
	Cooldown  int
	MinLR     []float64 // one for each group, one for all, or none
	Eps       float64   // smaller changes are not applied
}

// DefaultPlateau returns torch's defaults.
func DefaultPlateau() PlateauOptions {
	return PlateauOptions{Factor: 0.1, Patience: 10, Threshold: 1e-4, Eps: 1e-8}
}

// Plateau lowers the rates when a metric has stopped improving.
type Plateau struct {
	clock
	o              PlateauOptions
	best           float64
	bad, coolsDown int
}

// NewPlateau returns a Plateau for an optimizer's rates.
func NewPlateau(of Optimizer, o PlateauOptions) (*Plateau, error) {
	if !(o.Factor < 1) {
		return nil, fmt.Errorf("optim: plateau: got factor %v, want one below 1", o.Factor)
	}
	if n := len(o.MinLR); n > 1 && n != len(of.Groups()) {
		return nil, fmt.Errorf("optim: plateau: got %d minimum rates for %d groups", n, len(of.Groups()))
	}
	initial(of)
	p := &Plateau{clock: clock{of: of}, o: o, best: math.Inf(1)}
	if o.Max {
		p.best = math.Inf(-1)
	}
	return p, nil
}

func (p *Plateau) better(m float64) bool {
	t := p.o.Threshold
	switch {
	case p.o.Max && p.o.Absolute:
		return m > p.best+t
	case p.o.Max:
		return m > p.best*(1+t)
	case p.o.Absolute:
		return m < p.best-t
	}
	return m < p.best*(1-t)
}

// Step records a new metric and lowers the rates if it has stopped improving.
func (p *Plateau) Step(metric ...float64) error {
	if len(metric) != 1 {
		return errors.New("optim: a plateau scheduler's step needs one metric")
	}
	p.count++
	p.epoch++
	if p.better(metric[0]) {
		p.best, p.bad = metric[0], 0
	} else {
		p.bad++
	}
	if p.coolsDown > 0 {
		p.coolsDown--
		p.bad = 0
	}
	if p.bad > p.o.Patience {
		p.lower()
		p.coolsDown, p.bad = p.o.Cooldown, 0
	}
	return nil
}

func (p *Plateau) lower() {
	for i, g := range p.of.Groups() {
		least := 0.0
		if n := len(p.o.MinLR); n > 0 {
			least = p.o.MinLR[min(i, n-1)]
		}
		if lr := max(g.LR*p.o.Factor, least); g.LR-lr > p.o.Eps {
			g.LR = lr
		}
	}
}

// State returns the state, with the best metric so far.
func (p *Plateau) State() SchedulerState {
	s := p.clock.State()
	if !math.IsInf(p.best, 0) { // which JSON cannot hold
		best := p.best
		s.Best = &best
	}
	s.Bad, s.Cooldown = p.bad, p.coolsDown
	return s
}

// LoadState restores s. On error p is unchanged.
func (p *Plateau) LoadState(s SchedulerState) error {
	if err := p.clock.LoadState(s); err != nil {
		return err
	}
	p.best = math.Inf(1)
	if p.o.Max {
		p.best = math.Inf(-1)
	}
	if s.Best != nil {
		p.best = *s.Best
	}
	p.bad, p.coolsDown = s.Bad, s.Cooldown
	return nil
}

// OneCycleOptions configures OneCycleLR. Zero values of PctStart, DivFactor and FinalDivFactor mean
// torch's defaults (0.3, 25, 10000); zero momenta mean 0.85 and 0.95.
type OneCycleOptions struct {
	MaxLR      float64
	TotalSteps int
	PctStart   float64
	Linear     bool // linear annealing instead of cosine
	// FixedMomentum does not change Group.Momentum (cycle_momentum=False).
	FixedMomentum             bool
	BaseMomentum, MaxMomentum float64
	DivFactor, FinalDivFactor float64
	ThreePhase                bool
}

// OneCycle rises from MaxLR/DivFactor to MaxLR and then falls far below the start. Momentum
// changes in the opposite direction.
type OneCycle struct {
	clock
	o      OneCycleOptions
	phases []phase
}

type phase struct{ end, lr0, lr1, m0, m1 float64 }

// NewOneCycle returns a OneCycle for an optimizer.
func NewOneCycle(of Optimizer, o OneCycleOptions) (*OneCycle, error) {
	for _, d := range []struct {
		to *float64
		v  float64
	}{{&o.PctStart, 0.3}, {&o.DivFactor, 25}, {&o.FinalDivFactor, 1e4}, {&o.BaseMomentum, 0.85}, {&o.MaxMomentum, 0.95}} {
		if *d.to == 0 {
			*d.to = d.v
		}
	}
	if o.TotalSteps < 1 || !(o.PctStart > 0 && o.PctStart <= 1) {
		return nil, fmt.Errorf("optim: one cycle: invalid total steps %d or rising share %v", o.TotalSteps, o.PctStart)
	}
	n, first := float64(o.TotalSteps), o.MaxLR/o.DivFactor
	last := first / o.FinalDivFactor
	c := &OneCycle{clock: clock{of: of, count: 1}, o: o}
	c.phases = []phase{{o.PctStart*n - 1, first, o.MaxLR, o.MaxMomentum, o.BaseMomentum}}
	if o.ThreePhase {
		c.phases = append(c.phases, phase{2*o.PctStart*n - 2, o.MaxLR, first, o.BaseMomentum, o.MaxMomentum},
			phase{n - 1, first, last, o.MaxMomentum, o.MaxMomentum})
	} else {
		c.phases = append(c.phases, phase{n - 1, o.MaxLR, last, o.BaseMomentum, o.MaxMomentum})
	}
	for _, g := range of.Groups() {
		g.InitialLR = first
	}
	c.set()
	return c, nil
}

// TotalSteps returns the number of steps of the cycle. More steps are an error.
func (c *OneCycle) TotalSteps() int { return c.o.TotalSteps }

func (c *OneCycle) set() {
	step, start := float64(c.epoch), 0.0
	i := slices.IndexFunc(c.phases, func(p phase) bool { return step <= p.end })
	if i < 0 {
		i = len(c.phases) - 1
	}
	if i > 0 {
		start = c.phases[i-1].end
	}
	p := c.phases[i]
	part := (step - start) / (p.end - start)
	for _, g := range c.of.Groups() {
		g.LR = c.anneal(p.lr0, p.lr1, part)
		if !c.o.FixedMomentum {
			g.Momentum = c.anneal(p.m0, p.m1, part)
		}
	}
}

func (c *OneCycle) anneal(from, to, part float64) float64 {
	if c.o.Linear {
		return (to-from)*part + from
	}
	return to + (from-to)/2*(1+math.Cos(math.Pi*part))
}

// Step sets the rates and the momentum of the next step. It fails at the end of the cycle, or with a metric.
func (c *OneCycle) Step(metric ...float64) error {
	if len(metric) > 0 {
		return errMetric
	}
	if c.epoch+1 > c.o.TotalSteps {
		return fmt.Errorf("optim: one cycle: got step %d, want at most %d", c.epoch+1, c.o.TotalSteps)
	}
	c.count++
	c.epoch++
	c.set()
	return nil
}

// State returns the state, with the momentum of each group.
func (c *OneCycle) State() SchedulerState {
	s := c.clock.State()
	for _, g := range c.of.Groups() {
		s.Momentum = append(s.Momentum, g.Momentum)
	}
	return s
}

// LoadState restores s. If s has no rates, it computes rates and momentum of the step. On error c
// is unchanged.
func (c *OneCycle) LoadState(s SchedulerState) error {
	if s.LastLR == nil {
		s.LastLR = c.LastLR()
		err := c.clock.LoadState(s)
		if err == nil {
			c.set()
		}
		return err
	}
	groups := c.of.Groups()
	if len(s.Momentum) != len(groups) {
		return fmt.Errorf("optim: load one-cycle state: got %d momenta for %d groups", len(s.Momentum), len(groups))
	}
	if err := c.clock.LoadState(s); err != nil {
		return err
	}
	for i, g := range groups {
		g.Momentum = s.Momentum[i]
	}
	return nil
}

var (
	_ Scheduler = (*Lambda)(nil)
	_ Scheduler = (*Plateau)(nil)
	_ Scheduler = (*OneCycle)(nil)
)
