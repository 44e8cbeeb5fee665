package compress_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// TestPlansKnowWhatAnEarlierStartCouldNotCode: plans counted all matrices in their coded size, also those that coding
// does not make smaller. A start records these, in memory and on disk, and the plan of the next one counts them as stored.
func TestPlansKnowWhatAnEarlierStartCouldNotCode(t *testing.T) {
	dir := dispatchtest.Incompressible(t)
	ids, prompt := dispatchtest.LawIDsOf(300)
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, prompt)
	disk, _ := devicemap.ParsePolicy("disk")
	for where, o := range map[string]dispatch.Options{"memory": {}, "disk": {DeviceMap: disk}} {
		o.Threads, o.Compress, o.CacheDir = 2, dispatch.CompressExact, t.TempDir()
		for start := range 3 {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
			plan, planned, err := dispatch.Plan(skeleton, o.KnownCoding(skeleton, checkpoint))
			if err != nil {
				t.Fatal(err)
			}
			var missing int64
			for path, p := range skeleton.Root.AllParams() {
				if path == "model.layers.1.mlp.up_proj.weight" || path == "model.layers.0.self_attn.q_proj.weight" {
					missing += p.Bytes() - skeleton.Root.Coded(meta.CodedShare)[p]
				}
			}
			coding := dispatch.CodingOf(skeleton, &plan, &planned)
			if coding == nil || missing <= 0 || coding.Found != (start > 0) {
				t.Fatalf("%s, start %d: coding %+v", where, start, coding)
			}
			if all := codedTotal(skeleton); start > 0 && coding.Bytes != all+missing || start == 0 && coding.Bytes != all {
				t.Errorf("%s, start %d: %d bytes of weights, %d if all were coded, %d more for two as stored", where, start, coding.Bytes, all, missing)
			}
			m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
			if err != nil {
				t.Fatal(err)
			}
			dispatchtest.SameLogits(t, where, dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			m.Warm(context.Background())
			m.Promote(context.Background())
			dispatchtest.AwaitConversion(t, m)
			dispatchtest.SameLogits(t, where+", loaded", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			if held := m.Status().Held["weights"]; where == "memory" && start > 0 && held > plan.Device(devicemap.CPU).WeightsBytes+1<<16 {
				t.Errorf("start %d: weights take %d bytes, planned are %d", start, held, plan.Device(devicemap.CPU).WeightsBytes)
			}
			before := m.Status().TierReadBytes
			dispatchtest.SameLogits(t, where+", again", dispatchtest.ForcedLogits(t, m, ids, prompt, len(ids)), want)
			if start > 0 && where == "disk" {
				passes := int64(len(ids) - prompt + 1)
				if read, per := m.Status().TierReadBytes-before, plan.DiskBytesPerToken; read > passes*(per+per/20) {
					t.Errorf("start %d: %d passes read %d bytes, planned are %d for each", start, passes, read, per)
				}
			}
			m.Close()
		}
	}
}

// codedTotal is the bytes of all weights if each is coded that can be.
func codedTotal(skeleton *meta.Model) (total int64) {
	coded := skeleton.Root.Coded(meta.CodedShare)
	for _, p := range skeleton.Root.AllParams() {
		if p.SameAs != nil {
			continue
		}
		if n := coded[p]; n > 0 {
			total += n
		} else {
			total += p.Bytes()
		}
	}
	return total
}

// TestCodedWeightsWithoutAFolder: a cache folder that cannot be written kept a model with --compress from starting.
// Its weights on the disk are used as stored then.
func TestCodedWeightsWithoutAFolder(t *testing.T) {
	dir := dispatchtest.Incompressible(t)
	ids, prompt := dispatchtest.LawIDsOf(300)
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, prompt)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	disk, _ := devicemap.ParsePolicy("disk")
	for _, devices := range []string{"disk", "model.layers.1=disk"} {
		o := dispatch.Options{Threads: 2, Compress: dispatch.CompressExact, CacheDir: filepath.Join(file, "cache")}
		if o.DeviceMap = disk; devices != "disk" {
			var err error
			if o.DeviceMap, err = devicemap.ParsePolicy(devices); err != nil {
				t.Fatal(err)
			}
		}
		skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
		plan, planned, err := dispatch.Plan(skeleton, o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
		if err != nil {
			t.Fatalf("%s: %v", devices, err)
		}
		for range 2 {
			dispatchtest.SameLogits(t, devices, dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			m.Warm(context.Background())
			m.Promote(context.Background())
			dispatchtest.AwaitConversion(t, m)
		}
		m.Close()
	}
}

// TestPlansKnowThatCodedWeightsCannotBeKept: the plan counted coded weights on the disk, and the start read them as
// stored, a third more bytes.
func TestPlansKnowThatCodedWeightsCannotBeKept(t *testing.T) {
	s := dispatchtest.Shape{Hidden: 512, Inner: 1536, Heads: 4, KV: 2, Dim: 128, Vocab: 300, Layers: 4, DType: meta.BFloat16}
	dir := s.Folder(t, rand.New(rand.NewPCG(3, 22)))
	ids, prompt := dispatchtest.LawIDsOf(300)
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, 8)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for cache, why := range map[string]string{"": "--cache-dir", filepath.Join(file, "cache"): file} {
		for name, share := range map[string]int64{"disk": 0, "auto, a third": 3, "auto, half": 2} {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
			o := dispatch.Options{Threads: 2, Context: 32, MaxSequences: 1, MaxBatchTokens: 16, Compress: dispatch.CompressExact, CacheDir: cache}
			devices, _, _ := strings.Cut(name, ",")
			o.DeviceMap, _ = devicemap.ParsePolicy(devices)
			if share > 0 {
				o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 4 << 20}}
				least, _, err := dispatch.Plan(skeleton, o)
				if err != nil {
					t.Fatal(err)
				}
				o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(least.Least + codedTotal(skeleton)/share)}}
			}
			plan, planned, err := dispatch.Plan(skeleton, o.KnownCoding(skeleton, checkpoint))
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(plan.Warnings, "\n"); !strings.Contains(text, "read as stored") || !strings.Contains(text, why) {
				t.Errorf("%q, %s: warnings %q, want one that names %s", cache, name, text, why)
			}
			if coding := dispatch.CodingOf(skeleton, &plan, &planned); (coding == nil) != (devices == "disk") || coding != nil && coding.Bytes >= coding.PlainBytes {
				t.Errorf("%q, %s: coding %+v", cache, name, coding)
			}
			m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
			if err != nil {
				t.Fatal(err)
			}
			dispatchtest.SameLogits(t, name, dispatchtest.ForcedLogits(t, m, ids, prompt, 8), want)
			m.Warm(context.Background())
			m.Promote(context.Background())
			dispatchtest.AwaitConversion(t, m)
			before := m.Status().TierReadBytes
			dispatchtest.SameLogits(t, name+", again", dispatchtest.ForcedLogits(t, m, ids, prompt, 8), want)
			passes := int64(len(ids) - prompt + (prompt+7)/8)
			if read, per := m.Status().TierReadBytes-before, plan.DiskBytesPerToken; per == 0 || read > passes*(per+per/20) {
				t.Errorf("%q, %s: %d passes read %d bytes, planned are %d for each", cache, name, passes, read, per)
			}
			m.Close()
		}
	}
}

// TestPlansKeepCodedWeightsWhereTheyCan: a file of a complete or interrupted conversion is used whatever room is left.
func TestPlansKeepCodedWeightsWhereTheyCan(t *testing.T) {
	dir := dispatchtest.Incompressible(t)
	disk, _ := devicemap.ParsePolicy("disk")
	o := dispatch.Options{Threads: 2, DeviceMap: disk, Compress: dispatch.CompressExact, CacheDir: filepath.Join(t.TempDir(), "new")}
	for range 2 {
		skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
		plan, planned, err := dispatch.Plan(skeleton, o.KnownCoding(skeleton, checkpoint))
		if err != nil {
			t.Fatal(err)
		}
		if coding := dispatch.CodingOf(skeleton, &plan, &planned); coding == nil || len(plan.Warnings) > 0 {
			t.Fatalf("coding %+v, warnings %q", coding, plan.Warnings)
		}
		if names, err := os.ReadDir(o.CacheDir); err != nil || len(names) > 0 {
			t.Fatalf("the plan left %v, %v", names, err)
		}
	}
}

// TestPlansKnowThatTheDiskIsFull: the folder can be written, but has no room for the coded weights.
func TestPlansKnowThatTheDiskIsFull(t *testing.T) {
	dir, cache := dispatchtest.Incompressible(t), testenv.SmallDisk(t, 256<<10)
	disk, _ := devicemap.ParsePolicy("disk")
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	plan, _, err := dispatch.Plan(skeleton, dispatch.Options{Threads: 2, DeviceMap: disk, Compress: dispatch.CompressExact, CacheDir: cache}.KnownCoding(skeleton, checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan.Warnings, "\n"); !strings.Contains(text, "read as stored") || !strings.Contains(text, "no space left") || !strings.Contains(text, "free space") {
		t.Errorf("warnings %q, want one that says that the disk is full", text)
	}
	if list := dispatchtest.FileNames(t, cache); len(list) > 0 {
		t.Errorf("the plan left %q", list)
	}
}

// TestABareConfigIsPlannedWithCodedWeights: a plan without a checkpoint that put coded weights on the disk panicked.
func TestABareConfigIsPlannedWithCodedWeights(t *testing.T) {
	dir := dispatchtest.LateModel(t, false, false)
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	disk, _ := devicemap.ParsePolicy("disk")
	o := dispatch.Options{Threads: 2, DeviceMap: disk, Compress: dispatch.CompressExact, CacheDir: t.TempDir()}.KnownCoding(skeleton, nil)
	plan, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if c := dispatch.CodingOf(skeleton, &plan, &planned); c == nil || c.Found || c.Bytes >= c.PlainBytes {
		t.Errorf("got %+v, want coded weights of which nothing is known", c)
	}
}
