package optim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// ScheduleSpec names a schedule as Hugging Face's Trainer does (lr_scheduler_type): linear,
// cosine, cosine_with_restarts, polynomial, constant, constant_with_warmup,
// inverse_sqrt, reduce_lr_on_plateau, cosine_with_min_lr, cosine_warmup_with_min_lr,
// warmup_stable_decay.
type ScheduleSpec struct {
	Name string
	// WarmupSteps and TrainingSteps may be nil. Most schedules require them.
	WarmupSteps, TrainingSteps *int
	// Options are the schedule's own options (scheduler_specific_kwargs) as JSON values: numbers,
	// strings, lists of numbers.
	Options map[string]any
}

// scheduleNames are the names of schedules.
var scheduleNames = []string{"linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
	"reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay"}

// NewScheduler returns the schedule that s names for o. Unknown names, missing steps and unknown
// options are errors.
func NewScheduler(o Optimizer, s ScheduleSpec) (Scheduler, error) {
	a := &arguments{ScheduleSpec: s, left: maps.Clone(s.Options)}
	if o == nil {
		a.fail("got no optimizer to move")
		return nil, a.err
	}
	if s.Name == "reduce_lr_on_plateau" {
		return a.plateau(o)
	}
	f := a.factor(o)
	if s.Name != "constant" && s.Name != "constant_with_warmup" {
		a.rejectLeft()
	}
	if a.err != nil {
		return nil, a.err
	}
	return NewLambda(o, f), nil
}

// arguments reads a Spec and records its first error.
type arguments struct {
	ScheduleSpec
	left map[string]any // not read yet
	read []string       // options that the schedule has
	err  error
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("optim: schedule %s: %s", a.Name, fmt.Sprintf(format, args...))
	}
}

func (a *arguments) warm() int {
	if a.WarmupSteps == nil {
		a.fail("requires num_warmup_steps")
		return 0
	}
	if *a.WarmupSteps < 0 {
		a.fail("got %d warm-up steps, want 0 or more", *a.WarmupSteps)
	}
	return *a.WarmupSteps
}

func (a *arguments) total() int {
	if a.TrainingSteps == nil {
		a.fail("requires num_training_steps")
		return 0
	}
	if *a.TrainingSteps < 0 {
		a.fail("got %d training steps, want 0 or more", *a.TrainingSteps)
	}
	return *a.TrainingSteps
}

// take returns an option that is not null.
func (a *arguments) take(name string) (any, bool) {
	v, ok := a.left[name]
	delete(a.left, name)
	a.read = append(a.read, name)
	return v, ok && v != nil
}

// rejectLeft records an error for an option that the schedule does not have.
func (a *arguments) rejectLeft() {
	if len(a.left) == 0 {
		return
	}
	has := "want none"
	if len(a.read) > 0 {
		slices.Sort(a.read)
		has = "want one of " + strings.Join(slices.Compact(a.read), ", ")
	}
	a.fail("no option %q, %s", slices.Sorted(maps.Keys(a.left))[0], has)
}

func (a *arguments) optional(name string) *float64 {
	v, ok := a.take(name)
	if !ok {
		return nil
	}
	var f float64
	switch v := v.(type) {
	case float64:
		f = v
	case float32:
		f = float64(v)
	case int:
		f = float64(v)
	case int64:
		f = float64(v)
	default:
		a.fail("%s: got %v, want a number", name, v)
	}
	return &f
}

func (a *arguments) float(name string, def float64) float64 {
	if f := a.optional(name); f != nil {
		return *f
	}
	return def
}

func (a *arguments) int(name string, def int) int {
	f := a.float(name, float64(def))
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		a.fail("%s: got %v, want a whole number", name, f)
		return def
	}
	return int(f)
}

func (a *arguments) text(name, def string) string {
	v, ok := a.take(name)
	if !ok {
		return def
	}
	s, ok := v.(string)
	if !ok {
		a.fail("%s: got %v, want a string", name, v)
	}
	return s
}

// least returns the fraction of the rate that a cosine falls to.
func (a *arguments) least(o Optimizer) float64 {
	lr, rate := a.optional("min_lr"), a.optional("min_lr_rate")
	switch {
	case lr != nil && rate != nil:
		a.fail("only one of min_lr and min_lr_rate may be given")
	case lr != nil:
		return *lr / o.DefaultLR()
	case rate != nil:
		return *rate
	default:
		a.fail("requires min_lr or min_lr_rate")
	}
	return 0
}

func (a *arguments) factor(o Optimizer) Factor {
	var f Factor
	var err error
	switch a.Name {
	case "constant":
		f = Constant()
	case "constant_with_warmup":
		f = ConstantWithWarmup(a.warm())
	case "linear":
		f = Linear(a.warm(), a.total())
	case "cosine":
		f = Cosine(a.warm(), a.total(), a.float("num_cycles", 0.5))
	case "cosine_with_restarts":
		f = CosineWithRestarts(a.warm(), a.total(), a.float("num_cycles", 1))
	case "cosine_with_min_lr":
		f = CosineWithMinLR(a.warm(), a.total(), a.float("num_cycles", 0.5), a.least(o))
	case "cosine_warmup_with_min_lr":
		f = CosineWarmupWithMinLR(a.warm(), a.total(), a.float("num_cycles", 0.5), a.least(o), a.optional("warmup_lr_rate"))
	case "polynomial":
		warm, total := a.warm(), a.total()
		if a.err == nil {
			f, err = Polynomial(warm, total, o.DefaultLR(), a.float("lr_end", 1e-7), a.float("power", 1))
		}
	case "inverse_sqrt":
		scale := a.int("timescale", 0)
		if scale < 0 {
			a.fail("timescale is %d", scale)
		}
		f = InverseSqrt(a.warm(), scale)
	case "warmup_stable_decay":
		f, err = a.wsd()
	default:
		a.fail("unknown name, want one of %s", strings.Join(scheduleNames, ", "))
	}
	if a.err == nil {
		a.err = err
	}
	return f
}

func (a *arguments) wsd() (Factor, error) {
	w := WSDOptions{
		Warmup: a.warm(),
		Rise:   DecayShape(a.text("warmup_type", "")),
		Fall:   DecayShape(a.text("decay_type", "")),
		Least:  a.float("min_lr_ratio", 0),
		Cycles: a.float("num_cycles", 0.5),
	}
	if _, ok := a.left["num_decay_steps"]; !ok {
		a.fail("requires num_decay_steps")
	}
	w.Decay = a.int("num_decay_steps", 0)
	if stable, ok := a.left["num_stable_steps"]; ok && stable != nil {
		w.Stable = a.int("num_stable_steps", 0)
	} else {
		delete(a.left, "num_stable_steps")
		w.Stable = a.total() - w.Warmup - w.Decay
	}
	return WarmupStableDecay(w)
}

func (a *arguments) plateau(of Optimizer) (Scheduler, error) {
	o := DefaultPlateau()
	switch mode := a.text("mode", "min"); mode {
	case "min", "max":
		o.Max = mode == "max"
	default:
		a.fail("mode %q", mode)
	}
	switch mode := a.text("threshold_mode", "rel"); mode {
	case "rel", "abs":
		o.Absolute = mode == "abs"
	default:
		a.fail("threshold_mode %q", mode)
	}
	o.Factor = a.float("factor", o.Factor)
	o.Patience = a.int("patience", o.Patience)
	o.Threshold = a.float("threshold", o.Threshold)
	o.Cooldown = a.int("cooldown", o.Cooldown)
	o.Eps = a.float("eps", o.Eps)
	if list, ok := a.left["min_lr"].([]any); ok {
		delete(a.left, "min_lr")
		for _, v := range list {
			f, ok := v.(float64)
			if !ok {
				a.fail("min_lr: got %v, want a number", v)
			}
			o.MinLR = append(o.MinLR, f)
		}
	} else {
		o.MinLR = []float64{a.float("min_lr", 0)}
	}
	a.rejectLeft()
	if a.err != nil {
		return nil, a.err
	}
	return NewPlateau(of, o)
}
