package train

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/train/internal/evaluation"
	"github.com/heftai/heft/train/internal/trainer"
	"github.com/heftai/heft/train/track"
)

// Event is the kind of event of a [Moment].
type Event string

// The events of a run, in the order of their first occurrence.
const (
	TrainBegin Event = "train_begin"
	EpochBegin Event = "epoch_begin"
	StepStart  Event = "step_start"
	SubstepEnd Event = "substep_end" // for Updates: the end of a batch that is not its window's last
	StepEnd    Event = "step_end"
	LogEvent   Event = "log"
	Evaluated  Event = "evaluate"
	Saved      Event = "save"
	EpochEnd   Event = "epoch_end"
	TrainEnd   Event = "train_end"
)

// Moment is an event with its details. It is valid during the call of the callback.
type Moment struct {
	Event   Event
	State   *TrainerState
	Control *Control
	// Batch is the batch of a step of Batches.
	Batch any
	// Result is the step's result, for StepEnd.
	Result *StepResult
	// Logs are the values about to be logged, for LogEvent.
	Logs track.Values
	// Metrics are those of the evaluation, for Evaluated.
	Metrics map[string]float64
	// Folder is the folder of the checkpoint, for Saved.
	Folder string
}

// Control holds requests of callbacks. All ranks must make the same requests. The trainer clears
// one-time requests once it has fulfilled them.
type Control struct {
	StopTraining bool `json:"should_training_stop"`
	StopEpoch    bool `json:"should_epoch_stop"`
	Save         bool `json:"should_save"`
	Evaluate     bool `json:"should_evaluate"`
	Log          bool `json:"should_log"`
}

// Callback is called for the events of a run, on every rank. If it returns an error, the run ends.
type Callback interface {
	On(ctx context.Context, m *Moment) error
}

// CallbackFunc is a function as a Callback.
type CallbackFunc func(ctx context.Context, m *Moment) error

// On calls f.
func (f CallbackFunc) On(ctx context.Context, m *Moment) error { return f(ctx, m) }

// OnEvent returns a callback that calls f for events of one kind.
func OnEvent(e Event, f func(ctx context.Context, m *Moment) error) Callback {
	return CallbackFunc(func(ctx context.Context, m *Moment) error {
		if m.Event != e {
			return nil
		}
		return f(ctx, m)
	})
}

// StatefulCallback is a Callback whose state is saved in checkpoints, under its name.
type StatefulCallback interface {
	Callback
	CallbackName() string
	CallbackState() CallbackState
	LoadCallbackState(CallbackState) error
}

// CallbackState holds a callback's settings and its state.
type CallbackState struct {
	Args       map[string]any `json:"args"`
	Attributes map[string]any `json:"attributes"`
}

// EarlyStopping stops a run if the metric has not improved by more than Threshold for Patience
// evaluations.
type EarlyStopping struct {
	Patience  int
	Threshold float64
	// Metric is a metric of evaluations. Empty means "eval_loss".
	Metric string
	// GreaterIsBetter says that a higher Metric is better.
	GreaterIsBetter bool

	best *float64
	bad  int
}

// On handles evaluations and ignores other events.
func (e *EarlyStopping) On(_ context.Context, m *Moment) error {
	if m.Event != Evaluated {
		return nil
	}
	v, ok := m.Metrics[evaluation.MetricName(e.Metric)]
	if !ok {
		return fmt.Errorf("early stopping watches %q, which was not measured", evaluation.MetricName(e.Metric))
	}
	better := !math.IsNaN(v) && (e.best == nil || e.GreaterIsBetter && v > *e.best || !e.GreaterIsBetter && v < *e.best)
	if better && (e.best == nil || math.Abs(v-*e.best) > e.Threshold) {
		e.bad = 0
	} else {
		e.bad++
	}
	if better {
		e.best = &v
	}
	if e.bad >= max(1, e.Patience) {
		m.Control.StopTraining = true
	}
	return nil
}

// CallbackName returns the name that checkpoints save it under.
func (e *EarlyStopping) CallbackName() string { return "EarlyStoppingCallback" }

// CallbackState returns the settings, and for how many evaluations the metric has not improved.
func (e *EarlyStopping) CallbackState() CallbackState {
	s := CallbackState{
		Args:       map[string]any{"early_stopping_patience": e.Patience, "early_stopping_threshold": e.Threshold},
		Attributes: map[string]any{"early_stopping_patience_counter": e.bad},
	}
	if e.best != nil {
		s.Attributes["best_metric"] = *e.best
	}
	return s
}

// LoadCallbackState restores the count and the best metric. The settings stay those of e.
func (e *EarlyStopping) LoadCallbackState(s CallbackState) error {
	bad, ok := s.Attributes["early_stopping_patience_counter"].(float64)
	if !ok {
		return fmt.Errorf("early stopping: no early_stopping_patience_counter in its state")
	}
	e.bad, e.best = int(bad), nil
	if best, ok := s.Attributes["best_metric"].(float64); ok {
		e.best = &best
	}
	return nil
}

// ShowProgress returns a callback that shows the progress of the run: a progress line on a
// terminal, plain lines otherwise. Use it on the main process only.
func ShowProgress(to io.Writer) Callback {
	var p *track.Progress
	return CallbackFunc(func(_ context.Context, m *Moment) error {
		switch m.Event {
		case TrainBegin:
			p = track.NewProgress(to, track.ProgressOptions{Total: m.State.MaxSteps, Terminal: track.IsTerminal(to)})
			p.Begin(m.State.GlobalStep)
		case StepEnd:
			if p != nil {
				p.Update(m.Result.GlobalStep+1, m.Result.Loss, m.Result.Items)
			}
		case LogEvent:
			if p != nil {
				p.Clear() // for the line of the log
			}
		case TrainEnd:
			if p != nil {
				p.Close()
			}
		}
		return nil
	})
}

// listener passes the events of a run to callbacks.
type listener struct {
	callbacks []Callback
	state     *TrainerState
	control   *Control
}

// On calls all callbacks.
func (l *listener) On(ctx context.Context, m *trainer.Moment) error {
	moment := Moment{Event: Event(m.Event), State: l.state, Control: l.control, Batch: m.Batch, Result: (*StepResult)(m.Result),
		Logs: m.Logs, Metrics: m.Metrics, Folder: m.Folder}
	for _, c := range l.callbacks {
		if err := c.On(ctx, &moment); err != nil {
			return fmt.Errorf("train: callback at %s: %w", m.Event, errtext.Below("train", err))
		}
	}
	return nil
}

// SaveState returns the states of stateful callbacks and the requests, by name.
func (l *listener) SaveState() (map[string]json.RawMessage, error) {
	c := l.control
	all := map[string]CallbackState{"TrainerControl": {Attributes: map[string]any{}, Args: map[string]any{
		"should_epoch_stop": c.StopEpoch, "should_evaluate": c.Evaluate, "should_log": c.Log,
		"should_save": c.Save, "should_training_stop": c.StopTraining}}}
	for _, c := range l.callbacks {
		if s, ok := c.(StatefulCallback); ok {
			all[s.CallbackName()] = s.CallbackState()
		}
	}
	saved := map[string]json.RawMessage{}
	for name, s := range all {
		b, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("train: the state of %s: %w", name, err)
		}
		saved[name] = b
	}
	return saved, nil
}

// LoadState restores the states of stateful callbacks.
func (l *listener) LoadState(saved map[string]json.RawMessage) error {
	for _, c := range l.callbacks {
		s, ok := c.(StatefulCallback)
		if !ok {
			continue
		}
		raw, ok := saved[s.CallbackName()]
		if !ok {
			continue
		}
		var state CallbackState
		if err := json.Unmarshal(raw, &state); err != nil {
			return fmt.Errorf("train: the state of %s: %w", s.CallbackName(), err)
		}
		if err := s.LoadCallbackState(state); err != nil {
			return fmt.Errorf("train: %w", errtext.Below("train", err))
		}
	}
	return nil
}
