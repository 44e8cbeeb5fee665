package train

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/heftai/heft/train/optim"
)

// limit is a number that may be infinite, and null: none.
type limit float64

func (l *limit) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if text == "null" {
		text = "inf"
	}
	v, err := strconv.ParseFloat(text, 64)
	*l = limit(v)
	return err
}

// traces are micro steps, stored as a list of them or as parallel lists.
type traces []microTrace

func (t *traces) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
		return json.Unmarshal(b, (*[]microTrace)(t))
	}
	var lists map[string][]any
	if err := json.Unmarshal(b, &lists); err != nil {
		return err
	}
	n := 0
	for _, list := range lists {
		n = max(n, len(list))
	}
	rows := make([]map[string]any, n)
	for i := range rows {
		rows[i] = map[string]any{}
		for key, list := range lists {
			if i < len(list) {
				rows[i][key] = list[i]
			}
		}
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, (*[]microTrace)(t))
}

// scenario replays a loop that its record describes: which loader each micro step took
// its batch from, and where loops were left.
type scenario struct {
	c     *accumulateCase
	m     *toy
	names []string // of loaders, in the order loops begin
	loops map[string]*walk
}

func (c *accumulateCase) scenario(ctx context.Context) error {
	if len(c.Trace) > 0 && c.Trace[0].Step == nil {
		return c.manual(ctx)
	}
	s, err := c.newScenario()
	if err != nil {
		return err
	}
	for i := range c.Trace {
		w := &c.Trace[i]
		if err := s.row(ctx, w); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return s.endLoops("")
}

func (c *accumulateCase) newScenario() (*scenario, error) {
	cfg := c.config()
	var total int
	var adjust string
	oneCycle, _ := fmt.Sscanf(c.Name, "onecycle_total%d_adjust_%s", &total, &adjust)
	cfg.Corrections.AdjustScheduler = adjust == "forced"
	if adjust == "False" {
		cfg.GradientAccumulation.AdjustScheduler = new(false)
	}
	if strings.HasPrefix(c.Name, "step_scheduler_with_optimizer_false") {
		cfg.StepSchedulerWithOptimizer = new(false)
	}
	momentum := 0.0
	if oneCycle == 2 {
		momentum = 0.9
	}
	m, err := newToy(cfg, 1, 1e-3, momentum)
	if err != nil {
		return nil, err
	}
	if oneCycle == 2 {
		var cycle *optim.OneCycle
		if cycle, err = optim.NewOneCycle(m.raw.Optimizer, optim.OneCycleOptions{MaxLR: 0.01, TotalSteps: total}); err == nil {
			err = m.schedule(cycle)
		}
	} else {
		err = m.inverse()
	}
	if err != nil {
		return nil, err
	}
	s := &scenario{c: c, m: m, loops: map[string]*walk{}, names: []string{"", "second"}}
	if len(c.Trace) > 0 && c.Trace[0].Loader != "" {
		s.names = []string{c.Trace[0].Loader, "second"}
		if c.Trace[0].Loader == "train" {
			s.names[1] = "eval"
		}
	}
	for i, n := range c.Loaders {
		w := &walk{loader: indices(int(n), 1), n: int(n)}
		s.loops[s.names[i]] = w
		if strings.HasPrefix(c.Name, "unprepared") {
			continue
		}
		if err := m.a.Prepare(w.loader); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *scenario) row(ctx context.Context, w *microTrace) error {
	eval := s.loops["eval"]
	switch {
	case strings.HasPrefix(w.Event, "broke out of eval"):
		var at int
		if _, err := fmt.Sscanf(w.Event, "broke out of eval at its batch %d", &at); err != nil {
			return err
		}
		eval.begin(ctx)
		for range at + 1 {
			if err := eval.take(); err != nil {
				return err
			}
		}
		return first(eval.leave(true), s.active(w), w.flags(s.m.a))
	case w.Event != "":
		return first(eval.leave(strings.Contains(s.c.Name, "break")), s.active(w), w.flags(s.m.a))
	case w.Loader == "eval":
		if w.I == 0 {
			eval.begin(ctx)
		}
		return first(eval.take(), s.active(w), w.flags(s.m.a))
	}
	if w.NumSteps != nil {
		if err := s.m.a.SetGradientAccumulationSteps(int(*w.NumSteps)); err != nil {
			return err
		}
	}
	if w.Call == 0 {
		if err := s.fetch(ctx, w); err != nil {
			return err
		}
	}
	return first(s.active(w), s.m.micro(ctx, float32(w.I+1), w))
}

// fetch brings the next batch of the training loop, or of two zipped.
func (s *scenario) fetch(ctx context.Context, w *microTrace) error {
	if len(s.loops) == 0 {
		return nil
	}
	names := []string{w.Loader}
	if strings.HasPrefix(s.c.Name, "zip_") {
		names = s.names
	}
	for _, name := range names {
		if w.I == 0 {
			if err := s.endLoops(name); err != nil {
				return err
			}
			s.loops[name].begin(ctx)
		}
		if err := s.loops[name].take(); err != nil {
			return err
		}
	}
	return nil
}

// endLoops leaves the training loops that come before one that begins. Of zipped loops
// the first to end ends both, and only what zip asked for another batch has ended.
func (s *scenario) endLoops(beginning string) error {
	if strings.HasPrefix(s.c.Name, "zip_") {
		if beginning == s.names[1] {
			return nil
		}
		a, b := s.loops[s.names[0]], s.loops[s.names[1]]
		over := a.taken == a.n
		return first(a.leave(false), b.leave(over))
	}
	for name, w := range s.loops {
		if name != "eval" && w.next != nil {
			if err := w.leave(false); err != nil {
				return err
			}
			w.next = nil
		}
	}
	return nil
}

// active compares which loader the accelerator follows.
func (s *scenario) active(w *microTrace) error {
	want := w.Active
	if w.IsEval != nil && *w.IsEval {
		want = "eval"
	}
	if want == "" {
		return nil
	}
	if l := s.m.a.rank.Position.Active(); l == nil || reflect.ValueOf(l).Pointer() != reflect.ValueOf(s.loops[want].loader).Pointer() {
		return fmt.Errorf("the active loader is not %q", want)
	}
	return nil
}

// manual is a loop with NoSync around all but the last backward pass of a window, and
// no Accumulate: every step is taken. The loss is x·w², undivided.
func (c *accumulateCase) manual(ctx context.Context) error {
	m, err := newToy(Config{}, 1, 1e-3, 0)
	if err != nil {
		return err
	}
	for i := range c.Trace {
		w := &c.Trace[i]
		err := m.a.NoSync(m.w, func() error {
			y := m.tape.Use(m.w)
			return m.a.Backward(ctx, m.tape.Scale(m.tape.Sum(m.tape.Mul(y, y)), float32(w.I+1)))
		})
		if err != nil {
			return err
		}
		steps := m.raw.steps
		if err := m.opt.Step(); err != nil {
			return err
		}
		m.opt.ZeroGrad()
		err = first(w.flags(m.a), check("optimizer stepped", w.Stepped, m.raw.steps > steps), near("weight", w.Weight, m.weight()))
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}
