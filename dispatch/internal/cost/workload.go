package cost

import (
	"math"
	"slices"

	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// secondsPerWeight returns how long products with the given number of tokens take for each
// weight. It interpolates between measured numbers of tokens; beyond the last it uses the last
// rate. ok is false if speeds are unknown.
func secondsPerWeight(speeds []Product, tokens float64) (seconds float64, ok bool) {
	if len(speeds) < 2 || slices.ContainsFunc(speeds, func(s Product) bool { return s.Tokens < 1 || s.Operations <= 0 }) {
		return 0, false
	}
	of := func(s Product) (float64, float64) {
		return float64(s.Tokens), 2 * float64(s.Tokens) / s.Operations
	}
	tokens = max(tokens, float64(speeds[0].Tokens))
	for i := 1; i < len(speeds); i++ {
		n, high := of(speeds[i])
		if tokens > n {
			continue
		}
		first, low := of(speeds[i-1])
		return low + (high-low)*(tokens-first)/(n-first), true
	}
	n, high := of(speeds[len(speeds)-1])
	return high * tokens / n, true
}

// A Machine holds the rates of a machine. dispatch.MachineSpeed explains its fields.
type Machine struct {
	MemoryBytes, DiskBytes                  float64
	Operations32, Operations16, Operations8 float64
	Products32, Products16, Products8       []Product
	Floats, OperationSeconds                float64
}

// A Product is the rate of products of weights, read from memory, with the given number of tokens
// at once.
type Product struct {
	Tokens     int
	Operations float64
}

// passesOfActivation is how often a pass reads or writes each input and output of a product, in
// norms, gates, packing and sums. The value makes predictions fit measurements, of dense and MoE
// models alike.
const passesOfActivation = 10

// workload counts what the tokens of a pass compute.
type workload struct {
	dense      float64 // weights that every token is multiplied by
	head       float64 // weights of the head, which the last token is multiplied by
	mixtures   []mixtureLoad
	floats     float64 // inputs and outputs of the products of one token
	operations float64 // of a pass, each waiting for the one before
	attention  []attentionLoad
	cache      kvcache.Config // what attention reads; without layers if the model cannot run
	sparse     []sparseLoad
}

// mixtureLoad is the workload of a stack of experts.
type mixtureLoad struct {
	weights float64 // of all
	share   float64 // share that one token selects
}

// workloadOf counts what passes of m compute, with a KV cache of dtype kv.
func workloadOf(m *meta.Model, kv meta.DType) (w workload) {
	if program, err := nn.Compile(m.Root); err == nil {
		w.cache = kvcache.Config{Layers: slices.Clone(program.KV()), States: program.States(), DType: kv}
	}
	stacked := map[*meta.Module]float64{} // experts that a token selects
	for _, node := range m.Root.Walk() {
		if s, ok := node.Spec.(*meta.MoESpec); ok && s.Count > 0 {
			for _, stack := range node.ExpertStacks(s) {
				stacked[stack] = min(float64(s.TopK)/float64(s.Count), 1)
			}
		}
	}
	var head *meta.Module
	if s, ok := m.Root.Spec.(*meta.CausalLMSpec); ok && s.Head != "" {
		if head = m.Root.Find(s.Head); head != nil {
			head = head.Resolve()
		}
	}
	for _, node := range m.Root.Walk() {
		w.operations += operationsOf(node.Kind)
		if s, ok := node.Spec.(*meta.AttentionSpec); ok {
			w.attend(s)
		}
		for _, p := range node.Params {
			w.count(node, p, stacked, head)
		}
	}
	return w
}

// operationsOf returns about how many sequential operations a layer has for a generated token,
// including its norm and its addition.
func operationsOf(k meta.Kind) float64 {
	switch k {
	case meta.KindNone, meta.KindBlock, meta.KindLinear, meta.KindEmbedding, meta.KindNorm, meta.KindSequential, meta.KindActivation:
		return 0
	case meta.KindCausalLM: // the norm and the head
		return 2
	case meta.KindMLP:
		return 4
	case meta.KindMoE: // the router, the choice, gathering and adding rows besides
		return 8
	}
	return 6
}

// count adds a parameter of a module.
func (w *workload) count(node *meta.Module, p *meta.Param, stacked map[*meta.Module]float64, head *meta.Module) {
	n := len(p.Shape)
	if n < 2 || node.Kind == meta.KindEmbedding {
		return
	}
	weights, ends := float64(p.Elements()), float64(p.Shape[n-1]+p.Shape[n-2])
	share, isStack := stacked[node]
	switch {
	case node == head:
		w.head += weights
	case isStack:
		w.mixtures = append(w.mixtures, mixtureLoad{weights, share})
		w.floats += ends * share * float64(p.Shape[0])
	default:
		w.dense += weights
		w.floats += ends
	}
}

// A tokenPass is a pass of several tokens of one sequence, or of one token for each of several
// sequences.
type tokenPass struct {
	tokens int
	logits int  // rows whose logits are computed
	seen   int  // earlier tokens of the sequence
	apart  bool // each token belongs to another sequence, all of which have seen as many
}

const (
	// floatsOfScore is how many numbers attention reads and writes, besides the KV cache, for each
	// position that a head of a token attends to.
	floatsOfScore = 5
	// cachePace is the rate at which attention reads the KV cache, as a share of that of memory: a
	// head reads short rows. Both values are those that fit generated tokens behind 1 to 3,900
	// tokens of two models with caches of 8, 16 and 32 bits.
	cachePace = 0.55
)

// attentionSeconds returns how long the attention of a pass takes.
func (w *workload) attentionSeconds(s *Machine, p tokenPass) float64 {
	tokens := float64(p.tokens)
	scores, reads := 0.0, w.cacheReads(p.seen+p.tokens, p.tokens)
	if p.apart {
		reads = int64(p.tokens) * w.cacheReads(p.seen+1, 1)
	}
	for _, a := range w.attention {
		positions := float64(p.seen) + (tokens-1)/2
		if p.apart {
			positions = float64(p.seen)
		}
		positions /= float64(max(a.rate, 1))
		if a.window > 0 {
			positions = min(positions, float64(a.window))
		}
		scores += tokens * positions * a.heads
	}
	seconds := float64(reads) / (cachePace * s.MemoryBytes)
	if s.Floats > 0 {
		seconds += floatsOfScore * scores / s.Floats
	}
	return seconds
}

// productRates holds the seconds per weight of products, by the number of tokens.
type productRates struct {
	speeds []Product // for few tokens
	many   float64   // operations per second for many tokens and many rows
	excess float64   // additional seconds per weight for reading it from memory, compared with speeds
	least  float64   // seconds per weight for reading it from memory, if it has fewer bits than those of speeds
}

// manyTokens is the number of tokens for which many is the rate.
const manyTokens = 256

// dense returns the rates of matrices with many rows, where packing tokens is a small part of
// products of many tokens.
func (r *productRates) dense() []Product {
	few := slices.DeleteFunc(slices.Clone(r.speeds), func(s Product) bool { return s.Tokens >= manyTokens })
	return append(few, Product{manyTokens, r.many})
}

// seconds returns how long a pass computes. ok is false if speeds are unknown.
func (w *workload) seconds(s *Machine, r *productRates, p tokenPass) (seconds float64, ok bool) {
	tokens := float64(p.tokens)
	dense := r.dense()
	if _, known := secondsPerWeight(dense, tokens); !known || len(r.speeds) < 2 || s.Floats <= 0 {
		return 0, false
	}
	add := func(speeds []Product, weights, tokens float64) {
		took, _ := secondsPerWeight(speeds, tokens)
		seconds += weights * max(took+r.excess, r.least)
	}
	add(dense, w.dense, tokens)
	add(dense, w.head, float64(p.logits))
	for _, m := range w.mixtures {
		if chosen := 1 - math.Pow(1-m.share, tokens); chosen > 0 {
			add(r.speeds, m.weights*chosen, tokens*m.share/chosen)
		}
	}
	return seconds + tokens*w.floats*passesOfActivation/s.Floats + w.operations*s.OperationSeconds + w.attentionSeconds(s, p), true
}
