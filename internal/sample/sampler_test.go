package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"pgregory.net/rapid"
)

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

// choose runs one Next on a fresh Sampler.
func choose(p Params, seed uint64, step Step, logits []float32) (int32, error) {
	src := NewSource(seed, 0)
	return New(len(logits), "").Next(&p, &src, step, logits)
}

func TestNextRefusesBrokenLogits(t *testing.T) {
	for _, c := range []struct {
		name   string
		p      Params
		logits []float32
		want   error
	}{
		{"nan, greedy", Params{}, []float32{1, nan, 2}, ErrNotFinite},
		{"nan first", Params{}, []float32{nan, 1}, ErrNotFinite},
		{"all nan, sampled", Default(), []float32{nan, nan}, ErrNotFinite},
		{"+inf", Default(), []float32{0, inf}, ErrNotFinite},
		{"all -inf", Default(), []float32{negInf, negInf}, ErrNoCandidate},
		{"all forbidden", Params{Suppress: []int32{0, 1}}, []float32{1, 2}, ErrNoCandidate},
		{"empty", Params{}, nil, ErrNoCandidate},
	} {
		if id, err := choose(c.p, 1, Step{}, c.logits); !errors.Is(err, c.want) {
			t.Errorf("%s: id %d, error %v, want %v", c.name, id, err, c.want)
		}
	}
	if _, err := New(3, "").Next(&Params{}, nil, Step{}, []float32{1, 2}); err == nil {
		t.Error("logits of another length are taken")
	}
	if _, err := New(65, "").Next(&Params{}, nil, Step{Mask: []uint64{1}}, make([]float32, 65)); err == nil {
		t.Error("a mask too short for the vocabulary is taken")
	}
}

func TestGreedyProcessors(t *testing.T) {
	logits := []float32{0, 3, 3, 2, 1}
	for _, c := range []struct {
		name string
		p    Params
		step Step
		want int32
	}{
		{"lowest id of equals", Params{}, Step{}, 1},
		{"bias", Params{Bias: []Bias{{4, 1}, {4, 2}}}, Step{}, 4},
		{"suppress, ids outside ignored", Params{Suppress: []int32{1, 99, -1}}, Step{}, 2},
		{"allow", Params{Allow: []int32{0, 3}}, Step{}, 3},
		{"mask", Params{}, Step{Mask: []uint64{1<<0 | 1<<4}}, 4},
		{"repetition sees the prompt", Params{RepetitionPenalty: 2}, Step{Prompt: []int32{1, 77}}, 2},
		{"repetition counts an id once", Params{RepetitionPenalty: 1.2}, Step{Prompt: []int32{1, 1, 1, 2, 2}}, 1},
		{"presence does not see the prompt", Params{PresencePenalty: 2}, Step{Prompt: []int32{1}}, 1},
		{"frequency counts each", Params{FrequencyPenalty: 0.6}, Step{Generated: []int32{1, 1, 2, 2}}, 3},
		{"n-gram over the seam", Params{NoRepeatNGram: 2}, Step{Prompt: []int32{4, 1}, Generated: []int32{0, 4}}, 2},
		{"n-gram longer than the text", Params{NoRepeatNGram: 4}, Step{Prompt: []int32{1, 1}}, 1},
		{"1-gram", Params{NoRepeatNGram: 1}, Step{Prompt: []int32{1}, Generated: []int32{2}}, 3},
		{"bad word of one", Params{BadWords: [][]int32{{1}}}, Step{}, 2},
		{"bad word after its beginning", Params{BadWords: [][]int32{{4, 0, 1}}}, Step{Prompt: []int32{4}, Generated: []int32{0}}, 2},
		{"bad word elsewhere", Params{BadWords: [][]int32{{4, 0, 1}}}, Step{Prompt: []int32{0}}, 1},
		{"min tokens", Params{MinTokens: 2, Stop: []int32{1}}, Step{Generated: []int32{3}}, 2},
		{"min tokens reached", Params{MinTokens: 2, Stop: []int32{1}}, Step{Generated: []int32{3, 3}}, 1},
	} {
		if got, err := choose(c.p, 0, c.step, logits); err != nil || got != c.want {
			t.Errorf("%s: id %d (%v), want %d", c.name, got, err, c.want)
		}
	}
	if !slices.Equal(logits, []float32{0, 3, 3, 2, 1}) {
		t.Errorf("the caller's logits were changed: %v", logits)
	}
}

func TestDrawFollowsProbabilities(t *testing.T) {
	logits := []float32{float32(math.Log(0.5)), float32(math.Log(0.3)), negInf, float32(math.Log(0.2))}
	p, src, s := Default(), NewSource(7, 0), New(4, "")
	const draws = 20000
	var count [4]int
	for range draws {
		id, err := s.Next(&p, &src, Step{}, logits)
		if err != nil {
			t.Fatal(err)
		}
		count[id]++
	}
	for id, want := range []float64{0.5, 0.3, 0, 0.2} {
		if got := float64(count[id]) / draws; !(math.Abs(got-want) <= 0.015) {
			t.Errorf("id %d drawn with frequency %.3f, want %.3f", id, got, want)
		}
	}
}

// A request's draws must not depend on what else is sampled in between.
func TestSeedDecidesAlone(t *testing.T) {
	logits := randomLogits(1, 500)
	p := Params{Temperature: 1.5, TopK: 50, TopP: 0.95}
	run := func(s *Sampler, stream int, between func()) (ids []int32) {
		src := NewSource(42, stream)
		for range 20 {
			id, err := s.Next(&p, &src, Step{Generated: ids}, logits)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			between()
		}
		return ids
	}
	alone := run(New(500, ""), 0, func() {})
	s := New(500, "")
	other, mates := NewSource(9, 0), Params{Temperature: 2, PresencePenalty: 1}
	among := run(s, 0, func() { s.Next(&mates, &other, Step{Generated: []int32{3}}, logits) })
	if !slices.Equal(alone, among) {
		t.Errorf("alone %v, among others %v", alone, among)
	}
	if slices.Equal(alone, run(New(500, ""), 1, func() {})) {
		t.Error("two streams of a seed draw the same ids")
	}
}

func TestExtremeTemperatures(t *testing.T) {
	logits := []float32{-3e38, 1, 3e38, 2}
	for _, temperature := range []float64{0, 1e-300, 1e-5, 1e-3, 1, 1e300} {
		p := Params{Temperature: temperature, TopP: 0.99}
		for seed := range uint64(8) {
			id, err := choose(p, seed, Step{}, logits)
			if err != nil || id != 2 && temperature < 1e30 {
				t.Errorf("temperature %g: id %d, error %v", temperature, id, err)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	bad := map[string]Params{
		"temperature": {Temperature: -1}, "nan": {Temperature: math.NaN()}, "top_p": {TopP: 1.1},
		"min_p": {MinP: -0.1}, "penalty": {RepetitionPenalty: -1}, "presence": {PresencePenalty: math.Inf(1)},
		"bias id": {Bias: []Bias{{10, 1}}}, "bias value": {Bias: []Bias{{1, nan}}},
		"allow": {Allow: []int32{-1}}, "bad word": {BadWords: [][]int32{{}}}, "n-gram": {NoRepeatNGram: -1},
	}
	for name, p := range bad {
		if p.Validate(10) == nil {
			t.Errorf("%s: %+v is accepted", name, p)
		}
	}
	for _, p := range []Params{{}, Default(), {TopK: -1}, {Suppress: []int32{99}}} {
		if err := p.Validate(10); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestRankCountsTokensThatAreAtLeastAsLikely(t *testing.T) {
	logits := []float32{1, 5, 5, negInf, 3}
	for id, want := range []int{4, 2, 2, 5, 3} {
		if got := Rank(logits, int32(id)); got != want {
			t.Errorf("id %d: got rank %d, want %d", id, got, want)
		}
	}
	if got := Rank(logits, -1) + Rank(logits, 5); got != 0 {
		t.Errorf("ids outside the vocabulary have the ranks %d", got)
	}
}

func TestLogProbs(t *testing.T) {
	logits := randomLogits(3, 1000)
	logits[5], logits[6], logits[7] = 50, 50, negInf
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - 50)
	}
	want := func(id int) float32 { return float32(float64(logits[id]) - 50 - math.Log(sum)) }
	s := New(1000, "")
	own, top, err := s.LogProbs([]LogProb{{ID: 77}}, logits, 9, 4)
	if err != nil || !(math.Abs(float64(own-want(9))) <= 1e-5) {
		t.Errorf("log p(9) = %v (%v), want %v", own, err, want(9))
	}
	if len(top) != 5 || top[0].ID != 77 {
		t.Fatalf("not appended: %v", top)
	}
	for i, l := range top[1:] {
		if id := []int{5, 6}; i < 2 && int(l.ID) != id[i] {
			t.Errorf("rank %d is id %d, want %d", i, l.ID, id[i])
		}
		if !(math.Abs(float64(l.LogProb-want(int(l.ID)))) <= 1e-5) {
			t.Errorf("rank %d: %v, want %v", i, l, want(int(l.ID)))
		}
	}
	if own, _, _ := s.LogProbs(nil, logits, 7, 0); own != negInf {
		t.Errorf("log p of a -inf logit is %v", own)
	}
	if _, _, err := s.LogProbs(nil, []float32{nan, 1}, 0, 1); !errors.Is(err, ErrNotFinite) {
		t.Errorf("NaN logits: %v", err)
	}
	if _, top, _ := s.LogProbs(nil, []float32{1, 2}, 0, 9); len(top) != 2 || top[0].ID != 1 {
		t.Errorf("more asked than there are: %v", top)
	}
}

func TestExpNeg(t *testing.T) {
	for x := float32(0); x > -87; x -= 0.00137 {
		want := math.Exp(float64(x))
		if got := float64(expNeg(x)); !(math.Abs(got-want) <= 2e-7*want) {
			t.Fatalf("e^%v = %v, want %v", x, got, want)
		}
	}
	if expNeg(negInf) != 0 || expNeg(0) != 1 {
		t.Errorf("e^-inf = %v, e^0 = %v", expNeg(negInf), expNeg(0))
	}
}

// Selection without a sort must agree with a sort, ties included.
func TestSelectionAgreesWithSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(-20, 0), 1, 400).Draw(t, "values")
		var c []candidate
		total := 0.0
		row := make([]float32, len(values))
		for i, v := range values {
			x := float32(v) / 3
			row[i] = x
			c = append(c, candidate{int32(i), x, expNeg(x)})
			total += float64(expNeg(x))
		}
		sorted := slices.Clone(c)
		slices.SortFunc(sorted, compare)
		n := rapid.IntRange(1, len(c)).Draw(t, "n")

		got := slices.Clone(c)
		front(got, n)
		slices.SortFunc(got[:n], compare)
		if !slices.Equal(got[:n], sorted[:n]) {
			t.Fatalf("front(%d) differs from a sort", n)
		}
		if n < len(c) {
			if kth := kthOf(row, n); kth != sorted[n-1].x {
				t.Fatalf("kthBest(%d) = %v, want %v", n, kth, sorted[n-1].x)
			}
		}
		mass := rapid.Float64Range(0, 1).Draw(t, "p") * total
		want, sum := 0, 0.0
		for want < len(c) && (want == 0 || sum < mass) {
			sum += float64(sorted[want].w)
			want++
		}
		got = slices.Clone(c)
		if m := frontMass(got, mass); m != want && !(math.Abs(sum-mass) <= 1e-9*total) {
			t.Fatalf("frontMass(%v) = %d, want %d", mass, m, want)
		}
	})
}

// kthOf is kthBest of a row by itself.
func kthOf(row []float32, k int) float32 {
	s := New(len(row), "")
	s.all = make([]candidate, len(row))
	s.argmax(row)
	return s.kthBest(row, k)
}

// The short cut of fillLikely must not change what top_p keeps.
func TestTopPShortCut(t *testing.T) {
	for seed := range uint64(20) {
		row := randomLogits(seed, 3000)
		for _, p := range []float64{1e-6, 0.1, 0.5, 0.9, 0.999} {
			a, b := New(len(row), ""), New(len(row), "")
			best, _ := a.argmax(row)
			b.argmax(row)
			a.shape(&Params{Temperature: 0.8, TopP: p}, row, row[best])
			b.shape(&Params{Temperature: 0.8, TopK: len(row) - 1, TopP: p}, row, row[best])
			if len(a.cands) != len(b.cands) && p < 0.99 {
				t.Errorf("seed %d, top_p %v: %d kept, want %d", seed, p, len(a.cands), len(b.cands))
			}
		}
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	logits := randomLogits(1, 4000)
	s, src := New(len(logits), ""), NewSource(1, 0)
	step := Step{Prompt: []int32{1, 2, 3, 1}, Generated: []int32{4, 4, 5}}
	top := make([]LogProb, 0, 20)
	for name, p := range variants() {
		if n := testing.AllocsPerRun(20, func() { s.Next(&p, &src, step, logits) }); n != 0 {
			t.Errorf("%s: %v allocations a token", name, n)
		}
	}
	if n := testing.AllocsPerRun(20, func() { s.LogProbs(top[:0], logits, 3, 20) }); n != 0 {
		t.Errorf("LogProbs: %v allocations", n)
	}
}

func variants() map[string]Params {
	return map[string]Params{
		"greedy":      {},
		"temperature": Default(),
		"top_k=40":    {Temperature: 0.8, TopK: 40},
		"top_k=9000":  {Temperature: 0.8, TopK: 9000},
		"top_p=0.95":  {Temperature: 0.8, TopP: 0.95},
		"flat top_p":  {Temperature: 100, TopP: 0.95},
		"min_p=0.05":  {Temperature: 0.8, MinP: 0.05},
		"typical_p":   {Temperature: 0.8, TypicalP: 0.9},
		"top_h":       {Temperature: 0.8, TopH: 0.4},
		"all": {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepetitionPenalty: 1.1,
			PresencePenalty: 0.5, FrequencyPenalty: 0.5, NoRepeatNGram: 3, Bias: []Bias{{3, 1}}},
	}
}

func randomLogits(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(r.NormFloat64() * 3)
	}
	return row
}

func BenchmarkNext(b *testing.B) {
	const vocab = 151936
	logits := randomLogits(1, vocab)
	for i := range 20 { // as a model's: few stand far above the rest
		logits[i*7000] = 24 - float32(i)/2
	}
	step := Step{Prompt: make([]int32, 2000), Generated: make([]int32, 500)}
	for name, p := range variants() {
		b.Run(name, func(b *testing.B) {
			s, src := New(vocab, ""), NewSource(1, 0)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Next(&p, &src, step, logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("logprobs", func(b *testing.B) {
		s, top := New(vocab, ""), make([]LogProb, 0, 20)
		for b.Loop() {
			s.LogProbs(top[:0], logits, 3, 20)
		}
	})
}

// TestDrawAnyAcrossBlocks: without filters each id is drawn in its share, the first and the last of
// all and of a block too, and none that is forbidden, however near to 1 the number is.
func TestDrawAnyAcrossBlocks(t *testing.T) {
	const n = 3*block + 7
	row := make([]float32, n)
	allowed := []int32{0, block - 1, block, 2*block + 5, n - 1}
	for i := range row {
		row[i] = negInf
	}
	for i, id := range allowed {
		row[id] = float32(math.Log(float64(i + 1)))
	}
	s := New(n, "")
	best, err := s.argmax(row)
	if err != nil || best != n-1 {
		t.Fatalf("the best is %d (%v)", best, err)
	}
	s.weigh(row, row[best], 1)
	if !(math.Abs(s.total-3) <= 1e-6) { // (1+2+3+4+5)/5
		t.Fatalf("total weight %v, want 3", s.total)
	}
	for i, sum := range []float64{0, 1, 3, 6, 10} {
		for _, u := range []float64{sum + 1e-3, sum + float64(i+1) - 1e-3} {
			if got := s.drawAny(u / 15); got != allowed[i] {
				t.Errorf("u = %v draws %d, want %d", u/15, got, allowed[i])
			}
		}
	}
	for _, u := range []float64{0, math.Nextafter(1, 0), 1} {
		if got := s.drawAny(u); !slices.Contains(allowed, got) {
			t.Errorf("u = %v draws %d, which is forbidden", u, got)
		}
	}
}

// TestBlocksThatUnderflowAreZeroInEveryKernel: weigh skips blocks whose exponentials underflow, which took a millisecond per
// token under constraints. All kernel variants compute 0 for them.
func TestBlocksThatUnderflowAreZeroInEveryKernel(t *testing.T) {
	for _, variant := range kernels.Names() {
		s := New(3*block, variant)
		row := make([]float32, 3*block)
		for i := range row {
			row[i] = []float32{-1, math.Nextafter32(vanishing, negInf), negInf}[i/block]
		}
		for _, x := range row[block:] {
			if sum := s.set.Vector.ExpSum([]float32{x}, 0); sum != 0 {
				t.Fatalf("%s: the exponential of %v is %v, want 0", variant, x, sum)
			}
		}
		for i := range s.work {
			s.work[i] = 7 // of an earlier row
		}
		row[0] = 0
		if _, err := s.argmax(row); err != nil {
			t.Fatal(err)
		}
		s.weigh(row, 0, 1)
		if i := slices.IndexFunc(s.work[block:3*block], func(w float32) bool { return w != 0 }); i >= 0 || s.total != s.sums[0] || s.total <= 1 {
			t.Errorf("%s: token %d has a weight, total %v, sums %v", variant, block+i, s.total, s.sums)
		}
	}
}
