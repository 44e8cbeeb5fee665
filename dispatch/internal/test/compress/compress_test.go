package compress_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/meta"
)

// TestCodedWeightsNeverChangeTheAnswer holds law 4 for coded weights, bit by bit: the logits are those of
// the plain weights, before and after the background has coded them, in every variant and precision.
func TestCodedWeightsNeverChangeTheAnswer(t *testing.T) {
	dispatchtest.RunAtOnce(t, 3)
	for i, s := range dispatchtest.CodableShapes {
		dir := s.Folder(t, rand.New(rand.NewPCG(uint64(i), 19)))
		ids, prompt := dispatchtest.LawIDsOf(s.Vocab)
		for _, variant := range kernels.Names() {
			for _, precision := range []dispatch.Precision{dispatch.PrecisionAuto, dispatch.PrecisionHigh} {
				if testing.Short() && variant != kernels.Names()[0] || variant == "go" && precision == dispatch.PrecisionHigh {
					continue
				}
				t.Run(fmt.Sprintf("%d/%s/%d", i, variant, precision), func(t *testing.T) {
					o := dispatch.Options{Variant: variant, Precision: precision, Threads: 1}
					want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, o), ids, prompt, prompt)
					o.Compress, o.Threads = dispatch.CompressExact, 3
					m := dispatchtest.OpenModel(t, dir, o)
					if m.LoadedAs() != meta.QuantCoded {
						t.Fatal("the weights are not coded")
					}
					dispatchtest.SameLogits(t, "before coding", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
					m.Warm(context.Background())
					m.Promote(context.Background())
					dispatchtest.AwaitConversion(t, m)
					dispatchtest.SameLogits(t, "coded", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
					dispatchtest.SameLogits(t, "coded, in chunks", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
					dispatchtest.SameLogits(t, "coded, in a batch of 8", dispatchtest.LogitsInPieces(t, m, 3, 8, ids, prompt, 4, 1), want)
					dispatchtest.SameLogits(t, "coded, drafted", dispatchtest.LogitsInPieces(t, m, 0, 1, ids, prompt, 8, 4), want)
				})
			}
		}
	}
}

// TestCodedWeightsOnDisk streams coded weights from their file, in a first start that writes it and in a
// second one that finds it: the logits are those of plain weights, and fewer bytes are read.
func TestCodedWeightsOnDisk(t *testing.T) {
	for i, s := range dispatchtest.CodableShapes {
		dir := s.Folder(t, rand.New(rand.NewPCG(uint64(i), 20)))
		ids, prompt := dispatchtest.LawIDsOf(s.Vocab)
		want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, prompt)
		disk, _ := devicemap.ParsePolicy("disk")
		o := dispatch.Options{Threads: 2, DeviceMap: disk, Compress: dispatch.CompressExact, CacheDir: t.TempDir()}
		plain := o
		plain.Compress = dispatch.CompressNone
		for _, start := range []string{"first", "second"} {
			m := dispatchtest.OpenModel(t, dir, o)
			for _, chunk := range []int{prompt, 3} {
				dispatchtest.SameLogits(t, fmt.Sprintf("model %d, %s start, chunks of %d", i, start, chunk), dispatchtest.ForcedLogits(t, m, ids, prompt, chunk), want)
			}
			coded, stored := m.Plan().DiskBytesPerToken, dispatchtest.OpenModel(t, dir, plain).Plan().DiskBytesPerToken
			if coded <= 0 || coded >= stored {
				t.Errorf("model %d: a token reads %d coded bytes, %d plain ones", i, coded, stored)
			}
			m.Close()
		}
	}
}

// TestIncompressibleWeightsAreUsedAsStored: a matrix that does not fit into its coded size changes no
// answer and fails no request, in memory and on disk, in the first start and in the second.
func TestIncompressibleWeightsAreUsedAsStored(t *testing.T) {
	dir := dispatchtest.Incompressible(t)
	ids, prompt := dispatchtest.LawIDsOf(300)
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, prompt)
	m := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2, Compress: dispatch.CompressExact})
	dispatchtest.SameLogits(t, "at once", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
	m.Warm(context.Background())
	m.Promote(context.Background())
	dispatchtest.AwaitConversion(t, m)
	dispatchtest.SameLogits(t, "in memory", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
	disk, _ := devicemap.ParsePolicy("disk")
	o := dispatch.Options{Threads: 2, DeviceMap: disk, Compress: dispatch.CompressExact, CacheDir: t.TempDir()}
	for _, start := range []string{"first", "second"} {
		m := dispatchtest.OpenModel(t, dir, o)
		for range 2 {
			dispatchtest.SameLogits(t, "on disk, "+start+" start", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
		}
		m.Close()
	}
}

// TestAutoCodesWhatThenFits: auto leaves weights as they are if they fit, and if so few stay in memory that coding these
// saves less than a tenth of the bytes that a token reads.
func TestAutoCodesWhatThenFits(t *testing.T) {
	s := dispatchtest.Shape{Hidden: 1024, Inner: 4096, Heads: 8, KV: 2, Dim: 128, Vocab: 300, Layers: 12, DType: meta.BFloat16}
	skeleton, err := meta.ReadConfig([]byte(s.Config()))
	if err != nil {
		t.Fatal(err)
	}
	model, err := meta.New(skeleton, nil)
	if err != nil {
		t.Fatal(err)
	}
	plain := int64(0)
	for _, p := range model.Root.AllParams() {
		plain += p.Bytes()
	}
	for _, c := range []struct {
		share float64
		want  meta.QuantFormat
	}{{1.5, meta.QuantNone}, {0.95, meta.QuantCoded}, {0.1, meta.QuantNone}} {
		o := dispatch.Options{Context: 128, MaxSequences: 1, MaxBatchTokens: 16, Compress: dispatch.CompressAuto, CacheDir: t.TempDir(),
			MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: c.share * float64(plain)}}}
		plan, got, err := dispatch.Plan(model, o)
		if err != nil {
			t.Fatal(err)
		}
		if got.LoadedAs() != c.want {
			t.Errorf("%.2f of the weights' size: loaded as %v, want %v", c.share, got.LoadedAs(), c.want)
		}
		if coding := dispatch.CodingOf(model, &plan, &got); (coding != nil) != (c.want == meta.QuantCoded) || coding != nil && (!coding.Fits || coding.Bytes >= coding.PlainBytes) {
			t.Errorf("%.2f of the weights' size: got %+v", c.share, coding)
		}
	}
}

// TestGoldenModelsGiveTheSameLogitsCoded compares all published bfloat16 models with all their matrices coded, also
// small ones, which get larger. A root of fresh models may have no matrix that is wide enough; then a model of the
// repository stands for them.
func TestGoldenModelsGiveTheSameLogitsCoded(t *testing.T) {
	count := 0
	for g := range golden.Models(t) {
		count += sameCoded(t, g)
	}
	if count == 0 && !testing.Short() && sameCoded(t, golden.OwnModel(t, "family-arcee-1")) == 0 {
		t.Error("no model has anything to code")
	}
}

// sameCoded compares one model and returns 1, or 0 if it has nothing to code.
func sameCoded(t *testing.T, g *golden.Model) int {
	t.Helper()
	skeleton, _ := dispatchtest.OpenCheckpoint(t, g.Dir())
	if len(skeleton.Root.Coded(1000)) == 0 {
		return 0
	}
	ids := g.Prompts[0].IDs
	o := dispatch.Options{Threads: 2}
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, g.Dir(), o), ids, len(ids), len(ids))
	m := dispatchtest.OpenModel(t, g.Dir(), dispatchtest.CodingAll(o))
	m.Warm(context.Background())
	m.Promote(context.Background())
	dispatchtest.AwaitConversion(t, m)
	dispatchtest.SameLogits(t, g.Dir(), dispatchtest.ForcedLogits(t, m, ids, len(ids), len(ids)), want)
	m.Close()
	return 1
}

// TestDecodingFromCodedWeightsAllocatesNothing is TestDecodingAllocatesNothing for coded weights.
func TestDecodingFromCodedWeightsAllocatesNothing(t *testing.T) {
	for i, s := range dispatchtest.CodableShapes {
		dir := s.Folder(t, rand.New(rand.NewPCG(uint64(i), 22)))
		for _, place := range []string{"cpu", "disk"} {
			for _, variant := range kernels.Names() {
				policy, _ := devicemap.ParsePolicy(place)
				m := dispatchtest.OpenModel(t, dir, dispatch.Options{Variant: variant, Threads: 2, MaxSequences: 8, DeviceMap: policy, Compress: dispatch.CompressExact, CacheDir: t.TempDir()})
				m.Warm(context.Background())
				m.Promote(context.Background())
				dispatchtest.AwaitConversion(t, m)
				for _, batch := range []int{1, 8} {
					if n := dispatchtest.Allocations(t, m, batch); n != 0 {
						t.Errorf("model %d, %s, %s, %d sequences: %v allocations a token", i, place, variant, batch, n)
					}
				}
				m.Close()
			}
		}
	}
}
