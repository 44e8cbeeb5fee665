package optim

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/heftai/heft/internal/kernels"
)

// NewAdamW8bit returns AdamW whose state takes a quarter of the memory. Each value is an 8-bit
// code of bitsandbytes' dynamic map, with a scale for each block of 256. Parameters of less than
// 4096 elements have the state of AdamW. Steps equal those of bitsandbytes' AdamW8bit on a CPU.
// Blocks belong to whole parameters, so it does not work with plugins that split the optimizer's
// state between ranks. AMSGrad and Maximize are errors.
//
// In [ParamState], the bits of a float32 hold four codes.
func NewAdamW8bit(params []Param, o AdamOptions) (*Descent, error) {
	if o.AMSGrad || o.Maximize {
		return nil, fmt.Errorf("optim: AdamW8bit: AMSGrad %t and Maximize %t, want neither", o.AMSGrad, o.Maximize)
	}
	if _, err := newAdam("AdamW", nil, o); err != nil {
		return nil, err
	}
	set, err := kernels.Select("")
	if err != nil {
		return nil, fmt.Errorf("optim: %w", err)
	}
	for to, v := range map[*float64]float64{&o.LR: 1e-3, &o.Beta1: 0.9, &o.Beta2: 0.999, &o.Eps: 1e-8} {
		if *to == 0 {
			*to = v
		}
	}
	a := adam8bit{adam{"AdamW", o, set}, dynamicMap(true), dynamicMap(false)}
	return newDescent(a, Group{LR: o.LR, WeightDecay: o.WeightDecay, Momentum: o.Beta1}, params)
}

const (
	codeBlock = 256  // elements per scale
	least8bit = 4096 // minimum number of elements of a parameter whose state has codes
)

type adam8bit struct {
	adam
	signed, unsigned []float32 // the values of the codes, ascending
}

func (adam8bit) name() string { return "AdamW8bit" }

func (a adam8bit) arrays(_ *Group, shape []int) (names []string, lengths []int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	if n < least8bit {
		return []string{"exp_avg", "exp_avg_sq"}, []int{n, n}
	}
	words, blocks := (n+3)/4, (n+codeBlock-1)/codeBlock
	return []string{"state1", "absmax1", "state2", "absmax2"}, []int{words, blocks, words, blocks}
}

func (a adam8bit) stepWhole(g *Group, step int64, _ []int, w, grad []float32, slots [][]float32) {
	if len(w) < least8bit {
		stepAll(a.update(g, step), w, grad, slots)
		return
	}
	update := a.update(g, step)
	inParts(len(w), func(lo, hi int) {
		mean, square := make([]float32, codeBlock), make([]float32, codeBlock)
		for at := lo; at < hi; at += codeBlock {
			n, block := min(codeBlock, hi-at), at/codeBlock
			m, v := mean[:n], square[:n]
			decode(m, slots[0][at/4:], slots[1][block], a.signed)
			decode(v, slots[2][at/4:], slots[3][block], a.unsigned)
			update(w[at:at+n], grad[at:at+n], [][]float32{m, v})
			slots[1][block] = encode(slots[0][at/4:], m, a.signed)
			slots[3][block] = encode(slots[2][at/4:], v, a.unsigned)
		}
	})
}

// decode reads the numbers of a block from codes, four to a word.
func decode(to, words []float32, scale float32, numbers []float32) {
	for i := range to {
		code := math.Float32bits(words[i/4]) >> (8 * (i % 4)) & 0xff
		to[i] = numbers[code] * scale
	}
}

// encode writes the codes of the numbers of a block, and returns their scale.
func encode(words, from, numbers []float32) (scale float32) {
	for _, x := range from {
		scale = max(scale, float32(math.Abs(float64(x))))
	}
	by := float32(0)
	if scale > 0 {
		by = 1 / scale
	}
	for i := 0; i < len(from); i += 4 {
		word := uint32(0)
		for k, x := range from[i:min(i+4, len(from))] {
			word |= uint32(nearest(numbers, x*by)) << (8 * k)
		}
		words[i/4] = math.Float32frombits(word)
	}
	return scale
}

// nearest returns the index of the number that is nearest to x.
func nearest(numbers []float32, x float32) int {
	i := sort.Search(len(numbers), func(i int) bool { return numbers[i] >= x })
	switch {
	case i == len(numbers):
		return i - 1
	case i > 0 && x-numbers[i-1] < numbers[i]-x:
		return i - 1
	}
	return i
}

// dynamicMap returns the values of Dettmers' dynamic 8-bit data type: the more leading zeros a
// code has, the smaller the power of ten, and the fewer bits are left for the fraction.
func dynamicMap(signed bool) []float32 {
	const exponents = 7
	all := []float32{0, 1}
	for i := range exponents {
		items := 1<<i + 1
		if !signed {
			items = 1<<(i+1) + 1
		}
		power := float32(math.Pow(10, float64(i-exponents+1)))
		first := float32(0.1)
		step := float64((1 - first) / float32(items-1))
		bound := func(k int) float32 { // like torch.linspace, whose products are not rounded
			if k < items/2 {
				return float32(float64(first) + step*float64(k))
			}
			return float32(1 - step*float64(items-1-k))
		}
		for k := range items - 1 {
			v := power * ((bound(k) + bound(k+1)) / 2)
			if all = append(all, v); signed {
				all = append(all, -v)
			}
		}
	}
	slices.Sort(all)
	return all
}
