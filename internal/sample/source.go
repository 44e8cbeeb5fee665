package sample

import "math/rand/v2"

// Source is the randomness of one sequence. The same seed and stream give the same
// draws, whatever else runs; one number is drawn per sampled token and none per
// greedy one. Not safe for concurrent use. The zero value is a valid, fixed Source.
type Source struct {
	pcg rand.PCG
}

// NewSource seeds a Source. stream tells the choices of one request apart.
func NewSource(seed uint64, stream int) Source {
	var s Source
	s.pcg.Seed(mix(seed), mix(seed^mix(uint64(stream)+1)))
	return s
}

// uniform is the next number in [0, 1), with 53 bits.
func (s *Source) uniform() float64 { return float64(s.pcg.Uint64()>>11) * 0x1p-53 }

// Skip passes over the number that the choice of one token under p would draw.
func (s *Source) Skip(p *Params) {
	if !p.Greedy() {
		s.uniform()
	}
}

// mix is the finaliser of splitmix64 (Steele, Lea, Flood 2014): near seeds must not
// give near states.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
