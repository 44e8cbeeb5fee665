// Package rng replays PyTorch's CPU generator.
//
// A [Generator] is a 32-bit Mersenne twister seeded as torch.manual_seed does. Its methods draw the
// same numbers as torch's functions, in the same order: Float32 is rand, IntN is randint, Perm is
// randperm, Normal is randn, and Linear is the initialisation of nn.Linear. A run that shuffled and
// initialised under a seed in Python therefore starts from the same order and weights here.
//
// Integers and uniform numbers are exact. Normal differs in the last bit where torch's vectorised
// logarithm does. torch's dropout draws from another generator (MKL's), which is not replayed.
//
// A Generator belongs to one goroutine at a time. The package imports no other package of Heft.
package rng

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

const (
	words = 624
	shift = 397
)

// Generator is a stream of random numbers. Use [New].
type Generator struct {
	seed   uint64
	state  [words]uint32
	next   int     // of state; words when it must be renewed
	spare  float64 // the second of a pair of normal numbers
	spared bool
}

// New returns the generator that torch.manual_seed(seed) makes. Pass a negative seed as its two's
// complement, as torch does.
func New(seed uint64) *Generator {
	g := new(Generator)
	g.Seed(seed)
	return g
}

// Seed restarts g. Only the low 32 bits choose the stream.
func (g *Generator) Seed(seed uint64) {
	*g = Generator{seed: seed, next: words}
	x := uint32(seed)
	g.state[0] = x
	for i := 1; i < words; i++ {
		x = 1812433253*(x^x>>30) + uint32(i)
		g.state[i] = x
	}
}

// InitialSeed returns the seed that g was last seeded with.
func (g *Generator) InitialSeed() uint64 { return g.seed }

func (g *Generator) renew() {
	const upper, lower, matrix = 0x80000000, 0x7fffffff, 0x9908b0df
	for i := range words {
		y := g.state[i]&upper | g.state[(i+1)%words]&lower
		v := g.state[(i+shift)%words] ^ y>>1
		if y&1 != 0 {
			v ^= matrix
		}
		g.state[i] = v
	}
	g.next = 0
}

// Uint32 returns the twister's next word.
func (g *Generator) Uint32() uint32 {
	if g.next == words {
		g.renew()
	}
	y := g.state[g.next]
	g.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// Uint64 draws two words, the high one first.
func (g *Generator) Uint64() uint64 {
	hi := uint64(g.Uint32())
	return hi<<32 | uint64(g.Uint32())
}

// Int63 draws torch.empty((), dtype=int64).random_(), with which torch seeds samplers and workers.
func (g *Generator) Int63() int64 { return int64(g.Uint64() &^ (1 << 63)) }

// Float32 draws torch.rand in float32: 24 bits, in [0, 1).
func (g *Generator) Float32() float32 { return float32(g.Uint32()&(1<<24-1)) * (1.0 / (1 << 24)) }

// Float64 draws torch.rand in float64: 53 bits, in [0, 1).
func (g *Generator) Float64() float64 { return float64(g.Uint64()&(1<<53-1)) * (1.0 / (1 << 53)) }

// Uniform fills x as Tensor.uniform_(lo, hi) does. It rounds once, because product and sum are one
// fused operation.
func (g *Generator) Uniform(x []float32, lo, hi float32) {
	span, base := float64(hi-lo), float64(lo)
	for i := range x {
		x[i] = float32(float64(g.Float32())*span + base)
	}
}

// IntN draws torch.randint(0, n). It uses one word, or two from 2^28 up. n must be positive;
// otherwise IntN returns 0.
func (g *Generator) IntN(n int) int {
	switch {
	case n <= 0:
		return 0
	case uint64(n) >= 1<<28:
		return int(g.Uint64() % uint64(n))
	}
	return int(g.Uint32() % uint32(n))
}

// Perm draws torch.randperm(n), a permutation of 0 … n-1.
func (g *Generator) Perm(n int) []int {
	if n <= 0 {
		return nil
	}
	order := make([]int, n)
	if n >= math.MaxUint32/20 { // an inside-out shuffle with wide numbers
		for i := range order {
			j := int(g.Uint64() % uint64(i+1))
			order[i] = order[j]
			order[j] = i
		}
		return order
	}
	for i := range order {
		order[i] = i
	}
	for i := range n - 1 {
		j := i + int(g.Uint32()%uint32(n-i))
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// Normal fills x as Tensor.normal_(mean, std) does. From 16 elements up torch converts uniform
// numbers to normal ones sixteen at a time, and draws the last sixteen again if the length is not a
// multiple of 16. It draws shorter tensors one by one.
func (g *Generator) Normal(x []float32, mean, std float32) {
	if len(x) < 16 {
		for i := range x {
			x[i] = float32(g.normal()*float64(std) + float64(mean))
		}
		return
	}
	for i := range x {
		x[i] = g.Float32()
	}
	i := 0
	for ; i+16 <= len(x); i += 16 {
		boxMuller(x[i:i+16], mean, std)
	}
	if i < len(x) {
		tail := x[len(x)-16:]
		for j := range tail {
			tail[j] = g.Float32()
		}
		boxMuller(tail, mean, std)
	}
}

// boxMuller converts sixteen uniform numbers to normal ones, pairing j with j+8.
func boxMuller(x []float32, mean, std float32) {
	for j := range 8 {
		u := 1 - x[j] // in (0, 1]: the logarithm needs it
		radius := float32(math.Sqrt(float64(-2 * float32(math.Log(float64(u))))))
		sin, cos := math.Sincos(float64(2 * float32(math.Pi) * x[j+8]))
		x[j] = radius*float32(cos)*std + mean
		x[j+8] = radius*float32(sin)*std + mean
	}
}

func (g *Generator) normal() float64 {
	if g.spared {
		g.spared = false
		return g.spare
	}
	u1, u2 := g.Float64(), g.Float64()
	radius := math.Sqrt(-2 * math.Log1p(-u2))
	sin, cos := math.Sincos(2 * math.Pi * u1)
	g.spare, g.spared = radius*sin, true
	return radius * cos
}

// Linear fills weight and then bias (may be nil) with the initialisation of nn.Linear(in, out):
// uniform in ±1/sqrt(in). in is the number of columns of weight.
func (g *Generator) Linear(weight, bias []float32, in int) {
	if in < 1 {
		return
	}
	// kaiming_uniform_(a=sqrt(5)): gain sqrt(2/(1+5)), bound sqrt(3)*gain/sqrt(in).
	gain := math.Sqrt(2.0 / (1 + 5))
	bound := float32(math.Sqrt(3) * (gain / math.Sqrt(float64(in))))
	g.Uniform(weight, -bound, bound)
	edge := float32(1 / math.Sqrt(float64(in)))
	g.Uniform(bias, -edge, edge)
}

const encoded = 8 + 4*words + 4 + 8 + 1

// MarshalBinary encodes the position of g in its stream.
func (g *Generator) MarshalBinary() ([]byte, error) {
	b := make([]byte, 0, encoded)
	b = binary.LittleEndian.AppendUint64(b, g.seed)
	for _, w := range g.state {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(g.next))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(g.spare))
	if g.spared {
		return append(b, 1), nil
	}
	return append(b, 0), nil
}

// UnmarshalBinary restores the position of the saved generator. On error g is unchanged.
func (g *Generator) UnmarshalBinary(b []byte) error {
	if len(b) != encoded {
		return fmt.Errorf("rng: restore state: got %d bytes, want %d", len(b), encoded)
	}
	var n Generator
	n.seed = binary.LittleEndian.Uint64(b)
	b = b[8:]
	for i := range n.state {
		n.state[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	b = b[4*words:]
	n.next = int(binary.LittleEndian.Uint32(b))
	n.spare = math.Float64frombits(binary.LittleEndian.Uint64(b[4:]))
	n.spared = b[12] != 0
	if n.next > words {
		return errors.New("rng: restore state: the position is beyond the end of the words")
	}
	*g = n
	return nil
}
