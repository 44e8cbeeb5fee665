package optim

import (
	"encoding/json"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

func TestGoldenSchedulers(t *testing.T) {
	n := each(t, "train/schedulers/tables.json", tableCase.check)
	n += each(t, "train/schedulers/plateau.json", plateauCase.check)
	n += each(t, "train/schedulers/accelerated.json", acceleratedCase.check)
	n += each(t, "train/schedulers/trainer_counts.json", trainerCase.check)
	golden.Count(t, "train/schedulers", n)
}

// steps is a count, or null where none was given.
type steps struct{ n *int }

func (s *steps) UnmarshalJSON(b []byte) error {
	var f *float64
	if err := json.Unmarshal(b, &f); err != nil || f == nil {
		return err
	}
	n := int(*f)
	s.n = &n
	return nil
}

type tableCase struct {
	Type    string
	LR      float64
	Warmup  steps          `json:"num_warmup_steps"`
	Total   steps          `json:"num_training_steps"`
	Options map[string]any `json:"scheduler_specific_kwargs"`
	Groups  float64        `json:"param_groups"`
	Rates   []flat64       `json:"lr_by_step"`
	Error   string
}

// flat64 is a number or a list of them, one for each group.
type flat64 []float64

func (f *flat64) UnmarshalJSON(b []byte) error {
	var list []figure
	if json.Unmarshal(b, &list) != nil {
		var v figure
		if err := v.UnmarshalJSON(b); err != nil {
			return err
		}
		list = []figure{v}
	}
	*f = nil
	for _, v := range list {
		*f = append(*f, float64(v))
	}
	return nil
}

func (c tableCase) check(t *testing.T) {
	d := build(t, "SGD", optimizerOptions{LR: &c.LR}, &VectorParam{Value: []float32{1}})
	for i := 1; i < int(c.Groups); i++ {
		if err := d.AddGroup([]Param{&VectorParam{Value: []float32{1}}}, func(g *Group) { g.LR = c.groupLR(i) }); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewScheduler(d, ScheduleSpec{c.Type, c.Warmup.n, c.Total.n, c.Options})
	if c.Error != "" || err != nil {
		if c.Error == "" || err == nil {
			t.Errorf("%s: error %v, the reference's is %q", c.Type, err, c.Error)
		}
		return
	}
	for i, want := range c.Rates {
		if i > 0 {
			if err := s.Step(); err != nil {
				t.Fatal(err)
			}
		}
		got := s.LastLR()
		for j := range want {
			if j >= len(got) || !near(got[j]/c.LR, want[j]/c.LR, 1e-12) {
				t.Fatalf("%s: rates %v after %d steps, want %v", c.Type, got, i, want)
			}
		}
	}
}

// groupLR is the rate that a group began with: schedules by name scale the rates of all
// groups alike.
func (c tableCase) groupLR(i int) float64 {
	for _, r := range c.Rates {
		if i < len(r) && r[0] != 0 {
			return c.LR * r[i] / r[0]
		}
	}
	return 0
}

type plateauCase struct {
	Type    string
	LR      float64
	Options map[string]any `json:"scheduler_specific_kwargs"`
	Metrics []figure
	After   []flat64 `json:"lr_after_each"`
}

func (c plateauCase) check(t *testing.T) {
	d := build(t, "SGD", optimizerOptions{LR: &c.LR}, &VectorParam{Value: []float32{1}})
	s, err := NewScheduler(d, ScheduleSpec{Name: c.Type, Options: c.Options})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range c.Metrics {
		if err := s.Step(float64(m)); err != nil {
			t.Fatal(err)
		}
		if got := s.LastLR()[0]; !near(got, c.After[i][0], 1e-12) {
			t.Errorf("rate %v after metric %d, want %v", got, i, c.After[i])
		}
	}
}

type acceleratedCase struct {
	World   float64 `json:"world_size"`
	Num     float64 `json:"num_steps"`
	Split   bool    `json:"split_batches"`
	Epochs  float64
	Type    string
	Warmup  steps          `json:"num_warmup_steps"`
	Total   steps          `json:"num_training_steps"`
	Options map[string]any `json:"scheduler_specific_kwargs"`
	LR      float64
	Len     float64 `json:"len_prepared"`
	Columns []string
	Trace   [][]figure
	Steps   float64 `json:"scheduler_steps"`
	Updates float64 `json:"optimizer_steps"`
}

func (c acceleratedCase) check(t *testing.T) {
	d := build(t, "SGD", optimizerOptions{LR: &c.LR}, &VectorParam{Value: []float32{1}})
	inner, err := NewScheduler(d, ScheduleSpec{c.Type, c.Warmup.n, c.Total.n, c.Options})
	if err != nil {
		t.Fatal(err)
	}
	sync, window, updates, row := false, 0, 0, 0
	syncs := func() bool { return sync }
	o := &Prepared{Optimizer: d, Syncs: syncs}
	s := &PreparedScheduler{Scheduler: inner, Optimizers: []*Prepared{o}, World: int(c.World), SplitBatches: c.Split, Syncs: syncs}
	for range int(c.Epochs) {
		for i := range int(c.Len) {
			window++
			sync = window%int(c.Num) == 0
			if i == int(c.Len)-1 { // the loader's end
				sync, window = true, 0
			}
			if row >= len(c.Trace) {
				t.Fatalf("%d micro steps, the reference has fewer", row+1)
			}
			seen := map[string]float64{"lr_used_by_this_step": s.LastLR()[0]}
			if sync {
				seen["sync_gradients"] = 1
				updates++
			}
			for _, step := range []func() error{o.Step, func() error { return s.Step() }} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			seen["lr_after"], seen["last_epoch_after"] = s.LastLR()[0], float64(s.State().LastEpoch)
			for j, name := range c.Columns {
				if !near(seen[name], float64(c.Trace[row][j]), 1e-12) {
					t.Errorf("micro step %d: %s is %v, want %v", row, name, seen[name], c.Trace[row][j])
				}
			}
			row++
		}
	}
	if row != len(c.Trace) || updates != int(c.Updates) || s.State().LastEpoch != int(c.Steps) {
		t.Errorf("%d micro steps, %d updates, %d of the schedule; want %d, %v, %v", row, updates, s.State().LastEpoch, len(c.Trace), c.Updates, c.Steps)
	}
}

func TestGoldenStepCounts(t *testing.T) {
	golden.Count(t, "train/seeds/train_a_step-counts", each(t, "train/seeds/train_a_step.json", countCase.check))
}

type countCase struct {
	World      float64 `json:"world_size"`
	Samples    float64 `json:"num_samples"`
	Batch      float64 `json:"per_device_batch_size"`
	Num        float64 `json:"gradient_accumulation_steps"`
	Epochs     float64
	Strategy   Strategy `json:"train_strategy"`
	RankCounts []struct {
		Steps    float64 `json:"n_training_steps"`
		Schedule float64 `json:"scheduler_num_training_steps"`
		Micro    float64 `json:"micro_steps"`
	} `json:"ranks"`
}

func (c countCase) check(t *testing.T) {
	for rank, want := range c.RankCounts {
		got, err := Count(RunLength{Samples: int(c.Samples), BatchSize: int(c.Batch), World: int(c.World), Accumulation: int(c.Num),
			Strategy: c.Strategy, Epochs: c.Epochs, Steps: int(want.Micro)})
		if err != nil {
			t.Fatal(err)
		}
		if got.Steps != int(want.Steps) || got.ScheduleSteps != int(want.Schedule) || got.Accumulation != int(c.Num) {
			t.Errorf("rank %d: %+v, want %+v", rank, got, want)
		}
	}
}

// trainerCase is the Trainer on y = w·x: w starts at 1, x counts from 0, y is 2x.
type trainerCase struct {
	N         float64
	Batch     float64 `json:"per_device_train_batch_size"`
	Num       float64 `json:"gradient_accumulation_steps"`
	Epochs    float64 `json:"num_train_epochs"`
	Limit     float64 `json:"max_steps_arg"`
	Warmup    float64 `json:"warmup_steps"`
	Drop      bool    `json:"dataloader_drop_last"`
	MaxSteps  float64 `json:"state_max_steps"`
	LastEpoch float64 `json:"scheduler_last_epoch"`
	Log       []struct {
		Loss float64
		Norm float64 `json:"grad_norm"`
		LR   float64 `json:"learning_rate"`
	}
	Final float64 `json:"final_w"`
}

func (c trainerCase) check(t *testing.T) {
	n, batch, num := int(c.N), int(c.Batch), int(c.Num)
	batches := (n + batch - 1) / batch
	if c.Drop {
		batches = n / batch
	}
	limit := TrainerSteps(batches, num, c.Epochs, int(c.Limit))
	if limit != int(c.MaxSteps) {
		t.Fatalf("%d steps, want %v", limit, c.MaxSteps)
	}
	w := &VectorParam{Value: []float32{1}}
	d, err := NewAdamW([]Param{w}, AdamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewLambda(d, Linear(int(c.Warmup), limit))
	done := 0
	for done < limit {
		for first := 0; first < batches && done < limit; first += num {
			last := min(first+num, batches)
			var loss, grad float64
			for b := first; b < last; b++ {
				l, g := squares(w.Value[0], b*batch, min((b+1)*batch, n))
				loss += l / float64(last-first) // a short window by its length
				grad += g / float64(last-first)
			}
			w.Gradient = []float32{float32(grad)}
			want := c.Log[done]
			if norm := ClipNorm([]Param{w}, 1, 2); !near(norm, want.Norm, 5e-5) || !near(loss, want.Loss, 1e-5) || !near(s.LastLR()[0], want.LR, 1e-12) {
				t.Errorf("step %d: loss %v, norm %v, rate %v; want %+v", done, loss, norm, s.LastLR(), want)
			}
			if err := d.Step(); err != nil {
				t.Fatal(err)
			}
			if err := s.Step(); err != nil {
				t.Fatal(err)
			}
			d.ZeroGrad()
			done++
		}
	}
	if !near(float64(w.Value[0]), c.Final, 1e-6) || s.LastEpoch() != int(c.LastEpoch) {
		t.Errorf("ends at w = %v, step %d; want %v, %v", w.Value[0], s.LastEpoch(), c.Final, c.LastEpoch)
	}
}

// squares is the mean squared error over x = lo … hi-1 and its gradient.
func squares(w float32, lo, hi int) (loss, grad float64) {
	for x := lo; x < hi; x++ {
		e := (float64(w) - 2) * float64(x)
		loss += e * e / float64(hi-lo)
		grad += 2 * e * float64(x) / float64(hi-lo)
	}
	return loss, grad
}
