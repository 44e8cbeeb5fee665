package cost

import (
	"cmp"
	"math"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// Model is the cost of passes of a model with a plan, in bytes.
type Model struct {
	skeleton *meta.Model
	plan     devicemap.Plan
	speed    Machine
	dtype    string
	weights  float64 // that a pass of one token reads, from any tier
	streamed float64 // the part that every pass reads from the disk
	elements float64 // number of weights
	rate     float64 // operations per second
	work     workload
	products []Product // rates with weights in the format that they have in memory
	kind     float64   // bytes per weight of the measured products
}

// New returns the costs of skeleton with a plan. dtype is that of the plan's policy, or
// the format that weights are converted to. kv is the dtype of the KV cache. newCostModel returns false if a device has no measured speed.
func New(skeleton *meta.Model, plan devicemap.Plan, dtype string, kv meta.DType, s Machine) (*Model, bool) {
	for _, d := range plan.Devices {
		if d.Device != devicemap.CPU && d.Device != devicemap.Disk && d.WeightsBytes > 0 {
			return nil, false
		}
	}
	step, err := BytesPerToken(skeleton, dtype)
	if err != nil {
		return nil, false
	}
	m := &Model{skeleton: skeleton, plan: plan, speed: s, dtype: dtype, weights: float64(step), rate: s.Operations32}
	m.elements, m.work = m.weights/bytesOfWeight(skeleton, dtype), workloadOf(skeleton, kv)
	m.products, m.kind = s.Products32, 4
	switch f, converted := quantized(dtype); {
	case converted && !f.Row().Exact:
		m.rate = cmp.Or(s.Operations8, s.Operations32)
		if eight := meta.Conversions()[0]; len(s.Products8) > 0 {
			m.products, m.kind = s.Products8, float64(eight.BlockBytes())/float64(eight.BlockColumns())
		}
	case bytesOfWeight(skeleton, dtype) <= 2:
		m.rate, m.products, m.kind = s.Operations16, s.Products16, 2
	}
	m.streamed = float64(plan.DiskBytesPerToken) - m.missed(1)
	return m, true
}

// missed returns the size of the experts that a pass of n tokens reads from the disk. The cache
// holds the experts that are requested most, so more tokens request more of the others. It
// assumes that each token requests each of the others with the same probability.
func (m *Model) missed(n int) float64 {
	one := (1 - m.plan.ExpertHitRate) * float64(m.plan.ExpertBytesPerToken)
	others := max(one, float64(m.plan.UncachedExpertBytes()))
	if n <= 1 || one == 0 {
		return one
	}
	return others * (1 - math.Pow(1-one/others, float64(n)))
}

// touched returns the size of the weights that a pass of n tokens reads, from any tier.
func (m *Model) touched(n int) float64 {
	return m.weights + experts(m.skeleton, n)*scale(m.skeleton, m.dtype)
}

// compute returns the time to compute a pass with weights in memory.
func (m *Model) compute(p tokenPass) *float64 {
	if seconds, ok := m.byTokens(p); ok {
		return new(seconds)
	}
	return slower(quotient(m.touched(p.tokens), m.speed.MemoryBytes), quotient(2*m.elements*float64(p.tokens), m.rate))
}

// byTokens is compute with rates by the number of tokens. ok is false if these are unknown.
func (m *Model) byTokens(p tokenPass) (seconds float64, ok bool) {
	if m.speed.MemoryBytes <= 0 {
		return 0, false
	}
	bytes := bytesOfWeight(m.skeleton, m.dtype)
	rates := productRates{speeds: m.products, many: m.rate, excess: (bytes - m.kind) / m.speed.MemoryBytes}
	if bytes < m.kind {
		rates.least = bytes / m.speed.MemoryBytes
	}
	return m.work.seconds(&m.speed, &rates, p)
}

// decode returns the time to compute a pass in which n sequences generate a token each behind seen
// tokens, with weights in memory.
func (m *Model) decode(n, seen int) *float64 {
	p := tokenPass{tokens: n, logits: n, seen: seen, apart: true}
	if seconds, ok := m.byTokens(p); ok {
		return new(seconds)
	}
	seconds := quotient(m.touched(n)-m.missed(n), m.speed.MemoryBytes)
	if seconds != nil && m.speed.MemoryBytes > 0 {
		*seconds += m.work.attentionSeconds(&m.speed, p)
	}
	return seconds
}

// Step returns the time of a pass in which n sequences generate a token each behind seen tokens.
// Streamed weights are read ahead while others compute. Missing experts are known only after their
// router has run.
func (m *Model) Step(n, seen int) *float64 {
	ahead := slower(m.decode(n, seen), quotient(m.streamed, m.speed.DiskBytes))
	wait := quotient(m.missed(n), m.speed.DiskBytes)
	if ahead == nil || wait == nil {
		return nil
	}
	return new(*ahead + *wait)
}

// quotient returns amount ÷ rate. It returns 0 if amount is 0, and nil if the rate is unknown.
func quotient(amount, rate float64) *float64 {
	switch {
	case amount == 0:
		return new(float64)
	case rate <= 0:
		return nil
	}
	return new(amount / rate)
}

// slower returns the longer of two times that overlap, or nil if one is unknown.
func slower(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return new(max(*a, *b))
}

// TogetherPerSecond estimates the total tokens per second of n sequences, or returns 0 if a speed
// is unknown. It adds reading and computing: their overlap depends on the machine, and the
// estimate only decides about doublings.
func (m *Model) TogetherPerSecond(n int) float64 {
	read := quotient(m.streamed+m.missed(n), m.speed.DiskBytes)
	compute := m.compute(tokenPass{tokens: n, logits: n, apart: true})
	if read == nil || compute == nil || *read+*compute == 0 {
		return 0
	}
	return float64(n) / (*read + *compute)
}

// Prompt returns the time from the start of a prompt of the given number of tokens, in passes of at
// most batch tokens, to its first token. It returns nil if a speed is unknown.
func (m *Model) Prompt(tokens, batch int) *float64 {
	total := 0.0
	for at := 0; at < tokens && batch > 0; at += batch {
		n := min(tokens-at, batch)
		ahead, wait := slower(quotient(m.streamed, m.speed.DiskBytes), m.compute(tokenPass{tokens: n, logits: 1, seen: at})), quotient(m.missed(n), m.speed.DiskBytes)
		if ahead == nil || wait == nil {
			return nil
		}
		total += *ahead + *wait
	}
	return &total
}

// First is prompt for a prompt of one pass with no weight in memory at the start.
func (m *Model) First(tokens int) *float64 {
	read, compute := quotient(m.touched(tokens), m.speed.DiskBytes), m.compute(tokenPass{tokens: tokens, logits: 1})
	if read == nil || compute == nil {
		return nil
	}
	return new(*read + *compute)
}

// Load returns the time to read the cpu tier into memory.
func (m *Model) Load() *float64 {
	return quotient(float64(m.plan.Device(devicemap.CPU).WeightsBytes), m.speed.DiskBytes)
}

// DiskBytes returns the bytes that a pass of n tokens reads from the disk.
func (m *Model) DiskBytes(n int) float64 { return m.streamed + m.missed(n) }
