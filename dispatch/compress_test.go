package dispatch_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// codableShapes are models whose matrices are wide enough to be coded, dense and with experts.
var codableShapes = []shape{
	{hidden: 256, inner: 384, heads: 4, kv: 2, dim: 64, vocab: 300, layers: 2, dtype: meta.BFloat16, shift: 3},
	{hidden: 320, inner: 512, heads: 4, kv: 2, dim: 80, vocab: 230, layers: 1, dtype: meta.BFloat16, tied: true},
	{hidden: 256, inner: 320, heads: 2, kv: 1, dim: 128, vocab: 231, layers: 2, dtype: meta.BFloat16, experts: true, shift: 5},
}

// lawOf are ids of a model with so many, and how many of them are a prompt.
func lawOf(vocab int) (ids []int32, prompt int) {
	ids, prompt = lawIDs()
	for i := range ids {
		ids[i] %= int32(vocab)
	}
	return ids, prompt
}

// TestCodedWeightsNeverChangeTheAnswer holds law 4 for coded weights, bit by bit: the logits are those of
// the plain weights, before and after the background has coded them, in every variant and precision.
func TestCodedWeightsNeverChangeTheAnswer(t *testing.T) {
	runAtOnce(t, 3)
	for i, s := range codableShapes {
		dir := s.folder(t, rand.New(rand.NewPCG(uint64(i), 19)))
		ids, prompt := lawOf(s.vocab)
		for _, variant := range kernels.Names() {
			for _, precision := range []dispatch.Precision{dispatch.PrecisionAuto, dispatch.PrecisionHigh} {
				if testing.Short() && variant != kernels.Names()[0] || variant == "go" && precision == dispatch.PrecisionHigh {
					continue
				}
				t.Run(fmt.Sprintf("%d/%s/%d", i, variant, precision), func(t *testing.T) {
					o := dispatch.Options{Variant: variant, Precision: precision, Threads: 1}
					want := forced(t, cpuModel(t, dir, o), ids, prompt, prompt)
					o.Compress, o.Threads = dispatch.CompressExact, 3
					m := cpuModel(t, dir, o)
					if m.LoadedAs() != meta.QuantCoded {
						t.Fatal("the weights are not coded")
					}
					sameLogits(t, "before coding", forced(t, m, ids, prompt, 7), want)
					m.Warm(context.Background())
					m.Promote(context.Background())
					await(t, m)
					sameLogits(t, "coded", forced(t, m, ids, prompt, prompt), want)
					sameLogits(t, "coded, in chunks", forced(t, m, ids, prompt, 5), want)
					sameLogits(t, "coded, in a batch of 8", pieces(t, m, 3, 8, ids, prompt, 4, 1), want)
					sameLogits(t, "coded, drafted", pieces(t, m, 0, 1, ids, prompt, 8, 4), want)
				})
			}
		}
	}
}

// TestCodedWeightsOnDisk streams coded weights from their file, in a first start that writes it and in a
// second one that finds it: the logits are those of plain weights, and fewer bytes are read.
func TestCodedWeightsOnDisk(t *testing.T) {
	for i, s := range codableShapes {
		dir := s.folder(t, rand.New(rand.NewPCG(uint64(i), 20)))
		ids, prompt := lawOf(s.vocab)
		want := forced(t, cpuModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, prompt)
		disk, _ := devicemap.ParsePolicy("disk")
		o := dispatch.Options{Threads: 2, DeviceMap: disk, Compress: dispatch.CompressExact, CacheDir: t.TempDir()}
		plain := o
		plain.Compress = dispatch.CompressNone
		for _, start := range []string{"first", "second"} {
			m := cpuModel(t, dir, o)
			for _, chunk := range []int{prompt, 3} {
				sameLogits(t, fmt.Sprintf("model %d, %s start, chunks of %d", i, start, chunk), forced(t, m, ids, prompt, chunk), want)
			}
			coded, stored := m.Plan().DiskBytesPerToken, cpuModel(t, dir, plain).Plan().DiskBytesPerToken
			if coded <= 0 || coded >= stored {
				t.Errorf("model %d: a token reads %d coded bytes, %d plain ones", i, coded, stored)
			}
			m.Close()
		}
	}
}

// incompressible is a model whose second matrices have numbers of a hundred magnitudes.
func incompressible(t *testing.T) string {
	t.Helper()
	s := codableShapes[0]
	r := rand.New(rand.NewPCG(3, 21))
	dir := s.folder(t, r)
	_, checkpoint := open(t, dir)
	var tensors []loader.NamedTensor
	for from := range checkpoint.Tensors() {
		b, err := from.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		b = slices.Clone(b)
		if n := from.Name; n == "model.layers.1.mlp.up_proj.weight" || n == "model.layers.0.self_attn.q_proj.weight" {
			for i := 0; i+1 < len(b); i += 2 {
				binary.LittleEndian.PutUint16(b[i:], uint16(r.IntN(2))<<15|uint16(10+r.IntN(110))<<7|uint16(r.IntN(128)))
			}
		}
		tensors = append(tensors, loader.NamedTensor{Name: from.Name, DType: from.DType, Shape: from.Shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	to := t.TempDir()
	if err := os.WriteFile(filepath.Join(to, "config.json"), []byte(s.config()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := loader.Save(to, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestIncompressibleWeightsAreUsedAsStored: a matrix that does not fit into its coded size changes no
// answer and fails no request, in memory and on disk, in the first start and in the second.
func TestIncompressibleWeightsAreUsedAsStored(t *testing.T) {
	dir := incompressible(t)
	ids, prompt := lawOf(300)
	want := forced(t, cpuModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, prompt)
	m := cpuModel(t, dir, dispatch.Options{Threads: 2, Compress: dispatch.CompressExact})
	sameLogits(t, "at once", forced(t, m, ids, prompt, prompt), want)
	m.Warm(context.Background())
	m.Promote(context.Background())
	await(t, m)
	sameLogits(t, "in memory", forced(t, m, ids, prompt, prompt), want)
	disk, _ := devicemap.ParsePolicy("disk")
	o := dispatch.Options{Threads: 2, DeviceMap: disk, Compress: dispatch.CompressExact, CacheDir: t.TempDir()}
	for _, start := range []string{"first", "second"} {
		m := cpuModel(t, dir, o)
		for range 2 {
			sameLogits(t, "on disk, "+start+" start", forced(t, m, ids, prompt, prompt), want)
		}
		m.Close()
	}
}

// TestAutoCodesOnlyWhatThenFits: auto leaves weights as they are if they fit, and if even coded ones do not.
func TestAutoCodesOnlyWhatThenFits(t *testing.T) {
	s := shape{hidden: 1024, inner: 4096, heads: 8, kv: 2, dim: 128, vocab: 300, layers: 12, dtype: meta.BFloat16}
	skeleton, err := meta.ReadConfig([]byte(s.config()))
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
	}{{1.5, meta.QuantNone}, {0.95, meta.QuantCoded}, {0.6, meta.QuantNone}} {
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
	skeleton, _ := open(t, g.Dir)
	if len(skeleton.Root.Coded(1000)) == 0 {
		return 0
	}
	ids := g.Prompts[0].IDs
	o := dispatch.Options{Threads: 2}
	want := forced(t, cpuModel(t, g.Dir, o), ids, len(ids), len(ids))
	m := cpuModel(t, g.Dir, dispatchtest.CodingAll(o))
	m.Warm(context.Background())
	m.Promote(context.Background())
	await(t, m)
	sameLogits(t, g.Dir, forced(t, m, ids, len(ids), len(ids)), want)
	m.Close()
	return 1
}

// TestDecodingFromCodedWeightsAllocatesNothing is TestDecodingAllocatesNothing for coded weights.
func TestDecodingFromCodedWeightsAllocatesNothing(t *testing.T) {
	for i, s := range codableShapes {
		dir := s.folder(t, rand.New(rand.NewPCG(uint64(i), 22)))
		for _, place := range []string{"cpu", "disk"} {
			for _, variant := range kernels.Names() {
				policy, _ := devicemap.ParsePolicy(place)
				m := cpuModel(t, dir, dispatch.Options{Variant: variant, Threads: 2, MaxSequences: 8, DeviceMap: policy, Compress: dispatch.CompressExact, CacheDir: t.TempDir()})
				m.Warm(context.Background())
				m.Promote(context.Background())
				await(t, m)
				for _, batch := range []int{1, 8} {
					if n := allocations(t, m, batch); n != 0 {
						t.Errorf("model %d, %s, %s, %d sequences: %v allocations a token", i, place, variant, batch, n)
					}
				}
				m.Close()
			}
		}
	}
}
