package convert_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tokenizer"
)

// TestQuantizeLeastSquares: q4_0 with its chosen scales leaves less error in the logits, and
// less perplexity of what the stored model says, than round-to-nearest. The perplexity of the
// answers themselves, which the model knows by heart, is chance in the fourth digit.
func TestQuantizeLeastSquares(t *testing.T) {
	blocks := func(name string, shape []int) bool { return len(shape) == 2 && !strings.Contains(name, "embed") }
	set, err := kernels.Select("go")
	if err != nil {
		t.Fatal(err)
	}
	plain := rewritten(t, func(name string, shape []int, v []float32) {
		for b := 0; blocks(name, shape) && b < len(v); b += 32 {
			nearest(v[b : b+32])
		}
	})
	chosen := rewritten(t, func(name string, shape []int, v []float32) {
		if blocks(name, shape) {
			packed := make([]byte, len(v)/32*18)
			set.Quant.PackBlocks(quant.Q4, packed, v)
			p := quant.Packed{Packing: quant.Q4, Codes: packed, Width: len(v), Rows: 1, Columns: 32}
			set.Quant.Unpack(mat.Floats{V: v, Stride: len(v)}, quant.View{Packed: &p, Rows: 1, Cols: len(v)}, nil)
		}
	})
	want := answers(t, dispatchtest.OpenModel(t, dispatchtest.DemoFolder(t), dispatch.Options{}))
	a := answers(t, dispatchtest.OpenModel(t, plain, dispatch.Options{}))
	b := answers(t, dispatchtest.OpenModel(t, chosen, dispatch.Options{}))
	offA, offB := relativeError(a.logits, want.logits), relativeError(b.logits, want.logits)
	t.Logf("%d tokens: logits are off by %.4f instead of %.4f; perplexity %.5f instead of %.5f, as stored %.5f; of the answers %.5f, %.5f, %.5f",
		len(want.logits), offB, offA, b.perplexity(want), a.perplexity(want), want.perplexity(want), b.answersPerplexity(), a.answersPerplexity(), want.answersPerplexity())
	if offB >= offA || b.perplexity(want) >= a.perplexity(want) {
		t.Error("least squares are no better than round-to-nearest")
	}
}

// forecasts are logits, and the tokens that came.
type forecasts struct {
	logits [][]float32
	came   []int32
}

func (f forecasts) answersPerplexity() float64 {
	return perplexity(f.logits, append([]int32{0}, f.came...))
}

// perplexity is that of everything that a model could say at each place, by its probability:
// the exponential of the mean cross-entropy.
func (f forecasts) perplexity(of forecasts) float64 {
	sum := 0.0
	for i, row := range f.logits {
		p, q := logTotal(of.logits[i]), logTotal(row)
		for id, v := range of.logits[i] {
			sum += math.Exp(float64(v)-p) * (q - float64(row[id]))
		}
	}
	return math.Exp(sum / float64(len(f.logits)))
}

// logTotal is the logarithm of the sum of the exponentials.
func logTotal(logits []float32) float64 {
	total := 0.0
	for _, v := range logits {
		total += math.Exp(float64(v))
	}
	return math.Log(total)
}

// answers is what m forecasts for each token of the first answer to the first question of
// every talk that the demo model has learned.
func answers(t *testing.T, m *dispatch.Model) (f forecasts) {
	t.Helper()
	words, err := tokenizer.Load(dispatchtest.DemoFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	encode := func(text string) []int32 {
		ids, err := words.EncodeIDs(text, tokenizer.EncodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	files, err := filepath.Glob(filepath.Join(golden.Module(t), "internal", "demo", "generate", "text", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the demo's texts: %d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		question := ""
		for line := range strings.Lines(string(text)) {
			if ways, ok := strings.CutPrefix(line, "Q: "); ok {
				question, _, _ = strings.Cut(strings.TrimSpace(ways), " | ")
			} else if answer, ok := strings.CutPrefix(line, "A: "); ok && question != "" {
				prompt := encode("<|bos|><|user|>" + question + "<|end|><|assistant|>")
				came := encode(strings.TrimSpace(answer) + "<|end|>")
				ids := slices.Concat(prompt, came)
				f.logits = append(f.logits, dispatchtest.ForcedLogits(t, m, ids, len(ids), 64)[len(prompt)-1:len(ids)-1]...)
				f.came = append(f.came, came...)
				question = ""
			}
		}
	}
	return f
}

// nearest rounds a block so that the largest magnitude is eight steps.
func nearest(v []float32) {
	m := float32(0)
	for _, x := range v {
		if math.Abs(float64(x)) > math.Abs(float64(m)) {
			m = x
		}
	}
	d := mat.FromFloat16(mat.ToFloat16(m / -8))
	if d == 0 {
		return
	}
	for i, x := range v {
		v[i] = d * float32(max(-8, min(7, math.RoundToEven(float64(x/d)))))
	}
}
