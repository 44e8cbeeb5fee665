package trainer

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/heftai/heft/train/track"
)

// logSteps logs the steps since the last log.
func (t *Trainer[B]) logSteps(ctx context.Context) error {
	loss := t.losses.Recent()
	if t.Length.PerBatch && t.c.Intervals.Log > 0 {
		return nil // TrainBatch logs its steps itself
	}
	r := &t.latest
	logs := track.Values{"loss": loss, "grad_norm": r.GradNormPreClip, "learning_rate": r.LR}
	measured, err := t.read(ctx, "")
	if err != nil {
		return err
	}
	for name, v := range measured {
		logs[name] = v
	}
	t.countTokens(logs, "num_tokens")
	return t.record(ctx, logs)
}

// countTokens adds the tokens that the run has read to logs, if they are counted.
func (t *Trainer[B]) countTokens(logs track.Values, name string) {
	if t.c.Tokens != nil {
		logs[name] = t.State.NumInputTokensSeen
	}
}

// record logs values and adds them to the history.
func (t *Trainer[B]) record(ctx context.Context, logs track.Values) error {
	s := &t.State
	entry := map[string]any{"epoch": s.Epoch, "step": s.GlobalStep}
	attrs := []slog.Attr{slog.Int("step", s.GlobalStep), slog.Float64("epoch", round4(s.Epoch))}
	maps.Copy(entry, logs)
	for _, name := range logOrder(logs) {
		attrs = append(attrs, slog.Any(name, logs[name]))
	}
	s.LogHistory = append(s.LogHistory, entry)
	return t.tell(ctx, logs, s.GlobalStep, attrs)
}

// tell passes logged values to the callbacks, the log and the trackers.
func (t *Trainer[B]) tell(ctx context.Context, logs track.Values, step int, attrs []slog.Attr) error {
	if err := t.trigger(ctx, Moment{Event: Log, Logs: logs}); err != nil {
		return err
	}
	if t.c.Log != nil {
		for i := range attrs {
			attrs[i].Value = short(attrs[i].Value)
		}
		t.c.Log.LogAttrs(ctx, slog.LevelInfo, "[Training]", attrs...)
	}
	return t.c.Track(ctx, logs, step)
}

// logOrder returns the names with the losses first.
func logOrder(logs track.Values) []string {
	first := []string{"loss", "eval_loss", "train_loss"}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(logs)), func(name string) bool { return slices.Contains(first, name) })
	slices.Sort(first)
	first = slices.DeleteFunc(first, func(name string) bool { _, ok := logs[name]; return !ok })
	return append(first, rest...)
}

// short rounds a float to six digits for a line of the log. The history and the trackers have all
// digits.
func short(v slog.Value) slog.Value {
	if v.Kind() != slog.KindFloat64 {
		return v
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v.Float64(), 'g', 6, 64), 64)
	if err != nil {
		return v
	}
	return slog.Float64Value(rounded)
}

func round4(v float64) float64 { return math.Round(v*1e4) / 1e4 }
