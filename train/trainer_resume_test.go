package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/heftai/heft/train/internal/checkpoint"
)

var errKilled = errors.New("killed")

// waveRun trains on some ranks, is killed after step stop, if there is one, and returns the weights.
func waveRun(t *testing.T, ranks int, args TrainingArguments, stop int) (string, TrainerState, error) {
	var mu sync.Mutex
	var weights string
	var state TrainerState
	err := Launch(t.Context(), ranks, func(ctx context.Context, w *World) error {
		kill := OnEvent(StepEnd, func(_ context.Context, m *Moment) error {
			if m.Result.GlobalStep+1 == stop {
				return errKilled
			}
			return nil
		})
		run, err := newWave(w, args, kill)
		if err != nil {
			return err
		}
		if _, err := run.trainer.Train(ctx); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if weights != "" && weights != run.weights() {
			return errors.New("the ranks' weights differ")
		}
		weights = run.weights()
		if w.Rank() == 0 {
			state = *run.trainer.State()
		}
		return nil
	})
	return weights, state, err
}

// TestTrainerResumesBitForBit ends runs after each step in turn, and goes on from the last
// checkpoint: the weights, the log and the metrics are those of a run that went through.
func TestTrainerResumesBitForBit(t *testing.T) {
	for _, unit := range []StepUnit{Updates, Batches} {
		for _, ranks := range []int{1, 2} {
			args := TrainingArguments{Unit: unit, Epochs: 2, LogSteps: 2, EvalSteps: 3, SaveSteps: 4}
			through := args
			through.OutputDir = t.TempDir()
			want, state, err := waveRun(t, ranks, through, -1)
			if err != nil {
				t.Fatal(err)
			}
			for stop := 1; stop <= state.MaxSteps; stop++ {
				t.Run(fmt.Sprintf("unit %d, %d ranks, killed in step %d of %d", unit, ranks, stop, state.MaxSteps), func(t *testing.T) {
					args := args
					args.OutputDir, args.Resume = t.TempDir(), true
					if _, _, err := waveRun(t, ranks, args, stop); !errors.Is(err, errKilled) {
						t.Fatalf("the run ended with %v", err)
					}
					got, after, err := waveRun(t, ranks, args, -1)
					if err != nil {
						t.Fatal(err)
					}
					if got != want {
						t.Errorf("the weights differ from those of a run that went through")
					}
					if a, b := measured(after), measured(state); a != b {
						t.Errorf("the log is\n%s, want\n%s", a, b)
					}
				})
			}
		}
	}
}

// measured is the log without times. A sum of losses since the last log is not saved:
// after a resumption the first mean is that of fewer steps.
func measured(s TrainerState) string {
	var b strings.Builder
	for _, e := range s.LogHistory {
		if loss, ok := e["eval_loss"]; ok {
			fmt.Fprintf(&b, "%v %v %v\n", e["step"], e["epoch"], loss)
		}
	}
	fmt.Fprint(&b, s.Epoch, s.GlobalStep)
	return b.String()
}

// TestADamagedCheckpointNamesAnOlderOne: resuming from a damaged checkpoint named its file and no way out.
func TestADamagedCheckpointNamesAnOlderOne(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		args := TrainingArguments{Unit: Updates, Epochs: 4, SaveSteps: 2, OutputDir: t.TempDir()}
		if _, _, err := waveRun(t, ranks, args, 7); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		at := func(step int) string { return filepath.Join(args.OutputDir, fmt.Sprintf("checkpoint-%d", step)) }
		says := func(what string, want ...string) {
			t.Helper()
			_, _, err := waveRun(t, ranks, args, -1)
			for _, part := range want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%d ranks, %s: got %v, want an error with %q", ranks, what, err, part)
				}
			}
		}
		damage := func(step int, file string) {
			t.Helper()
			if err := os.Truncate(filepath.Join(at(step), file), 10); err != nil {
				t.Fatal(err)
			}
		}
		args.ResumeFrom = at(6)
		damage(6, "optimizer.safetensors")
		says("one is damaged", "optimizer.safetensors", "the older checkpoint "+at(4)+" can be read")
		damage(4, "trainer_state.json")
		says("two are damaged", "optimizer.safetensors", "the older checkpoint "+at(2)+" can be read")
		damage(2, "model.safetensors")
		says("all are damaged", "optimizer.safetensors", "no older checkpoint in "+args.OutputDir+" can be read")
		args.ResumeFrom, args.Resume = "", true
		says("the newest is wanted", "optimizer.safetensors", "no older checkpoint in "+args.OutputDir+" can be read")
	}
}

// TestAFlippedBitOfACheckpointWasLoaded: a checkpoint whose bytes changed on the disk, but not their
// form, was loaded, so that the run ended with other weights. It is reported with the file, and the
// checkpoint before it is taken.
func TestAFlippedBitOfACheckpointWasLoaded(t *testing.T) {
	through := TrainingArguments{Unit: Updates, Epochs: 4, SaveSteps: 2, OutputDir: t.TempDir()}
	want, _, err := waveRun(t, 1, through, -1)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"model.safetensors", "optimizer.safetensors", "scheduler.json", "random_states_0.json", "trainer_state.json"} {
		args := through
		args.OutputDir, args.Resume = t.TempDir(), true
		if _, _, err := waveRun(t, 1, args, 7); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		path := filepath.Join(args.OutputDir, "checkpoint-6", file)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := len(b) - 3 // of the last number
		if filepath.Ext(file) == ".json" {
			at = strings.LastIndexAny(string(b), "0123456789")
		}
		b[at] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkpoint.Verify(filepath.Dir(path), file); err == nil || !strings.Contains(err.Error(), file+": got checksum ") {
			t.Errorf("%s: got %v, want an error about its checksum", file, err)
		}
		if got, _, err := waveRun(t, 1, args, -1); err != nil || got != want {
			t.Errorf("%s: the weights differ from those of a run that went through, %v", file, err)
		}
	}
}

// TestADamagedCheckpointStoppedTheNextSave: a checkpoint without random_states_0.json was skipped, but
// the run then failed when it came to the step that it was to replace.
func TestADamagedCheckpointStoppedTheNextSave(t *testing.T) {
	args := TrainingArguments{Unit: Updates, Epochs: 4, SaveSteps: 2, OutputDir: t.TempDir(), Resume: true}
	if _, _, err := waveRun(t, 1, args, 7); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(args.OutputDir, "checkpoint-6", "random_states_0.json")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := waveRun(t, 1, args, -1); err != nil {
		t.Error(err)
	}
}
