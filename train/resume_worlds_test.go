package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// zeroRun is an accelerator with ZeRO and a small model on it.
type zeroRun struct {
	a   *Accelerator
	m   *chain
	opt optim.Optimizer
	log bytes.Buffer
}

func newZeroRun(w *World, project string) (*zeroRun, error) {
	r := &zeroRun{m: newChain(5)}
	var err error
	r.a, err = New(Config{World: w, Plugin: &LowLevelZeroPlugin{World: w}, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
		Project: ProjectConfiguration{ProjectDir: project, AutomaticCheckpointNaming: true}})
	if err == nil {
		r.opt = adam(r.m)
		err = r.a.Prepare(&r.opt, r.m)
	}
	return r, err
}

// step trains on the same batch on all ranks: means over 1, 2 or 4 of them are the same bits.
func (r *zeroRun) step(ctx context.Context) error {
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	if err := errors.Join(r.a.Backward(ctx, r.m.loss(tape, 1, 2)), r.opt.Step()); err != nil {
		return err
	}
	r.opt.ZeroGrad()
	return nil
}

// trained returns weights after some steps on one rank.
func trained(t *testing.T, steps int) [][]float32 {
	t.Helper()
	r, err := newZeroRun(nil, t.TempDir())
	for range steps {
		if err == nil {
			err = r.step(t.Context())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.m.values()
}

// Split optimizer state that n ranks saved continues on m ranks with the same bits, and rank 0 says
// what changes.
func TestOtherNumbersOfRanksResume(t *testing.T) {
	want := trained(t, 2)
	for saved := 1; saved <= 4; saved *= 2 {
		project := t.TempDir()
		err := Launch(t.Context(), saved, func(ctx context.Context, w *World) error {
			r, err := newZeroRun(w, project)
			if err = errors.Join(err, r.step(ctx)); err == nil {
				_, err = r.a.SaveState(ctx, "")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for now := 1; now <= 4; now *= 2 {
			err := Launch(t.Context(), now, func(ctx context.Context, w *World) error {
				r, err := newZeroRun(w, project)
				if err = errors.Join(err, r.a.LoadState(ctx, ""), r.step(ctx)); err != nil {
					return err
				}
				if !slices.EqualFunc(r.m.values(), want, slices.Equal) {
					return fmt.Errorf("weights %v, want %v", r.m.values(), want)
				}
				line := fmt.Sprintf("saved_by=%d ranks=%d", saved, now)
				if said := strings.Contains(r.log.String(), line); said != (saved != now && r.a.IsMainProcess()) {
					return fmt.Errorf("the log is %q", r.log.String())
				}
				if strings.Contains(r.log.String(), "of ranks 1 to 1") {
					return fmt.Errorf("the log names one rank as several: %q", r.log.String())
				}
				return nil
			})
			if err != nil {
				t.Errorf("%d to %d ranks: %v", saved, now, err)
			}
		}
	}
}

// Loaders of another number of ranks continue at the sample that comes next, or repeat less than one
// step.
func TestLoadersOfOtherNumbersOfRanksContinue(t *testing.T) {
	const batch = 2
	for _, split := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "state")
		walk := func(n, batches int, load bool) (first int) {
			err := Launch(t.Context(), n, func(ctx context.Context, w *World) error {
				size := batch
				if split {
					size *= n
				}
				l := indices(48, size)
				a, err := New(Config{World: w, Logger: slog.New(slog.DiscardHandler), DataLoader: DataLoaderConfig{UseStatefulDataLoader: true, SplitBatches: split}})
				if err == nil {
					err = a.Prepare(l)
				}
				if err == nil && load {
					err = a.LoadState(ctx, dir)
				}
				if err != nil {
					return err
				}
				i := 0
				for ids, err := range l.All(ctx) {
					if err != nil {
						return err
					}
					if i == 0 && a.IsMainProcess() {
						first = ids[0]
					}
					if i++; i == batches {
						break
					}
				}
				if !load {
					_, err = a.SaveState(ctx, dir)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return first
		}
		walk(2, 3, false) // 12 samples
		for n, want := range map[int]int{1: 12, 2: 12, 3: 12, 4: 8} {
			if split { // batches of the caller count
				want = 3 * batch * n
			}
			if got := walk(n, 1, true); got != want {
				t.Errorf("split %v: %d ranks continue at %d, want %d", split, n, got, want)
			}
		}
	}
}

// A shuffled walk that n ranks began keeps its order on m ranks: no sample is left out, and fewer
// than one step of all ranks repeat. One rank draws its order from another generator than several.
func TestShuffledWalksOfOtherNumbersOfRanksContinue(t *testing.T) {
	const batch, samples, steps = 2, 72, 3
	for n := 1; n <= 3; n++ {
		for m := 1; m <= 3; m++ {
			dir := filepath.Join(t.TempDir(), "state")
			var mu sync.Mutex
			seen := map[int]int{}
			walk := func(ranks, stop int, before, after func(ctx context.Context, a *Accelerator) error) {
				t.Helper()
				err := Launch(t.Context(), ranks, func(ctx context.Context, w *World) error {
					s := make(data.Slice[int], samples)
					for i := range s {
						s[i] = i
					}
					l, err := data.NewLoader(s, data.Samples[int], data.Options{BatchSize: batch, Shuffle: true, Global: rng.New(5)})
					if err != nil {
						return err
					}
					a, err := New(Config{World: w, Logger: slog.New(slog.DiscardHandler), DataLoader: DataLoaderConfig{UseStatefulDataLoader: true}})
					if err = errors.Join(err, a.Prepare(l), before(ctx, a)); err != nil {
						return err
					}
					k := 0
					for ids, err := range l.All(ctx) {
						if err != nil {
							return err
						}
						mu.Lock()
						for _, id := range ids {
							seen[id]++
						}
						mu.Unlock()
						if k++; k == stop {
							break
						}
					}
					return after(ctx, a)
				})
				if err != nil {
					t.Fatalf("%d to %d ranks: %v", n, m, err)
				}
			}
			none := func(context.Context, *Accelerator) error { return nil }
			walk(n, steps, none, func(ctx context.Context, a *Accelerator) error { _, err := a.SaveState(ctx, dir); return err })
			walk(m, -1, func(ctx context.Context, a *Accelerator) error { return a.LoadState(ctx, dir) }, none)
			repeated := steps * n * batch % (m * batch)
			all := 0
			for _, times := range seen {
				all += times
			}
			if len(seen) != samples || all != samples+repeated {
				t.Errorf("%d to %d ranks: %d samples were seen %d times, want %d seen %d times", n, m, len(seen), all, samples, samples+repeated)
			}
		}
	}
}

// The newest checkpoint is damaged: the one before is taken, and a line says so.
func TestADamagedCheckpointIsPassedOver(t *testing.T) {
	want := trained(t, 1)
	for _, file := range []string{"model.safetensors", "optimizer.safetensors", "random_states_0.json", "random_states_1.json"} {
		for _, damage := range []string{"cut", "missing"} {
			project := t.TempDir()
			err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
				r, err := newZeroRun(w, project)
				for range 2 {
					if err = errors.Join(err, r.step(ctx)); err == nil {
						_, err = r.a.SaveState(ctx, "")
					}
				}
				return err
			})
			path := filepath.Join(project, "checkpoints", "checkpoint_1", file)
			if err == nil && damage == "cut" {
				err = os.Truncate(path, 20)
			} else if err == nil {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
				r, err := newZeroRun(w, project)
				if err = errors.Join(err, r.a.LoadState(ctx, "")); err != nil {
					return err
				}
				if !slices.EqualFunc(r.m.values(), want, slices.Equal) {
					return fmt.Errorf("weights %v, want %v", r.m.values(), want)
				}
				log := r.log.String()
				if r.a.IsMainProcess() && (strings.Count(log, "an older one is taken") != 1 || !strings.Contains(log, file)) {
					return fmt.Errorf("the log is %q", log)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s %s: %v", file, damage, err)
			}
		}
	}
}

// A Trainer passes over a damaged checkpoint as well.
func TestTrainerPassesOverADamagedCheckpoint(t *testing.T) {
	args := TrainingArguments{Unit: Updates, Epochs: 4, SaveSteps: 2, OutputDir: t.TempDir()}
	want, state, err := waveRun(t, 2, args, -1)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"trainer_state.json", "optimizer.safetensors"} {
		args.OutputDir, args.Resume = t.TempDir(), true
		if _, _, err := waveRun(t, 2, args, 5); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(args.OutputDir, "checkpoint-4", file), 10); err != nil {
			t.Fatal(err)
		}
		got, after, err := waveRun(t, 2, args, -1)
		if err != nil || got != want || after.GlobalStep != state.GlobalStep {
			t.Errorf("%s: %v; the weights are those of a run that went through: %v", file, err, got == want)
		}
	}
}

// killedIn is set in the processes of TestAKilledRankLosesNothingSaved to the project's folder.
const killedIn = "HEFT_TEST_KILLED"

// kill -9 of one rank while a checkpoint is written leaves those before it.
func TestAKilledRankLosesNothingSaved(t *testing.T) {
	if os.Getenv(killedIn) != "" {
		t.Skip("is a child")
	}
	project := t.TempDir()
	ends := processes(t, 2, "TestKilledRank", killedIn+"="+project)
	all := ends[0].out + ends[1].out
	if !strings.Contains(all, "rank 0 ends") || strings.Contains(all, "was not killed") {
		t.Fatal(all)
	}
	want := trained(t, 2)
	for ranks := 1; ranks <= 2; ranks++ {
		err := Launch(t.Context(), ranks, func(ctx context.Context, w *World) error {
			r, err := newZeroRun(w, project)
			if err = errors.Join(err, r.a.LoadState(ctx, ""), r.step(ctx)); err == nil && !slices.EqualFunc(r.m.values(), want, slices.Equal) {
				err = fmt.Errorf("weights %v, want %v", r.m.values(), want)
			}
			return err
		})
		if err != nil {
			t.Errorf("%d ranks: %v\n%s", ranks, err, all)
		}
	}
}

// TestKilledRank is one rank of the test above.
func TestKilledRank(t *testing.T) {
	project := os.Getenv(killedIn)
	if project == "" {
		t.Skip("runs as a child of TestAKilledRankLosesNothingSaved")
	}
	world, err := FromEnvironment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx := world.Context()
	r, err := newZeroRun(world, project)
	if err = errors.Join(err, r.step(ctx)); err == nil {
		_, err = r.a.SaveState(ctx, "")
	}
	if err = errors.Join(err, r.step(ctx)); err != nil {
		t.Fatal(err)
	}
	r.a.RegisterSaveStatePreHook(func(string) error {
		if world.Rank() == 0 {
			return nil
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err == nil {
			select {}
		}
		return err
	})
	_, err = r.a.SaveState(ctx, "")
	if world.Rank() == 1 || err == nil {
		t.Fatal("rank 1 was not killed: ", err)
	}
	fmt.Println("rank 0 ends:", world.Close(err))
}
