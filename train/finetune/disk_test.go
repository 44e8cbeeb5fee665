package finetune

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// TestADiskWithoutRoomForACheckpointWarns: a run learned at the end of its first epoch that it could not save what it had
// trained. The size that the warning names is about that of the checkpoint.
func TestADiskWithoutRoomForACheckpointWarns(t *testing.T) {
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "preference")
	for name, change := range map[string]func(*Options){
		"whole": func(o *Options) {}, "adapter": func(o *Options) { o.LoRA = "r=16" }, "sgd": func(o *Options) { o.Optimizer = "sgd" },
		"adafactor": func(o *Options) { o.Optimizer = "adafactor" },
	} {
		run := func(free int64) (said string, size float64) {
			var log bytes.Buffer
			o := Defaults()
			o.Output, o.MaxSteps, o.Batch, o.Threads, o.Sequence = filepath.Join(t.TempDir(), "out"), 1, 2, 1, 64
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			change(&o)
			j, err := newJob(dir, []string{cachedText(t, 8)}, o)
			if err != nil {
				t.Fatal(err)
			}
			defer j.closeData()
			j.space = func(string) (all, _ int64, err error) { return 1 << 40, free, nil }
			if err := j.runHere(t.Context()); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(o.Output, "checkpoint-1", "*.safetensors"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%d files, %v", len(files), err)
			}
			for _, f := range files {
				info, err := os.Stat(f)
				if err != nil {
					t.Fatal(err)
				}
				size += float64(info.Size())
			}
			return log.String(), size
		}
		said, size := run(1)
		found := regexp.MustCompile(`no room for a checkpoint.*free="1 B" checkpoint="([^"]+)"`).FindStringSubmatch(said)
		if found == nil {
			t.Fatalf("%s: got log %s", name, said)
		}
		named, err := devicemap.ParseSize(strings.ReplaceAll(found[1], " ", ""))
		if got := float64(named) / size; err != nil || got < 0.75 || got > 1.05 {
			t.Errorf("%s: the warning names %s, %v, but the checkpoint has %v bytes", name, found[1], err, size)
		}
		if said, _ := run(1 << 30); strings.Contains(said, "no room") {
			t.Errorf("%s: a disk with room: got log %s", name, said)
		}
	}
}

// TestAFullDiskSaysHowTheRunContinues: the error had the name of a temporary file alone.
func TestAFullDiskSaysHowTheRunContinues(t *testing.T) {
	s := &student{job: &job{Options: &Options{Output: "out", Resume: "auto"}}}
	full := &fs.PathError{Op: "write", Path: "out/.checkpoint-5.tmp", Err: syscall.ENOSPC}
	if got := s.fullDisk(full).Error(); !strings.HasSuffix(got, "; free some space: the same command then continues from the last checkpoint in out, if there is one") {
		t.Errorf("got %q", got)
	}
	other := errors.New("another error")
	if got := s.fullDisk(other); got != other {
		t.Errorf("got %v, want %v", got, other)
	}
	if s.Resume = "never"; s.fullDisk(full) != error(full) {
		t.Error("a run that does not resume says that it would")
	}
}

// TestAFullDiskHasFewerBatchesInASweep: with room for the states of some batches of a step, or of none, sweeps are shorter and the
// adapter is the same.
func TestAFullDiskHasFewerBatchesInASweep(t *testing.T) {
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "preference")
	text := cachedText(t, 8)
	run := func(room func(each int64) int64) (batches string, adapter []byte) {
		var log bytes.Buffer
		o := Defaults()
		o.Output, o.MaxSteps, o.Batch, o.Threads, o.Sequence = filepath.Join(t.TempDir(), "out"), 1, 1, 1, 64
		o.LoRA, o.MaxMemory, o.GradientAccumulationSteps, o.SaveSteps = "r=2", "cpu=1KiB", 4, -1
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		j, err := newJob(dir, []string{text}, o)
		if err != nil {
			t.Fatal(err)
		}
		defer j.closeData()
		if room != nil {
			j.space = func(string) (all, free int64, err error) {
				config, err := readConfig(dir)
				if err != nil {
					return 0, 0, err
				}
				m, err := meta.New(config, nil)
				if err != nil {
					return 0, 0, err
				}
				width := int64(m.Root.Spec.(*meta.CausalLMSpec).Hidden)
				return 1 << 40, room(4 * j.batchTokens() * width * (blocksOf(m) + 1)), nil
			}
		}
		if err := j.runHere(t.Context()); err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`batches_per_sweep=(\d+)`).FindStringSubmatch(log.String()); found != nil {
			batches = found[1]
		}
		adapter, err = os.ReadFile(filepath.Join(o.Output, "adapter_model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return batches, adapter
	}
	batches, want := run(nil)
	if batches != "4" {
		t.Errorf("with room for all: got %q batches in a sweep, want 4", batches)
	}
	for expected, room := range map[string]func(each int64) int64{
		"":  func(int64) int64 { return 1 },
		"2": func(each int64) int64 { return 3 * each }, // half of it for the states of one batch more
	} {
		batches, got := run(room)
		if batches != expected {
			t.Errorf("got %q batches in a sweep, want %q", batches, expected)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%q batches in a sweep: another adapter", batches)
		}
	}
}
