package nn

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
)

func TestGoldenModels(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) { cases += goldenCases(t, g) })
	}
	golden.Count(t, "infer/models", cases)
}

func openGolden(t testing.TB, dir string, rows int) *machine {
	t.Helper()
	model, ck, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return newMachine(t, model.Root, newCheckpoint(t, ck, model), Limits{Rows: rows, Outputs: rows}, 64+rows/4)
}

// goldenCases runs one model and says how many cases it has.
func goldenCases(t *testing.T, g *golden.Model) int {
	rows := 1
	for _, p := range g.Prompts {
		rows += len(p.IDs) + len(p.Greedy)
	}
	m := openGolden(t, g.Dir(), rows)
	near := func(t *testing.T, what string, got, want float64) {
		t.Helper()
		if !g.Tolerance.Holds(got, want) {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	cases := 0
	for _, p := range g.Prompts {
		t.Run(fmt.Sprintf("prompt of %d", len(p.IDs)), func(t *testing.T) {
			checkPrompt(t, m, &p, near)
			checkChunks(t, m, p.IDs)
		})
		cases++
	}
	t.Run("batch", func(t *testing.T) { checkBatch(t, m, g.Prompts) })
	if g.Padding != nil {
		t.Run("padding", func(t *testing.T) { checkPadding(t, m, g, near) })
		cases++
	}
	return cases
}

type nearFunc func(t *testing.T, what string, got, want float64)

func checkPrompt(t *testing.T, m *machine, p *golden.Prompt, near nearFunc) {
	seq := m.cache.NewSequence(0)
	defer seq.Free()
	hidden := &hiddenTrace{}
	logits := m.pass(t, hidden, work{seq: seq, tokens: p.IDs, prompt: len(p.IDs), all: true})
	last := logits.Row(len(p.IDs) - 1)
	for i, want := range p.Last {
		near(t, fmt.Sprintf("last logit %d", i), float64(last[i]), want)
	}
	for i, want := range p.Top5 {
		ids := descending(logits.Row(i))
		for j, w := range want {
			near(t, fmt.Sprintf("position %d, logit %d", i, j), float64(logits.Row(i)[ids[j]]), w)
			near(t, fmt.Sprintf("position %d, logit of token %d", i, p.Top5IDs[i][j]), float64(logits.Row(i)[p.Top5IDs[i][j]]), w)
		}
	}
	sum := 0.0
	for i, want := range p.LogProbs {
		lp := logprob(logits.Row(i), p.IDs[i+1])
		sum += lp
		near(t, fmt.Sprintf("log-probability of token %d", i+1), lp, want)
	}
	if p.LogProbSum != nil {
		near(t, "sum of log-probabilities", sum, *p.LogProbSum)
	}
	hidden.check(t, p, near)
	greedy(t, m, seq, p, last, near)
}

// greedy continues from the last logits of a prompt with the cache that it left.
func greedy(t *testing.T, m *machine, seq *kvcache.Sequence, p *golden.Prompt, last []float32, near nearFunc) {
	ids := slices.Clone(p.IDs)
	var got []int32
	for i := range p.Greedy {
		next := descending(last)[0]
		got = append(got, next)
		if i < len(p.GreedyLogProbs) {
			near(t, fmt.Sprintf("log-probability of greedy token %d", i), logprob(last, next), p.GreedyLogProbs[i])
		}
		ids = append(ids, next)
		if m.program.Restarts(len(ids)-1, len(ids)) {
			seq.Truncate(0)
			last = m.prompt(t, seq, ids, len(ids))
			continue
		}
		last = m.pass(t, nil, work{seq: seq, tokens: ids[len(ids)-1:]}).Row(0)
	}
	if !slices.Equal(got, p.Greedy) {
		t.Errorf("greedy ids %v, want %v", got, p.Greedy)
	}
}

// checkChunks compares a prompt in chunks, and one whose beginning is reused, with the
// whole, bit by bit.
func checkChunks(t *testing.T, m *machine, ids []int32) {
	run := func(chunk int) []float32 {
		seq := m.cache.NewSequence(m.program.RopeClass(len(ids)))
		defer seq.Free()
		return m.prompt(t, seq, ids, chunk)
	}
	whole := run(len(ids))
	for _, chunk := range []int{1, 2, 5, 16} {
		if chunk < len(ids) {
			sameBits(t, fmt.Sprintf("chunks of %d", chunk), run(chunk), whole)
		}
	}
	seq := m.cache.NewSequence(m.program.RopeClass(len(ids)))
	defer seq.Free()
	n := seq.Reuse(ids)
	if want := (len(ids) - 1) / 16 * 16; n != want {
		t.Errorf("reused %d tokens of %d, want %d", n, len(ids), want)
	}
	sameBits(t, "after reuse", slices.Clone(m.pass(t, nil, work{seq: seq, tokens: ids[n:], prompt: len(ids)}).Row(0)), whole)
}

// checkBatch compares all prompts in one pass with each alone, bit by bit, and each
// next step likewise.
func checkBatch(t *testing.T, m *machine, prompts []golden.Prompt) {
	var first, second []work
	var alone [2][][]float32
	for _, p := range prompts {
		seq := m.cache.NewSequence(0)
		alone[0] = append(alone[0], m.prompt(t, seq, p.IDs, len(p.IDs)))
		next := descending(alone[0][len(alone[0])-1])[:1]
		alone[1] = append(alone[1], slices.Clone(m.pass(t, nil, work{seq: seq, tokens: next}).Row(0)))
		seq.Free()
		seq = m.cache.NewSequence(0)
		first = append(first, work{seq: seq, tokens: p.IDs, prompt: len(p.IDs)})
		second = append(second, work{seq: seq, tokens: next})
	}
	for step, works := range [][]work{first, second} {
		logits := m.pass(t, nil, works...)
		for i := range works {
			sameBits(t, fmt.Sprintf("step %d, prompt %d in a batch", step, i), logits.Row(i), alone[step][i])
		}
	}
	for _, w := range first {
		w.seq.Free()
	}
}

// checkPadding runs the padded rows without their padding, which is what the reference
// asserts equal.
func checkPadding(t *testing.T, m *machine, g *golden.Model, near nearFunc) {
	var works []work
	var want [][]float64
	for i, ids := range g.Padding.IDs {
		var kept []int32
		for j, id := range ids {
			if g.Padding.Mask[i][j] != 0 {
				kept = append(kept, id)
			}
		}
		works = append(works, work{seq: m.cache.NewSequence(0), tokens: kept, prompt: len(kept)})
		want = append(want, nil)
		for _, p := range g.Prompts {
			if slices.Equal(p.IDs, kept) {
				want[i] = p.Last
			}
		}
	}
	logits := m.pass(t, nil, works...)
	for i, w := range works {
		if want[i] == nil {
			t.Errorf("row %d of the batch is none of the prompts", i)
		}
		for j, v := range want[i] {
			near(t, fmt.Sprintf("row %d, logit %d", i, j), float64(logits.Row(i)[j]), v)
		}
		w.seq.Free()
	}
}

// hiddenTrace keeps the hidden states of a pass.
type hiddenTrace struct {
	embeddings, norm [][]float32
	layers           [][][]float32
}

func (h *hiddenTrace) Trace(at Point, _ string, x tensor.Tensor) {
	rows := make([][]float32, x.Rows())
	for i := range rows {
		rows[i] = slices.Clone(x.Row(i))
	}
	switch at {
	case PointEmbedding:
		h.embeddings = rows
	case PointLayer:
		h.layers = append(h.layers, rows)
	case PointNorm:
		h.norm = rows
	}
}

func (h *hiddenTrace) check(t *testing.T, p *golden.Prompt, near nearFunc) {
	if p.Hidden == nil {
		return
	}
	one := func(what string, got [][]float32, want *golden.Hidden) {
		if want == nil {
			return
		}
		mean, std := moments(got)
		near(t, what+": mean", mean, want.Mean)
		near(t, what+": std", std, want.Std)
		for i, w := range want.First {
			near(t, fmt.Sprintf("%s: first row, %d", what, i), float64(got[0][i]), w)
		}
		for i, w := range want.Last {
			near(t, fmt.Sprintf("%s: last row, %d", what, i), float64(got[len(got)-1][i]), w)
		}
	}
	one("embeddings", h.embeddings, p.Hidden.Embeddings)
	if len(h.layers) != len(p.Hidden.Layers) {
		t.Fatalf("%d layers, want %d", len(h.layers), len(p.Hidden.Layers))
	}
	for i := range p.Hidden.Layers {
		one(fmt.Sprintf("layer %d", i), h.layers[i], &p.Hidden.Layers[i])
	}
	one("final norm", h.norm, p.Hidden.Norm)
}

func moments(rows [][]float32) (mean, std float64) {
	n := 0.0
	for _, row := range rows {
		for _, v := range row {
			mean += float64(v)
			n++
		}
	}
	mean /= n
	for _, row := range rows {
		for _, v := range row {
			std += (float64(v) - mean) * (float64(v) - mean)
		}
	}
	return mean, math.Sqrt(std / n)
}

func logprob(logits []float32, id int32) float64 {
	top, sum := float64(slices.Max(logits)), 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}

// descending are the ids by falling logit.
func descending(logits []float32) []int32 {
	ids := make([]int32, len(logits))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	return ids
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s: value %d is %v, want exactly %v", what, i, got[i], want[i])
			return
		}
	}
}
