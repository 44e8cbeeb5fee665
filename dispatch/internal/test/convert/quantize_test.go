package convert_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// quantizeBounds are how far the demo model's logits may be from those of the weights as
// they are stored: the root of the mean square, as a share of that of the logits, and
// the share of tokens whose likeliest successor stays.
var quantizeBounds = []struct {
	format    meta.QuantFormat
	most      float64
	agreement float64
}{
	{meta.QuantQ8, 0.02, 0.95},
	{meta.QuantQ4, 0.2, 0.9}, // a model of 192 channels has little to average over
}

// roundedMost is how far precision auto may be from high with the same weights: activations
// are rounded to eight bits.
const roundedMost = 0.03

// spoken returns a text of n tokens that the model generates.
func spoken(t *testing.T, m *dispatch.Model, n int) []int32 {
	t.Helper()
	ids := []int32{1}
	return append(ids, dispatchtest.Generate(t, m, ids, dispatch.GenerateOptions{MaxTokens: n - 1, Temperature: 1, Seed: 7})...)
}

func flat(rows [][]float32) []float64 {
	var out []float64
	for _, row := range rows {
		for _, v := range row {
			out = append(out, float64(v))
		}
	}
	return out
}

// relativeError is the root of the mean square of a - b, as a share of b's.
func relativeError(a, b [][]float32) float64 {
	x, y := flat(a), flat(b)
	d, s := 0.0, 0.0
	for i := range x {
		d += (x[i] - y[i]) * (x[i] - y[i])
		s += y[i] * y[i]
	}
	return math.Sqrt(d / s)
}

func argmax(row []float32) int { return slices.Index(row, slices.Max(row)) }

// perplexity of ids, of which logits are the forecasts.
func perplexity(logits [][]float32, ids []int32) float64 {
	sum := 0.0
	for i, row := range logits[:len(ids)-1] {
		sum += logTotal(row) - float64(row[ids[i+1]])
	}
	return math.Exp(sum / float64(len(ids)-1))
}

// TestQuantizeStaysClose: logits are within the stated bounds of those of the weights as
// they are stored, and greedy tokens mostly agree.
func TestQuantizeStaysClose(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	o := dispatch.Options{Precision: dispatch.PrecisionHigh}
	stored := dispatchtest.OpenModel(t, dir, o)
	ids := spoken(t, stored, 128)
	want := dispatchtest.ForcedLogits(t, stored, ids, 64, 64)
	for _, c := range quantizeBounds {
		o.Quantize = c.format
		m := dispatchtest.OpenModel(t, dir, o)
		got := dispatchtest.ForcedLogits(t, m, ids, 64, 64)
		agree := 0
		for i := range got {
			if argmax(got[i]) == argmax(want[i]) {
				agree++
			}
		}
		share, off := float64(agree)/float64(len(got)), relativeError(got, want)
		t.Logf("%v: logits are off by %.4f, %.3f of tokens agree, perplexity %.3f instead of %.3f", c.format, off, share, perplexity(got, ids), perplexity(want, ids))
		o := o
		o.Precision = dispatch.PrecisionAuto
		if rounded := relativeError(dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, o), ids, 64, 64), got); !(rounded < roundedMost) {
			t.Errorf("%v: with precision auto logits are off by %.4f (at most %v)", c.format, rounded, roundedMost)
		} else {
			t.Logf("%v: precision auto is off by %.4f", c.format, rounded)
		}
		if !(off <= c.most) || off == 0 || share < c.agreement {
			t.Errorf("%v: logits are off by %.4f (at most %v), %.3f of tokens agree (at least %v)", c.format, off, c.most, share, c.agreement)
		}
	}
}

// TestQuantizeIsExact: the same logits, bit by bit, for any number of threads, chunk and
// batch, and before, while and after weights are converted in the background.
func TestQuantizeIsExact(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(i*37%1000 + 3)
	}
	for _, format := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
		var want [][]float32
		for threads := 1; threads <= 4; threads++ {
			m := dispatchtest.OpenModel(t, dir, dispatch.Options{Quantize: format, Threads: threads})
			if threads == 2 {
				m.Warm(context.Background())
				m.Promote(context.Background())
			}
			got := dispatchtest.ForcedLogits(t, m, ids, 30, 30) // converts the remaining weights
			if want == nil {
				want = got
			}
			dispatchtest.SameLogits(t, fmt.Sprintf("%v, %d threads", format, threads), got, want)
			dispatchtest.SameLogits(t, fmt.Sprintf("%v in chunks of %d", format, threads), dispatchtest.ForcedLogits(t, m, ids, 30, threads), want)
			if threads == 1 {
				m.Warm(context.Background())
				m.Promote(context.Background())
			}
			if threads <= 2 {
				dispatchtest.AwaitConversion(t, m)
				dispatchtest.SameLogits(t, fmt.Sprintf("%v, all promoted", format), dispatchtest.ForcedLogits(t, m, ids, 30, 7), want)
			}
			dispatchtest.SameLogits(t, fmt.Sprintf("%v in a batch", format), inABatchOf(t, m, ids, 5), want)
		}
	}
}

// inABatchOf computes ids as one of n sequences of a batch.
func inABatchOf(t *testing.T, m *dispatch.Model, ids []int32, n int) [][]float32 {
	t.Helper()
	rows := make([]dispatch.BatchRow, n)
	for i := range rows {
		rows[i] = dispatch.BatchRow{Sequence: m.NewSequence()}
		defer rows[i].Sequence.Free()
	}
	var out [][]float32
	for k := range ids {
		for i := range rows {
			rows[i].Tokens, rows[i].PromptLen, rows[i].Logits = []int32{ids[k] + int32(i)}, 30, dispatch.LogitsLast
		}
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, dispatchtest.Rows(got, 0)...)
	}
	return out
}

// TestQuantizeCountsBytes: the plan and the store count the converted weights, and the
// tied table beside them.
func TestQuantizeCountsBytes(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	sizes := map[meta.QuantFormat]int64{}
	for _, format := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8, meta.QuantQ4} {
		m := dispatchtest.OpenModel(t, dir, dispatch.Options{Quantize: format})
		root := m.Skeleton().Root
		converted := root.LoadedBytes(format, true)
		for _, p := range root.AllParams() {
			if bytes, ok := converted[p]; ok {
				sizes[format] += bytes
			} else if p.SameAs == nil {
				sizes[format] += p.Bytes()
			}
		}
		plan, _, err := dispatch.Plan(m.Skeleton(), dispatch.Options{Quantize: format})
		if err != nil {
			t.Fatal(err)
		}
		planned, held := plan.Device(devicemap.CPU).WeightsBytes, m.Status().TierBytes[devicemap.CPU]
		const rotary = 128 // a buffer, which the plan counts
		if planned != sizes[format]+rotary || held != sizes[format] {
			t.Errorf("%v: the plan says %d bytes, the store %d, want %d and %d", format, planned, held, sizes[format]+rotary, sizes[format])
		}
	}
	// Of the matrices, the head among them as a copy of the table, 32 elements take 34 and 18
	// bytes; the table and the norms stay.
	var matrices int64
	for _, p := range dispatchtest.OpenModel(t, dir, dispatch.Options{}).Skeleton().Root.AllParams() {
		if len(p.Shape) == 2 && p.SameAs == nil {
			matrices += p.Bytes() / 2
		}
	}
	if got, want := sizes[meta.QuantQ8]-sizes[meta.QuantQ4], matrices/32*16; got != want {
		t.Errorf("q8_0 takes %d bytes more than q4_0, want %d", got, want)
	}
}

// TestQuantizeOnTheDiskWithoutAFolder: DiskOffload converts weights in each pass if it has no folder for converted ones.
func TestQuantizeOnTheDiskWithoutAFolder(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	checkpoint, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	ids, prompt := dispatchtest.LawIDs()
	o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2}
	m := dispatchtest.OpenModel(t, dir, o)
	offloaded, err := dispatch.DiskOffload(m.Skeleton(), checkpoint, o)
	if err != nil {
		t.Fatal(err)
	}
	defer offloaded.Close()
	dispatchtest.SameLogits(t, "DiskOffload", dispatchtest.ForcedLogits(t, offloaded, ids, prompt, 7), dispatchtest.ForcedLogits(t, m, ids, prompt, 7))
	if held, all := offloaded.Status().Held["weights"], m.Plan().Device(devicemap.CPU).WeightsBytes; held > all/2 {
		t.Errorf("%d bytes of weights are held after a pass, all of them are %d", held, all)
	}
}

// TestQuantizeCutShard: a shard that is cut before a weight is converted fails the pass, and
// the weight is converted when the file is whole again.
func TestQuantizeCutShard(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	m := dispatchtest.OpenModel(t, dir, dispatch.Options{Quantize: meta.QuantQ8, Threads: 2})
	shard := filepath.Join(dir, "model.safetensors")
	whole, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	cut, written := false, dispatchtest.ModTime(t, shard)
	dispatchtest.AddHook(t, m, dispatch.Hook{Pre: func(p *dispatch.ModuleCall) error {
		if p.Path == "model.layers.1" && !cut {
			cut = true
			return os.Truncate(shard, 65536)
		}
		return nil
	}})
	s := m.NewSequence()
	defer s.Free()
	batch := &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{1, 2}, Logits: dispatch.LogitsLast}}}
	var weight *dispatch.WeightError
	if _, err := m.Forward(context.Background(), batch); !errors.As(err, &weight) {
		t.Errorf("a shard that was cut: %v", err)
	}
	if err := dispatchtest.Overwrite(shard, whole, written); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Forward(context.Background(), batch); err != nil {
		t.Errorf("after the file was mended: %v", err)
	}
}

// TestQuantizeNonFinite: a weight that no block can hold is an error that names it.
func TestQuantizeNonFinite(t *testing.T) {
	dir := rewritten(t, func(name string, _ []int, v []float32) {
		if strings.Contains(name, "layers.2.mlp.down") {
			v[77] = float32(math.Inf(1))
		}
	})
	m := dispatchtest.OpenModel(t, dir, dispatch.Options{Quantize: meta.QuantQ4})
	s := m.NewSequence()
	defer s.Free()
	_, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{1}}}})
	if err == nil || !strings.Contains(err.Error(), "model.layers.2.mlp.down_proj.weight") || !strings.Contains(err.Error(), "q4_0 cannot hold") {
		t.Errorf("an infinite weight: %v", err)
	}
}

// rewritten is the demo model in float32 with its tensors changed.
func rewritten(t *testing.T, change func(name string, shape []int, v []float32)) string {
	t.Helper()
	dir := dispatchtest.DemoFolder(t)
	checkpoint, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	var tensors []loader.NamedTensor
	for x := range checkpoint.Tensors() {
		tensors = append(tensors, loader.NamedTensor{Name: x.Name, DType: meta.Float32, Shape: x.Shape, Bytes: func() ([]byte, error) {
			b, err := x.Bytes()
			v := make([]float32, x.Elements())
			for i := range v {
				v[i] = mat.FromBFloat16(binary.LittleEndian.Uint16(b[2*i:]))
			}
			change(x.Name, x.Shape, v)
			var out []byte
			for _, f := range v {
				out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
			}
			return out, err
		}})
	}
	to := dispatchtest.DemoFolder(t)
	if err := loader.Save(to, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return to
}

// medianError is the error of a token's logits that half of them have; a mixture may choose
// another expert for single ones.
func medianError(got, want [][]float32) float64 {
	var list []float64
	for i := range got {
		list = append(list, relativeError(got[i:i+1], want[i:i+1]))
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// TestGoldenQuantize: in every architecture that has weights to convert, logits are the
// same bits whether weights are converted by their first use, in the background or in a file
// that the disk tier streams, and near
// those of the weights as they are stored.
func TestGoldenQuantize(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir())
			if len(skeleton.Root.Quantized()) == 0 {
				return
			}
			everything := devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
			streamed := devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk})
			cache := t.TempDir()
			placed := func(f meta.QuantFormat, devices devicemap.Map) *dispatch.Model {
				m, err := dispatch.New(skeleton, checkpoint, devices,
					dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, KVTokens: 4096, Quantize: f, CacheDir: cache})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(m.Close)
				return m
			}
			model := func(f meta.QuantFormat) *dispatch.Model { return placed(f, everything) }
			ids := append(slices.Clone(g.Prompts[0].IDs), g.Prompts[0].Greedy...)
			prompt := len(g.Prompts[0].IDs)
			want := dispatchtest.ForcedLogits(t, model(meta.QuantNone), ids, prompt, len(ids))
			for _, format := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
				lazy, eager := model(format), model(format)
				got := dispatchtest.ForcedLogits(t, lazy, ids, prompt, 3)
				eager.Warm(context.Background())
				eager.Promote(context.Background())
				dispatchtest.AwaitConversion(t, eager)
				dispatchtest.SameLogits(t, format.String(), dispatchtest.ForcedLogits(t, eager, ids, prompt, len(ids)), got)
				for _, start := range []string{"first", "next"} {
					m := placed(format, streamed)
					dispatchtest.SameLogits(t, fmt.Sprintf("%v, %s start from disk", format, start), dispatchtest.ForcedLogits(t, m, ids, prompt, len(ids)), got)
					m.Warm(context.Background())
					m.Promote(context.Background())
					dispatchtest.AwaitConversion(t, m)
				}
				if off := medianError(got, want); format == meta.QuantQ8 && !(off < 0.1) {
					t.Errorf("%v: logits are off by %.3f", format, off)
				}
			}
		})
		cases++
	}
	golden.Count(t, "infer/models (quantised on load)", cases)
}
