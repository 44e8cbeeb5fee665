package optim

import "testing"

// TestSchedulesComputeRatesThatAStateLacks: without rates in its state, a schedule computes those of the step.
func TestSchedulesComputeRatesThatAStateLacks(t *testing.T) {
	warmup, steps := 2, 10
	for name, of := range map[string]func(o Optimizer) (Scheduler, error){
		"cosine": func(o Optimizer) (Scheduler, error) {
			return NewScheduler(o, ScheduleSpec{Name: "cosine", WarmupSteps: &warmup, TrainingSteps: &steps})
		},
		"one cycle": func(o Optimizer) (Scheduler, error) {
			return NewOneCycle(o, OneCycleOptions{MaxLR: 0.1, TotalSteps: 10})
		},
	} {
		var made [2]Scheduler
		var groups [2]*Group
		for i := range made {
			o, err := NewSGD([]Param{&VectorParam{Value: []float32{1}}}, SGDOptions{LR: 0.1, Momentum: 0.9})
			if err == nil {
				made[i], err = of(o)
			}
			if err != nil {
				t.Fatal(name, err)
			}
			groups[i] = o.Groups()[0]
		}
		for range 4 {
			if err := made[0].Step(); err != nil {
				t.Fatal(name, err)
			}
		}
		state := made[0].State()
		state.LastLR = nil
		if err := made[1].LoadState(state); err != nil {
			t.Fatal(name, err)
		}
		if a, b := groups[0], groups[1]; a.LR != b.LR || a.Momentum != b.Momentum || b.LR == b.InitialLR {
			t.Errorf("%s: got rate %v and momentum %v, want %v and %v", name, b.LR, b.Momentum, a.LR, a.Momentum)
		}
	}
}
