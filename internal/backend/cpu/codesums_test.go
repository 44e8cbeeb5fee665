package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestSumsOfCodesHaveTheBitsOfABatch: products of up to 32 tokens with transposed integer codes equal those in a
// batch of 100, whose kernels unpack the weights; also with groups in any order, and more of them than tables are
// kept for.
func TestSumsOfCodesHaveTheBitsOfABatch(t *testing.T) {
	const in, out = 288, 256
	r := rand.New(rand.NewPCG(28, 11))
	for _, variant := range kernels.Names() {
		b := open(t, 2, variant)
		for _, c := range []struct {
			format meta.QuantFormat
			group  int
			index  uint32 // one more than the largest group of the index; 0 for none
		}{{meta.QuantGPTQ, 32, 0}, {meta.QuantGPTQ, 96, 3}, {meta.QuantGPTQ, in, 2}, {meta.QuantAWQ, 48, 0}, {meta.QuantGPTQ8, 32, 0}, {meta.QuantGPTQ8, 96, 3}} {
			w := codesOf(t, r, c.format, in, out, c.group, c.index)
			x := random(t, r, 100, in)
			batch := product(t, b, x, w)
			for _, tokens := range []int{1, 2, 8, 9, 32} {
				few := product(t, b, x.Slice(0, tokens), w)
				for i, v := range few.F32() {
					if math.Float32bits(v) != math.Float32bits(batch.F32()[i]) {
						t.Fatalf("%s, %v in groups of %d, %d tokens: result %d is %v, in a batch %v", variant, c.format, c.group, tokens, i, v, batch.F32()[i])
					}
				}
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// codesOf is a random weight of in × out codes as they are stored, with scales in float16.
func codesOf(t *testing.T, r *rand.Rand, format meta.QuantFormat, in, out, group int, index uint32) backend.Matrix {
	t.Helper()
	bits, groups := 4, max((in+group-1)/group, int(index))
	if format == meta.QuantGPTQ8 {
		bits = 8
	}
	bytes := func(n int) tensor.Tensor {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		out, err := tensor.Of(data, meta.Uint8, n)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	q := &backend.Quant{Quant: &meta.Quant{Format: format, Rows: group, Columns: 1, ZeroWords: [3]uint32{0x11111111}}, Width: out, Zeros: bytes(groups * out * bits / 8), Scales: bytes(2 * groups * out)}
	q.Scales.DType = meta.Float16
	for i := range groups * out {
		binary.LittleEndian.PutUint16(q.Scales.Data[2*i:], uint16(0x2000+r.IntN(0x1000)))
	}
	if index > 0 {
		q.Index = bytes(4 * in)
		for i := range in {
			binary.LittleEndian.PutUint32(q.Index.Data[4*i:], r.Uint32N(index))
		}
	}
	codes := bytes(in * out * bits / 8)
	return backend.Matrix{Tensor: tensor.Tensor{DType: meta.Int32, Rank: 2, Dims: [tensor.MaxRank]int{in, out}, Data: codes.Data}, Quant: q, Transposed: true}
}

func random(t *testing.T, r *rand.Rand, rows, cols int) tensor.Tensor {
	t.Helper()
	x := zeros(rows * cols).F32()
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return tensor.Floats(x, rows, cols)
}

func product(t *testing.T, b *cpu.Backend, x tensor.Tensor, w backend.Matrix) tensor.Tensor {
	t.Helper()
	y := tensor.Floats(make([]float32, x.Rows()*w.OutRows()), x.Rows(), w.OutRows())
	b.Linear(y, x, w, tensor.Tensor{})
	if err := b.Sync(); err != nil {
		t.Fatal(fmt.Errorf("%v: %w", w.Quant.Format, err))
	}
	return y
}
