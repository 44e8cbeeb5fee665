package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/progress"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// wave is a run of an mlp on points of two classes, shuffled by the run's generator.
type wave struct {
	model   *mlp
	trainer *Trainer[[]int]
}

func newWave(w *World, args TrainingArguments, callbacks ...Callback) (*wave, error) {
	return loggedWave(w, slog.DiscardHandler, args, callbacks...)
}

func loggedWave(w *World, log slog.Handler, args TrainingArguments, callbacks ...Callback) (*wave, error) {
	return configuredWave(w, log, args, func(c *TrainerConfig[[]int], _ *tensor.Tape) { c.Callbacks = callbacks })
}

// configuredWave lets change change the trainer's configuration.
func configuredWave(w *World, log slog.Handler, args TrainingArguments, change func(*TrainerConfig[[]int], *tensor.Tape)) (*wave, error) {
	a, err := New(Config{World: w, Logger: slog.New(log), GradientAccumulationSteps: 2})
	if err != nil {
		return nil, err
	}
	a.SetSeed(5, false)
	g := rng.New(9)
	m := &mlp{tensor.NewParameter(make([]float32, 12), 6, 2), tensor.NewParameter(make([]float32, 6)),
		tensor.NewParameter(make([]float32, 12), 2, 6), tensor.NewParameter(make([]float32, 2))}
	g.Linear(m.w1.Data(), m.b1.Data(), 2)
	g.Linear(m.w2.Data(), m.b2.Data(), 6)
	x, y := make([]float32, 2*22), make([]int, 22)
	for i := range y {
		x[2*i], x[2*i+1] = float32(math.Sin(float64(i))), float32(math.Cos(3*float64(i)))
		y[i] = b2i(x[2*i]*x[2*i+1] > 0)
	}
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	adam, err := optim.NewAdamW(Params(m), optim.DefaultAdamW())
	if err != nil {
		return nil, err
	}
	numbers := make(data.Slice[int], len(y))
	for i := range numbers {
		numbers[i] = i
	}
	l, err := data.NewLoader(numbers, data.Samples[int], data.Options{BatchSize: 3, Shuffle: true, Global: a.Generator()})
	if err != nil {
		return nil, err
	}
	eval, err := data.NewLoader(numbers, data.Samples[int], data.Options{BatchSize: 4})
	if err != nil {
		return nil, err
	}
	forward := func(ids []int) (*tensor.Tensor, []int) {
		var xs []float32
		var ys []int
		for _, id := range ids {
			xs, ys = append(xs, x[2*id:2*id+2]...), append(ys, y[id])
		}
		h := tape.Tanh(tape.Linear(tape.Input(xs, len(ys), 2), tape.Use(m.w1), tape.Use(m.b1)))
		return tape.Linear(h, tape.Use(m.w2), tape.Use(m.b2)), ys
	}
	args.Schedule, args.WarmupSteps, args.MaxGradNorm = "cosine", 2, 1
	c := TrainerConfig[[]int]{Accelerator: a, Model: m, Optimizer: adam, Train: l, Eval: eval, Arguments: args,
		ComputeLoss: func(_ context.Context, ids []int) (*tensor.Tensor, error) {
			logits, labels := forward(ids)
			return tape.CrossEntropy(logits, labels, tensor.CrossEntropyOptions{}), nil
		},
		EvaluateBatch: func(_ context.Context, ids []int) (Evaluation, error) {
			logits, labels := forward(ids)
			e, err := EvaluateLogits(logits, labels, len(ids))
			return e, errors.Join(err, tape.Reset())
		}}
	change(&c, tape)
	t, err := NewTrainer(c)
	return &wave{m, t}, err
}

func (w *wave) weights() string {
	var b strings.Builder
	for name, p := range w.model.Parameters() {
		fmt.Fprintf(&b, "%s %x\n", name, p.Data())
	}
	return b.String()
}

func TestTrainerKeepsTheBest(t *testing.T) {
	dir := t.TempDir()
	var metrics []float64
	run, err := newWave(nil, TrainingArguments{OutputDir: dir, MaxSteps: 8, EvalSteps: 1, SaveSteps: 1, SaveTotalLimit: 2, LoadBestAtEnd: true, LogSteps: -1,
		MetricForBest: "accuracy", GreaterIsBetter: true}, OnEvent(Evaluated, func(_ context.Context, m *Moment) error {
		metrics = append(metrics, m.Metrics["eval_accuracy"])
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.trainer.Train(t.Context()); err != nil {
		t.Fatal(err)
	}
	best := slices.Max(metrics)
	at := slices.Index(metrics, best) + 1
	s := run.trainer.State()
	if *s.BestMetric != best || *s.BestGlobalStep != at || *s.BestModelCheckpoint != filepath.Join(dir, progress.CheckpointName(at)) {
		t.Errorf("the best is %v at %v in %v, want %v at %d", *s.BestMetric, *s.BestGlobalStep, *s.BestModelCheckpoint, best, at)
	}
	names, err := progress.Checkpoints(dir)
	if want := []string{progress.CheckpointName(at), progress.CheckpointName(8)}; err != nil || at < 7 && !slices.Equal(names, want) || len(names) != 2 {
		t.Errorf("checkpoints are %q, want %q (%v)", names, want, err)
	}
	now := run.weights()
	if err := run.trainer.Accelerator().LoadState(t.Context(), *s.BestModelCheckpoint); err != nil {
		t.Fatal(err)
	}
	if run.weights() != now {
		t.Error("the run did not end with the best weights")
	}
}

// TestABetterEvaluationWithoutACheckpointIsSaid: the evaluation of step 3 is the best, but only steps 2 and 4 have
// checkpoints. The run ended with the weights of step 2 and said nothing.
func TestABetterEvaluationWithoutACheckpointIsSaid(t *testing.T) {
	var log bytes.Buffer
	values := []float64{0.1, 0.5, 0.9, 0.6}
	run, err := loggedWave(nil, slog.NewTextHandler(&log, nil), TrainingArguments{OutputDir: t.TempDir(), MaxSteps: 4, EvalSteps: 1, SaveSteps: 2, LoadBestAtEnd: true,
		LogSteps: -1, MetricForBest: "accuracy", GreaterIsBetter: true}, OnEvent(Evaluated, func(_ context.Context, m *Moment) error {
		m.Metrics["eval_accuracy"] = values[m.State.GlobalStep-1]
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.trainer.Train(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := run.trainer.State(); *s.BestGlobalStep != 3 || filepath.Base(*s.BestModelCheckpoint) != "checkpoint-2" {
		t.Fatalf("the best is step %d, in %s", *s.BestGlobalStep, *s.BestModelCheckpoint)
	}
	if want := "the best evaluation has no checkpoint"; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "best_step=3") {
		t.Errorf("got %q, want %q of step 3", log.String(), want)
	}
}

func TestTrainerStopsEarly(t *testing.T) {
	for _, c := range []struct {
		metrics []float64
		after   int
	}{
		{[]float64{3, 2, 1, 1, 1, 0}, 5},
		{[]float64{3, 2.95, 2.9, 0}, 3}, // better, but not by enough
		{[]float64{math.NaN(), 3, 2, 2, 2, 0}, 5},
		{[]float64{3, 4, 2, 3, 1, 2, 0}, 8},
	} {
		stop := &EarlyStopping{Patience: 2, Threshold: 0.1}
		control := Control{}
		n := 0
		for _, v := range c.metrics {
			n++
			if err := stop.On(t.Context(), &Moment{Event: Evaluated, Metrics: map[string]float64{"eval_loss": v}, Control: &control}); err != nil {
				t.Fatal(err)
			}
			again := &EarlyStopping{Patience: 2, Threshold: 0.1} // as after a resumption
			state := stop.CallbackState()
			state.Attributes["early_stopping_patience_counter"] = float64(stop.bad)
			if err := again.LoadCallbackState(state); err != nil {
				t.Fatal(err)
			}
			if stop = again; control.StopTraining {
				break
			}
		}
		if control.StopTraining != (c.after <= len(c.metrics)) || control.StopTraining && n != c.after {
			t.Errorf("%v: stopped %v after %d, want %d", c.metrics, control.StopTraining, n, c.after)
		}
	}
	if err := (&EarlyStopping{Metric: "f1"}).On(t.Context(), &Moment{Event: Evaluated}); err == nil || !strings.Contains(err.Error(), "eval_f1") {
		t.Errorf("a metric that is not there: %v", err)
	}
}

func TestTrainerTellsCallbacks(t *testing.T) {
	var events []string
	all := CallbackFunc(func(_ context.Context, m *Moment) error {
		events = append(events, string(m.Event))
		return nil
	})
	run, err := newWave(nil, TrainingArguments{OutputDir: t.TempDir(), Epochs: 1, MaxSteps: 2, SaveSteps: 2, EvalSteps: 2, LogSteps: 1}, all)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.trainer.Train(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "train_begin epoch_begin step_start substep_end step_end log step_start substep_end step_end log log evaluate save epoch_end log train_end"
	if got := strings.Join(events, " "); got != want {
		t.Errorf("events are\n%s, want\n%s", got, want)
	}
	events = nil
	if run, err = newWave(nil, TrainingArguments{Unit: Batches, MaxSteps: 2, LogSteps: 1, EvalSteps: -1}, all); err != nil {
		t.Fatal(err)
	}
	if _, err := run.trainer.Train(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = "train_begin epoch_begin step_start log step_end step_start log step_end epoch_end log train_end"
	if got := strings.Join(events, " "); got != want {
		t.Errorf("events of batches are\n%s, want\n%s", got, want)
	}
	broken := errors.New("broken")
	if run, err = newWave(nil, TrainingArguments{}, OnEvent(EpochBegin, func(context.Context, *Moment) error { return broken })); err != nil {
		t.Fatal(err)
	}
	if _, err := run.trainer.Train(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "epoch_begin") {
		t.Errorf("a callback's error: %v", err)
	}
}

// TestTrainerEvaluatesAlikeOnAnyWorld: repeated samples at the end do not count.
func TestTrainerEvaluatesAlikeOnAnyWorld(t *testing.T) {
	results := map[int]map[string]float64{}
	for _, ranks := range []int{1, 2, 3} {
		err := Launch(t.Context(), ranks, func(ctx context.Context, w *World) error {
			run, err := newWave(w, TrainingArguments{})
			if err != nil {
				return err
			}
			m, err := run.trainer.Evaluate(ctx)
			if w.Rank() == 0 {
				results[ranks] = m
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for ranks, m := range results {
		for _, name := range []string{"eval_loss", "eval_accuracy", "eval_perplexity"} {
			if d := math.Abs(m[name] - results[1][name]); !(d < 1e-9) || m[name] == 0 {
				t.Errorf("%d ranks: %s is %v, want %v", ranks, name, m[name], results[1][name])
			}
		}
	}
}

func TestTrainerRefuses(t *testing.T) {
	for _, c := range []struct {
		args TrainingArguments
		want string
	}{
		{TrainingArguments{RealBatchSize: 7}, "real_batch_size must be divisible"},
		{TrainingArguments{Strategy: "hours"}, `strategy "hours"`},
		{TrainingArguments{Strategy: optim.BySteps}, "0 steps"},
		{TrainingArguments{Epochs: -1}, "-1 epochs"},
		{TrainingArguments{LoadBestAtEnd: true}, "needs an OutputDir"},
		{TrainingArguments{LoadBestAtEnd: true, OutputDir: "out", EvalSteps: 2}, "got SaveSteps 0 and EvalSteps 2"},
		{TrainingArguments{LoadBestAtEnd: true, OutputDir: "out", EvalSteps: 2, SaveSteps: 5}, "got SaveSteps 5 and EvalSteps 2"},
		{TrainingArguments{LoadBestAtEnd: true, OutputDir: "out", EvalSteps: 2, SaveSteps: -1}, "got SaveSteps -1"},
	} {
		if _, err := newWave(nil, c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.args, err, c.want)
		}
	}
	if _, err := newWave(nil, TrainingArguments{RealBatchSize: 7}); !errors.Is(err, optim.ErrRealBatch) {
		t.Errorf("the error is %v", err)
	}
	run, err := newWave(nil, TrainingArguments{RealBatchSize: 12, ResumeFrom: filepath.Join(t.TempDir(), "none")})
	if err != nil {
		t.Fatal(err)
	}
	if n := run.trainer.GradientAccumulationSteps(); n != 4 {
		t.Errorf("a real batch of 12 takes %d batches of 3", n)
	}
	if _, err := run.trainer.Train(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("resuming from nothing: %v", err)
	}
}

// TestTrainerWeightsItems: where the loss is summed over items, the window's step is that
// of the mean over them, however they are spread.
func TestTrainerWeightsItems(t *testing.T) {
	fit := func(batch, window int) float32 {
		w, tape := tensor.NewParameter([]float32{0}, 1, 1), tensor.NewTape(tensor.Options{Threads: 1})
		sgd, err := optim.NewSGD(Params(w), optim.SGDOptions{LR: 0.01})
		if err != nil {
			t.Fatal(err)
		}
		l, err := data.NewLoader(data.Slice[int]{1, 2, 3, 4, 5, 6, 7}, data.Samples[int], data.Options{BatchSize: batch})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := NewTrainer(TrainerConfig[[]int]{Model: w, Optimizer: sgd, Train: l, Items: func(b []int) int { return len(b) },
			Arguments: TrainingArguments{Epochs: 1, GradientAccumulationSteps: window, LogSteps: -1},
			ComputeLoss: func(_ context.Context, b []int) (*tensor.Tensor, error) {
				x := make([]float32, len(b))
				for i, v := range b {
					x[i] = float32(v)
				}
				in := tape.Input(x, len(x), 1)
				return tape.MSE(tape.Linear(in, tape.Use(w), nil), tape.Scale(in, 2), tensor.Sum), nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Train(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w.Data()[0]
	}
	whole := fit(7, 1)
	for batch := 1; batch < 7; batch++ {
		if got := fit(batch, 7); !(math.Abs(float64(got-whole)) <= 1e-6) {
			t.Errorf("batches of %d: the weight is %v, want %v", batch, got, whole)
		}
	}
}

func TestTrackersOfAnAccelerator(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	open := 0
	err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w, Project: ProjectConfiguration{LoggingDir: dir}, LogWith: []string{"all"}})
		if err != nil {
			return err
		}
		if err := a.InitTrackers("run", track.Values{"lr": 0.1}); err != nil {
			return err
		}
		mu.Lock()
		open += b2i(a.Tracker("csv") != nil)
		mu.Unlock()
		return errors.Join(a.Log(ctx, track.Values{"loss": 1.5}, 3), a.EndTraining())
	})
	if err != nil {
		t.Fatal(err)
	}
	if open != 1 {
		t.Errorf("%d ranks have trackers", open)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.csv")); string(b) != "step,loss\n3,1.5\n" {
		t.Errorf("the table is %q", b)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl")); !bytes.HasPrefix(b, []byte(`{"config":{"lr":0.1}}`)) {
		t.Errorf("the lines are %q", b)
	}
	a, err := New(Config{LogWith: []string{"csv"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.InitTrackers("run", nil); err == nil {
		t.Error("trackers without a folder were opened")
	}
}

// TestTrainerUnscalesBeforeItClips: with a scaler the norms are the true ones, and an
// overflow leaves the step and the schedule's out.
func TestTrainerUnscalesBeforeItClips(t *testing.T) {
	scaler, err := optim.NewScaler(optim.ScalerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []StepResult
	for _, s := range []*optim.Scaler{nil, scaler} {
		a, err := New(Config{Scaler: s, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		step := 0
		c, w, err := fittingConfig(a, 4, 2, false, TrainingArguments{MaxSteps: 3, MaxGradNorm: 0.5, Schedule: "linear", LogSteps: -1, EvalSteps: -1},
			OnEvent(StepEnd, func(_ context.Context, m *Moment) error {
				got = append(got, *m.Result)
				return nil
			}))
		if err != nil {
			t.Fatal(err)
		}
		loss := c.ComputeLoss
		c.ComputeLoss = func(ctx context.Context, b []int) (*tensor.Tensor, error) {
			l, err := loss(ctx, b)
			if step++; s != nil && step == 3 {
				l = l.Tape().Scale(l, float32(math.Inf(1)))
			}
			return l, err
		}
		tr, err := NewTrainer(c)
		if err != nil {
			t.Fatal(err)
		}
		before := w.Data()[0]
		if _, err := tr.Train(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.Data()[0] == before {
			t.Error("the weight did not move")
		}
		moved := tr.Scheduler().State().LastEpoch
		if want := 3 - b2i(s != nil); moved != want {
			t.Errorf("the schedule moved %d steps, want %d", moved, want)
		}
	}
	for i := range 2 {
		if a, b := got[i], got[3+i]; a.GradNormPreClip != b.GradNormPreClip || a.GradNormPostClip != b.GradNormPostClip || !(math.Abs(b.GradNormPostClip-0.5) <= 1e-5) {
			t.Errorf("step %d: norms are %v and %v with a scaler, %v and %v without", i, b.GradNormPreClip, b.GradNormPostClip, a.GradNormPreClip, a.GradNormPostClip)
		}
	}
}

// TestTrainerShowsProgress: plain lines where there is no terminal, and the log on the
// first process only, with numbers of six digits.
func TestTrainerShowsProgress(t *testing.T) {
	var mu sync.Mutex
	var log, progress bytes.Buffer
	err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
		var callbacks []Callback
		if w.Rank() == 0 {
			callbacks = append(callbacks, ShowProgress(&progress))
		}
		run, err := loggedWave(w, slog.NewTextHandler(locked{&mu, &log}, nil), TrainingArguments{MaxSteps: 3, LogSteps: 1, EvalSteps: -1}, callbacks...)
		if err != nil {
			return err
		}
		_, err = run.trainer.Train(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "loss="); n != 4 { // three steps, and the run's
		t.Errorf("%d losses were logged:\n%s", n, log.String())
	}
	if long := regexp.MustCompile(` [a-z_]+=[-0-9.]{12,}`).FindAllString(log.String(), -1); long != nil {
		t.Errorf("lines have numbers of more than six digits, %q:\n%s", long, log.String())
	}
	if s := progress.String(); !strings.Contains(s, "1/3  33% loss ") || !strings.Contains(s, "3/3 100% loss ") {
		t.Errorf("the progress is\n%s", s)
	}
}

// locked writes for several ranks.
type locked struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (l locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
