package progress

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// A run of 10 batches in windows of 4 has 3 steps an epoch: its last window is short.
func TestLengthCountsWindows(t *testing.T) {
	for _, c := range []struct {
		goal                    Goal
		perEpoch, steps, epochs int
		after2                  float64 // the epoch after two steps
	}{
		{Goal{Epochs: 2, Accumulation: 4}, 3, 6, 2, 0.8},
		{Goal{Epochs: 2, Accumulation: 4, PerBatch: true}, 10, 20, 2, 0.2},
		{Goal{MaxSteps: 7, Accumulation: 4}, 3, 7, 3, 0.8},
		{Goal{Accumulation: 4}, 3, 9, 3, 0.8},
		{Goal{Epochs: 0.5, Accumulation: 4}, 3, 2, 1, 0.8},
	} {
		l, err := NewLength(c.goal, Data{Samples: 30, BatchSize: 3, World: 1})
		if err == nil {
			err = l.Count(10, nil, false)
		}
		if err != nil || l.PerEpoch != c.perEpoch || l.MaxSteps != c.steps || l.Epochs != c.epochs {
			t.Errorf("%+v: got %+v (%v), want %d steps an epoch, %d steps, %d epochs", c.goal, l, err, c.perEpoch, c.steps, c.epochs)
			continue
		}
		if got, ok := l.Epoch(2); !ok || !(math.Abs(got-c.after2) <= 1e-12) {
			t.Errorf("%+v: after 2 steps the epoch is %v, want %v", c.goal, got, c.after2)
		}
	}
}

// Data of unknown length has steps only if MaxSteps says so.
func TestLengthOfAStream(t *testing.T) {
	unknown := errors.New("a stream")
	for _, c := range []struct {
		goal  Goal
		named bool
		fails bool
	}{{Goal{MaxSteps: 5}, true, false}, {Goal{Epochs: 2}, false, false}, {Goal{Epochs: 2}, true, true}, {Goal{Epochs: 1.5}, false, true}} {
		l, err := NewLength(c.goal, Data{BatchSize: 1, World: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Count(0, unknown, c.named); errors.Is(err, unknown) != c.fails {
			t.Errorf("%+v, named %v: got %v", c.goal, c.named, err)
		}
		if _, ok := l.Epoch(2); ok {
			t.Errorf("%+v: the epoch is known", c.goal)
		}
	}
	if _, err := NewLength(Goal{Epochs: math.NaN()}, Data{}); err == nil {
		t.Error("an epoch of NaN was taken")
	}
}

// A resumed run keeps its own length and takes the position of the saved one.
func TestContinueKeepsTheLength(t *testing.T) {
	s := State{MaxSteps: 10, NumTrainEpochs: 2, SaveSteps: 5}
	s.Continue(&State{MaxSteps: 4, GlobalStep: 4, Epoch: 0.8, LogHistory: []map[string]any{{"step": 4}}})
	if s.MaxSteps != 10 || s.NumTrainEpochs != 2 || s.SaveSteps != 5 || s.GlobalStep != 4 || len(s.LogHistory) != 1 || s.Finished() {
		t.Errorf("got %+v", s)
	}
}

// The first and the best value count; NaN never does.
func TestBestJudges(t *testing.T) {
	var s State
	b := Best{Metric: "accuracy", Greater: true}
	var steps []int
	for i, v := range []float64{math.NaN(), 0.5, 0.4, 0.7, math.NaN()} {
		s.GlobalStep = i
		if err := b.Judge(&s, map[string]float64{"eval_accuracy": v}); err != nil {
			t.Fatal(err)
		}
		if s.BestGlobalStep != nil {
			steps = append(steps, *s.BestGlobalStep)
		}
	}
	if !slices.Equal(steps, []int{1, 1, 3, 3}) || *s.BestMetric != 0.7 {
		t.Errorf("the best steps are %v, the metric %v", steps, *s.BestMetric)
	}
	if err := b.Judge(&s, map[string]float64{"eval_loss": 1}); err == nil {
		t.Error("a missing metric was not reported")
	}
}

func TestLossesAreMeans(t *testing.T) {
	var l Losses
	if l.Mean() != 0 || l.Pending() {
		t.Error("a new sum is not empty")
	}
	l.Add(1)
	l.Add(3)
	if got := l.Recent(); got != 2 || l.Pending() {
		t.Errorf("recent: got %v, want 2", got)
	}
	l.Add(5)
	if l.Recent() != 5 || l.Mean() != 3 {
		t.Errorf("mean: got %v, want 3", l.Mean())
	}
}
