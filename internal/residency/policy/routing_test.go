package policy

import (
	"math"
	"math/rand/v2"
)

// A routing makes traces.
type routing struct {
	name                  string
	layers, experts, topK int
	skew                  float64 // popularity is rank to the power of -skew
	repeat                float64 // share of the last token's experts that are selected again
	topic                 int     // tokens after which popularity is drawn anew, 0 for never
	batch, prompt         int     // sequences per pass, and tokens of a prompt before them
	tokens                int
}

// trace makes the trace of a seed.
func (r routing) trace(seed uint64) *Trace {
	g := &generator{routing: r, rng: rand.New(rand.NewPCG(seed, 1))}
	t := &Trace{}
	for range r.layers {
		t.Layers = append(t.Layers, Layer{Segments: r.experts, Size: 1})
		g.last = append(g.last, make([][]bool, max(1, r.batch)))
		g.popular = append(g.popular, nil)
	}
	for token := range r.tokens {
		rows := max(1, r.batch)
		if token == 0 && r.prompt > 0 {
			rows = r.prompt
		}
		for layer := range r.layers {
			if token == 0 || r.topic > 0 && token%r.topic == 0 {
				g.popular[layer] = g.popularity()
			}
			t.Steps = append(t.Steps, Step{layer, g.pass(layer, rows)})
		}
	}
	return t
}

type generator struct {
	routing
	rng     *rand.Rand
	popular [][]float64
	last    [][][]bool // by layer and sequence
}

func (g *generator) popularity() []float64 {
	p := make([]float64, g.experts)
	for rank, e := range g.rng.Perm(g.experts) {
		p[e] = math.Pow(float64(rank+1), -g.skew)
	}
	return p
}

// pass returns the experts of a layer that the tokens of a pass request.
func (g *generator) pass(layer, rows int) []int32 {
	all := make([]bool, g.experts)
	for row := range rows {
		sequence := row % len(g.last[layer])
		now := g.token(layer, g.last[layer][sequence])
		g.last[layer][sequence] = now
		for e := range now {
			all[e] = all[e] || now[e]
		}
	}
	var list []int32
	for e, yes := range all {
		if yes {
			list = append(list, int32(e))
		}
	}
	return list
}

func (g *generator) token(layer int, last []bool) []bool {
	now := make([]bool, g.experts)
	n := 0
	for e, yes := range last {
		if yes && g.rng.Float64() < g.repeat {
			now[e] = true
			n++
		}
	}
	for n < g.topK {
		// The largest of weighted exponential draws is drawn with probability in proportion to its weight.
		best, least := -1, math.Inf(1)
		for e, p := range g.popular[layer] {
			if x := g.rng.ExpFloat64() / p; !now[e] && x < least {
				best, least = e, x
			}
		}
		now[best] = true
		n++
	}
	return now
}

// slots is the number of segments that are share of all.
func (r routing) slots(share float64) int64 { return int64(share * float64(r.layers*r.experts)) }

// workingSet is the most that consecutive requests of one pass ask for.
func workingSet(t *Trace) int64 {
	most, sum := 0, 0
	for _, s := range t.Steps {
		if s.Layer == 0 {
			sum = 0
		}
		sum += len(s.Segments)
		most = max(most, sum)
	}
	return int64(most)
}

// routings are the recordings from which the constants of the forecast were chosen.
func routings() []routing {
	return []routing{
		{name: "random", layers: 16, experts: 32, topK: 4, tokens: 120},
		{name: "popular", layers: 16, experts: 32, topK: 4, skew: 1, tokens: 120},
		{name: "repeating", layers: 16, experts: 32, topK: 4, repeat: 0.5, tokens: 120},
		{name: "popular and repeating", layers: 8, experts: 128, topK: 8, skew: 0.6, repeat: 0.25, tokens: 120, prompt: 200},
		{name: "topics", layers: 16, experts: 32, topK: 4, skew: 1, repeat: 0.2, topic: 40, tokens: 120},
		{name: "batch of 8", layers: 16, experts: 32, topK: 2, skew: 0.8, repeat: 0.2, batch: 8, tokens: 80, prompt: 64},
	}
}
