package sample

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

type goldenStep struct {
	Op    string          `json:"op"`
	Value json.RawMessage `json:"value"`
}

type goldenCase struct {
	Name      string       `json:"name"`
	Logits    []float32    `json:"logits"`
	Prompt    []int32      `json:"prompt_ids"`
	Generated []int32      `json:"generated_ids"`
	Steps     []goldenStep `json:"steps"`
	Expected  struct {
		Kept   int          `json:"kept"`
		Argmax int32        `json:"argmax"`
		Probs  [][2]float64 `json:"probs"`
	} `json:"expected"`
}

// goldenOps are the operations in the order in which a Sampler applies them.
var goldenOps = []string{"logit_bias", "repetition_penalty", "presence_frequency", "no_repeat_ngram",
	"temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff"}

func opRank(op string) int {
	for i, o := range goldenOps {
		if o == op {
			return i
		}
	}
	return -1
}

// set puts one step into p.
func (g goldenStep) set(t *testing.T, p *Params) {
	t.Helper()
	decode := func(v any) {
		if err := json.Unmarshal(g.Value, v); err != nil {
			t.Fatalf("%s %s: %v", g.Op, g.Value, err)
		}
	}
	number := func() (v float64) { decode(&v); return v }
	switch g.Op {
	case "logit_bias":
		var pairs [][2]float64
		decode(&pairs)
		for _, b := range pairs {
			p.Bias = append(p.Bias, Bias{int32(b[0]), float32(b[1])})
		}
	case "presence_frequency":
		var v [2]float64
		decode(&v)
		p.PresencePenalty, p.FrequencyPenalty = v[0], v[1]
	case "repetition_penalty":
		p.RepetitionPenalty = number()
	case "no_repeat_ngram":
		p.NoRepeatNGram = int(number())
	case "temperature":
		p.Temperature = number()
	case "top_h":
		p.TopH = number()
	case "top_k":
		p.TopK = int(number())
	case "top_p":
		p.TopP = number()
	case "min_p":
		p.MinP = number()
	case "typical_p":
		p.TypicalP = number()
	case "epsilon_cutoff":
		p.EpsilonCutoff = number()
	default:
		t.Fatalf("unknown operation %q", g.Op)
	}
}

// segments cuts the listed steps into runs that one Params can express.
func segments(t *testing.T, steps []goldenStep) []Params {
	list := []Params{{Temperature: 1}}
	last := -1
	for _, g := range steps {
		if r := opRank(g.Op); r <= last {
			list = append(list, Params{Temperature: 1})
		}
		last = opRank(g.Op)
		g.set(t, &list[len(list)-1])
	}
	return list
}

// distribution runs the segments, each on the logits that the one before left, and
// returns the probability of every id, NaN for removed ones.
func (c *goldenCase) distribution(t *testing.T) []float64 {
	t.Helper()
	s := New(len(c.Logits), testenv.Variant())
	logits := c.Logits
	probs := make([]float64, len(logits))
	for _, p := range segments(t, c.Steps) {
		if err := p.Validate(len(logits)); err != nil {
			t.Fatal(err)
		}
		row, err := s.adjusted(&p, &Step{Prompt: c.Prompt, Generated: c.Generated}, logits)
		if err != nil {
			t.Fatal(err)
		}
		next := make([]float32, len(row))
		for id, v := range row {
			next[id] = float32(float64(v) / p.Temperature)
		}
		best, err := s.argmax(row)
		if err != nil {
			t.Fatal(err)
		}
		s.shape(&p, row, row[best])
		for id := range probs {
			probs[id] = math.NaN()
		}
		for _, cand := range s.cands {
			probs[cand.id] = float64(cand.w) / s.total
		}
		for id, q := range probs {
			if math.IsNaN(q) {
				next[id] = negInf
			}
		}
		logits = next
	}
	return probs
}

func TestGoldenSampling(t *testing.T) {
	n := 0
	for _, file := range golden.Glob(t, "infer/sampling/*.json") {
		var f struct {
			Cases []goldenCase `json:"cases"`
		}
		golden.JSON(t, file, &f)
		for _, c := range f.Cases {
			t.Run(c.Name, func(t *testing.T) { c.check(t) })
			n++
		}
	}
	golden.Count(t, "infer/sampling", n)
}

func (c *goldenCase) check(t *testing.T) {
	got := c.distribution(t)
	want := make([]float64, len(got))
	for _, p := range c.Expected.Probs {
		want[int(p[0])] = p[1]
	}
	kept, sum := 0, 0.0
	for id, q := range got {
		if math.IsNaN(q) {
			q = 0
		} else {
			kept++
		}
		sum += q
		if !(math.Abs(q-want[id]) <= 1e-5) {
			t.Errorf("id %d: probability %.8g, want %.8g", id, q, want[id])
		}
	}
	if kept != c.Expected.Kept {
		t.Errorf("%d ids kept, want %d (steps %s)", kept, c.Expected.Kept, c.Steps)
	}
	if !(math.Abs(sum-1) <= 1e-6) {
		t.Errorf("probabilities sum to %v", sum)
	}
	if best := got[c.Expected.Argmax]; math.IsNaN(best) || best < maxOf(got) {
		t.Errorf("id %d is not the most likely one", c.Expected.Argmax)
	}
}

func maxOf(p []float64) float64 {
	m := 0.0
	for _, v := range p {
		if v > m {
			m = v
		}
	}
	return m
}
