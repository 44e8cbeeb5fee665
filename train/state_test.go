package train

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// net is a small model with a tied parameter, a frozen one and running moments.
type net struct {
	first, second, frozen *tensor.Parameter
	moments               []float32
}

func newNet(seed float32) *net {
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = seed + float32(i)/7
		}
		return x
	}
	n := &net{first: tensor.NewParameter(fill(6), 3, 2), second: tensor.NewParameter(fill(3), 1, 3),
		frozen: tensor.NewParameter(fill(2)), moments: fill(2)}
	n.frozen.Trainable = false
	return n
}

func (n *net) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		_ = yield("first.weight", n.first) && yield("second.weight", n.second) && yield("tied.weight", n.first) && yield("frozen", n.frozen)
	}
}

func (n *net) Buffers() iter.Seq2[string, []float32] {
	return func(yield func(string, []float32) bool) { yield("moments", n.moments) }
}

// run is a training run that can be saved: a model, an optimizer, a schedule, shuffled
// data, a counter, dice.
type run struct {
	acc    *Accelerator
	net    *net
	opt    optim.Optimizer
	sched  optim.Scheduler
	loader *data.Loader[[]float32]
	seen   struct{ Batches int }
	losses []float32
}

func newRun(w *World, c Config) (*run, error) { return newRunOf(newNet(0.1), w, c) }

func newRunOf(n *net, w *World, c Config) (*run, error) {
	c.World = w
	r := &run{net: n}
	var err error
	if r.acc, err = New(c); err != nil {
		return nil, err
	}
	r.acc.SetSeed(11, true)
	adam, err := optim.NewAdamW(Params(r.net), optim.AdamOptions{LR: 0.05, WeightDecay: 0.1})
	if err != nil {
		return nil, err
	}
	r.opt = adam
	r.sched = optim.NewLambda(adam, func(step int) float64 { return 1 / float64(1+step) })
	all := make(data.Slice[float32], 37)
	for i := range all {
		all[i] = float32(i%9)/9 - 0.3
	}
	r.loader, err = data.NewLoader(all, data.Samples[float32], data.Options{BatchSize: 2, Shuffle: true, Global: r.acc.Generator()})
	if err != nil {
		return nil, err
	}
	if err := r.acc.Prepare(r.net, &r.opt, &r.sched, r.loader); err != nil {
		return nil, err
	}
	return r, r.acc.RegisterForCheckpointing(&r.seen)
}

// train walks to the end of epoch epochs; each may save, and end it by an error.
func (r *run) train(ctx context.Context, epochs int, each func() error) error {
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	for r.loader.Iteration() < epochs {
		for batch, err := range r.loader.All(ctx) {
			if err != nil {
				return err
			}
			err := r.acc.Accumulate(ctx, func(ctx context.Context) error { return r.step(ctx, tape, batch) }, r.net)
			if err != nil {
				return err
			}
			r.seen.Batches++
			r.net.moments[0] += 0.3 // the same on all ranks: rank 0 saves its own
			if err := each(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) step(ctx context.Context, tape *tensor.Tape, batch []float32) error {
	x := make([]float32, 2*len(batch))
	for i, v := range batch {
		x[2*i], x[2*i+1] = v, r.acc.Generator().Float32()
	}
	h := tape.Tanh(tape.Linear(tape.Input(x, len(batch), 2), tape.Use(r.net.first), nil))
	loss := tape.MSE(tape.Linear(h, tape.Use(r.net.second), nil), tape.Input(batch, len(batch), 1), tensor.Mean)
	r.losses = append(r.losses, loss.Item())
	if err := r.acc.Backward(ctx, loss); err != nil {
		return err
	}
	if err := r.opt.Step(); err != nil {
		return err
	}
	if err := r.sched.Step(); err != nil {
		return err
	}
	r.opt.ZeroGrad()
	return nil
}

func exact(t *testing.T) Config {
	c := Config{GradientAccumulationSteps: 3, Corrections: Corrected(), ProjectDir: t.TempDir()}
	c.DataLoader.UseStatefulDataLoader = true
	return c
}

func TestARunGoesOnBitByBit(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		for _, stop := range []int{1, 3, 7, 10, 19, 20} {
			t.Run(fmt.Sprintf("%d ranks, after %d batches", ranks, stop), func(t *testing.T) { goesOn(t, ranks, stop) })
		}
	}
}

func goesOn(t *testing.T, ranks, stop int) {
	c := exact(t)
	dir := filepath.Join(c.ProjectDir, "saved")
	want, got := make([]*run, ranks), make([]*run, ranks)
	err := Launch(t.Context(), ranks, func(ctx context.Context, w *World) error {
		r, err := newRun(w, c)
		if err != nil {
			return err
		}
		want[w.Rank()] = r
		return r.train(ctx, 3, func() error {
			if r.seen.Batches != stop {
				return nil
			}
			_, err := r.acc.SaveState(ctx, dir)
			r.losses = nil
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	err = Launch(t.Context(), ranks, func(ctx context.Context, w *World) error {
		r, err := newRun(w, c)
		if err != nil {
			return err
		}
		got[w.Rank()] = r
		r.acc.SetSeed(99, true)
		r.net.moments[0], r.net.frozen.Data()[0] = 9, 9
		if err := r.acc.LoadState(ctx, dir); err != nil {
			return err
		}
		return r.train(ctx, 3, func() error { return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range ranks {
		w, g := want[r], got[r]
		if !slices.Equal(w.losses, g.losses) || !reflect.DeepEqual(w.net, g.net) || w.seen != g.seen {
			t.Errorf("rank %d: %d losses %v, %v;\nwant %d %v, %v", r, len(g.losses), g.losses, g.net, len(w.losses), w.losses, w.net)
		}
		if !reflect.DeepEqual(w.sched.LastLR(), g.sched.LastLR()) || *w.acc.Generator() != *g.acc.Generator() {
			t.Errorf("rank %d: rate %v, want %v; or the generators differ", r, g.sched.LastLR(), w.sched.LastLR())
		}
	}
}

// TestAKilledSaveLeavesOldOrNew ends the process, as it were, before every single change
// to the disk, in turn.
func TestAKilledSaveLeavesOldOrNew(t *testing.T) {
	c := exact(t)
	dir := filepath.Join(c.ProjectDir, "saved")
	r, err := newRun(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	save := func() { // the old one: three batches
		t.Helper()
		if _, err := r.acc.SaveState(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	var changes []string
	r.acc.store.BeforeChange = func(change string) error { changes = append(changes, change); return nil }
	r.seen.Batches = 1
	save()
	checkOrder(t, changes)
	olds, news := 0, 0
	for at := range len(changes) {
		r.acc.store.BeforeChange = nil
		r.seen.Batches = 1
		save()
		n := 0
		r.acc.store.BeforeChange = func(string) error {
			if n++; n > at {
				return checkpoint.ErrCrash
			}
			return nil
		}
		r.seen.Batches = 2
		if _, err := r.acc.SaveState(t.Context(), dir); !errors.Is(err, checkpoint.ErrCrash) {
			t.Fatalf("before %q: %v", changes[at], err)
		}
		again, err := newRun(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.acc.LoadState(t.Context(), dir); err != nil {
			t.Fatalf("killed before %q: %v", changes[at], err)
		}
		switch again.seen.Batches {
		case 1:
			olds++
		case 2:
			news++
		default:
			t.Errorf("killed before %q: neither the old nor the new", changes[at])
		}
		if news > 0 && again.seen.Batches == 1 {
			t.Errorf("killed before %q: the old one again", changes[at])
		}
	}
	if olds == 0 || news == 0 {
		t.Errorf("%d times the old one, %d times the new one", olds, news)
	}
}

// checkOrder: no file is renamed before all are on disk.
func checkOrder(t *testing.T, changes []string) {
	t.Helper()
	rename := slices.IndexFunc(changes, func(s string) bool { return strings.HasPrefix(s, "rename") })
	for i, s := range changes {
		if name, ok := strings.CutPrefix(s, "write "); ok {
			if j := slices.Index(changes, "sync "+name); j < i || j > rename {
				t.Errorf("%s is written at %d, synced at %d, renamed at %d", name, i, j, rename)
			}
		}
	}
}

func TestSaveStateKeepsForeignFolders(t *testing.T) {
	c := Config{ProjectDir: t.TempDir()}
	r, err := newRun(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	diary := filepath.Join(c.ProjectDir, "diary.txt")
	if err := os.WriteFile(diary, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.acc.SaveState(t.Context(), c.ProjectDir); err == nil || !strings.Contains(err.Error(), "diary.txt") {
		t.Errorf("a folder with a diary: %v", err)
	}
	if _, err := os.Stat(diary); err != nil {
		t.Error(err)
	}
	if _, err := r.acc.SaveState(t.Context(), ""); err == nil {
		t.Error("saved to nowhere")
	}
	if err := r.acc.LoadState(t.Context(), ""); err == nil {
		t.Error("loaded from nowhere")
	}
	if err := r.acc.LoadState(t.Context(), "nowhere"); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("loaded from nowhere: %v", err)
	}
}

// TestRanksWithDifferentFoldersSaveAndLoadNothing: each rank wrote to its own folder, which was an error that named no other
// folder, or half a checkpoint where a killed process had left its temporary one; each rank loaded from its own.
func TestRanksWithDifferentFoldersSaveAndLoadNothing(t *testing.T) {
	c := exact(t)
	dirs := []string{filepath.Join(c.ProjectDir, "one"), filepath.Join(c.ProjectDir, "two")}
	none := []string{dirs[0], ""}
	numbered := c
	numbered.Project = ProjectConfiguration{ProjectDir: c.ProjectDir, AutomaticCheckpointNaming: true}
	numbered.ProjectDir = ""
	err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
		r, err := newRun(w, c)
		if err != nil {
			return err
		}
		n, err := newRun(w, numbered)
		if err != nil {
			return err
		}
		n.acc.SetSaveIteration(w.Rank())
		save := func(a *Accelerator, dir string) error { _, err := a.SaveState(ctx, dir); return err }
		for _, x := range []struct {
			err  error
			want []string
		}{
			{save(r.acc, dirs[w.Rank()]), dirs},
			{save(r.acc, none[w.Rank()]), []string{`""`, dirs[0]}},
			{save(n.acc, ""), []string{"checkpoint_0", "checkpoint_1"}},
			{r.acc.LoadState(ctx, dirs[w.Rank()]), dirs},
			{r.acc.LoadState(ctx, none[w.Rank()]), []string{`""`, dirs[0]}},
		} {
			for _, part := range x.want {
				if x.err == nil || !strings.Contains(x.err.Error(), part) {
					return fmt.Errorf("rank %d: got error %v, want one that names %s", w.Rank(), x.err, part)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(c.ProjectDir); len(entries) > 0 {
		t.Errorf("a save that failed left %v", entries)
	}
}

func TestABrokenCheckpointChangesNothing(t *testing.T) {
	c := exact(t)
	dir := filepath.Join(c.ProjectDir, "saved")
	r, err := newRun(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.acc.SaveState(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, broken := range [][]byte{nil, whole[:len(whole)/2]} {
			if err := os.WriteFile(path, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			other, err := newRun(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			other.net.first.Data()[0] = 77
			if f.Name() == checkpoint.CustomFile(0) {
				continue // the errors of objects about their own state come last
			}
			if err := other.acc.LoadState(t.Context(), dir); err == nil || !strings.Contains(err.Error(), f.Name()) {
				t.Errorf("%s broken: %v", f.Name(), err)
			}
			if other.net.first.Data()[0] != 77 {
				t.Errorf("%s broken: weights were loaded", f.Name())
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

type other struct{ n int }

func (o *other) StateDict() (any, error)      { return map[string]int{"n": o.n}, nil }
func (o *other) LoadStateDict(b []byte) error { o.n = len(b); return nil }

func TestRegisterNamesWhatCannotBeSaved(t *testing.T) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.RegisterForCheckpointing(&other{}, new(int), &struct{ X []string }{}); err != nil {
		t.Error(err)
	}
	err = a.RegisterForCheckpointing(&other{}, 3, nil, new(chan int), (*other)(nil))
	if err == nil || a.store.Registered() != 3 {
		t.Fatalf("registered %d: %v", a.store.Registered(), err)
	}
	for _, want := range []string{"object 2", "object 3", "object 4", "object 5"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestSkipFrozenLeavesTheBaseOut(t *testing.T) {
	c := Config{Project: ProjectConfiguration{SkipFrozen: true}}
	dir := filepath.Join(t.TempDir(), "saved")
	r, err := newRun(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	hooked := 0
	r.acc.RegisterSaveStatePreHook(func(dir string) error {
		hooked++
		return os.WriteFile(filepath.Join(dir, "notes.json"), []byte("{}"), 0o600)
	})
	r.acc.RegisterLoadStatePreHook(func(dir string) error {
		hooked++
		_, err := os.Stat(filepath.Join(dir, "notes.json"))
		return err
	})
	for range 2 {
		if _, err := r.acc.SaveState(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	r.net.frozen.Data()[0] = 5
	if err := r.acc.LoadState(t.Context(), dir); err != nil || r.net.frozen.Data()[0] != 5 || hooked != 3 {
		t.Errorf("%v, %v, %d hooks", err, r.net.frozen.Data(), hooked)
	}
}
